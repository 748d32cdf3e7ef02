//! rmdir: only what is empty, and what is left of a directory that somebody still has open.

use rustix::fs::{self, AtFlags, CWD, OFlags as O};

use crate::call::{chmod, chown, create, mkdir, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, BOB, Place};

cases! { "rmdir"
    anyone: of_an_empty_directory, of_one_that_is_not_empty, of_what_is_no_directory,
        of_dot_and_dotdot, of_the_root_of_a_mount, by_unlinkat, one_that_is_open,
        one_that_is_the_working_directory, nothing_is_made_in_a_removed_one,
        after_its_open_files_are_unlinked;
    root: in_a_sticky_directory, needs_permission_on_the_parent_only;
}

fn of_an_empty_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    works!(fs::rmdir("d/e"))?;
    p.gone("d/e")?;
    works!(fs::rmdir("d/"))?;
    p.gone("d")?;
    fails!(fs::rmdir("d"), NOENT)
}

fn of_one_that_is_not_empty(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    fails!(fs::rmdir("d"), NOTEMPTY | EXIST)?;
    fs::rmdir("d/e")?;
    p.file("d/f", "")?;
    fails!(fs::rmdir("d"), NOTEMPTY | EXIST)?;
    fs::unlink("d/f")?;
    p.symlink("nowhere", "d/l")?;
    fails!(fs::rmdir("d"), NOTEMPTY | EXIST)?;
    fs::rename("d/l", "l")?;
    works!(fs::rmdir("d"))
}

fn of_what_is_no_directory(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.fifo("fifo")?;
    p.dir("d")?;
    p.symlink("d", "link")?;
    for name in ["f", "fifo", "link", "link/"] {
        fails!(fs::rmdir(name), NOTDIR)?;
    }
    p.stat("d").map(drop)
}

fn of_dot_and_dotdot(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    fails!(fs::rmdir("d/e/."), INVAL)?;
    fails!(fs::rmdir("."), INVAL)?;
    fails!(fs::rmdir("d/e/.."), NOTEMPTY | EXIST)?;
    p.stat("d/e").map(drop)
}

fn of_the_root_of_a_mount(_: &Place) -> Outcome {
    fails!(fs::rmdir("/proc"), BUSY | ACCESS)
}

fn by_unlinkat(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    fails!(fs::unlinkat(CWD, "f", AtFlags::REMOVEDIR), NOTDIR)?;
    fails!(fs::unlinkat(CWD, "d", AtFlags::empty()), ISDIR)?;
    fails!(fs::unlinkat(CWD, "d", AtFlags::SYMLINK_NOFOLLOW), INVAL)?;
    works!(fs::unlinkat(CWD, "d", AtFlags::REMOVEDIR))
}

fn one_that_is_open(p: &Place) -> Outcome {
    p.dir("d")?;
    let open_dir = works!(open("d", O::RDONLY | O::DIRECTORY))?;
    works!(fs::rmdir("d"))?;
    same!(works!(fs::fstat(&open_dir))?.st_nlink, 0)?;
    let entries = works!(fs::Dir::read_from(&open_dir))?;
    let names: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_owned())).collect();
    // Linux lists nothing, or still the directory itself and its parent.
    holds!(names.iter().all(|name| name.as_c_str() == c"." || name.as_c_str() == c".."))?;
    p.dir("d")?;
    holds!(p.stat("d")?.st_nlink > 0)?;
    same!(fs::fstat(&open_dir)?.st_nlink, 0)
}

fn one_that_is_the_working_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    works!(rustix::process::chdir("d"))?;
    works!(fs::rmdir(p.path().join("d")))?;
    fails!(rustix::process::getcwd(Vec::new()), NOENT)?;
    fails!(create("f", 0o644), NOENT)?;
    works!(fs::stat("."))?;
    // The way up goes on.
    works!(rustix::process::chdir(".."))?;
    same!(p.names(".")?, Vec::<String>::new())
}

fn nothing_is_made_in_a_removed_one(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("other", "")?;
    let d = works!(open("d", O::RDONLY | O::DIRECTORY))?;
    works!(fs::rmdir("d"))?;
    let mode = fs::Mode::from_raw_mode(0o755);
    fails!(fs::openat(&d, "f", O::CREATE | O::WRONLY, mode), NOENT)?;
    fails!(fs::mkdirat(&d, "f", mode), NOENT)?;
    fails!(fs::symlinkat("t", &d, "f"), NOENT)?;
    fails!(fs::mknodat(&d, "f", fs::FileType::Fifo, mode, 0), NOENT)?;
    fails!(fs::linkat(CWD, "other", &d, "f", AtFlags::empty()), NOENT)?;
    fails!(fs::renameat(CWD, "other", &d, "f"), NOENT)?;
    fails!(fs::statat(&d, "f", AtFlags::empty()), NOENT)?;
    p.stat("other").map(drop)
}

/// A file that lives on without a name is in no directory.
fn after_its_open_files_are_unlinked(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "text")?;
    p.file("d/g", "other")?;
    let (file, replaced) = (works!(open("d/f", O::RDWR))?, works!(open("d/g", O::RDWR))?);
    works!(fs::unlink("d/f"))?;
    p.file("d/new", "new")?;
    works!(fs::rename("d/new", "d/g"))?;
    same!(p.names("d")?, vec!["g".to_owned()])?;
    works!(fs::unlink("d/g"))?;
    works!(fs::rmdir("d"))?;
    works!(rustix::io::pwrite(&file, b"T", 0))?;
    same!(crate::call::pread(&file, 0, 10)?, b"Text".to_vec())?;
    same!(crate::call::pread(&replaced, 0, 10)?, b"other".to_vec())
}

fn in_a_sticky_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    chmod("d", 0o1777)?;
    for name in ["d/one", "d/two", "d/three"] {
        p.as_user(ALICE, &[], || works!(mkdir(name, 0o777)))?;
    }
    p.as_user(BOB, &[], || fails!(fs::rmdir("d/one"), PERM | ACCESS))?;
    p.as_user(ALICE, &[], || works!(fs::rmdir("d/one")))?;
    // The directory's owner may.
    chown("d", BOB, BOB)?;
    p.as_user(BOB, &[], || works!(fs::rmdir("d/two")))?;
    works!(fs::rmdir("d/three"))
}

fn needs_permission_on_the_parent_only(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    chmod("d/e", 0o000)?;
    chown("d", ALICE, ALICE)?;
    p.as_user(BOB, &[], || fails!(fs::rmdir("d/e"), ACCESS))?;
    p.as_user(ALICE, &[], || works!(fs::rmdir("d/e")))
}
