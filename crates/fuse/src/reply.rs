//! The way back to the kernel, for one request.

use std::sync::Arc;

use crate::answer::Outcome;
use crate::device::Device;
use crate::errno::Errno;
use crate::uring::Returns;

/// Takes the answer to one request. Dropped without an answer, it answers EIO: no process may wait
/// for ever because of a bug here.
#[derive(Debug)]
pub struct Reply {
    unique: u64,
    way: Option<Way>,
}

/// The origin of the request; its answer goes the same way.
#[derive(Debug)]
pub(crate) enum Way {
    Device(Arc<Device>),
    /// With the number of the ring's entry.
    Ring(Arc<Returns>, u16),
}

impl Reply {
    pub(crate) fn new(unique: u64, way: Way) -> Reply {
        Reply { unique, way: Some(way) }
    }

    /// Answers.
    pub fn send(mut self, outcome: Outcome) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Outcome) {
        match self.way.take() {
            Some(Way::Device(device)) => device.answer(self.unique, &outcome),
            Some(Way::Ring(returns, entry)) => returns.push(entry, outcome),
            None => {}
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.way.is_some() {
            tracing::error!(unique = self.unique, "a request was not answered");
            self.finish(Err(Errno::IO));
        }
    }
}
