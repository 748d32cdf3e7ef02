//! Changing containers: the bytes, the log and the core, in an order in which a process may die
//! anywhere, and any step may fail.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::cache::FileData;
use segue_core::client::ClientCore;
use segue_core::modlog::Entry;
use segue_core::refusal::Refusal;
use segue_core::types::{Ino, Timestamp};

use super::{Mount, lock};
use crate::state::Container;

/// Whether a container is changed before the change is logged, so that what cannot be written
/// is not in the log, or after, because something is lost by it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    LogLast,
    LogFirst,
}

/// Keeps a file from being noted as clean while its container is being changed.
struct Changing<'a> {
    mount: &'a Mount,
    ino: Ino,
}

impl Changing<'_> {
    fn begin(mount: &Mount, ino: Ino) -> Result<Changing<'_>, Refusal> {
        let is_noted = mount.core().change_begins(ino);
        let changing = Changing { mount, ino };
        if is_noted {
            // If this process dies between the container and the log, the next one must not
            // take what nobody logged for clean data.
            let _noting = lock(&mount.noting);
            mount.forget_valid(ino)?;
        }
        Ok(changing)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.mount.core().change_ended(self.ino);
    }
}

impl Mount {
    /// Makes `ino` `size` bytes long here. Changes that wait may need what is cut off, and the
    /// next process would send zeros for them if this one died before the cut was logged.
    pub(crate) fn resize(&self, ino: Ino, size: u64) -> Result<(), Refusal> {
        let is_cut = self.core().tree.peek(ino).is_some_and(|attr| size < attr.size);
        self.change_data(
            (ino, size..size),
            if is_cut { Order::LogFirst } else { Order::LogLast },
            |container| container.resize(size),
            |core, time| core.draft_resize(ino, size, time),
        )
    }

    /// Changes a range of a container and logs it. A container that was replaced in between gets
    /// the change again: the log and the core know nothing of it yet.
    pub(super) fn change_data(
        &self,
        (ino, range): (Ino, Range<u64>),
        order: Order,
        change: impl Fn(&Container) -> io::Result<()>,
        draft: impl Fn(&mut ClientCore, Timestamp) -> Option<Entry>,
    ) -> Result<(), Refusal> {
        let time = self.wall();
        loop {
            let _changing = Changing::begin(self, ino)?;
            let container = self.container(ino)?;
            let _writing = container.writing();
            let change = || {
                let changed = change(&container);
                changed.map_err(|error| self.disk_refusal("containers", &error))
            };
            let (first, last) = match order {
                Order::LogLast => (change(), None),
                Order::LogFirst => (Ok(()), Some(change)),
            };
            let logged = first.and_then(|()| {
                self.log_change_and(
                    |core| {
                        if !Arc::ptr_eq(&self.container(ino)?, &container) {
                            return Ok(None);
                        }
                        draft(core, time).map(Some).ok_or(Refusal::Stale)
                    },
                    || last.map_or(Ok(()), |change| change()),
                    |_| (),
                )
            });
            match logged {
                Ok(Some(())) => break,
                Ok(None) => {}
                Err(refusal) => {
                    self.spoiled((ino, range), &container);
                    return Err(refusal);
                }
            }
        }
        if self.core().files.get(&ino).is_some_and(FileData::is_full) {
            self.seal_early(ino);
        }
        Ok(())
    }

    /// A change of `range` failed on its way: whatever the container has there is not the file's.
    fn spoiled(&self, (ino, range): (Ino, Range<u64>), container: &Container) {
        let size = {
            let mut core = self.core();
            if let Some(file) = core.files.get_mut(&ino) {
                file.spoiled(range);
            }
            core.tree.peek(ino).map(|attr| attr.size)
        };
        if let Some(size) = size
            && let Err(error) = container.cut(size)
        {
            tracing::error!("#{ino}: its container stays longer than it is: {error}");
        }
    }
}
