//! Limits that an administrator sets: of a volume, and of the tree below a directory.

use std::collections::BTreeMap;

use super::quota::{self, Limits, QuotaRow, Usage};
use super::rows::{self, VolumeRow};
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, keys};
use crate::nouns::{Ino, Kind, Name, VolumeId};

/// Most directories of a volume with quotas: a check sums up each.
pub const QUOTAS_MAX: usize = 4096;
/// Most inodes below a directory that gets or loses its quota: they are counted in one
/// transaction, which takes a second or two of everybody's.
pub const COUNTED_MAX: usize = 100_000;
/// Names read at a time.
const SLICE: usize = 1024;

/// Why limits are not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// No such name.
    #[error("no such directory")]
    NotFound,
    /// Something else than a directory.
    #[error("it is not a directory")]
    NotDirectory,
    /// It is the volume's root.
    #[error("it is the root of the volume: set the quota of the volume instead, without --dir")]
    Root,
    /// In or around the tree of another.
    #[error("it is above or below another directory with a quota")]
    Nested,
    /// Files have names inside and outside.
    #[error("a file below it has another name (hard link) outside of it")]
    Shared,
    /// Too many inodes to count.
    #[error("it has more than {COUNTED_MAX} files and directories")]
    TooLarge,
    /// Too many quotas.
    #[error("the volume already has {QUOTAS_MAX} directories with quotas, which is the maximum")]
    TooMany,
}

/// Why a tree cannot be given to another quota, or the store failed.
enum Halt<E> {
    Limit(LimitError),
    Fault(Fault<E>),
}

impl<E> From<Fault<E>> for Halt<E> {
    fn from(fault: Fault<E>) -> Halt<E> {
        Halt::Fault(fault)
    }
}

impl<E> From<LimitError> for Halt<E> {
    fn from(error: LimitError) -> Halt<E> {
        Halt::Limit(error)
    }
}

/// Sets what a volume may hold; what it holds already stays.
pub fn limit_volume<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    limits: Limits,
) -> Result<(), Fault<T::Error>> {
    let key = keys::volume(volume);
    let row: VolumeRow =
        rows::get_row(txn, &key, "a volume")?.ok_or(Fault::Damaged("a volume is missing"))?;
    rows::put_row(txn, &key, &VolumeRow { limits, ..row })
}

/// Sets what the tree below the directory at `path` may hold; without limits it has no quota
/// any more.
pub fn limit_directory<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    path: &[Name],
    limits: Limits,
) -> Result<Result<(), LimitError>, Fault<T::Error>> {
    let mut tree = Tree::open(txn, volume)?;
    match limit(&mut tree, path, limits) {
        Ok(()) => tree.commit().map(|_| Ok(())),
        Err(Halt::Limit(error)) => Ok(Err(error)),
        Err(Halt::Fault(fault)) => Err(fault),
    }
}

/// The directory at `path` from the root.
pub fn find_directory<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    path: &[Name],
) -> Result<Option<Ino>, Fault<S::Error>> {
    let mut at = Ino::ROOT;
    for name in path {
        match rows::dentry(snapshot, volume, at, name.as_bytes())? {
            Some(ino) => at = ino,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The quota of a directory, if it has one.
pub fn quota_of<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    directory: Ino,
) -> Result<Option<QuotaRow>, Fault<S::Error>> {
    quota::quota(snapshot, volume, directory)
}

/// All quotas of directories of a volume.
pub fn quotas<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<Vec<(Ino, QuotaRow)>, Fault<S::Error>> {
    let prefix = keys::quotas(volume);
    let rows = snapshot.range(&prefix, &keys::after(&prefix), QUOTAS_MAX).map_err(Fault::Store)?;
    let quota = |(key, value): (Vec<u8>, Vec<u8>)| {
        let (ino, _) = keys::inode_part(&key).ok_or(Fault::Damaged("a quota's key"))?;
        Ok((ino, rows::decode(&value, "a directory's quota")?))
    };
    rows.into_iter().map(quota).collect()
}

fn limit<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    path: &[Name],
    limits: Limits,
) -> Result<(), Halt<T::Error>> {
    let volume = tree.volume;
    let ino = find_directory(&mut tree.txn, volume, path)?.ok_or(LimitError::NotFound)?;
    let row = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
    if row.attr.kind != Kind::Directory {
        return Err(LimitError::NotDirectory.into());
    }
    if ino == Ino::ROOT {
        return Err(LimitError::Root.into());
    }
    if quota::outside(&row.attr).is_some() {
        return Err(LimitError::Nested.into());
    }
    match quota::quota(&mut tree.txn, volume, ino)? {
        Some(_) if limits.is_none() => {
            assign(tree, ino, Some(ino), None)?;
            Ok(tree.drop_quota(ino)?)
        }
        Some(quota) => Ok(rows::put_row(
            &mut tree.txn,
            &keys::quota(volume, ino),
            &QuotaRow { limits, ..quota },
        )?),
        None if limits.is_none() => Ok(()),
        None => {
            if quotas(&mut tree.txn, volume)?.len() >= QUOTAS_MAX {
                return Err(LimitError::TooMany.into());
            }
            let usage = assign(tree, ino, None, Some(ino))?;
            Ok(rows::put_row(
                &mut tree.txn,
                &keys::quota(volume, ino),
                &QuotaRow { limits, usage },
            )?)
        }
    }
}

/// Everything from `top` down counts against `new` and not `old` any more.
fn assign<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    top: Ino,
    old: Option<Ino>,
    new: Option<Ino>,
) -> Result<Usage, Halt<T::Error>> {
    let mut usage = Usage::default();
    for (ino, names) in names_below(tree, top)? {
        let row = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
        if row.attr.quota != old {
            return Err(LimitError::Nested.into());
        }
        if row.attr.kind != Kind::Directory && row.attr.nlink != names {
            return Err(LimitError::Shared.into());
        }
        tree.assign(row, new, &mut usage)?;
    }
    Ok(usage)
}

/// `top` and everything below it, each with the number of its names there.
fn names_below<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    top: Ino,
) -> Result<BTreeMap<Ino, u32>, Halt<T::Error>> {
    let mut found = BTreeMap::from([(top, 1)]);
    let mut open = vec![top];
    while let Some(directory) = open.pop() {
        let prefix = keys::dentry(tree.volume, directory, &[]);
        let (mut from, end) = (prefix.clone(), keys::after(&prefix));
        loop {
            let rows = tree.txn.range(&from, &end, SLICE).map_err(Fault::Store)?;
            for (key, value) in &rows {
                let ino: Ino = rows::decode(value, "a directory entry")?;
                *found.entry(ino).or_insert(0) += 1;
                let row = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
                if row.attr.kind == Kind::Directory {
                    open.push(ino);
                }
                if found.len() > COUNTED_MAX {
                    return Err(LimitError::TooLarge.into());
                }
                from = [key.as_slice(), &[0]].concat();
            }
            if rows.len() < SLICE {
                break;
            }
        }
    }
    Ok(found)
}
