//! The index follows the host's state, and the log is rewritten without that.

use std::collections::BTreeSet;

use segue_core::host::Host;
use segue_core::host::action::{Load, LostNotes};
use segue_core::host::log::{Change, Logged};
use segue_core::nouns::{Ino, Name, Time, touched};

use super::HostDisk;
use crate::plan::Bug;

/// The log is rewritten when it has more entries than this.
const LOG_ENTRIES: usize = 20;

/// Names that changes in the queue touch.
fn pending_names(core: &Host) -> BTreeSet<(Ino, Name)> {
    let record = |logged: &Logged| match &logged.change {
        Change::Record(record) => touched(record).names,
        Change::Data(_) => Vec::new(),
    };
    core.queue().iter().flat_map(|(logged, _)| record(logged)).collect()
}

impl HostDisk {
    /// Brings the index up to date. The log so far is durable before. False if the disk refuses it.
    pub(crate) fn note(&mut self, core: &mut Host, now: Time) -> bool {
        if self.bug != Some(Bug::ClientNotesUnsynced) {
            self.sync(core);
        }
        let mut notes = core.take_notes();
        if self.failing.try_write().is_err() {
            core.noted(&notes, false);
            return false;
        }
        match self.bug {
            Some(Bug::ClientForgetsNames) => notes.tree.names.clear(),
            Some(Bug::ClientForgetsPendingNames) => {
                let pending = pending_names(core);
                notes.tree.names.retain(|(key, _)| !pending.contains(key));
            }
            _ => {}
        }
        self.kept.note(&notes, self.kept.log.len(), now);
        core.noted(&notes, true);
        true
    }

    /// Removes files that nobody needs any more.
    pub(crate) fn sweep(&mut self, core: &mut Host) {
        core.take_scrap().into_iter().for_each(|scrap| self.kept.remove(scrap));
    }

    /// Takes in the note of an inode.
    pub(crate) fn load_node(&self, core: &mut Host, ino: Ino) {
        let load = Load::Node(ino);
        let noted = self.kept.index.noted_for(&load);
        core.install_noted(load, noted);
    }

    /// Forgets notes of versions that the server has forgotten.
    pub(super) fn forget_notes(&mut self, core: &Host, lost: &LostNotes) {
        let kept = |ino| lost.kept.contains(&ino);
        let gone = self.kept.save_index().forget_lost(&lost.history, kept);
        self.kept.sync_index();
        for (ino, container) in gone {
            if !core.needs_container(ino, container) {
                self.kept.containers.remove(&(ino, container));
            }
        }
    }

    /// Rewrites a long log.
    pub(crate) fn tidy_log(&mut self, core: &mut Host, now: Time) {
        if self.kept.log.len() > LOG_ENTRIES {
            self.rewrite_log(core, now);
        }
    }

    /// Writes the log anew, in less. The index has all of it before, and all data are durable.
    pub(crate) fn rewrite_log(&mut self, core: &mut Host, now: Time) {
        let entries = core.log_entries();
        if !self.note(core, now) || self.failing.try_write().is_err() {
            return;
        }
        if !entries.is_empty() {
            self.kept.sync_containers();
        }
        self.kept.sync_index();
        self.kept.rewrite(entries);
        self.acked_below = core.acked_below();
    }
}
