//! The file system as a whole, and calls that are about no file's content: statfs, sync, poll,
//! ioctl, leases, mounted flags.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, OFlags as O};
use rustix::io::Errno;

use crate::call::{create, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit, write_all};
use crate::sys::{self, fcntl};

cases! { "filesystem"
    anyone: statfs_adds_up, by_descriptor_too, names_of_255_bytes_are_said, fsync_of_everything,
        syncfs_of_anything, polls_ready, unknown_ioctl_is_enotty, leases_or_refused,
        bytes_to_read, limits_say_what_holds, a_socket_by_its_path;
    root: ;
}

fn statfs_adds_up(_: &Place) -> Outcome {
    let stat = works!(fs::statvfs("."))?;
    holds!(stat.f_bsize >= 512 && stat.f_frsize >= 512)?;
    holds!(stat.f_bavail <= stat.f_bfree && stat.f_bfree <= stat.f_blocks)?;
    holds!(stat.f_favail <= stat.f_ffree && stat.f_ffree <= stat.f_files)
}

fn by_descriptor_too(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    let (by_path, by_file) = (works!(fs::statvfs("."))?, works!(fs::fstatvfs(&file))?);
    same!(by_path.f_blocks, by_file.f_blocks)?;
    same!((by_path.f_fsid, by_path.f_namemax), (by_file.f_fsid, by_file.f_namemax))?;
    works!(fs::fstatfs(works!(open("f", O::PATH))?))?;
    fails!(fs::fstatfs(sys::bad_descriptor()), BADF)
}

fn names_of_255_bytes_are_said(_: &Place) -> Outcome {
    same!(works!(fs::statvfs("."))?.f_namemax, 255)
}

fn fsync_of_everything(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    works!(write_all(&file, b"text"))?;
    works!(fs::fsync(&file))?;
    works!(fs::fdatasync(&file))?;
    p.dir("d")?;
    let dir = works!(open("d", O::RDONLY | O::DIRECTORY))?;
    works!(fs::fsync(&dir))?;
    works!(fs::fdatasync(&dir))?;
    works!(fs::fsync(works!(open(".", O::RDONLY))?))?;
    fails!(fs::fsync(works!(open("f", O::PATH))?), BADF)?;
    p.fifo("fifo")?;
    fails!(fs::fsync(works!(edit("fifo"))?), INVAL)
}

fn syncfs_of_anything(p: &Place) -> Outcome {
    p.file("f", "text")?;
    works!(fs::syncfs(works!(open("f", O::RDONLY))?))?;
    works!(fs::syncfs(works!(open(".", O::RDONLY))?))?;
    fails!(fs::syncfs(sys::bad_descriptor()), BADF)
}

/// A file is always ready for both.
fn polls_ready(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    let mut polled = [PollFd::new(&file, PollFlags::IN | PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    same!(works!(poll(&mut polled, Some(&at_once)))?, 1)?;
    holds!(polled[0].revents().contains(PollFlags::IN | PollFlags::OUT))
}

fn unknown_ioctl_is_enotty(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    fails!(sys::unknown_ioctl(&works!(edit("f"))?), NOTTY)?;
    fails!(sys::unknown_ioctl(&works!(open("d", O::RDONLY))?), NOTTY)
}

/// A read lease is for who alone has the file open; a network file system may refuse it.
fn leases_or_refused(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    match fcntl(&file, libc::F_SETLEASE, libc::F_RDLCK) {
        Err(errno) => fails!(Err::<(), Errno>(errno), INVAL | AGAIN | OPNOTSUPP),
        Ok(_) => {
            same!(works!(fcntl(&file, libc::F_GETLEASE, 0))?, i64::from(libc::F_RDLCK))?;
            works!(fcntl(&file, libc::F_SETLEASE, libc::F_UNLCK)).map(drop)
        }
    }
}

fn bytes_to_read(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(open("f", O::RDONLY))?;
    same!(works!(rustix::io::ioctl_fionread(&file))?, 9)?;
    crate::call::read(&file, 5)?;
    same!(works!(rustix::io::ioctl_fionread(&file))?, 4)
}

/// As many descriptors as the process may have, and no more.
fn limits_say_what_holds(p: &Place) -> Outcome {
    use rustix::process::{Resource, Rlimit, setrlimit};
    p.file("f", "")?;
    setrlimit(Resource::Nofile, Rlimit { current: Some(50), maximum: Some(50) })?;
    let mut files = Vec::new();
    let refused = loop {
        match open("f", O::RDONLY) {
            Ok(file) => files.push(file),
            Err(errno) => break errno,
        }
    };
    same!(refused, Errno::MFILE)?;
    // What is refused for lack of descriptors is not made.
    fails!(create("new", 0o644), MFILE)?;
    drop(files);
    p.gone("new")
}

fn a_socket_by_its_path(p: &Place) -> Outcome {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    let listener = UnixListener::bind("socket")?;
    works!(fs::rename("socket", "moved"))?;
    let mut near = UnixStream::connect("moved")?;
    let (mut far, _) = listener.accept()?;
    near.write_all(b"through")?;
    drop(near);
    let mut said = Vec::new();
    far.read_to_end(&mut said)?;
    same!(said, b"through".to_vec())?;
    works!(fs::unlink("moved"))?;
    p.gone("moved")
}
