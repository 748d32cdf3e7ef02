//! symlink and readlink.

use rustix::fs::{self, AtFlags, CWD, FileType, OFlags as O};

use crate::call::{chmod, lchown, open, readlink};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, Place};

cases! { "symlink"
    anyone: says_what_it_was_given, size_is_the_targets_length, over_anything_is_eexist,
        readlink_of_what_is_no_link, readlink_into_a_small_buffer, empty_target_is_enoent,
        dangling_is_fine, resolves_where_it_stands, through_directories, replaced_by_rename,
        times_of_its_own;
    root: permissions_are_always_all, owner_of_its_own;
}

fn says_what_it_was_given(_: &Place) -> Outcome {
    let long = [b'x'; 4_000];
    let targets: [&[u8]; 7] =
        [b"f", b"/absolute", b"../up", b"a//b/./c/", b"\xff\n bytes", b"trailing/", &long];
    for target in targets {
        works!(fs::symlink(target, "link"))?;
        same!(works!(readlink("link"))?, target.to_vec())?;
        fs::unlink("link")?;
    }
    Ok(())
}

fn size_is_the_targets_length(p: &Place) -> Outcome {
    for length in [1, 59, 60, 61, 255, 256, 1_024, 4_095] {
        p.symlink(&"t".repeat(length), "link")?;
        let stat = p.stat("link")?;
        same!(usize::try_from(stat.st_size).ok(), Some(length))?;
        same!(FileType::from_raw_mode(stat.st_mode), FileType::Symlink)?;
        same!(readlink("link")?.len(), length)?;
        fs::unlink("link")?;
    }
    Ok(())
}

fn over_anything_is_eexist(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.symlink("nowhere", "link")?;
    for name in ["f", "d", "link"] {
        fails!(fs::symlink("target", name), EXIST)?;
    }
    same!(readlink("link")?, b"nowhere".to_vec())
}

fn readlink_of_what_is_no_link(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.fifo("fifo")?;
    for name in ["f", "d", "fifo", "."] {
        fails!(readlink(name), INVAL)?;
    }
    Ok(())
}

fn readlink_into_a_small_buffer(p: &Place) -> Outcome {
    p.symlink("target", "link")?;
    let mut buffer = [b'-'; 3];
    same!(works!(fs::readlinkat_raw(CWD, "link", &mut buffer[..]))?, 3)?;
    same!(buffer, *b"tar")
}

fn empty_target_is_enoent(p: &Place) -> Outcome {
    fails!(fs::symlink("", "link"), NOENT)?;
    p.gone("link")
}

fn dangling_is_fine(p: &Place) -> Outcome {
    works!(fs::symlink("nowhere", "link"))?;
    fails!(fs::stat("link"), NOENT)?;
    fails!(open("link", O::RDONLY), NOENT)?;
    fails!(chmod("link", 0o600), NOENT)?;
    p.file("nowhere", "now here")?;
    p.holds("link", "now here")
}

fn resolves_where_it_stands(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "outer")?;
    p.file("d/f", "inner")?;
    p.symlink("f", "d/link")?;
    p.symlink("../f", "d/up")?;
    p.holds("d/link", "inner")?;
    p.holds("d/up", "outer")?;
    works!(fs::rename("d/link", "link"))?;
    p.holds("link", "outer")
}

fn through_directories(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    p.symlink("d", "link")?;
    works!(crate::call::mkdir("link/e/new", 0o755))?;
    p.stat("d/e/new")?;
    // `..` is the directory's parent, not where the link is.
    same!(fs::stat("link/e/../..")?.st_ino, fs::stat(".")?.st_ino)?;
    p.file("d/f", "")?;
    works!(fs::rename("link/f", "link/g"))?;
    works!(fs::unlink("link/g"))
}

fn replaced_by_rename(p: &Place) -> Outcome {
    p.file("one", "1")?;
    p.file("two", "2")?;
    p.symlink("one", "link")?;
    p.holds("link", "1")?;
    p.symlink("two", "next")?;
    works!(fs::rename("next", "link"))?;
    p.holds("link", "2")?;
    same!(readlink("link")?, b"two".to_vec())
}

fn times_of_its_own(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    let before = p.stat("f")?.st_mtime;
    works!(crate::call::lutimens("link", (100, 0), (200, 5)))?;
    let link = p.stat("link")?;
    same!((link.st_mtime, link.st_mtime_nsec), (200, 5))?;
    same!(p.stat("f")?.st_mtime, before)
}

fn permissions_are_always_all(p: &Place) -> Outcome {
    rustix::process::umask(fs::Mode::from_raw_mode(0o077));
    works!(fs::symlink("t", "link"))?;
    same!(p.mode("link")?, 0o777)?;
    let mode = fs::Mode::from_raw_mode(0o600);
    fails!(fs::chmodat(CWD, "link", mode, AtFlags::SYMLINK_NOFOLLOW), OPNOTSUPP)?;
    same!(p.mode("link")?, 0o777)
}

fn owner_of_its_own(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    works!(lchown("link", ALICE, ALICE))?;
    same!((p.stat("link")?.st_uid, p.stat("f")?.st_uid), (ALICE, 0))
}
