//! Inodes, each with its extents and extended attributes beside it.

use super::remnants;
use super::scan::Scan;
use super::{Checker, Damage, FoundRow, Halt, Visitor, decode, find};
use crate::namespace::extents::{Contents, within};
use crate::namespace::rows::{ChunkRow, Extent, InodeRow, LeafRow, Source};
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::{Fingerprint, Ino, Kind, SYMLINK_MAX, Version};

/// Tables that are read along with the inodes: both stand in the inodes' order.
struct Beside {
    extents: Scan,
    xattrs: Scan,
}

/// What the extents of one inode come to.
#[derive(Default)]
struct Extents {
    count: u64,
    /// End of the last one.
    end: u64,
    bytes: u64,
    in_chunks: u64,
}

/// The row of the inode that the key is of.
fn inode_row(key: &[u8], value: &[u8]) -> Option<InodeRow> {
    let (ino, _) = keys::inode_part(key)?;
    decode::<InodeRow>(value).filter(|row| row.attr.ino == ino)
}

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    pub(super) fn inodes(&mut self) -> Result<(), Halt<S::Error>> {
        let volume = self.volume;
        let mut scan = Scan::new(keys::inodes(volume));
        let mut beside = Beside {
            extents: Scan::new(keys::all_extents(volume)),
            xattrs: Scan::new(keys::all_xattrs(volume)),
        };
        let mut is_rooted = false;
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            let Some((ino, [])) = keys::inode_part(&key) else {
                self.report_row(&key, "an inode");
                continue;
            };
            self.strays(&mut beside, Some(ino))?;
            let generation = inode_row(&key, &value).map(|row| row.generation);
            let extents = self.extents(&mut beside.extents, ino, generation)?;
            let xattrs = self.xattrs(&mut beside.xattrs, ino)?;
            let target = inode_row(&key, &value).and_then(|row| row.target);
            let bytes = extents.bytes + xattrs + target.map_or(0, |target| target.len() as u64);
            self.counts.inodes += 1;
            self.counts.allocated += bytes;
            self.counts.in_chunks += extents.in_chunks;
            let Some(row) = inode_row(&key, &value) else {
                self.report_row(&key, "an inode");
                continue;
            };
            is_rooted |= ino == Ino::ROOT && row.attr.kind == Kind::Directory;
            self.count_against_quota(&row, bytes);
            self.attributes(&row, &extents)?;
            self.links(&row)?;
        }
        self.strays(&mut beside, None)?;
        if !is_rooted {
            self.report_volume(Damage::NoRoot);
        }
        Ok(())
    }

    /// The links of the inodes of a later round.
    pub(super) fn inodes_again(&mut self) -> Result<(), Halt<S::Error>> {
        let first = keys::inode(self.volume, self.links.first());
        let mut scan = Scan::starting(&keys::inodes(self.volume), first);
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            if let Some(row) = inode_row(&key, &value) {
                self.links(&row)?;
            }
        }
        Ok(())
    }

    /// Rows of inodes that are not there: those before `next`, or all that are left.
    fn strays(&mut self, beside: &mut Beside, next: Option<Ino>) -> Result<(), Halt<S::Error>> {
        for (scan, damage) in [
            (&mut beside.extents, Damage::ExtentsOfNothing),
            (&mut beside.xattrs, Damage::XattrsOfNothing),
        ] {
            let mut last = None;
            while let Some((key, value)) = scan.peek(self.snapshot)? {
                let ino = keys::inode_part(key).map_or(Ino(0), |(ino, _)| ino);
                let is_torn =
                    matches!(damage, Damage::ExtentsOfNothing) && decode::<Extent>(value).is_none();
                if next.is_some_and(|next| ino >= next) {
                    break;
                }
                let key = key.clone();
                let told = last.replace(ino) == Some(ino);
                let is_buried = self.check_buried(&key)?;
                if is_buried && is_torn {
                    self.report_row(&key, "an extent");
                }
                if !told && !is_buried {
                    self.report(ino, damage.clone())?;
                }
                self.step()?;
                scan.next(self.snapshot)?;
            }
        }
        Ok(())
    }

    /// Looks whether an extent or an extended attribute is left to collection, or a remnant's.
    fn check_buried(&mut self, key: &[u8]) -> Result<bool, S::Error> {
        let Some((ino, rest)) = keys::inode_part(key) else { return Ok(false) };
        if key.starts_with(&keys::all_xattrs(self.volume)) {
            return remnants::check_has(self.snapshot, self.volume, ino, None);
        }
        let Some((generation, _)) = keys::extent_part(rest) else { return Ok(false) };
        if remnants::check_has(self.snapshot, self.volume, ino, Some(generation))? {
            return Ok(true);
        }
        let grave = keys::grave(Contents { volume: self.volume, ino, generation });
        Ok(self.snapshot.get(&grave)?.is_some())
    }

    /// The bytes of an inode's extended attributes.
    fn xattrs(&mut self, scan: &mut Scan, ino: Ino) -> Result<u64, Halt<S::Error>> {
        let mut bytes = 0;
        while let Some((key, value)) = scan.peek(self.snapshot)? {
            match keys::inode_part(key) {
                Some((of, _)) if of != ino => break,
                Some((_, name @ [_, ..])) => {
                    bytes += (name.len() + value.len()) as u64;
                }
                _ => {
                    let key = key.clone();
                    self.report_row(&key, "an extended attribute");
                }
            }
            self.step()?;
            scan.next(self.snapshot)?;
        }
        Ok(bytes)
    }

    /// The extents of an inode: none empty, none over another, each where its bytes are; and
    /// those of earlier contents, which are left to collection.
    fn extents(
        &mut self,
        scan: &mut Scan,
        ino: Ino,
        generation: Option<u32>,
    ) -> Result<Extents, Halt<S::Error>> {
        let (mut extents, mut told) = (Extents::default(), false);
        while let Some((key, _)) = scan.peek(self.snapshot)? {
            if keys::inode_part(key).is_none_or(|(of, _)| of != ino) {
                break;
            }
            self.step()?;
            let Some((key, value)) = scan.next(self.snapshot)? else { break };
            let part = keys::inode_part(&key).and_then(|(_, rest)| keys::extent_part(rest));
            let (Some((of, end)), Some(extent)) = (part, decode::<Extent>(&value)) else {
                self.report_row(&key, "an extent");
                continue;
            };
            if generation.is_some_and(|generation| generation != of) {
                if !self.check_buried(&key)? && !std::mem::replace(&mut told, true) {
                    self.report(ino, Damage::ExtentsOfNothing)?;
                }
                continue;
            }
            let start = end.checked_sub(extent.len).filter(|start| *start >= extents.end);
            if start.is_none() || extent.len == 0 {
                self.report(ino, Damage::Overlap { end })?;
            }
            extents.count += 1;
            extents.end = end;
            extents.bytes = extents.bytes.saturating_add(extent.len);
            if !matches!(extent.source, Source::Inline(_)) {
                extents.in_chunks = extents.in_chunks.saturating_add(extent.len);
            }
            self.source(ino, end, &extent)?;
        }
        Ok(extents)
    }

    fn source(&mut self, ino: Ino, end: u64, extent: &Extent) -> Result<(), Halt<S::Error>> {
        match &extent.source {
            Source::Inline(bytes) if bytes.len() as u64 == extent.len => Ok(()),
            Source::Inline(_) => self.report(ino, Damage::InlineLength { end }),
            Source::Chunk { fingerprint, start } => {
                let last = u64::from(*start).checked_add(extent.len);
                self.chunk(ino, end, *fingerprint, last)
            }
            Source::Leaf { leaf, start } => {
                let key = keys::leaf(self.volume, leaf);
                let row = match find::<_, LeafRow>(self.snapshot, &key)? {
                    FoundRow::Row(row) => row,
                    FoundRow::Nothing | FoundRow::Broken => {
                        return self.report(ino, Damage::NoLeaf { end, leaf: *leaf });
                    }
                };
                if start.checked_add(extent.len).is_none_or(|last| last > row.len) {
                    return self.report(ino, Damage::LeafLength { end, leaf: *leaf });
                }
                let first = end.saturating_sub(extent.len);
                for (at, part) in within(&row.extents, *start, extent.len) {
                    let end = first.saturating_add(at).saturating_add(part.len);
                    self.source(ino, end, &part)?;
                }
                Ok(())
            }
        }
    }

    /// The bytes before `end`, up to `last` in a chunk.
    fn chunk(
        &mut self,
        ino: Ino,
        end: u64,
        fingerprint: Fingerprint,
        last: Option<u64>,
    ) -> Result<(), Halt<S::Error>> {
        let key = keys::chunk(self.volume, &fingerprint);
        match find::<_, ChunkRow>(self.snapshot, &key)? {
            FoundRow::Nothing | FoundRow::Broken => {
                self.report(ino, Damage::NoChunk { end, fingerprint })
            }
            FoundRow::Row(ChunkRow { place, .. }) => {
                let is_inside = last.is_some_and(|last| last <= u64::from(place.raw_len));
                let is_possible = place.stored_len <= place.raw_len
                    && place.compressed == (place.stored_len < place.raw_len);
                match is_inside && is_possible {
                    true => Ok(()),
                    false => self.report(ino, Damage::ChunkLength { end, fingerprint }),
                }
            }
        }
    }

    fn attributes(&mut self, row: &InodeRow, extents: &Extents) -> Result<(), Halt<S::Error>> {
        let attr = &row.attr;
        if attr.kind != Kind::File && extents.count > 0 {
            self.report(attr.ino, Damage::ExtentsOfKind)?;
        }
        if attr.kind == Kind::File && extents.end > attr.size {
            let (end, size) = (extents.end, attr.size);
            self.report(attr.ino, Damage::BeyondEnd { end, size })?;
        }
        if attr.allocated != extents.bytes {
            let (told, found) = (attr.allocated, extents.bytes);
            self.report(attr.ino, Damage::Allocated { told, found })?;
        }
        let is_target = match (&row.target, attr.kind) {
            (Some(target), Kind::Symlink) => {
                (1..=SYMLINK_MAX).contains(&target.len()) && target.len() as u64 == attr.size
            }
            (target, kind) => target.is_none() && kind != Kind::Symlink,
        };
        if !is_target {
            self.report(attr.ino, Damage::Target)?;
        }
        if self.row.as_ref().is_some_and(|volume| attr.ino.0 >= volume.next_ino) {
            self.report(attr.ino, Damage::Number)?;
        }
        if let (Some(volume), Some(tally)) = (&self.row, self.tally) {
            let latest = Version { epoch: volume.epoch, counter: tally.commits };
            if attr.data_version > attr.change || attr.change > latest {
                self.report(attr.ino, Damage::Versions)?;
            }
        }
        Ok(())
    }
}
