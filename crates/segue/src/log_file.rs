//! The log file of a daemon, bounded while it runs: a full one is kept as `.log.1`, once.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Longest log, and longest older one.
const BYTES_MAX: u64 = 16 << 20;

/// A log that is written to.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    longest: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    len: u64,
}

impl LogFile {
    /// Appends to the log at `path`; a full one is renamed first.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        LogFile::open_bounded(path, BYTES_MAX)
    }

    /// The log that this process has as its stderr.
    pub(crate) fn of_stderr() -> io::Result<LogFile> {
        let path = std::fs::read_link("/proc/self/fd/2")?;
        match is_same(&File::open(&path)?, io::stderr()) {
            true => LogFile::open(&path),
            false => Err(io::Error::other("stderr is a file that was removed")),
        }
    }

    fn open_bounded(path: &Path, longest: u64) -> io::Result<LogFile> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        if std::fs::metadata(path).is_ok_and(|meta| meta.len() > longest) {
            std::fs::rename(path, older(path))?;
        }
        let open = Mutex::new(Open::append(path)?);
        Ok(LogFile { path: path.to_owned(), longest, open })
    }

    /// Another handle to the file, and its length.
    pub(crate) fn handle(&self) -> io::Result<(File, u64)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((open.file.try_clone()?, open.len))
    }

    /// Begins a new file if this one is full; the process's stderr goes there, too.
    fn bound(&self, open: &mut Open) -> io::Result<()> {
        if open.len <= self.longest {
            return Ok(());
        }
        // Whatever fails below is not tried again for each line.
        open.len = 0;
        let is_stderr = is_same(&open.file, io::stderr());
        std::fs::rename(&self.path, older(&self.path))?;
        *open = Open::append(&self.path)?;
        if is_stderr {
            rustix::stdio::dup2_stderr(&open.file)?;
        }
        Ok(())
    }
}

impl Open {
    fn append(path: &Path) -> io::Result<Open> {
        let file =
            OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        let len = file.metadata()?.len();
        Ok(Open { file, len })
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

fn is_same(one: &File, other: impl std::os::fd::AsFd) -> bool {
    let id = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    match (rustix::fs::fstat(one), rustix::fs::fstat(other)) {
        (Ok(one), Ok(other)) => id(one) == id(other),
        _ => false,
    }
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.bound(&mut open)?;
        let written = open.file.write(bytes)?;
        open.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let log = LogFile::open_bounded(&path, 100).unwrap();
        let line = |n: u32| format!("line {n:02} of twenty bytes\n");
        for n in 0..50 {
            (&log).write_all(line(n).as_bytes()).unwrap();
        }
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        let (now, before) = (text(&path), text(&older(&path)));
        assert!(now.ends_with(&line(49)) && now.len() < 130, "{now}");
        assert!(before.len() > 100 && before.len() < 130, "{before}");
        let first = now.lines().next().unwrap().to_owned();
        let last = before.lines().last().unwrap();
        assert!(last < first.as_str(), "no line is lost: {last}, {first}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        // One that is full is not appended to by the next process.
        std::fs::write(&path, [b'x'; 101]).unwrap();
        assert_eq!(LogFile::open_bounded(&path, 100).unwrap().handle().unwrap().1, 0);
        assert_eq!(text(&older(&path)).len(), 101);
    }

    /// Somebody has removed the directory of logs.
    #[test]
    fn a_log_that_cannot_be_renamed_is_written_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/a.log");
        let log = LogFile::open_bounded(&path, 10).unwrap();
        (&log).write_all(b"more than ten bytes").unwrap();
        std::fs::remove_dir_all(dir.path().join("logs")).unwrap();
        assert!((&log).write_all(b"lost").is_err());
        (&log).write_all(b"goes on").unwrap();
    }
}
