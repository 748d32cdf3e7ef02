//! File data, as `segue-client`'s mount/data.rs and mount/fetch.rs do.

use std::ops::Range;

use segue_core::host::Copied;
use segue_core::host::action::Gap;
use segue_core::host::cache::FileData;
use segue_core::host::call::{By, Call, EditCall, FetchCall, What};
use segue_core::nouns::{Ino, Record, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Fetched, Reply, Request};

use super::shell::{Ran, fetch};
use super::{Mount, Purpose, Stop, Tried};
use crate::Violation;
use crate::disk::place;
use crate::plan::Bug;
use crate::server::Answer;

impl Mount {
    pub(super) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Tried<()> {
        let what = What::Write { offset, len: bytes.len() as u64, append: false };
        self.edit(ino, By::Inode(self.caller.clone()), what, bytes)
    }

    pub(super) fn resize(&mut self, ino: Ino, size: u64) -> Tried<()> {
        let old_size = self.core.tree.peek(ino).map_or(0, |attr| attr.size);
        if old_size == size && size == 0 {
            return Ok(Ok(()));
        }
        let what = What::Resize { size, is_backed: false };
        self.edit(ino, By::Name(self.caller.clone()), what, &[])
    }

    pub(super) fn punch(&mut self, ino: Ino, range: Range<u64>) -> Tried<()> {
        if range.is_empty() {
            return Ok(Ok(()));
        }
        self.edit(ino, By::Name(self.caller.clone()), What::Zeros(range), &[])
    }

    pub(super) fn clone_file(&mut self, from: Ino, to: Ino) -> Tried<()> {
        let caller = self.caller.clone();
        let bytes = Copied { from: 0, to: 0, len: u64::MAX };
        Ok(self.call_heard(Call::Clone { from, to, bytes, caller }, &[])?.map(drop))
    }

    fn edit(&mut self, ino: Ino, by: By, what: What, bytes: &[u8]) -> Tried<()> {
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edits = self.disk.edits;
        let edited = self.call_heard(Call::Edit(edit), bytes)?.map(drop);
        // If it is done and only its seal failed, others see it.
        Ok(if self.disk.edits > edits { Ok(()) } else { edited })
    }

    pub(super) fn seal(&mut self, ino: Ino) -> Tried<()> {
        let caller = self.caller.clone();
        Ok(self.host_call(Call::Seal { ino, caller, waits: false })?.map(drop))
    }

    /// Seals a file before its writer asks for it.
    pub(super) fn seal_early(&mut self, ino: Ino) -> Result<(), Violation> {
        let caller = self.core.sealer(ino).unwrap_or_default();
        // Another time, if the disk is full.
        self.host_call(Call::Seal { ino, caller, waits: false })?.ok();
        Ok(())
    }

    /// What the session does later comes after what was written to `ino` so far.
    pub(super) fn fsync(&mut self, ino: Ino) -> Tried<()> {
        if let Err(refusal) = self.seal(ino)? {
            return Ok(Err(refusal));
        }
        self.core.cover(self.caller.session, ino);
        self.disk.acknowledged.cover(ino);
        self.disk.sync(&self.core);
        Ok(Ok(()))
    }

    pub(super) fn open(&mut self, ino: Ino) {
        self.core.opened(ino);
        self.handles.push(ino);
    }

    /// Closes the open file with that index. Its program waits as its level says.
    pub(super) fn close(&mut self, which: usize, waits: bool) -> Result<Ino, Violation> {
        let ino = self.handles.remove(which);
        if waits && self.core.lm(ino).closes() {
            let caller = self.caller.clone();
            // What cannot be sealed now is sealed below, or by the next chores.
            self.call_heard(Call::Seal { ino, caller, waits }, &[])?.ok();
        }
        // What cannot be sealed now is sealed by the next chores.
        let caller = self.caller.clone();
        self.host_call(Call::SealAtClose { ino, caller })?.ok();
        if self.core.closed(ino) && self.core.is_to_release(ino) {
            // Else it is left to the server's own care.
            self.log_record(Record::Release { ino })?.ok();
        }
        Ok(ino)
    }

    /// Bytes of a file, its end at the most.
    pub(crate) fn read(&mut self, ino: Ino, range: Range<u64>) -> Result<Vec<u8>, Stop> {
        self.getattr(ino)?;
        self.disk.load(&mut self.core, ino)?;
        if self.core.here(ino, &range, 0)?.container.is_none() {
            let fetch = FetchCall { ino, range: range.clone(), passes: false };
            match self.start_call(Call::Fetch(fetch)).map_err(Stop::Broken)? {
                Ran::Answered(answer) => drop(answer?),
                Ran::Waits(asking) => return Err(Stop::Ask(asking)),
                Ran::Later | Ran::Hears(_) | Ran::Delivers(_) | Ran::Keeps(_) => {
                    return Err(Stop::Later);
                }
            }
        }
        let size = self.getattr(ino)?.size;
        let range = range.start.min(size)..range.end.min(size);
        Ok(self.disk.read(&mut self.core, ino, &range)?)
    }

    /// What to fetch next of a file for which no call waits.
    pub(super) fn next_gap(&mut self, ino: Ino, range: Range<u64>, size: u64) -> Option<Request> {
        let file = self.core.file(ino).filter(|_| !self.is_offline)?;
        let gap = file.to_fetch(range, size).into_iter().next()?;
        Some(fetch(Gap { ino, version: file.version(), range: gap }))
    }

    /// False if nothing that `request` asks for will be taken.
    pub(super) fn has_place_for(&self, request: &Request) -> bool {
        let Request::Fetch(ask) = request else { return true };
        let takes = |file: &FileData| {
            let range = ask.offset..ask.offset + ask.len;
            file.version() != ask.version || !file.fillable(range, ask.version).is_empty()
        };
        self.core.files.get(&ask.ino).is_none_or(takes)
    }

    /// Fetches what is missing of a file, for whom may want it.
    pub(super) fn read_ahead(&mut self, ino: Ino) {
        let Some(size) = self.core.tree.peek(ino).map(|attr| attr.size) else { return };
        if self.reads_ahead
            && self.disk.load(&mut self.core, ino).is_ok()
            && let Some(request) = self.next_gap(ino, 0..size, size)
        {
            self.call(request.clone(), Purpose::Ahead(request));
        }
    }

    /// Takes in data that the server sent.
    pub(super) fn take_data(&mut self, request: &Request, (reply, body): Answer, asked: Time) {
        let promised = self.promised(&reply);
        let as_of = self.core.tree.as_of(promised, [asked, self.now]);
        if let (Request::Fetch(ask), Reply::Fetched(fetched)) = (request, reply) {
            // It is asked for again.
            self.fill(ask, &fetched, &body).ok();
        }
        self.core.tree.promised(&as_of);
    }

    /// Puts fetched bytes into the container where nothing newer is.
    pub(super) fn fill(
        &mut self,
        ask: &Fetch,
        fetched: &Fetched,
        body: &[u8],
    ) -> Result<(), Refusal> {
        self.disk.failing.try_write()?;
        let file = self.core.files.get(&ask.ino).ok_or(Refusal::Stale)?;
        let version = match self.bug {
            Some(Bug::ClientFillsStale) => file.version(),
            _ => ask.version,
        };
        self.disk.filled.insert(ask.ino);
        let (mut at, mut rest) = (ask.offset, body);
        let sent: u64 = fetched.segments.iter().map(|(len, _)| len).sum();
        // Where the file ends on the server zeros follow: this host made it longer.
        let segments =
            fetched.segments.iter().copied().chain([(ask.len.saturating_sub(sent), false)]);
        for (len, is_data) in segments {
            let mut bytes = vec![0; place(len)];
            if is_data {
                let (these, after) = rest.split_at(bytes.len());
                bytes.copy_from_slice(these);
                rest = after;
            }
            self.disk.fill(&mut self.core, (ask.ino, version), at, &bytes)?;
            at += len;
        }
        Ok(())
    }
}
