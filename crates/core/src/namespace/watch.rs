//! What became of names and files below a directory by some commits, for who watches it: as they are
//! now, each once, whatever happened in between.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::{self, Changed, Span};
use super::{Fault, MetaSnapshot, rows};
use crate::types::{Ino, Kind, Name, VolumeId};
use crate::wire::{Became, WATCHED_MAX, Watched, WatchedAll};

/// Deeper is no directory that a path can name.
const DEPTH_MAX: usize = 4096;

/// Finds paths below one directory, from one snapshot.
struct Paths<'a, S> {
    snapshot: &'a mut S,
    volume: VolumeId,
    top: Ino,
    /// Of directories.
    known: BTreeMap<Ino, Option<Vec<Name>>>,
}

/// What became of what commits of `span` changed below `top`: of as many of them as there is room for in
/// an answer, or others than are told of, if that is not known.
pub fn since<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    top: Ino,
    span: Span,
) -> Result<WatchedAll, Fault<S::Error>> {
    let (mut all, mut count) = (Changed::default(), 0);
    let last = changes::since(snapshot, volume, span, |changed| {
        let names = changed.names.values().map(BTreeSet::len).sum::<usize>();
        count += changed.inodes.len() + names;
        all.and(changed);
        count < WATCHED_MAX
    })?;
    let Some(commit) = last else {
        return Ok(WatchedAll { commit: span.through, changes: Vec::new(), others: true });
    };
    let changes = watched(snapshot, volume, top, &all)?;
    Ok(WatchedAll { commit, changes, others: false })
}

/// What became of what `changed` names, below `top`.
pub(super) fn watched<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    top: Ino,
    changed: &Changed,
) -> Result<Vec<Watched>, Fault<S::Error>> {
    let mut paths = Paths { snapshot, volume, top, known: BTreeMap::new() };
    let (mut all, mut appeared) = (Vec::new(), BTreeSet::new());
    for (directory, names) in &changed.names {
        let Some(path) = paths.of_directory(*directory)? else { continue };
        for bytes in names {
            let Ok(name) = Name::new(bytes.clone()) else { continue };
            let ino = rows::dentry(paths.snapshot, volume, *directory, bytes)?;
            let row = match ino {
                Some(ino) => rows::inode(paths.snapshot, volume, ino)?,
                None => None,
            };
            let became = match row {
                Some(row) => {
                    appeared.insert(row.attr.ino);
                    Became::Named(row.attr)
                }
                None => Became::Gone,
            };
            let path = path.iter().cloned().chain([name]).collect();
            all.push(Watched { path, became });
        }
    }
    for ino in &changed.inodes {
        // A directory changes with its names.
        if appeared.contains(ino) || changed.names.contains_key(ino) {
            continue;
        }
        let Some(row) = rows::inode(paths.snapshot, volume, *ino)? else { continue };
        if let Some(path) = paths.of(&row)? {
            all.push(Watched { path, became: Became::Changed(row.attr) });
        }
    }
    Ok(all)
}

impl<S: MetaSnapshot> Paths<'_, S> {
    /// Where an inode is, by the name that it got last: others it may have are not known.
    fn of(&mut self, row: &rows::InodeRow) -> Result<Option<Vec<Name>>, Fault<S::Error>> {
        if row.attr.kind == Kind::Directory {
            return self.of_directory(row.attr.ino);
        }
        let named = rows::dentry(self.snapshot, self.volume, row.parent, &row.name)?;
        let (Ok(name), true) = (Name::new(row.name.clone()), named == Some(row.attr.ino)) else {
            return Ok(None);
        };
        let path = self.of_directory(row.parent)?;
        Ok(path.map(|path| path.into_iter().chain([name]).collect()))
    }

    /// Where a directory is; `None` if that is not below the top.
    fn of_directory(&mut self, directory: Ino) -> Result<Option<Vec<Name>>, Fault<S::Error>> {
        let (mut names, mut at) = (Vec::new(), directory);
        while at != self.top {
            if let Some(known) = self.known.get(&at) {
                let Some(known) = known.clone() else { return Ok(None) };
                names.extend(known.into_iter().rev());
                break;
            }
            let row = rows::inode(self.snapshot, self.volume, at)?;
            let step = row.filter(|row| at != Ino::ROOT && row.attr.nlink > 0);
            let name = step.as_ref().and_then(|row| Name::new(row.name.clone()).ok());
            let (Some(row), Some(name), true) = (step, name, names.len() < DEPTH_MAX) else {
                self.known.insert(directory, None);
                return Ok(None);
            };
            names.push(name);
            at = row.parent;
        }
        names.reverse();
        self.known.insert(directory, Some(names.clone()));
        Ok(Some(names))
    }
}
