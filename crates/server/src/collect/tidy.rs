//! Ragged files: fragments are read, cut and stored as chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use segue_core::chunk::{Cutter, fingerprint};
use segue_core::namespace::tidy::{Untidy, gather, is_tidy, ragged, replace, untidy};
use segue_core::namespace::{self, Extent, Source, Stop, arrived, chunk};
use segue_core::types::{Fingerprint, Ino, Version, VolumeId};
use segue_core::wire::{FETCH_MAX, Fetch};
use segue_rpc::codec::compress;

use super::{rest, stopping};
use crate::contents::{Part, placed};
use crate::data::now_seconds;
use crate::meta::{Kv, StoreError};
use crate::packs::StoredChunk;
use crate::serve::Server;

/// Files looked at in one round.
const FILES: usize = 256;

/// A volume and a file.
type Key = (VolumeId, Ino);

/// What is remembered from one look to the next.
#[derive(Default)]
pub(super) struct Tidier {
    looks: Looks,
    /// The last of them, so that files which change all the time do not keep others waiting.
    after: Option<Key>,
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
    fn is_as_before(&mut self, key: Key, version: Option<Version>) -> bool {
        self.this.insert(key, version);
        self.last.get(&key) == Some(&version)
    }

    /// All of them were looked at.
    fn round_ends(&mut self) {
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

impl Tidier {
    /// Puts files in order that nobody wrote since the last look at them.
    pub(super) fn look(&mut self, server: &Server) {
        if let Err(words) = self.try_look(server) {
            tracing::error!("files are not put in order: {words}");
        }
    }

    fn try_look(&mut self, server: &Server) -> Result<(), StoreError> {
        let store = &server.data.store;
        let after = self.after;
        let files = store.read_blocking(move |kv| ragged(kv, after, FILES))??;
        self.after = files.last().filter(|_| files.len() == FILES).map(|file| (file.0, file.1));
        for (volume, ino, version) in files {
            if stopping(server) {
                return Ok(());
            }
            let is_as_before = self.looks.is_as_before((volume, ino), version);
            let Some(data) = version else {
                store.write_blocking(move |txn| is_tidy(txn, (volume, ino), version))?;
                continue;
            };
            if is_as_before {
                let file = File { volume, ino, version: data };
                if let Err(words) = tidy(server, file)? {
                    tracing::error!("#{ino} is not put in order: {words}");
                }
                store.write_blocking(move |txn| is_tidy(txn, (volume, ino), version))?;
            }
        }
        if self.after.is_none() {
            self.looks.round_ends();
        }
        Ok(())
    }
}

/// Puts one file in order, as far as it stays as it is and can be read.
fn tidy(server: &Server, file: File) -> Result<Result<(), String>, StoreError> {
    let (mut from, key) = (0, (file.volume, file.ino));
    while !stopping(server) {
        let begun = Instant::now();
        let next = server.data.store.read_blocking(move |kv| untidy(kv, key, from))??;
        let goes_on = match next {
            None => break,
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
            break;
        }
        rest(server, begun.elapsed());
    }
    Ok(Ok(()))
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
        for placed in segments {
            match placed.read(&server.data.packs) {
                Ok(Part::Hole) => {
                    let len = usize::try_from(placed.segment.len).unwrap_or(usize::MAX);
                    bytes.resize(bytes.len().saturating_add(len), 0);
                }
                Ok(Part::Bytes(part) | Part::Chunk(_, part)) => bytes.extend_from_slice(&part),
                Err(words) => return Ok(Err(words)),
            }
        }
        at += len;
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
    let new: Vec<StoredChunk> = chunks
        .into_iter()
        .zip(known)
        .filter(|(_, known)| known.is_none())
        .map(|new| new.0)
        .collect();
    let places = server.data.keep(volume, &new)?;
    let now = now_seconds();
    server.data.store.write_blocking(move |txn| {
        for (chunk, place) in new.iter().zip(places) {
            arrived(txn, (volume, &chunk.fingerprint), place, None, now)?;
        }
        for extent in &extents {
            // One that was collected since it was looked for: another time.
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
        assert!(!looks.is_as_before(first, Some(version(1))));
        // Another look in the same round says nothing.
        assert!(!looks.is_as_before(first, Some(version(1))));
        looks.round_ends();
        assert!(looks.is_as_before(first, Some(version(1))));
        assert!(!looks.is_as_before(second, Some(version(1))));
        looks.round_ends();
        assert!(!looks.is_as_before(first, Some(version(2))));
        looks.round_ends();
        // One that was not there for a round is looked at as if for the first time.
        assert!(looks.is_as_before(first, Some(version(2))));
        assert!(!looks.is_as_before(second, Some(version(1))));
    }
}
