//! Chunks that come in: offered, then sent where they are missing.
//!
//! An offer counts only with proof: whoever knows a fingerprint without having the chunk must
//! not get at it by linking it into a file. A chunk that is sent is its own proof. It is synced
//! before its row is committed, and that before the answer. It counts against the volume's quota
//! before it is in a file; what comes along with records is in one at once, or not kept. Of a
//! reader nothing is kept.

use std::sync::Arc;

use bytes::Bytes;
use segue_core::chunk::{CHUNK_MAX, fingerprint, possession_proof};
use segue_core::namespace::arrivals::{self, BroughtFor};
use segue_core::namespace::{self, ChunkPlace};
use segue_core::nouns::{Fingerprint, Ino, Role, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::{APPLY_BODY_MAX, OFFER_MAX, Offer, Put, Refused, Reply, Stored, Wanted};
use segue_rpc::codec::{Block, BlockReader, decompress};
use segue_rpc::{Body, BodyReader};

use super::{Answer, Bound, Session, delta, lost, refuse};
use crate::clock::now_seconds;
use crate::disk_space::Purpose;
use crate::meta::{Kv, MetaFault, StoreError};
use crate::packs::{ChunkError, Pin, StoredChunk};
use crate::serve::Server;

/// Bytes of chunks held in memory before they are written and committed.
const BATCH_BYTES: usize = 4 << 20;

impl Session {
    pub(super) async fn offer(&self, bound: &Bound, offer: Offer) -> Answer {
        if offer.chunks.len() > OFFER_MAX {
            return Err(refuse(Refusal::Limit, format!("an offer has at most {OFFER_MAX} chunks")));
        }
        let _pin = self.server.data.packs.pin();
        let names = offer.chunks.iter().map(|(fingerprint, _)| *fingerprint);
        let rows = self.places(bound.volume, names).await?;
        let known: Vec<bool> = {
            let proven = self.proven();
            // A chunk that was damaged since it was shown is read again.
            let is_whole = |fingerprint, row: &Option<ChunkPlace>| {
                row.is_none_or(|place| !self.server.data.packs.is_damaged(fingerprint, &place))
            };
            let offered = offer.chunks.iter().zip(&rows);
            let known =
                offered.map(|((name, _), row)| proven.contains(name) && is_whole(name, row));
            known.collect()
        };
        let (server, nonce) = (self.server.clone(), bound.nonce);
        let check = move || {
            let mut shown = Vec::with_capacity(rows.len());
            for ((row, known), (fingerprint, proof)) in rows.iter().zip(known).zip(&offer.chunks) {
                shown.push(
                    row.is_some_and(|row| {
                        known || proves(&server, &nonce, fingerprint, &row, proof)
                    }),
                );
            }
            (shown, offer)
        };
        let (shown, offer) = tokio::task::spawn_blocking(check).await.map_err(lost)?;
        let mut indexes = Vec::new();
        let mut proven = self.proven();
        for (index, ((fingerprint, _), shown)) in (0..).zip(offer.chunks.iter().zip(shown)) {
            match shown {
                true => proven.insert(*fingerprint),
                false => indexes.push(index),
            }
        }
        self.server.metrics.chunks_known.inc_by((offer.chunks.len() - indexes.len()) as u64);
        Ok((Reply::Wanted(Wanted { indexes }), Body::Empty))
    }

    pub(super) async fn put(&self, bound: &Bound, put: Put, body: BodyReader) -> Answer {
        if put.chunks.len() > OFFER_MAX {
            return Err(refuse(
                Refusal::Limit,
                format!("at most {OFFER_MAX} chunks are put at once"),
            ));
        }
        bound.brings()?;
        delta::check(&put)?;
        let files = few_files(put.files)?;
        let mut deltas = put.deltas.iter().peekable();
        let mut blocks = BlockReader::new(body);
        let (mut batch, mut bytes, mut lacking) = (Vec::new(), 0, Vec::new());
        for (index, named) in (0..).zip(put.chunks) {
            let block = next_block(&mut blocks, named.1).await?;
            let chunk = match deltas.next_if(|delta| delta.index == index) {
                None => Some(whole(named, block)),
                Some(delta) => self.undelta(bound, delta, (named.0, block)).await?,
            };
            let Some(chunk) = chunk else {
                lacking.push(index);
                continue;
            };
            bytes += chunk.stored.len();
            batch.push(chunk);
            if bytes >= BATCH_BYTES {
                self.keep(bound, std::mem::take(&mut batch), &files).await?;
                bytes = 0;
            }
        }
        self.keep(bound, batch, &files).await?;
        Ok((Reply::Stored(Stored { lacking }), Body::Empty))
    }

    /// Stores the chunks that records bring along; their rows are for the records' transaction.
    pub(super) async fn take_along(
        &self,
        bound: &Bound,
        chunks: &[(Fingerprint, u32)],
        body: BodyReader,
    ) -> Result<Arrivals, Refused> {
        if bound.brings().is_err() {
            return self.place(bound, Vec::new()).await;
        }
        let mut blocks = BlockReader::new(body);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for named in chunks.iter().take(OFFER_MAX) {
            let chunk = whole(*named, next_block(&mut blocks, named.1).await?);
            bytes += chunk.stored.len();
            if bytes > APPLY_BODY_MAX {
                let words = format!(
                    "the data of records in one message have at most {APPLY_BODY_MAX} bytes"
                );
                return Err(refuse(Refusal::Limit, words));
            }
            batch.push(chunk);
        }
        self.place(bound, batch).await
    }

    /// Stores chunks for `files` and records where they are, if the volume takes them. It is
    /// asked before the disk gets any, and again with the rows: others write meanwhile.
    async fn keep(
        &self,
        bound: &Bound,
        chunks: Vec<StoredChunk>,
        files: &Arc<[Ino]>,
    ) -> Result<(), Refused> {
        let (volume, client) = (bound.volume, bound.client);
        let named = chunks.iter().map(|chunk| (chunk.fingerprint, chunk.raw_len));
        let named: Arc<[(Fingerprint, u32)]> = named.collect();
        let (asked, of) = (named.clone(), files.clone());
        let taken = self
            .server
            .data
            .store
            .read(move |kv| {
                arrivals::admit_chunks(kv, volume, &asked, BroughtFor { client, files: &of })
            })
            .await?;
        taken.map_err(StoreError::from)?.map_err(full)?;
        let Arrivals { places, pin } = self.place(bound, chunks).await?;
        let (files, due) = (files.clone(), namespace::lease(now_seconds()));
        let work = move |txn: &mut Kv<'_>| {
            if let Err(refusal) =
                arrivals::admit_chunks(txn, volume, &named, BroughtFor { client, files: &files })?
            {
                return Ok(Err(refusal));
            }
            index(txn, volume, &places, due).map(Ok)
        };
        let taken = self.server.data.store.write(work).await?;
        drop(pin);
        taken.map_err(full)
    }

    /// Stores chunks durably, and remembers that this session has them.
    async fn place(&self, bound: &Bound, chunks: Vec<StoredChunk>) -> Result<Arrivals, Refused> {
        let pin = self.server.data.packs.pin();
        if chunks.is_empty() {
            return Ok(Arrivals { places: Vec::new(), pin });
        }
        let volume = bound.volume;
        let fingerprints: Vec<Fingerprint> = chunks.iter().map(|chunk| chunk.fingerprint).collect();
        let known = self.places(volume, fingerprints.iter().copied()).await?;
        let server = self.server.clone();
        let work = move || write(&server, volume, chunks, &known);
        let places = tokio::task::spawn_blocking(work).await.map_err(lost)??;
        let mut proven = self.proven();
        fingerprints.into_iter().for_each(|fingerprint| proven.insert(fingerprint));
        Ok(Arrivals { places, pin })
    }

    /// Where chunks are, as far as they are here.
    async fn places(
        &self,
        volume: VolumeId,
        fingerprints: impl Iterator<Item = Fingerprint>,
    ) -> Result<Vec<Option<ChunkPlace>>, Refused> {
        let fingerprints: Vec<_> = fingerprints.collect();
        let look = move |snapshot: &mut Kv<'_>| -> Result<Vec<_>, MetaFault> {
            let place = |fingerprint| {
                Ok(namespace::chunk(snapshot, volume, fingerprint)?.map(|row| row.place))
            };
            fingerprints.iter().map(place).collect()
        };
        let rows = self.server.data.store.read(look).await?;
        Ok(rows.map_err(StoreError::from)?)
    }
}

impl Bound {
    /// Refuses what a reader brings, as if there were no room: its host then sends the record
    /// without it, and hears with that that it changes nothing.
    pub(super) fn brings(&self) -> Result<(), Refused> {
        match self.rights.role {
            Role::Reader => Err(refuse(Refusal::Quota, "this identity may only read")),
            Role::Writer | Role::Host => Ok(()),
        }
    }
}

/// The next block of a body, for a chunk of the length that was named.
async fn next_block(blocks: &mut BlockReader, raw_len: u32) -> Result<Block, Refused> {
    let block = blocks.next_stored().await;
    let block = block.map_err(|error| refuse(Refusal::Protocol, error.to_string()))?;
    let block = block.ok_or_else(|| refuse(Refusal::Protocol, "fewer chunks than named"))?;
    if block.raw_len != raw_len as usize || block.raw_len > CHUNK_MAX || raw_len == 0 {
        return Err(refuse(Refusal::Protocol, "a chunk has another length than named"));
    }
    Ok(block)
}

/// A chunk that came whole.
fn whole((fingerprint, raw_len): (Fingerprint, u32), block: Block) -> StoredChunk {
    StoredChunk { fingerprint, raw_len, stored: block.stored }
}

/// A place for a chunk, and the one that it may replace.
pub(super) type Placed = (Fingerprint, ChunkPlace, Option<ChunkPlace>);

/// Chunks that are on the disk and in no row yet.
pub(super) struct Arrivals {
    pub(super) places: Vec<Placed>,
    /// Held until the rows are committed: no row leads to their packs so far.
    pub(super) pin: Pin,
}

/// Checks chunks, and writes those that are not here already, to the disk.
fn write(
    server: &Arc<Server>,
    volume: VolumeId,
    chunks: Vec<StoredChunk>,
    known: &[Option<ChunkPlace>],
) -> Result<Vec<Placed>, Refused> {
    let (mut new, mut replaced) = (Vec::new(), Vec::new());
    for (chunk, place) in chunks.into_iter().zip(known) {
        check(&chunk)?;
        // One that is here but damaged is written anew: the upload heals it.
        if place.is_none_or(|place| read(server, &chunk.fingerprint, &place).is_none()) {
            server.metrics.chunks_received.inc();
            server.metrics.chunk_bytes_received.inc_by(chunk.stored.len() as u64);
            new.push(chunk);
            replaced.push(*place);
        }
    }
    let places = server.data.keep(volume, &new, Purpose::Store)?;
    for (chunk, old) in new.iter().zip(&replaced) {
        let Some(old) = old else { continue };
        server.metrics.chunks_healed.inc();
        tracing::info!("chunk {} was damaged, and a host sent it again", chunk.fingerprint);
        server.data.packs.healed(&chunk.fingerprint, old);
    }
    let names = new.iter().map(|chunk| chunk.fingerprint);
    Ok(names.zip(places).zip(replaced).map(|((name, place), old)| (name, place, old)).collect())
}

fn check(chunk: &StoredChunk) -> Result<(), Refused> {
    let raw = decompress(chunk.raw_len as usize, chunk.stored.clone());
    match raw {
        Ok(raw) if fingerprint(&raw) == chunk.fingerprint => Ok(()),
        _ => Err(refuse(Refusal::Protocol, "a chunk does not match its fingerprint")),
    }
}

/// Records where chunks are. What nothing needs is kept until `due`.
pub(super) fn index(
    txn: &mut Kv<'_>,
    volume: VolumeId,
    places: &[Placed],
    due: u64,
) -> Result<(), MetaFault> {
    places.iter().try_for_each(|(fingerprint, place, known)| {
        namespace::arrived(txn, (volume, fingerprint), *place, *known, due)
    })
}

/// The files that chunks are for.
pub(super) fn few_files(files: Vec<Ino>) -> Result<Arc<[Ino]>, Refused> {
    match files.len() > OFFER_MAX {
        true => Err(refuse(Refusal::Limit, format!("chunks are for at most {OFFER_MAX} files"))),
        false => Ok(files.into()),
    }
}

/// What a host hears whose chunks the volume does not take.
pub(super) fn full(refusal: Refusal) -> Refused {
    refuse(refusal, "the quota of the volume is reached")
}

fn proves(
    server: &Arc<Server>,
    nonce: &[u8; 32],
    fingerprint: &Fingerprint,
    place: &ChunkPlace,
    proof: &Fingerprint,
) -> bool {
    read(server, fingerprint, place).is_some_and(|raw| possession_proof(nonce, &raw) == *proof)
}

/// A chunk that is to be here; `None` if it cannot be read.
pub(super) fn read(
    server: &Arc<Server>,
    fingerprint: &Fingerprint,
    place: &ChunkPlace,
) -> Option<Bytes> {
    match server.data.packs.read(fingerprint, place) {
        Ok((_, raw)) => Some(raw),
        Err(error) => {
            note(server, &error);
            None
        }
    }
}

/// Counts and reports a chunk that cannot be read.
pub(super) fn note(server: &Arc<Server>, error: &ChunkError) {
    server.metrics.damaged.inc();
    tracing::error!("cannot read a chunk: {error}");
}
