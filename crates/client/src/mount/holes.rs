//! Holes of files: fallocate(2), and lseek(2) that looks for them.
//!
//! A hole is where the container has one, of what is valid here, and where the server has no
//! data, of the rest. Whatever is not known may be called data: then a program reads zeros where
//! it could have gone on. What is called a hole is one, or the copy of a file would lack bytes.
//!
//! Nothing is ever reserved: the server has room or not when it gets the data.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use segue_core::host::call::{By, Call, EditCall, What};
use segue_core::nouns::{Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::Sought;

use crate::disk::files::Container;
use crate::mount::Mount;
use crate::shell::Changed;

/// What fallocate(2) is to do with a range.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) range: Range<u64>,
    /// Make it zeros that need no room; else leave what is there.
    pub(crate) zeroes: bool,
    /// Do not let the file grow.
    pub(crate) keeps_size: bool,
    /// By somebody who may not keep set-id bits.
    pub(crate) kills_set_ids: bool,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    Data,
    Hole,
}

/// The server's answer about one version, and from where on it was asked.
struct Known {
    version: Version,
    from: u64,
    sought: Sought,
}

/// The same in a container that nobody changes.
fn seek_in(container: &Container, offset: u64, sight: Sight) -> io::Result<Option<u64>> {
    let size = container.len()?;
    let mut at = offset;
    while at < size {
        let data = container.next_data(at..size)?;
        match sight {
            Sight::Data => return Ok((!data.is_empty()).then_some(data.start)),
            Sight::Hole if at < data.start => return Ok(Some(at)),
            Sight::Hole if data.is_empty() => return Ok(Some(at)),
            Sight::Hole => at = data.end,
        }
    }
    Ok((sight == Sight::Hole && offset < size).then_some(size))
}

impl Mount {
    /// fallocate(2).
    pub(crate) fn allocate(
        self: &Arc<Self>,
        handle: u64,
        asked: Allocation,
    ) -> Result<Option<Changed>, Refusal> {
        let ino = self.handle(handle)?.ino;
        let size = self.host.lock().tree().peek(ino).ok_or(Refusal::Stale)?.size;
        let Range { start, end } = asked.range;
        let end = if asked.keeps_size { end.min(size) } else { end };
        if !asked.zeroes {
            self.disk.check_room(0)?;
        }
        let what = match asked.zeroes {
            true if start < end => What::Zeros(start..end),
            false if end > size => What::Resize { size: end },
            _ => return Ok(None),
        };
        let (by, kills_set_ids) = (By::Handle(handle), asked.kills_set_ids);
        self.shell.begin(Call::Edit(EditCall { ino, by, what, kills_set_ids }), &[]).map(Some)
    }

    /// Where what is looked for begins, from `offset` on; `None` if there is none. The end of
    /// file is a hole.
    pub(crate) async fn seek(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        sight: Sight,
    ) -> Result<Option<u64>, Refusal> {
        let handle = self.handle(handle)?;
        if let Some(container) = self.kernel.left_with(&handle) {
            let found = seek_in(&container, offset, sight);
            return found.map_err(|error| self.disk.disk_refusal("containers", &error));
        }
        let ino = handle.ino;
        if self.host.lock().handles().writer(ino).is_some() {
            // What was written through a map is in the kernel's pages only, until these go.
            self.kernel.cache.forget_data(ino);
            self.kernel.cache.forgotten().await;
        }
        // If it stays unknown whose data these are, they may be anything.
        let unknown = self.shell.fetch(ino, 0..0).await.is_err();
        let (mut at, mut known) = (offset, None);
        loop {
            let size = self.host.lock().tree().peek(ino).ok_or(Refusal::Stale)?.size;
            if offset >= size {
                return Ok(None);
            }
            if at >= size {
                return Ok((sight == Sight::Hole).then_some(size));
            }
            let data = match unknown {
                true => at..size,
                false => self.next_data(ino, at..size, &mut known).await?,
            };
            match sight {
                Sight::Data if !data.is_empty() => return Ok(Some(data.start)),
                Sight::Hole if at < data.start => return Ok(Some(at)),
                Sight::Data | Sight::Hole => at = data.end,
            }
        }
    }

    /// The first run of data from the start of `range`, or an empty one up to where there are
    /// none. It ends before a hole, or where it has to be asked again.
    async fn next_data(
        &self,
        ino: Ino,
        range: Range<u64>,
        known: &mut Option<Known>,
    ) -> Result<Range<u64>, Refusal> {
        let (run, container, version) = {
            let mut core = self.host.lock();
            core.container(ino).ok_or(Refusal::Stale)?;
            let file = core.data_of(ino).ok_or(Refusal::Stale)?;
            let (run, is_here) = file.run(range.start, range.end);
            let version = file.version();
            (run, is_here.then(|| file.container()), version)
        };
        if let Some(container) = container {
            let data = self.disk.open_container(ino, container)?.next_data(run);
            return data.map_err(|error| self.disk.disk_refusal("containers", &error));
        }
        let at = run.start;
        let is_known = known.as_ref().is_some_and(|known| {
            known.version == version && (known.from..known.sought.end).contains(&at)
        });
        if !is_known && !self.remote.is_offline() {
            // Who can do without the answer does not wait long for it.
            *known = match self.remote.to_refresh().seek(ino, version, at).await {
                Ok(sought) => Some(Known { version, from: at, sought }),
                Err(refusal) => {
                    tracing::debug!("#{ino}: holes: {refusal}");
                    None
                }
            };
        }
        let data = match known {
            Some(Known { sought, .. }) => {
                sought.start.max(at).min(run.end)..sought.end.min(run.end)
            }
            None => run,
        };
        Ok(if data.end > at { data } else { at..range.end })
    }
}
