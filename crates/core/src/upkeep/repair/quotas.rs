//! Limits of directories are what somebody set, and which files count against which is not told
//! by anything else: where it is not consistent, all of them go, to be set again.

use super::fix::Fixed;
use crate::namespace::rows::{self, InodeRow};
use crate::namespace::{Fault, MetaTxn, keys};
use crate::nouns::VolumeId;

/// Rows read at a time.
const SLICE: usize = 256;

/// Removes the limits of all directories of the volume.
pub(super) fn forget<T: MetaTxn>(txn: &mut T, id: VolumeId) -> Fixed<T::Error> {
    let mut is_changed = false;
    let prefix = keys::quotas(id);
    let quotas = txn.range(&prefix, &keys::after(&prefix), usize::MAX).map_err(Fault::Store)?;
    for (key, _) in &quotas {
        txn.remove(key).map_err(Fault::Store)?;
        is_changed = true;
    }
    let (mut from, end) = (keys::inodes(id), keys::after(&keys::inodes(id)));
    loop {
        let slice = txn.range(&from, &end, SLICE).map_err(Fault::Store)?;
        for (key, value) in &slice {
            let row = rows::decode::<InodeRow, T::Error>(value, "an inode").ok();
            if let Some(mut row) = row.filter(|row| row.attr.quota.is_some()) {
                row.attr.quota = None;
                rows::put_row(txn, key, &row)?;
                is_changed = true;
            }
        }
        let Some((last, _)) = slice.last() else { break };
        from.clone_from(last);
        from.push(0);
    }
    Ok(is_changed.then_some("the limits of directories were removed; set them again"))
}
