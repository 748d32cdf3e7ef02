//! After a restart: what an earlier process of this cache knew, logged and did not send. The mount
//! shows it as that process did, and sends it when it can.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use segue_core::host::cache::FileNote;
use segue_core::host::log::{Entry, Redo, left_of, redo};
use segue_core::host::{Host, needs};
use segue_core::nouns::{Caller, Ino, Time};

use super::notes::known;
use super::verify::lacking;
use super::wall_millis;
use crate::error::MountError;
use crate::state::{
    Containers, FoundLog, Index, LogFile, Numbers, Preserved, SHORT_LOG, replace_file,
};

/// What a cache directory holds.
pub(super) struct Left<'a> {
    pub(super) log: &'a mut LogFile,
    pub(super) numbers: &'a mut Numbers,
    pub(super) index: &'a Index,
    pub(super) containers: &'a Containers,
    pub(super) preserved: &'a Preserved,
    /// The host went down under it.
    pub(super) lost_power: bool,
    /// Where is kept what cannot be sent.
    pub(super) refused_dir: &'a Path,
}

/// Changes that a process had begun when it died.
#[derive(Default)]
struct Undone {
    /// Of which files.
    ranges: Vec<(Ino, Range<u64>)>,
    /// What is in the log, if its last entry is the only one of them.
    log: Vec<Entry>,
    /// Which entries of the log they are.
    entries: Vec<usize>,
}

impl Left<'_> {
    /// How many entries of the log, which has so `many`, the index knows of. One that knows of more
    /// than there are is of no use. The log was durable before the index, so it was damaged or
    /// replaced, and the user is told.
    fn noted(&self, found: &FoundLog, many: usize) -> Result<usize, MountError> {
        let Some(position) = known("index.db", self.index.position()).flatten() else {
            return self.forget_index();
        };
        if let Some(noted) = found.noted_at(position, many) {
            return Ok(noted);
        }
        self.report_short(many)?;
        self.forget_index()
    }

    fn forget_index(&self) -> Result<usize, MountError> {
        self.index.clear().map_err(|error| MountError::state("index.db", error))?;
        Ok(0)
    }

    /// Takes in what was left.
    pub(super) fn recover(
        mut self,
        core: &mut Host,
        mut found: FoundLog,
    ) -> Result<(), MountError> {
        let failed = |error: std::io::Error| MountError::state("cache directory", error);
        core.reserve_seqs(self.numbers.reserve_seqs().map_err(failed)?);
        let undone = self.verify(&mut found).map_err(failed)?;
        let noted = self.noted(&found, found.entries.len() + undone.entries.len())?;
        let noted = left_of(noted, &undone.entries);
        let needs = needs(&found.entries, noted);
        let mut files: BTreeMap<Ino, FileNote> = BTreeMap::new();
        for ino in needs.inodes {
            if let Some(note) = known("index.db", self.index.node(ino)).flatten() {
                core.tree.install_note(note);
            }
            let file = known("index.db", self.index.file(ino)).flatten();
            let file = file.filter(|note| self.containers.exists((ino, note.container)));
            files.extend(file.map(|note| (ino, note)));
        }
        for (directory, name) in needs.names {
            if let Some(ino) = known("index.db", self.index.name(directory, &name)).flatten() {
                core.tree.install_noted_name(directory, name, ino);
            }
        }
        let mut unsealed = core.recover(found.entries.clone(), noted, &files, Time::default());
        // Before anything is written again: what was evicted would be made anew, with holes.
        let is_there = |ino, id| self.containers.exists((ino, id));
        core.check_data(self.lost_power, is_there);
        for lost in core.drop_lost(&mut unsealed, &found.entries, is_there) {
            let (ino, bytes) = (lost.ino, lost.ranges.iter().map(|range| range.end - range.start));
            let bytes: u64 = bytes.sum();
            tracing::error!(
                "inode {ino}: the last {bytes} bytes written are lost: its container is missing"
            );
        }
        self.redo(core, &found.entries).map_err(failed)?;
        if self.lost_power {
            self.cut(core).map_err(failed)?;
        }
        if !undone.ranges.is_empty() {
            self.forget(core, undone).map_err(failed)?;
        }
        for data in unsealed {
            if core.seqs_left() == 0 {
                core.reserve_seqs(self.numbers.reserve_seqs().map_err(failed)?);
            }
            let entry = core.draft_leftover(data, Caller::nobody(), self.lost_power);
            self.log.append(&entry).map_err(failed)?;
            core.admit(entry, Time::default());
        }
        self.preserved.retain(&core.all_preserved()).map_err(failed)?;
        // Not before: what was not synced must be known to be in doubt until it has been looked at.
        if core.is_in_doubt() { Ok(()) } else { self.numbers.clear_power_loss().map_err(failed) }
    }

    /// Takes out of the log what the containers do not have. After a loss of power that is all from
    /// the first such entry on: what came later may rely on it. A process that died had at most
    /// begun its last change, and told nobody that it was done.
    fn verify(&mut self, found: &mut FoundLog) -> std::io::Result<Undone> {
        let mut undone = Undone::default();
        let mut left: Vec<usize> = (0..found.entries.len()).collect();
        while let Some(&first) =
            lacking(&found.entries, found.durable, self.containers, self.preserved)?.first()
        {
            if self.lost_power {
                self.report_lost(&found.entries, first)?;
                self.log.cut(&found.entries, first)?;
                found.entries.truncate(first);
                continue;
            }
            // It stands last, unless the disk is damaged: the log is locked until a change is done.
            if first + 1 == found.entries.len() && undone.ranges.is_empty() {
                undone.log = found.entries.clone();
            }
            undone.entries.push(left.remove(first));
            if let Entry::Written { place, offset, data } = found.entries.remove(first) {
                undone.ranges.push((place.ino, offset..offset.saturating_add(data.len())));
            }
        }
        Ok(undone)
    }

    /// Has the index say what was undone, and then the log nothing of it any more. In this order:
    /// whoever dies in between undoes it again, and who comes later knows of it from the index.
    fn forget(&mut self, core: &mut Host, undone: Undone) -> std::io::Result<()> {
        let no_index = |error| std::io::Error::other(format!("index.db: {error}"));
        for (ino, range) in &undone.ranges {
            self.undo(core, *ino, range.clone())?;
        }
        self.containers.sync_all()?;
        if let Some(sync) = self.log.begin_sync()? {
            self.log.synced(&sync, sync.wait())?;
        }
        let mut position = self.log.position();
        position.entries -= u64::from(!undone.log.is_empty());
        let notes = core.take_notes();
        let gone = self.index.save(&notes, position, wall_millis()).map_err(no_index)?;
        core.noted(&notes, true);
        self.index.sync().map_err(no_index)?;
        for (ino, container) in gone {
            self.containers.remove((ino, container))?;
        }
        match undone.log.len().checked_sub(1) {
            Some(keep) => self.log.cut(&undone.log, keep),
            None => Ok(()),
        }
    }

    /// A change of `range` was begun, and is not done.
    fn undo(&self, core: &mut Host, ino: Ino, range: Range<u64>) -> std::io::Result<()> {
        let size = core.tree.peek(ino).map(|attr| attr.size);
        let Some(file) = core.files.get_mut(&ino) else {
            // Nothing of it is this host's only.
            let forgotten = self.index.forget_file(ino);
            return forgotten.map_err(|error| std::io::Error::other(format!("index.db: {error}")));
        };
        file.spoiled(range);
        let key = (ino, file.container());
        match size {
            Some(size) if self.containers.exists(key) => self.containers.open(key)?.cut(size),
            _ => Ok(()),
        }
    }

    /// Keeps word, for the user, of a log that has lost changes.
    fn report_short(&self, many: usize) -> Result<(), MountError> {
        tracing::error!("update.log has {many} entries and the index knows more: {SHORT_LOG}");
        let kept = serde_json::json!({ "path": "", "why": SHORT_LOG, "entries": many });
        let failed = |error| MountError::state(self.refused_dir, error);
        let kept = serde_json::to_vec_pretty(&kept).map_err(|error| failed(error.into()))?;
        replace_file(&self.refused_dir.join("update-log.json"), &kept).map_err(failed)
    }

    /// Keeps word of what a loss of power took, for the user.
    fn report_lost(&self, entries: &[Entry], first: usize) -> std::io::Result<()> {
        let lost: Vec<&Entry> = entries.iter().skip(first).collect();
        let changes: Vec<_> = lost.iter().filter_map(|entry| entry.change()).collect();
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

    /// Cuts off what containers have behind the ends of their files.
    fn cut(&self, core: &Host) -> std::io::Result<()> {
        for (key, size) in core.ends() {
            if self.containers.exists(key) {
                self.containers.open(key)?.cut(size)?;
            }
        }
        Ok(())
    }

    /// Writes what the log has itself into the containers again. Whatever of the rest was not
    /// synced is with the next sync.
    fn redo(&self, core: &Host, entries: &[Entry]) -> std::io::Result<()> {
        for place in entries.iter().filter_map(Entry::place) {
            if core.needs_container(place.ino, place.container) {
                self.containers.mark_unsynced((place.ino, place.container), false);
            }
        }
        for (key, step) in redo(entries) {
            if core.needs_container(key.0, key.1) {
                let container = self.containers.open(key)?;
                match step {
                    Redo::Bytes(offset, bytes) => container.write(bytes, offset)?,
                    Redo::Zeros(range) => container.zero(range.start, range.end - range.start)?,
                    Redo::Cut(size) => container.cut(size)?,
                }
            }
        }
        Ok(())
    }
}
