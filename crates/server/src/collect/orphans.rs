//! Nameless files that were open at hosts which have not been heard of for a day.

use std::time::{Duration, Instant};

use segue_core::namespace;
use segue_core::upkeep::{drop_silent_orphans, silent_clients};

use crate::clock::now_seconds;
use crate::meta::StoreError;
use crate::serve::Server;

/// How long a silent host's open files without a name are kept.
const SILENCE: Duration = Duration::from_secs(86_400);

/// Notes who is here, and removes what those left open who are silent for too long.
pub(super) fn look(server: &Server, begun: Instant) {
    if let Err(error) = try_look(server, begun) {
        tracing::error!("cannot release files without a name: {error}");
    }
}

fn try_look(server: &Server, begun: Instant) -> Result<(), StoreError> {
    let (store, now) = (&server.data.store, now_seconds());
    let here = server.sessions.clients();
    let noted = here.clone();
    store.write_blocking(move |txn| {
        noted.iter().try_for_each(|client| namespace::seen(txn, *client, now))
    })?;
    // Who was connected before this start has to have time to come back.
    if begun.elapsed() < SILENCE {
        return Ok(());
    }
    let before = now.saturating_sub(SILENCE.as_secs());
    for silent in store.read_blocking(move |kv| silent_clients(kv, before))?? {
        while !here.contains(&silent.0)
            && store.write_blocking(move |txn| drop_silent_orphans(txn, silent, before))?
        {}
    }
    Ok(())
}
