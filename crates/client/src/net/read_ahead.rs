//! Reading ahead: what a sequential reader will want next comes at the class of what nobody
//! waits for.
//!
//! A reader that catches up waits for what is on its way. While nothing else is, that is as fast
//! as asking; when something is, it would go first, for ever even. So what is on its way is raised,
//! if that is little more than what is waited for. Of more, the part that is waited for is asked
//! for anew, at the class of what somebody waits for, and the rest later: only what is on the wire
//! in that moment is sent twice.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use segue_core::nouns::{Class, Ino, Version};
use segue_core::refusal::Refusal;
use segue_rpc::Rpc;
use tokio::sync::Notify;

use crate::net::Fetcher;
use crate::net::fetch::Fetching;
use crate::rank::{Rank, Ranked};

/// The window of a link of which nothing is known yet.
const WINDOW_UNKNOWN: u64 = 4 << 20;
/// No window is longer: so much may be fetched that nobody wants.
const WINDOW_MAX: u64 = 16 << 20;
/// So much more than what is waited for is raised with it: what a slow link carries in a second is
/// too much, and less is not worth asking again.
const RAISED_MAX: u64 = 64 << 10;
/// A reader may look away for so long, and finds the link busy all the same.
const LOOKS_AWAY: Duration = Duration::from_millis(250);

/// A range that is being read ahead.
#[derive(Debug)]
struct ReadAhead {
    ino: Ino,
    range: Range<u64>,
    /// What of it somebody waits for by now.
    wanted: Ranked<Option<Range<u64>>>,
    /// Of what somebody waits for without hurry: it is raised when somebody else wants it.
    unhurried: Option<Rpc>,
}

/// What is being fetched, and for whom.
#[derive(Debug)]
pub(crate) struct Fetches {
    aheads: Ranked<Vec<Arc<ReadAhead>>>,
    /// Fetches under way that somebody waits for, in a hurry.
    demanded: AtomicUsize,
    /// Either of these has grown.
    pressing: Notify,
    /// Bytes.
    window: AtomicU64,
}

impl Default for Fetches {
    fn default() -> Fetches {
        let aheads = Ranked::new(Rank::Ahead, Vec::new());
        let (demanded, pressing) = Default::default();
        Fetches { aheads, demanded, pressing, window: AtomicU64::new(WINDOW_UNKNOWN) }
    }
}

/// Counts a fetch that somebody waits for.
struct Demanded<'a>(&'a Fetches);

impl Drop for Demanded<'_> {
    fn drop(&mut self) {
        self.0.demanded.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a range off the list when it is here, or will not be.
struct Listed<'a>(&'a Fetches, Arc<ReadAhead>);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.aheads.lock().retain(|ahead| !Arc::ptr_eq(ahead, &self.1));
    }
}

impl Fetches {
    /// How far to read ahead at most.
    pub(crate) fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    /// Somebody waits for `range`: whatever of it is being read ahead is wanted now.
    pub(crate) fn want(&self, ino: Ino, range: &Range<u64>) {
        for ahead in self.aheads.lock().iter().filter(|ahead| ahead.ino == ino) {
            let part = range.start.max(ahead.range.start)..range.end.min(ahead.range.end);
            if !part.is_empty() {
                if let Some(rpc) = &ahead.unhurried {
                    rpc.raise(Class::Fetch);
                }
                let mut wanted = ahead.wanted.lock();
                let known = wanted.take().unwrap_or(part.clone());
                *wanted = Some(known.start.min(part.start)..known.end.max(part.end));
            }
        }
        self.pressing.notify_waiters();
    }

    /// Runs a fetch that somebody waits for.
    pub(super) async fn demand<T>(&self, fetch: impl Future<Output = T>) -> T {
        self.demanded.fetch_add(1, Ordering::Relaxed);
        let _demanded = Demanded(self);
        self.pressing.notify_waiters();
        fetch.await
    }

    /// Runs a fetch that somebody waits for without hurry.
    pub(super) async fn unhurried<T>(
        &self,
        ino: Ino,
        range: &Range<u64>,
        rpc: &Rpc,
        fetch: impl Future<Output = T>,
    ) -> T {
        let unhurried = Some(rpc.clone());
        let ahead = ReadAhead { ino, range: range.clone(), wanted: Ranked::default(), unhurried };
        let ahead = Arc::new(ahead);
        self.list(&ahead);
        let _listed = Listed(self, ahead);
        fetch.await
    }

    fn list(&self, ahead: &Arc<ReadAhead>) {
        self.aheads.lock().push(Arc::clone(ahead));
        self.pressing.notify_waiters();
    }

    /// Returns what of `ahead` is waited for, once something else would go first.
    async fn overtaken(&self, ahead: &ReadAhead) -> Range<u64> {
        loop {
            let pressing = self.pressing.notified();
            tokio::pin!(pressing);
            pressing.as_mut().enable();
            let is_another = |other: &Arc<ReadAhead>| other.ino != ahead.ino;
            let is_pressed = self.demanded.load(Ordering::Relaxed) > 0
                || self.aheads.lock().iter().any(is_another);
            if is_pressed && let Some(wanted) = ahead.wanted.lock().take() {
                return wanted;
            }
            pressing.await;
        }
    }
}

impl Fetcher {
    /// Has the window follow the link: as much as it holds, there and back again, and what comes
    /// while the reader looks away.
    pub(crate) fn follow_link(&self) {
        let Some(stats) = self.remote.link().stats() else { return };
        let time = stats.rtt * 2 + LOOKS_AWAY;
        let bytes = u128::from(stats.bandwidth_down) * time.as_millis() / 1000;
        let window = match u64::try_from(bytes).unwrap_or(WINDOW_MAX) {
            0 => WINDOW_UNKNOWN,
            bytes => bytes.min(WINDOW_MAX),
        };
        self.fetches.window.store(window, Ordering::Relaxed);
    }

    /// Starts fetching `range`, which a sequential reader will want next.
    pub(crate) fn fetch_ahead(self: &Arc<Self>, ino: Ino, range: Range<u64>) {
        if self.disk.reserve_room(range.end - range.start) != Ok(true) {
            return;
        }
        let Some(version) = self.host.lock().fetch_began(ino, range.clone()) else { return };
        let fetching = Fetching { fetcher: Arc::clone(self), ino, range: range.clone() };
        let ahead = ReadAhead { ino, range, wanted: Ranked::default(), unhurried: None };
        let ahead = Arc::new(ahead);
        self.fetches.list(&ahead);
        tokio::spawn(async move {
            let fetcher = &fetching.fetcher;
            let _listed = Listed(&fetcher.fetches, Arc::clone(&ahead));
            if let Err(refusal) = fetcher.carry_ahead(&ahead, version).await {
                tracing::debug!("#{ino}: read-ahead: {refusal}");
            }
        });
    }

    async fn carry_ahead(&self, ahead: &ReadAhead, version: Version) -> Result<(), Refusal> {
        let ReadAhead { ino, range, .. } = ahead;
        loop {
            let wanted = {
                let rpc = Rpc::new(Class::Prefetch);
                let mut rest = pin!(self.fetch_missing(*ino, range, version, &rpc));
                let wanted = tokio::select! {
                    done = &mut rest => return done,
                    wanted = self.fetches.overtaken(ahead) => wanted,
                };
                let more = |range| self.bytes_missing(*ino, range);
                if more(range) <= more(&wanted) + RAISED_MAX {
                    rpc.raise(Class::Fetch);
                    return self.fetches.demand(rest).await;
                }
                wanted
            };
            let rpc = Rpc::new(Class::Fetch);
            let fetched = self.fetch_missing(*ino, &wanted, version, &rpc);
            self.fetches.demand(fetched).await?;
        }
    }

    fn bytes_missing(&self, ino: Ino, range: &Range<u64>) -> u64 {
        let core = self.host.lock();
        let missing = core.data_of(ino).map(|file| file.valid().missing(range.clone()));
        missing.into_iter().flatten().map(|gap| gap.end - gap.start).sum()
    }

    /// Fetches what is not here of `range`.
    async fn fetch_missing(
        &self,
        ino: Ino,
        range: &Range<u64>,
        version: Version,
        rpc: &Rpc,
    ) -> Result<(), Refusal> {
        let missing: Vec<_> = {
            let core = self.host.lock();
            let file = core.data_of(ino).ok_or(Refusal::Stale)?;
            file.valid().missing(range.clone()).into_iter().collect()
        };
        for gap in missing {
            self.fetch_gap(ino, version, gap, rpc).await?;
        }
        Ok(())
    }
}
