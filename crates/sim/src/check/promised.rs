//! What a client believes because it was promised to hear of changes is so, unless the word of the
//! change is on its way: also where the connection was given up, whatever its clock shows. Of
//! what another client was told to be visible it believes nothing else, whatever is on its way.
//!
//! Proves S6.2, S6.12.

use std::time::Duration;

use segue_core::host::cache::Known;
use segue_core::nouns::{Ino, Name, Time, Version};

use crate::Violation;
use crate::client::Mount;
use crate::server::Server;

pub(super) const INSTANT: Duration = Duration::from_nanos(1);

/// Checks `mount`, which `is_told` the change of an inode that is on its way to it.
pub(crate) fn check(
    mount: &Mount,
    server: &Server,
    now: Time,
    is_told: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    if let Some(shown) = server.shown_to(mount.disk.kept.client()) {
        check_since(mount, server, Time(shown.0 + INSTANT), |_| false)?;
    }
    if server.may_believe(mount.disk.kept.client(), now) {
        return Ok(());
    }
    // Whom the server has given up believes nothing any more.
    check_since(mount, server, Time(now.0 + INSTANT), is_told)
}

/// Checks against what was before `time`.
fn check_since(
    mount: &Mount,
    server: &Server,
    time: Time,
    is_told: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    let tree = &mount.core.tree();
    if mount.remote.awaits_outcomes() {
        return Ok(());
    }
    for ino in tree.known_inodes() {
        let is_known = server.ledger.seen.contains(&ino) && !tree.is_pending(ino);
        if !is_known || !tree.is_promised(ino, mount.now) {
            continue;
        }
        let (became, has_changed_since) = server.last_change(ino, time);
        let known = tree.peek(ino).map(|attr| attr.change);
        // A file that was gone is there again if another copy of its host sends it.
        let is_other = |became: Option<_>| match became {
            Some(became) => known.is_some_and(|known| known < became),
            None => !has_changed_since,
        };
        if let Some(became) = became
            && is_other(became)
        {
            if is_told(ino) || is_own(mount, server, (ino, became)) {
                continue;
            }
            let words = format!("#{ino} is believed to be {known:?}, and is {became:?}");
            return Err(Violation(words));
        }
        if !has_changed_since
            && let Err(violation) = check_names(mount, server, ino)
            && !is_told(ino)
        {
            return Err(violation);
        }
    }
    Ok(())
}

/// True if a change of this host made `ino` this, and the host has not heard of that. Here a batch
/// may arrive a second time after its answer. Over QUIC none does.
pub(super) fn is_own(
    mount: &Mount,
    server: &Server,
    (ino, became): (Ino, Option<Version>),
) -> bool {
    let client = mount.disk.kept.client();
    let mut outcomes = server.ledger.outcomes.iter().filter(|(op, _)| op.client == client);
    outcomes.any(|(op, outcome)| {
        let mut touched = outcome.touched().iter();
        !mount.disk.acknowledged.is_settled(op.seq)
            && touched.any(|attr| attr.ino == ino && Some(attr.change) == became)
    })
}

/// The names in directory `ino`, which has not changed lately.
fn check_names(mount: &Mount, server: &Server, ino: Ino) -> Result<(), Violation> {
    let tree = &mount.core.tree();
    // A file that this host removed may be there again, because the server was put back. It is
    // shown once this host's changes of it have ended.
    let is_hidden = |means: Ino| tree.is_orphan(means) && tree.is_pending(means);
    for name in tree.known_names(ino) {
        let means = server.ledger.names.get(&(ino, name.as_bytes().to_vec())).copied();
        if let Known::Fresh(known) = tree.name(ino, name, mount.now)
            && known != means
            && !(known.is_none() && means.is_some_and(is_hidden))
        {
            let words = format!("{name} in #{ino} is believed to be {known:?}, is {means:?}");
            return Err(Violation(words));
        }
    }
    let absent = |name: &Name| tree.name(ino, name, mount.now) == Known::Fresh(None);
    for ((_, name), means) in
        server.ledger.names.range((ino, Vec::new())..(Ino(ino.0 + 1), Vec::new()))
    {
        let name = Name::new(name.clone()).ok();
        if name.as_ref().is_some_and(absent) && !is_hidden(*means) {
            return Err(Violation(format!("{name:?} in #{ino} is believed absent, is {means}")));
        }
    }
    Ok(())
}
