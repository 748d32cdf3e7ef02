//! O_TMPFILE: a file without a name, which may get one.
//!
//! A file system need not offer it, and says EOPNOTSUPP then; `offers::tmpfile` tells. The other
//! cases hold wherever it is offered.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, OFlags as O};
use rustix::io::Errno;

use crate::call::{chmod, fchmod, open, open_mode, pread};
use crate::expect::{Failure, Outcome, fails, same, works};
use crate::place::{ALICE, Place, write_all};

cases! { "tmpfile"
    anyone: stays_nameless, gets_a_name, gets_no_name_when_exclusive, keeps_content_and_mode,
        over_an_existing_name_is_eexist, needs_a_directory, must_be_writable;
    root: takes_the_callers_ids, needs_write_permission;
}

/// A file without a name in `dir`, if the file system makes such.
fn nameless(dir: &str, flags: O) -> Result<Option<OwnedFd>, Failure> {
    match open_mode(dir, O::TMPFILE | flags, 0o640) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(None),
        opened => works!(opened).map(Some),
    }
}

fn give_name(file: &OwnedFd, name: &str) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn stays_nameless(p: &Place) -> Outcome {
    let Some(file) = nameless(".", O::RDWR)? else { return Ok(()) };
    same!(p.names(".")?, Vec::<String>::new())?;
    let stat = works!(fs::fstat(&file))?;
    same!((stat.st_nlink, stat.st_size, stat.st_mode & 0o7777), (0, 0, 0o640))?;
    works!(write_all(&file, b"text"))?;
    same!(pread(&file, 0, 10)?, b"text".to_vec())
}

fn gets_a_name(p: &Place) -> Outcome {
    let Some(file) = nameless(".", O::RDWR)? else { return Ok(()) };
    works!(write_all(&file, b"text"))?;
    works!(give_name(&file, "f"))?;
    p.holds("f", "text")?;
    same!(p.stat("f")?.st_nlink, 1)?;
    same!(p.stat("f")?.st_ino, fs::fstat(&file)?.st_ino)?;
    works!(give_name(&file, "g"))?;
    same!(fs::fstat(&file)?.st_nlink, 2)?;
    drop(file);
    p.holds("g", "text")
}

fn gets_no_name_when_exclusive(p: &Place) -> Outcome {
    let Some(file) = nameless(".", O::RDWR | O::EXCL)? else { return Ok(()) };
    fails!(give_name(&file, "f"), NOENT)?;
    p.gone("f")
}

fn keeps_content_and_mode(p: &Place) -> Outcome {
    p.dir("d")?;
    let Some(file) = nameless("d", O::RDWR)? else { return Ok(()) };
    works!(write_all(&file, &[b'x'; 100_000]))?;
    works!(fs::ftruncate(&file, 50_000))?;
    works!(fchmod(&file, 0o604))?;
    works!(fs::fsync(&file))?;
    works!(give_name(&file, "elsewhere"))?;
    same!(p.mode("elsewhere")?, 0o604)?;
    works!(fs::rmdir("d"))?;
    p.holds("elsewhere", [b'x'; 50_000])
}

fn over_an_existing_name_is_eexist(p: &Place) -> Outcome {
    p.file("f", "kept")?;
    let Some(file) = nameless(".", O::RDWR)? else { return Ok(()) };
    fails!(give_name(&file, "f"), EXIST)?;
    p.holds("f", "kept")
}

fn needs_a_directory(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(open("f", O::TMPFILE | O::RDWR), NOTDIR)?;
    fails!(open("missing", O::TMPFILE | O::RDWR), NOENT)
}

fn must_be_writable(_: &Place) -> Outcome {
    fails!(open(".", O::TMPFILE | O::RDONLY), INVAL)
}

fn takes_the_callers_ids(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[], || {
        let Some(file) = nameless(".", O::RDWR)? else { return Ok(()) };
        let stat = works!(fs::fstat(&file))?;
        same!((stat.st_uid, stat.st_gid), (ALICE, ALICE))
    })
}

fn needs_write_permission(p: &Place) -> Outcome {
    p.dir("d")?;
    if nameless("d", O::RDWR)?.is_none() {
        return Ok(());
    }
    p.as_user(ALICE, &[], || fails!(open("d", O::TMPFILE | O::RDWR), ACCESS))
}
