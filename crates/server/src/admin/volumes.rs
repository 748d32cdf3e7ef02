//! Volumes as an administrator makes, sees and removes them.

use segue_core::namespace::{
    Readable, VolumeError, VolumeRow, arrivals, create_volume, delete_volume, find_volume, tally,
    volumes,
};
use segue_core::nouns::VolumeId;

use super::{AdminReply, FailReason, VolumeInfo, failed, no_volume, quotas};
use crate::clock::now;
use crate::data_dir::Data;
use crate::meta::{Kv, MetaFault, StoreError};
use crate::principals;
use crate::random::{hex, random};
use crate::task::times;

pub(super) fn create(data: &Data, name: &str) -> Result<AdminReply, StoreError> {
    let uuid = match random() {
        Ok(uuid) => uuid,
        Err(error) => {
            return Ok(failed(FailReason::Io, format!("cannot read random bytes: {error}")));
        }
    };
    let new = name.to_owned();
    match data.store.write_blocking(move |txn| create_volume(txn, &new, uuid, now()))? {
        Ok(_) => show(data, name),
        Err(error @ VolumeError::Exists) => {
            Ok(failed(FailReason::Exists, format!("cannot create volume '{name}': {error}")))
        }
        Err(error) => Ok(failed(FailReason::Invalid, error.to_string())),
    }
}

pub(super) fn list(data: &Data) -> Result<AdminReply, StoreError> {
    let volumes = data.store.read_blocking(|kv| {
        let volumes = volumes(kv)?;
        let info = |(id, row): Readable<_>| {
            row.and_then(|row| volume_info(kv, id, row))
                .unwrap_or_else(|fault| damaged_info(id, fault))
        };
        Ok::<_, MetaFault>(volumes.into_iter().map(info).collect())
    })?;
    Ok(AdminReply::Volumes { volumes: volumes? })
}

pub(super) fn show(data: &Data, name: &str) -> Result<AdminReply, StoreError> {
    let info = data.store.read_blocking(|kv| match find_volume(kv, name)? {
        Some((id, row)) => {
            let info = volume_info(kv, id, row)?;
            Ok(Some(VolumeInfo { directories: quotas::directories(kv, id)?, ..info }))
        }
        None => Ok::<_, MetaFault>(None),
    })??;
    Ok(info.map_or_else(|| no_volume(name), AdminReply::Volume))
}

pub(super) fn delete(data: &Data, name: &str) -> Result<AdminReply, StoreError> {
    let wanted = name.to_owned();
    let deleted = data.store.write_blocking(move |txn| {
        let Some((id, row)) = find_volume(txn, &wanted)? else { return Ok(Err(Kept::NoVolume)) };
        if volumes(txn)?.len() == 1 {
            return Ok(Err(Kept::Only));
        }
        let volume = volume_info(txn, id, row)?;
        delete_volume(txn, id)?;
        times::forget(txn, id)?;
        let identities = principals::forget(txn, id)?;
        Ok(Ok(AdminReply::Deleted { volume, identities }))
    })?;
    Ok(match deleted {
        Ok(reply) => reply,
        Err(Kept::NoVolume) => no_volume(name),
        Err(Kept::Only) => {
            let words = format!(
                "'{name}' is the only volume of the server; create another one first (segue volume \
                 create), or stop the server and remove {}",
                data.path().display()
            );
            failed(FailReason::Invalid, words)
        }
    })
}

/// Why a volume is not deleted.
enum Kept {
    NoVolume,
    Only,
}

fn volume_info(kv: &mut Kv<'_>, id: VolumeId, row: VolumeRow) -> Result<VolumeInfo, MetaFault> {
    let tally = tally(kv, id)?;
    let times = times::of(kv, id)?;
    Ok(VolumeInfo {
        name: row.name,
        id: id.0,
        uuid: hex(&row.uuid),
        created: row.created.secs,
        inodes: tally.inodes,
        allocated_bytes: tally.allocated,
        arrived_bytes: arrivals::bytes(kv, id)?,
        quota_bytes: row.limits.bytes,
        quota_inodes: row.limits.inodes,
        backed_up: times.backed_up,
        checked: times.checked,
        directories: Vec::new(),
        damaged: None,
    })
}

/// A volume of which no more is known than its number.
fn damaged_info(id: VolumeId, fault: MetaFault) -> VolumeInfo {
    VolumeInfo {
        name: format!("#{}", id.0),
        id: id.0,
        uuid: String::new(),
        created: 0,
        inodes: 0,
        allocated_bytes: 0,
        arrived_bytes: 0,
        quota_bytes: None,
        quota_inodes: None,
        backed_up: None,
        checked: None,
        directories: Vec::new(),
        damaged: Some(StoreError::from(fault).to_string()),
    }
}
