//! What became of names and files below a directory by some commits, for who watches it: as they
//! are now, each once, whatever happened in between.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::{self, Changed, Span};
use super::copy_name::original_name;
use super::{Fault, MetaSnapshot, rows};
use crate::nouns::{ClientId, Ino, Kind, Name, VolumeId};
use crate::wire::{Became, WATCHED_MAX, Watched, WatchedAll};

/// Deeper is no directory that a path can name.
const DEPTH_MAX: usize = 4096;
/// Bytes that the paths of directories in one answer have in memory: half of what a message may
/// have. What a commit can change, with paths that people use, takes less.
const PATHS_BYTES: usize = 8 << 20;

/// Finds paths below one directory, from one snapshot.
struct Paths<'a, S> {
    snapshot: &'a mut S,
    volume: VolumeId,
    top: Ino,
    /// Where directories are, by one step; none leads to the top from where there is no step. Not
    /// as paths, of which a chain of directories has as many bytes as the square of its length.
    known: BTreeMap<Ino, Option<(Ino, Name)>>,
    /// Of the paths that were put together.
    bytes: usize,
}

/// What became of what commits of `span` changed below `top`: of as many of them as there is room
/// for in an answer, or others than are told of, if that is not known.
pub fn since<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    top: Ino,
    span: Span,
) -> Result<WatchedAll, Fault<S::Error>> {
    since_of(snapshot, volume, top, span, |changed| changed)
}

/// The same in all of `volume`, of new conflict copies beside files whose data `client` made, and
/// of names of copies that are gone.
pub fn copies_since<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, client): (VolumeId, ClientId),
    span: Span,
) -> Result<WatchedAll, Fault<S::Error>> {
    let copies = |mut changed: Changed| {
        changed.inodes.clear();
        for names in changed.names.values_mut() {
            names.retain(|name| original_name(name).is_some());
        }
        changed.names.retain(|_, names| !names.is_empty());
        changed
    };
    let mut all = since_of(snapshot, volume, Ino::ROOT, span, copies)?;
    retain_copies(snapshot, (volume, client), &mut all.changes)?;
    Ok(all)
}

fn since_of<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    top: Ino,
    span: Span,
    of: impl Fn(Changed) -> Changed,
) -> Result<WatchedAll, Fault<S::Error>> {
    let (mut all, mut count) = (Changed::default(), 0);
    let last = changes::since(snapshot, volume, span, |changed| {
        let changed = of(changed);
        let names = changed.names.values().map(BTreeSet::len).sum::<usize>();
        count += changed.inodes.len() + names;
        all.and(changed);
        count < WATCHED_MAX
    })?;
    let changes = match last {
        Some(_) => watched(snapshot, volume, top, &all)?,
        None => None,
    };
    let (commit, others) = (last.unwrap_or(span.through), changes.is_none());
    Ok(WatchedAll { commit, changes: changes.unwrap_or_default(), others })
}

/// Leaves of `changes` those that `client` is told of as copies.
fn retain_copies<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, client): (VolumeId, ClientId),
    changes: &mut Vec<Watched>,
) -> Result<(), Fault<S::Error>> {
    for change in std::mem::take(changes) {
        let last = change.path.last().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let Some(original) = original_name(&last) else { continue };
        let is_told = match change.became {
            Became::Gone => true,
            Became::Changed(_) => false,
            Became::Named(attr) => is_beside(snapshot, (volume, client), attr.ino, original)?,
        };
        if is_told {
            changes.push(change);
        }
    }
    Ok(())
}

/// True if `client` made the data of the file `name` in the directory of `copy`, and not those of
/// the copy.
fn is_beside<S: MetaSnapshot>(
    snapshot: &mut S,
    (volume, client): (VolumeId, ClientId),
    copy: Ino,
    name: &[u8],
) -> Result<bool, Fault<S::Error>> {
    let is_by = |row: &rows::InodeRow| row.made_by.iter().any(|op| op.client == client);
    let Some(copy) = rows::inode(snapshot, volume, copy)?.filter(|copy| !is_by(copy)) else {
        return Ok(false);
    };
    let original = match rows::dentry(snapshot, volume, copy.parent, name)? {
        Some(ino) => rows::inode(snapshot, volume, ino)?,
        None => None,
    };
    Ok(original.is_some_and(|original| is_by(&original)))
}

/// What became of what `changed` names, below `top`; `None` if that is too much for an answer.
pub(super) fn watched<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    top: Ino,
    changed: &Changed,
) -> Result<Option<Vec<Watched>>, Fault<S::Error>> {
    let mut paths = Paths { snapshot, volume, top, known: BTreeMap::new(), bytes: 0 };
    let (mut all, mut appeared) = (Vec::new(), BTreeSet::new());
    for (directory, bytes) in names_of(changed) {
        if paths.bytes > PATHS_BYTES {
            return Ok(None);
        }
        let Ok(name) = Name::new(bytes.clone()) else { continue };
        let Some(mut path) = paths.of_directory(directory)? else { continue };
        let ino = rows::dentry(paths.snapshot, volume, directory, bytes)?;
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
        path.push(name);
        all.push(Watched { path, became });
    }
    for ino in &changed.inodes {
        // A directory changes with its names.
        if appeared.contains(ino) || changed.names.contains_key(ino) {
            continue;
        }
        if paths.bytes > PATHS_BYTES {
            return Ok(None);
        }
        let Some(row) = rows::inode(paths.snapshot, volume, *ino)? else { continue };
        if let Some(path) = paths.of(&row)? {
            all.push(Watched { path, became: Became::Changed(row.attr) });
        }
    }
    Ok(Some(all))
}

fn names_of(changed: &Changed) -> impl Iterator<Item = (Ino, &Vec<u8>)> {
    let of = |(directory, names): (&Ino, _)| {
        let directory = *directory;
        BTreeSet::iter(names).map(move |name| (directory, name))
    };
    changed.names.iter().flat_map(of)
}

impl<S: MetaSnapshot> Paths<'_, S> {
    /// Where an inode is, by the name that its row says: others it may have are not told of.
    fn of(&mut self, row: &rows::InodeRow) -> Result<Option<Vec<Name>>, Fault<S::Error>> {
        if row.attr.kind == Kind::Directory {
            return self.of_directory(row.attr.ino);
        }
        let named = rows::dentry(self.snapshot, self.volume, row.parent, &row.name)?;
        let (Ok(name), true) = (Name::new(row.name.clone()), named == Some(row.attr.ino)) else {
            return Ok(None);
        };
        let mut path = self.of_directory(row.parent)?;
        path.iter_mut().for_each(|path| path.push(name.clone()));
        Ok(path)
    }

    /// Where a directory is; `None` if that is not below the top.
    fn of_directory(&mut self, directory: Ino) -> Result<Option<Vec<Name>>, Fault<S::Error>> {
        let (mut names, mut passed, mut at) = (Vec::new(), Vec::new(), directory);
        while at != self.top {
            if names.len() == DEPTH_MAX {
                self.bytes += bytes_of(&names);
                return Ok(None);
            }
            let Some((above, name)) = self.step(at)? else {
                self.known.extend(passed.into_iter().map(|below| (below, None)));
                return Ok(None);
            };
            names.push(name);
            passed.push(at);
            at = above;
        }
        self.bytes += bytes_of(&names);
        names.reverse();
        Ok(Some(names))
    }

    /// The directory that `directory` is in, and its name there.
    fn step(&mut self, directory: Ino) -> Result<Option<(Ino, Name)>, Fault<S::Error>> {
        if let Some(known) = self.known.get(&directory) {
            return Ok(known.clone());
        }
        let row = rows::inode(self.snapshot, self.volume, directory)?;
        let row = row.filter(|row| directory != Ino::ROOT && row.attr.nlink > 0);
        let step = row.and_then(|row| Some((row.parent, Name::new(row.name).ok()?)));
        self.known.insert(directory, step.clone());
        Ok(step)
    }
}

fn bytes_of(path: &[Name]) -> usize {
    path.iter().map(|name| size_of::<Name>() + name.as_bytes().len()).sum()
}
