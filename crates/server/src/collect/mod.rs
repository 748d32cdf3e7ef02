//! Collection while the server serves: rows that nobody needs, then packs that no row needs.
//!
//! ```text
//!   every second      remnants whose time is over; slices of core::upkeep::collect, until
//!                     nothing is left
//!   every ten         packs: without rows ─▶ retired ─▶ nobody reads it ─▶ removed
//!                            a quarter dead ─▶ what lives is appended to the present pack
//!                     ragged files that nobody has written meanwhile are put in order
//!   every hour        nameless files that were open at hosts not heard of for a day;
//!                     what is known of old changes
//! ```
//!
//! One thread, below everything that somebody waits for: a slice is one short transaction, and
//! after each the thread rests as long as it worked.
//!
//! Whoever needs things to stay where they are, such as a backup, takes a [`Hold`].

mod changes;
mod orphans;
mod packs;
mod remnants;
mod tidy;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_core::namespace::Admits;
use segue_core::upkeep::collect::{Collected, collect};

pub(crate) use remnants::Remnants;

use crate::clock::now_seconds;
use crate::meta::StoreError;
use crate::serve::Server;

/// Rows of one slice, so that the writer is not kept for longer than about 5 ms.
const SLICE_ROWS: usize = 256;
/// Remnants of one slice: each is some rows, and up to 256 of its contents.
const SLICE_REMNANTS: usize = 16;
/// Time between two looks for rows.
const ROWS_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the packs.
const PACKS_EVERY: Duration = Duration::from_secs(10);
/// Time between two looks for nameless files.
const ORPHANS_EVERY: Duration = Duration::from_secs(3600);
/// Longest sleep, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Those who need everything to stay.
#[derive(Default)]
pub(crate) struct Holds(Mutex<usize>);

/// While it lives, no chunk and no pack is removed.
#[must_use]
pub(crate) struct Hold<'a>(&'a Holds);

impl Holds {
    /// Returns when nothing is being removed any more.
    pub(crate) fn hold(&self) -> Hold<'_> {
        *self.lock() += 1;
        Hold(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work`, which removes something, unless somebody holds.
    fn unless_held<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let holds = self.lock();
        (*holds == 0).then(work)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

/// The thread.
pub(crate) struct Collector(JoinHandle<()>);

impl Collector {
    /// Starts it; it ends when the server is stopping.
    pub(crate) fn start(server: Arc<Server>) -> io::Result<Collector> {
        let thread = std::thread::Builder::new().name("collector".to_owned());
        Ok(Collector(thread.spawn(move || run(&server))?))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        // A panic in there has been reported where it happened.
        let _ = self.0.join();
    }
}

fn run(server: &Server) {
    let (mut packs, mut tidy) = (packs::Upkeep::default(), tidy::Tidier::default());
    let begun = Instant::now();
    // Packs that a crash left without rows go soon after a start.
    let (mut packs_at, mut orphans_at) = (begun, begun + ORPHANS_EVERY);
    let (mut said, mut is_full_before) = (None, false);
    while !stopping(server) {
        rows(server, &mut said);
        if Instant::now() >= packs_at {
            let is_full = look_at_disk(server, is_full_before);
            is_full_before = is_full;
            // It writes more than it frees.
            if !is_full {
                tidy.look(server);
            }
            packs.look(server);
            packs_at = Instant::now() + PACKS_EVERY;
        }
        if Instant::now() >= orphans_at {
            orphans::look(server, begun);
            changes::look(server);
            orphans_at = Instant::now() + ORPHANS_EVERY;
        }
        rest(server, ROWS_EVERY);
    }
}

/// Fills the reserve. True if the disk has no room for chunks, which is said when it begins and
/// when it ends.
fn look_at_disk(server: &Server, was_full: bool) -> bool {
    let disk_space = server.data.store.disk_space();
    if let Err(error) = disk_space.refill() {
        tracing::debug!("cannot reserve space on the disk of the data directory: {error}");
    }
    let is_full = disk_space.admits() != Admits::All;
    match (was_full, is_full) {
        (false, true) => tracing::error!(
            "the disk of the data directory is full: files with new contents are refused; remove \
             files, or free space on the disk"
        ),
        (true, false) => tracing::info!("the disk of the data directory has space again"),
        _ => {}
    }
    is_full
}

fn stopping(server: &Server) -> bool {
    server.stopping.load(Ordering::Acquire)
}

/// Sleeps for `time`, or until the server stops.
fn rest(server: &Server, time: Duration) {
    let end = Instant::now() + time;
    while !stopping(server)
        && let Some(left) = end.checked_duration_since(Instant::now())
        && !left.is_zero()
    {
        std::thread::sleep(left.min(NAP));
    }
}

/// `said` is why it could not go on the last time, which is said once.
fn rows(server: &Server, said: &mut Option<StoreError>) {
    while !stopping(server) {
        let begun = Instant::now();
        let Some(done) = server.data.holds.unless_held(|| slice(server)) else { return };
        let failed = done.as_ref().err();
        if let Some(error) = failed.filter(|error| said.as_ref() != Some(error)) {
            tracing::error!("garbage collection failed: {error}");
        }
        *said = failed.cloned();
        let Ok(Collected { rows: 1.., chunks, .. }) = done else { return };
        server.metrics.chunks_collected.inc_by(chunks);
        rest(server, begun.elapsed());
    }
}

fn slice(server: &Server) -> Result<Collected, StoreError> {
    let (now, remnants) = (now_seconds(), server.remnants.clone());
    let is_full = server.data.store.disk_space().admits() != Admits::All;
    server.data.store.write_blocking(move |txn| {
        let gone = remnants.expire(txn, SLICE_REMNANTS, is_full)?;
        let done = collect(txn, now, SLICE_ROWS)?;
        Ok(Collected { rows: done.rows + gone as u64, ..done })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_removed_while_somebody_holds() {
        let holds = Holds::default();
        let (first, second) = (holds.hold(), holds.hold());
        assert_eq!(holds.unless_held(|| 1), None);
        drop(first);
        assert_eq!(holds.unless_held(|| 1), None);
        drop(second);
        assert_eq!(holds.unless_held(|| 1), Some(1));
    }
}
