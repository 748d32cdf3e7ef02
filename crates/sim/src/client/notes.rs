//! What is noted of the cache on the disk, as `segue-client`'s mount/notes.rs does.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::host::Needs;
use segue_core::host::action::Load;
use segue_core::host::cache::FileNote;
use segue_core::host::log::{Change, Logged};
use segue_core::nouns::{Ino, Name, touched};

use super::Mount;
use crate::plan::Bug;

impl Mount {
    /// Notes what is known now. What the log says up to here is durable before.
    pub(crate) fn note(&mut self) -> bool {
        if self.bug != Some(Bug::ClientNotesUnsynced) {
            self.sync_disk();
        }
        self.note_through(self.kept.log.len())
    }

    /// Notes what is known, which is what the first `entries` of the log did. False if the disk
    /// refuses it.
    pub(super) fn note_through(&mut self, entries: usize) -> bool {
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
        let position = (self.kept.generation, entries);
        let index = self.kept.save_index();
        index.position = position;
        for key in index.save(&notes, self.now) {
            self.kept.containers.remove(&key);
        }
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

    /// Gets into memory what the index has of this; what it has of data is returned.
    pub(super) fn load_needed(&mut self, needs: &Needs) -> BTreeMap<Ino, FileNote> {
        needs.inodes.iter().for_each(|ino| self.load_node(*ino));
        for key in &needs.names {
            if let Some(meaning) = self.kept.index.name(key) {
                self.core.tree.install_noted_name(key.0, key.1.clone(), meaning);
            }
        }
        let file = |ino: &Ino| Some((*ino, self.noted_file(*ino)?));
        needs.inodes.iter().filter_map(file).collect()
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
