//! What volumes and directories may hold.

use segue_core::namespace::{
    LimitError, Limits, find_directory, find_volume, limit_directory, limit_volume, quota_of,
    quotas,
};
use segue_core::nouns::{Name, VolumeId};
use segue_core::upkeep::check::path;

use super::{AdminReply, DirectoryInfo, FailReason, Limit, failed, no_volume, volumes};
use crate::data_dir::Data;
use crate::meta::{Kv, MetaFault, StoreError};

/// What is asked for: bytes and inodes.
type Asked = (Option<Limit>, Option<Limit>);

/// Sets the limits of a volume, or of a directory of it.
pub(super) fn set(
    data: &Data,
    name: &str,
    dir: Option<String>,
    asked: Asked,
) -> Result<AdminReply, StoreError> {
    let Some((id, row)) = data.store.read_blocking(|kv| find_volume(kv, name))?? else {
        return Ok(no_volume(name));
    };
    let Some(dir) = dir else {
        data.store.write_blocking(move |txn| limit_volume(txn, id, merged(row.limits, asked)))?;
        return volumes::show(data, name);
    };
    let parts = dir.split('/').filter(|part| !part.is_empty());
    let Ok(parts) = parts.map(Name::new).collect::<Result<Vec<_>, _>>() else {
        return Ok(failed(FailReason::Invalid, format!("'{dir}' is not a valid path in a volume")));
    };
    let done = data.store.write_blocking(move |txn| {
        let before = match find_directory(txn, id, &parts)? {
            Some(ino) => quota_of(txn, id, ino)?.unwrap_or_default().limits,
            None => Limits::default(),
        };
        limit_directory(txn, id, &parts, merged(before, asked))
    })?;
    match done {
        Ok(()) => volumes::show(data, name),
        Err(error) => {
            let reason = match error {
                LimitError::NotFound => FailReason::NotFound,
                _ => FailReason::Invalid,
            };
            Ok(failed(reason, format!("cannot set a quota for {name}:{dir}: {error}")))
        }
    }
}

fn merged(before: Limits, (bytes, inodes): Asked) -> Limits {
    let one = |before, asked| match asked {
        None => before,
        Some(Limit::None) => None,
        Some(Limit::At(count)) => Some(count),
    };
    Limits { bytes: one(before.bytes, bytes), inodes: one(before.inodes, inodes) }
}

/// The directories of a volume that have quotas.
pub(super) fn directories(kv: &mut Kv<'_>, id: VolumeId) -> Result<Vec<DirectoryInfo>, MetaFault> {
    let rows = quotas(kv, id)?;
    let info = |(ino, row): (_, segue_core::namespace::QuotaRow)| {
        Ok(DirectoryInfo {
            path: path(kv, id, ino).map_err(MetaFault::Store)?.unwrap_or_default(),
            inodes: row.usage.inodes,
            allocated_bytes: row.usage.bytes,
            quota_bytes: row.limits.bytes,
            quota_inodes: row.limits.inodes,
        })
    };
    rows.into_iter().map(info).collect()
}
