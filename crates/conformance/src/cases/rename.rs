//! rename: over every kind, between directories, and what open descriptors see of it.

use rustix::fs::{self, AtFlags, CWD, OFlags as O};

use crate::call::{chmod, chown, create, mknod, open, pread, readlink};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, BOB, Place, edit};
use crate::process::Process;

cases! { "rename"
    anyone: of_a_file, of_every_kind, between_directories, over_a_file, over_an_open_file,
        over_an_empty_directory, over_a_nonempty_directory, over_an_open_directory,
        a_directory_over_a_file, a_file_over_a_directory, over_other_kinds, over_itself,
        over_another_name_of_the_same_file, of_what_is_missing_changes_nothing,
        a_directory_into_itself, dot_and_dotdot, to_another_file_system,
        dotdot_of_a_moved_directory, an_open_file_goes_with_its_name, links_are_not_followed,
        a_whole_tree, the_name_is_always_there, back_and_forth, over_the_link_of_a_file,
        replacing_counts_links;
    root: in_a_sticky_directory, needs_write_permission_on_both_directories,
        moving_a_directory_needs_write_permission_on_it;
}

fn of_a_file(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let before = p.stat("f")?;
    works!(fs::rename("f", "g"))?;
    p.gone("f")?;
    let after = p.stat("g")?;
    same!((after.st_ino, after.st_nlink, after.st_size), (before.st_ino, 1, 4))?;
    same!((after.st_mtime, after.st_mtime_nsec), (before.st_mtime, before.st_mtime_nsec))?;
    p.holds("g", "text")
}

fn of_every_kind(p: &Place) -> Outcome {
    p.dir("dir")?;
    p.fifo("fifo")?;
    p.symlink("nowhere", "link")?;
    mknod("socket", fs::FileType::Socket, 0o644, 0)?;
    p.dir("d")?;
    for name in ["dir", "fifo", "link", "socket"] {
        let before = p.stat(name)?;
        let (other, inside) = (format!("{name}2"), format!("d/{name}"));
        works!(fs::rename(name, &other))?;
        works!(fs::rename(&other, &inside))?;
        p.gone(name)?;
        p.gone(&other)?;
        let after = p.stat(&inside)?;
        same!((after.st_ino, after.st_mode), (before.st_ino, before.st_mode))?;
    }
    Ok(())
}

fn between_directories(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("e")?;
    p.file("d/f", "text")?;
    works!(fs::rename("d/f", "e/g"))?;
    same!(p.names("d")?, Vec::<String>::new())?;
    same!(p.names("e")?, vec!["g".to_owned()])?;
    works!(fs::rename("d", "e/d"))?;
    works!(fs::rename("e/g", "e/d/f"))?;
    p.holds("e/d/f", "text")
}

fn over_a_file(p: &Place) -> Outcome {
    p.file("new", "new content")?;
    p.file("old", "old")?;
    let ino = p.stat("new")?.st_ino;
    works!(fs::rename("new", "old"))?;
    same!(p.names(".")?, vec!["old".to_owned()])?;
    same!(p.stat("old")?.st_ino, ino)?;
    p.holds("old", "new content")
}

fn over_an_open_file(p: &Place) -> Outcome {
    p.file("new", "new")?;
    p.file("old", "old")?;
    let (old, new) = (works!(edit("old"))?, works!(edit("new"))?);
    works!(fs::rename("new", "old"))?;
    same!(fs::fstat(&old)?.st_nlink, 0)?;
    same!(fs::fstat(&new)?.st_nlink, 1)?;
    works!(rustix::io::pwrite(&old, b"still old", 0))?;
    same!(pread(&old, 0, 100)?, b"still old".to_vec())?;
    same!(pread(&new, 0, 100)?, b"new".to_vec())?;
    p.holds("old", "new")
}

fn over_an_empty_directory(p: &Place) -> Outcome {
    p.dir("new")?;
    p.file("new/f", "")?;
    p.dir("old")?;
    works!(fs::rename("new", "old"))?;
    p.gone("new")?;
    same!(p.names("old")?, vec!["f".to_owned()])
}

fn over_a_nonempty_directory(p: &Place) -> Outcome {
    p.dir("new")?;
    p.dir("old")?;
    p.file("old/f", "kept")?;
    fails!(fs::rename("new", "old"), NOTEMPTY | EXIST)?;
    p.holds("old/f", "kept")?;
    p.stat("new")?;
    // Also over its own parent.
    p.dir("old/child")?;
    fails!(fs::rename("old/child", "old"), NOTEMPTY | EXIST)
}

fn over_an_open_directory(p: &Place) -> Outcome {
    p.dir("new")?;
    p.dir("old")?;
    let old = works!(open("old", O::RDONLY | O::DIRECTORY))?;
    works!(fs::rename("new", "old"))?;
    same!(fs::fstat(&old)?.st_nlink, 0)?;
    let mode = fs::Mode::from_raw_mode(0o644);
    fails!(fs::openat(&old, "f", O::CREATE | O::WRONLY, mode), NOENT)?;
    p.file("old/f", "")
}

fn a_directory_over_a_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    p.fifo("fifo")?;
    p.symlink("d", "link")?;
    for target in ["f", "fifo", "link"] {
        fails!(fs::rename("d", target), NOTDIR)?;
    }
    p.stat("d").map(drop)
}

fn a_file_over_a_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    p.fifo("fifo")?;
    p.symlink("d", "link")?;
    for source in ["f", "fifo", "link"] {
        fails!(fs::rename(source, "d"), ISDIR)?;
    }
    p.file("d/g", "")?;
    fails!(fs::rename("f", "d"), ISDIR | NOTEMPTY | EXIST)
}

fn over_other_kinds(p: &Place) -> Outcome {
    for target in ["fifo", "link", "file"] {
        p.fifo("fifo")?;
        p.symlink("nowhere", "link")?;
        p.file("file", "")?;
        p.file("f", "text")?;
        works!(fs::rename("f", target))?;
        p.holds(target, "text")?;
        for name in ["fifo", "link", "file"] {
            fs::unlink(name)?;
        }
    }
    Ok(())
}

fn over_itself(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.dir("d")?;
    p.file("d/g", "")?;
    works!(fs::rename("f", "f"))?;
    works!(fs::rename("f", "./d/../f"))?;
    works!(fs::rename("d", "d/"))?;
    p.holds("f", "text")?;
    p.stat("d/g").map(drop)
}

/// Nothing happens: both names stay.
fn over_another_name_of_the_same_file(p: &Place) -> Outcome {
    p.file("one", "text")?;
    fs::link("one", "two")?;
    works!(fs::rename("one", "two"))?;
    same!(p.names(".")?, vec!["one".to_owned(), "two".to_owned()])?;
    same!(p.stat("one")?.st_nlink, 2)
}

fn of_what_is_missing_changes_nothing(p: &Place) -> Outcome {
    p.file("f", "kept")?;
    p.dir("d")?;
    fails!(fs::rename("missing", "f"), NOENT)?;
    fails!(fs::rename("missing", "d"), NOENT)?;
    fails!(fs::rename("missing", "new"), NOENT)?;
    fails!(fs::rename("f", "missing/new"), NOENT)?;
    p.holds("f", "kept")
}

fn a_directory_into_itself(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    fails!(fs::rename("d", "d/new"), INVAL)?;
    fails!(fs::rename("d", "d/e/new"), INVAL)?;
    fails!(fs::rename("d", "d/e"), INVAL)?;
    fails!(fs::rename("d/e", "d"), NOTEMPTY | EXIST)?;
    // Another one whose name begins alike is no part of it.
    p.dir("dd")?;
    works!(fs::rename("d", "dd/d"))
}

fn dot_and_dotdot(p: &Place) -> Outcome {
    p.dir("d")?;
    for (from, to) in [("d/.", "new"), ("d/..", "new"), ("d", "."), ("d", ".."), (".", "d")] {
        fails!(fs::rename(from, to), BUSY | INVAL)?;
    }
    Ok(())
}

fn to_another_file_system(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    fails!(fs::rename("f", "/proc/new"), XDEV)?;
    fails!(fs::rename("d", "/proc/new"), XDEV)?;
    fails!(fs::rename("/proc/self/status", "new"), XDEV)
}

fn dotdot_of_a_moved_directory(p: &Place) -> Outcome {
    p.dir("one")?;
    p.dir("two")?;
    p.dir("one/d")?;
    let d = works!(open("one/d", O::RDONLY | O::DIRECTORY))?;
    same!(fs::statat(&d, "..", AtFlags::empty())?.st_ino, p.stat("one")?.st_ino)?;
    works!(fs::rename("one/d", "two/e"))?;
    same!(fs::stat("two/e/..")?.st_ino, p.stat("two")?.st_ino)?;
    same!(fs::statat(&d, "..", AtFlags::empty())?.st_ino, p.stat("two")?.st_ino)?;
    rustix::process::fchdir(&d)?;
    let path = works!(rustix::process::getcwd(Vec::new()))?;
    holds!(path.to_bytes().ends_with(b"/two/e"))
}

fn an_open_file_goes_with_its_name(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.dir("d")?;
    let file = works!(edit("f"))?;
    works!(fs::rename("f", "d/g"))?;
    works!(rustix::io::pwrite(&file, b"TE", 0))?;
    p.holds("d/g", "TExt")?;
    works!(fs::rename("d", "e"))?;
    works!(rustix::io::pwrite(&file, b"XT", 2))?;
    p.holds("e/g", "TEXT")?;
    same!(fs::fstat(&file)?.st_nlink, 1)
}

fn links_are_not_followed(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.symlink("f", "link")?;
    works!(fs::rename("link", "moved"))?;
    same!(readlink("moved")?, b"f".to_vec())?;
    p.file("g", "other")?;
    works!(fs::rename("g", "moved"))?;
    p.holds("moved", "other")?;
    p.holds("f", "text")
}

fn a_whole_tree(p: &Place) -> Outcome {
    p.dir("d")?;
    for outer in 0..10 {
        p.dir(&format!("d/{outer}"))?;
        for inner in 0..10 {
            p.file(&format!("d/{outer}/{inner}"), format!("{outer} {inner}"))?;
        }
    }
    p.dir("far")?;
    works!(fs::rename("d", "far/e"))?;
    p.gone("d/3/4")?;
    p.holds("far/e/3/4", "3 4")?;
    same!(p.names("far/e")?.len(), 10)
}

/// Who looks while another process renames over a name always finds one of both files.
fn the_name_is_always_there(p: &Place) -> Outcome {
    p.file("name", "0")?;
    let looker = Process::start(|| {
        while fs::lstat("stop").is_err() {
            let file = works!(open("name", O::RDONLY))?;
            holds!(pread(&file, 0, 10)?.len() == 1)?;
        }
        Ok(())
    })?;
    for round in 0..300 {
        p.file("next", format!("{}", round % 10))?;
        works!(fs::rename("next", "name"))?;
    }
    p.file("stop", "")?;
    looker.join()
}

fn back_and_forth(p: &Place) -> Outcome {
    p.file("a", "text")?;
    for _ in 0..50 {
        works!(fs::rename("a", "b"))?;
        fails!(open("a", O::RDONLY), NOENT)?;
        works!(open("b", O::RDONLY))?;
        works!(fs::rename("b", "a"))?;
        fails!(open("b", O::RDONLY), NOENT)?;
    }
    p.holds("a", "text")
}

fn over_the_link_of_a_file(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.symlink("f", "link")?;
    works!(fs::rename("f", "link"))?;
    p.holds("link", "text")?;
    p.gone("f")
}

fn replacing_counts_links(p: &Place) -> Outcome {
    p.file("one", "1")?;
    fs::link("one", "two")?;
    p.file("new", "2")?;
    works!(fs::rename("new", "two"))?;
    same!((p.stat("one")?.st_nlink, p.stat("two")?.st_nlink), (1, 1))?;
    p.holds("one", "1")
}

fn in_a_sticky_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.open_dir("e")?;
    chmod("d", 0o1777)?;
    p.as_user(ALICE, &[], || {
        p.file("d/alices", "")?;
        p.dir("d/dir")
    })?;
    p.as_user(BOB, &[], || {
        p.file("d/bobs", "")?;
        p.dir("d/bobs_dir")?;
        p.file("e/f", "")?;
        fails!(fs::rename("d/alices", "e/new"), PERM | ACCESS)?;
        fails!(fs::rename("d/bobs", "d/alices"), PERM | ACCESS)?;
        fails!(fs::rename("e/f", "d/alices"), PERM | ACCESS)?;
        fails!(fs::rename("d/bobs_dir", "d/dir"), PERM | ACCESS)?;
        works!(fs::rename("d/bobs", "e/g"))?;
        works!(fs::rename("e/g", "d/new"))
    })?;
    chown("d", BOB, BOB)?;
    p.as_user(BOB, &[], || works!(fs::rename("d/new", "d/alices")))
}

fn needs_write_permission_on_both_directories(p: &Place) -> Outcome {
    p.dir("closed")?;
    p.open_dir("open")?;
    p.file("closed/f", "")?;
    p.as_user(ALICE, &[], || {
        works!(create("open/f", 0o644))?;
        fails!(fs::rename("open/f", "closed/g"), ACCESS)?;
        fails!(fs::rename("closed/f", "open/g"), ACCESS)?;
        works!(fs::rename("open/f", "open/g"))
    })
}

/// Its `..` changes, which is writing to it; within one directory it does not.
fn moving_a_directory_needs_write_permission_on_it(p: &Place) -> Outcome {
    p.open_dir("one")?;
    p.open_dir("two")?;
    p.dir("one/d")?;
    p.as_user(ALICE, &[], || {
        fails!(fs::rename("one/d", "two/d"), ACCESS)?;
        works!(fs::rename("one/d", "one/e"))
    })?;
    chmod("one/e", 0o777)?;
    p.as_user(ALICE, &[], || works!(fs::rename("one/e", "two/d")))?;
    p.stat("two/d")?;
    same!(p.names("one")?, Vec::<String>::new())?;
    works!(fs::renameat(CWD, "two/d", CWD, "one/d"))
}
