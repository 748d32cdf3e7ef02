//! Quotas in the model: who stands in whose tree, by walking it.

use super::*;

impl Model {
    /// The names of an inode, with their directories.
    fn parents(&self, ino: u64) -> Vec<(u64, &String)> {
        let mut found = Vec::new();
        for (parent, node) in &self.0 {
            if let Content::Directory(entries) = &node.content {
                let names = entries.iter().filter(|(_, at)| **at == ino);
                found.extend(names.map(|(name, _)| (*parent, name)));
            }
        }
        found
    }

    /// The quota in whose tree a directory stands, or that it has.
    pub(in super::super) fn quota_of(&self, directory: u64) -> Option<u64> {
        match self.1.contains_key(&directory) {
            true => Some(directory),
            false => self.around(directory),
        }
    }

    /// The quota around an inode.
    pub(super) fn around(&self, ino: u64) -> Option<u64> {
        self.parents(ino).first().and_then(|(parent, _)| self.quota_of(*parent))
    }

    pub(super) fn crosses(&self, ino: u64, to: u64) -> bool {
        let moves = !self.is_directory(ino) && self.names(ino) == 1;
        !moves && self.around(ino) != self.quota_of(to)
    }

    /// How many inodes stand in the tree of a quota.
    pub(in super::super) fn within(&self, quota: u64) -> u64 {
        let stands = |ino: &&u64| **ino == quota || self.around(**ino) == Some(quota);
        self.0.keys().filter(stands).count() as u64
    }

    /// The directory of that number, counted around, and its path.
    pub(in super::super) fn some_directory(&self, index: usize) -> (u64, Vec<Name>) {
        let directories: Vec<_> = self.0.keys().filter(|ino| self.is_directory(**ino)).collect();
        let chosen = *directories[index % directories.len()];
        let (mut path, mut at) = (Vec::new(), chosen);
        while let Some((parent, name)) = self.parents(at).first().copied() {
            path.insert(0, name_of(name));
            at = parent;
        }
        (chosen, path)
    }

    /// Whether a directory's quota may be set, or taken away: it stands in no other's tree. For a
    /// new one nothing below it does either, and no file below it has a name elsewhere.
    pub(in super::super) fn may_limit(&self, directory: u64, is_limit: bool) -> bool {
        let is_new = is_limit && !self.1.contains_key(&directory);
        let is_below = |ino: u64| self.below(ino, directory);
        let is_own = |ino: &u64| match self.is_directory(*ino) {
            true => *ino == directory || !self.1.contains_key(ino),
            false => self.parents(*ino).into_iter().all(|(parent, _)| is_below(parent)),
        };
        let below = self.0.keys().filter(|ino| is_below(**ino));
        let is_free = directory != 1 && self.around(directory).is_none();
        is_free && (!is_new || below.into_iter().all(is_own))
    }
}
