//! The way back to the kernel, for one request.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::answer::{Answer, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::splice;
use crate::uring::Returns;

/// Takes the answer to one request. Dropped without one, it answers EIO: no process is to wait
/// for ever because of a bug here.
#[derive(Debug)]
pub struct Reply {
    unique: u64,
    way: Option<Way>,
}

/// Where the request came from; its answer goes the same way.
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

    /// Answers READ with `len` bytes of `file` from `offset` on, which are there. Over the device
    /// they do not pass through this process.
    pub fn send_from(mut self, file: &File, offset: u64, len: usize) {
        if let Some(Way::Device(device)) = &self.way
            && splice::send(device, self.unique, file.as_fd(), offset, len).is_ok()
        {
            self.way = None;
            return;
        }
        let mut data = vec![0; len];
        let read = file.read_exact_at(&mut data, offset);
        self.finish(read.map(|()| Answer::Data(data)).map_err(|error| Errno::from(&error)));
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
