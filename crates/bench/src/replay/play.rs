//! Plays a trace in a directory, with the calls that a program would make.
//!
//! Each application is a thread that does one access after the other. It begins when the trace has
//! it begin, and after an access it thinks for as long as it did in the trace: who waits for a file
//! is late from then on, as a person would be. (The paper does not say what its own did. At the
//! rates that are asked about, waiting takes several times what thinking does.)
//!
//! What is in the files is noise, of each run and each write another. What is read is compared
//! with what is to be there.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::trace::{self, Access, Act, Trace};
use crate::workload::content::noise;
use crate::workload::expect;
use segue_bed::{Doing, Error, Result, Rng};

/// What a program reads or writes at once.
const PIECE_BYTES: usize = 64 << 10;

/// A trace with the contents of its files.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) trace: Trace,
    /// Of each another content.
    pub(super) run: u32,
}

/// From the start, in seconds; none where nothing of the kind was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ends {
    /// When the last read returned.
    pub(super) read: Option<f64>,
    /// When the last write did.
    pub(super) write: Option<f64>,
    /// When the server had it.
    pub(super) drained: f64,
}

impl Play {
    /// Writes what is to be in `root` before.
    pub(super) fn seed(&self, root: &Path) -> Result<()> {
        for application in 0..self.trace.applications.len() {
            let dir = dir(root, application);
            fs::create_dir(&dir).doing(format!("make {}", dir.display()))?;
        }
        for (number, file) in self.trace.files.iter().enumerate() {
            let Some(bytes) = file.bytes else { continue };
            let path = path(root, number, file);
            let bytes = noise(&mut self.rng(number, false), length(bytes));
            fs::write(&path, bytes).doing(format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// Does everything in `root`, and has `drain` called once nobody writes any more: others may
    /// still read.
    pub(super) fn play(&self, root: &Path, drain: impl FnOnce() -> Result<()>) -> Result<Ends> {
        let start = Instant::now();
        thread::scope(|scope| {
            let (writers, over) = mpsc::channel();
            let mut applications = Vec::new();
            for accesses in &self.trace.applications {
                let writer = writers.clone();
                let application = move || self.application(root, accesses, start, writer);
                applications.push(scope.spawn(application));
            }
            drop(writers);
            // Ends when the last of them has let go of its own.
            over.iter().for_each(drop);
            let drained = drain().map(|()| start.elapsed().as_secs_f64());
            let mut ends = Ends::default();
            for application in applications {
                let panicked = |_| Err(Error::Wrong("an application panicked".into()));
                let Ends { read, write, .. } = application.join().unwrap_or_else(panicked)?;
                ends.read = later(ends.read, read);
                ends.write = later(ends.write, write);
            }
            Ok(Ends { drained: drained?, ..ends })
        })
    }

    /// Lets go of `writer` once it writes no more.
    fn application(
        &self,
        root: &Path,
        accesses: &[Access],
        start: Instant,
        writer: Sender<()>,
    ) -> Result<Ends> {
        let writes = accesses.iter().rposition(|access| matches!(access.act, Act::Write { .. }));
        let mut writer = Some(writer).filter(|_| writes.is_some());
        let mut ends = Ends::default();
        let mut before = (start, Duration::ZERO);
        for (number, access) in accesses.iter().enumerate() {
            let (ended, at) = before;
            let thinks = access.at.saturating_sub(at);
            thread::sleep(thinks.saturating_sub(ended.elapsed()));
            self.act(root, access)?;
            before = (Instant::now(), access.at);
            let now = Some(start.elapsed().as_secs_f64());
            match access.act {
                Act::Read { .. } => ends.read = now,
                Act::Write { .. } => ends.write = now,
            }
            if writes == Some(number) {
                writer = None;
            }
        }
        drop(writer);
        Ok(ends)
    }

    fn act(&self, root: &Path, access: &Access) -> Result<()> {
        let number = access.file;
        let unknown = || Error::Wrong(format!("the trace has no file {number}"));
        let file = self.trace.files.get(number).ok_or_else(unknown)?;
        let path = path(root, number, file);
        match access.act {
            Act::Read { bytes } => self.read(&path, number, bytes),
            Act::Write { from, bytes } => self.write(&path, number, file.bytes, from, bytes),
        }
    }

    fn read(&self, path: &Path, number: usize, bytes: u64) -> Result<()> {
        let what = || format!("read {}", path.display());
        let mut file = File::open(path).doing(what())?;
        let mut data = vec![0; length(bytes)];
        for piece in data.chunks_mut(PIECE_BYTES) {
            file.read_exact(piece).doing(what())?;
        }
        let expected = noise(&mut self.rng(number, false), data.len());
        expect(data == expected, || format!("{} is not what was written", path.display()))
    }

    fn write(
        &self,
        path: &Path,
        number: usize,
        before: Option<u64>,
        from: u64,
        bytes: u64,
    ) -> Result<()> {
        let what = || format!("write {}", path.display());
        let file = OpenOptions::new().write(true).create_new(before.is_none()).open(path);
        let file = file.doing(what())?;
        let mut at = from;
        for piece in noise(&mut self.rng(number, true), length(bytes)).chunks(PIECE_BYTES) {
            file.write_all_at(piece, at).doing(what())?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The content of a file before the trace, or that of its write.
    fn rng(&self, file: usize, is_written: bool) -> Rng {
        Rng::new(u64::from(self.run) << 32 | (file as u64) << 1 | u64::from(is_written))
    }
}

fn later(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

fn dir(root: &Path, application: usize) -> PathBuf {
    root.join(format!("a{application:02}"))
}

fn path(root: &Path, number: usize, file: &trace::File) -> PathBuf {
    dir(root, file.application).join(format!("f{number:04}"))
}

/// Of a file of a trace, which has at most 4 MB.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn access(at_ms: u64, file: usize, act: Act) -> Access {
        Access { at: Duration::from_millis(at_ms), file, act }
    }

    fn play() -> Play {
        let file = |application, bytes| trace::File { application, bytes };
        let files = vec![file(0, Some(100_000)), file(1, None), file(1, Some(10))];
        let applications = vec![
            vec![
                access(0, 0, Act::Read { bytes: 70_000 }),
                access(1, 0, Act::Write { from: 100_000, bytes: 5 }),
            ],
            vec![
                access(0, 1, Act::Write { from: 0, bytes: 80_000 }),
                access(1, 2, Act::Write { from: 0, bytes: 4 }),
                access(200, 2, Act::Read { bytes: 0 }),
            ],
        ];
        Play { trace: Trace { files, applications }, run: 1 }
    }

    #[test]
    fn what_is_written_is_there_and_waited_for_while_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let play = play();
        play.seed(dir.path()).unwrap();
        let grown = dir.path().join("a00/f0000");
        let is_drained = AtomicBool::new(false);
        let drain = || {
            is_drained.store(true, Ordering::Relaxed);
            assert_eq!(fs::metadata(&grown).unwrap().len(), 100_005);
            Ok(())
        };
        let ends = play.play(dir.path(), drain).unwrap();
        assert!(is_drained.load(Ordering::Relaxed));
        // The last read thinks for 199 ms first, and nobody writes any more.
        assert!(ends.write.unwrap() <= ends.drained && ends.read.unwrap() >= 0.199, "{ends:?}");
        let new = fs::read(dir.path().join("a01/f0001")).unwrap();
        assert_eq!(new, noise(&mut play.rng(1, true), 80_000));
        let over = fs::read(dir.path().join("a01/f0002")).unwrap();
        assert_eq!(over.len(), 10);
        assert_eq!(over[..4], noise(&mut play.rng(2, true), 4));
        assert_eq!(over[4..], noise(&mut play.rng(2, false), 10)[4..]);
    }

    #[test]
    fn a_file_system_that_answers_wrongly_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let play = play();
        play.seed(dir.path()).unwrap();
        fs::write(dir.path().join("a00/f0000"), vec![0; 100_000]).unwrap();
        let error = play.play(dir.path(), || Ok(())).unwrap_err();
        assert!(error.to_string().contains("f0000 is not what was written"), "{error}");
    }
}
