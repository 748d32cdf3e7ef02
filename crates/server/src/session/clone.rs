//! Copies by reference: their chunks are read before the record is applied.
//!
//! A reference to a chunk that cannot be read would be another damaged file. `apply` refuses one to
//! a chunk that is known to be damaged; the reads here find damage of which nothing is known yet,
//! or nothing since the server's start. Copies of very large files have to be instant. So the reads
//! for one request are bounded, and the rest of a large file is copied unless its damage is known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_core::nouns::{Fingerprint, Ino, Record, Stamped, Version, VolumeId};
use segue_core::upkeep::check::chunk_uses_of;
use segue_core::wire::Refused;

use super::upload::read;
use super::{Bound, Session, lost};
use crate::serve::Server;

/// Bytes that are read for the copies in one request.
const READ_MAX: u64 = 256 << 20;
/// A smaller chunk counts as so many bytes: the disk has to look for it.
const CHUNK_MIN: u64 = 16 << 10;

impl Session {
    /// Reads the chunks of the files that `records` copy, so that damage to them is known.
    pub(super) async fn look_at_clones(
        &self,
        bound: &Bound,
        records: &[Stamped],
    ) -> Result<(), Refused> {
        let source = |stamped: &Stamped| match stamped.record {
            Record::Clone { from, version, .. } => Some((from, version)),
            _ => None,
        };
        let sources: BTreeSet<(Ino, Version)> = records.iter().filter_map(source).collect();
        if sources.is_empty() {
            return Ok(());
        }
        // The semaphore is never closed.
        let _place = self.rooms.differences.acquire().await;
        let (server, volume) = (self.server.clone(), bound.volume);
        let work = move || {
            let mut left = READ_MAX;
            sources.into_iter().for_each(|source| look(&server, volume, source, &mut left));
        };
        tokio::task::spawn_blocking(work).await.map_err(lost)
    }
}

/// Reads chunks of a file to the first damaged one, or until nothing is `left` to read.
fn look(server: &Arc<Server>, volume: VolumeId, source: (Ino, Version), left: &mut u64) {
    let (mut from, mut seen) = (Some(0), BTreeSet::<Fingerprint>::new());
    while let Some(at) = from {
        let _pin = server.data.packs.pin();
        let page = server.data.store.read_blocking(|kv| chunk_uses_of(kv, volume, source, at));
        // The record meets the error, or the other data.
        let Ok(Ok(Some((uses, next)))) = page else { return };
        for used in uses {
            if *left == 0 || server.stopping.load(Ordering::Acquire) {
                return;
            }
            if !seen.insert(used.fingerprint) {
                continue;
            }
            *left = left.saturating_sub(u64::from(used.place.raw_len).max(CHUNK_MIN));
            if read(server, &used.fingerprint, &used.place).is_none() {
                server.healing.found(volume, used.ino, used.offset);
                return;
            }
        }
        from = next;
    }
}
