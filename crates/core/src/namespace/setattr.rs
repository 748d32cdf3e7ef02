//! Attributes: chmod, chown, utimes, extended attributes.

use super::outcome::Effect;
use super::permission::{Actor, Change, WRITE, mode_after_write};
use super::quota;
use super::tree::Tree;
use super::{Fault, MetaSnapshot, MetaTxn, Stop, keys};
use crate::nouns::{Attr, Ino, Kind, SetAttr, Timestamp};
use crate::persist::{self, Lm};
use crate::refusal::Refusal;

/// Longest name of an extended attribute, in bytes.
const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes.
const XATTR_VALUE_MAX: usize = 64 << 10;
/// Most extended attributes of one inode: all of them fit into one message.
pub const XATTR_COUNT_MAX: usize = 64;

/// A [`crate::nouns::Record::SetAttr`].
pub(super) fn set_attr<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
    set: &SetAttr,
) -> Result<Effect, Stop<T::Error>> {
    let mut row = tree.inode(ino)?;
    check_set(&change.actor, &row.attr, set)?;
    let attr = &mut row.attr;
    if (set.uid.is_some() || set.gid.is_some()) && attr.kind != Kind::Directory {
        attr.mode = mode_after_write(attr.mode);
    }
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let Some(mode) = set.mode {
        attr.mode = change.actor.mode(mode, attr.kind, attr.gid);
    }
    attr.atime = set.atime.unwrap_or(attr.atime);
    attr.mtime = set.mtime.unwrap_or(attr.mtime);
    attr.ctime = change.time;
    tree.put_inode(row)?;
    Ok(Effect::Done)
}

fn check_set(actor: &Actor<'_>, attr: &Attr, set: &SetAttr) -> Result<(), Refusal> {
    let bad_time = |time: Option<Timestamp>| time.is_some_and(|time| !time.is_valid());
    if bad_time(set.atime) || bad_time(set.mtime) {
        return Err(Refusal::Invalid);
    }
    if set.mode.is_some() && attr.kind == Kind::Symlink {
        return Err(Refusal::NotSupported);
    }
    if actor.privileged() {
        return Ok(());
    }
    let owns = actor.owns(attr);
    let gives_away = set.uid.is_some_and(|uid| uid != attr.uid);
    let foreign = set.gid.is_some_and(|gid| gid != attr.gid && !actor.in_group(gid));
    let owners = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    if gives_away || foreign || (owners && !owns) {
        return Err(Refusal::NotPermitted);
    }
    if (set.atime.is_some() || set.mtime.is_some()) && !owns {
        match set.times_now {
            true if actor.may(attr, WRITE) => {}
            true => return Err(Refusal::Access),
            false => return Err(Refusal::NotPermitted),
        }
    }
    Ok(())
}

/// Sets an extended attribute, or removes it where `value` is `None`.
pub(super) fn set_xattr<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<Effect, Stop<T::Error>> {
    let mut row = tree.inode(ino)?;
    check_xattr(&change.actor, &row.attr, name)?;
    let key = keys::xattr(tree.volume, ino, name);
    let before = tree.txn.get(&key).map_err(Fault::Store)?;
    let there = before.is_some();
    let bytes = |value: Option<&[u8]>| value.map_or(0, |value| (name.len() + value.len()) as u64);
    let (came, gone) = (bytes(value), bytes(before.as_deref()));
    match value {
        Some(value) => {
            check_xattr_shape(name, value)?;
            if !there && count(tree, ino)? >= XATTR_COUNT_MAX {
                return Err(Refusal::NoSpace.into());
            }
            tree.txn.put(&key, value).map_err(Fault::Store)?;
        }
        None if !there => return Err(Refusal::NoAttribute.into()),
        None => tree.txn.remove(&key).map_err(Fault::Store)?,
    }
    tree.charge(row.attr.quota, quota::Change { inodes: 0, came, gone })?;
    if name == persist::ATTRIBUTE {
        row.attr.lm = value.and_then(Lm::of_attribute);
    }
    row.attr.ctime = change.time;
    tree.put_inode(row)?;
    Ok(Effect::Done)
}

fn count<T: MetaTxn>(tree: &mut Tree<'_, T>, ino: Ino) -> Result<usize, Fault<T::Error>> {
    let prefix = keys::xattr(tree.volume, ino, &[]);
    let rows = tree.txn.range(&prefix, &keys::after(&prefix), XATTR_COUNT_MAX);
    Ok(rows.map_err(Fault::Store)?.len())
}

/// Whether a `user.` attribute may be called `name` and be `value`, whoever sets it: asked by
/// hosts, which tell the caller, and by the server, which trusts no host.
pub fn check_xattr_shape(name: &[u8], value: &[u8]) -> Result<(), Refusal> {
    if name.len() > XATTR_NAME_MAX || value.len() > XATTR_VALUE_MAX {
        return Err(Refusal::AttributeTooLarge);
    }
    let is_no_lm = name == persist::ATTRIBUTE && Lm::of_attribute(value).is_none();
    if name.contains(&0) || name == b"user." || is_no_lm {
        return Err(Refusal::Invalid);
    }
    Ok(())
}

fn check_xattr(actor: &Actor<'_>, attr: &Attr, name: &[u8]) -> Result<(), Refusal> {
    if name.starts_with(b"user.") {
        return match attr.kind {
            Kind::File | Kind::Directory if actor.owns(attr) || actor.may(attr, WRITE) => Ok(()),
            Kind::File | Kind::Directory => Err(Refusal::Access),
            _ => Err(Refusal::NotPermitted),
        };
    }
    // Kernels believe these, so only a host's trusted root may set them.
    let believed = name.starts_with(b"trusted.") || name.starts_with(b"security.");
    if believed && actor.trusted() { Ok(()) } else { Err(Refusal::NotSupported) }
}
