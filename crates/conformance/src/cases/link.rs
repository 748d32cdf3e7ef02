//! link: one file by several names.

use rustix::fs::{self, AtFlags, CWD, OFlags as O};

use crate::call::{chmod, chown, mknod, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, BOB, Place};

cases! { "link"
    anyone: names_the_same_file, counts_up, of_every_kind_but_directories, over_anything_is_eexist,
        does_not_follow_links, follows_when_told, bad_flags_are_einval, to_another_file_system,
        between_directories, writes_show_by_both_names, to_a_hundred_names,
        of_an_open_descriptor;
    root: of_a_directory_is_eperm, needs_write_permission_on_the_target_directory,
        of_others_files;
}

fn names_the_same_file(p: &Place) -> Outcome {
    p.file("one", "text")?;
    works!(fs::link("one", "two"))?;
    let (one, two) = (p.stat("one")?, p.stat("two")?);
    same!((one.st_dev, one.st_ino), (two.st_dev, two.st_ino))?;
    chmod("two", 0o600)?;
    same!(p.mode("one")?, 0o600)?;
    works!(fs::unlink("one"))?;
    p.holds("two", "text")
}

fn counts_up(p: &Place) -> Outcome {
    p.file("f", "")?;
    for number in 2..20 {
        works!(fs::link("f", format!("f{number}")))?;
        same!(p.stat("f")?.st_nlink, number)?;
        same!(p.stat("f2")?.st_nlink, number)?;
    }
    Ok(())
}

fn of_every_kind_but_directories(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    mknod("socket", fs::FileType::Socket, 0o644, 0)?;
    p.symlink("nowhere", "link")?;
    for name in ["fifo", "socket", "link"] {
        let other = format!("{name}2");
        works!(fs::link(name, &other))?;
        same!(p.stat(&other)?.st_ino, p.stat(name)?.st_ino)?;
        same!(p.stat(&other)?.st_nlink, 2)?;
        works!(fs::unlink(name))?;
        same!(p.stat(&other)?.st_nlink, 1)?;
    }
    Ok(())
}

fn over_anything_is_eexist(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.file("other", "kept")?;
    p.dir("d")?;
    p.symlink("nowhere", "link")?;
    for name in ["f", "other", "d", "link", "."] {
        fails!(fs::link("f", name), EXIST)?;
    }
    same!(p.stat("f")?.st_nlink, 1)?;
    p.holds("other", "kept")
}

fn does_not_follow_links(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    works!(fs::link("link", "new"))?;
    same!(p.stat("new")?.st_ino, p.stat("link")?.st_ino)?;
    same!(p.stat("f")?.st_nlink, 1)
}

fn follows_when_told(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    works!(fs::linkat(CWD, "link", CWD, "new", AtFlags::SYMLINK_FOLLOW))?;
    same!(p.stat("new")?.st_ino, p.stat("f")?.st_ino)
}

fn bad_flags_are_einval(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(fs::linkat(CWD, "f", CWD, "new", AtFlags::REMOVEDIR), INVAL)?;
    fails!(fs::linkat(CWD, "f", CWD, "new", AtFlags::from_bits_retain(0x4000_0000)), INVAL)
}

fn to_another_file_system(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(fs::link("/proc/self/status", "new"), XDEV)?;
    // The other file system may also say first that it makes no such name.
    fails!(fs::link("f", "/proc/new"), XDEV | NOENT)
}

fn between_directories(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("e")?;
    p.file("d/f", "text")?;
    works!(fs::link("d/f", "e/g"))?;
    works!(fs::unlink("d/f"))?;
    works!(fs::rmdir("d"))?;
    p.holds("e/g", "text")
}

fn writes_show_by_both_names(p: &Place) -> Outcome {
    p.file("one", "old text")?;
    works!(fs::link("one", "two"))?;
    let file = works!(open("two", O::WRONLY))?;
    works!(rustix::io::write(&file, b"new"))?;
    p.holds("one", "new text")?;
    works!(fs::ftruncate(&file, 3))?;
    same!(p.stat("one")?.st_size, 3)
}

fn to_a_hundred_names(p: &Place) -> Outcome {
    p.file("f0", "text")?;
    for number in 1..100 {
        works!(fs::link("f0", format!("f{number}")))?;
    }
    same!(p.stat("f99")?.st_nlink, 100)?;
    for number in 0..99 {
        works!(fs::unlink(format!("f{number}")))?;
    }
    same!(p.stat("f99")?.st_nlink, 1)
}

fn of_an_open_descriptor(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("f", "text")?;
    let file = works!(open("f", O::RDONLY))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    works!(fs::linkat(CWD, &path, CWD, "new", AtFlags::SYMLINK_FOLLOW))?;
    same!(p.stat("f")?.st_nlink, 2)
}

fn of_a_directory_is_eperm(p: &Place) -> Outcome {
    p.dir("d")?;
    fails!(fs::link("d", "new"), PERM)?;
    fails!(fs::link("d", "d/new"), PERM)?;
    p.gone("new")
}

fn needs_write_permission_on_the_target_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.open_dir("e")?;
    p.as_user(ALICE, &[], || {
        p.file("e/f", "")?;
        fails!(fs::link("e/f", "d/f"), ACCESS)?;
        works!(fs::link("e/f", "e/g"))
    })
}

/// Where `protected_hardlinks` is on, others' files are linked only by who may read and write
/// them.
fn of_others_files(p: &Place) -> Outcome {
    let setting = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks")?;
    p.open_dir("d")?;
    p.file("d/f", "")?;
    chown("d/f", BOB, BOB)?;
    let linked = std::cell::Cell::new(false);
    p.as_user(ALICE, &[], || {
        if setting.trim() == "1" {
            return fails!(fs::link("d/f", "d/g"), PERM);
        }
        linked.set(true);
        works!(fs::link("d/f", "d/g"))
    })?;
    chmod("d/f", 0o666)?;
    p.as_user(ALICE, &[], || works!(fs::link("d/f", "d/h")))?;
    holds!(p.stat("d/f")?.st_nlink == if linked.get() { 3 } else { 2 })
}
