//! The update log's file.
//!
//! An entry is written with one write(2) before anything is done that it speaks of. `sync` makes it
//! durable, and the entries after that say up to which byte the log is that, and up to which the
//! data are of which it speaks. A new generation is the same log in less; the index has what its
//! first `noted` entries did.

mod format;
mod older;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use segue_core::host::log::Entry;

use self::format::{FILE_HEADER, behind, encode, header, is_unfinished, parse, parts, version};
pub(crate) use self::format::{FoundLog, Position, REMEDY, SHORT_LOG};
use super::durable::{sync_data, sync_name};
use crate::error::MountError;

/// Room for entries that stays from one append to the next: for those of most files.
const BUFFER_MAX: usize = 128 << 10;

/// An open log.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: File,
    path: PathBuf,
    incarnation: u32,
    generation: u64,
    len: u64,
    /// Entries in the file.
    count: u64,
    /// The bytes of those that were appended last.
    buffer: Vec<u8>,
    /// Bytes of those that were appended last, and how many they are.
    last: (u64, u64),
    /// Entries that were appended, and how many of them are durable.
    appended: u64,
    synced: u64,
    /// Bytes of the file that are durable, and up to where the data are.
    durable: u64,
    data: u64,
    /// Up to where an entry says that.
    marked: u64,
    /// How often the file was replaced by another.
    rewrites: u64,
    /// Bytes it had then.
    rewritten: u64,
    /// A sync failed. Asked again, the disk would say that all is well, having dropped what it
    /// could not write: only a new file is durable.
    doubted: bool,
    /// It gets no more changes: the cache directory is being left in order.
    is_final: bool,
}

/// Puts a file with these entries in the place of the log at `path`. Returns it, and its length.
/// Its name is not durable.
fn write_anew(
    path: &Path,
    incarnation: u32,
    begins: Position,
    entries: &[Entry],
) -> io::Result<(File, u64)> {
    let mut bytes = header(incarnation, begins);
    for entry in entries {
        encode(&mut bytes, entry, 0, 0)?;
    }
    let new = path.with_extension("new");
    let mut file = File::options().create(true).write(true).truncate(true).open(&new)?;
    file.write_all(&bytes)?;
    sync_data(&file)?;
    fs::rename(&new, path)?;
    Ok((file, bytes.len() as u64))
}

/// The same log in this version.
fn renewed(path: &Path, incarnation: u32, found: &FoundLog) -> io::Result<(File, u64)> {
    let begins = Position { generation: found.generation, entries: found.noted as u64 };
    let renewed = write_anew(path, incarnation, begins, &found.entries)?;
    sync_name(path)?;
    Ok(renewed)
}

/// A sync under way.
#[derive(Debug)]
pub(crate) struct Syncing {
    file: File,
    through: u64,
    len: u64,
    rewrites: u64,
}

impl Syncing {
    /// Waits for the disk, outside the log's lock. [`LogFile::synced`] has to hear how it ended.
    pub(crate) fn wait(&self) -> io::Result<()> {
        sync_data(&self.file)
    }
}

/// Where the data stood that a sync covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataMark {
    len: u64,
    rewrites: u64,
}

impl LogFile {
    /// Opens or makes the log at `path` and reads what is in it. If the host was `restarted`
    /// since, what was not synced may be there in part.
    pub(crate) fn open(
        path: PathBuf,
        incarnation: u32,
        restarted: bool,
    ) -> Result<(LogFile, FoundLog), MountError> {
        let damaged = |reason: String| MountError::state(&path, reason);
        let mut file = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| damaged(error.to_string()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| damaged(error.to_string()))?;
        let (found, len) = if is_unfinished(&bytes) {
            file.set_len(0)
                .and_then(|()| file.seek(SeekFrom::Start(0)))
                .and_then(|_| file.write_all(&header(incarnation, Position::default())))
                .and_then(|()| file.sync_all())
                .and_then(|()| sync_name(&path))
                .map_err(|error| damaged(error.to_string()))?;
            (FoundLog::default(), FILE_HEADER as u64)
        } else {
            let remedy =
                if parts(&bytes).is_none() { format!("; {REMEDY}") } else { String::new() };
            parse(&bytes, incarnation, restarted).map_err(|why| damaged(why + &remedy))?
        };
        // What an earlier process wrote and did not sync is relied on from here on.
        file.set_len(len)
            .and_then(|()| file.seek(SeekFrom::Start(len)))
            .and_then(|_| file.sync_all())
            .map_err(|error| damaged(error.to_string()))?;
        let (file, len) = if found.is_older() {
            renewed(&path, incarnation, &found).map_err(|error| damaged(error.to_string()))?
        } else {
            (file, len)
        };
        let log = LogFile {
            file,
            path,
            incarnation,
            generation: found.generation,
            len,
            count: found.entries.len() as u64,
            buffer: Vec::new(),
            last: (0, 0),
            appended: 0,
            synced: 0,
            durable: len,
            data: 0,
            marked: len,
            rewrites: 0,
            rewritten: 0,
            doubted: false,
            is_final: false,
        };
        Ok((log, found))
    }

    /// Reads the log at `path` and changes nothing. Of one that is damaged it gives what is good,
    /// and says what is not. One that is missing has nothing.
    pub(crate) fn read(path: &Path) -> Result<(FoundLog, Option<String>), MountError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(|error| MountError::state(path, error))?,
        };
        if is_unfinished(&bytes) {
            return Ok((FoundLog::default(), None));
        }
        let incarnation = bytes.get(12..).and_then(|rest| rest.first_chunk::<4>());
        let incarnation = incarnation.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let damage = parse(&bytes, incarnation, false).err().map(|why| format!("update.log {why}"));
        let Ok((mut found, end)) = parse(&bytes, incarnation, true) else {
            let entries = behind(&bytes, version(&bytes)).collect();
            return Ok((FoundLog { entries, ..FoundLog::default() }, damage));
        };
        if damage.is_some() {
            let rest = usize::try_from(end).ok().and_then(|end| bytes.get(end..));
            found.entries.extend(behind(rest.unwrap_or_default(), found.version));
        }
        Ok((found, damage))
    }

    /// All that it says.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        let found = LogFile::read(&self.path).map_err(io::Error::other)?;
        match found {
            (found, None) => Ok(found.entries),
            (_, Some(damage)) => Err(io::Error::other(damage)),
        }
    }

    /// Cuts off what stands behind `entries`, with which it begins.
    pub(crate) fn cut(&mut self, entries: &[Entry]) -> io::Result<()> {
        let (mut len, mut bytes) = (FILE_HEADER as u64, Vec::new());
        for entry in entries {
            bytes.clear();
            encode(&mut bytes, entry, 0, 0)?;
            len += bytes.len() as u64;
        }
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len))?;
        self.file.sync_all()?;
        self.len = len;
        self.durable = len;
        self.count = entries.len() as u64;
        Ok(())
    }

    /// Adds an entry. If this fails, the log is as before.
    pub(crate) fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.append_all(std::slice::from_ref(entry))
    }

    /// Adds entries, at one go. If this fails, the log is as before.
    pub(crate) fn append_all(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_MAX);
        for entry in entries {
            encode(&mut self.buffer, entry, self.durable, self.data)?;
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::Start(self.len))?;
            return Err(error);
        }
        let count = entries.len() as u64;
        self.last = (self.buffer.len() as u64, count);
        self.len += self.last.0;
        self.appended += count;
        self.count += count;
        Ok(())
    }

    /// Takes out again what was appended last: it did not happen.
    pub(crate) fn take_back(&mut self) -> io::Result<()> {
        let (bytes, count) = std::mem::take(&mut self.last);
        let len = self.len - bytes;
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len))?;
        self.len = len;
        self.durable = self.durable.min(len);
        self.count -= count;
        Ok(())
    }

    /// The place behind the last entry.
    pub(crate) fn position(&self) -> Position {
        Position { generation: self.generation, entries: self.count }
    }

    /// The place up to which data are durable that are synced from now on.
    pub(crate) fn data_mark(&self) -> DataMark {
        DataMark { len: self.len, rewrites: self.rewrites }
    }

    /// All data up to there are durable: an entry says so, which the next sync makes durable.
    pub(crate) fn data_synced(&mut self, mark: DataMark) -> io::Result<()> {
        if mark.rewrites != self.rewrites || mark.len <= self.marked {
            return Ok(());
        }
        self.data = self.data.max(mark.len);
        let is_last = mark.len == self.len;
        self.append(&Entry::Synced)?;
        self.marked = if is_last { self.len } else { mark.len };
        Ok(())
    }

    /// Begins a sync of all entries so far, if some are not durable. They count as such when
    /// [`LogFile::synced`] says so, and not before: who asks meanwhile has to wait.
    pub(crate) fn begin_sync(&self) -> io::Result<Option<Syncing>> {
        self.check_trusted()?;
        if !self.needs_sync() {
            return Ok(None);
        }
        let (through, len, rewrites) = (self.appended, self.len, self.rewrites);
        self.file.try_clone().map(|file| Some(Syncing { file, through, len, rewrites }))
    }

    /// A sync has ended so. Whoever asked for it: once one has failed only [`LogFile::rewrite`]
    /// makes the log durable.
    pub(crate) fn synced(&mut self, sync: &Syncing, ended: io::Result<()>) -> io::Result<()> {
        let is_this_file = sync.rewrites == self.rewrites;
        self.doubted |= is_this_file && ended.is_err();
        ended?;
        if is_this_file {
            // Of two syncs at once the disk tells one that it failed.
            self.check_trusted()?;
        }
        self.synced = self.synced.max(sync.through);
        if is_this_file {
            self.durable = self.durable.max(sync.len);
        }
        Ok(())
    }

    /// Closes the log to further changes: they would alter data that were reported as durable.
    pub(crate) fn finish(&mut self) {
        self.is_final = true;
    }

    /// True if no change may be logged any more.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    fn check_trusted(&self) -> io::Result<()> {
        if self.doubted { Err(io::Error::other("an earlier sync failed")) } else { Ok(()) }
    }

    /// True if something is not durable yet.
    pub(crate) fn needs_sync(&self) -> bool {
        self.doubted || self.synced < self.appended
    }

    /// Bytes in the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// True if `bytes` were added since it was written anew, and as much as it had then: so that
    /// a long log is not written again and again.
    pub(crate) fn is_worth_rewriting(&self, bytes: u64) -> bool {
        self.len - self.rewritten >= bytes.max(self.rewritten)
    }

    /// Replaces all entries by `entries`, which say the same in less. The index has what all of
    /// them did, durably, and all data are durable.
    pub(crate) fn rewrite(&mut self, entries: &[Entry]) -> io::Result<()> {
        let count = entries.len() as u64;
        let begins = Position { generation: self.generation + 1, entries: count };
        let (file, len) = write_anew(&self.path, self.incarnation, begins, entries)?;
        // Whoever opens the log from here on finds this one, whatever the disk says of its name.
        self.file = file;
        self.generation = begins.generation;
        self.len = len;
        self.rewritten = self.len;
        self.count = count;
        self.last = (0, 0);
        self.data = self.len;
        self.marked = self.len;
        self.synced = self.appended;
        self.durable = self.len;
        self.rewrites += 1;
        // A loss of power may bring back the old one, which has none of what comes now.
        let named = sync_name(&self.path);
        self.doubted = named.is_err();
        named
    }
}

#[cfg(test)]
mod tests;
