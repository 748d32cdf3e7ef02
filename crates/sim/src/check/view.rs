//! At the end each client's refreshed view is the server's tree, and nothing waits.
//!
//! Proves S6.20.

use segue_core::host::cache::Known;
use segue_core::nouns::Kind;
use segue_core::refusal::Refusal;

use super::structure::Reached;
use crate::Violation;
use crate::apps::Stop;
use crate::client::{Mount, POLL, Ran};
use crate::server::{Server, content};

/// Checks `mount`, which has nothing left to send, against what is reached on `server`.
pub(crate) fn check(
    mount: &mut Mount,
    server: &mut Server,
    reached: &Reached,
) -> Result<(), Violation> {
    check_settled(mount, server)?;
    for (directory, listing) in &reached.listings {
        let seen = at_once(mount, server, |mount| mount.list(*directory))?;
        if seen.as_ref() != Ok(listing) {
            return Err(Violation(format!("#{directory} lists {seen:?}, has {listing:?}")));
        }
    }
    for (ino, node) in &reached.nodes {
        let attr = at_once(mount, server, |mount| mount.getattr(*ino))?;
        if attr.as_ref() != Ok(&node.attr) {
            return Err(Violation(format!("#{ino} shows {attr:?}, is {:?}", node.attr)));
        }
        if node.attr.kind == Kind::File {
            let bytes = at_once(mount, server, |mount| mount.read(*ino, 0..node.attr.size))?;
            let volume = server.volume;
            let stored = content(&mut server.snapshot(), volume, *ino)?;
            if bytes.as_ref() != Ok(&stored) {
                return Err(Violation(format!("#{ino} reads {bytes:?}, is {stored:?}")));
            }
        }
    }
    Ok(())
}

/// Does `op` with a server that answers at once.
fn at_once<R>(
    mount: &mut Mount,
    server: &mut Server,
    op: impl Fn(&mut Mount) -> Result<R, Stop>,
) -> Result<Result<R, Refusal>, Violation> {
    mount.core.poll(POLL);
    let mut asked = None;
    for _ in 0..64 {
        let mut asking = match op(mount) {
            Ok(result) => return Ok(Ok(result)),
            Err(Stop::Refused(refusal)) => return Ok(Err(refusal)),
            Err(Stop::Ask(asking)) => asking,
            Err(Stop::Broken(violation)) => return Err(violation),
            Err(Stop::Later) => return Err(Violation("waits for nothing".into())),
        };
        loop {
            let answer = server.answer(mount.disk.kept.client(), &asking.request, &[])?;
            match mount.tell(&asking, answer, mount.now)? {
                Ran::Answered(Err(refusal)) => return Ok(Err(refusal)),
                Ran::Asks(next) => asking = next,
                _ => break,
            }
        }
        asked = Some(asking.request);
    }
    Err(Violation(format!("asks again for ever: {asked:?}")))
}

fn check_settled(mount: &Mount, server: &Server) -> Result<(), Violation> {
    let core = &mount.core;
    if !core.queue().is_empty() {
        return Err(Violation(format!("{} changes are queued", core.queue().len())));
    }
    if let Some((ino, file)) = core.files().find(|(_, file)| file.is_ahead()) {
        return Err(Violation(format!("#{ino} is ahead for ever: {file:?}")));
    }
    for ino in server.ledger.seen.iter() {
        if core.tree().is_pending(*ino) {
            return Err(Violation(format!("#{ino} is pending for ever")));
        }
    }
    for ((parent, name), ino) in &server.ledger.names {
        let Ok(name) = segue_core::nouns::Name::new(name.clone()) else { continue };
        // The clock stands beyond every lifetime: fresh is only what is thought to be pending.
        // Nobody looks into a removed directory before the server says that it is there again.
        let is_gone = core.tree().is_orphan(*parent);
        if let (Known::Fresh(found), false) = (core.tree().name(*parent, &name, mount.now), is_gone)
        {
            return Err(Violation(format!("#{parent}/{name} ({ino}) is {found:?} for ever")));
        }
    }
    for ino in mount.disk.acknowledged.unsealed() {
        // What a copy has made again is another file.
        if server.ledger.is_named(ino) && !server.ledger.was_removed(ino) {
            return Err(Violation(format!("#{ino} was written and is never stored")));
        }
    }
    for seq in mount.disk.acknowledged.seqs() {
        if !server.ledger.arrived(mount, seq) {
            return Err(Violation(format!("nothing became of the acknowledged seq {seq}")));
        }
    }
    Ok(())
}
