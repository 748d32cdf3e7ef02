//! Runs jobs side by side.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::job::{self, Done, Job};

/// Busy jobs at a time: one, so that the tests that wait find the other processor.
const BUSY: usize = 1;

/// No more jobs are started after so many have hung. What hangs one may hang all: each for as long
/// as a job may take.
const HUNG_MAX: u32 = 3;
/// Nor after this: CI ends after 90 minutes, and keeps no word of what ran.
const LONGEST: Duration = Duration::from_secs(45 * 60);
const LONGEST_LONG: Duration = Duration::from_secs(8 * 3600);

type Queue = Arc<Mutex<Vec<Job>>>;

/// Whether it is of use to start more jobs.
#[derive(Debug)]
struct Patience {
    until: Instant,
    hung: AtomicU32,
}

impl Patience {
    fn new() -> Patience {
        let longest = if job::is_long() { LONGEST_LONG } else { LONGEST };
        Patience { until: Instant::now() + longest, hung: AtomicU32::new(0) }
    }

    /// Why it is of no use.
    fn ended(&self) -> Option<&'static str> {
        if self.hung.load(Ordering::Relaxed) >= HUNG_MAX {
            return Some("too many tests have hung");
        }
        (Instant::now() > self.until).then_some("all tests together take too long")
    }

    fn run(&self, job: Job) -> Done {
        match self.ended() {
            Some(why) => job.left_out(why),
            None => {
                let done = job.run();
                self.hung.fetch_add(u32::from(done.hung()), Ordering::Relaxed);
                done
            }
        }
    }
}

/// Runs all `jobs`, in their order, `waiting` of those that wait at a time, and hands each that
/// has ended to `done`.
pub(crate) fn run(jobs: Vec<Job>, waiting: usize, mut done: impl FnMut(Done)) {
    let (busy, idle): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.is_busy);
    let (tell, told) = channel();
    let patience = Arc::new(Patience::new());
    start(busy, BUSY, &patience, &tell);
    start(idle, waiting, &patience, &tell);
    drop(tell);
    told.into_iter().for_each(&mut done);
}

/// Starts `count` workers that share `jobs`.
fn start(mut jobs: Vec<Job>, count: usize, patience: &Arc<Patience>, tell: &Sender<Done>) {
    jobs.reverse();
    let queue: Queue = Arc::new(Mutex::new(jobs));
    for _ in 0..count {
        let (queue, tell) = (Arc::clone(&queue), tell.clone());
        let patience = Arc::clone(patience);
        thread::spawn(move || {
            while let Some(job) = next(&queue) {
                if tell.send(patience.run(job)).is_err() {
                    return;
                }
            }
        });
    }
}

fn next(queue: &Queue) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_started_once_some_have_hung() {
        let patience = Patience::new();
        assert_eq!(patience.ended(), None);
        patience.hung.store(HUNG_MAX, Ordering::Relaxed);
        assert!(patience.ended().is_some());
        let late = Patience { until: Instant::now() - Duration::from_secs(1), ..Patience::new() };
        assert!(late.ended().is_some());
    }
}
