//! open: flags, kinds of files, and permissions.

use rustix::fs::{self, FileType, OFlags as O};

use crate::call::{chmod, chown, create, mkdir, mknod, open, open_mode, read};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, BOB, Place, STAFF, write_all};
use crate::sys;

cases! { "open"
    anyone: creates, creates_through_a_dangling_link, exclusively, truncates, does_not_truncate,
        a_directory_only_for_reading, directory_flag, nofollow, path_only, descriptor_is_lowest,
        flags_are_kept, unix_sockets_are_enxio, a_fifo_without_reader_is_enxio,
        create_directory_flags_are_refused, a_running_program_is_etxtbsy,
        resolving_beneath, reopened_through_proc, noatime_is_the_owners, large_and_direct,
        waiting_for_a_fifo_is_interrupted;
    root: mode_is_cut_by_umask, takes_the_callers_ids, needs_the_matching_permission,
        first_matching_class_decides, groups_count, a_new_file_may_forbid_its_maker,
        truncating_needs_write_permission, supplementary_group_may_write, device_without_driver,
        a_foreign_set_group_id_is_stripped;
}

fn creates(p: &Place) -> Outcome {
    let file = works!(open("f", O::CREATE | O::RDWR))?;
    works!(write_all(&file, b"text"))?;
    let stat = p.stat("f")?;
    same!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile)?;
    same!((stat.st_nlink, stat.st_size), (1, 4))?;
    // One that is there is opened as it is.
    works!(open_mode("f", O::CREATE | O::RDONLY, 0o777))?;
    same!(p.mode("f")?, 0o644)?;
    p.holds("f", "text")
}

fn creates_through_a_dangling_link(p: &Place) -> Outcome {
    p.symlink("target", "link")?;
    fails!(open("link", O::RDONLY), NOENT)?;
    fails!(create("link", 0o644), EXIST)?;
    fails!(open("link", O::CREATE | O::WRONLY | O::NOFOLLOW), LOOP)?;
    works!(open("link", O::CREATE | O::WRONLY))?;
    same!(p.stat("target")?.st_size, 0)
}

fn exclusively(p: &Place) -> Outcome {
    p.file("f", "old")?;
    p.dir("d")?;
    p.fifo("fifo")?;
    p.symlink("nowhere", "link")?;
    for name in ["f", "d", "fifo", "link"] {
        fails!(open(name, O::CREATE | O::EXCL | O::WRONLY), EXIST)?;
        fails!(open(name, O::CREATE | O::EXCL | O::RDONLY), EXIST)?;
        fails!(open(name, O::CREATE | O::EXCL | O::TRUNC | O::WRONLY), EXIST)?;
    }
    p.holds("f", "old")
}

fn truncates(p: &Place) -> Outcome {
    p.file("f", "content")?;
    let before = p.stat("f")?;
    let reader = works!(open("f", O::RDONLY))?;
    works!(open("f", O::WRONLY | O::TRUNC))?;
    same!(p.stat("f")?.st_size, 0)?;
    same!(p.stat("f")?.st_ino, before.st_ino)?;
    same!(read(&reader, 10)?, Vec::new())?;
    p.file("g", "content")?;
    works!(open("g", O::CREATE | O::RDWR | O::TRUNC))?;
    same!(p.stat("g")?.st_size, 0)
}

fn does_not_truncate(p: &Place) -> Outcome {
    p.file("f", "content")?;
    works!(open("f", O::WRONLY))?;
    works!(open("f", O::WRONLY | O::CREATE))?;
    works!(open("f", O::WRONLY | O::APPEND))?;
    p.fifo("fifo")?;
    works!(open("fifo", O::RDWR | O::TRUNC))?;
    p.holds("f", "content")
}

fn a_directory_only_for_reading(p: &Place) -> Outcome {
    p.dir("d")?;
    works!(open("d", O::RDONLY))?;
    fails!(open("d", O::WRONLY), ISDIR)?;
    fails!(open("d", O::RDWR), ISDIR)?;
    fails!(open("d", O::RDONLY | O::TRUNC), ISDIR)?;
    fails!(open("d", O::RDONLY | O::CREATE), ISDIR)?;
    fails!(open(".", O::WRONLY | O::CREATE), ISDIR)
}

fn directory_flag(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    p.symlink("d", "link")?;
    works!(open("d", O::DIRECTORY))?;
    works!(open("link", O::DIRECTORY))?;
    fails!(open("f", O::DIRECTORY), NOTDIR)?;
    fails!(open("link", O::DIRECTORY | O::NOFOLLOW), NOTDIR)?;
    fails!(open("missing", O::DIRECTORY), NOENT)
}

fn nofollow(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.file("d/f", "")?;
    p.symlink("f", "link")?;
    p.symlink("d", "dir_link")?;
    fails!(open("link", O::RDONLY | O::NOFOLLOW), LOOP)?;
    works!(open("f", O::RDONLY | O::NOFOLLOW))?;
    works!(open("dir_link/f", O::RDONLY | O::NOFOLLOW)).map(drop)
}

/// A descriptor for the path only needs no permission and gives none.
fn path_only(p: &Place) -> Outcome {
    p.file("f", "content")?;
    p.symlink("f", "link")?;
    let file = works!(open("f", O::PATH))?;
    fails!(read(&file, 1), BADF)?;
    fails!(rustix::io::write(&file, b"x"), BADF)?;
    fails!(crate::call::fchmod(&file, 0o600), BADF)?;
    fails!(fs::ftruncate(&file, 0), BADF | INVAL)?;
    same!(works!(fs::fstat(&file))?.st_ino, p.stat("f")?.st_ino)?;
    let link = works!(open("link", O::PATH | O::NOFOLLOW))?;
    same!(works!(fs::fstat(&link))?.st_ino, p.stat("link")?.st_ino)?;
    same!(works!(fs::readlinkat(&link, "", Vec::new()))?.into_bytes(), b"f".to_vec())
}

fn descriptor_is_lowest(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("f", "")?;
    let first = works!(open("f", O::RDONLY))?;
    let second = works!(open("f", O::RDONLY))?;
    let number = first.as_raw_fd();
    holds!(second.as_raw_fd() != number)?;
    drop(first);
    same!(works!(open("f", O::RDONLY))?.as_raw_fd(), number)
}

fn flags_are_kept(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::WRONLY | O::APPEND | O::NONBLOCK | O::DSYNC))?;
    let flags = works!(fs::fcntl_getfl(&file))?;
    holds!(flags.contains(O::WRONLY | O::APPEND | O::NONBLOCK | O::DSYNC))?;
    works!(fs::fcntl_setfl(&file, O::empty()))?;
    let flags = works!(fs::fcntl_getfl(&file))?;
    holds!(!flags.intersects(O::APPEND | O::NONBLOCK))?;
    holds!(flags.contains(O::WRONLY))
}

fn unix_sockets_are_enxio(p: &Place) -> Outcome {
    let listener = std::os::unix::net::UnixListener::bind("socket")?;
    fails!(open("socket", O::RDONLY), NXIO)?;
    fails!(open("socket", O::RDWR), NXIO)?;
    same!(FileType::from_raw_mode(p.stat("socket")?.st_mode), FileType::Socket)?;
    // It is where others find it.
    std::os::unix::net::UnixStream::connect("socket")?;
    drop(listener);
    fails!(std::os::unix::net::UnixListener::bind("socket").map_err(errno_of), ADDRINUSE)
}

fn errno_of(error: std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
}

fn a_fifo_without_reader_is_enxio(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    fails!(open("fifo", O::WRONLY | O::NONBLOCK), NXIO)?;
    let reader = works!(open("fifo", O::RDONLY | O::NONBLOCK))?;
    let writer = works!(open("fifo", O::WRONLY | O::NONBLOCK))?;
    works!(rustix::io::write(&writer, b"through"))?;
    same!(read(&reader, 10)?, b"through".to_vec())
}

/// Both flags at once mean nothing; since Linux 6.4 that is said.
fn create_directory_flags_are_refused(p: &Place) -> Outcome {
    fails!(open("new", O::CREATE | O::DIRECTORY), INVAL)?;
    p.gone("new")
}

fn a_running_program_is_etxtbsy(_: &Place) -> Outcome {
    std::fs::copy("/bin/sleep", "program")?;
    let mut running = std::process::Command::new("./program").arg("100").spawn()?;
    let refused = fails!(open("program", O::WRONLY), TXTBSY)
        .and_then(|()| fails!(open("program", O::RDWR | O::TRUNC), TXTBSY))
        .and_then(|()| fails!(sys::truncate(c"program", 0), TXTBSY));
    running.kill()?;
    running.wait()?;
    refused?;
    works!(open("program", O::WRONLY)).map(drop)
}

fn resolving_beneath(p: &Place) -> Outcome {
    use rustix::fs::{Mode, ResolveFlags};
    p.dir("d")?;
    p.file("d/f", "")?;
    p.file("outside", "")?;
    p.symlink("../outside", "d/out")?;
    p.symlink("f", "d/link")?;
    let d = works!(open("d", O::DIRECTORY))?;
    let at = |path, how| fs::openat2(&d, path, O::RDONLY, Mode::empty(), how);
    works!(at("f", ResolveFlags::BENEATH))?;
    works!(at("link", ResolveFlags::BENEATH))?;
    fails!(at("out", ResolveFlags::BENEATH), XDEV)?;
    fails!(at("../outside", ResolveFlags::BENEATH), XDEV)?;
    fails!(at("link", ResolveFlags::NO_SYMLINKS), LOOP)?;
    works!(at("/f", ResolveFlags::IN_ROOT)).map(drop)
}

/// The same file with other flags, also when it has no name any more.
fn reopened_through_proc(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("f", "content")?;
    let reader = works!(open("f", O::RDONLY))?;
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    works!(fs::unlink("f"))?;
    let writer = works!(open(&path, O::WRONLY))?;
    works!(rustix::io::pwrite(&writer, b"C", 0))?;
    same!(read(&reader, 10)?, b"Content".to_vec())?;
    works!(open(&path, O::WRONLY | O::TRUNC))?;
    same!(fs::fstat(&reader)?.st_size, 0)
}

fn noatime_is_the_owners(p: &Place) -> Outcome {
    p.file("f", "content")?;
    let file = works!(open("f", O::RDONLY | O::NOATIME))?;
    same!(read(&file, 3)?, b"con".to_vec())
}

/// Direct reading and writing is the file system's to offer; what it offers must be right.
fn large_and_direct(p: &Place) -> Outcome {
    works!(open("f", O::CREATE | O::RDWR | O::LARGEFILE))?;
    match open("f", O::RDWR | O::DIRECT) {
        Err(rustix::io::Errno::INVAL) => return Ok(()),
        direct => {
            let direct = works!(direct)?;
            // One page, aligned as every device wants it.
            let map = sys::Map::anonymous(4096)?;
            map.put(0, &[b'd'; 4096]);
            same!(works!(map.write_to(&direct))?, 4096)?;
            works!(rustix::io::pwrite(works!(open("f", O::WRONLY))?, b"D", 1))?;
            same!(works!(map.read_from(&direct, 0))?, 4096)?;
            same!(map.bytes(0..3), b"dDd".to_vec())?;
            works!(rustix::io::pwrite(works!(open("f", O::WRONLY))?, b"d", 1))?;
        }
    }
    p.holds("f", [b'd'; 4096])
}

fn mode_is_cut_by_umask(p: &Place) -> Outcome {
    let wanted = [(0o777, 0o022, 0o755), (0o666, 0o077, 0o600), (0o4777, 0, 0o4777), (0, 0, 0)];
    for (mode, mask, cut) in wanted {
        rustix::process::umask(fs::Mode::from_raw_mode(mask));
        works!(create("f", mode))?;
        works!(mkdir("d", mode & 0o777))?;
        works!(mknod("n", FileType::Fifo, mode & 0o777, 0))?;
        same!(p.mode("f")?, cut)?;
        same!(p.mode("d")?, cut & 0o777)?;
        same!(p.mode("n")?, cut & 0o777)?;
        fs::unlink("f")?;
        fs::unlink("n")?;
        fs::rmdir("d")?;
    }
    Ok(())
}

fn takes_the_callers_ids(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[STAFF], || works!(create("f", 0o644)).map(drop))?;
    let stat = p.stat("f")?;
    same!((stat.st_uid, stat.st_gid), (ALICE, ALICE))
}

/// Opens as `user`: which of reading, writing, and both is granted.
fn granted(p: &Place, user: u32, groups: &[u32]) -> Result<[bool; 3], crate::Failure> {
    let mut granted = [false; 3];
    p.as_user(user, groups, || {
        for (flags, granted) in [O::RDONLY, O::WRONLY, O::RDWR].into_iter().zip(&mut granted) {
            match open("f", flags) {
                Ok(_) => *granted = true,
                Err(rustix::io::Errno::ACCESS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    Ok(granted)
}

fn needs_the_matching_permission(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, STAFF)?;
    for bits in 0..8_u32 {
        let (read, write) = (bits & 4 != 0, bits & 2 != 0);
        let wanted = [read, write, read && write];
        chmod("f", bits << 6)?;
        same!(granted(p, ALICE, &[])?, wanted)?;
        chmod("f", bits << 3)?;
        same!(granted(p, BOB, &[STAFF])?, wanted)?;
        chmod("f", bits)?;
        same!(granted(p, BOB, &[])?, wanted)?;
    }
    Ok(())
}

/// The owner's bits hold for the owner even where the others' give more.
fn first_matching_class_decides(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, STAFF)?;
    chmod("f", 0o066)?;
    same!(granted(p, ALICE, &[STAFF])?, [false; 3])?;
    chmod("f", 0o606)?;
    same!(granted(p, BOB, &[STAFF])?, [false; 3])?;
    chmod("f", 0o060)?;
    same!(granted(p, BOB, &[])?, [false; 3])
}

fn groups_count(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", 0, STAFF)?;
    chmod("f", 0o060)?;
    same!(granted(p, BOB, &[1, 2, STAFF])?, [true; 3])?;
    same!(granted(p, BOB, &[1, 2])?, [false; 3])?;
    chown("f", 0, BOB)?;
    same!(granted(p, BOB, &[])?, [true; 3])
}

/// The mode of a file counts from the next open on.
fn a_new_file_may_forbid_its_maker(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[], || {
        let file = works!(create("f", 0o000))?;
        works!(write_all(&file, b"written"))?;
        same!(crate::call::pread(&file, 0, 10)?, b"written".to_vec())?;
        fails!(open("f", O::RDONLY), ACCESS)?;
        fails!(open("f", O::WRONLY), ACCESS)
    })
}

fn truncating_needs_write_permission(p: &Place) -> Outcome {
    p.file("f", "content")?;
    chmod("f", 0o644)?;
    p.as_user(ALICE, &[], || fails!(open("f", O::RDONLY | O::TRUNC), ACCESS))?;
    p.as_user(ALICE, &[], || fails!(open("f", O::CREATE | O::TRUNC | O::WRONLY), ACCESS))?;
    p.as_user(ALICE, &[], || fails!(open("f", O::RDONLY | O::NOATIME), PERM))?;
    p.holds("f", "content")
}

fn supplementary_group_may_write(p: &Place) -> Outcome {
    p.dir("d")?;
    chown("d", 0, STAFF)?;
    chmod("d", 0o770)?;
    p.as_user(ALICE, &[STAFF], || works!(create("d/f", 0o644)).map(drop))?;
    p.as_user(BOB, &[], || fails!(create("d/g", 0o644), ACCESS))
}

/// A device file stands for a device, which need not be there; a mount may forbid devices.
fn device_without_driver(_: &Place) -> Outcome {
    works!(mknod("char", FileType::CharacterDevice, 0o666, fs::makedev(250, 250)))?;
    fails!(open("char", O::RDONLY), NXIO | ACCESS)
}

/// In a set-group-id directory whose group the maker is not in, a file made to act for that
/// group would be a way into it.
fn a_foreign_set_group_id_is_stripped(p: &Place) -> Outcome {
    p.dir("d")?;
    chown("d", 0, STAFF)?;
    chmod("d", 0o2777)?;
    p.as_user(ALICE, &[], || works!(create("d/f", 0o2755)).map(drop))?;
    same!((p.stat("d/f")?.st_gid, p.mode("d/f")?), (STAFF, 0o755))?;
    p.as_user(ALICE, &[STAFF], || works!(create("d/g", 0o2755)).map(drop))?;
    same!((p.stat("d/g")?.st_gid, p.mode("d/g")?), (STAFF, 0o2755))
}

fn waiting_for_a_fifo_is_interrupted(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    works!(sys::interrupt_after(1))?;
    fails!(open("fifo", O::RDONLY), INTR)
}
