//! The cache directory of an earlier process, for the recovery in core.

use std::io;
use std::ops::Range;
use std::path::Path;

use segue_core::host::cache::{FileNote, NodeNote};
use segue_core::host::log::{Entry, Redo};
use segue_core::host::{Host, LeftDisk, LeftLog, Notes};
use segue_core::nouns::{ContainerId, Ino, Name, RangeSet, Time};

use crate::clock::wall_millis;
use crate::disk::files::{
    Containers, FoundLog, Index, Key, LogFile, Numbers, Preserved, SHORT_LOG, replace_file,
};
use crate::disk::notes::known;
use crate::disk::verify::{is_preserved, is_there};
use crate::error::MountError;

/// What a cache directory holds.
pub(crate) struct Left<'a> {
    pub(crate) log: &'a mut LogFile,
    pub(crate) found: FoundLog,
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) index: &'a Index,
    pub(crate) containers: &'a Containers,
    pub(crate) preserved: &'a Preserved,
    /// The host went down under it.
    pub(crate) lost_power: bool,
    /// Where is kept what cannot be sent.
    pub(crate) refused_dir: &'a Path,
}

fn no_index(error: rusqlite::Error) -> io::Error {
    io::Error::other(format!("index.db: {error}"))
}

impl Left<'_> {
    /// Runs the recovery.
    pub(crate) fn recover(mut self, core: &mut Host) -> Result<(), MountError> {
        let entries = std::mem::take(&mut self.found.entries);
        let first_unsynced = self.found.durable;
        let log = LeftLog { entries, first_unsynced, lost_power: self.lost_power };
        let recovered = core.recover(&mut self, log, Time::default());
        for lost in recovered.map_err(|error| MountError::state("cache directory", error))? {
            let bytes: u64 = lost.ranges.iter().map(|range| range.end - range.start).sum();
            tracing::error!(
                "inode {}: the last {bytes} bytes written are lost: its container is missing",
                lost.ino
            );
        }
        Ok(())
    }

    /// Keeps word, for the user, of a log that has lost changes.
    fn report_short(&self, many: usize) -> io::Result<()> {
        tracing::error!("update.log has {many} entries and the index knows more: {SHORT_LOG}");
        let kept = serde_json::json!({ "path": "", "why": SHORT_LOG, "entries": many });
        let kept = serde_json::to_vec_pretty(&kept)?;
        replace_file(&self.refused_dir.join("update-log.json"), &kept)
    }
}

impl LeftDisk for Left<'_> {
    type Error = io::Error;

    fn noted(&mut self, many: usize) -> io::Result<usize> {
        if let Some(position) = known("index.db", self.index.position()).flatten() {
            if let Some(noted) = self.found.noted_at(position, many) {
                return Ok(noted);
            }
            self.report_short(many)?;
        }
        self.index.clear().map_err(no_index)?;
        Ok(0)
    }

    fn node(&self, ino: Ino) -> Option<NodeNote> {
        known("index.db", self.index.node(ino)).flatten()
    }

    fn name(&self, directory: Ino, name: &Name) -> Option<Option<Ino>> {
        known("index.db", self.index.name(directory, name)).flatten()
    }

    fn file(&self, ino: Ino) -> Option<FileNote> {
        known("index.db", self.index.file(ino)).flatten()
    }

    fn has_container(&self, ino: Ino, container: ContainerId) -> bool {
        self.containers.exists((ino, container))
    }

    fn has_written(
        &self,
        key: Key,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> io::Result<bool> {
        is_there(self.containers, key, range.clone(), sums, later)
    }

    fn has_preserved(
        &self,
        seq: u64,
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> io::Result<bool> {
        is_preserved(self.preserved, seq, range, sums, later)
    }

    fn reserve_seqs(&mut self, first: u64) -> io::Result<u64> {
        self.numbers.reserve_seqs(first)
    }

    fn mark_unsynced(&mut self, ino: Ino, container: ContainerId) {
        self.containers.mark_unsynced((ino, container), false);
    }

    fn redo(&mut self, key: Key, step: Redo<'_>) -> io::Result<()> {
        let container = self.containers.open(key)?;
        match step {
            Redo::Bytes(offset, bytes) => container.write(bytes, offset),
            Redo::Zeros(range) => container.zero(range.start, range.end - range.start),
            Redo::Cut(size) => container.cut(size),
        }
    }

    fn forget_file(&mut self, ino: Ino) -> io::Result<()> {
        self.index.forget_file(ino).map_err(no_index)
    }

    fn note(&mut self, notes: &Notes, entries: usize) -> io::Result<()> {
        self.containers.sync_all()?;
        if let Some(sync) = self.log.begin_sync()? {
            self.log.synced(&sync, sync.wait())?;
        }
        let mut position = self.log.position();
        position.entries = entries as u64;
        let gone = self.index.save(notes, position, wall_millis()).map_err(no_index)?;
        self.index.sync().map_err(no_index)?;
        gone.into_iter().try_for_each(|key| self.containers.remove(key).map(drop))
    }

    fn cut_log(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.log.cut(entries)
    }

    fn report_lost(&mut self, lost: &[Entry]) -> io::Result<()> {
        let changes: Vec<_> = lost.iter().filter_map(Entry::change).collect();
        tracing::error!(
            "{} log entries with {} changes from the last second before the crash of this host \
             cannot be sent: data of the first of them are not on the disk",
            lost.len(),
            changes.len()
        );
        let name = self.refused_dir.join(format!("power-loss-{}.json", lost.len()));
        let kept = serde_json::json!({
            "path": "",
            "why": "this host crashed before their data were on its disk",
            "entries": lost.len(),
            "changes": changes,
        });
        replace_file(&name, &serde_json::to_vec_pretty(&kept)?)
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.log.append(entry)
    }

    fn preserved(&self) -> io::Result<Vec<u64>> {
        self.preserved.changes()
    }

    fn end_doubt(&mut self) -> io::Result<()> {
        self.numbers.clear_power_loss()
    }
}
