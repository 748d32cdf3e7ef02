//! The bytes of a volume's chunks, each read from its pack, decompressed and fingerprinted.

use segue_core::nouns::{Fingerprint, Ino};
use segue_core::upkeep::check::{ChunkUse, Counts, Damage, Finding, Visitor, chunk_uses, path};

use super::{Check, CheckLine, Failed};
use crate::task::RateLimit;

/// Chunks remembered as whole: 8 MiB of fingerprints, for 16 GiB of small chunks. One that was
/// forgotten is read again.
const KNOWN: usize = 1 << 18;
/// What was read.
#[derive(Clone, Copy, Default)]
pub(super) struct Read {
    pub(super) chunks: u64,
    pub(super) bytes: u64,
}

/// A file in which something cannot be read.
struct Broken {
    ino: Ino,
    first: u64,
    bytes: u64,
    cause: String,
}

/// Reads every chunk of the volume once, as far as they are remembered.
pub(super) fn check(
    check: &mut Check<'_, '_>,
    counts: &Counts,
    rate: &mut RateLimit,
) -> Result<Read, Failed> {
    let known = vec![Fingerprint([0; 32]); KNOWN];
    let mut bytes = Bytes { check, known, broken: None, read: Read::default() };
    let (mut from, mut done) = (Some(Vec::new()), 0);
    while let Some(at) = from {
        let (store, id) = (&bytes.check.data.store, bytes.check.id);
        let _pin = bytes.check.data.packs.pin();
        let (page, _) = store.read_noting(|kv| chunk_uses(kv, id, &at))?;
        let (uses, next) = page?;
        for used in uses {
            bytes.one(&used, rate)?;
            done += used.len;
            let (volume, inodes) = (&bytes.check.name, counts.inodes);
            // Files may have grown since they were counted.
            let line = || CheckLine::Progress {
                volume: volume.clone(),
                inodes,
                bytes: done,
                total_bytes: counts.in_chunks.max(done),
            };
            if !bytes.check.reporter.progress(line) {
                return Err(Failed::Stopped);
            }
        }
        from = next;
    }
    bytes.report()?;
    Ok(bytes.read)
}

struct Bytes<'a, 'b, 'c> {
    check: &'a mut Check<'b, 'c>,
    /// A chunk stands where its first bytes say, and another takes its place.
    known: Vec<Fingerprint>,
    /// The file that is being read, if something of it was not there.
    broken: Option<Broken>,
    read: Read,
}

impl Bytes<'_, '_, '_> {
    fn one(&mut self, used: &ChunkUse, rate: &mut RateLimit) -> Result<(), Failed> {
        if self.broken.as_ref().is_some_and(|broken| broken.ino != used.ino) {
            self.report()?;
        }
        let place = used.fingerprint.0.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
        let place = place as usize % KNOWN;
        if self.known.get(place) == Some(&used.fingerprint) {
            return Ok(());
        }
        if !rate.wait(u64::from(used.place.stored_len), || self.check.reporter.goes_on()) {
            return Err(Failed::Stopped);
        }
        self.read.chunks += 1;
        self.read.bytes += u64::from(used.place.stored_len);
        match self.check.data.packs.read(&used.fingerprint, &used.place) {
            Ok(_) => {
                if let Some(known) = self.known.get_mut(place) {
                    *known = used.fingerprint;
                }
            }
            Err(error) => {
                (self.check.found)(self.check.id, used.ino, used.offset);
                let broken = self.broken.get_or_insert_with(|| Broken {
                    ino: used.ino,
                    first: used.offset,
                    bytes: 0,
                    cause: error.to_string(),
                });
                broken.bytes += used.len;
            }
        }
        Ok(())
    }

    /// Tells of the file that was read last.
    fn report(&mut self) -> Result<(), Failed> {
        let Some(Broken { ino, first, bytes, cause }) = self.broken.take() else {
            return Ok(());
        };
        let (store, id) = (&self.check.data.store, self.check.id);
        let path = store.read_noting(|kv| path(kv, id, ino))?.0?;
        let damage = Damage::Bytes { bytes, first, cause };
        self.check.finding(Finding { ino: Some(ino), path, entry: None, damage });
        Ok(())
    }
}
