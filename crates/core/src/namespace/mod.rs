//! The server's tree: POSIX rules over an ordered key-value transaction, each record once.
//!
//! ```text
//!   Stamped ──▶ apply ──▶ recall: same OpId before? ── yes ─▶ the stored outcome
//!                 │ no
//!                 ▼
//!        one rule (create, remove, rename, setattr, store) on an overlay
//!                 │                                    │
//!          done or conflict                     refused / not yet
//!                 ▼                                    ▼
//!   overlay + outcome written together     overlay dropped; a refusal's outcome written
//! ```
//!
//! The rules are written once, here, above [`MetaTxn`]; the server puts SQLite under it and
//! tests put a `BTreeMap`. A rule works on an overlay, so one that stops half-way leaves
//! nothing. What a record leads to and its outcome become durable in one transaction: a repeat
//! finds the outcome and changes nothing.
//!
//! Invariant: nothing that two hosts did is silently lost. Where the server's state is not the
//! one that a change was made from, the server's stays under its name and ours goes beside it
//! as `NAME.conflict-HOST-TIME`.
//!
//! Chunks are referred to, and counted by `refs`. `crate::upkeep`, which this module does not use,
//! removes those without references, checks volumes and repairs them.

pub mod arrivals;
mod awaited;
pub mod changes;
mod clone;
mod conflict;
pub mod copied;
mod copy_name;
pub(crate) mod create;
mod damaged_chunks;
pub mod equal;
pub(crate) mod extents;
mod greet;
mod hard_links;
pub mod keys;
mod lead;
mod limits;
pub mod lives;
mod lost_tail;
mod map;
mod outcome;
pub mod outline;
mod overlay;
mod permission;
pub(crate) mod quota;
pub mod read;
pub(crate) mod refs;
pub(crate) mod remnant;
mod remove;
mod rename;
pub(crate) mod rows;
pub(crate) mod session;
mod setattr;
mod store;
pub(crate) mod tree;
pub(crate) mod volume;
pub mod watch;

#[cfg(test)]
pub(crate) mod tests;

pub use awaited::{all_awaited, awaited_news, take_in_awaited};
pub use copy_name::{original_name, utc};
pub use damaged_chunks::DamagedChunks;
pub use extents::Contents;
pub use greet::{Greeted, Unwelcome, greet};
pub use lead::{Led, lead};
pub use limits::{
    COUNTED_MAX, LimitError, QUOTAS_MAX, find_directory, limit_directory, limit_volume, quota_of,
    quotas,
};
pub use map::MapStore;
pub use outcome::{ApplyResult, count_outcomes};
pub(crate) use permission::mode_after_write;
pub use permission::{Rights, personal_mode};
pub use quota::{Limits, QuotaRow, Usage, check_border, space};
pub use refs::{
    Held, LEAF_EXTENTS_MAX, LEASE_SECONDS, NotStaged, arrived, leaf_name, leaf_of, leaf_wanted,
    lease, stage,
};
pub use remnant::{REMNANT_BYTES_MAX, REMNANTS_MAX, RemnantTally, remnant_tally};
pub use rows::{
    ChunkPlace, ChunkRow, ClientRow, Extent, LeafRow, PackRow, Source, Tally, VolumeRow, chunk,
    get_row, put_row,
};
pub use session::{BindError, GRANT_COUNT, bind, drop_orphans, grant, grants, raise_floor, seen};
pub use setattr::{XATTR_COUNT_MAX, check_xattr_shape};
pub use volume::{
    Readable, VolumeError, create_volume, delete_volume, find_volume, is_unused, tally, volume,
    volumes,
};

use crate::nouns::{
    ClientId, Fingerprint, OpId, Outcome, PieceBytes, Record, Role, Stamped, VolumeId,
};
use crate::refusal::Refusal;
use crate::sharing::Marked;
pub(crate) use overlay::Overlay;
use tree::Tree;

/// A consistent view of the store.
pub trait MetaSnapshot {
    /// Why the store could not answer.
    type Error;
    /// The value of `key`.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The first `limit` keys from `from` on and before `to`, with their values.
    #[allow(clippy::type_complexity)]
    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Self::Error>;
    /// [`MetaSnapshot::range`] for who wants the keys more than the values: a row that is not
    /// what was written comes as `None`, and is left out where its key cannot be trusted.
    fn range_past_damage(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<PastDamage, Self::Error> {
        let rows = self.range(from, to, limit)?;
        Ok(rows.into_iter().map(|(key, value)| (key, Some(value))).collect())
    }
    /// True if `error` says that something is not what was written, and all else can be used.
    fn is_damage(_error: &Self::Error) -> bool {
        false
    }
}

/// Rows, of which some may be damaged.
pub type PastDamage = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A transaction: sees its own writes, and takes effect as a whole or not at all.
pub trait MetaTxn: MetaSnapshot {
    /// Sets the value of `key`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    /// Removes `key` if it is there.
    fn remove(&mut self, key: &[u8]) -> Result<(), Self::Error>;
}

/// Why the store itself failed an operation, whatever the operation was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault<E> {
    /// It could not read or write.
    #[error(transparent)]
    Store(E),
    /// A row is there and makes no sense.
    #[error("the metadata are damaged: {0}")]
    Damaged(&'static str),
}

/// True if `fault` is damage, which concerns only what needs the row that is damaged.
pub fn is_damage<S: MetaSnapshot>(fault: &Fault<S::Error>) -> bool {
    match fault {
        Fault::Damaged(_) => true,
        Fault::Store(error) => S::is_damage(error),
    }
}

/// A row that cannot be read is none.
pub(crate) fn readable<S: MetaSnapshot, R>(
    row: Result<Option<R>, Fault<S::Error>>,
) -> Result<Option<R>, Fault<S::Error>> {
    match row {
        Err(fault) if is_damage::<S>(&fault) => Ok(None),
        other => other,
    }
}

/// Why a rule or a read stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop<E> {
    /// The rules forbid it.
    Refused(Refusal),
    /// The store failed.
    Fault(Fault<E>),
}

impl<E> From<Refusal> for Stop<E> {
    fn from(refusal: Refusal) -> Stop<E> {
        Stop::Refused(refusal)
    }
}

impl<E> From<Fault<E>> for Stop<E> {
    fn from(fault: Fault<E>) -> Stop<E> {
        Stop::Fault(fault)
    }
}

/// In whose name, and on which volume, records are applied.
pub struct Context<'a> {
    /// The volume.
    pub volume: VolumeId,
    /// The cache that the records come from.
    pub client: ClientId,
    /// Which life of its log.
    pub incarnation: u32,
    /// Its host's name, for conflict copies.
    pub host: &'a str,
    /// What its identity may do.
    pub rights: Rights,
    /// Other hosts may have looked up what the records remove: it can be read for a while longer.
    pub is_shared: bool,
    /// True for a chunk that this session has shown to possess.
    pub proven: &'a dyn Fn(&Fingerprint) -> bool,
    /// Changes that the server's disk has room for.
    pub admits: Admits,
    /// Chunks to which nothing more may refer.
    pub damaged: &'a DamagedChunks,
    /// Files that the records create, and whose contents come later.
    pub awaited: &'a Marked,
}

/// Changes that the server's disk has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admits {
    /// All.
    All,
    /// Those that need no chunk that the server lacks.
    Metadata,
    /// Those that add no name, no attribute and no contents.
    Removals,
}

impl Admits {
    /// Refuses `record` if the disk has no room for anything new.
    fn check(self, record: &Record) -> Result<(), Refusal> {
        let adds = match record {
            Record::Create { .. }
            | Record::Link { .. }
            | Record::SetXattr { .. }
            | Record::Clone { .. } => true,
            Record::Store(store) => {
                store.pieces.iter().any(|piece| !matches!(piece.bytes, PieceBytes::Hole { .. }))
            }
            Record::Unlink { .. }
            | Record::Rmdir { .. }
            | Record::Rename { .. }
            | Record::SetAttr { .. }
            | Record::RemoveXattr { .. }
            | Record::Release { .. } => false,
        };
        if adds && self == Admits::Removals { Err(Refusal::NoSpace) } else { Ok(()) }
    }
}

impl Context<'_> {
    fn op(&self, seq: u64) -> OpId {
        OpId { client: self.client, incarnation: self.incarnation, seq }
    }
}

/// Applies one record, or tells what became of it before. `digest` is that of the record.
pub fn apply<T: MetaTxn>(
    txn: &mut T,
    context: &Context<'_>,
    stamped: &Stamped,
    digest: &[u8; 32],
) -> Result<ApplyResult, Fault<T::Error>> {
    let op = context.op(stamped.seq);
    if let Some(known) = outcome::recall(txn, op, digest)? {
        return Ok(known);
    }
    // Nothing of a reader's records is kept: they cost the server no room.
    if context.rights.role == Role::Reader {
        let refusal = Refusal::ReadOnly;
        return Ok(ApplyResult::Outcome(Outcome::Refused { refusal }));
    }
    let inherited = copied::inherited(txn, context.client)?.unwrap_or_default();
    let left = inherited.without(&stamped.record);
    let meant = inherited.meant(stamped.seq, &stamped.record);
    let meant = meant.map(|record| Stamped { record, ..stamped.clone() });
    let stamped = meant.as_ref().unwrap_or(stamped);
    if let Some(left) = left {
        rows::put_row(txn, &keys::inherited(context.client), &left)?;
    }
    let mut tree = Tree::open(txn, context.volume)?;
    tree.leaves_remnants = context.is_shared;
    let effect = carry_out(&mut tree, context, stamped);
    let effect = effect.and_then(|effect| Ok(tree.check_limits().map(|()| effect)?));
    let effect = match effect {
        Ok(effect) => effect,
        Err(Stop::Fault(fault)) => return Err(fault),
        Err(Stop::Refused(Refusal::Copied)) => return Ok(ApplyResult::Cloned),
        Err(Stop::Refused(refusal)) => {
            drop(tree);
            if let (Refusal::Quota | Refusal::NoSpace, Record::Store(store)) =
                (refusal, &stamped.record)
            {
                arrivals::let_go(txn, context.volume, store, context.proven)?;
            }
            let refused = Outcome::Refused { refusal };
            outcome::keep(txn, op, digest, &refused, None)?;
            return Ok(ApplyResult::Outcome(refused));
        }
    };
    outcome::settle(tree, op, digest, effect)
}

/// Refuses a record for good, because [`apply`] met damage: it would meet it again each time,
/// and keep what comes behind it from being applied. Where the volume itself cannot be read no
/// record is refused, since a repair helps all of them.
pub fn refuse_damaged<T: MetaTxn>(
    txn: &mut T,
    context: &Context<'_>,
    stamped: &Stamped,
    digest: &[u8; 32],
) -> Result<Outcome, Fault<T::Error>> {
    Tree::open(txn, context.volume)?;
    let refused = Outcome::Refused { refusal: Refusal::Io };
    outcome::keep(txn, context.op(stamped.seq), digest, &refused, None)?;
    Ok(refused)
}

fn carry_out<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    context: &Context<'_>,
    stamped: &Stamped,
) -> Result<outcome::Effect, Stop<T::Error>> {
    let change = permission::Change::new(context, stamped)?;
    context.admits.check(&stamped.record)?;
    match &stamped.record {
        Record::Create { .. } => create::create(tree, &change, &stamped.record),
        Record::Link { ino, parent, name } => create::link(tree, &change, *ino, *parent, name),
        Record::Unlink { parent, name, ino, open } => {
            remove::unlink(tree, &change, (*parent, name), *ino, *open)
        }
        Record::Rmdir { parent, name, ino } => remove::rmdir(tree, &change, (*parent, name), *ino),
        Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open } => {
            let (from, to) = ((*from_parent, from_name), (*to_parent, to_name));
            rename::rename(
                tree,
                &change,
                &rename::Rename { from, to, ino: *ino, mode: *mode, open: *open },
            )
        }
        Record::SetAttr { ino, set } => setattr::set_attr(tree, &change, *ino, set),
        Record::SetXattr { ino, name, value } => {
            setattr::set_xattr(tree, &change, *ino, name, Some(value))
        }
        Record::RemoveXattr { ino, name } => setattr::set_xattr(tree, &change, *ino, name, None),
        Record::Store(store) => store::store(tree, &change, store),
        Record::Release { ino } => remove::release(tree, &change, *ino),
        Record::Clone { ino, base, from, version } => {
            clone::clone(tree, &change, (*ino, *base), (*from, *version))
        }
    }
}
