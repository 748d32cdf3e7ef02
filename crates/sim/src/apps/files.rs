//! Changes of file data, and open files.

use std::ops::Range;

use segue_core::host::cache::Way;
use segue_core::host::call::{By, Call, EditCall, OpenHandle, What};
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;

use super::{Apps, Open};
use super::{Stop, Tried};
use crate::Violation;
use crate::client::Mount;
use crate::work::Answered;

/// Files that the kernel reads by itself at a time.
const READERS_MAX: usize = 2;

impl Apps {
    fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Tried<()> {
        let what = What::Write { offset, len: bytes.len() as u64, append: false };
        self.edit(ino, By::Inode(self.caller.clone()), what, bytes)
    }

    /// Opens a file, writes to it, and closes it unless it is to `keep` open.
    pub(super) fn write_once(
        &mut self,
        ino: Ino,
        (offset, bytes, by_map): (u64, &[u8], bool),
        is_synced: bool,
        keep: bool,
    ) -> Result<Answered, Stop> {
        self.read_ahead(ino);
        self.open(ino)??;
        let written = self.write_or_map(ino, offset, bytes, by_map)?;
        if written.is_ok() && is_synced {
            // It was written all the same.
            self.fsync()?.ok();
        }
        if !keep || written.is_err() {
            self.close(self.handles.len() - 1, true)?;
        }
        written?;
        Ok(Answered::Ino(ino))
    }

    pub(super) fn resize(&mut self, ino: Ino, size: u64) -> Tried<()> {
        let old_size = self.mount.core.tree().peek(ino).map_or(0, |attr| attr.size);
        if old_size == size && size == 0 {
            return Ok(Ok(()));
        }
        let what = What::Resize { size };
        self.edit(ino, By::Name(self.caller.clone()), what, &[])
    }

    pub(super) fn punch(&mut self, ino: Ino, range: &Range<u64>) -> Tried<()> {
        let size = self.mount.core.tree().peek(ino).map_or(0, |attr| attr.size);
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(Ok(()));
        }
        self.edit(ino, By::Name(self.caller.clone()), What::Zeros(range), &[])
    }

    fn edit(&mut self, ino: Ino, by: By, what: What, bytes: &[u8]) -> Tried<()> {
        // Otherwise the remains of a write that fails half-way would count as a map's.
        if let Err(refusal) = self.mount.log_maps(Some(ino))? {
            return Ok(Err(refusal));
        }
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edits = self.mount.disk.edits;
        let edited = self.call_heard(Call::Edit(edit), bytes)?.map(drop);
        // If it is done and only its seal failed, others see it.
        Ok(if self.mount.disk.edits > edits { Ok(()) } else { edited })
    }

    /// Later changes of the session come after the writes so far to the file that was opened last.
    fn fsync(&mut self) -> Tried<()> {
        let Some(Open { ino, handle, .. }) = self.handles.last().cloned() else {
            return Ok(Err(Refusal::Invalid));
        };
        let synced = self.call_heard(Call::Sync(handle), &[])?;
        if synced.is_ok() {
            self.mount.disk.acknowledged.cover(ino);
        }
        Ok(synced.map(drop))
    }

    /// Makes the data state of `ino`.
    pub(super) fn load(&mut self, ino: Ino) -> Result<(), Refusal> {
        self.mount.disk.load(&mut self.mount.core, ino)
    }

    /// Fetches missing bytes of a file for others than its callers.
    pub(super) fn read_ahead(&mut self, ino: Ino) {
        let Mount { remote, core, disk, now, .. } = &mut self.mount;
        remote.read_ahead(core, disk, ino, *now);
    }

    fn open(&mut self, ino: Ino) -> Tried<()> {
        let opened = self.open_handle(ino, true)?;
        Ok(opened.map(|(open, _)| self.handles.push(open)))
    }

    fn open_handle(&mut self, ino: Ino, writable: bool) -> Tried<(Open, Way)> {
        let node = self.mount.core.nodes().node(ino);
        let (caller, synchronous, only_reads) = (self.caller.clone(), false, !writable);
        let by = caller.clone();
        let open = OpenHandle { node, caller, writable, synchronous, only_reads };
        let opened = self.mount.host_call(Call::OpenHandle(open))?;
        Ok(opened.and_then(|answer| {
            let new = answer.handle.ok_or(Refusal::Io)?;
            Ok((Open { ino, by, handle: new.number }, new.way))
        }))
    }

    /// Reads all of a file. If the kernel reads it by itself, it stays open for a while.
    pub(super) fn read(&mut self, ino: Ino) -> Result<Answered, Stop> {
        let bytes = self.mount.read(ino, 0..u64::MAX)?;
        let (open, way) = self.open_handle(ino, false)??;
        match way {
            Way::Backed => {
                self.readers.push_back(open);
                self.close_readers(READERS_MAX)?;
            }
            Way::Cached | Way::Direct => drop(self.mount.host_call(Call::Close(open.handle))?),
        }
        Ok(Answered::Bytes(bytes))
    }

    /// Writes to an open file, `by_map` if that is possible.
    pub(super) fn write_or_map(
        &mut self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        by_map: bool,
    ) -> Tried<()> {
        match by_map && self.map_store(ino, offset, bytes) {
            true => Ok(Ok(())),
            false => self.write(ino, offset, bytes),
        }
    }

    /// Writes by a memory map of an open file. False if that is not possible: the kernel does not
    /// read the container, the file would become longer, or bytes of it are on their way.
    fn map_store(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> bool {
        let Mount { core, disk, .. } = &mut self.mount;
        let end = offset + bytes.len() as u64;
        let is_inside = core.whole(ino).is_some_and(|size| end <= size);
        let container = core.container(ino).map(|container| (ino, container));
        let Some(key) = container.filter(|key| is_inside && disk.is_watched(*key)) else {
            return false;
        };
        // Of a store that no msync covers nothing is promised: the next process may write what the
        // log has over it. Nor are the order of sessions and losses of power those of maps.
        let is_promised = !disk.is_redone(key) && !disk.kept.loses_power && !self.has_sessions;
        let may = core.nodes().is_backed(ino) && is_promised;
        if may {
            disk.map_store(key, offset, bytes);
        }
        may
    }

    /// Closes the files that the kernel reads by itself, but for so many.
    pub(super) fn close_readers(&mut self, left: usize) -> Result<(), Violation> {
        while self.readers.len() > left
            && let Some(open) = self.readers.pop_front()
        {
            self.mount.host_call(Call::Close(open.handle))?.ok();
            // The kernel forgets its inodes when it likes.
            let node = self.mount.core.nodes().node(open.ino);
            self.mount.core.kernel_forgot(node, u64::MAX);
        }
        Ok(())
    }

    /// Closes the open file with that index. Its program waits as its level says.
    pub(super) fn close(&mut self, which: usize, waits: bool) -> Result<Ino, Violation> {
        let Open { ino, by, handle } = self.handles.remove(which);
        self.mount.disk.acknowledged.act_for((by.session, by.process_group));
        let closer = std::mem::replace(&mut self.caller, by);
        if waits {
            // If it cannot be sealed now, it is sealed below, or by the next chores.
            self.call_heard(Call::Flush(handle), &[])?.ok();
        }
        // If it cannot be sealed now, the next chores seal it.
        self.mount.host_call(Call::Close(handle))?.ok();
        let core = &self.mount.core;
        let is_dirty = core.data_of(ino).is_some_and(|file| file.has_dirty());
        if !core.is_open(ino) && !is_dirty {
            self.mount.disk.acknowledged.closed(ino);
        }
        self.mount.disk.acknowledged.act_for((closer.session, closer.process_group));
        self.caller = closer;
        self.is_to_push = true;
        Ok(ino)
    }
}
