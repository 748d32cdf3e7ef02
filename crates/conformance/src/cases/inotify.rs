//! inotify: what this host changes, its watchers hear.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{self, OFlags as O};

use crate::call::{chmod, create, open};
use crate::expect::{Failure, Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::sys;

cases! { "inotify"
    anyone: of_a_directory, of_a_file, a_move_has_one_cookie, of_another_process,
        of_removal, of_a_missing_name;
    root: ;
}

fn watch(path: &str) -> Result<OwnedFd, Failure> {
    let watcher = works!(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK))?;
    works!(inotify::add_watch(&watcher, path, WatchFlags::ALL_EVENTS))?;
    Ok(watcher)
}

/// What was heard so far: kind, name and cookie.
fn heard(watcher: &OwnedFd) -> Result<Vec<(ReadFlags, String, u32)>, Failure> {
    let mut buffer = [MaybeUninit::uninit(); 16_384];
    let mut reader = inotify::Reader::new(watcher, &mut buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Err(rustix::io::Errno::AGAIN) => return Ok(events),
            event => {
                let event = event?;
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                let kind = event.events() - ReadFlags::ISDIR;
                events.push((kind, name.unwrap_or_default(), event.cookie()));
            }
        }
    }
}

fn kinds(watcher: &OwnedFd, name: &str) -> Result<ReadFlags, Failure> {
    let heard = heard(watcher)?;
    let of_name = heard.iter().filter(|(_, heard, _)| heard == name);
    Ok(of_name.fold(ReadFlags::empty(), |all, (kind, ..)| all | *kind))
}

fn of_a_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    let watcher = watch("d")?;
    let file = works!(create("d/f", 0o644))?;
    holds!(kinds(&watcher, "f")?.contains(ReadFlags::CREATE | ReadFlags::OPEN))?;
    works!(rustix::io::write(&file, b"x"))?;
    drop(file);
    holds!(kinds(&watcher, "f")?.contains(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE))?;
    p.content("d/f")?;
    holds!(kinds(&watcher, "f")?.contains(ReadFlags::ACCESS | ReadFlags::CLOSE_NOWRITE))?;
    works!(chmod("d/f", 0o600))?;
    same!(kinds(&watcher, "f")?, ReadFlags::ATTRIB)?;
    works!(fs::unlink("d/f"))?;
    holds!(kinds(&watcher, "f")?.contains(ReadFlags::DELETE))?;
    p.dir("d/e")?;
    works!(fs::symlink("t", "d/l"))?;
    same!(heard(&watcher)?.len(), 2)
}

fn of_a_file(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let watcher = watch("f")?;
    works!(sys::truncate(c"f", 1))?;
    same!(kinds(&watcher, "")?, ReadFlags::MODIFY)?;
    works!(crate::call::utimens("f", (1, 0), (1, 0)))?;
    same!(kinds(&watcher, "")?, ReadFlags::ATTRIB)?;
    works!(fs::link("f", "g"))?;
    same!(kinds(&watcher, "")?, ReadFlags::ATTRIB)?;
    drop(works!(open("g", O::RDONLY))?);
    same!(kinds(&watcher, "")?, ReadFlags::OPEN | ReadFlags::CLOSE_NOWRITE)
}

fn a_move_has_one_cookie(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "")?;
    p.dir("e")?;
    let watcher = watch("d")?;
    works!(inotify::add_watch(&watcher, "e", WatchFlags::ALL_EVENTS))?;
    works!(fs::rename("d/f", "e/g"))?;
    let heard = heard(&watcher)?;
    same!(heard.len(), 2)?;
    same!((heard[0].0, heard[0].1.as_str()), (ReadFlags::MOVED_FROM, "f"))?;
    same!((heard[1].0, heard[1].1.as_str()), (ReadFlags::MOVED_TO, "g"))?;
    holds!(heard[0].2 != 0 && heard[0].2 == heard[1].2)
}

fn of_another_process(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "")?;
    let watcher = watch("d")?;
    p.elsewhere(|| {
        works!(rustix::io::write(works!(edit("d/f"))?, b"x"))?;
        p.file("d/g", "")
    })?;
    let heard = heard(&watcher)?;
    holds!(heard.iter().any(|(kind, name, _)| *kind == ReadFlags::MODIFY && name == "f"))?;
    holds!(heard.iter().any(|(kind, name, _)| *kind == ReadFlags::CREATE && name == "g"))
}

/// A watched file that loses its last name says so once nobody has it open.
fn of_removal(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    let (of_file, of_dir) = (watch("f")?, watch("d")?);
    let file = works!(open("f", O::RDONLY))?;
    works!(fs::unlink("f"))?;
    same!(kinds(&of_file, "")?, ReadFlags::OPEN | ReadFlags::ATTRIB)?;
    drop(file);
    holds!(kinds(&of_file, "")?.contains(ReadFlags::DELETE_SELF | ReadFlags::IGNORED))?;
    works!(fs::rmdir("d"))?;
    holds!(kinds(&of_dir, "")?.contains(ReadFlags::DELETE_SELF | ReadFlags::IGNORED))
}

fn of_a_missing_name(p: &Place) -> Outcome {
    p.file("f", "")?;
    let watcher = works!(inotify::init(CreateFlags::CLOEXEC))?;
    fails!(inotify::add_watch(&watcher, "missing", WatchFlags::MODIFY), NOENT)?;
    fails!(inotify::add_watch(&watcher, "f", WatchFlags::ONLYDIR), NOTDIR | INVAL)?;
    fails!(inotify::add_watch(&watcher, "f", WatchFlags::ONLYDIR | WatchFlags::MODIFY), NOTDIR)
}
