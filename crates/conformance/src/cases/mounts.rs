//! What a mount decides: where one ends, and whether it may be written to.
//!
//! The case's own directories are mounted once more, in a mount namespace that ends with the case.

use rustix::fs::{self, OFlags as O, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::call::{chmod, chown, create, lutimens, mkdir, mkfifo, open, utimens};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::sys;

cases! { "mounts"
    anyone: ;
    root: between_two_is_exdev, a_mounted_directory_is_ebusy, read_only_is_erofs,
        read_only_is_still_read, the_same_file_by_both, no_execution, no_devices;
}

/// Runs `case` with `d` mounted at `e` as well.
fn with_two(p: &Place, flags: MountFlags, case: impl FnOnce() -> Outcome) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "text")?;
    p.dir("d/sub")?;
    p.dir("e")?;
    works!(sys::own_mounts())?;
    works!(mount_bind("d", "e"))?;
    if !flags.is_empty() {
        works!(mount_remount("e", flags | MountFlags::BIND, c""))?;
    }
    let outcome = case();
    works!(unmount("e", UnmountFlags::DETACH))?;
    outcome
}

/// Also where both are of one file system.
fn between_two_is_exdev(p: &Place) -> Outcome {
    with_two(p, MountFlags::empty(), || {
        fails!(fs::rename("d/f", "e/g"), XDEV)?;
        fails!(fs::rename("d/sub", "e/dir"), XDEV)?;
        fails!(fs::link("d/f", "e/g"), XDEV)?;
        works!(fs::rename("e/f", "e/g"))?;
        p.holds("d/g", "text")
    })
}

fn a_mounted_directory_is_ebusy(p: &Place) -> Outcome {
    with_two(p, MountFlags::empty(), || {
        fails!(fs::rmdir("e"), BUSY)?;
        fails!(fs::rename("e", "new"), BUSY)?;
        p.dir("other")?;
        fails!(fs::rename("other", "e"), BUSY)?;
        fails!(fs::unlink("e"), ISDIR | BUSY)
    })
}

fn read_only_is_erofs(p: &Place) -> Outcome {
    with_two(p, MountFlags::RDONLY, || {
        for flags in [O::WRONLY, O::RDWR, O::RDONLY | O::TRUNC] {
            fails!(open("e/f", flags), ROFS)?;
        }
        fails!(create("e/new", 0o644), ROFS)?;
        fails!(open("e/new", O::CREATE | O::RDONLY), ROFS)?;
        fails!(mkdir("e/new", 0o755), ROFS)?;
        fails!(mkfifo("e/new", 0o644), ROFS)?;
        fails!(fs::symlink("t", "e/new"), ROFS)?;
        fails!(fs::link("e/f", "e/new"), ROFS)?;
        fails!(fs::rename("e/f", "e/new"), ROFS)?;
        fails!(fs::unlink("e/f"), ROFS)?;
        fails!(fs::rmdir("e/sub"), ROFS)?;
        fails!(sys::truncate(c"e/f", 0), ROFS)?;
        fails!(chmod("e/f", 0o600), ROFS)?;
        fails!(chown("e/f", 1, 1), ROFS)?;
        fails!(utimens("e/f", (1, 0), (1, 0)), ROFS)?;
        fails!(lutimens("e/sub", (1, 0), (1, 0)), ROFS)?;
        fails!(fs::setxattr("e/f", "user.a", b"x", XattrFlags::empty()), ROFS)?;
        fails!(fs::removexattr("e/f", "user.a"), ROFS)?;
        fails!(fs::access("e/f", fs::Access::WRITE_OK), ROFS)?;
        // What is there already is said first.
        fails!(mkdir("e/sub", 0o755), EXIST)?;
        fails!(fs::symlink("t", "e/f"), EXIST)
    })
}

fn read_only_is_still_read(p: &Place) -> Outcome {
    with_two(p, MountFlags::RDONLY, || {
        p.holds("e/f", "text")?;
        works!(open("e/f", O::RDONLY | O::CREATE))?;
        same!(p.names("e")?, vec!["f".to_owned(), "sub".to_owned()])?;
        holds!(works!(fs::statvfs("e"))?.f_flag.contains(fs::StatVfsMountFlags::RDONLY))?;
        holds!(!works!(fs::statvfs("d"))?.f_flag.contains(fs::StatVfsMountFlags::RDONLY))?;
        // The other way in is not bound by it.
        works!(rustix::io::pwrite(edit("d/f")?, b"T", 0))?;
        p.holds("e/f", "Text")
    })
}

fn the_same_file_by_both(p: &Place) -> Outcome {
    with_two(p, MountFlags::empty(), || {
        same!(p.stat("d/f")?.st_ino, p.stat("e/f")?.st_ino)?;
        let (one, two) = (works!(edit("d/f"))?, works!(edit("e/f"))?);
        works!(fs::flock(&one, fs::FlockOperation::LockExclusive))?;
        fails!(fs::flock(&two, fs::FlockOperation::NonBlockingLockShared), AGAIN)?;
        works!(rustix::io::pwrite(&one, b"T", 0))?;
        same!(crate::call::pread(&two, 0, 10)?, b"Text".to_vec())
    })
}

fn no_execution(p: &Place) -> Outcome {
    with_two(p, MountFlags::NOEXEC, || {
        std::fs::copy("/bin/true", "d/program")?;
        chmod("d/program", 0o755)?;
        works!(run("d/program"))?;
        fails!(run("e/program"), ACCESS)?;
        fails!(fs::access("e/program", fs::Access::EXEC_OK), ACCESS)
    })
}

fn run(path: &str) -> Result<(), rustix::io::Errno> {
    let ran = std::process::Command::new(path).status();
    ran.map(drop)
        .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

fn no_devices(p: &Place) -> Outcome {
    with_two(p, MountFlags::NODEV, || {
        let null = fs::makedev(1, 3);
        works!(crate::call::mknod("e/null", fs::FileType::CharacterDevice, 0o666, null))?;
        fails!(open("e/null", O::RDWR), ACCESS)
    })
}
