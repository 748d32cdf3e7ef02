//! Requests about names and attributes.

use std::os::unix::ffi::OsStrExt;

use segue_core::host::call::RenameFlag;
use segue_core::nouns::{Caller, Dentry, Ino, Name, NewNode, SetAttr};
use segue_core::refusal::Refusal;
use segue_fuse::{Answer, Call, Outcome, SetTime};

use super::convert::{self, changed, empty, entry, made, node, outcome, time};
use crate::mount::{Creation, Shared, SizeChange};

type Given<T> = Result<T, Refusal>;

pub(super) async fn lookup(mount: Shared, parent: Ino, name: Given<Name>) -> Outcome {
    let found = async {
        let name = name?;
        let found = mount.lookup(parent, &name).await?.ok_or(Refusal::NotFound)?;
        Ok(entry(&found, mount.kernel.named(parent, &name, found.ino)))
    };
    outcome(found.await, Answer::Entry)
}

pub(super) async fn set_attr(
    mount: Shared,
    node: u64,
    asked: segue_fuse::SetAttr,
    caller: Caller,
) -> Outcome {
    let (ino, now) = (convert::ino(node), mount.host.wall());
    let is_now = |given: Option<SetTime>| !matches!(given, Some(SetTime::At(..)));
    let set = SetAttr {
        mode: asked.mode.map(|mode| mode & 0o7777),
        uid: asked.uid,
        gid: asked.gid,
        atime: asked.atime.map(|atime| time(atime, now)),
        mtime: asked.mtime.map(|mtime| time(mtime, now)),
        times_now: is_now(asked.atime) && is_now(asked.mtime),
    };
    let through = SizeChange { open: asked.handle.is_some(), kills_set_ids: asked.kill_suidgid };
    let result = async {
        if let Some(size) = asked.size {
            Box::pin(mount.truncate(ino, size, through, caller.clone())).await?;
        }
        if (SetAttr { times_now: false, ..set }) != SetAttr::default() {
            mount.set_attr(ino, set, caller).await?;
        }
        mount.getattr(ino).await
    };
    let result = result.await;
    changed(&mount, node, result)
}

/// What SYMLINK, MKNOD and MKDIR are to make.
pub(super) fn creation(parent: Ino, call: &Call<'_>) -> Given<Creation> {
    let (name, node, mode) = match *call {
        Call::Symlink { name, target } => {
            (name, NewNode::Symlink(target.as_bytes().to_vec()), 0o777)
        }
        Call::MkNod { name, mode, umask, device } => (name, node(mode, device)?, mode & !umask),
        Call::MkDir { name, mode, umask } => (name, NewNode::Directory, mode & !umask),
        _ => return Err(Refusal::Invalid),
    };
    let name = convert::name(name)?;
    Ok(Creation { parent, name, node, mode, exclusive: true })
}

pub(super) async fn make(mount: Shared, creation: Given<Creation>, caller: Caller) -> Outcome {
    let result = match creation {
        Ok(creation) => mount.create(creation, caller).await,
        Err(refusal) => Err(refusal),
    };
    made(&mount, result)
}

pub(super) async fn unlink(
    mount: Shared,
    parent: Ino,
    name: Given<Name>,
    caller: Caller,
) -> Outcome {
    empty(async { mount.unlink(parent, name?, caller).await }.await)
}

pub(super) async fn rmdir(
    mount: Shared,
    parent: Ino,
    name: Given<Name>,
    caller: Caller,
) -> Outcome {
    empty(async { mount.rmdir(parent, name?, caller).await }.await)
}

/// A directory and a name in it.
type ParentName = (Ino, Name);

pub(super) async fn rename(
    mount: Shared,
    places: Given<(ParentName, ParentName)>,
    flags: u32,
    caller: Caller,
) -> Outcome {
    let renamed = async {
        let (from, to) = places?;
        let flag = match flags {
            0 => RenameFlag::Replace,
            libc::RENAME_NOREPLACE => RenameFlag::NoReplace,
            libc::RENAME_EXCHANGE => RenameFlag::Exchange,
            _ => return Err(Refusal::Invalid),
        };
        let [from, to] = [from, to].map(|(parent, name)| Dentry { parent, name });
        mount.rename(from, to, flag, caller).await
    };
    empty(renamed.await)
}

pub(super) async fn link(
    mount: Shared,
    ino: Ino,
    (parent, name): (Ino, Given<Name>),
    caller: Caller,
) -> Outcome {
    let linked = async { mount.link(ino, parent, name?, caller).await };
    let linked = linked.await;
    made(&mount, linked)
}
