//! Copied cache directories: one that was put back from a copy, or one of two of a cloned disk.
//!
//! Both copies believe that they are one client, and give the same numbers to different changes
//! and to different inodes. A copy that the server finds out takes another client, which has
//! records and inode numbers of its own. Its pending records still name inodes of the client it
//! was. Such a number is the new file's unless an inode has it; else the file gets a number of the
//! server's, and all records of this client that name the one mean the other.

use serde::{Deserialize, Serialize};

use super::permission::Change;
use super::rows;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Stop, keys, readable};
use crate::modlog::Record;
use crate::types::{ClientId, Ino, InoGrant, OpId};

/// Most numbers that one client has replaced: the copy of a host that made more files without a
/// network than that loses the rest as refused changes.
const ALIASES_MAX: usize = 1 << 16;

/// What a client has of those that it was before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inherited {
    grants: Vec<InoGrant>,
    /// Numbers in its records, and the inodes that they mean; ascending.
    aliases: Vec<(Ino, Ino)>,
}

impl Inherited {
    /// The inode that `number` stands for in this client's records, if it is another one.
    fn alias(&self, number: Ino) -> Option<Ino> {
        let at = self.aliases.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.aliases.get(at).map(|(_, meant)| *meant)
    }

    /// From now on `number` stands for `meant`.
    fn replace(&mut self, number: Ino, meant: Ino) {
        match self.aliases.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.aliases[at] = (number, meant),
            Err(at) => self.aliases.insert(at, (number, meant)),
        }
    }

    /// `record` with the inodes that it means; `None` if it names those. The number of a new inode
    /// stays: see [`number`].
    pub(super) fn meant(&self, record: &Record) -> Option<Record> {
        if self.aliases.is_empty() {
            return None;
        }
        let new = match record {
            Record::Create { ino, .. } => Some(*ino),
            _ => None,
        };
        let mut meant = record.clone();
        for ino in meant.inodes_mut().into_iter().filter(|ino| Some(**ino) != new) {
            *ino = self.alias(*ino).unwrap_or(*ino);
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

/// `client` was `before`, of the same identity: records may name numbers that were granted to that.
pub fn inherit<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    before: ClientId,
) -> Result<(), Fault<T::Error>> {
    let rows = (rows::client(txn, client)?, rows::client(txn, before)?);
    let (Some(row), Some(old)) = rows else { return Ok(()) };
    if (&row.identity, row.volume) != (&old.identity, old.volume) || client == before {
        return Ok(());
    }
    let mut inherited = inherited(txn, before)?.unwrap_or_default();
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
/// file's name stands for `named` so far. `None` if the client has replaced too many numbers.
///
/// A number that is inherited, or that is of a lost grant, is used unless an inode has it: another
/// copy of the cache may have sent it first. An unknown number may be granted to another client
/// later, and is replaced.
pub(super) fn number<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (ino, is_lost): (Ino, bool),
    named: Option<Ino>,
) -> Result<Option<Number>, Stop<T::Error>> {
    let client = change.context.client;
    let mut inherited = inherited(&mut tree.txn, client)?.unwrap_or_default();
    let is_usable = is_lost || inherited.grants.iter().any(|grant| grant.contains(ino));
    // The copy may have been given another number for it before.
    let alias = inherited.alias(ino);
    if let Some(known) = alias.or(is_usable.then_some(ino)) {
        if tree.find(known)?.is_none() {
            return Ok(Some(Number::Free(known)));
        }
        if named == Some(known) {
            return Ok(Some(Number::Made(known)));
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
