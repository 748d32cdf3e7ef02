//! When a volume was backed up last, and when each of its bytes was verified.

use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::namespace::{Fault, MetaSnapshot, MetaTxn, get_row, put_row};
use segue_core::nouns::VolumeId;
use serde::{Deserialize, Serialize};

use crate::data::{Data, now};

const CARE: u8 = SERVER_TAGS + 7;

/// Times in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CareRow {
    pub(crate) backed_up: Option<i64>,
    pub(crate) checked: Option<i64>,
}

fn key(volume: VolumeId) -> Vec<u8> {
    [&[CARE][..], &volume.0.to_be_bytes()].concat()
}

/// What is known of a volume.
pub(crate) fn of<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<CareRow, Fault<S::Error>> {
    Ok(get_row(snapshot, &key(volume), "times of backup and check")?.unwrap_or_default())
}

/// Forgets a volume that is deleted.
pub(crate) fn forget<T: MetaTxn>(txn: &mut T, volume: VolumeId) -> Result<(), Fault<T::Error>> {
    txn.remove(&key(volume)).map_err(Fault::Store)
}

/// Notes what was done just now. A backup or a check is none the worse if that fails.
pub(crate) fn note(data: &Data, volume: VolumeId, change: fn(&mut CareRow, i64)) {
    let noted = data.store.write_blocking(move |txn| {
        let mut row = of(txn, volume)?;
        change(&mut row, now().secs);
        put_row(txn, &key(volume), &row)
    });
    if let Err(error) = noted {
        tracing::warn!("cannot note the time of a backup or check: {error}");
    }
}
