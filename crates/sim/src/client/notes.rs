//! What is noted of the cache on the disk, as `segue-client`'s mount/notes.rs does.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::host::action::{Load, Noted as Found};
use segue_core::host::cache::{Candidate, FileNote, NodeNote};
use segue_core::host::log::{Change, Logged};
use segue_core::host::{Needs, Notes};
use segue_core::nouns::{ContainerId, Ino, Name, Time, Version, touched};
use segue_core::wire::History;

use super::disk::Key;
use super::{Kept, Mount};
use crate::plan::Bug;

/// The index on the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// What the first so many entries of that generation of the log did is in it.
    pub(super) position: (u64, usize),
    nodes: BTreeMap<Ino, NodeNote>,
    names: BTreeMap<(Ino, Name), Option<Ino>>,
    files: BTreeMap<Ino, FileNote>,
    /// When each of these was used last.
    used: BTreeMap<Ino, Time>,
    /// The latest version that was ever noted.
    latest: Option<Version>,
}

/// What an index has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// Inodes.
    pub(crate) nodes: BTreeSet<Ino>,
    /// Directories, with all their names.
    pub(crate) listed: BTreeSet<Ino>,
}

impl Index {
    pub(super) fn noted(&self) -> Noted {
        let listed = self.nodes.iter().filter(|(_, note)| note.is_listed);
        let listed = listed.map(|(ino, _)| *ino).collect();
        Noted { nodes: self.nodes.keys().copied().collect(), listed }
    }

    /// What it has of something.
    pub(super) fn noted_for(&self, load: &Load) -> Found {
        let node = |ino: Ino| self.nodes.get(&ino).cloned();
        match load {
            Load::FreeSpace => Found::default(),
            Load::Node(ino) => {
                Found { nodes: node(*ino).into_iter().collect(), ..Found::default() }
            }
            Load::Name(at) => {
                let meaning = self.names.get(&(at.parent, at.name.clone())).copied();
                let nodes = [Some(at.parent), meaning.flatten()];
                let nodes = nodes.into_iter().flatten().filter_map(node).collect();
                let names = meaning.into_iter().map(|meaning| (at.name.clone(), meaning));
                Found { nodes, names: names.collect() }
            }
            Load::Listing(directory) => {
                let named = self
                    .names
                    .iter()
                    .filter(|((parent, _), ino)| parent == directory && ino.is_some());
                let names: Vec<_> = named.map(|((_, name), ino)| (name.clone(), *ino)).collect();
                let nodes = names.iter().filter_map(|(_, ino)| node((*ino)?));
                Found { nodes: node(*directory).into_iter().chain(nodes).collect(), names }
            }
        }
    }

    /// Files of which it has data.
    pub(super) fn files(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    /// Which container of `ino` it speaks of.
    pub(super) fn container(&self, ino: Ino) -> Option<ContainerId> {
        self.files.get(&ino).map(|file| file.container)
    }

    /// All files of which it has data. The room that they take is not known here.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let used = |ino: &Ino| self.used.get(ino).map_or(0, |at| at.0.as_millis());
        let candidate = |(ino, file): (&Ino, &FileNote)| Candidate {
            ino: *ino,
            container: file.container,
            used: u64::try_from(used(ino)).unwrap_or(u64::MAX),
            bytes: 0,
        };
        self.files.iter().map(candidate).collect()
    }

    /// Forgets which data of these files are here.
    pub(super) fn evict(&mut self, gone: &[Candidate]) {
        let is_it = |ino: &Ino, note: &FileNote| {
            gone.iter().any(|file| file.ino == *ino && file.container == note.container)
        };
        self.files.retain(|ino, note| !is_it(ino, note));
    }

    /// Forgets which data of `ino` are here.
    pub(super) fn forget_file(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    /// Forgets which data are here.
    pub(super) fn clear_files(&mut self) {
        self.files.clear();
    }

    /// Forgets what is of no version of `history`, but for files that are to be `kept`. Returns the
    /// containers that are of no use.
    pub(super) fn forget_lost(
        &mut self,
        history: &History,
        kept: impl Fn(Ino) -> bool,
    ) -> Vec<Key> {
        self.nodes.retain(|_, note| note.is_of(history));
        let nodes = &self.nodes;
        self.names.retain(|(directory, _), _| nodes.contains_key(directory));
        let is_lost = |ino: &Ino, note: &FileNote| !history.has(note.version) && !kept(*ino);
        let lost = self.files.iter().filter(|(ino, note)| is_lost(ino, note));
        let gone: Vec<Key> = lost.map(|(ino, note)| (*ino, note.container)).collect();
        self.files.retain(|ino, note| !is_lost(ino, note));
        let files = self.files.values().map(|note| note.version);
        let left = files.filter(|version| history.has(*version));
        self.latest = self.nodes.values().map(|note| note.attr.latest()).chain(left).max();
        gone
    }

    /// Versions that it has, of which inode and of what. Noted data count only where the attributes
    /// have their version.
    pub(super) fn versions(&self) -> Vec<(Ino, Version, &'static str)> {
        let nodes = self.nodes.iter().flat_map(|(ino, note)| {
            [note.attr.change, note.attr.data_version].map(|version| (*ino, version, "a note"))
        });
        nodes.collect()
    }

    /// Takes notes in. Returns the containers of inodes that are gone.
    fn save(&mut self, notes: &Notes, now: Time) -> Vec<Key> {
        self.latest = self.latest.max(notes.latest());
        let mut gone = Vec::new();
        for (ino, note) in &notes.tree.nodes {
            match note {
                Some(note) => drop(self.nodes.insert(*ino, note.clone())),
                None => {
                    self.nodes.remove(ino);
                    gone.extend(self.files.remove(ino).map(|file| (*ino, file.container)));
                }
            }
        }
        self.names.retain(|(directory, _), _| !notes.tree.relisted.contains(directory));
        for (key, meaning) in &notes.tree.names {
            match meaning {
                Some(ino) => self.names.insert(key.clone(), *ino),
                None => self.names.remove(key),
            };
        }
        self.files.extend(notes.files.iter().cloned());
        let used = notes.files.iter().map(|(ino, _)| ino).chain(&notes.used);
        self.used.extend(used.map(|ino| (*ino, now)));
        gone
    }
}

impl Kept {
    /// The latest version that was noted.
    pub(super) fn latest_noted(&self) -> Option<Version> {
        self.index.latest
    }
}

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
            if let Some(meaning) = self.kept.index.names.get(key) {
                self.core.tree.install_noted_name(key.0, key.1.clone(), *meaning);
            }
        }
        let file = |ino: &Ino| Some((*ino, self.noted_file(*ino)?));
        needs.inodes.iter().filter_map(file).collect()
    }

    pub(super) fn noted_file(&self, ino: Ino) -> Option<FileNote> {
        let noted = self.kept.index.files.get(&ino).cloned();
        let believes = self.bug == Some(Bug::ClientBelievesEvicted);
        noted.filter(|note| believes || self.kept.containers.contains_key(&(ino, note.container)))
    }

    pub(super) fn load_node(&mut self, ino: Ino) {
        let load = Load::Node(ino);
        let noted = self.kept.index.noted_for(&load);
        self.core.install_noted(load, noted);
    }
}
