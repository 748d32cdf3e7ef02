//! Healing by hosts: damage that was found is asked for at hosts that probably have the bytes.
//!
//! ```text
//!   a read, a copy or a check        this task                       a host
//!        │── found ─────────────────▶│ reads the part of the file       │
//!        │                           │── HEAL: place, fingerprint ─────▶│ compares its cache
//!        │                           │            (session) ◀── PUT ────│
//!        │                           │◀─ how many it sent ──────────────│
//! ```
//!
//! A host may fetch each file of its volume, so the fingerprints tell it nothing new. The bytes
//! come by PUT, which verifies them, so a host that lies heals nothing and harms nothing. A chunk
//! that has a row is charged already. A chunk of which the file uses a part only is not asked for:
//! no host could make it of the file.
//!
//! One part of a file is healed at a time, with a bounded number of hosts. A host that does not
//! answer in time is not asked again before it reconnects.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use segue_core::healing::{DamagedPart, Healing as Table, PART_BYTES};
use segue_core::namespace::{self, read};
use segue_core::nouns::{Ino, Time, VolumeId};
use segue_core::promise::{SessionId, TERM};
use segue_core::upkeep::check::{ChunkUse, chunk_uses_of, path};
use segue_core::wire::{Heal, OFFER_MAX, Reply, Request};
use segue_rpc::{Body, Peer};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::serve::Server;

/// Parts of files of which damage is remembered.
const PARTS_MAX: usize = 1024;
/// Hosts that are asked for a part.
const HOSTS_MAX: usize = 8;
/// Bytes that one call asks for: a host on a slow link sends them in the time that it has.
const CALL_BYTES: u64 = 1 << 20;
/// Silent hosts that are remembered: more than there are sessions.
const SILENT_MAX: usize = 4096;

/// Damage that hosts are to be asked for.
pub(crate) struct Healing {
    table: Mutex<Table>,
    found: Notify,
    started: Instant,
}

impl Healing {
    pub(crate) fn new() -> Healing {
        let table = Mutex::new(Table::new(PARTS_MAX));
        Healing { table, found: Notify::new(), started: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A byte of a file could not be read.
    pub(crate) fn found(&self, volume: VolumeId, ino: Ino, offset: u64) {
        if self.lock().found((volume, ino), offset, Time(self.started.elapsed())) {
            self.found.notify_one();
        }
    }

    async fn next(&self) -> DamagedPart {
        loop {
            let next = self.lock().take_next();
            match next {
                Some(part) => return part,
                None => self.found.notified().await,
            }
        }
    }
}

/// Asks hosts for damage, for as long as the server serves.
pub(crate) async fn run(server: Arc<Server>) {
    let mut silent = BTreeSet::new();
    loop {
        let part = server.healing.next().await;
        heal(&server, part, &mut silent).await;
        if silent.len() > SILENT_MAX {
            silent.clear();
        }
    }
}

/// Has hosts send what is damaged of `part`.
async fn heal(server: &Arc<Server>, part: DamagedPart, silent: &mut BTreeSet<SessionId>) {
    let DamagedPart { volume, ino, .. } = part;
    let looking = server.clone();
    let looked = tokio::task::spawn_blocking(move || look(&looking, part)).await;
    let Ok(mut damaged) = looked else { return };
    let count = damaged.len();
    for (id, peer) in server.data.store.promises().likely_holders((volume, ino), HOSTS_MAX) {
        if damaged.is_empty() {
            break;
        }
        if silent.contains(&id) {
            continue;
        }
        if !ask(&peer, ino, &damaged).await {
            silent.insert(id);
        }
        damaged = still_damaged(server, volume, damaged).await;
    }
    let healed = count - damaged.len();
    if count == 0 {
        return;
    }
    let path = server.data.store.read(move |kv| path(kv, volume, ino).ok().flatten()).await;
    let path = path.ok().flatten();
    tracing::info!(path, %ino, "hosts have healed {healed} of {count} damaged chunks of a file");
}

/// The damaged chunks of which `part` has all bytes.
fn look(server: &Server, part: DamagedPart) -> Vec<ChunkUse> {
    let DamagedPart { volume, ino, start } = part;
    let end = start.saturating_add(PART_BYTES);
    let (store, packs) = (&server.data.store, &server.data.packs);
    let mut damaged = Vec::new();
    let Ok(Ok(node)) = store.read_blocking(|kv| read::getattr(kv, volume, ino)) else {
        return damaged;
    };
    let file = (ino, node.attr.data_version);
    let (mut from, mut seen) = (Some(start), BTreeSet::new());
    while let Some(at) = from.filter(|at| *at < end) {
        let _pin = packs.pin();
        let page = store.read_blocking(|kv| chunk_uses_of(kv, volume, file, at));
        let Ok(Ok(Some((uses, next)))) = page else { break };
        for used in uses {
            if server.stopping.load(Ordering::Acquire) {
                return damaged;
            }
            let is_here = used.offset < end && used.offset.saturating_add(used.len) > start;
            let is_whole = used.len == u64::from(used.place.raw_len);
            if is_here
                && is_whole
                && seen.insert(used.fingerprint)
                && packs.read(&used.fingerprint, &used.place).is_err()
            {
                damaged.push(used);
            }
        }
        from = next;
    }
    damaged
}

/// Asks a host for chunks, some in each call. False if it does not answer in time.
async fn ask(peer: &Peer, ino: Ino, damaged: &[ChunkUse]) -> bool {
    let mut rest = damaged;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |used: &&ChunkUse| {
            bytes += used.len;
            bytes <= CALL_BYTES
        };
        let count = rest.iter().take(OFFER_MAX).take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count.min(rest.len()));
        let chunk = |used: &ChunkUse| (used.offset, used.fingerprint, used.place.raw_len);
        let request = Request::Heal(Heal { ino, chunks: now.iter().map(chunk).collect() });
        match timeout(TERM, peer.call(&request, Body::Empty)).await {
            Ok(Ok(response)) if matches!(response.reply, Reply::Healed(_)) => rest = later,
            // It is gone, or of another kind.
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    true
}

/// Those of `damaged` that stand where they stood.
async fn still_damaged(
    server: &Arc<Server>,
    volume: VolumeId,
    damaged: Vec<ChunkUse>,
) -> Vec<ChunkUse> {
    let kept = damaged.clone();
    let look = server.data.store.read(move |kv| {
        let mut still = kept;
        still.retain(|used| {
            let row = namespace::chunk(kv, volume, &used.fingerprint);
            row.is_ok_and(|row| row.is_some_and(|row| row.place == used.place))
        });
        still
    });
    look.await.unwrap_or(damaged)
}
