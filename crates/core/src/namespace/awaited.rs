//! Files whose hosts have created them and have not sent their first contents.
//!
//! A row notes each, for the next server process: hosts tell their marks ([`crate::sharing`]) when
//! they connect, and one that is away then would have left an empty file. The row goes with the
//! first contents, or with the file.

use super::permission::Change;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys, rows};
use crate::nouns::{ClientId, Ino, VolumeId};
use crate::sharing::MARKS_MAX;

/// A file, and the client that has its first contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Of the file.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// Who created it.
    pub client: ClientId,
}

/// `ino`, which the client calls `called`, is created: notes it if its contents come later.
pub(super) fn note<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (called, ino): (Ino, Ino),
) -> Result<(), Fault<T::Error>> {
    if !change.context.awaited.contains_key(&called) {
        return Ok(());
    }
    let key = keys::awaited(tree.volume, ino);
    rows::put_row(&mut tree.txn, &key, &change.context.client)
}

/// Contents of `ino` have come, or it goes.
pub(super) fn forget<T: MetaTxn>(tree: &mut Tree<'_, T>, ino: Ino) -> Result<(), Fault<T::Error>> {
    tree.txn.remove(&keys::awaited(tree.volume, ino)).map_err(Fault::Store)
}

/// All of them, of all volumes, but not more than there may be marks.
pub fn all_awaited<S: MetaSnapshot>(snapshot: &mut S) -> Result<Vec<Awaited>, Fault<S::Error>> {
    let from = keys::awaited_everywhere();
    let rows = snapshot.range_past_damage(&from, &keys::after(&from), MARKS_MAX);
    let awaited = |(key, value): (Vec<u8>, Option<Vec<u8>>)| {
        let (volume, ino) = keys::awaited_parts(&key)?;
        Some(Awaited { volume, ino, client: postcard::from_bytes(&value?).ok()? })
    };
    Ok(rows.map_err(Fault::Store)?.into_iter().filter_map(awaited).collect())
}
