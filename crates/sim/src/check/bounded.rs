//! At the end nothing has grown without a bound: what is known, what is on disks, what is promised.

use std::time::Duration;

use segue_core::nouns::{Kind, Time};

use crate::Violation;
use crate::client::{Mount, NODE_LIMIT};

/// Nothing that was asked now is young any more.
const LATER: Duration = Duration::from_secs(60);

/// Checks `mount`, for which nothing is under way.
pub(crate) fn check(mount: &mut Mount) -> Result<(), Violation> {
    mount.now = Time(mount.now.0 + LATER);
    mount.disk.note(&mut mount.core, mount.now);
    mount.core.shrink(mount.now);
    mount.disk.sweep(&mut mount.core);
    let tree = mount.core.tree();
    // Also of those that the server never saw.
    let in_use = tree.known_inodes().filter(|ino| mount.core.is_held(*ino)).count();
    let attrs = || tree.known_inodes().filter_map(|ino| tree.peek(ino));
    // Where levels are given, each directory may say what holds below it.
    let has_levels = attrs().any(|attr| attr.lm.is_some());
    let known = attrs().filter(|attr| !(has_levels && attr.kind == Kind::Directory)).count();
    // The root always is.
    if known > NODE_LIMIT + in_use + 1 {
        return Err(Violation(format!("{known} inodes are known, {in_use} of them in use")));
    }
    if let Some(key) = mount.disk.unneeded_container(&mount.core) {
        return Err(Violation(format!("nobody needs container {key:?}, and it stays")));
    }
    let kept = mount.disk.kept.preserved.len();
    if kept > 0 {
        return Err(Violation(format!("bytes of {kept} changes are preserved for ever")));
    }
    Ok(())
}
