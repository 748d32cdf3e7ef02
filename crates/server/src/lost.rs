//! Which files chunks belong to that cannot be read.

use std::collections::BTreeSet;

use segue_core::nouns::{Fingerprint, Ino, VolumeId};
use segue_core::upkeep::check::{ChunkUse, chunk_uses, path};

use crate::failed::Failed;
use crate::meta::Store;

/// A file of which something is lost.
pub(crate) struct LostFile {
    pub(crate) ino: Ino,
    /// Where, if a name leads there.
    pub(crate) path: Option<String>,
    /// First byte that is lost.
    pub(crate) first: u64,
    /// How many are.
    pub(crate) bytes: u64,
}

/// Gives the files that chunks of `lost` belong to to `each`, page by page as they are now.
pub(crate) fn files(
    store: &Store,
    id: VolumeId,
    lost: &BTreeSet<Fingerprint>,
    each: &mut dyn FnMut(LostFile),
) -> Result<(), Failed> {
    if lost.is_empty() {
        return Ok(());
    }
    let (mut from, mut last): (_, Option<LostFile>) = (Some(Vec::new()), None);
    while let Some(at) = from {
        let (uses, next) = store.read_noting(|kv| chunk_uses(kv, id, &at))?.0?;
        for used in uses.iter().filter(|used| lost.contains(&used.fingerprint)) {
            let ChunkUse { ino, offset, len, .. } = *used;
            match &mut last {
                Some(file) if file.ino == ino => file.bytes += len,
                _ => {
                    last.take().into_iter().for_each(&mut *each);
                    let path = store.read_noting(|kv| path(kv, id, ino))?.0?;
                    last = Some(LostFile { ino, path, first: offset, bytes: len });
                }
            }
        }
        from = next;
    }
    last.into_iter().for_each(each);
    Ok(())
}
