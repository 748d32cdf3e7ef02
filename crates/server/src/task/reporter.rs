//! The reports of a task to its listener, who ends the task by leaving.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two words of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// The listener of a task, and whether the task goes on.
pub(crate) struct Reporter<'a, L> {
    tell: &'a mut dyn FnMut(L) -> bool,
    stopping: &'a AtomicBool,
    listened: bool,
    told: Instant,
}

impl<'a, L> Reporter<'a, L> {
    /// `tell` says whether to go on; so does `stopping`, when the server stops.
    pub(crate) fn new(tell: &'a mut dyn FnMut(L) -> bool, stopping: &'a AtomicBool) -> Self {
        Reporter { tell, stopping, listened: true, told: Instant::now() }
    }

    pub(crate) fn say(&mut self, line: L) {
        self.listened = self.listened && (self.tell)(line);
    }

    /// False if nobody listens any more, or the server stops.
    pub(crate) fn goes_on(&self) -> bool {
        self.listened && !self.stopping.load(Ordering::Acquire)
    }

    /// Says `line` if it is time to; false ends the work.
    pub(crate) fn progress(&mut self, line: impl FnOnce() -> L) -> bool {
        if self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            self.say(line());
        }
        self.goes_on()
    }
}
