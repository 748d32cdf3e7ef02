//! unlink: names go, files stay while somebody has them open.

use rustix::fs::{self, AtFlags, CWD, OFlags as O};

use crate::call::{chmod, chown, create, fchmod, mknod, open, pread};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, BOB, Place, edit, write_all};

cases! { "unlink"
    anyone: of_every_kind, of_a_directory_is_eisdir, takes_the_link_not_its_target, counts_down,
        an_open_file_lives_on, an_open_file_keeps_its_attributes, many_open_at_once,
        the_name_is_free_at_once, an_open_file_is_not_linked_again, of_a_file_being_written,
        of_an_unreadable_file, by_another_process;
    root: in_a_sticky_directory, sticky_does_not_bind_the_superuser, does_not_ask_the_file;
}

fn of_every_kind(p: &Place) -> Outcome {
    p.file("file", "")?;
    p.fifo("fifo")?;
    p.symlink("file", "link")?;
    mknod("socket", fs::FileType::Socket, 0o644, 0)?;
    for name in ["link", "file", "fifo", "socket"] {
        works!(fs::unlink(name))?;
        p.gone(name)?;
        fails!(fs::unlink(name), NOENT)?;
    }
    Ok(())
}

/// POSIX says EPERM; Linux says EISDIR, and programs on it expect that.
fn of_a_directory_is_eisdir(p: &Place) -> Outcome {
    p.dir("d")?;
    fails!(fs::unlink("d"), ISDIR)?;
    fails!(fs::unlink("d/"), ISDIR)?;
    p.stat("d").map(drop)
}

fn takes_the_link_not_its_target(p: &Place) -> Outcome {
    p.file("f", "here")?;
    p.dir("d")?;
    p.symlink("f", "link")?;
    p.symlink("d", "dir_link")?;
    works!(fs::unlink("link"))?;
    works!(fs::unlink("dir_link"))?;
    p.holds("f", "here")?;
    p.stat("d").map(drop)
}

fn counts_down(p: &Place) -> Outcome {
    p.file("one", "shared")?;
    fs::link("one", "two")?;
    fs::link("one", "three")?;
    let file = open("one", O::RDONLY)?;
    for (name, left) in [("one", 2), ("two", 1), ("three", 0)] {
        works!(fs::unlink(name))?;
        same!((name, fs::fstat(&file)?.st_nlink), (name, left))?;
    }
    same!(pread(&file, 0, 10)?, b"shared".to_vec())
}

fn an_open_file_lives_on(p: &Place) -> Outcome {
    p.file("f", "before")?;
    let file = works!(edit("f"))?;
    let reader = works!(open("f", O::RDONLY))?;
    works!(fs::unlink("f"))?;
    same!(p.names(".")?, Vec::<String>::new())?;
    same!(pread(&reader, 0, 100)?, b"before".to_vec())?;
    works!(rustix::io::pwrite(&file, b"after!", 0))?;
    works!(rustix::io::pwrite(&file, &[b'x'; 100_000], 10_000))?;
    same!(pread(&reader, 0, 6)?, b"after!".to_vec())?;
    same!(pread(&reader, 109_999, 10)?, b"x".to_vec())?;
    works!(fs::ftruncate(&file, 3))?;
    same!(pread(&reader, 0, 100)?, b"aft".to_vec())?;
    works!(fs::fsync(&file))?;
    same!(fs::fstat(&reader)?.st_size, 3)
}

fn an_open_file_keeps_its_attributes(p: &Place) -> Outcome {
    p.file("f", "content")?;
    let ino = p.stat("f")?.st_ino;
    let file = works!(edit("f"))?;
    works!(fs::unlink("f"))?;
    works!(fchmod(&file, 0o600))?;
    works!(fs::futimens(&file, &crate::call::moments((7, 0), (8, 9))))?;
    let stat = works!(fs::fstat(&file))?;
    same!((stat.st_nlink, stat.st_size, stat.st_ino), (0, 7, ino))?;
    same!(stat.st_mode & 0o7777, 0o600)?;
    same!((stat.st_mtime, stat.st_mtime_nsec), (8, 9))
}

fn many_open_at_once(_: &Place) -> Outcome {
    let mut files = Vec::new();
    for number in 0..200_u32 {
        let file = works!(create("f", 0o644))?;
        works!(write_all(&file, &number.to_le_bytes()))?;
        works!(fs::unlink("f"))?;
        files.push((number, file));
    }
    for (number, file) in files {
        same!(pread(&file, 0, 10)?, number.to_le_bytes().to_vec())?;
    }
    Ok(())
}

fn the_name_is_free_at_once(p: &Place) -> Outcome {
    p.file("f", "old")?;
    let old = works!(edit("f"))?;
    works!(fs::unlink("f"))?;
    p.file("f", "new")?;
    works!(rustix::io::pwrite(&old, b"OLD", 0))?;
    p.holds("f", "new")?;
    works!(fs::unlink("f"))?;
    p.dir("f")?;
    same!(pread(&old, 0, 10)?, b"OLD".to_vec())
}

/// A file whose last name is gone gets none back: that is only for files made without one.
fn an_open_file_is_not_linked_again(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    works!(fs::unlink("f"))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fails!(fs::linkat(CWD, &path, CWD, "again", AtFlags::SYMLINK_FOLLOW), NOENT)?;
    p.gone("again")
}

fn of_a_file_being_written(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    works!(write_all(&file, b"first "))?;
    works!(fs::unlink("f"))?;
    works!(write_all(&file, b"second"))?;
    same!(pread(&file, 0, 100)?, b"first second".to_vec())?;
    p.gone("f")
}

fn of_an_unreadable_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    chmod("f", 0o000)?;
    works!(fs::unlink("f"))
}

fn by_another_process(p: &Place) -> Outcome {
    p.file("f", "content")?;
    let file = works!(edit("f"))?;
    p.elsewhere(|| works!(fs::unlink("f")))?;
    p.gone("f")?;
    same!(fs::fstat(&file)?.st_nlink, 0)?;
    same!(pread(&file, 0, 10)?, b"content".to_vec())
}

fn in_a_sticky_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    chmod("d", 0o1777)?;
    p.as_user(ALICE, &[], || {
        p.file("d/one", "")?;
        p.file("d/two", "")?;
        p.symlink("one", "d/link")?;
        Ok(chmod("d/one", 0o666)?)
    })?;
    p.as_user(BOB, &[], || {
        for name in ["d/one", "d/two", "d/link"] {
            fails!(fs::unlink(name), PERM | ACCESS)?;
            fails!(fs::rename(name, "d/new"), PERM | ACCESS)?;
        }
        p.file("d/bobs", "")?;
        fails!(fs::rename("d/bobs", "d/one"), PERM | ACCESS)?;
        works!(fs::rename("d/bobs", "d/three"))?;
        works!(fs::unlink("d/three"))
    })?;
    p.as_user(ALICE, &[], || works!(fs::unlink("d/one")))?;
    // The directory's owner may take others' files.
    chown("d", BOB, BOB)?;
    p.as_user(BOB, &[], || works!(fs::unlink("d/two")))
}

fn sticky_does_not_bind_the_superuser(p: &Place) -> Outcome {
    p.dir("d")?;
    chown("d", BOB, BOB)?;
    chmod("d", 0o1777)?;
    p.as_user(ALICE, &[], || p.file("d/f", ""))?;
    works!(fs::unlink("d/f"))
}

/// Who may write a directory may unlink in it whatever the file's own mode and owner are.
fn does_not_ask_the_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "")?;
    chmod("d/f", 0o000)?;
    chown("d", ALICE, ALICE)?;
    p.as_user(ALICE, &[], || works!(fs::unlink("d/f")))
}
