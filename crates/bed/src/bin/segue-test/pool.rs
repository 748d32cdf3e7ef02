//! Runs jobs side by side.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::job::{Done, Job};

/// Busy jobs at a time: one, so that the tests that wait find the other processor.
const BUSY: usize = 1;

type Queue = Arc<Mutex<Vec<Job>>>;

/// Runs all `jobs`, in their order, `waiting` of those that wait at a time, and hands each that
/// has ended to `done`.
pub(crate) fn run(jobs: Vec<Job>, waiting: usize, mut done: impl FnMut(Done)) {
    let (busy, idle): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.is_busy);
    let (tell, told) = channel();
    start(busy, BUSY, &tell);
    start(idle, waiting, &tell);
    drop(tell);
    told.into_iter().for_each(&mut done);
}

/// Starts `count` workers that share `jobs`.
fn start(mut jobs: Vec<Job>, count: usize, tell: &Sender<Done>) {
    jobs.reverse();
    let queue: Queue = Arc::new(Mutex::new(jobs));
    for _ in 0..count {
        let (queue, tell) = (Arc::clone(&queue), tell.clone());
        thread::spawn(move || {
            while let Some(job) = next(&queue) {
                if tell.send(job.run()).is_err() {
                    return;
                }
            }
        });
    }
}

fn next(queue: &Queue) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop()
}
