//! Ragged files: fragments are read, cut and stored as chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::chunk::{Cutter, fingerprint};
use segue_core::namespace::{self, ChunkPlace, Extent, Source, Stop, arrived, chunk};
use segue_core::nouns::{Fingerprint, Ino, Version, VolumeId};
use segue_core::upkeep::tidy::{Untidy, clear_ragged, gather, ragged, replace, untidy};
use segue_core::wire::{FETCH_MAX, Fetch};
use segue_rpc::codec::compress;

use super::{rest, stopping};
use crate::disk_space::Purpose;
use crate::meta::{Kv, StoreError};
use crate::packs::StoredChunk;
use crate::segments::{Part, placed};
use crate::serve::Server;

/// Longest look: what else is to be collected waits for its end.
const LOOK: Duration = Duration::from_secs(3);

/// A volume and a file.
type Key = (VolumeId, Ino);

/// What is remembered from one look to the next.
#[derive(Default)]
pub(super) struct Tidier {
    looks: Looks,
    /// The last of them, so that files which change all the time do not keep others waiting.
    after: Option<Key>,
    /// A file for which the time was up, and where.
    half_done: Option<(File, u64)>,
}

/// Data versions of the files when each was looked at last.
#[derive(Default)]
struct Looks {
    /// In the last round through all of them.
    last: BTreeMap<Key, Option<Version>>,
    /// In this one.
    this: BTreeMap<Key, Option<Version>>,
}

impl Looks {
    /// Notes a look; true if the file was left alone since the last.
    fn note(&mut self, key: Key, version: Option<Version>) -> bool {
        self.this.insert(key, version);
        self.last.get(&key) == Some(&version)
    }

    /// All of them were looked at.
    fn end_round(&mut self) {
        self.last = std::mem::take(&mut self.this);
    }
}

/// A file, and the version of its data.
#[derive(Clone, Copy)]
struct File {
    volume: VolumeId,
    ino: Ino,
    version: Version,
}

/// How far putting a file in order came.
enum Tidied {
    /// To its end, or to damage that keeps it as it is.
    Over,
    /// To here; the time was up.
    UpTo(u64),
    /// It is not what it was, or a chunk went: from its start, another time.
    Again,
}

impl Tidier {
    /// Puts files in order that nobody wrote since the last look at them, for a while.
    pub(super) fn look(&mut self, server: &Server) {
        if let Err(words) = self.try_look(server) {
            tracing::error!("cannot store the fragments of files as chunks: {words}");
        }
    }

    fn try_look(&mut self, server: &Server) -> Result<(), StoreError> {
        let until = Instant::now() + LOOK;
        if let Some((file, from)) = self.half_done.take() {
            self.half_done = put_in_order(server, file, from, until)?;
        }
        while self.half_done.is_none() && !stopping(server) && Instant::now() < until {
            let after = self.after;
            let files = server.data.store.read_blocking(move |kv| ragged(kv, after, 1))??;
            let Some((volume, ino, version)) = files.first().copied() else {
                self.after = None;
                self.looks.end_round();
                return Ok(());
            };
            self.after = Some((volume, ino));
            let is_as_before = self.looks.note((volume, ino), version);
            match version {
                Some(version) if is_as_before => {
                    let file = File { volume, ino, version };
                    self.half_done = put_in_order(server, file, 0, until)?;
                }
                Some(_) => {}
                None => mark_tidy(server, (volume, ino), None)?,
            }
        }
        Ok(())
    }
}

/// Puts a file in order from a byte on; returns where to go on with it.
fn put_in_order(
    server: &Server,
    file: File,
    from: u64,
    until: Instant,
) -> Result<Option<(File, u64)>, StoreError> {
    let File { volume, ino, version } = file;
    let tidied = match tidy(server, file, from, until) {
        Ok(Ok(tidied)) => tidied,
        Ok(Err(words)) => damaged(ino, &words),
        Err(StoreError::Damaged(words)) => damaged(ino, &words),
        Err(error) => return Err(error),
    };
    match tidied {
        Tidied::Over => mark_tidy(server, (volume, ino), Some(version))?,
        Tidied::UpTo(from) => return Ok(Some((file, from))),
        Tidied::Again => {}
    }
    Ok(None)
}

fn damaged(ino: Ino, words: &str) -> Tidied {
    tracing::error!("cannot store the fragments of inode {ino} as chunks: {words}");
    Tidied::Over
}

fn mark_tidy(server: &Server, key: Key, version: Option<Version>) -> Result<(), StoreError> {
    server.data.store.write_blocking(move |txn| clear_ragged(txn, key, version))
}

/// Puts one file in order, as far as it stays as it is and can be read.
fn tidy(
    server: &Server,
    file: File,
    mut from: u64,
    until: Instant,
) -> Result<Result<Tidied, String>, StoreError> {
    let key = (file.volume, file.ino);
    loop {
        let begun = Instant::now();
        if begun >= until || stopping(server) {
            return Ok(Ok(Tidied::UpTo(from)));
        }
        let next = server.data.store.read_blocking(move |kv| untidy(kv, key, from))??;
        let goes_on = match next {
            None => return Ok(Ok(Tidied::Over)),
            Some(Untidy::Chunks(range)) => {
                from = range.end;
                let version = file.version;
                server.data.store.write_blocking(move |txn| gather(txn, key, version, range))?
            }
            Some(Untidy::Fragments(range)) => {
                from = range.end;
                match bytes(server, file, range.clone())? {
                    Ok(bytes) => store_anew(server, file, range, &bytes)?,
                    Err(words) => return Ok(Err(words)),
                }
            }
        };
        if !goes_on {
            return Ok(Ok(Tidied::Again));
        }
        rest(server, begun.elapsed());
    }
}

/// The bytes of a range; holes are zeros.
fn bytes(
    server: &Server,
    file: File,
    range: Range<u64>,
) -> Result<Result<Vec<u8>, String>, StoreError> {
    let _pin = server.data.packs.pin();
    let File { volume, ino, version } = file;
    let (mut bytes, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let len = (range.end - at).min(FETCH_MAX);
        let ask = Fetch { ino, version, offset: at, len };
        let look = move |kv: &mut Kv<'_>| placed(kv, volume, &ask);
        let segments = match server.data.store.read_blocking(look)? {
            Ok(segments) => segments,
            Err(Stop::Refused(refusal)) => return Ok(Err(refusal.to_string())),
            Err(Stop::Fault(fault)) => return Err(fault.into()),
        };
        if segments.is_empty() {
            return Ok(Err("its extents end beyond its size".to_owned()));
        }
        for placed in segments {
            at += placed.segment.len;
            match placed.read(&server.data.packs) {
                Ok(Part::Hole) => {
                    let len = usize::try_from(placed.segment.len).unwrap_or(usize::MAX);
                    bytes.resize(bytes.len().saturating_add(len), 0);
                }
                Ok(Part::Bytes(part) | Part::Chunk(_, part)) => bytes.extend_from_slice(&part),
                Err(words) => return Ok(Err(words)),
            }
        }
    }
    Ok(Ok(bytes))
}

/// Stores a range's bytes as chunks, cut as if they had been written at once.
fn store_anew(
    server: &Server,
    file: File,
    range: Range<u64>,
    bytes: &[u8],
) -> Result<bool, StoreError> {
    let File { volume, ino, version } = file;
    // Chunk sizes follow the file's, and a run is at most as long as it.
    let size = server
        .data
        .store
        .read_blocking(move |kv| namespace::read::getattr(kv, volume, ino))?
        .map_or(range.end, |node| node.attr.size);
    let chunks: Vec<StoredChunk> = Cutter::for_file(size).cut(bytes).map(stored).collect();
    let names: Vec<Fingerprint> = chunks.iter().map(|chunk| chunk.fingerprint).collect();
    let _pin = server.data.packs.pin();
    let known = server.data.store.read_blocking(move |kv| {
        let place = |name: &Fingerprint| Ok(chunk(kv, volume, name)?.map(|row| row.place));
        names.iter().map(place).collect::<Result<Vec<_>, crate::meta::MetaFault>>()
    })??;
    let extents: Vec<Extent> = chunks.iter().map(whole).collect();
    let packs = &server.data.packs;
    // One that is here but damaged is written anew: what it was made from goes now.
    let is_unreadable = |(chunk, known): &(StoredChunk, Option<ChunkPlace>)| {
        known.is_none_or(|place| packs.read(&chunk.fingerprint, &place).is_err())
    };
    let (new, known): (Vec<StoredChunk>, Vec<Option<ChunkPlace>>) =
        chunks.into_iter().zip(known).filter(is_unreadable).unzip();
    let places = server.data.keep(volume, &new, Purpose::Store)?;
    server.data.store.write_blocking(move |txn| {
        for ((chunk, known), place) in new.iter().zip(known).zip(places) {
            arrived(txn, (volume, &chunk.fingerprint), place, known, 0)?;
        }
        for extent in &extents {
            // One that was collected since it was looked for: the file keeps its mark.
            if let Source::Chunk { fingerprint, .. } = &extent.source
                && chunk(txn, volume, fingerprint)?.is_none()
            {
                return Ok(false);
            }
        }
        replace(txn, (volume, ino), version, range, extents)
    })
}

fn stored(raw: &[u8]) -> StoredChunk {
    let stored = compress(raw).map_or_else(|| Bytes::copy_from_slice(raw), Bytes::from);
    // No chunk is longer than 4 MiB.
    let raw_len = u32::try_from(raw.len()).unwrap_or(u32::MAX);
    StoredChunk { fingerprint: fingerprint(raw), raw_len, stored }
}

fn whole(chunk: &StoredChunk) -> Extent {
    let source = Source::Chunk { fingerprint: chunk.fingerprint, start: 0 };
    Extent { len: u64::from(chunk.raw_len), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_alone_if_a_whole_round_later_it_has_the_same_data() {
        let (mut looks, version) = (Looks::default(), |counter| Version { epoch: 1, counter });
        let [first, second] = [5, 6].map(|ino| (VolumeId(1), Ino(ino)));
        assert!(!looks.note(first, Some(version(1))));
        // Another look in the same round says nothing.
        assert!(!looks.note(first, Some(version(1))));
        looks.end_round();
        assert!(looks.note(first, Some(version(1))));
        assert!(!looks.note(second, Some(version(1))));
        looks.end_round();
        assert!(!looks.note(first, Some(version(2))));
        looks.end_round();
        // One that was not there for a round is looked at as if for the first time.
        assert!(looks.note(first, Some(version(2))));
        assert!(!looks.note(second, Some(version(1))));
    }
}
