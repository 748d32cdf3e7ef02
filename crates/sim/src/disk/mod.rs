//! A host's disk: its [content](Kept), and the actions of the host that change it.
//!
//! An action that fails did not happen. Each promise to an application is noted beside the disk
//! when the log has it, for the checks of acknowledged calls.

mod container;
mod data;
mod edit;
mod failing;
mod index;
mod kept;
mod maps;
mod notes;
mod recover;
mod space;

use std::collections::BTreeSet;

use segue_core::host::Host;
use segue_core::host::action::{Action, Done, Load, Preserve, Undone};
use segue_core::host::call::KeptAs;
use segue_core::host::log::{Change, Entry, Instead, Logged, Replaced};
use segue_core::nouns::{ClientId, Ino, InoGrant};
use segue_core::refusal::Refusal;

use crate::check::acknowledged::Acknowledged;
use crate::plan::Bug;
use crate::{Summary, Violation};
pub(crate) use container::bytes_of;
pub(crate) use container::place;
pub(crate) use edit::TornWrite;
pub(crate) use failing::Failing;
pub(crate) use index::NotedInodes;
pub(crate) use kept::{Kept, Key, Lost};

/// Low, so that blocks of numbers end in a run.
const INO_BLOCK: u64 = 8;

/// How an action ended.
pub(crate) type Carried = Result<Done, Undone>;

/// The disk under a process, with the process's own counters of it.
pub(crate) struct HostDisk {
    pub(crate) kept: Kept,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) failing: Failing,
    /// Fates of changes.
    pub(crate) counts: Summary,
    /// How many entries there were behind the last that changed what applications see.
    pub(crate) changed_at: u64,
    /// Changes of containers.
    pub(crate) edits: u64,
    /// Files that got fetched bytes since that was looked at.
    pub(crate) filled: BTreeSet<Ino>,
    /// Files that a write changed in part before it failed.
    pub(crate) half_written: BTreeSet<Ino>,
    /// Below this all is settled, durably.
    acked_below: u64,
    /// How many of the granted inode numbers are used.
    inos_used: u64,
    bug: Option<Bug>,
}

impl HostDisk {
    /// The disk that an earlier process left.
    pub(crate) fn new(kept: Kept, acknowledged: Acknowledged, bug: Option<Bug>) -> HostDisk {
        HostDisk {
            changed_at: kept.end,
            inos_used: kept.inos_reserved,
            kept,
            acknowledged,
            failing: Failing::default(),
            counts: Summary::default(),
            edits: 0,
            filled: BTreeSet::new(),
            half_written: BTreeSet::new(),
            acked_below: 0,
            bug,
        }
    }

    /// Carries out an action that is the disk's. Returns how it ended, if a call waits for that.
    pub(crate) fn carry_out(
        &mut self,
        core: &mut Host,
        action: Action,
        bytes: &[u8],
    ) -> Result<Option<Carried>, Violation> {
        Ok(Some(match action {
            Action::Reserve(_, first) => Ok(Done::Reserved(self.kept.reserve_seqs(first))),
            Action::Load(_, load) => self.carry_out_load(core, &load).map_err(Undone::from),
            Action::Number(_) => self.take_next_ino().map(Done::Number).map_err(Undone::from),
            Action::SyncDisk(_) => {
                if self.bug != Some(Bug::ClientSendsRewritten) {
                    self.sync(core);
                }
                Ok(Done::Carried)
            }
            Action::Preserve(_, part) => self.preserve(&part),
            Action::Append(_, entry) => self.append_entry(core, *entry)?,
            Action::AppendAll(_, entries) => self.append_settled(entries)?,
            Action::Keep(_, kept) => {
                match kept.to {
                    KeptAs::Copy { duplicate, .. } => {
                        self.kept.keep_duplicate(duplicate.map(|duplicate| *duplicate));
                        self.counts.conflicts += 1;
                    }
                    // No simulated disk loses what it had durably, or what a process left.
                    KeptAs::Refused(refusal @ Refusal::Lost) => {
                        return Err(Violation(format!("change {}: {refusal}", kept.logged.seq)));
                    }
                    KeptAs::Refused(_) => self.counts.refused += 1,
                }
                Ok(Done::Carried)
            }
            Action::Write(_, edit) => self.write_edit(core, &edit, bytes)?,
            Action::Undo(_, undo) => self.undo(*undo)?,
            Action::ForgetNotes(_, lost) => {
                self.forget_notes(core, &lost);
                Ok(Done::Carried)
            }
            // Nothing is full unless it refuses a write.
            Action::Evict(_) => Ok(Done::Carried),
            _ => return Ok(None),
        }))
    }

    fn carry_out_load(&self, core: &mut Host, load: &Load) -> Result<Done, Refusal> {
        match load {
            Load::FreeSpace => Ok(Done::Free(u64::MAX)),
            Load::Data(ino) => self.load(core, *ino).map(|()| Done::Carried),
            load => Ok(Done::Noted(self.kept.index.noted_for(load))),
        }
    }

    /// Appends an entry to the log.
    fn append(&mut self, entry: Entry) -> Result<(), Violation> {
        if self.kept.loses_power {
            self.acknowledged.remember(self.kept.end);
        }
        self.acknowledged.logged(&entry)?;
        let is_skipped = |logged: &Logged| logged.seq.is_multiple_of(7);
        if self.bug == Some(Bug::ClientSkipsLog) && entry.change().is_some_and(is_skipped) {
            return Ok(());
        }
        let is_seal = matches!(&entry, Entry::Change(Logged { change: Change::Data(_), .. }));
        let is_more = |replaced: &Replaced| matches!(replaced.by, Instead::More { .. });
        let is_end = match &entry {
            Entry::Settled { .. } => true,
            Entry::Replaced(replaced) => is_more(replaced),
            _ => is_seal,
        };
        self.kept.append(entry);
        // A seal that follows a write, and what the server says, change nothing that is seen.
        if !is_end {
            self.changed_at = self.kept.end;
        }
        Ok(())
    }

    fn append_entry(&mut self, core: &mut Host, entry: Entry) -> Result<Carried, Violation> {
        if let Err(refusal) = self.failing.try_write() {
            return Ok(Err(refusal.into()));
        }
        let changed_at = self.changed_at;
        self.append(entry.clone())?;
        if let Entry::Replaced(replaced) = &entry
            && let Some(ino) = self.count_replaced(replaced)
        {
            // The kernel lets go of files that have no name.
            core.let_go(ino);
            self.changed_at = changed_at;
        }
        Ok(Ok(Done::Carried))
    }

    /// Counts changes that became others. Returns the file, if it is seen as before.
    fn count_replaced(&mut self, Replaced { seqs, by }: &Replaced) -> Option<Ino> {
        let count = seqs.len() as u64;
        match by {
            Instead::More { .. } => self.counts.amended += 1,
            Instead::Unsealed => self.counts.taken_back += 1,
            Instead::Nothing(ino) => {
                self.counts.cancelled += count;
                return Some(*ino);
            }
            Instead::Rename(ino, _) => {
                self.counts.superseded += count;
                return Some(*ino);
            }
        }
        None
    }

    fn append_settled(&mut self, entries: Vec<Entry>) -> Result<Carried, Violation> {
        if let Err(refusal) = self.failing.try_write() {
            return Ok(Err(refusal.into()));
        }
        if self.bug != Some(Bug::ClientForgetsSettled) {
            entries.into_iter().try_for_each(|entry| self.append(entry))?;
        }
        Ok(Ok(Done::Carried))
    }

    fn preserve(&mut self, part: &Preserve) -> Carried {
        self.failing.try_read()?;
        let bytes = bytes_of(self.kept.bytes_of_container((part.ino, part.container)), &part.range);
        let kept = self.kept.preserved.entry(part.seq).or_default();
        kept.keep((part.range.start..).zip(bytes));
        Ok(Done::Preserved(Vec::new()))
    }

    /// The log is durable as it is now, and so are the data of which it speaks.
    pub(crate) fn sync(&mut self, core: &Host) {
        self.kept.sync_disk();
        self.acked_below = core.acked_below();
        self.acknowledged.forget_past();
    }

    /// Below this the server may forget outcomes.
    pub(crate) fn acked_below(&self, core: &Host) -> u64 {
        match self.bug {
            Some(Bug::ClientAcksUnsynced) => core.acked_below(),
            _ => self.acked_below,
        }
    }

    fn take_next_ino(&mut self) -> Result<Ino, Refusal> {
        let mut index = self.inos_used;
        self.inos_used += 1;
        if self.inos_used > self.kept.inos_reserved {
            self.kept.inos_reserved = self.inos_used + INO_BLOCK;
        }
        for grant in &self.kept.grants {
            if index < grant.count {
                return Ok(Ino(grant.first + index));
            }
            index -= grant.count;
        }
        Err(Refusal::Unreachable)
    }

    /// The cache is another client from now on, which has used none of its numbers.
    pub(crate) fn become_client(&mut self, client: ClientId, grants: &[InoGrant]) {
        self.kept.become_client(client, grants);
        self.inos_used = 0;
    }
}
