//! Syncs of programs, and closes of their descriptors.
//!
//! ```text
//!   Flush ────────▶ LogMaps ─▶ Seal, if the level gives no time ─▶ the outcome, if closes wait
//!   Sync ─────────▶ LogMaps ─▶ Seal ─▶ SyncDisk ─▶ the outcome, if syncs wait for the server
//!   SyncDirectory ─────────────────▶ SyncDisk ─▶ the outcomes of its changes, likewise
//!   SyncAll ──────▶ SealAll ───────▶ SyncDisk
//! ```

use super::{Answer, Call, Next, OpenFile, Running, Seals, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Done, Now, Undone};
use crate::host::cache::Way;
use crate::refusal::Refusal;

/// How far a sync came.
#[derive(Debug, Default)]
pub(super) struct Syncing {
    /// The file, as its handle was at the beginning.
    file: Option<OpenFile>,
    are_maps_logged: bool,
    is_sealed: bool,
    /// Later changes of the session follow those that the sync covers.
    is_covered: bool,
    is_durable: bool,
    /// Changes whose outcomes it waits for in the end.
    awaited: Vec<u64>,
    /// Why not all that is to be synced is.
    failed: Option<Refusal>,
}

impl Host {
    pub(super) fn attempt_flush(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Flush(handle) = call.call else { return Err(Refusal::Invalid) };
        let file = self.synced_file(call, handle)?;
        if !file.writable {
            return Ok(Next::Reply(Answer::default()));
        }
        if self.logs_maps_of(id, call, &file) {
            return Ok(Next::Step);
        }
        let is_settled = self.lm(file.ino).closes();
        if is_settled {
            if self.seals_synced(id, call, &file, true) {
                return Ok(Next::Step);
            }
            if let Next::Step = self.hears_newest(id, call, file.ino)? {
                return Ok(Next::Step);
            }
        } else if call.has_inner() {
            if self.go_on_inner(id, call, now)?.is_none() {
                return Ok(Next::Step);
            }
        } else if !self.is_rewritten(file.ino, now.time) {
            // A shell that redirects into a file closes it once before anything is written: what is
            // written anew is one change, and sealed when the last one closes it.
            let seal = Call::SealAtClose { ino: file.ino, caller: file.caller };
            if self.begin_inner(id, call, seal, now)?.is_none() {
                return Ok(Next::Step);
            }
        }
        self.handles.file(handle).map_or(Ok(()), OpenFile::refusal)?;
        Ok(Next::Reply(Answer { is_settled, ..Answer::default() }))
    }

    pub(super) fn attempt_sync(&mut self, id: CallId, call: &mut Running) -> Result<Next, Refusal> {
        let Call::Sync(handle) = call.call else { return Err(Refusal::Invalid) };
        let file = self.synced_file(call, handle)?;
        if self.logs_maps_of(id, call, &file) {
            return Ok(Next::Step);
        }
        let waits = self.settings.syncs_to_server;
        if !self.settings.is_read_only && self.seals_synced(id, call, &file, waits) {
            return Ok(Next::Step);
        }
        if !std::mem::replace(&mut call.so_far.syncing.is_covered, true) {
            self.cover(file.caller.session, file.ino);
            if waits {
                self.begin_hearing(call, file.ino);
            }
        }
        if self.syncs_disk(id, call) {
            return Ok(Next::Step);
        }
        let synced = match call.so_far.syncing.failed {
            Some(refusal) => Err(refusal),
            None if !call.so_far.hearing.is_empty() => self.hears_newest(id, call, file.ino),
            None => Ok(Next::Reply(Answer::default())),
        };
        if let Ok(Next::Step) = synced {
            return Ok(Next::Step);
        }
        // Of a refusal it is told once, and not by what follows. What a map wrote in vain this host
        // knows by itself.
        let refused = match self.handles.file(handle) {
            Ok(file) if waits || file.refusal() == Err(Refusal::Io) => {
                self.handles.take_refusal(handle)
            }
            _ => Ok(()),
        };
        synced?;
        refused?;
        Ok(Next::Reply(Answer { is_settled: waits, ..Answer::default() }))
    }

    pub(super) fn attempt_sync_directory(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::SyncDirectory { ino, session } = call.call else {
            return Err(Refusal::Invalid);
        };
        let waits = self.settings.syncs_to_server;
        if call.has_inner() {
            let committed = self.go_on_inner(id, call, now)?;
            return Ok(committed.map_or(Next::Step, |_| settled(waits)));
        }
        if !std::mem::replace(&mut call.so_far.syncing.is_covered, true) {
            self.cover(session, ino);
            let last = if waits { self.queue.last_of(ino) } else { Vec::new() };
            call.so_far.syncing.awaited = last;
        }
        if self.syncs_disk(id, call) {
            return Ok(Next::Step);
        }
        if let Some(refusal) = call.so_far.syncing.failed {
            return Err(refusal);
        }
        let awaited = std::mem::take(&mut call.so_far.syncing.awaited);
        let committed = self.begin_inner(id, call, Call::Committed(awaited), now)?;
        Ok(committed.map_or(Next::Step, |_| settled(waits)))
    }

    pub(super) fn attempt_sync_all(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::SyncAll { session } = call.call else { return Err(Refusal::Invalid) };
        if !call.so_far.syncing.is_sealed {
            let sealed = match call.has_inner() {
                true => self.go_on_inner(id, call, now),
                false => self.begin_inner(id, call, Call::SealAll(Seals::Decided), now),
            };
            if call.inner.is_some() {
                return Ok(Next::Step);
            }
            call.so_far.syncing.is_sealed = true;
            call.so_far.syncing.failed = sealed.err();
            self.cover_all(session);
        }
        if self.syncs_disk(id, call) {
            return Ok(Next::Step);
        }
        match call.so_far.syncing.failed {
            Some(refusal) => Err(refusal),
            None => Ok(Next::Reply(Answer::default())),
        }
    }

    /// The file that is synced. Its handle may be gone before the call is over.
    fn synced_file(&self, call: &mut Running, handle: u64) -> Result<OpenFile, Refusal> {
        if let Some(file) = &call.so_far.syncing.file {
            return Ok(file.clone());
        }
        let file = self.handles.file(handle)?;
        call.so_far.syncing.file = Some(file.clone());
        Ok(file.clone())
    }

    /// Has the shell log what maps of this file may have written. True if that is under way.
    fn logs_maps_of(&mut self, id: CallId, call: &mut Running, file: &OpenFile) -> bool {
        let is_mapped = file.writable && file.way != Way::Cached;
        let begins = is_mapped && !call.so_far.syncing.are_maps_logged;
        if begins {
            call.step = Some(Step::SyncMaps);
            self.act(Action::LogMaps(id, Some(file.ino)));
        }
        begins
    }

    /// The shell has logged what maps wrote, or could not.
    pub(super) fn synced_maps(
        call: &mut Running,
        done: Result<Done, Undone>,
    ) -> Result<(), Refusal> {
        call.so_far.syncing.are_maps_logged = true;
        done.map(drop).map_err(|undone| undone.refusal)
    }

    /// Seals the file, once. True if that is under way.
    fn seals_synced(
        &mut self,
        id: CallId,
        call: &mut Running,
        file: &OpenFile,
        waits: bool,
    ) -> bool {
        if call.so_far.syncing.is_sealed {
            return false;
        }
        let begins = self.seals(id, call, (file.ino, &file.caller), waits);
        call.so_far.syncing.is_sealed = !begins;
        begins
    }

    /// Makes the log durable, once. True if that is under way.
    fn syncs_disk(&mut self, id: CallId, call: &mut Running) -> bool {
        let begins = !call.so_far.syncing.is_durable;
        if begins {
            call.step = Some(Step::SyncDisk);
            self.act(Action::SyncDisk(id));
        }
        begins
    }

    /// The log is durable, or could not be made so. Whoever syncs is told, whoever sends may not.
    pub(super) fn disk_synced(call: &mut Running, done: Result<Done, Undone>) {
        if let Call::Send(_) | Call::SendLast = call.call {
            return Host::synced_to_send(call, done);
        }
        call.so_far.syncing.is_durable = true;
        if let Err(undone) = done {
            call.so_far.syncing.failed = Some(undone.refusal);
        }
    }
}

fn settled(is_settled: bool) -> Next {
    Next::Reply(Answer { is_settled, ..Answer::default() })
}
