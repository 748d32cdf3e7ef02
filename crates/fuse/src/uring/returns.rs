//! The way of answers to the thread of a ring, and of the order to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, eventfd};

use crate::answer::Outcome;

/// Answers on their way to the ring's thread.
#[derive(Debug)]
pub(crate) struct Returns {
    answers: Mutex<Vec<(u16, Outcome)>>,
    wake: OwnedFd,
    /// The ring's thread, which looks by itself before it sleeps.
    owner: Mutex<Option<ThreadId>>,
    /// The mount is gone.
    ended: AtomicBool,
}

impl Returns {
    pub(super) fn new() -> io::Result<Returns> {
        Ok(Returns {
            answers: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
            owner: Mutex::new(None),
            ended: AtomicBool::new(false),
        })
    }

    /// The calling thread is the ring's.
    pub(super) fn come_here(&self) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
    }

    pub(crate) fn push(&self, entry: u16, outcome: Outcome) {
        let first = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((entry, outcome));
            answers.len() == 1
        };
        let owner = *self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if first && owner != Some(thread::current().id()) {
            self.wake();
        }
    }

    fn wake(&self) {
        // The counter cannot overflow: it is read whenever it is not 0.
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).ok();
    }

    /// Ends the ring's thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn has(&self, entry: u16) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().any(|(answered, _)| *answered == entry)
    }

    pub(super) fn take(&self) -> Vec<(u16, Outcome)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Returns {
    /// Becomes readable when answers wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
