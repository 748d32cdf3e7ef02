//! What is noted of the cache on the disk, as `segue-client`'s mount/notes.rs does.

use std::collections::BTreeSet;

use segue_core::host::action::Load;
use segue_core::host::cache::FileNote;
use segue_core::host::log::{Change, Logged};
use segue_core::nouns::{Ino, Name, touched};

use super::Mount;
use crate::plan::Bug;

impl Mount {
    /// Notes what is known now. What the log says up to here is durable before. False if the disk
    /// refuses it.
    pub(crate) fn note(&mut self) -> bool {
        if self.bug != Some(Bug::ClientNotesUnsynced) {
            self.sync_disk();
        }
        let mut notes = self.core.take_notes();
        if self.failing.try_write().is_err() {
            self.core.noted(&notes, false);
            return false;
        }
        match self.bug {
            Some(Bug::ClientForgetsNames) => notes.tree.names.clear(),
            Some(Bug::ClientForgetsPendingNames) => {
                let pending = self.pending_names();
                notes.tree.names.retain(|(key, _)| !pending.contains(key));
            }
            _ => {}
        }
        self.kept.note(&notes, self.kept.log.len(), self.now);
        self.core.noted(&notes, true);
        true
    }

    /// Names that changes in the queue touch.
    fn pending_names(&self) -> BTreeSet<(Ino, Name)> {
        let record = |logged: &Logged| match &logged.change {
            Change::Record(record) => touched(record).names,
            Change::Data(_) => Vec::new(),
        };
        self.core.queue.iter().flat_map(|(logged, _)| record(logged)).collect()
    }

    /// Removes what nobody needs any more.
    pub(crate) fn sweep(&mut self) {
        for scrap in self.core.take_scrap() {
            self.remove(scrap);
        }
    }

    pub(super) fn noted_file(&self, ino: Ino) -> Option<FileNote> {
        let noted = self.kept.index.file(ino).cloned();
        let believes = self.bug == Some(Bug::ClientBelievesEvicted);
        noted.filter(|note| believes || self.kept.containers.contains_key(&(ino, note.container)))
    }

    pub(super) fn load_node(&mut self, ino: Ino) {
        let load = Load::Node(ino);
        let noted = self.kept.index.noted_for(&load);
        self.core.install_noted(load, noted);
    }
}
