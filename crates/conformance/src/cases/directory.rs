//! Reading directories: what is listed, in pieces, and while it changes.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::{self, FileType, OFlags as O, RawDir, SeekFrom};

use crate::call::{create, mknod, open};
use crate::expect::{Failure, Outcome, fails, holds, same, works};
use crate::place::Place;

cases! { "directory"
    anyone: dot_and_dotdot_are_listed, an_empty_one, kinds_and_numbers, five_thousand_names,
        in_small_pieces, rewound, from_a_remembered_place, new_names_show_after_rewinding,
        removed_names_do_not_come_back, all_removed_while_reading, names_that_stay_are_listed_once,
        renaming_while_reading, two_readers, by_a_file_is_enotdir, long_names, too_small_a_buffer,
        seen_by_another_process, sized_and_counted, a_duplicate_reads_on;
    root: ;
}

/// An entry: its name, number, kind, and where the next one is.
type Entry = (String, u64, FileType, u64);

fn directory(name: &str) -> Result<OwnedFd, Failure> {
    works!(open(name, O::RDONLY | O::DIRECTORY))
}

/// What one buffer of so many bytes takes of the entries.
fn piece(dir: &OwnedFd, bytes: usize) -> Result<Vec<Entry>, Failure> {
    let mut buffer = Vec::with_capacity(bytes);
    let mut reader = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = reader.next() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push((name, entry.ino(), entry.file_type(), entry.next_entry_cookie()));
        if reader.is_buffer_empty() {
            break;
        }
    }
    Ok(entries)
}

/// All that is left to read.
fn rest(dir: &OwnedFd, bytes: usize) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    loop {
        let more = piece(dir, bytes)?;
        if more.is_empty() {
            return Ok(entries);
        }
        entries.extend(more);
    }
}

fn names(entries: &[Entry]) -> Vec<String> {
    let listed = entries.iter().map(|(name, ..)| name.clone());
    let mut names: Vec<String> = listed.filter(|name| name != "." && name != "..").collect();
    names.sort();
    names
}

fn files(count: usize) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = (0..count).map(|number| format!("file{number:05}")).collect();
    for name in &names {
        works!(create(name, 0o644))?;
    }
    Ok(names)
}

fn dot_and_dotdot_are_listed(p: &Place) -> Outcome {
    p.dir("d")?;
    let entries = rest(&directory("d")?, 4_096)?;
    let listed: BTreeSet<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
    same!(listed, BTreeSet::from([".", ".."]))?;
    for (name, number, kind, _) in &entries {
        same!(*kind, FileType::Directory)?;
        let wanted = if name == "." { p.stat("d")?.st_ino } else { p.stat(".")?.st_ino };
        same!((name, *number), (name, wanted))?;
    }
    Ok(())
}

fn an_empty_one(p: &Place) -> Outcome {
    p.dir("d")?;
    let dir = directory("d")?;
    same!(rest(&dir, 4_096)?.len(), 2)?;
    same!(rest(&dir, 4_096)?.len(), 0)
}

/// The kind may be left out; where it is given it is right, and so is the number.
fn kinds_and_numbers(p: &Place) -> Outcome {
    p.file("file", "")?;
    p.dir("dir")?;
    p.fifo("fifo")?;
    p.symlink("nowhere", "link")?;
    mknod("socket", FileType::Socket, 0o644, 0)?;
    fs::link("file", "linked")?;
    let entries = rest(&directory(".")?, 4_096)?;
    same!(names(&entries).len(), 6)?;
    for (name, number, kind, _) in entries.iter().filter(|(name, ..)| !name.starts_with('.')) {
        let stat = p.stat(name)?;
        same!((name, *number), (name, stat.st_ino))?;
        let wanted = FileType::from_raw_mode(stat.st_mode);
        holds!(*kind == wanted || *kind == FileType::Unknown)?;
    }
    Ok(())
}

fn five_thousand_names(p: &Place) -> Outcome {
    p.dir("d")?;
    rustix::process::chdir("d")?;
    let wanted = files(5_000)?;
    let entries = rest(&directory(".")?, 32_768)?;
    same!(entries.len(), 5_002)?;
    holds!(names(&entries) == wanted)?;
    for name in wanted.iter().step_by(2) {
        works!(fs::unlink(name))?;
    }
    let left: Vec<String> = wanted.into_iter().skip(1).step_by(2).collect();
    holds!(names(&rest(&directory(".")?, 32_768)?) == left)
}

fn in_small_pieces(_: &Place) -> Outcome {
    let wanted = files(200)?;
    for bytes in [64, 100, 300, 1_024] {
        let entries = rest(&directory(".")?, bytes)?;
        same!(entries.len(), 202)?;
        holds!(names(&entries) == wanted)?;
    }
    Ok(())
}

fn rewound(_: &Place) -> Outcome {
    let wanted = files(100)?;
    let dir = directory(".")?;
    for _ in 0..3 {
        piece(&dir, 500)?;
        works!(fs::seek(&dir, SeekFrom::Start(0)))?;
        same!(names(&rest(&dir, 4_096)?), wanted.clone())?;
        works!(fs::seek(&dir, SeekFrom::Start(0)))?;
    }
    Ok(())
}

/// telldir and seekdir: reading goes on behind the entry whose place was remembered.
fn from_a_remembered_place(_: &Place) -> Outcome {
    files(300)?;
    let dir = directory(".")?;
    let entries = rest(&dir, 1_000)?;
    for at in [0, 1, 2, 50, 150, 299, 300] {
        works!(fs::seek(&dir, SeekFrom::Start(entries[at].3)))?;
        let again = rest(&dir, 1_000)?;
        same!((at, names(&again)), (at, names(&entries[at + 1..])))?;
    }
    Ok(())
}

fn new_names_show_after_rewinding(p: &Place) -> Outcome {
    files(10)?;
    let dir = directory(".")?;
    same!(rest(&dir, 4_096)?.len(), 12)?;
    p.file("new", "")?;
    works!(fs::unlink("file00003"))?;
    works!(fs::seek(&dir, SeekFrom::Start(0)))?;
    let listed = names(&rest(&dir, 4_096)?);
    holds!(listed.contains(&"new".to_owned()))?;
    holds!(!listed.contains(&"file00003".to_owned()))?;
    same!(listed.len(), 10)
}

fn removed_names_do_not_come_back(_: &Place) -> Outcome {
    let wanted = files(500)?;
    let dir = directory(".")?;
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for number in (0..500).rev() {
        listed.extend(names(&piece(&dir, 100)?));
        works!(fs::unlink(&wanted[number]))?;
    }
    listed.extend(names(&rest(&dir, 4_096)?));
    works!(fs::seek(&dir, SeekFrom::Start(0)))?;
    same!(names(&rest(&dir, 4_096)?), Vec::new())
}

/// `rm -r` reads a piece, removes what it read, and reads on: at the end all must be gone.
fn all_removed_while_reading(p: &Place) -> Outcome {
    p.dir("d")?;
    rustix::process::chdir("d")?;
    files(1_000)?;
    let dir = directory(".")?;
    loop {
        let more = piece(&dir, 2_000)?;
        if more.is_empty() {
            break;
        }
        for name in names(&more) {
            works!(fs::unlink(&name))?;
        }
    }
    rustix::process::chdir("..")?;
    works!(fs::rmdir("d"))
}

fn names_that_stay_are_listed_once(p: &Place) -> Outcome {
    let wanted = files(400)?;
    let dir = directory(".")?;
    let mut listed = Vec::new();
    for round in 0.. {
        let more = piece(&dir, 600)?;
        if more.is_empty() {
            break;
        }
        listed.extend(names(&more));
        p.file(&format!("added{round:05}"), "")?;
        if round > 0 {
            works!(fs::unlink(format!("added{:05}", round - 1)))?;
        }
    }
    listed.retain(|name| name.starts_with("file"));
    listed.sort();
    same!(listed, wanted)
}

/// A name that is moved meanwhile may be listed by its old name, its new one or both.
fn renaming_while_reading(_: &Place) -> Outcome {
    let wanted = files(300)?;
    let dir = directory(".")?;
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for number in 0..100 {
        listed.extend(names(&piece(&dir, 120)?));
        works!(fs::rename(&wanted[number * 3], format!("moved{number:05}")))?;
    }
    listed.extend(names(&rest(&dir, 4_096)?));
    // Those that nobody touched are all there.
    for name in wanted.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, name)| name) {
        holds!(listed.contains(name))?;
    }
    Ok(())
}

fn two_readers(_: &Place) -> Outcome {
    let wanted = files(200)?;
    let (one, two) = (directory(".")?, directory(".")?);
    let (mut by_one, mut by_two) = (piece(&one, 1_000)?, Vec::new());
    by_two.extend(rest(&two, 300)?);
    by_one.extend(rest(&one, 700)?);
    same!(names(&by_one), wanted.clone())?;
    same!(names(&by_two), wanted)
}

fn by_a_file_is_enotdir(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    let mut buffer = Vec::with_capacity(1_000);
    let mut reader = RawDir::new(&file, buffer.spare_capacity_mut());
    match reader.next() {
        Some(entry) => fails!(entry.map(drop), NOTDIR),
        None => Err(Failure::here("reading entries of a file gave an end instead of ENOTDIR")),
    }
}

fn long_names(_: &Place) -> Outcome {
    let mut wanted: Vec<String> = Vec::new();
    for number in 0..100 {
        let name = format!("{number:03}{}", "n".repeat(252 - number));
        works!(create(&name, 0o644))?;
        wanted.push(name);
    }
    same!(names(&rest(&directory(".")?, 600)?), wanted.clone())?;
    same!(names(&rest(&directory(".")?, 32_768)?), wanted)
}

/// Not even one entry fits: that is said, and is not the end.
fn too_small_a_buffer(p: &Place) -> Outcome {
    p.dir("d")?;
    works!(create(format!("d/{}", "n".repeat(255)), 0o644))?;
    let dir = directory("d")?;
    let mut listed = Vec::new();
    for _ in 0..3 {
        let mut buffer = Vec::with_capacity(64);
        let mut reader = RawDir::new(&dir, buffer.spare_capacity_mut());
        match reader.next() {
            Some(Ok(entry)) => listed.push(entry.file_name().to_owned()),
            Some(Err(errno)) => {
                same!(errno, rustix::io::Errno::INVAL)?;
                break;
            }
            None => return Err(Failure::here("an end instead of EINVAL")),
        }
        // Whole pieces only, so that nothing in the buffer is lost.
        while !reader.is_buffer_empty() {
            reader.next();
        }
    }
    holds!(listed.len() < 3)
}

fn seen_by_another_process(p: &Place) -> Outcome {
    p.dir("d")?;
    for round in 0..20 {
        p.elsewhere(|| p.file(&format!("d/f{round}"), ""))?;
        same!(p.names("d")?.len(), round + 1)?;
    }
    p.elsewhere(|| works!(fs::unlink("d/f7")))?;
    holds!(!p.names("d")?.contains(&"f7".to_owned()))
}

fn sized_and_counted(p: &Place) -> Outcome {
    p.dir("d")?;
    let stat = p.stat("d")?;
    holds!(stat.st_size >= 0 && stat.st_blksize > 0)?;
    p.file("d/f", "")?;
    // Files are not counted among a directory's links.
    same!(p.stat("d")?.st_nlink, stat.st_nlink)
}

fn a_duplicate_reads_on(_: &Place) -> Outcome {
    let wanted = files(100)?;
    let dir = directory(".")?;
    let mut entries = piece(&dir, 500)?;
    let other = works!(rustix::io::dup(&dir))?;
    entries.extend(rest(&other, 500)?);
    same!(names(&entries), wanted)
}
