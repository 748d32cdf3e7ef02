//! What a user wants at the server first: it goes in a lane of its own, with what it has to follow,
//! at a class before other data.

use segue_core::host::call::Call;

use super::status::is_denied;
use super::sync::tops;
use crate::mount::Mount;
use crate::replies::{AnyPath, PushReply};

/// Has what was changed below these paths go first; how many changes that are with those that
/// they follow, and how many bytes of data these have.
pub(crate) fn push(mount: &Mount, paths: &[AnyPath]) -> PushReply {
    // It asks for nothing. Data that it could not seal are sealed later.
    let pushed = mount.shell.call(Call::Push(tops(paths))).unwrap_or_default();
    let (records, bytes) = pushed.answer.pushed;
    PushReply { records, bytes, offline: mount.remote.is_offline(), denied: is_denied(mount) }
}
