//! Keeping what waits for the server within `log-max`: what it lacks of files, and the log itself.
//!
//! Near the bound who changes something waits a little after each change, by the law of
//! [`segue_core::host::log::Bound`]. Who meets it waits until something has gone. Only when nothing
//! went for `grace`, because there is no network or the server takes nothing, are changes refused,
//! with ENOSPC, until something goes again. What removes something is never refused.
//!
//! The sum is kept roughly with each change and put right once a second.

use std::time::Duration;

use segue_core::host::call::Seals;
use segue_core::nouns::Time;
use segue_core::refusal::Refusal;

use crate::rank::Ranked;
use crate::shell::{Changed, Shell};
use crate::waits::waits;

/// A person is told this often that writers are slowed.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// When a person was told last that writers are slowed.
#[derive(Debug, Default)]
pub(crate) struct Slowed(Ranked<Option<Time>>);

impl Shell {
    /// Waits as long as a call asks for: for the outcome of a change, and for room in the log.
    pub(crate) async fn waited_for(&self, changed: Changed) -> Result<Changed, Refusal> {
        let changed = match changed.rest {
            Some(rest) => Box::pin(rest.end()).await?,
            None => changed,
        };
        self.slow_down(changed.answer.slowed_by).await;
        Ok(changed)
    }

    /// Waits as long as a caller that added so many bytes to a log that is nearly full.
    pub(crate) async fn slow_down(&self, added: Option<u64>) {
        if let Some(bytes) = added {
            Box::pin(self.slow_down_by(bytes)).await;
        }
    }

    async fn slow_down_by(&self, bytes: u64) {
        let rate = match self.remote.is_offline() {
            true => 0,
            false => self.remote.link().stats().map_or(0, |stats| stats.bandwidth_up),
        };
        let delay = self.host.lock().slow_down(bytes, rate);
        if delay == Some(Duration::ZERO) {
            return;
        }
        self.tell_slowed();
        let Some(delay) = delay else {
            let room = || "room in the update log (log-max)".to_owned();
            return waits(room, self.wait_for_room()).await;
        };
        let pace = || "the link, because the update log is nearly full (log-max)".to_owned();
        waits(pace, tokio::time::sleep(delay)).await;
    }

    async fn wait_for_room(&self) {
        let mut progress = self.wakes.settled.subscribe();
        while self.host.lock().is_bound_met() {
            // What is written and not closed goes only then.
            self.seal_all(Seals::Decided).ok();
            let before = self.bytes_on_the_way();
            let is_over =
                tokio::time::timeout(self.volume.options.grace, progress.changed()).await.is_err();
            // On a slow link a piece takes longer.
            if is_over && (self.remote.is_offline() || self.bytes_on_the_way() == before) {
                if self.host.lock().refuse_writes() {
                    tracing::error!(
                        "{}: {} bytes are pending, as many as log-max allows, and none are being \
                         sent: writes fail with ENOSPC until the server takes some",
                        self.volume.mountpoint.display(),
                        self.host.lock().pending_bytes()
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

    fn tell_slowed(&self) {
        let (now, pending) = (self.host.now(), self.host.lock().pending_bytes());
        let mut told = self.slowed.0.lock();
        if told.is_none_or(|told| now.since(told) >= TELL_EVERY) {
            *told = Some(now);
            tracing::warn!(
                "{}: {pending} of {} bytes (log-max) are pending: writers are slowed",
                self.volume.mountpoint.display(),
                self.volume.options.log_max
            );
        }
    }
}
