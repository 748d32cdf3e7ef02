//! renameat2: without replacing, exchanging, leaving a whiteout.

use rustix::fs::{self, CWD, FileType, RenameFlags};
use rustix::io::{Errno, Result};

use crate::call::{chmod, open, readlink};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, Place, edit};

cases! { "rename_flags"
    anyone: noreplace_to_a_free_name, noreplace_over_anything_is_eexist, noreplace_over_itself,
        exchange_of_files, exchange_of_kinds, exchange_of_directories_between_directories,
        exchange_with_what_is_missing, exchange_with_its_own_ancestor, exchange_with_itself,
        exchange_keeps_descriptors, flags_that_exclude_each_other;
    root: whiteout_or_refused, exchange_needs_permission, noreplace_in_a_sticky_directory;
}

fn rename(from: &str, to: &str, flags: RenameFlags) -> Result<()> {
    fs::renameat_with(CWD, from, CWD, to, flags)
}

fn noreplace(from: &str, to: &str) -> Result<()> {
    rename(from, to, RenameFlags::NOREPLACE)
}

fn exchange(from: &str, to: &str) -> Result<()> {
    rename(from, to, RenameFlags::EXCHANGE)
}

fn noreplace_to_a_free_name(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.dir("d")?;
    works!(noreplace("f", "d/g"))?;
    p.holds("d/g", "text")?;
    p.gone("f")?;
    works!(noreplace("d", "e"))?;
    p.holds("e/g", "text")
}

fn noreplace_over_anything_is_eexist(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.file("g", "kept")?;
    p.dir("d")?;
    p.dir("e")?;
    p.fifo("fifo")?;
    p.symlink("nowhere", "link")?;
    for target in ["g", "d", "fifo", "link"] {
        fails!(noreplace("f", target), EXIST)?;
        fails!(noreplace("e", target), EXIST)?;
    }
    fails!(noreplace("missing", "new"), NOENT)?;
    p.holds("f", "text")?;
    p.holds("g", "kept")
}

fn noreplace_over_itself(p: &Place) -> Outcome {
    p.file("f", "")?;
    fs::link("f", "g")?;
    fails!(noreplace("f", "f"), EXIST)?;
    fails!(noreplace("f", "g"), EXIST)
}

fn exchange_of_files(p: &Place) -> Outcome {
    p.file("one", "1")?;
    p.file("two", "2")?;
    let (one, two) = (p.stat("one")?.st_ino, p.stat("two")?.st_ino);
    works!(exchange("one", "two"))?;
    p.holds("one", "2")?;
    p.holds("two", "1")?;
    same!((p.stat("one")?.st_ino, p.stat("two")?.st_ino), (two, one))?;
    same!(p.names(".")?.len(), 2)
}

fn exchange_of_kinds(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.dir("d")?;
    p.file("d/inner", "")?;
    p.symlink("nowhere", "link")?;
    works!(exchange("f", "d"))?;
    p.holds("d", "text")?;
    p.stat("f/inner")?;
    works!(exchange("f", "link"))?;
    same!(readlink("f")?, b"nowhere".to_vec())?;
    same!(p.names("link")?, vec!["inner".to_owned()])
}

fn exchange_of_directories_between_directories(p: &Place) -> Outcome {
    for name in ["one", "two", "one/d", "two/e"] {
        p.dir(name)?;
    }
    p.file("one/d/f", "f")?;
    p.file("two/e/g", "g")?;
    works!(exchange("one/d", "two/e"))?;
    p.holds("one/d/g", "g")?;
    p.holds("two/e/f", "f")?;
    same!(fs::stat("one/d/..")?.st_ino, p.stat("one")?.st_ino)?;
    same!(fs::stat("two/e/..")?.st_ino, p.stat("two")?.st_ino)?;
    // A file for a directory: the parents' links change.
    p.file("two/file", "")?;
    works!(exchange("one/d", "two/file"))?;
    let (one, two) = (p.stat("one")?.st_nlink, p.stat("two")?.st_nlink);
    holds!((one, two) == (2, 4) || (one, two) == (1, 1))
}

fn exchange_with_what_is_missing(p: &Place) -> Outcome {
    p.file("f", "text")?;
    fails!(exchange("f", "missing"), NOENT)?;
    fails!(exchange("missing", "f"), NOENT)?;
    p.holds("f", "text")
}

fn exchange_with_its_own_ancestor(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    p.dir("d/e/f")?;
    fails!(exchange("d", "d/e"), INVAL)?;
    fails!(exchange("d/e/f", "d"), INVAL | NOTEMPTY)
}

fn exchange_with_itself(p: &Place) -> Outcome {
    p.file("f", "text")?;
    fs::link("f", "g")?;
    works!(exchange("f", "f"))?;
    works!(exchange("f", "g"))?;
    p.holds("f", "text")?;
    same!(p.stat("g")?.st_nlink, 2)
}

fn exchange_keeps_descriptors(p: &Place) -> Outcome {
    p.file("one", "1")?;
    p.file("two", "2")?;
    let (one, two) = (works!(edit("one"))?, works!(edit("two"))?);
    works!(exchange("one", "two"))?;
    works!(rustix::io::pwrite(&one, b"one", 0))?;
    works!(rustix::io::pwrite(&two, b"two", 0))?;
    p.holds("two", "one")?;
    p.holds("one", "two")
}

fn flags_that_exclude_each_other(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.file("g", "")?;
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    fails!(rename("f", "g", both), INVAL)?;
    fails!(rename("f", "g", RenameFlags::EXCHANGE | RenameFlags::WHITEOUT), INVAL)?;
    fails!(rename("f", "g", RenameFlags::from_bits_retain(1 << 20)), INVAL)
}

/// For overlays only: a file system may refuse it, and then nothing has moved.
fn whiteout_or_refused(p: &Place) -> Outcome {
    p.file("f", "text")?;
    match rename("f", "g", RenameFlags::WHITEOUT) {
        Err(Errno::INVAL | Errno::PERM) => {
            p.gone("g")?;
            p.holds("f", "text")
        }
        renamed => {
            works!(renamed)?;
            p.holds("g", "text")?;
            let left = p.stat("f")?;
            same!(FileType::from_raw_mode(left.st_mode), FileType::CharacterDevice)?;
            same!(left.st_rdev, 0)
        }
    }
}

fn exchange_needs_permission(p: &Place) -> Outcome {
    p.open_dir("open")?;
    p.dir("closed")?;
    p.file("closed/f", "")?;
    p.as_user(ALICE, &[], || {
        p.file("open/g", "")?;
        fails!(exchange("open/g", "closed/f"), ACCESS)?;
        fails!(exchange("closed/f", "open/g"), ACCESS)
    })
}

fn noreplace_in_a_sticky_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    chmod("d", 0o1777)?;
    p.file("d/roots", "")?;
    p.as_user(ALICE, &[], || {
        fails!(noreplace("d/roots", "d/new"), PERM | ACCESS)?;
        works!(open("d/roots", fs::OFlags::RDONLY))?;
        p.file("d/f", "")?;
        works!(noreplace("d/f", "d/g"))?;
        fails!(exchange("d/g", "d/roots"), PERM | ACCESS)
    })
}
