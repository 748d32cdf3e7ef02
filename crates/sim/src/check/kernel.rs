//! A kernel shows no name, listing or attribute that was replaced more than a lease ago. While the
//! host has a session, it shows nothing that was replaced at all, unless the word of the change is
//! on its way. It shows in any case what another client was told to be visible.
//!
//! Proves S6.2, S6.11, S6.14.

use std::time::Duration;

use segue_core::nouns::{Ino, Time};

use super::promised::{INSTANT, is_own};
use crate::Violation;
use crate::client::Mount;
use crate::server::Server;

/// A host that lost its connection shows a state of the time before. The word of a change may have
/// been on its way then, for so long.
const OFFLINE_MAX: Duration = Duration::from_secs(30);

/// Checks the kernel of `mount`, which `is_told` the change of an inode that is on its way to it.
pub(crate) fn check(
    mount: &Mount,
    server: &Server,
    now: Time,
    is_told: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    if mount.remote.awaits_outcomes() {
        return Ok(());
    }
    if let Some(shown) = server.shown_to(mount.disk.kept.client()) {
        check_since(mount, server, Time(shown.0 + INSTANT), |_| false)?;
    }
    if mount.remote.is_offline {
        return check_since(mount, server, Time(now.0.saturating_sub(OFFLINE_MAX)), |_| false);
    }
    match server.may_believe(mount.disk.kept.client(), now) {
        true => Ok(()),
        false => check_since(mount, server, Time(now.0 + INSTANT), is_told),
    }
}

/// Checks against what was before `time`.
fn check_since(
    mount: &Mount,
    server: &Server,
    time: Time,
    is_told: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    let is_changed_here = |ino| mount.core.tree().is_pending(ino);
    for (ino, change) in mount.kernel.shown_attributes() {
        if is_changed_here(ino) || is_told(ino) {
            continue;
        }
        if let (Some(became), _) = server.last_change(ino, time)
            && Some(change) < became
            && !is_own(mount, server, (ino, became))
        {
            let words = format!("the kernel shows #{ino} as {change}, and it is {became:?}");
            return Err(Violation(words));
        }
    }
    for (parent, name, shown) in mount.kernel.shown_names() {
        let (_, has_changed_since) = server.last_change(parent, time);
        if is_changed_here(parent) || has_changed_since || is_told(parent) {
            continue;
        }
        let means = server.ledger.names.get(&(parent, name.as_bytes().to_vec())).copied();
        if means != Some(shown) {
            let words = format!("the kernel shows {name} in #{parent} as {shown}, is {means:?}");
            return Err(Violation(words));
        }
    }
    for (directory, shown) in mount.kernel.shown_listings() {
        let (_, has_changed_since) = server.last_change(directory, time);
        if is_changed_here(directory) || has_changed_since || is_told(directory) {
            continue;
        }
        let first = (directory, Vec::new());
        let behind = (Ino(directory.0 + 1), Vec::new());
        let is_hidden = |ino: Ino| mount.core.tree().is_orphan(ino);
        let listed = server.ledger.names.range(first..behind).filter(|(_, ino)| !is_hidden(**ino));
        let listed = listed.map(|((_, name), ino)| (name.as_slice(), *ino));
        if !listed.clone().eq(shown.iter().map(|(name, ino)| (name.as_bytes(), *ino))) {
            let listed: Vec<_> = listed.collect();
            let words = format!("the kernel lists {shown:?} in #{directory}, and it is {listed:?}");
            return Err(Violation(words));
        }
    }
    Ok(())
}
