//! Changes of file data, and open files.

use std::ops::Range;

use segue_core::host::call::{By, Call, EditCall, What};
use segue_core::nouns::{Ino, Record};
use segue_core::refusal::Refusal;

use super::Apps;
use crate::Violation;
use crate::client::{Mount, Stop, Tried};
use crate::work::Answered;

impl Apps {
    pub(super) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Tried<()> {
        let what = What::Write { offset, len: bytes.len() as u64, append: false };
        self.edit(ino, By::Inode(self.caller.clone()), what, bytes)
    }

    /// Opens a file, writes to it, and closes it unless it is to `keep` open.
    pub(super) fn write_once(
        &mut self,
        ino: Ino,
        (offset, bytes): (u64, &[u8]),
        is_synced: bool,
        keep: bool,
    ) -> Result<Answered, Stop> {
        self.read_ahead(ino);
        self.open(ino);
        let written = self.write(ino, offset, bytes)?;
        if written.is_ok() && is_synced {
            // It was written all the same.
            self.fsync(ino)?.ok();
        }
        if !keep || written.is_err() {
            self.close(self.handles.len() - 1, true)?;
        }
        written?;
        Ok(Answered::Ino(ino))
    }

    pub(super) fn resize(&mut self, ino: Ino, size: u64) -> Tried<()> {
        let old_size = self.mount.core.tree.peek(ino).map_or(0, |attr| attr.size);
        if old_size == size && size == 0 {
            return Ok(Ok(()));
        }
        let what = What::Resize { size, is_backed: false };
        self.edit(ino, By::Name(self.caller.clone()), what, &[])
    }

    pub(super) fn punch(&mut self, ino: Ino, range: &Range<u64>) -> Tried<()> {
        let size = self.mount.core.tree.peek(ino).map_or(0, |attr| attr.size);
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(Ok(()));
        }
        self.edit(ino, By::Name(self.caller.clone()), What::Zeros(range), &[])
    }

    fn edit(&mut self, ino: Ino, by: By, what: What, bytes: &[u8]) -> Tried<()> {
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edits = self.mount.disk.edits;
        let edited = self.call_heard(Call::Edit(edit), bytes)?.map(drop);
        // If it is done and only its seal failed, others see it.
        Ok(if self.mount.disk.edits > edits { Ok(()) } else { edited })
    }

    /// Later changes of the session come after the writes to `ino` so far.
    fn fsync(&mut self, ino: Ino) -> Tried<()> {
        if let Err(refusal) = self.mount.seal(ino, self.caller.clone())? {
            return Ok(Err(refusal));
        }
        self.mount.core.cover(self.caller.session, ino);
        self.mount.disk.acknowledged.cover(ino);
        self.mount.disk.sync(&self.mount.core);
        Ok(Ok(()))
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

    fn open(&mut self, ino: Ino) {
        self.mount.core.opened(ino);
        self.handles.push(ino);
    }

    /// Closes the open file with that index. Its program waits as its level says.
    pub(super) fn close(&mut self, which: usize, waits: bool) -> Result<Ino, Violation> {
        let ino = self.handles.remove(which);
        if waits && self.mount.core.lm(ino).closes() {
            let caller = self.caller.clone();
            // If it cannot be sealed now, it is sealed below, or by the next chores.
            self.call_heard(Call::Seal { ino, caller, waits }, &[])?.ok();
        }
        // If it cannot be sealed now, the next chores seal it.
        let caller = self.caller.clone();
        self.mount.host_call(Call::SealAtClose { ino, caller })?.ok();
        if self.mount.core.closed(ino) && self.mount.core.is_to_release(ino) {
            let (record, caller) = (Record::Release { ino }, self.caller.clone());
            let call = Call::Change { record, caller, claim: None, expects: None };
            // Else it is left to the server's own care.
            self.mount.host_call(call)?.ok();
            self.raise_newest();
        }
        Ok(ino)
    }
}
