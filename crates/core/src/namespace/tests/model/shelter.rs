//! Where copies stand that have no other place: directories that the server makes.

use super::super::*;
use super::{Content, Model, Node};

impl Model {
    /// Learns of the directory of a copy, if the server has made it just now.
    pub(super) fn shelter(&mut self, txn: &mut MapTxn, ino: Ino) {
        if self.0.contains_key(&ino.0) {
            return;
        }
        let row = rows::inode(txn, VOLUME, ino).unwrap().unwrap();
        let content = Content::Directory(BTreeMap::new());
        self.0.insert(ino.0, Node { content, mode: row.attr.mode, xattrs: BTreeMap::new() });
        self.shelter(txn, row.parent);
        let name = String::from_utf8(row.name).unwrap();
        self.directory(row.parent).unwrap().insert(name, ino.0);
    }

    /// Has what a conflict with `ino` in `parent` makes, under any names.
    pub(super) fn counts_conflict(&mut self, parent: Ino, ino: Ino) {
        if let Ok(entries) = self.directory(parent) {
            entries.insert("its conflict's name".to_owned(), ino.0);
            return;
        }
        let mut within = 1;
        for (step, name) in [".segue-conflicts", "tin"].into_iter().enumerate() {
            within = self.directory_called(within, name).unwrap_or_else(|| {
                let made = u64::MAX - step as u64;
                let content = Content::Directory(BTreeMap::new());
                self.0.insert(made, Node { content, mode: 0, xattrs: BTreeMap::new() });
                self.directory(Ino(within)).unwrap().insert(format!("the new {name}"), made);
                made
            });
        }
        self.directory(Ino(within)).unwrap().insert("its conflict's name".to_owned(), ino.0);
    }

    /// The first directory of `name`, `name-2`.., before which no name is free.
    fn directory_called(&mut self, within: u64, name: &str) -> Option<u64> {
        for number in 1.. {
            let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            let found = *self.directory(Ino(within)).unwrap().get(&name)?;
            if self.is_directory(found) {
                return Some(found);
            }
        }
        None
    }
}
