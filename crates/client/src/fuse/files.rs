//! Requests about open files.

use std::ffi::OsStr;

use segue_core::modlog::NewNode;
use segue_core::modlog::Outcome as Committed;
use segue_core::refusal::Refusal;
use segue_core::types::{Caller, Ino};
use segue_fuse::{Answer, Outcome};
use tokio::sync::oneshot;

use super::convert::{self, entry, opened, outcome};
use crate::mount::{Creation, OpenMode, Shared};

pub(super) async fn open(mount: Shared, ino: Ino, mode: OpenMode, caller: Caller) -> Outcome {
    let result = mount.open(ino, mode, caller).await;
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
        let file = match is_new {
            true => mount.add_handle(found.ino, mode, caller),
            false => mount.open(found.ino, mode, caller).await?,
        };
        Ok((found, file))
    };
    outcome(result.await, |(found, file)| {
        let ttl = mount.kernel_lifetime(found.ino);
        Answer::Created(entry(&found, ttl, ttl), opened(file))
    })
}

/// The end of a write, which may have to wait for the server.
pub(super) async fn written(
    mount: Shared,
    written: Result<Option<oneshot::Receiver<Committed>>, Refusal>,
    len: usize,
) -> Outcome {
    let result = match written {
        Ok(None) => Ok(()),
        Ok(Some(told)) => mount.committed(told).await,
        Err(refusal) => Err(refusal),
    };
    outcome(result, |()| Answer::Written(u32::try_from(len).unwrap_or(u32::MAX)))
}
