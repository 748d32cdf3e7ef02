//! Requests about open files.

use std::ffi::OsStr;

use segue_core::nouns::{Caller, Ino, NewNode};
use segue_core::refusal::Refusal;
use segue_fuse::{Answer, Errno, Outcome};

use super::convert::{self, empty, entry, errno, ino, opened, outcome};
use crate::mount::{Allocation, Creation, OpenMode, Shared, Sight, Written};
use crate::shell::Changed;

const PUNCH_AND_KEEP: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_AND_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

pub(super) async fn open(mount: Shared, node: u64, mode: OpenMode, caller: Caller) -> Outcome {
    let result = mount.open(node, mode, caller).await;
    outcome(result, |file| Answer::Open(opened(file)))
}

/// What CREATE is to make, unless it is there.
pub(super) fn creation(
    parent: Ino,
    name: &OsStr,
    flags: u32,
    mode: u32,
) -> Result<Creation, Refusal> {
    let exclusive = flags.cast_signed() & libc::O_EXCL != 0;
    Ok(Creation { parent, name: convert::name(name)?, node: NewNode::File, mode, exclusive })
}

pub(super) async fn create(
    mount: Shared,
    creation: Result<Creation, Refusal>,
    mode: OpenMode,
    caller: Caller,
) -> Outcome {
    let result = async {
        let (found, is_new) = mount.create_or_find(creation?, caller.clone()).await?;
        let node = mount.kernel.node(found.ino);
        let file = match is_new {
            true => mount.add_handle(node, mode, caller)?,
            false => mount.open(node, mode, caller).await?,
        };
        Ok((found, node, file))
    };
    outcome(result.await, |(found, node, file)| {
        let (_, ttl) = mount.kernel.made(found.ino);
        Answer::Created(entry(&found, (node, ttl)), opened(file))
    })
}

/// The end of a write, which may have to wait for room in the log, or for the server.
pub(super) async fn written(
    mount: Shared,
    written: Result<Changed, Refusal>,
    len: usize,
) -> Outcome {
    let result = ended(mount, written.map(Some)).await;
    outcome(result, |()| Answer::Written(u32::try_from(len).unwrap_or(u32::MAX)))
}

/// Asks the server for the size of the file, and then writes.
pub(super) async fn write_anew(
    mount: Shared,
    file: (u64, u64),
    written: Written<'static>,
    data: Vec<u8>,
) -> Outcome {
    mount.getattr(ino(file.0)).await.map_err(errno)?;
    let changed = mount.write(file, Written { bytes: &data, ..written });
    self::written(mount, changed, data.len()).await
}

async fn ended(mount: Shared, changed: Result<Option<Changed>, Refusal>) -> Result<(), Refusal> {
    match changed? {
        Some(changed) => mount.shell.waited_for(changed).await.map(drop),
        None => Ok(()),
    }
}

/// What fallocate(2) asks for, of a caller with this user id.
pub(super) fn allocation(
    (offset, length): (u64, u64),
    mode: u32,
    uid: u32,
) -> Result<Allocation, Refusal> {
    let (zeroes, keeps_size) = match mode.cast_signed() {
        0 => (false, false),
        libc::FALLOC_FL_KEEP_SIZE => (false, true),
        PUNCH_AND_KEEP | ZERO_AND_KEEP => (true, true),
        libc::FALLOC_FL_ZERO_RANGE => (true, false),
        _ => return Err(Refusal::NotSupported),
    };
    let range = offset..offset.checked_add(length).ok_or(Refusal::TooLarge)?;
    // The kernel says of writes who may keep set-id bits, of this it does not.
    Ok(Allocation { range, zeroes, keeps_size, kills_set_ids: uid != 0 })
}

/// fallocate(2), which may have to wait for the server.
pub(super) async fn allocate(
    mount: Shared,
    file: (Ino, u64),
    wanted: Result<Allocation, Refusal>,
) -> Outcome {
    if mount.is_size_lost(file.0) {
        mount.getattr(file.0).await.map_err(errno)?;
    }
    let changed = wanted.and_then(|wanted| mount.allocate(file.1, wanted));
    empty(ended(mount, changed).await)
}

pub(super) async fn seek(mount: Shared, handle: u64, offset: u64, whence: u32) -> Outcome {
    let sight = match whence.cast_signed() {
        libc::SEEK_DATA => Sight::Data,
        libc::SEEK_HOLE => Sight::Hole,
        _ => return Err(Errno::new(libc::EINVAL)),
    };
    let found = mount.seek(handle, offset, sight).await.map_err(errno)?;
    found.map(Answer::Offset).ok_or(Errno::new(libc::ENXIO))
}
