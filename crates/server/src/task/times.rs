//! Times of the last backup of a volume, and of the last check of all its bytes.

use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::namespace::{Fault, MetaSnapshot, MetaTxn, get_row, put_row};
use segue_core::nouns::VolumeId;
use serde::{Deserialize, Serialize};

use crate::clock::now;
use crate::data_dir::Data;

const TIMES: u8 = SERVER_TAGS + 7;

/// Times in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TimesRow {
    pub(crate) backed_up: Option<i64>,
    pub(crate) checked: Option<i64>,
}

fn key(volume: VolumeId) -> Vec<u8> {
    [&[TIMES][..], &volume.0.to_be_bytes()].concat()
}

/// The times of a volume.
pub(crate) fn of<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<TimesRow, Fault<S::Error>> {
    Ok(get_row(snapshot, &key(volume), "times of backup and check")?.unwrap_or_default())
}

/// Forgets a volume that is deleted.
pub(crate) fn forget<T: MetaTxn>(txn: &mut T, volume: VolumeId) -> Result<(), Fault<T::Error>> {
    txn.remove(&key(volume)).map_err(Fault::Store)
}

/// Notes the end of a backup or check, which stays valid if the note fails.
pub(crate) fn note(data: &Data, volume: VolumeId, change: fn(&mut TimesRow, i64)) {
    let noted = data.store.write_blocking(move |txn| {
        let mut row = of(txn, volume)?;
        change(&mut row, now().secs);
        put_row(txn, &key(volume), &row)
    });
    if let Err(error) = noted {
        tracing::warn!("cannot note the time of a backup or check: {error}");
    }
}
