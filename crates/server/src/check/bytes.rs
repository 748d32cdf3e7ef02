//! The bytes of a volume's chunks, each read from its pack, decompressed and fingerprinted.

use std::time::{Duration, Instant};

use segue_core::namespace::check::{ChunkUse, Counts, Damage, Finding, Visitor, chunk_uses, path};
use segue_core::types::{Fingerprint, Ino};

use super::{Check, CheckLine, Failed};

/// Chunks remembered as whole: 8 MiB of fingerprints, for 16 GiB of small chunks. One that was
/// forgotten is read again.
const KNOWN: usize = 1 << 18;
/// Longest sleep, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(100);
/// How far behind its rate a check may be and still catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// What was read.
#[derive(Clone, Copy, Default)]
pub(super) struct Read {
    pub(super) chunks: u64,
    pub(super) bytes: u64,
}

/// A limit to bytes in a second.
pub(super) struct Pace {
    rate_bytes: u64,
    began: Instant,
    bytes: u64,
}

impl Pace {
    /// `rate_bytes` a second, 0 for no limit.
    pub(super) fn new(rate_bytes: u64) -> Pace {
        Pace { rate_bytes, began: Instant::now(), bytes: 0 }
    }

    /// Counts `bytes` and returns when they may have been read, or with `goes_on` false.
    fn wait(&mut self, bytes: u32, goes_on: impl Fn() -> bool) {
        if self.rate_bytes == 0 {
            return;
        }
        let due = self.due(bytes, Instant::now());
        while goes_on()
            && let Some(left) = due.checked_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(NAP));
        }
    }

    /// When `bytes` more may have been read.
    fn due(&mut self, bytes: u32, now: Instant) -> Instant {
        self.bytes += u64::from(bytes);
        // Bytes over bytes a second; f64 is exact enough for a sleep.
        let due = self.began + Duration::from_secs_f64(self.bytes as f64 / self.rate_bytes as f64);
        if now > due + BEHIND {
            // What was not read then is not made up for now.
            (self.began, self.bytes) = (now, 0);
            return now;
        }
        due
    }
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
    pace: &mut Pace,
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
            bytes.one(&used, pace)?;
            done += used.len;
            let (volume, inodes) = (&bytes.check.name, counts.inodes);
            // Files may have grown since they were counted.
            let line = || CheckLine::Progress {
                volume: volume.clone(),
                inodes,
                bytes: done,
                total_bytes: counts.in_chunks.max(done),
            };
            if !bytes.check.teller.progress(line) {
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
    fn one(&mut self, used: &ChunkUse, pace: &mut Pace) -> Result<(), Failed> {
        if self.broken.as_ref().is_some_and(|broken| broken.ino != used.ino) {
            self.report()?;
        }
        let place = used.fingerprint.0.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
        let place = place as usize % KNOWN;
        if self.known.get(place) == Some(&used.fingerprint) {
            return Ok(());
        }
        pace.wait(used.place.stored_len, || self.check.teller.goes_on());
        self.read.chunks += 1;
        self.read.bytes += u64::from(used.place.stored_len);
        match self.check.data.packs.read(&used.fingerprint, &used.place) {
            Ok(_) => {
                if let Some(known) = self.known.get_mut(place) {
                    *known = used.fingerprint;
                }
            }
            Err(error) => {
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
        self.check.finding(Finding { ino: Some(ino), path, damage });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate holds over hours; a disk that stood still meanwhile neither earns a burst nor
    /// costs a wait.
    #[test]
    fn reading_keeps_to_its_rate() {
        let mut pace = Pace::new(1_000_000);
        let start = pace.began;
        let mut now = start;
        for second in 1..=3_600 {
            now = pace.due(1_000_000, now);
            assert_eq!(now - start, Duration::from_secs(second));
        }
        now += Duration::from_secs(60);
        assert_eq!(pace.due(1_000_000, now), now);
        assert_eq!(pace.due(1_000_000, now) - now, Duration::from_secs(1));
    }
}
