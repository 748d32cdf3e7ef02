//! What somebody does again and again while something else goes on.
//!
//! ```text
//!   background   write ────────────▶ returned ────── log ──────▶ empty: end()
//!   foreground   pass  pause  pass  pause  pass  pause  pass     no pass begins any more
//! ```
//!
//! Three passes at the start would be over before the link is full; so passes go on for as long as
//! anything goes on beside them.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use segue_bed::Result;

/// When passes end.
#[derive(Debug, Default)]
pub(super) struct Passes {
    is_over: Mutex<bool>,
    told: Condvar,
}

impl Passes {
    /// No pass begins from now on.
    pub(super) fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    /// Waits for `pause`, or until the end: true if that has come.
    fn rest(&self, pause: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = self.told.wait_timeout_while(is_over, pause, |is_over| !*is_over);
        let (is_over, _) = rested.unwrap_or_else(PoisonError::into_inner);
        *is_over
    }

    /// The seconds of each pass: one, and others until the end or until there are `most`.
    pub(super) fn run(
        &self,
        pause: Duration,
        most: usize,
        mut pass: impl FnMut() -> Result<f64>,
    ) -> Result<Vec<f64>> {
        let mut seconds = Vec::new();
        loop {
            seconds.push(pass()?);
            if seconds.len() >= most || self.rest(pause) {
                return Ok(seconds);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_bed::Error;

    /// Longer than any test lasts: it ends only because it is told to.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn passes_go_on_until_the_end() {
        let passes = Passes::default();
        let mut done = 0.0;
        let seconds = passes.run(Duration::ZERO, usize::MAX, || {
            done += 1.0;
            if done == 5.0 {
                passes.end();
            }
            Ok(done)
        });
        assert_eq!(seconds.unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        // What ends before the first pass has begun is beside that one all the same.
        assert_eq!(passes.run(LONG, usize::MAX, || Ok(7.0)).unwrap(), [7.0]);
    }

    #[test]
    fn a_pause_ends_with_what_it_waits_beside() {
        let passes = Passes::default();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| passes.run(LONG, usize::MAX, || Ok(1.0)));
            passes.end();
            assert_eq!(running.join().unwrap().unwrap(), [1.0]);
        });
    }

    #[test]
    fn passes_alone_are_counted_and_a_failure_ends_them() {
        let passes = Passes::default();
        assert_eq!(passes.run(Duration::ZERO, 3, || Ok(1.0)).unwrap(), [1.0; 3]);
        let failed = passes.run(LONG, 3, || Err(Error::Wrong("gone".into())));
        assert!(failed.is_err());
    }
}
