//! The inodes and names that a record changes.

use super::{Ino, Name, Record, RenameMode};

/// What a record touches: inodes, and names in directories.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Inodes whose attributes it changes.
    pub inodes: Vec<Ino>,
    /// Names it makes, removes or changes.
    pub names: Vec<(Ino, Name)>,
}

/// What `record` touches.
pub fn touched(record: &Record) -> Touched {
    let inodes = match record {
        Record::Create { parent, ino, .. }
        | Record::Link { parent, ino, .. }
        | Record::Unlink { parent, ino, .. }
        | Record::Rmdir { parent, ino, .. } => vec![*parent, *ino],
        Record::Rename { from_parent, ino, to_parent, mode, .. } => {
            let mut inodes = vec![*from_parent, *ino];
            if to_parent != from_parent {
                inodes.push(*to_parent);
            }
            match mode {
                RenameMode::Replace(Some(other)) | RenameMode::Exchange(other) => {
                    inodes.push(*other);
                }
                RenameMode::Replace(None) | RenameMode::NoReplace => {}
            }
            inodes
        }
        Record::SetAttr { ino, .. }
        | Record::SetXattr { ino, .. }
        | Record::RemoveXattr { ino, .. }
        | Record::Clone { ino, .. }
        | Record::Release { ino } => vec![*ino],
        Record::Store(store) => vec![store.ino],
    };
    let names = names_after(record).into_iter().map(|(key, _)| key).collect();
    Touched { inodes, names }
}

/// Names that `record` changes, and what each means afterwards: an inode, or nothing.
pub(crate) fn names_after(record: &Record) -> Vec<((Ino, Name), Option<Ino>)> {
    match record {
        Record::Create { parent, name, ino, .. } | Record::Link { parent, name, ino } => {
            vec![((*parent, name.clone()), Some(*ino))]
        }
        Record::Unlink { parent, name, .. } | Record::Rmdir { parent, name, .. } => {
            vec![((*parent, name.clone()), None)]
        }
        Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, .. } => {
            let left = match mode {
                RenameMode::Exchange(other) => Some(*other),
                RenameMode::Replace(_) | RenameMode::NoReplace => None,
            };
            let from = (*from_parent, from_name.clone());
            vec![(from, left), ((*to_parent, to_name.clone()), Some(*ino))]
        }
        Record::SetAttr { .. }
        | Record::SetXattr { .. }
        | Record::RemoveXattr { .. }
        | Record::Clone { .. }
        | Record::Release { .. }
        | Record::Store(_) => Vec::new(),
    }
}
