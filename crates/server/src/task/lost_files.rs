//! The files of a volume to which chunks belong that cannot be read.

use std::collections::BTreeSet;

use segue_core::nouns::{Fingerprint, Ino, VolumeId};
use segue_core::upkeep::check::{ChunkUse, chunk_uses, path};

use crate::meta::Store;
use crate::task::Failed;

/// A file that lost bytes.
pub(crate) struct LostFile {
    pub(crate) ino: Ino,
    /// Its path, if a name leads to it.
    pub(crate) path: Option<String>,
    /// The first lost byte.
    pub(crate) first: u64,
    /// Number of lost bytes.
    pub(crate) bytes: u64,
}

/// Gives each file to which a chunk of `lost` belongs to `each`, page by page as they are now.
pub(crate) fn visit(
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
