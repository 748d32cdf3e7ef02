//! Outcomes: what became of each record, kept so that a repeat changes nothing.
//!
//! An outcome is written in the transaction of its effect and goes only when the client says
//! that it needs it no more; the floor it says so with stays for ever. A record below the floor
//! is therefore never applied again, though nobody knows its outcome any more. Only a copy of the
//! client's cache sends such a record.

use std::ops::Range;

use super::rows::{self, OutcomeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys};
use crate::nouns::{Ino, Name, OpId, Outcome};

/// Rows read at a time.
const COUNTED_AT_ONCE: usize = 4096;

/// What [`super::apply`] did.
#[derive(Clone, PartialEq, Debug)]
pub enum ApplyResult {
    /// The record's outcome.
    Outcome(Outcome),
    /// The outcome that it had before: what that says of inodes may not be so any more.
    Repeated(Outcome),
    /// There are two copies of one cache: another record came under the same OpId, or the client
    /// has said that it knows this record's outcome.
    Cloned,
}

impl ApplyResult {
    /// What the record would come to if it came again now.
    #[must_use]
    pub fn again(self) -> ApplyResult {
        match self {
            ApplyResult::Outcome(outcome) if outcome.is_final() => ApplyResult::Repeated(outcome),
            same => same,
        }
    }
}

/// What a rule wants to happen.
pub(super) enum Effect {
    /// The change.
    Done,
    /// The change, beside what the server had.
    Conflict {
        /// Directory of the copy.
        parent: Ino,
        /// Its name.
        name: Name,
        /// The copy.
        copy: Ino,
    },
    /// Nothing, and the record may come again.
    NotYet(Outcome),
}

/// What the store knows of `op`: `None` if it is new.
pub(super) fn recall<S: MetaSnapshot>(
    snapshot: &mut S,
    op: OpId,
    digest: &[u8; 32],
) -> Result<Option<ApplyResult>, Fault<S::Error>> {
    let row: Option<OutcomeRow> = rows::get_row(snapshot, &keys::outcome(op), "an outcome")?;
    if let Some(row) = row {
        let same = row.digest == *digest;
        return Ok(Some(if same {
            ApplyResult::Repeated(row.outcome)
        } else {
            ApplyResult::Cloned
        }));
    }
    let floor: Option<u64> =
        rows::get_row(snapshot, &keys::floor(op.client, op.incarnation), "a floor")?;
    Ok(floor.is_some_and(|floor| op.seq < floor).then_some(ApplyResult::Cloned))
}

/// Counts the outcomes that are kept of these records of a client, up to `most`.
pub fn count_outcomes<S: MetaSnapshot>(
    snapshot: &mut S,
    of: OpId,
    seqs: Range<u64>,
    most: usize,
) -> Result<usize, Fault<S::Error>> {
    let (mut from, end) =
        (keys::outcome(OpId { seq: seqs.start, ..of }), OpId { seq: seqs.end, ..of });
    let mut count = 0;
    while count < most {
        let rows = snapshot.range_past_damage(&from, &keys::outcome(end), COUNTED_AT_ONCE);
        let rows = rows.map_err(Fault::Store)?;
        count += rows.len();
        let Some((last, _)) = rows.into_iter().nth(COUNTED_AT_ONCE - 1) else { break };
        from = last;
        from.push(0);
    }
    Ok(count)
}

/// Writes a final outcome, with which the inode `removed` went.
pub(super) fn keep<T: MetaTxn>(
    txn: &mut T,
    op: OpId,
    digest: &[u8; 32],
    outcome: &Outcome,
    removed: Option<Ino>,
) -> Result<(), Fault<T::Error>> {
    let row = OutcomeRow { digest: *digest, outcome: outcome.clone(), removed };
    rows::put_row(txn, &keys::outcome(op), &row)
}

/// Commits what a rule did, with its outcome.
pub(super) fn settle<T: MetaTxn>(
    mut tree: Tree<'_, T>,
    op: OpId,
    digest: &[u8; 32],
    effect: Effect,
) -> Result<ApplyResult, Fault<T::Error>> {
    let touched = tree.touched()?;
    let outcome = match effect {
        Effect::NotYet(outcome) => return Ok(ApplyResult::Outcome(outcome)),
        Effect::Done => Outcome::Done { touched },
        Effect::Conflict { parent, name, copy } => {
            Outcome::Conflict { parent, name, touched, copy }
        }
    };
    let removed = tree.removed;
    let txn = tree.commit()?;
    keep(txn, op, digest, &outcome, removed)?;
    Ok(ApplyResult::Outcome(outcome))
}
