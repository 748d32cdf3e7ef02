//! Which call moves which time: of the file, and of the directory.

use rustix::fs::{self, OFlags as O, Stat, XattrFlags};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, MsyncFlags};

use crate::call::{chmod, chown, create, mkdir, mkfifo, open, read};
use crate::expect::{Failure, Outcome, fails, holds, same, works};
use crate::place::{ALICE, Place, edit};
use crate::sys::{self, Map};

cases! { "stamps"
    anyone: making_moves_the_directory, removing_moves_the_directory, renaming_moves_both,
        renaming_moves_the_file, replacing_moves_what_was_there, linking_moves_the_file,
        writing_moves_the_file, mapped_writing_moves_the_file, truncating, opening_to_truncate,
        opening_moves_nothing, chmod_moves_ctime_only, reading_moves_neither,
        attributes_move_ctime_only, refused_calls_move_nothing, allocating_moves_the_file,
        copying_moves_the_target, an_empty_write_moves_nothing, time_does_not_go_back;
    root: chown_moves_ctime_only;
}

/// What moved: the time of change of the content, and of the attributes.
type Moved = (bool, bool);
const NEITHER: Moved = (false, false);
const CTIME: Moved = (false, true);
const BOTH: Moved = (true, true);

fn moved(before: &Stat, after: &Stat) -> Moved {
    let change = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
    let attributes = |stat: &Stat| (stat.st_ctime, stat.st_ctime_nsec);
    (change(before) != change(after), attributes(before) != attributes(after))
}

/// What of `names` moves by `call`, which may make or remove others.
#[track_caller]
fn moves(p: &Place, names: &[&str], call: impl FnOnce() -> Outcome) -> Result<Vec<Moved>, Failure> {
    let look = || names.iter().map(|name| p.stat(name)).collect::<Result<Vec<Stat>, _>>();
    let before = look()?;
    p.tick();
    call()?;
    Ok(before.iter().zip(&look()?).map(|(before, after)| moved(before, after)).collect())
}

fn making_moves_the_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    same!(moves(p, &["d"], || works!(create("d/file", 0o644)).map(drop))?, vec![BOTH])?;
    same!(moves(p, &["d"], || works!(mkdir("d/dir", 0o755)))?, vec![BOTH])?;
    same!(moves(p, &["d"], || works!(mkfifo("d/fifo", 0o644)))?, vec![BOTH])?;
    same!(moves(p, &["d"], || works!(fs::symlink("t", "d/link")))?, vec![BOTH])?;
    same!(moves(p, &["d"], || works!(fs::link("f", "d/linked")))?, vec![BOTH])
}

fn removing_moves_the_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/dir")?;
    p.file("d/file", "")?;
    fs::link("d/file", "d/other")?;
    let removed = moves(p, &["d", "d/other"], || works!(fs::unlink("d/file")))?;
    same!(removed, vec![BOTH, CTIME])?;
    same!(moves(p, &["d"], || works!(fs::rmdir("d/dir")))?, vec![BOTH])
}

fn renaming_moves_both(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("e")?;
    p.file("d/f", "")?;
    p.dir("d/dir")?;
    same!(moves(p, &["d", "e"], || works!(fs::rename("d/f", "e/g")))?, vec![BOTH, BOTH])?;
    same!(moves(p, &["d", "e"], || works!(fs::rename("d/dir", "e/dir")))?, vec![BOTH, BOTH])?;
    same!(moves(p, &["d", "e"], || works!(fs::rename("e/g", "e/h")))?, vec![NEITHER, BOTH])
}

/// POSIX leaves the file's own ctime open; Linux file systems move it.
fn renaming_moves_the_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    fs::link("f", "same")?;
    same!(moves(p, &["same"], || works!(fs::rename("f", "g")))?, vec![CTIME])
}

fn replacing_moves_what_was_there(p: &Place) -> Outcome {
    p.file("old", "")?;
    fs::link("old", "same")?;
    p.file("new", "")?;
    same!(moves(p, &["same", "."], || works!(fs::rename("new", "old")))?, vec![CTIME, BOTH])
}

fn linking_moves_the_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    same!(moves(p, &["f", "."], || works!(fs::link("f", "g")))?, vec![CTIME, BOTH])
}

fn writing_moves_the_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "text")?;
    let file = works!(edit("d/f"))?;
    for offset in [0, 2, 10_000] {
        let written = moves(p, &["d/f", "d"], || works!(pwrite(&file, b"x", offset)).map(drop))?;
        same!(written, vec![BOTH, NEITHER])?;
    }
    // Closing is no change.
    same!(
        moves(p, &["d/f"], || {
            drop(file);
            Ok(())
        })?,
        vec![NEITHER]
    )
}

/// At the latest when it is synced.
fn mapped_writing_moves_the_file(p: &Place) -> Outcome {
    p.file("f", [b'x'; 4_096])?;
    let map = works!(Map::new(&works!(edit("f"))?, 0, 4_096, MapFlags::SHARED, true))?;
    let mapped = moves(p, &["f"], || {
        map.put(0, b"y");
        works!(map.sync(MsyncFlags::SYNC))
    })?;
    same!(mapped, vec![BOTH])
}

/// ftruncate always moves, truncate where the size changes.
fn truncating(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    same!(moves(p, &["f"], || works!(sys::truncate(c"f", 4)))?, vec![BOTH])?;
    same!(moves(p, &["f"], || works!(sys::truncate(c"f", 100)))?, vec![BOTH])?;
    let file = works!(edit("f"))?;
    same!(moves(p, &["f"], || works!(fs::ftruncate(&file, 50)))?, vec![BOTH])?;
    same!(moves(p, &["f"], || works!(fs::ftruncate(&file, 50)))?, vec![BOTH])
}

fn opening_to_truncate(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let emptied = || works!(open("f", O::WRONLY | O::TRUNC)).map(drop);
    same!(moves(p, &["f", "."], emptied)?, vec![BOTH, NEITHER])?;
    same!(moves(p, &["f", "."], emptied)?, vec![BOTH, NEITHER])
}

fn opening_moves_nothing(p: &Place) -> Outcome {
    p.file("f", "text")?;
    for flags in [O::RDONLY, O::RDWR, O::RDWR | O::CREATE, O::WRONLY | O::APPEND] {
        let opened = moves(p, &["f", "."], || works!(open("f", flags)).map(drop))?;
        same!(opened, vec![NEITHER, NEITHER])?;
    }
    Ok(())
}

fn chmod_moves_ctime_only(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "")?;
    same!(moves(p, &["d/f", "d"], || works!(chmod("d/f", 0o600)))?, vec![CTIME, NEITHER])?;
    same!(moves(p, &["d"], || works!(chmod("d", 0o700)))?, vec![CTIME])
}

fn reading_moves_neither(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.dir("d")?;
    p.symlink("f", "link")?;
    let read_all = moves(p, &["f", "d", "link"], || {
        same!(read(open("f", O::RDONLY)?, 10)?, b"text".to_vec())?;
        p.names("d")?;
        works!(fs::readlink("link", Vec::new()))?;
        works!(fs::stat("f")).map(drop)
    })?;
    same!(read_all, vec![NEITHER; 3])
}

fn attributes_move_ctime_only(p: &Place) -> Outcome {
    p.file("f", "")?;
    let set = |value: &[u8]| fs::setxattr("f", "user.a", value, XattrFlags::empty());
    if set(b"before") == Err(Errno::OPNOTSUPP) {
        return Ok(());
    }
    same!(moves(p, &["f", "."], || works!(set(b"after")))?, vec![CTIME, NEITHER])?;
    same!(moves(p, &["f"], || works!(fs::removexattr("f", "user.a")))?, vec![CTIME])?;
    same!(moves(p, &["f"], || fails!(fs::removexattr("f", "user.a"), NODATA))?, vec![NEITHER])
}

fn refused_calls_move_nothing(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.file("d/g", "")?;
    let refused = moves(p, &["f", "d", "d/g", "."], || {
        fails!(create("f", 0o644), EXIST)?;
        fails!(mkdir("d", 0o755), EXIST)?;
        fails!(fs::rmdir("d"), NOTEMPTY | EXIST)?;
        fails!(fs::unlink("d"), ISDIR)?;
        fails!(fs::unlink("missing"), NOENT)?;
        fails!(fs::rename("f", "d"), ISDIR)?;
        fails!(fs::rename("missing", "f"), NOENT)?;
        fails!(fs::link("f", "d/g"), EXIST)?;
        fails!(fs::symlink("t", "f"), EXIST)?;
        fails!(sys::truncate(c"f", -1), INVAL)?;
        fails!(pwrite(open("f", O::RDONLY)?, b"x", 0), BADF)
    })?;
    same!(refused, vec![NEITHER; 4])
}

fn allocating_moves_the_file(p: &Place) -> Outcome {
    p.file("f", [b'x'; 8_192])?;
    let file = works!(edit("f"))?;
    match sys::fallocate(&file, 0, 0, 100) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        other => works!(other)?,
    }
    let grown = moves(p, &["f"], || works!(sys::fallocate(&file, 0, 0, 10_000)))?;
    holds!(grown == [BOTH] || grown == [CTIME])
}

fn copying_moves_the_target(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.file("g", "")?;
    let (from, to) = (works!(edit("f"))?, works!(edit("g"))?);
    let copy = || works!(fs::copy_file_range(&from, None, &to, None, 4)).map(drop);
    same!(moves(p, &["f", "g"], copy)?, vec![NEITHER, BOTH])
}

fn an_empty_write_moves_nothing(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    same!(moves(p, &["f"], || works!(pwrite(&file, b"", 0)).map(drop))?, vec![NEITHER])
}

fn time_does_not_go_back(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    let mut last = (0, 0);
    for round in 0..200 {
        works!(pwrite(&file, b"x", round))?;
        let stat = p.stat("f")?;
        let now = (stat.st_mtime, stat.st_mtime_nsec);
        holds!(now >= last)?;
        same!(now, (stat.st_ctime, stat.st_ctime_nsec))?;
        last = now;
    }
    Ok(())
}

fn chown_moves_ctime_only(p: &Place) -> Outcome {
    p.file("f", "")?;
    same!(moves(p, &["f", "."], || works!(chown("f", ALICE, ALICE)))?, vec![CTIME, NEITHER])
}
