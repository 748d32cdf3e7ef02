//! Copied cache directories: one that was put back from a copy, or one of two of a cloned disk.
//!
//! Both copies believe that they are one client, and give the same numbers to different changes
//! and to different inodes. A copy that the server finds out takes another client, which has
//! records and inode numbers of its own. Its pending records still name inodes of the client it
//! was. Such a number is the new file's unless an inode has it; else the file gets a number of the
//! server's, and records of this client that name the one mean the other.
//!
//! A client that hears of this logs a `Release` of the number. Until then it named its own file,
//! and behind that record it names the inode which has the number at the server.

use serde::{Deserialize, Serialize};

use super::permission::Change;
use super::rows::{self, InodeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Stop, keys, readable};
use crate::nouns::{ClientId, Ino, InoGrant, OpId, Record};

/// Most numbers that one client has replaced: the copy of a host that made more files without a
/// network than that loses the rest as refused changes.
const ALIASES_MAX: usize = 1 << 16;

/// What a client has of those that it was before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inherited {
    grants: Vec<InoGrant>,
    /// By their numbers, ascending.
    aliases: Vec<Alias>,
}

/// A number in a client's records that stands for another inode than the one which has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Alias {
    number: Ino,
    meant: Ino,
    /// Set if an earlier client got this alias. Then it counts for records with a lower seq only,
    /// which that client may have made.
    below: Option<u64>,
}

impl Inherited {
    fn place(&self, number: Ino) -> Result<usize, usize> {
        self.aliases.binary_search_by_key(&number, |alias| alias.number)
    }

    fn alias(&self, number: Ino) -> Option<&Alias> {
        self.aliases.get(self.place(number).ok()?)
    }

    /// From now on `number` stands for `meant` in all records.
    fn replace(&mut self, number: Ino, meant: Ino) {
        let alias = Alias { number, meant, below: None };
        match self.place(number) {
            Ok(at) => self.aliases[at] = alias,
            Err(at) => self.aliases.insert(at, alias),
        }
    }

    /// The records of an earlier client, which become those of another one, have seqs below `next`.
    fn passed_on(mut self, next: u64) -> Inherited {
        for alias in &mut self.aliases {
            alias.below = Some(alias.below.map_or(next, |below| below.min(next)));
        }
        self
    }

    /// What is left once `record` says that its number is over. `None` if it does not.
    pub(super) fn without(&self, record: &Record) -> Option<Inherited> {
        let Record::Release { ino } = record else { return None };
        let at = self.place(*ino).ok()?;
        let mut left = self.clone();
        left.aliases.remove(at);
        Some(left)
    }

    /// `record`, which has `seq`, with the inodes that it means; `None` if it names those. The
    /// number of a new inode stays: see [`number`].
    pub(super) fn meant(&self, seq: u64, record: &Record) -> Option<Record> {
        if self.aliases.is_empty() {
            return None;
        }
        let counts = |alias: &&Alias| alias.below.is_none_or(|below| seq < below);
        let new = match record {
            Record::Create { ino, .. } => Some(*ino),
            _ => None,
        };
        let mut meant = record.clone();
        for ino in meant.inodes_mut().into_iter().filter(|ino| Some(**ino) != new) {
            *ino = self.alias(*ino).filter(counts).map_or(*ino, |alias| alias.meant);
        }
        Some(meant)
    }
}

/// True if the server knows a record of the client with `next` or a later seq, which the client has
/// not used yet.
pub fn is_copied<S: MetaSnapshot>(snapshot: &mut S, next: OpId) -> Result<bool, Fault<S::Error>> {
    let floor = rows::get_row(snapshot, &keys::floor(next.client, next.incarnation), "a floor");
    let floor: Option<u64> = readable::<S, _>(floor)?;
    if floor.is_some_and(|floor| floor > next.seq) {
        return Ok(true);
    }
    let end = keys::outcome(OpId { seq: u64::MAX, ..next });
    let known = snapshot.range_past_damage(&keys::outcome(next), &end, 1).map_err(Fault::Store)?;
    Ok(!known.is_empty())
}

/// Two caches are this client: neither is welcome as such any more.
pub fn retire<T: MetaTxn>(txn: &mut T, client: ClientId) -> Result<(), Fault<T::Error>> {
    let Some(mut row) = rows::client(txn, client)? else { return Ok(()) };
    row.incarnation = u32::MAX;
    rows::put_row(txn, &keys::client(client), &row)
}

/// What `client` has of those that it was before.
pub fn inherited<S: MetaSnapshot>(
    snapshot: &mut S,
    client: ClientId,
) -> Result<Option<Inherited>, Fault<S::Error>> {
    rows::get_row(snapshot, &keys::inherited(client), "what a client inherited")
}

/// The client of `next`, its next seq, was `before`, of the same identity: records may name numbers
/// that were granted to that.
pub fn inherit<T: MetaTxn>(
    txn: &mut T,
    next: OpId,
    before: ClientId,
) -> Result<(), Fault<T::Error>> {
    let client = next.client;
    let rows = (rows::client(txn, client)?, rows::client(txn, before)?);
    let (Some(row), Some(old)) = rows else { return Ok(()) };
    if (&row.identity, row.volume) != (&old.identity, old.volume) || client == before {
        return Ok(());
    }
    let mut inherited = inherited(txn, before)?.unwrap_or_default().passed_on(next.seq);
    inherited.grants.extend(old.grants);
    rows::put_row(txn, &keys::inherited(client), &inherited)
}

/// The inode of a file that a client creates.
pub(super) enum Number {
    /// It is new, and gets this number.
    Free(Ino),
    /// It exists under this number: another copy of the client's cache has created it.
    Made(Ino),
}

/// The inode of a file that a client creates as `ino`, a number that was not granted to it. The
/// file's name stands for `named` so far, which may be the file: `is_it`. `None` if the client has
/// replaced too many numbers.
///
/// A number that is inherited, or that is of a lost grant, is used unless an inode has it: another
/// copy of the cache may have sent it first. An unknown number may be granted to another client
/// later, and is replaced.
pub(super) fn number<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (ino, is_lost): (Ino, bool),
    (named, is_it): (Option<Ino>, impl Fn(&InodeRow) -> bool),
) -> Result<Option<Number>, Stop<T::Error>> {
    let client = change.context.client;
    let mut inherited = inherited(&mut tree.txn, client)?.unwrap_or_default();
    let is_usable = is_lost || inherited.grants.iter().any(|grant| grant.contains(ino));
    // The copy may have been given another number for it before.
    let alias = inherited.alias(ino).map(|alias| alias.meant);
    if let Some(known) = alias.or(is_usable.then_some(ino)) {
        let found = tree.find(known)?;
        let is_there = found.is_some();
        if found.is_none_or(|row| named == Some(known) && is_it(&row)) {
            if alias.is_some() {
                inherited.replace(ino, known);
                rows::put_row(&mut tree.txn, &keys::inherited(client), &inherited)?;
            }
            return Ok(Some(if is_there { Number::Made(known) } else { Number::Free(known) }));
        }
    }
    if alias.is_none() && inherited.aliases.len() >= ALIASES_MAX {
        return Ok(None);
    }
    let meant = tree.own_ino()?;
    inherited.replace(ino, meant);
    rows::put_row(&mut tree.txn, &keys::inherited(client), &inherited)?;
    Ok(Some(Number::Free(meant)))
}
