//! Keeping what waits for the server within `log-max`: what it lacks of files, and the log itself.
//!
//! Near the bound who changes something waits a little after each change, by the law of
//! [`segue_core::host::log::Bound`]. Who meets it waits until something has gone. Only when nothing
//! went for `grace`, because there is no network or the server takes nothing, are changes refused,
//! with ENOSPC, until something goes again. What removes something is never refused.
//!
//! The sum is kept roughly with each change and put right once a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use segue_core::host::log::{Bound, Logged};
use segue_core::nouns::{Record, Time};
use segue_core::refusal::Refusal;

use super::why::waits;
use super::{Mount, lock};
use crate::control::types::Writers;

/// A person is told this often that writers are slowed.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Bytes that are pending, and whether their bound is met.
#[derive(Debug, Default)]
pub(super) struct PendingBytes {
    bytes: AtomicU64,
    /// The bound is met, and nothing goes.
    is_stuck: AtomicBool,
    told: Mutex<Option<Time>>,
}

impl Mount {
    fn bound(&self) -> Bound {
        Bound(self.options.log_max)
    }

    /// Bytes that wait for the server, about. What it has of a store whose turn has not come is
    /// no longer waiting.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting.bytes.load(Ordering::Relaxed).saturating_sub(self.sent_ahead())
    }

    /// Counts what waits.
    pub(super) fn measure_waiting(&self) {
        let log = lock(&self.log).len();
        let core = self.core();
        self.waiting.bytes.store(log + core.unsafe_bytes(), Ordering::Relaxed);
    }

    /// These changes wait no longer.
    pub(super) fn no_longer_waiting<'a>(&self, changes: impl Iterator<Item = &'a Logged>) {
        let bytes: u64 = changes.map(|logged| logged.change.bytes()).sum();
        let less = |waiting: u64| Some(waiting.saturating_sub(bytes));
        self.waiting.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
        self.waiting.is_stuck.store(false, Ordering::Relaxed);
    }

    /// True if little may be added to what waits.
    pub(super) fn is_near_bound(&self) -> bool {
        self.bound().is_near(self.waiting_bytes())
    }

    /// How writers fare.
    pub(super) fn writers(&self) -> Writers {
        let waiting = self.waiting_bytes();
        match self.bound().is_met(waiting) {
            true if self.waiting.is_stuck.load(Ordering::Relaxed) => Writers::Refused,
            _ if self.bound().is_near(waiting) => Writers::Slowed,
            _ => Writers::Free,
        }
    }

    /// Refuses what there is no room for, and no hope of any soon.
    pub(super) fn check_bound(&self) -> Result<(), Refusal> {
        match self.writers() {
            Writers::Refused => Err(Refusal::NoSpace),
            Writers::Free | Writers::Slowed => Ok(()),
        }
    }

    /// The same for a change of names or attributes.
    pub(super) fn check_bound_for(&self, record: &Record) -> Result<(), Refusal> {
        match record {
            Record::Create { .. } | Record::Link { .. } | Record::SetXattr { .. } => {
                self.check_bound()
            }
            _ => Ok(()),
        }
    }

    /// Waits as long as somebody does who has added `bytes` to what waits.
    pub(crate) async fn slow_down(&self, bytes: u64) {
        self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = self.waiting_bytes();
        if !self.bound().is_near(waiting) {
            return;
        }
        self.tell_slowed(waiting);
        if self.bound().is_met(waiting) {
            let room = || "room in the update log (log-max)".to_owned();
            return waits(room, self.wait_for_room()).await;
        }
        let rate = match self.remote.is_offline() {
            true => 0,
            false => self.remote.link().stats().map_or(0, |stats| stats.bandwidth_up),
        };
        let delay = self.bound().delay(waiting, bytes, rate);
        let pace = || "the link, because the update log is nearly full (log-max)".to_owned();
        waits(pace, tokio::time::sleep(delay)).await;
    }

    async fn wait_for_room(&self) {
        let mut progress = self.settled.subscribe();
        while self.bound().is_met(self.waiting_bytes()) {
            // What is written and not closed goes only then.
            self.seal_all();
            let before = self.bytes_on_the_way();
            let is_over =
                tokio::time::timeout(self.options.grace, progress.changed()).await.is_err();
            // On a slow link a piece takes longer.
            if is_over && (self.remote.is_offline() || self.bytes_on_the_way() == before) {
                if !self.waiting.is_stuck.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        "{}: {} bytes are pending, as many as log-max allows, and none are being \
                         sent: writes fail with ENOSPC until the server takes some",
                        self.mountpoint.display(),
                        self.waiting_bytes()
                    );
                }
                return;
            }
        }
    }

    /// Bytes that were sent over this connection.
    fn bytes_on_the_way(&self) -> u64 {
        self.remote.link().stats().map_or(0, |stats| stats.sent.iter().sum())
    }

    fn tell_slowed(&self, waiting: u64) {
        let now = self.now();
        let mut told = lock(&self.waiting.told);
        if told.is_none_or(|told| now.since(told) >= TELL_EVERY) {
            *told = Some(now);
            tracing::warn!(
                "{}: {waiting} of {} bytes (log-max) are pending: writers are slowed",
                self.mountpoint.display(),
                self.options.log_max
            );
        }
    }
}
