//! The index of a cache directory.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::host::Notes;
use segue_core::host::action::{Load, Noted};
use segue_core::host::cache::{Candidate, FileNote, NodeNote};
use segue_core::nouns::{ContainerId, Ino, Name, Time, Version};
use segue_core::wire::History;

use super::{Kept, Key};

/// The index on the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// What the first so many entries of that generation of the log did is in it.
    pub(crate) position: (u64, usize),
    nodes: BTreeMap<Ino, NodeNote>,
    names: BTreeMap<(Ino, Name), Option<Ino>>,
    files: BTreeMap<Ino, FileNote>,
    /// When each of these was used last.
    used: BTreeMap<Ino, Time>,
    /// The latest version that was ever noted.
    latest: Option<Version>,
}

/// Inodes and listings of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotedInodes {
    /// Inodes.
    pub(crate) nodes: BTreeSet<Ino>,
    /// Directories, with all their names.
    pub(crate) listed: BTreeSet<Ino>,
}

impl Index {
    pub(crate) fn noted(&self) -> NotedInodes {
        let listed = self.nodes.iter().filter(|(_, note)| note.is_listed);
        let listed = listed.map(|(ino, _)| *ino).collect();
        NotedInodes { nodes: self.nodes.keys().copied().collect(), listed }
    }

    /// Its notes for a load.
    pub(crate) fn noted_for(&self, load: &Load) -> Noted {
        let node = |ino: Ino| self.nodes.get(&ino).cloned();
        match load {
            Load::FreeSpace | Load::Data(_) => Noted::default(),
            Load::Node(ino) => {
                Noted { nodes: node(*ino).into_iter().collect(), ..Noted::default() }
            }
            Load::Name(at) => {
                let meaning = self.names.get(&(at.parent, at.name.clone())).copied();
                let nodes = [Some(at.parent), meaning.flatten()];
                let nodes = nodes.into_iter().flatten().filter_map(node).collect();
                let names = meaning.into_iter().map(|meaning| (at.name.clone(), meaning));
                Noted { nodes, names: names.collect() }
            }
            Load::Listing(directory) => {
                let named = self
                    .names
                    .iter()
                    .filter(|((parent, _), ino)| parent == directory && ino.is_some());
                let names: Vec<_> = named.map(|((_, name), ino)| (name.clone(), *ino)).collect();
                let nodes = names.iter().filter_map(|(_, ino)| node((*ino)?));
                Noted { nodes: node(*directory).into_iter().chain(nodes).collect(), names }
            }
        }
    }

    /// The note of an inode.
    pub(crate) fn node(&self, ino: Ino) -> Option<&NodeNote> {
        self.nodes.get(&ino)
    }

    /// The note of a file's data.
    pub(crate) fn file(&self, ino: Ino) -> Option<&FileNote> {
        self.files.get(&ino)
    }

    /// The note of a name.
    pub(crate) fn name(&self, key: &(Ino, Name)) -> Option<Option<Ino>> {
        self.names.get(key).copied()
    }

    /// Files of which it has data.
    pub(crate) fn files(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    /// Which container of `ino` it speaks of.
    pub(crate) fn container(&self, ino: Ino) -> Option<ContainerId> {
        self.files.get(&ino).map(|file| file.container)
    }

    /// All files of which it has data. The room that they take is not known here.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
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
    pub(crate) fn evict(&mut self, gone: &[Candidate]) {
        let is_it = |ino: &Ino, note: &FileNote| {
            gone.iter().any(|file| file.ino == *ino && file.container == note.container)
        };
        self.files.retain(|ino, note| !is_it(ino, note));
    }

    /// Forgets which data of `ino` are here.
    pub(crate) fn forget_file(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    /// Forgets which data are here.
    pub(crate) fn clear_files(&mut self) {
        self.files.clear();
    }

    /// Forgets what is of no version of `history`, but for files that are to be `kept`. Returns the
    /// containers that are of no use.
    pub(crate) fn forget_lost(
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
    pub(crate) fn versions(&self) -> Vec<(Ino, Version, &'static str)> {
        let nodes = self.nodes.iter().flat_map(|(ino, note)| {
            [note.attr.change, note.attr.data_version].map(|version| (*ino, version, "a note"))
        });
        nodes.collect()
    }

    /// Takes notes in. Returns the containers of inodes that are gone.
    pub(crate) fn save(&mut self, notes: &Notes, now: Time) -> Vec<Key> {
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
    pub(crate) fn latest_noted(&self) -> Option<Version> {
        self.index.latest
    }
}
