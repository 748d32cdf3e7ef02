//! What a user wants at the server first: it goes in a lane of its own, with what it has to follow,
//! at a class before other data.

use super::status::is_denied;
use super::sync::below;
use crate::control::sync::is_below;
use crate::mount::Mount;
use crate::replies::{AnyPath, PushReply};

/// Has what was changed below these paths go first; how many changes that are with those that
/// they follow, and how many bytes of data these have.
pub(crate) fn push(mount: &Mount, paths: &[AnyPath]) -> PushReply {
    mount.shell.note_maps(None).ok();
    let unsealed = {
        let core = mount.host.lock();
        let mut unsealed = core.unsealed();
        unsealed.retain(|ino| is_below(paths, &core.tree.path_bytes(*ino)));
        unsealed
    };
    unsealed.into_iter().for_each(|ino| mount.shell.seal_early(ino));
    let seqs = below(mount, paths);
    let (records, bytes) = {
        let mut core = mount.host.lock();
        let new = core.push(&seqs);
        core.queue.among(&new.union(&seqs).copied().collect())
    };
    // Calls of what is on its way already.
    mount.wakes.lanes.pushed.send_replace(());
    mount.shell.send_now();
    PushReply { records, bytes, offline: mount.remote.is_offline(), denied: is_denied(mount) }
}
