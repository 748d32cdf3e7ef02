//! Changes of data: write, truncate, fallocate.
//!
//! ```text
//!   room? ─▶ preserve what is on its way ─▶ log ─▶ container ─▶ admit ─▶ seal, set-id bits, sync
//! ```
//!
//! The process may die anywhere, and any action may fail. The log has small data themselves, those
//! of small new files, and data written over bytes that the server lacks. Of others it has
//! checksums, so the next process knows whether a cut-off write is whole. A write that is not whole
//! never happened: the bytes that it spoiled are fetched again. If the disk refuses the bytes, the
//! log says that instead of the write.

use std::ops::Range;

use super::{By, Call, EditCall, Next, Running, Step, What};
use crate::host::action::{
    Action, CallId, Change, Done, Edit, Load, Now, Preserve, Reach, Task, Undo, Undone,
};
use crate::host::cache::FileData;
use crate::host::log::{Entry, Payload, Writers};
use crate::host::{Fault, Host, SetIds};
use crate::nouns::{Caller, ContainerId, Ino, Record};
use crate::persist::Lm;
use crate::refusal::Refusal;

/// Bytes are preserved so many at a time.
const PRESERVE_MAX: u64 = 1 << 20;

/// The parts of a call that its attempts need.
struct Asked {
    ino: Ino,
    caller: Caller,
    what: What,
    kills_set_ids: bool,
    ends: Ends,
}

/// What follows the change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing: a close is to come.
    Open,
    /// The same, and each change waits for the server.
    Synced,
    /// The same if the level of the file says so.
    Level,
    /// No close is to come.
    Closed,
}

impl Host {
    pub(super) fn attempt_edit(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Edit(edit) = &call.call else { return Err(Refusal::Invalid) };
        let asked = self.asked(edit)?;
        if !call.so_far.is_edited {
            return self.begin_edit(id, call, &asked, now);
        }
        let ino = asked.ino;
        if !call.so_far.hearing.is_empty() {
            return self.hears_newest(id, call, ino);
        }
        if self.files.get(&ino).is_some_and(FileData::is_full) {
            let sealer = self.sealer(ino).unwrap_or_else(Caller::nobody);
            if self.may_seal(id, call, (ino, &sealer)) {
                return Ok(Next::Step);
            }
        }
        if asked.kills_set_ids && self.drops_set_ids(id, call, &asked, now) {
            return Ok(Next::Step);
        }
        self.end_edit(id, call, &asked, now)
    }

    fn asked(&self, call: &EditCall) -> Result<Asked, Refusal> {
        let (caller, ends) = match &call.by {
            By::Handle(handle) => {
                let file = self.handles.file(*handle)?;
                if file.ino != call.ino {
                    return Err(Refusal::Stale);
                }
                let ends = if file.synchronous { Ends::Synced } else { Ends::Level };
                (&file.caller, ends)
            }
            By::Open(caller) => (caller, Ends::Open),
            By::Inode(caller) => (caller, Ends::Level),
            By::Name(caller) => (caller, Ends::Closed),
        };
        let EditCall { ino, what, kills_set_ids, .. } = call;
        Ok(Asked {
            ino: *ino,
            caller: caller.clone(),
            what: what.clone(),
            kills_set_ids: *kills_set_ids,
            ends,
        })
    }

    fn begin_edit(
        &mut self,
        id: CallId,
        call: &mut Running,
        asked: &Asked,
        now: Now,
    ) -> Result<Next, Refusal> {
        let ino = asked.ino;
        // Whether a write leaves a gap depends on the size. The caller looks at the file first.
        if self.tree.is_size_lost(ino) {
            return Err(Refusal::Stale);
        }
        let size = self.tree.peek(ino).ok_or(Refusal::Stale)?.size;
        let what = self.placed(asked, size);
        if let What::Write { offset, len, .. } = what {
            offset.checked_add(len).ok_or(Refusal::TooLarge)?;
        }
        if !call.so_far.has_room && self.makes_room(id, call, (ino, &what), now)? {
            return Ok(Next::Step);
        }
        let range = affected(&what, size, self.nodes.is_backed(ino));
        let container = self.container(ino).ok_or(Refusal::Stale)?;
        if let Some((seq, part)) = self.to_preserve(ino, &range).into_iter().next() {
            let range = part.start..part.end.min(part.start + PRESERVE_MAX);
            let part = Preserve { seq, ino, container, range };
            self.preserved.entry(seq).or_default();
            call.step = Some(Step::Preserve(part.clone()));
            self.act(Action::Preserve(id, part));
            return Ok(Next::Step);
        }
        let edit = Box::new(self.draft_edit(ino, &what, now).ok_or(Refusal::Stale)?);
        if let What::Write { offset, len, .. } = what {
            call.so_far.keeps_basis = self.keeps_overwritten(ino, &(offset..offset + len));
        }
        self.note_writer(ino, asked.caller.session);
        call.step = Some(Step::Write(edit.clone()));
        self.act(Action::Write(id, edit));
        Ok(Next::Step)
    }

    /// Keeps what a write overwrites, if its store may be told by that. True if it does.
    fn keeps_overwritten(&mut self, ino: Ino, range: &Range<u64>) -> bool {
        let kept = self.overwrites(ino, range);
        let version = self.stored_version(ino).filter(|_| !kept.is_empty());
        let Some((version, container)) = version.zip(self.container(ino)) else { return false };
        self.act(Action::KeepOverwritten(ino, container, version, kept));
        true
    }

    /// The change with its final offset.
    fn placed(&mut self, asked: &Asked, size: u64) -> What {
        match asked.what {
            What::Write { offset, len, append: true } => {
                if offset != size {
                    self.act(Action::ForgetData(asked.ino));
                }
                What::Write { offset: size, len, append: false }
            }
            ref what => what.clone(),
        }
    }

    /// Refuses a change for which there is no room: on the cache's disk, in the update log, or in a
    /// quota. True if an action has to tell first.
    fn makes_room(
        &mut self,
        id: CallId,
        call: &mut Running,
        (ino, what): (Ino, &What),
        now: Now,
    ) -> Result<bool, Refusal> {
        // What removes data, or only changes a size, adds nothing.
        let What::Write { offset, len, .. } = *what else {
            call.so_far.has_room = true;
            return Ok(false);
        };
        match self.reserve_space(len, now.time) {
            Some(true) => {}
            None => {
                call.step = Some(Step::Load(Load::FreeSpace));
                self.act(Action::Load(id, Load::FreeSpace));
                return Ok(true);
            }
            Some(false) if call.so_far.has_evicted => return Err(Refusal::NoSpace),
            Some(false) => {
                call.step = Some(Step::Evict);
                self.act(Action::Evict(id));
                return Ok(true);
            }
        }
        if self.writers() == Writers::Refused {
            return Err(Refusal::NoSpace);
        }
        if let Some(more) = self.growth_by(ino, &(offset..offset + len)) {
            let refuses = self.room.refuses(more, now.time, now.link == Reach::Offline);
            if self.room.is_wanting() {
                self.wake(Task::Quotas);
            }
            if refuses {
                return Err(Refusal::Quota);
            }
        }
        call.so_far.has_room = true;
        Ok(false)
    }

    /// The entry and the change of the container for `what`.
    fn draft_edit(&mut self, ino: Ino, what: &What, now: Now) -> Option<Edit> {
        let container = self.container(ino)?;
        let edit = |entry, change, logs_bytes| Edit { ino, container, change, logs_bytes, entry };
        Some(match what {
            What::Write { offset, len, .. } => {
                let logs_bytes = self.is_only_here(ino, &(*offset..*offset + *len))
                    && !self.has_planted(Fault::SumsWhatOnlyItHas);
                let payload = Payload::Durable { len: *len };
                let entry = self.draft_write(ino, *offset, payload, now.wall)?;
                edit(entry, Change::Bytes(*offset), logs_bytes)
            }
            What::Zeros(range) => {
                let payload = Payload::Zeros { len: range.end - range.start };
                let entry = self.draft_write(ino, range.start, payload, now.wall)?;
                edit(entry, Change::Zeros(range.clone()), true)
            }
            What::Resize { size } => {
                let stays = *size > 0 || self.nodes.is_backed(ino);
                let change = if stays { Change::Size(*size) } else { Change::Nothing };
                if *size == 0 && self.is_worth_a_basis(ino) {
                    let version = self.stored_version(ino)?;
                    self.act(Action::KeepBasis(ino, container, version));
                }
                edit(self.draft_resize(ino, *size, stays, now.wall)?, change, true)
            }
        })
    }

    pub(super) fn attempt_mapped(
        &mut self,
        id: CallId,
        call: &mut Running,
        (ino, container): (Ino, ContainerId),
        now: Now,
    ) -> Result<Next, Refusal> {
        if call.so_far.is_edited {
            return Ok(self.answer(&call.so_far));
        }
        if self.files.get(&ino).is_none_or(|file| file.container() != container) {
            return Err(Refusal::Changed);
        }
        let len = self.tree.peek(ino).ok_or(Refusal::Stale)?.size;
        let entry = self.draft_write(ino, 0, Payload::Durable { len }, now.wall);
        Ok(self.append(id, call, entry.ok_or(Refusal::Stale)?))
    }

    /// The end of a write of the log and the container.
    pub(super) fn written(
        &mut self,
        id: CallId,
        call: &mut Running,
        edit: Edit,
        done: Result<Done, Undone>,
        now: Now,
    ) -> Result<(), Refusal> {
        let (ino, container) = (edit.ino, edit.container);
        let is_emptied = matches!(edit.entry, Entry::Resized { size: 0, .. });
        if is_emptied || std::mem::take(&mut call.so_far.keeps_basis) {
            self.act(Action::BasisChanged(ino, done.is_ok()));
        }
        let Err(Undone { refusal, is_logged }) = done else {
            let bytes = match edit.change {
                Change::Bytes(_) => edit.entry.written().unwrap_or(0),
                _ => 0,
            };
            self.admit(edit.entry, now.time);
            self.pending.more(bytes);
            call.so_far.added += bytes;
            call.so_far.is_edited = true;
            return Ok(());
        };
        if !is_logged || self.has_planted(Fault::ForgetsSpoiled) {
            return Err(refusal);
        }
        let size = self.tree.peek(ino).map_or(0, |attr| attr.size);
        let range = match edit.change {
            Change::Bytes(offset) => offset..offset + edit.entry.written().unwrap_or(0),
            Change::Zeros(range) => range,
            Change::Size(to) => to..size.max(to),
            Change::Nothing => 0..0,
        };
        let entry = Entry::Spoiled { ino, container, range };
        call.step = Some(Step::Undo(Box::new(entry.clone()), refusal));
        self.act(Action::Undo(id, Box::new(Undo { entry, ino, container, size })));
        Ok(())
    }

    /// Bytes of a pending change are preserved: the log is to say so, if they are still needed.
    pub(super) fn log_preserved(
        &mut self,
        id: CallId,
        call: &mut Running,
        part: Preserve,
        sums: Vec<u32>,
    ) {
        if self.queue.stage(part.seq).is_some() {
            let entry = Entry::Preserved { seq: part.seq, range: part.range, sums };
            self.append(id, call, entry);
        } else {
            // The change was settled meanwhile, and a loss of power may bring it back.
            self.scrap_preserved(part.seq);
        }
    }

    /// Has the set-id bits of a file go, which was changed by a caller that may not keep them. They
    /// go with the store in the name of whoever opened the file, so that is sealed at once. True if
    /// an action is under way.
    ///
    /// The kernel leaves this to us (HANDLE_KILLPRIV_V2). Otherwise it would ask before each write,
    /// and take the bits with a chmod, which the server refuses to anyone but the owner.
    fn drops_set_ids(&mut self, id: CallId, call: &mut Running, asked: &Asked, now: Now) -> bool {
        let ino = asked.ino;
        let Some(how) = self.set_ids_after_write(ino, &asked.caller) else { return false };
        if self.seals(id, call, (ino, &asked.caller), false) {
            return true;
        }
        // stat(2) right after the write is to tell.
        self.act(Action::ForgetAttributes(ino));
        match how {
            SetIds::GoWithTheStore => {
                self.tree.drop_set_ids(ino);
                false
            }
            SetIds::GoByChmod(set) => {
                let record = Record::SetAttr { ino, set };
                self.logs(id, call, (record, asked.caller.clone()), now)
            }
        }
    }

    fn end_edit(
        &mut self,
        id: CallId,
        call: &mut Running,
        asked: &Asked,
        now: Now,
    ) -> Result<Next, Refusal> {
        let (ino, caller) = (asked.ino, &asked.caller);
        let waits = match asked.ends {
            Ends::Open => false,
            Ends::Synced => true,
            Ends::Level => self.lm(ino) == Lm::Sync,
            Ends::Closed => self.lm(ino).waits(true),
        };
        if !waits {
            let is_closed = asked.ends == Ends::Closed;
            if is_closed && self.is_kept_back(ino, now.time) {
                self.close_unsealed(ino, caller.clone());
            } else if is_closed && self.may_seal(id, call, (ino, caller)) {
                return Ok(Next::Step);
            }
            return Ok(self.answer(&call.so_far));
        }
        if self.seals(id, call, (ino, caller), true) {
            return Ok(Next::Step);
        }
        self.cover(caller.session, ino);
        self.hears_newest(id, call, ino)
    }
}

/// The bytes of a container that a change takes the place of, in a file of `size` bytes. A file
/// that is emptied gets another container, unless that `stays`.
fn affected(what: &What, size: u64, stays: bool) -> Range<u64> {
    match what {
        What::Write { offset, len, .. } => *offset..*offset + *len,
        What::Zeros(range) => range.clone(),
        What::Resize { size: 0 } if !stays => 0..0,
        What::Resize { size: to, .. } => *to..size.max(*to),
    }
}
