//! What has waited for the server for too long goes before what is younger: with strict order
//! between the classes nothing else bounds how long write-back waits. So does what is pushed, or
//! another host waits for, and is on its way already.

use std::pin::pin;
use std::time::Duration;

use segue_core::host::log::Logged;
use segue_core::nouns::{Class, Time, Timestamp};
use segue_rpc::Rpc;

use crate::write_back::WriteBack;

impl WriteBack {
    /// Runs a call of write-back that carries some of `changes`. It is raised once the oldest
    /// change is due, or one of these is to go first.
    pub(super) async fn until_due<F: Future>(
        &self,
        class: Class,
        changes: &[u64],
        call: impl FnOnce(Rpc) -> F,
    ) -> F::Output {
        let rpc = Rpc::new(class);
        let mut call = pin!(call(rpc.clone()));
        let mut pushed = self.wakes.lanes.pushed.subscribe();
        loop {
            let left = self.time_left();
            if let Some(first) = self.host.lock().queue().raised_late(changes) {
                rpc.raise(first);
            } else if left.is_zero() {
                rpc.raise(class.when_due());
            }
            tokio::select! {
                done = &mut call => return done,
                () = tokio::time::sleep(left), if !left.is_zero() => {}
                _ = pushed.changed() => {}
            }
        }
    }

    /// How long the oldest change may wait.
    fn time_left(&self) -> Duration {
        let (now, wall) = (self.host.now(), self.host.wall());
        let core = self.host.lock();
        let waited =
            core.queue().iter().next().map_or(0.0, |(logged, at)| age(logged, at, now, wall));
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
        self.volume.options.due.saturating_sub(waited)
    }
}

/// Seconds since a change was made. Of one that an earlier process left only the wall clock knows.
pub(crate) fn age(logged: &Logged, at: Time, now: Time, wall: Timestamp) -> f64 {
    if at != Time::default() {
        return now.since(at).as_secs_f64();
    }
    let seconds = wall.secs.saturating_sub(logged.time.secs);
    u32::try_from(seconds.max(0)).map_or(f64::from(u32::MAX), f64::from)
}
