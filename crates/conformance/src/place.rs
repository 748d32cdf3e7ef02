//! A case's own directory: what it makes there before the call it is about.

use std::path::{Path, PathBuf};

use rustix::fs::{self, Gid, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::thread;
use rustix::time::{ClockId, clock_gettime};

use crate::call::{create, mkdir, mkfifo, open};
use crate::expect::{Failure, Outcome};
use crate::process::Process;

/// Users that no system has; their groups have the same numbers.
pub(crate) const ALICE: u32 = 64_001;
pub(crate) const BOB: u32 = 64_002;
/// A group that is nobody's own.
pub(crate) const STAFF: u32 = 64_010;

/// The fresh directory of a case, which is the working directory while it runs.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// The directory at `path`, which the process has entered.
    pub(crate) fn new(path: &Path) -> Place {
        Place { path: path.to_owned() }
    }

    /// The directory from the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file with this content and mode 0644.
    #[track_caller]
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Outcome {
        let made = create(name, 0o644).and_then(|file| write_all(&file, content.as_ref()));
        done(made, "making the file", name)
    }

    /// Makes a directory with mode 0755.
    #[track_caller]
    pub(crate) fn dir(&self, name: &str) -> Outcome {
        done(mkdir(name, 0o755), "making the directory", name)
    }

    /// Makes a directory in which everybody may do everything.
    #[track_caller]
    pub(crate) fn open_dir(&self, name: &str) -> Outcome {
        self.dir(name)?;
        Ok(crate::call::chmod(name, 0o777)?)
    }

    #[track_caller]
    pub(crate) fn fifo(&self, name: &str) -> Outcome {
        done(mkfifo(name, 0o644), "making the fifo", name)
    }

    #[track_caller]
    pub(crate) fn symlink(&self, target: &str, name: &str) -> Outcome {
        done(fs::symlink(target, name), "making the symbolic link", name)
    }

    /// What a file holds, by a descriptor of its own.
    #[track_caller]
    pub(crate) fn content(&self, name: &str) -> Result<Vec<u8>, Failure> {
        done(std::fs::read(name), "reading", name)
    }

    /// The file must hold this.
    #[track_caller]
    pub(crate) fn holds(&self, name: &str, wanted: impl AsRef<[u8]>) -> Outcome {
        crate::expect::equal(self.content(name)?, name, wanted.as_ref().to_owned())
    }

    /// What is there by this name, not following a link.
    #[track_caller]
    pub(crate) fn stat(&self, name: &str) -> Result<Stat, Failure> {
        done(fs::lstat(name), "lstat of", name)
    }

    /// The permission bits, with set-id and sticky.
    #[track_caller]
    pub(crate) fn mode(&self, name: &str) -> Result<u32, Failure> {
        Ok(self.stat(name)?.st_mode & 0o7777)
    }

    /// Nothing is there by this name.
    #[track_caller]
    pub(crate) fn gone(&self, name: &str) -> Outcome {
        crate::expect::refused(fs::lstat(name), &format!("lstat({name:?})"), &[Errno::NOENT])
    }

    /// What a directory lists, sorted, without `.` and `..`.
    #[track_caller]
    pub(crate) fn names(&self, dir: &str) -> Result<Vec<String>, Failure> {
        let listed = std::fs::read_dir(dir).and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        });
        let mut names: Vec<String> = done(listed, "listing", dir)?;
        names.sort();
        Ok(names)
    }

    /// Does `work` as the user `id`, who is in the group of the same number and in `groups`.
    ///
    /// Only for this thread, which is the only one of the case. Saved ids stay the superuser's:
    /// they are the way back.
    #[track_caller]
    pub(crate) fn as_user(
        &self,
        id: u32,
        groups: &[u32],
        work: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        let groups: Vec<Gid> = groups.iter().map(|&id| Gid::from_raw(id)).collect();
        thread::set_thread_groups(&groups)?;
        thread::set_thread_res_gid(group, group, Gid::ROOT)?;
        thread::set_thread_res_uid(user, user, Uid::ROOT)?;
        let outcome = work();
        thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
        thread::set_thread_groups(&[])?;
        outcome
    }

    /// Does `work` in another process, and waits for its outcome.
    pub(crate) fn elsewhere(&self, work: impl FnOnce() -> Outcome) -> Outcome {
        Process::start(work)?.join()
    }

    /// Returns when every time that is stamped from now on is later than every one so far.
    ///
    /// The kernel stamps with a clock that moves only some hundred times a second.
    pub(crate) fn tick(&self) {
        let moment = |clock| {
            let time = clock_gettime(clock);
            (time.tv_sec, time.tv_nsec)
        };
        let now = moment(ClockId::Realtime);
        while moment(ClockId::RealtimeCoarse) <= now {
            std::thread::yield_now();
        }
    }
}

/// Says of a failure what was being done, to what.
#[track_caller]
fn done<T, E>(result: Result<T, E>, doing: &str, name: &str) -> Result<T, Failure>
where
    Failure: From<E>,
{
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(Failure(format!("{doing} {name:?}: {}", Failure::from(error)))),
    }
}

/// Writes all of `bytes` where the descriptor stands.
pub(crate) fn write_all(file: impl std::os::fd::AsFd, bytes: &[u8]) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Opens for reading and writing what is there.
pub(crate) fn edit(name: &str) -> Result<std::os::fd::OwnedFd, Errno> {
    open(name, OFlags::RDWR)
}
