//! mknod: fifos, sockets and devices.

use rustix::fs::{self, FileType, OFlags as O, makedev};

use crate::call::{chmod, mkfifo, mknod, open, read};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, Place};
use crate::process::Process;

cases! { "mknod"
    anyone: a_regular_file, a_fifo, a_socket, over_anything_is_eexist, a_directory_is_refused,
        a_fifo_between_processes;
    root: devices_keep_their_number, devices_are_for_root, takes_the_callers_ids;
}

fn kind(p: &Place, name: &str) -> Result<FileType, crate::Failure> {
    Ok(FileType::from_raw_mode(p.stat(name)?.st_mode))
}

fn a_regular_file(p: &Place) -> Outcome {
    works!(mknod("f", FileType::RegularFile, 0o640, 0))?;
    same!(kind(p, "f")?, FileType::RegularFile)?;
    same!((p.mode("f")?, p.stat("f")?.st_size), (0o640, 0))?;
    works!(open("f", O::RDWR)).map(drop)
}

fn a_fifo(p: &Place) -> Outcome {
    works!(mkfifo("fifo", 0o640))?;
    same!(kind(p, "fifo")?, FileType::Fifo)?;
    same!((p.mode("fifo")?, p.stat("fifo")?.st_nlink), (0o640, 1))
}

fn a_socket(p: &Place) -> Outcome {
    works!(mknod("socket", FileType::Socket, 0o640, 0))?;
    same!(kind(p, "socket")?, FileType::Socket)?;
    fails!(open("socket", O::RDONLY), NXIO)
}

fn over_anything_is_eexist(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.symlink("nowhere", "link")?;
    for name in ["f", "d", "link"] {
        fails!(mkfifo(name, 0o644), EXIST)?;
        fails!(mknod(name, FileType::RegularFile, 0o644, 0), EXIST)?;
        fails!(mknod(name, FileType::Socket, 0o644, 0), EXIST)?;
    }
    Ok(())
}

fn a_directory_is_refused(p: &Place) -> Outcome {
    fails!(mknod("new", FileType::Directory, 0o755, 0), PERM)?;
    fails!(mknod("new", FileType::Symlink, 0o755, 0), INVAL)?;
    p.gone("new")
}

fn a_fifo_between_processes(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    let writer = Process::start(|| {
        let fifo = works!(open("fifo", O::WRONLY))?;
        works!(rustix::io::write(&fifo, b"message")).map(drop)
    })?;
    let fifo = works!(open("fifo", O::RDONLY))?;
    same!(read(&fifo, 100)?, b"message".to_vec())?;
    writer.join()?;
    same!(read(&fifo, 100)?, Vec::new())?;
    same!(p.stat("fifo")?.st_size, 0)
}

fn devices_keep_their_number(p: &Place) -> Outcome {
    let numbers = [(1, 3), (7, 0), (255, 255), (4_095, 1_048_575), (250, 70_000)];
    for (major, minor) in numbers {
        for kind_wanted in [FileType::CharacterDevice, FileType::BlockDevice] {
            works!(mknod("device", kind_wanted, 0o600, makedev(major, minor)))?;
            let stat = p.stat("device")?;
            same!(kind(p, "device")?, kind_wanted)?;
            same!((fs::major(stat.st_rdev), fs::minor(stat.st_rdev)), (major, minor))?;
            works!(fs::rename("device", "moved"))?;
            same!(p.stat("moved")?.st_rdev, makedev(major, minor))?;
            works!(fs::unlink("moved"))?;
        }
    }
    Ok(())
}

fn devices_are_for_root(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[], || {
        fails!(mknod("c", FileType::CharacterDevice, 0o600, makedev(1, 3)), PERM)?;
        fails!(mknod("b", FileType::BlockDevice, 0o600, makedev(1, 3)), PERM)?;
        works!(mkfifo("fifo", 0o600))
    })
}

fn takes_the_callers_ids(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[], || {
        works!(mkfifo("fifo", 0o600))?;
        works!(mknod("file", FileType::RegularFile, 0o600, 0))
    })?;
    for name in ["fifo", "file"] {
        let stat = p.stat(name)?;
        same!((stat.st_uid, stat.st_gid), (ALICE, ALICE))?;
    }
    Ok(())
}
