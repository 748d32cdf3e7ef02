//! mkdir: what a new directory is.

use rustix::fs::{self, FileType};

use crate::call::{chmod, chown, mkdir, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, Place, STAFF};

cases! { "mkdir"
    anyone: starts_empty_with_two_links, over_anything_is_eexist, counts_in_its_parent,
        deep, ignores_set_id_bits;
    root: takes_the_callers_ids, set_group_id_is_inherited, sticky_is_kept,
        in_a_readable_directory_is_eacces;
}

fn starts_empty_with_two_links(p: &Place) -> Outcome {
    works!(mkdir("d", 0o750))?;
    let stat = p.stat("d")?;
    same!(FileType::from_raw_mode(stat.st_mode), FileType::Directory)?;
    same!(p.mode("d")?, 0o750)?;
    // A file system that does not count subdirectories says 1 for every directory.
    holds!(stat.st_nlink == 2 || stat.st_nlink == 1)?;
    same!(p.names("d")?, Vec::<String>::new())?;
    same!(fs::stat("d/..")?.st_ino, fs::stat(".")?.st_ino)?;
    same!(fs::stat("d/.")?.st_ino, stat.st_ino)
}

fn over_anything_is_eexist(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    p.fifo("fifo")?;
    p.symlink("nowhere", "dangling")?;
    p.symlink("d", "link")?;
    for name in ["d", "f", "fifo", "dangling", "link", ".", ".."] {
        fails!(mkdir(name, 0o755), EXIST)?;
    }
    p.gone("nowhere")
}

fn counts_in_its_parent(p: &Place) -> Outcome {
    p.dir("d")?;
    let links = |wanted| {
        let links = p.stat("d")?.st_nlink;
        holds!(links == wanted || links == 1)
    };
    p.dir("d/one")?;
    links(3)?;
    p.dir("d/two")?;
    p.file("d/file", "")?;
    links(4)?;
    works!(fs::rmdir("d/one"))?;
    links(3)?;
    works!(fs::rename("d/two", "two"))?;
    links(2)?;
    works!(fs::rename("two", "d/two"))?;
    links(3)
}

fn deep(p: &Place) -> Outcome {
    let mut path = "d".to_owned();
    for _ in 0..100 {
        p.dir(&path)?;
        path.push_str("/d");
    }
    p.file(&path, "deep")?;
    p.holds(&path, "deep")?;
    // Longer than a path may be, one step at a time.
    rustix::process::chdir("d")?;
    let name = "n".repeat(200);
    for _ in 0..25 {
        works!(mkdir(&name, 0o755))?;
        works!(rustix::process::chdir(&name))?;
    }
    p.file("bottom", "here")?;
    p.holds("bottom", "here")?;
    works!(fs::unlink("bottom"))?;
    for _ in 0..25 {
        works!(rustix::process::chdir(".."))?;
        works!(fs::rmdir(&name))?;
    }
    Ok(())
}

fn ignores_set_id_bits(p: &Place) -> Outcome {
    works!(mkdir("d", 0o6755))?;
    same!(p.mode("d")?, 0o755)
}

fn takes_the_callers_ids(p: &Place) -> Outcome {
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[STAFF], || works!(mkdir("d", 0o755)))?;
    let stat = p.stat("d")?;
    same!((stat.st_uid, stat.st_gid), (ALICE, ALICE))
}

/// What is made in a set-group-id directory has the directory's group, and directories in it
/// are set-group-id themselves.
fn set_group_id_is_inherited(p: &Place) -> Outcome {
    p.dir("d")?;
    chown("d", 0, STAFF)?;
    chmod("d", 0o2777)?;
    p.as_user(ALICE, &[], || {
        works!(mkdir("d/dir", 0o755))?;
        p.file("d/file", "")?;
        p.fifo("d/fifo")?;
        p.symlink("file", "d/link")?;
        works!(mkdir("d/dir/deeper", 0o700))
    })?;
    for name in ["d/dir", "d/file", "d/fifo", "d/link", "d/dir/deeper"] {
        let stat = p.stat(name)?;
        same!((name, stat.st_uid, stat.st_gid), (name, ALICE, STAFF))?;
    }
    same!(p.mode("d/dir")?, 0o2755)?;
    same!(p.mode("d/dir/deeper")?, 0o2700)?;
    same!(p.mode("d/file")?, 0o644)
}

fn sticky_is_kept(p: &Place) -> Outcome {
    works!(mkdir("d", 0o1777))?;
    same!(p.mode("d")?, 0o1755)
}

fn in_a_readable_directory_is_eacces(p: &Place) -> Outcome {
    p.dir("d")?;
    p.as_user(ALICE, &[], || {
        works!(open("d", fs::OFlags::RDONLY))?;
        fails!(mkdir("d/e", 0o755), ACCESS)
    })
}
