//! Reads: what a client may ask about a volume, answered from one snapshot.

use std::collections::BTreeSet;

use super::changes::{self, Span};
use super::extents::Contents;
use super::rows::{self, InodeRow, Source};
use super::{MetaSnapshot, Stop, extents, keys, remnant};
use crate::nouns::{Attr, Ino, Kind, Name, Version, VolumeId};
use crate::refusal::Refusal;
use crate::wire::{FETCH_MAX, Fetch, Looked, Node, PAGE_MAX, Page, Readdir, Seek, Sought, Xattrs};

/// Bytes of names and targets after which a page ends: a page is one message.
const PAGE_BYTES: usize = 4 << 20;
/// Most commits of the server, of whatever volume, that are looked at for what changed in a
/// directory, and most names of it: about what a page costs.
const CHANGED_COMMITS: u64 = 256;
const CHANGED_NAMES: usize = PAGE_MAX as usize;
/// Most extended attributes that one answer carries.
const XATTRS_MAX: usize = 1024;
/// Slices of extents that are looked at for one run of data: a thousand rows, which are a file of
/// 64 GB in leaves.
const SEEK_SLICES: usize = 16;

/// A run of bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// How many.
    pub len: u64,
    /// Where they are; `None` in a hole.
    pub source: Option<Source>,
}

impl From<InodeRow> for Node {
    fn from(row: InodeRow) -> Node {
        Node { attr: row.attr, target: row.target }
    }
}

fn inode<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<InodeRow, Stop<S::Error>> {
    Ok(rows::inode(snapshot, volume, ino)?.ok_or(Refusal::Stale)?)
}

/// An inode, or what is left of it: then true.
fn inode_or_remnant<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<(InodeRow, bool), Stop<S::Error>> {
    if let Some(row) = rows::inode(snapshot, volume, ino)? {
        return Ok((row, false));
    }
    Ok((remnant::remnant(snapshot, volume, ino)?.ok_or(Refusal::Stale)?, true))
}

fn directory<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Attr, Stop<S::Error>> {
    let attr = inode(snapshot, volume, ino)?.attr;
    if attr.kind == Kind::Directory { Ok(attr) } else { Err(Refusal::NotDirectory.into()) }
}

/// An inode.
pub fn getattr<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Node, Stop<S::Error>> {
    Ok(inode(snapshot, volume, ino)?.into())
}

/// An inode, or what is left of it: then true. A remnant never changes, and nobody is told when it
/// goes.
pub fn getattr_or_remnant<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<(Node, bool), Stop<S::Error>> {
    let (row, is_remnant) = inode_or_remnant(snapshot, volume, ino)?;
    Ok((row.into(), is_remnant))
}

/// A name in a directory.
pub fn lookup<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    parent: Ino,
    name: &Name,
) -> Result<Looked, Stop<S::Error>> {
    let parent_attr = directory(snapshot, volume, parent)?;
    let node = match rows::dentry(snapshot, volume, parent, name.as_bytes())? {
        Some(ino) => Some(getattr(snapshot, volume, ino)?),
        None => None,
    };
    Ok(Looked { parent: parent_attr, node, promised: None })
}

/// A page of a directory, or what of it changed behind a commit, where that is asked for and is
/// known.
pub fn page<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ask: &Readdir,
) -> Result<Page, Stop<S::Error>> {
    let attr = directory(snapshot, volume, ask.ino)?;
    if let Some(since) = ask.since
        && let Some(page) = changed(snapshot, volume, attr, since)?
    {
        return Ok(page);
    }
    let prefix = keys::dentry(volume, ask.ino, &[]);
    let from = match &ask.after {
        // The first key after a name is that name with a zero, which no name has.
        Some(name) => {
            let mut key = keys::dentry(volume, ask.ino, name.as_bytes());
            key.push(0);
            key
        }
        None => prefix.clone(),
    };
    let limit = ask.limit.clamp(1, PAGE_MAX) as usize;
    let found = snapshot.range(&from, &keys::after(&prefix), limit + 1);
    let found = found.map_err(super::Fault::Store)?;
    let total = found.len();
    let (mut entries, mut bytes) = (Vec::with_capacity(total), 0);
    for (key, value) in found {
        if entries.len() == limit || bytes > PAGE_BYTES {
            break;
        }
        let name = key.get(prefix.len()..).and_then(|name| Name::new(name).ok());
        let name = name.ok_or(super::Fault::Damaged("a directory entry's key"))?;
        let node = getattr(snapshot, volume, rows::decode(&value, "a directory entry")?)?;
        bytes += bytes_of(&name, &node);
        entries.push((name, node));
    }
    let more = entries.len() < total;
    let commit = changes::head(snapshot, 0)?.last;
    Ok(Page { directory: attr, entries, more, promised: None, commit, gone: None })
}

fn bytes_of(name: &Name, node: &Node) -> usize {
    name.as_bytes().len() + node.target.as_ref().map_or(0, Vec::len) + size_of::<Attr>()
}

/// What names of `directory` changed behind commit `since`; `None` if that is not known, or is so
/// much that all names cost no more.
fn changed<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    directory: Attr,
    since: u64,
) -> Result<Option<Page>, Stop<S::Error>> {
    if changes::head(snapshot, 0)?.last.saturating_sub(since) > CHANGED_COMMITS {
        return Ok(None);
    }
    let mut names = BTreeSet::new();
    let span = Span { since, through: u64::MAX };
    let last = changes::since(snapshot, volume, span, |mut more| {
        names.extend(more.names.remove(&directory.ino).into_iter().flatten());
        names.len() <= CHANGED_NAMES
    })?;
    let Some(commit) = last.filter(|_| names.len() <= CHANGED_NAMES) else { return Ok(None) };
    let (mut entries, mut gone, mut bytes) = (Vec::new(), Vec::new(), 0);
    for name in names {
        let ino = rows::dentry(snapshot, volume, directory.ino, &name)?;
        let name = Name::new(name).map_err(|_| super::Fault::Damaged("a note of a name"))?;
        let Some(ino) = ino else {
            gone.push(name);
            continue;
        };
        let node = getattr(snapshot, volume, ino)?;
        bytes += bytes_of(&name, &node);
        if bytes > PAGE_BYTES {
            return Ok(None);
        }
        entries.push((name, node));
    }
    let gone = Some(gone);
    Ok(Some(Page { directory, entries, more: false, promised: None, commit, gone }))
}

/// All extended attributes of an inode.
pub fn xattrs<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Xattrs, Stop<S::Error>> {
    let change = inode_or_remnant(snapshot, volume, ino)?.0.attr.change;
    let prefix = keys::xattr(volume, ino, &[]);
    let rows = snapshot.range(&prefix, &keys::after(&prefix), XATTRS_MAX);
    let rows = rows.map_err(super::Fault::Store)?;
    let values = rows.into_iter().map(|(mut key, value)| (key.split_off(prefix.len()), value));
    Ok(Xattrs { change, values: values.collect() })
}

/// A file, if its data are of this version.
pub(super) fn file<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
    version: Version,
) -> Result<InodeRow, Stop<S::Error>> {
    let row = inode(snapshot, volume, ino)?;
    in_version(row, version)
}

/// The same, also of what is left of a file.
fn file_or_remnant<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
    version: Version,
) -> Result<InodeRow, Stop<S::Error>> {
    let (row, _) = inode_or_remnant(snapshot, volume, ino)?;
    in_version(row, version)
}

fn in_version<E>(row: InodeRow, version: Version) -> Result<InodeRow, Stop<E>> {
    match row.attr.kind {
        Kind::File if row.attr.data_version == version => Ok(row),
        Kind::File => Err(Refusal::Changed.into()),
        Kind::Directory => Err(Refusal::IsDirectory.into()),
        _ => Err(Refusal::Invalid.into()),
    }
}

/// What a range of one version of a file holds, without gaps from its start to its end, to the end
/// of file, or as far as one answer goes.
pub fn contents<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ask: &Fetch,
) -> Result<Vec<Segment>, Stop<S::Error>> {
    let row = file_or_remnant(snapshot, volume, ask.ino, ask.version)?;
    let end = ask.offset.saturating_add(ask.len.min(FETCH_MAX)).min(row.attr.size);
    let (mut at, mut segments) = (ask.offset, Vec::new());
    if at >= end {
        return Ok(segments);
    }
    let (parts, end) = extents::resolved(snapshot, Contents::of(volume, &row), at, end)?;
    for (start, part) in parts {
        if start > at {
            segments.push(Segment { len: start - at, source: None });
        }
        at = start + part.len;
        segments.push(Segment { len: part.len, source: Some(part.source) });
    }
    if at < end {
        segments.push(Segment { len: end - at, source: None });
    }
    Ok(segments)
}

/// The next data of one version of a file, as far as a bounded look goes.
pub fn seek<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ask: &Seek,
) -> Result<Sought, Stop<S::Error>> {
    let row = file_or_remnant(snapshot, volume, ask.ino, ask.version)?;
    let size = row.attr.size;
    let contents = Contents::of(volume, &row);
    let (mut at, mut found): (u64, Option<Sought>) = (ask.offset, None);
    'slices: for _ in 0..SEEK_SLICES {
        let rows = extents::rows_from(snapshot, contents, at)?;
        if rows.is_empty() {
            break;
        }
        for (start, extent) in rows {
            at = start.saturating_add(extent.len);
            match &mut found {
                None => found = Some(Sought { start: start.max(ask.offset), end: at }),
                // A leaf has no gaps.
                Some(run) if run.end == start => run.end = at,
                Some(_) => break 'slices,
            }
        }
    }
    let run = found.unwrap_or(Sought { start: size, end: size });
    Ok(Sought { start: run.start.min(size), end: run.end.min(size) })
}
