//! What has waited for the server for too long goes before what is younger: with strict order
//! between the classes nothing else bounds how long write-back waits. So does what is pushed and is
//! on its way already.

use std::pin::pin;
use std::time::Duration;

use segue_core::nouns::Class;
use segue_rpc::Rpc;

use super::Mount;
use super::report::age;

impl Mount {
    /// Runs a call of write-back, which is raised once the oldest change is due, or what it may
    /// carry is pushed.
    pub(super) async fn until_due<F: Future>(
        &self,
        class: Class,
        call: impl FnOnce(Rpc) -> F,
    ) -> F::Output {
        let rpc = Rpc::new(class);
        let mut call = pin!(call(rpc.clone()));
        let mut pushed = self.lanes.pushed.subscribe();
        loop {
            let left = self.time_left();
            if left.is_zero() || self.core().queue.is_raised_late() {
                rpc.raise(class.when_due());
                return call.await;
            }
            tokio::select! {
                done = &mut call => return done,
                () = tokio::time::sleep(left) => {}
                _ = pushed.changed() => {}
            }
        }
    }

    /// How long the oldest change may wait.
    fn time_left(&self) -> Duration {
        let (now, wall) = (self.now(), self.wall());
        let core = self.core();
        let waited =
            core.queue.iter().next().map_or(0.0, |(logged, at)| age(logged, at, now, wall));
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
        self.options.due.saturating_sub(waited)
    }
}
