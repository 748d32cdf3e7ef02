//! Records from a client's log.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use segue_core::namespace::{self, Admits, ApplyResult, Context, is_damage, refuse_damaged};
use segue_core::nouns::{
    Fingerprint, Ino, OpId, Outcome, Piece, PieceBytes, Record, Role, Stamped,
};
use segue_core::promise::Promising;
use segue_core::refusal::Refusal;
use segue_core::wire::{APPLY_MAX, Applied, Apply, Marked, Refused, Reply, are_valid};
use segue_rpc::{Body, BodyReader, CloseCode};

use super::upload::{Arrivals, Placed, index};
use super::{Answer, Bound, Session, refuse};
use crate::meta::{Kv, MetaFault, StoreError};
use crate::promises::Promises;

/// Records of one transaction. A thousand small ones take some 20 ms, for which every other host
/// would wait.
const SLICE_MAX: usize = 256;
/// The same, where single records take long.
const SLICE_TIME: Duration = Duration::from_millis(5);
/// Most outcomes of a client that it has not said that it knows: each is a row that no quota
/// counts.
const OUTCOMES_MAX: usize = 1 << 18;

/// Why not all records of a batch were tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// All were, or the last outcome is not final.
    Normal,
    /// Two caches have one log.
    Cloned,
    /// The client has another session. What it heard over that is not known here: a record that
    /// comes late may be one of which it knows the outcome.
    Replaced,
}

/// What a host hears whose cache is one of two.
const CLONED: &str = "this cache directory was copied, and the other copy has written since";

impl Session {
    pub(super) async fn apply(&self, bound: &Bound, apply: Apply, body: BodyReader) -> Answer {
        let ascending = apply.records.windows(2).all(|pair| match pair {
            [first, second] => first.seq < second.seq,
            _ => true,
        });
        if apply.records.len() > APPLY_MAX || !ascending {
            let words = format!("records come at most {APPLY_MAX} at a time, in ascending order");
            return Err(refuse(Refusal::Limit, words));
        }
        if apply.awaited.len() > APPLY_MAX {
            return Err(refuse(Refusal::Limit, "more files are created than there are records"));
        }
        if !are_valid(&apply.awaited) {
            return Err(refuse(Refusal::Invalid, "a file cannot be as one of these is announced"));
        }
        self.check_outcomes(bound, &apply).await?;
        let digests = apply.records.iter().map(digest).collect::<Result<Vec<_>, _>>();
        let digests = digests.map_err(|error| refuse(Refusal::Protocol, error.to_string()))?;
        let Arrivals { places, pin } = self.take_along(bound, &apply.chunks, body).await?;
        self.look_at_clones(bound, &apply.records).await?;
        let batch = Arc::new(Batch {
            damaged: self.server.data.packs.damaged(),
            proven: self.proven_of(&apply.records),
            volume: bound.volume,
            client: bound.client,
            incarnation: bound.incarnation,
            host: bound.host.clone(),
            rights: bound.rights,
            records: apply.records,
            digests,
            promises: Arc::clone(self.server.data.store.promises()),
            acked_below: apply.acked_below,
            is_replaced: Arc::clone(self.place.replaced()),
            admits: self.server.data.store.disk_space().admits(),
        });
        self.while_connected(self.server.data.store.promises().await_grace()).await?;
        if bound.rights.role != Role::Reader {
            self.server.data.store.promises().awaited(&bound.holder, apply.awaited);
        }
        let (outcomes, promising, end) = self.apply_slices(bound, &batch, places).await?;
        drop(pin);
        self.count(&outcomes);
        match end {
            End::Normal => {
                let promises = self.server.data.store.promises();
                let visible = promises.is_visible(bound.volume, &bound.holder);
                let heard = promises.heard_through(&bound.holder);
                let promised = Some(promising);
                Ok((Reply::Applied(Applied { outcomes, visible, promised, heard }), Body::Empty))
            }
            End::Cloned => {
                // Its next hello is refused, and it goes on as another client.
                self.peer.close(CloseCode::Done, CLONED);
                Err(refuse(Refusal::Copied, CLONED))
            }
            End::Replaced => Err(refuse(Refusal::Unreachable, "the connection is over")),
        }
    }

    /// Refuses records of a client that does not take in what became of its earlier ones.
    async fn check_outcomes(&self, bound: &Bound, apply: &Apply) -> Result<(), Refused> {
        let last = apply.records.last().map_or(0, |stamped| stamped.seq);
        let seqs = apply.acked_below..last;
        // Most numbers between them were given to nothing where a host died often.
        if seqs.end.saturating_sub(seqs.start) < OUTCOMES_MAX as u64 {
            return Ok(());
        }
        let of = OpId { client: bound.client, incarnation: bound.incarnation, seq: 0 };
        let kept = self.server.data.store.read(move |snapshot: &mut Kv<'_>| {
            namespace::count_outcomes(snapshot, of, seqs, OUTCOMES_MAX)
        });
        let kept = kept.await?.map_err(StoreError::from)?;
        if kept < OUTCOMES_MAX {
            return Ok(());
        }
        let words = "this host has not taken in the outcomes of its earlier changes";
        Err(refuse(Refusal::Limit, words))
    }

    /// Applies a batch, some records in each transaction: so others' changes come in between. The
    /// outcomes, and what the host may rely on of the inodes that they touched.
    async fn apply_slices(
        &self,
        bound: &Bound,
        batch: &Arc<Batch>,
        mut places: Vec<Placed>,
    ) -> Result<(Vec<Outcome>, Promising, End), Refused> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.records.len());
        let (mut but, mut marked) = (BTreeSet::new(), Marked::new());
        let promising =
            |but: BTreeSet<Ino>, marked| Promising { but: but.into_iter().collect(), marked };
        loop {
            let from = outcomes.len();
            let slice = from..batch.records.len().min(from + SLICE_MAX);
            let is_last = slice.end == batch.records.len();
            // The rows of chunks come with the record that needs them: nothing else holds them.
            let named = batch.chunks_of(&slice);
            let (now, later): (Vec<_>, Vec<_>) =
                places.into_iter().partition(|placed| is_last || named.contains(&placed.0));
            places = later;
            let (shared, wanted) = (Arc::clone(batch), slice.len());
            let work = move |txn: &mut Kv<'_>| {
                let done = shared.apply(txn, slice, &now)?;
                let told = Outcome::inodes(&done.outcomes);
                let tells = told.difference(&done.repeated).copied().collect();
                Ok((done, tells))
            };
            let done = self.server.data.store.write_as(bound.holder.id, work).await;
            let (Slice { outcomes: more, repeated, end, is_cut }, told) = match done {
                Ok(done) => done,
                // The client sends the others again, and hears then what is wrong.
                Err(_) if !outcomes.is_empty() => {
                    return Ok((outcomes, promising(but, marked), End::Normal));
                }
                Err(error) => return Err(error.into()),
            };
            but.extend(repeated.into_iter().chain(told.but.iter()));
            marked.extend(told.marked);
            let is_whole = is_cut || more.len() == wanted;
            let is_whole = is_whole && more.last().is_none_or(Outcome::is_final);
            outcomes.extend(more);
            if is_last && !is_cut || !is_whole || end != End::Normal {
                return Ok((outcomes, promising(but, marked), end));
            }
        }
    }

    /// Of the chunks that the records name, those that this session has shown to possess.
    fn proven_of(&self, records: &[Stamped]) -> Vec<Fingerprint> {
        let proven = self.proven();
        let mut found = Vec::new();
        for stamped in records {
            let Record::Store(store) = &stamped.record else { continue };
            for piece in &store.pieces {
                let (PieceBytes::Chunk { fingerprint: name, .. }
                | PieceBytes::Leaf { leaf: name, .. }) = &piece.bytes
                else {
                    continue;
                };
                if proven.contains(name) {
                    found.push(*name);
                }
            }
        }
        found.sort_unstable();
        found
    }

    fn count(&self, outcomes: &[Outcome]) {
        let metrics = &self.server.metrics;
        for outcome in outcomes {
            match outcome {
                Outcome::Done { .. } => {}
                Outcome::Conflict { .. } => {
                    metrics.conflicts.inc();
                }
                Outcome::Refused { .. } => {
                    metrics.refused.inc();
                }
                Outcome::NeedsWhole | Outcome::Missing { .. } => continue,
            }
            metrics.records.inc();
        }
    }
}

/// A record's digest, by which a repeat is told from another record with its number.
fn digest(stamped: &Stamped) -> Result<[u8; 32], postcard::Error> {
    Ok(*blake3::hash(&postcard::to_stdvec(&stamped.identity())?).as_bytes())
}

/// What came of some records.
struct Slice {
    outcomes: Vec<Outcome>,
    /// The inodes that outcomes of before touched.
    repeated: BTreeSet<Ino>,
    end: End,
    /// It took long, and others' changes come before the rest.
    is_cut: bool,
}

/// Whose records are applied.
struct Batch {
    volume: segue_core::nouns::VolumeId,
    client: segue_core::nouns::ClientId,
    incarnation: u32,
    host: String,
    rights: namespace::Rights,
    /// Ascending.
    proven: Vec<Fingerprint>,
    damaged: Arc<namespace::DamagedChunks>,
    records: Vec<Stamped>,
    digests: Vec<[u8; 32]>,
    promises: Arc<Promises>,
    acked_below: u64,
    is_replaced: Arc<AtomicBool>,
    /// When they came.
    admits: Admits,
}

impl Batch {
    /// The chunks that the records of `slice` name.
    fn chunks_of(&self, slice: &Range<usize>) -> BTreeSet<Fingerprint> {
        let records = self.records.get(slice.clone()).unwrap_or_default();
        let stores = records.iter().filter_map(|stamped| match &stamped.record {
            Record::Store(store) => Some(store),
            _ => None,
        });
        let name = |piece: &Piece| match piece.bytes {
            PieceBytes::Chunk { fingerprint, .. } => Some(fingerprint),
            _ => None,
        };
        stores.flat_map(|store| store.pieces.iter().filter_map(name)).collect()
    }

    /// Applies the records of `slice`, whose chunks are at `places`.
    fn apply(
        &self,
        txn: &mut Kv<'_>,
        slice: Range<usize>,
        places: &[Placed],
    ) -> Result<Slice, MetaFault> {
        let mut repeated = BTreeSet::new();
        // On the store thread, as the later session's hello was.
        if self.is_replaced.load(Ordering::Acquire) {
            let (outcomes, is_cut) = (Vec::new(), false);
            return Ok(Slice { outcomes, repeated, end: End::Replaced, is_cut });
        }
        index(txn, self.volume, places, 0)?;
        let records = self.records.get(slice.clone()).unwrap_or_default();
        let digests = self.digests.get(slice).unwrap_or_default();
        // Here, because a mark that comes later finds the file.
        let awaited = self.promises.awaited_of(self.volume, self.client, records);
        let context = Context {
            volume: self.volume,
            client: self.client,
            incarnation: self.incarnation,
            host: &self.host,
            rights: self.rights,
            is_shared: self.promises.has_others(self.volume, self.client),
            proven: &|fingerprint| self.proven.binary_search(fingerprint).is_ok(),
            admits: self.admits,
            damaged: &self.damaged,
            awaited: &awaited,
        };
        // First, because a floor that cannot be read is put right by it.
        namespace::raise_floor(txn, self.client, self.incarnation, self.acked_below)?;
        let (mut outcomes, mut end) = (Vec::with_capacity(records.len()), End::Normal);
        let (began, mut is_cut) = (Instant::now(), false);
        for (stamped, digest) in records.iter().zip(digests) {
            // The client sends the others again, and SQLite has the rows of these by then.
            if txn.is_large() && !outcomes.is_empty() {
                break;
            }
            is_cut = !outcomes.is_empty() && began.elapsed() > SLICE_TIME;
            if is_cut {
                break;
            }
            match namespace::apply(txn, &context, stamped, digest) {
                Ok(ApplyResult::Repeated(outcome)) => {
                    repeated.extend(outcome.touched().iter().map(|attr| attr.ino));
                    outcomes.push(outcome);
                }
                Ok(ApplyResult::Outcome(outcome)) => {
                    let last = !outcome.is_final();
                    outcomes.push(outcome);
                    if last {
                        break;
                    }
                }
                Ok(ApplyResult::Cloned) => {
                    namespace::copied::retire(txn, self.client)?;
                    end = End::Cloned;
                    break;
                }
                // The record has changed nothing, and those before it stay.
                Err(fault) if is_damage::<Kv<'_>>(&fault) => {
                    tracing::error!("record {} of {:?}: {fault}", stamped.seq, self.client);
                    outcomes.push(refuse_damaged(txn, &context, stamped, digest)?);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(Slice { outcomes, repeated, end, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use segue_core::namespace::{BindError, DamagedChunks, Rights};
    use segue_core::nouns::{Caller, ClientId, Name, NewNode, Role, Timestamp};

    use super::*;
    use crate::meta::Store;

    const CLIENT: ClientId = ClientId([1; 16]);

    /// A client knows what became of change 3, and that comes once more. The end of it, and
    /// whether the client is welcome afterwards.
    fn late(is_replaced: bool) -> (End, Result<(), BindError>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::make(&dir.path().join("meta.db")).unwrap();
        let promises = Arc::clone(store.promises());
        let work = move |txn: &mut Kv<'_>| {
            let volume = namespace::create_volume(txn, "home", [7; 16], Timestamp::default())?;
            let volume = volume.unwrap();
            namespace::bind(txn, CLIENT, "tin", volume, 1)?.unwrap();
            namespace::raise_floor(txn, CLIENT, 1, 4)?;
            let (parent, name, ino) = (Ino::ROOT, Name::new("f").unwrap(), Ino(1 << 20));
            let (node, mode, uid, gid) = (NewNode::File, 0o644, 0, 0);
            let record = Record::Create { parent, name, ino, node, mode, uid, gid };
            let (time, caller) = (Timestamp::default(), Caller::default());
            let stamped = Stamped { seq: 3, time, caller, operation: None, known: None, record };
            let batch = Batch {
                volume,
                client: CLIENT,
                incarnation: 1,
                host: "tin".into(),
                rights: Rights { role: Role::Writer, no_root_squash: false },
                proven: Vec::new(),
                damaged: Arc::new(DamagedChunks::new(0)),
                digests: vec![digest(&stamped).unwrap()],
                records: vec![stamped],
                promises,
                acked_below: 3,
                is_replaced: Arc::new(AtomicBool::new(is_replaced)),
                admits: Admits::All,
            };
            let slice = batch.apply(txn, 0..1, &[])?;
            assert!(slice.outcomes.is_empty());
            Ok((slice.end, namespace::bind(txn, CLIENT, "tin", volume, 1)?))
        };
        store.write_blocking(work).unwrap()
    }

    /// The connection over which it came was slow, and its host made another one. The client was
    /// taken for a copy of its cache.
    #[test]
    fn a_late_record_of_an_earlier_session_makes_no_copy_of_its_client() {
        assert_eq!(late(true), (End::Replaced, Ok(())));
        assert_eq!(late(false), (End::Cloned, Err(BindError::OldIncarnation)));
    }
}
