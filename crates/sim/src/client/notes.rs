//! What is noted of the cache on the disk, as `segue-client`'s mount/notes.rs does.

use std::collections::BTreeMap;

use segue_core::cache::{FileNote, NodeNote};
use segue_core::client::{Needs, Scrap};
use segue_core::types::{Ino, Name};

use super::Mount;

/// The index on the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// What so many entries of the log did is in it.
    pub(super) noted: usize,
    nodes: BTreeMap<Ino, NodeNote>,
    names: BTreeMap<(Ino, Name), Option<Ino>>,
    files: BTreeMap<Ino, FileNote>,
}

impl Mount {
    /// Notes what is known now.
    pub(super) fn note(&mut self) {
        let notes = self.core.take_notes();
        let index = &mut self.kept.index;
        index.noted = self.kept.log.len();
        for (ino, note) in &notes.tree.nodes {
            match note {
                Some(note) => drop(index.nodes.insert(*ino, note.clone())),
                None => {
                    index.nodes.remove(ino);
                    if let Some(file) = index.files.remove(ino) {
                        self.kept.containers.remove(&(*ino, file.container));
                    }
                }
            }
        }
        index.names.retain(|(directory, _), _| !notes.tree.relisted.contains(directory));
        for (key, meaning) in &notes.tree.names {
            match meaning {
                Some(ino) => index.names.insert(key.clone(), *ino),
                None => index.names.remove(key),
            };
        }
        index.files.extend(notes.files.iter().cloned());
        self.core.noted(&notes, true);
    }

    /// Removes what nobody needs any more.
    pub(super) fn sweep(&mut self) {
        for scrap in self.core.take_scrap() {
            match scrap {
                Scrap::Container(ino, id) => drop(self.kept.containers.remove(&(ino, id))),
                Scrap::Preserved(seq) => drop(self.kept.preserved.remove(&seq)),
            }
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
        self.kept.index.files.get(&ino).cloned()
    }

    pub(super) fn load_node(&mut self, ino: Ino) {
        if let Some(note) = self.kept.index.nodes.get(&ino) {
            self.core.tree.install_note(note.clone());
        }
    }

    pub(super) fn load_name(&mut self, directory: Ino, name: &Name) {
        self.load_node(directory);
        let noted = self.kept.index.names.get(&(directory, name.clone())).copied();
        let meaning = match noted {
            None if self.core.tree.is_listed_on_disk(directory) => Some(None),
            meaning => meaning,
        };
        let Some(meaning) = meaning else { return };
        if let Some(ino) = meaning {
            self.load_node(ino);
        }
        self.core.tree.install_noted_name(directory, name.clone(), meaning);
    }

    pub(super) fn load_listing(&mut self, directory: Ino) {
        self.load_node(directory);
        if !self.core.tree.is_listed_on_disk(directory) {
            return;
        }
        let names = self.kept.index.names.iter();
        let names: Vec<(Name, Ino)> = names
            .filter(|((parent, _), _)| *parent == directory)
            .filter_map(|((_, name), ino)| Some((name.clone(), (*ino)?)))
            .collect();
        for (name, ino) in names {
            self.load_node(ino);
            self.core.tree.install_noted_name(directory, name, Some(ino));
        }
        self.core.tree.install_noted_listing(directory);
    }
}
