//! File data, as `segue-client`'s mount/data.rs and mount/fetch.rs do.

use std::ops::Range;

use segue_core::host::Copied;
use segue_core::host::action::Gap;
use segue_core::host::cache::FileData;
use segue_core::host::call::{By, Call, EditCall, FetchCall, What};
use segue_core::host::log::DataChange;
use segue_core::nouns::{Ino, Record, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Fetched, Reply, Request};

use super::shell::{Ran, fetch};
use super::{Mount, Purpose, Stop, Tried};
use crate::Violation;
use crate::disk::{bytes_of, place, put};
use crate::plan::Bug;
use crate::server::Answer;

impl Mount {
    /// Makes the data state of `ino`.
    pub(super) fn load(&mut self, ino: Ino) -> Result<(), Refusal> {
        let noted = self.noted_file(ino);
        match self.core.load(ino, noted) {
            true => Ok(()),
            false => Err(Refusal::Stale),
        }
    }

    pub(super) fn container(&mut self, ino: Ino) -> Option<&mut Vec<u8>> {
        let id = self.core.container(ino)?;
        Some(&mut self.kept.containers.entry((ino, id)).or_default().bytes)
    }

    /// What is here of a file: where, and what.
    pub(crate) fn here(&mut self, ino: Ino) -> Vec<(u64, Vec<u8>)> {
        let Some(size) = self.core.tree.peek(ino).map(|attr| attr.size) else { return Vec::new() };
        if self.load(ino).is_err() {
            return Vec::new();
        }
        let Some(file) = self.core.file(ino) else { return Vec::new() };
        let valid: Vec<Range<u64>> = file.valid().within(0..size).collect();
        let Some(container) = self.container(ino) else { return Vec::new() };
        valid.into_iter().map(|range| (range.start, bytes_of(container, &range))).collect()
    }

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
        let edits = self.edits;
        let edited = self.call_heard(Call::Edit(edit), bytes)?.map(drop);
        // If it is done and only its seal failed, others see it.
        Ok(if self.edits > edits { Ok(()) } else { edited })
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
        self.acknowledged.cover(ino);
        self.sync_disk();
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
        self.load(ino)?;
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
        self.failing.try_read()?;
        Ok(self.container(ino).map_or_else(Vec::new, |container| bytes_of(container, &range)))
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
            && self.load(ino).is_ok()
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
        self.failing.try_write()?;
        let file = self.core.files.get(&ask.ino).ok_or(Refusal::Stale)?;
        let version = match self.bug {
            Some(Bug::ClientFillsStale) => file.version(),
            _ => ask.version,
        };
        self.filled.insert(ask.ino);
        let key = (ask.ino, file.container());
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
            let parts = self.core.to_fill(key, at..at + len, version)?;
            let container = &mut self.kept.containers.entry(key).or_default().bytes;
            for part in &parts {
                put(container, part.start, &bytes[place(part.start - at)..place(part.end - at)]);
            }
            self.core.filled(key, parts, version);
            at += len;
        }
        Ok(())
    }

    /// What change `seq` has in `range`, as it was when it was logged.
    pub(super) fn source(&self, seq: u64, data: &DataChange, range: &Range<u64>) -> Vec<u8> {
        let container = self.kept.containers.get(&(data.ino, data.container));
        let container = container.map_or(&[][..], |container| &container.bytes);
        let mut bytes = bytes_of(container, range);
        let preserved = self.core.preserved(seq);
        for at in preserved.within(range.clone()).flatten() {
            let kept = self.kept.preserved.get(&seq).and_then(|kept| kept.bytes.get(&at));
            bytes[place(at - range.start)] = kept.copied().unwrap_or_default();
        }
        bytes
    }
}
