//! Keeping to `bwlimit` and `link`: this host limits what it sends, and has the server limit what
//! it sends here. Both hold on each new connection from its first message on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_core::wire::{Limit, Reply, Request};
use segue_rpc::{Body, CallError, Peer};
use tokio::sync::watch;

use super::Remote;
use crate::bandwidth::{Limits, Timetable};
use crate::clock::local_time;
use crate::replies::Bandwidth;

/// How often it is looked what holds: clocks are set, zones change, hosts sleep.
const LOOK: Duration = Duration::from_secs(20);
/// The wait after a server that did not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// What holds when. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    timetable: Arc<watch::Sender<Timetable>>,
    /// All other traffic goes first.
    is_background: bool,
    /// Some server was told of a limit, and may have to be told that there is none.
    is_told: Arc<AtomicBool>,
}

impl Limiter {
    pub(crate) fn new(timetable: Timetable, is_background: bool) -> Limiter {
        let timetable = Arc::new(watch::Sender::new(timetable));
        Limiter { timetable, is_background, is_told: Arc::default() }
    }

    /// What holds now, and for how long.
    fn now(&self) -> (Limits, Option<Duration>) {
        self.timetable.borrow().at(local_time())
    }

    /// Limits a new connection.
    pub(crate) async fn begin(&self, peer: &Peer) {
        let (limits, _) = self.now();
        // If it fails it is told again, or the connection is over.
        if let Err(error) = self.apply(peer, limits).await {
            tracing::debug!("the server was not told of a limit: {error}");
        }
    }

    /// Has both sides of a connection keep to `limits`.
    async fn apply(&self, peer: &Peer, Limits { up, down }: Limits) -> Result<(), CallError> {
        peer.limit(up);
        peer.set_background(self.is_background);
        if down.is_none() && !self.is_background && !self.is_told.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_told.store(true, Ordering::Relaxed);
        let request =
            Request::Limit(Limit { bytes_per_second: down, is_background: self.is_background });
        match peer.call(&request, Body::Empty).await?.reply {
            Reply::Limited(()) => Ok(()),
            other => Err(CallError::Protocol(format!("{} is no answer to Limit", other.name()))),
        }
    }

    /// Other limits hold from now on, until the mount ends.
    pub(crate) fn set(&self, timetable: Timetable) -> Bandwidth {
        tracing::info!("bwlimit={timetable}");
        self.timetable.send_replace(timetable);
        self.told()
    }

    /// What holds now.
    pub(crate) fn told(&self) -> Bandwidth {
        let (Limits { up, down }, time) = self.now();
        Bandwidth {
            bwlimit: self.timetable.borrow().to_string(),
            limit_up: up,
            limit_down: down,
            limit_seconds: time.map(|time| time.as_secs_f64()),
            background: self.is_background,
        }
    }

    /// Sees to it that what holds is what both sides do.
    pub(crate) async fn keep(self, remote: Remote) {
        let mut link = remote.link().watch();
        let mut changed = self.timetable.subscribe();
        // What the connection of this number knows.
        let mut known = None;
        loop {
            let (limits, time) = self.now();
            let mut wait = time.unwrap_or(LOOK).min(LOOK);
            let generation = remote.link().generation();
            if let Some((peer, generation)) = remote.link().peer().zip(generation)
                && known != Some((generation, limits))
            {
                match self.apply(&peer, limits).await {
                    Ok(()) => known = Some((generation, limits)),
                    Err(error) => {
                        tracing::debug!("the server was not told of a limit: {error}");
                        wait = AGAIN;
                    }
                }
            }
            tokio::select! {
                _ = link.changed() => {}
                _ = changed.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}
