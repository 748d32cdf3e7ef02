//! Contents: chunks that come along with records, what files have, and what is collected, as
//! `segue-server`'s session/upload.rs, segments.rs and collect have it.

use std::collections::BTreeMap;
use std::convert::Infallible;

use segue_core::chunk::fingerprint;
use segue_core::host::cache::XattrMap;
use segue_core::namespace::{self, ChunkPlace, ChunkRow, MetaTxn, Source, Stop, keys, read};
use segue_core::nouns::{ClientId, Fingerprint, Ino, Time, VolumeId};
use segue_core::upkeep::collect::collect;
use segue_core::wire::{Fetch, Fetched, Reply};

use super::{Answer, Server, replied};
use crate::Violation;
use crate::plan::Bug;
use crate::store::{Txn, Written};

/// Rows of a slice. Few, so that others come in between.
const SLICE: usize = 6;

impl Server {
    /// Takes in the chunks that came with records: their bytes, then their rows.
    pub(super) fn take_along(
        &mut self,
        client: ClientId,
        chunks: &[(Fingerprint, u32)],
        mut body: &[u8],
    ) -> Result<(), Violation> {
        let volume = self.volume;
        let proven = self.proven.entry(client).or_default();
        let mut txn = Txn::begin(&mut self.disk);
        for (name, len) in chunks {
            let at = usize::try_from(*len).unwrap_or(usize::MAX).min(body.len());
            let (bytes, rest) = body.split_at(at);
            body = rest;
            let believes = self.bug == Some(Bug::ServerBelievesDifferences);
            if fingerprint(bytes) != *name && !believes {
                return Err(Violation(format!("{name:?} is sent as {} other bytes", bytes.len())));
            }
            proven.insert(*name);
            self.ledger.chunks.insert(*name, bytes.to_vec());
            txn.packs().insert(*name, bytes.to_vec());
            let known = namespace::chunk(&mut txn, volume, name)?.map(|row| row.place);
            let place = ChunkPlace {
                pack: 1,
                offset: 0,
                stored_len: *len,
                raw_len: *len,
                compressed: false,
            };
            namespace::arrived(&mut txn, (volume, name), place, known, 0)?;
        }
        Ok(())
    }

    /// Removes some of what nobody needs: rows, and then the bytes of chunks.
    pub(crate) fn collect(&mut self, now: Time) -> Result<(), Violation> {
        let volume = self.volume;
        let mut txn = Txn::begin(&mut self.disk);
        self.ages.expire(&mut txn, now.0.as_secs(), SLICE, false)?;
        collect(&mut txn, now.0.as_secs() + 1, SLICE)?;
        if self.bug == Some(Bug::ServerLeaksReferences) {
            let written = txn.take_written();
            leak(&mut txn, written);
        }
        let mut gone = Vec::new();
        let names: Vec<Fingerprint> = txn.packs().keys().copied().collect();
        for name in names {
            let row = namespace::chunk(&mut txn, volume, &name)?;
            if row.is_none() {
                gone.push(name);
            }
        }
        gone.iter().for_each(|name| drop(txn.packs().remove(name)));
        Ok(())
    }
}

/// Undoes what was written of chunks to which less refers.
pub(super) fn leak(txn: &mut Txn<'_>, written: Written) {
    for (key, old) in written {
        let refs = |bytes: &Vec<u8>| postcard::from_bytes::<ChunkRow>(bytes).map(|row| row.refs);
        let now = txn.rows().0.get(&key).filter(|_| keys::is_chunk(&key)).map(refs);
        let before = old.as_ref().filter(|_| now.is_some()).map(refs);
        let (Some(Ok(now)), Some(Ok(before)), Some(old)) = (now, before, old) else { continue };
        if now < before {
            let Ok(()) = txn.put(&key, &old);
        }
    }
}

fn bytes_of(
    packs: &BTreeMap<Fingerprint, Vec<u8>>,
    (source, len): (&Source, u64),
) -> Result<Vec<u8>, Violation> {
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    match source {
        Source::Inline(bytes) => Ok(bytes.to_vec()),
        Source::Chunk { fingerprint, start } => {
            let start = index(u64::from(*start));
            let bytes = packs.get(fingerprint).and_then(|all| all.get(start..start + index(len)));
            let bytes = bytes.ok_or_else(|| Violation(format!("{fingerprint:?} is in no pack")))?;
            Ok(bytes.to_vec())
        }
        Source::Leaf { leaf, .. } => Err(Violation(format!("nobody made leaf {leaf:?}"))),
    }
}

pub(super) fn fetch(txn: &mut Txn<'_>, volume: VolumeId, ask: &Fetch) -> Result<Answer, Violation> {
    let contents = match read::contents(txn, volume, ask) {
        Ok(contents) => contents,
        Err(stop) => return replied(Err(stop)),
    };
    let (mut segments, mut body) = (Vec::new(), Vec::new());
    for segment in contents {
        segments.push((segment.len, segment.source.is_some()));
        if let Some(source) = &segment.source {
            body.extend(bytes_of(txn.packs(), (source, segment.len))?);
        }
    }
    Ok((Reply::Fetched(Fetched { segments }), body))
}

/// The extended attributes of an inode.
pub(crate) fn xattrs(txn: &mut Txn<'_>, volume: VolumeId, ino: Ino) -> Result<XattrMap, Violation> {
    let words = |stop: Stop<Infallible>| Violation(format!("attributes of #{ino}: {stop:?}"));
    Ok(read::xattrs(txn, volume, ino).map_err(words)?.values.into_iter().collect())
}

/// All bytes of a file.
pub(crate) fn content(txn: &mut Txn<'_>, volume: VolumeId, ino: Ino) -> Result<Vec<u8>, Violation> {
    let words = |stop: Stop<Infallible>| Violation(format!("reading #{ino}: {stop:?}"));
    let attr = read::getattr(txn, volume, ino).map_err(words)?.attr;
    let ask = Fetch { ino, version: attr.data_version, offset: 0, len: attr.size };
    let mut bytes = Vec::new();
    for segment in read::contents(txn, volume, &ask).map_err(words)? {
        let len = usize::try_from(segment.len).unwrap_or(usize::MAX);
        match &segment.source {
            Some(source) => bytes.extend(bytes_of(txn.packs(), (source, segment.len))?),
            None => bytes.resize(bytes.len() + len, 0),
        }
    }
    if bytes.len() as u64 != attr.size {
        return Err(Violation(format!("#{ino} has {} bytes, not {}", bytes.len(), attr.size)));
    }
    Ok(bytes)
}
