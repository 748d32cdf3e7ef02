//! Data of files that the server sends.

use std::ops::Range;

use segue_core::host::Host;
use segue_core::host::action::Gap;
use segue_core::host::cache::FileData;
use segue_core::nouns::{Ino, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Fetched, Reply, Request};

use super::{Errand, SimRemote};
use crate::disk::{HostDisk, place};
use crate::plan::Bug;
use crate::server::Answer;

/// The request for missing bytes of a file.
pub(super) fn request(Gap { ino, version, range }: Gap) -> Request {
    let (offset, len) = (range.start, range.end - range.start);
    Request::Fetch(Fetch { ino, version, offset, len })
}

/// False if nothing that is fetched will be taken.
pub(super) fn has_place_for(core: &Host, ask: &Fetch) -> bool {
    let takes = |file: &FileData| {
        let range = ask.offset..ask.offset + ask.len;
        file.version() != ask.version || !file.fillable(range, ask.version).is_empty()
    };
    core.data_of(ask.ino).is_none_or(takes)
}

impl SimRemote {
    /// The request for the first missing bytes of a file for which no call waits.
    pub(super) fn next_gap(
        &self,
        core: &mut Host,
        ino: Ino,
        range: Range<u64>,
        size: u64,
    ) -> Option<Request> {
        let file = core.data_of(ino).filter(|_| !self.is_offline)?;
        let gap = file.to_fetch(range, size).into_iter().next()?;
        Some(request(Gap { ino, version: file.version(), range: gap }))
    }

    /// Fetches missing bytes of a file before they are read.
    pub(crate) fn read_ahead(&mut self, core: &mut Host, disk: &HostDisk, ino: Ino, now: Time) {
        let Some(size) = core.tree().peek(ino).map(|attr| attr.size) else { return };
        if self.reads_ahead
            && disk.load(core, ino).is_ok()
            && let Some(request) = self.next_gap(core, ino, 0..size, size)
        {
            self.send((request.clone(), Vec::new()), Errand::Ahead(request), now);
        }
    }

    /// Takes in data for which no call waits, which were asked for and came then.
    pub(crate) fn take_data(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        request: &Request,
        (reply, body): Answer,
        times: [Time; 2],
    ) {
        let promised = self.session.promised(&reply);
        let as_of = core.tree().as_of(promised, times);
        if let (Request::Fetch(ask), Reply::Fetched(fetched)) = (request, reply) {
            // It is asked for again.
            self.fill((core, disk), ask, &fetched, &body).ok();
        }
        core.promised(&as_of);
    }

    /// Puts fetched bytes into the container where nothing newer is.
    pub(super) fn fill(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        ask: &Fetch,
        fetched: &Fetched,
        body: &[u8],
    ) -> Result<(), Refusal> {
        disk.failing.try_write()?;
        let file = core.data_of(ask.ino).ok_or(Refusal::Stale)?;
        let version = match self.bug {
            Some(Bug::ClientFillsStale) => file.version(),
            _ => ask.version,
        };
        disk.filled.insert(ask.ino);
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
            disk.fill(core, (ask.ino, version), at, &bytes)?;
            at += len;
        }
        Ok(())
    }
}
