//! Uploads: core makes the stores of a batch, out of the bytes on the disk and of the server's
//! answers.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use segue_core::chunk::possession_proof;
use segue_core::host::Host;
use segue_core::host::action::{CallId, Deliver};
use segue_core::host::log::{Change, DataChange, Lane, Logged};
use segue_core::host::send::Picked;
use segue_core::nouns::{ContainerId, Ino, Piece, PieceBytes, Store, Time};
use segue_core::refusal::Refusal;
use segue_core::upload::{
    self, Action, Candidate, Chunk, Cut, Event, FlightId, Made, Sizes, Upload, Way,
};
use segue_core::wire::{Fetch, Offer, Put, Reply, Request, Stage};

use super::fetch::has_place_for;
use super::{Errand, SimRemote};
use crate::Violation;
use crate::disk::{HostDisk, bytes_of, place};
use crate::server::{Answer, NONCE, difference};

/// Groups are of about so many bytes, and of more in a large batch: a message may be lost.
const GROUP_BYTES: usize = 128;
const LARGE_GROUP_BYTES: usize = 4096;
/// So many bytes are a large batch.
const LARGE: u64 = 2048;

/// A file on the disk that has, or had, the bytes of a basis.
type Copy = (Ino, ContainerId);

/// An upload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum UploadId {
    /// For the batch of a call.
    Batch(CallId),
    /// Before the turn of its changes.
    Ahead(u64),
}

/// The changes whose stores are made.
pub(super) enum Changes {
    Batch(CallId, Deliver),
    Ahead(Picked),
}

impl Changes {
    fn logged(&self) -> &[Logged] {
        match self {
            Changes::Batch(_, deliver) => &deliver.batch,
            Changes::Ahead(picked) => &picked.changes,
        }
    }

    fn way(&self) -> Way {
        match self {
            Changes::Ahead(_) => Way::Ahead,
            Changes::Batch(_, deliver) if deliver.without.is_some() => Way::Named,
            Changes::Batch(..) => Way::Along,
        }
    }
}

/// Changes whose stores are being made.
pub(super) struct Uploading {
    pub(super) of: Changes,
    /// Stores whose chunks went ahead, by their changes.
    pub(super) ready: BTreeMap<u64, Store>,
    upload: Upload<Bytes, Copy>,
    group_bytes: usize,
    /// The change whose bytes are read.
    opened: u64,
    /// Its bytes as they were read, by their place.
    read: BTreeMap<(u64, u64), Bytes>,
}

/// The event that an answer is.
#[derive(Clone, Debug)]
pub(crate) enum Waits {
    Outline,
    Stage,
    Offer(FlightId),
    Put(FlightId),
    /// Missing bytes of a store that must be whole.
    Fetch(Fetch),
}

impl Uploading {
    /// Begins to make the stores of changes that did not go ahead.
    pub(super) fn new(core: &Host, of: Changes, least: Option<usize>) -> Uploading {
        let ahead = |logged: &Logged| Some((logged.seq, core.ahead().store(logged.seq)?.clone()));
        let ready: BTreeMap<u64, Store> = of.logged().iter().filter_map(ahead).collect();
        let mut data = upload::changes_of(of.logged());
        data.retain(|(seq, _)| !ready.contains_key(seq));
        let is_large = data.iter().map(|(_, data)| data.size).sum::<u64>() >= LARGE;
        let group_bytes = if is_large { LARGE_GROUP_BYTES } else { GROUP_BYTES };
        let upload = Upload::new(data, of.way(), sizes(least, is_large), group_bytes);
        Uploading { of, ready, upload, group_bytes, opened: 0, read: BTreeMap::new() }
    }

    /// The lane of its batch, if it has one.
    pub(super) fn lane(&self) -> Option<Lane> {
        match &self.of {
            Changes::Batch(_, deliver) => Some(deliver.lane),
            Changes::Ahead(_) => None,
        }
    }

    /// The change whose bytes are read.
    fn data(&self, seq: u64) -> Result<&DataChange, Violation> {
        let logged = self.of.logged().iter().find(|logged| logged.seq == seq);
        match logged.map(|logged| &logged.change) {
            Some(Change::Data(data)) => Ok(data),
            _ => Err(Violation(format!("an upload reads change {seq}"))),
        }
    }

    /// These stand from `at` on in the change that is open.
    fn remember(&mut self, mut at: u64, cuts: &[Cut<Bytes>]) {
        for cut in cuts {
            let (len, bytes) = match cut {
                Cut::Zeros(len) => (*len, vec![0; place(*len)].into()),
                Cut::Chunk(chunk) => (u64::from(chunk.len), chunk.bytes.clone()),
            };
            self.read.insert((self.opened, at), bytes);
            at += len;
        }
    }

    /// `store` with the bytes that were read for it.
    fn spelled_out(&self, seq: u64, store: &Store) -> Store {
        let inline = |offset, bytes| Piece { offset, bytes: PieceBytes::Inline(bytes) };
        let pieces = store.pieces.iter().flat_map(|piece| {
            if let PieceBytes::Hole { len } = piece.bytes {
                return vec![inline(piece.offset, vec![0; place(len)])];
            }
            let end = piece.offset + piece.len();
            let read = self.read.range((seq, piece.offset)..(seq, end));
            read.map(|((_, offset), bytes)| inline(*offset, bytes.to_vec())).collect()
        });
        Store { pieces: pieces.collect(), ..store.clone() }
    }
}

/// The most bytes of a change that go inside its record, if chunks have so many on average.
pub(crate) fn inline_max(average: usize) -> u64 {
    average as u64 - 1
}

/// From so many bytes on chunks are offered, if they have so many on average.
pub(crate) fn offer_from(average: usize) -> u64 {
    4 * average as u64
}

/// How stores are made: in small chunks if such have so many bytes on average.
fn sizes(least: Option<usize>, is_large: bool) -> Sizes {
    let Some(average) = least else { return Sizes::default() };
    let least = average as u64;
    Sizes {
        average: Some(average),
        inline_max: inline_max(average),
        basis_min: 2 * least,
        hole_min: least,
        offer_from: offer_from(average),
        leaf: if is_large { 256 } else { 5 },
    }
}

impl SimRemote {
    /// Carries out what an upload wants done, until it waits for answers or has ended.
    pub(super) fn upload(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (id, uploading): (UploadId, &mut Uploading),
        now: Time,
    ) -> Result<Option<Result<Made<Bytes>, Refusal>>, Violation> {
        while let Some(action) = uploading.upload.poll_action() {
            if let Some(event) = self.local((core, disk), (id, uploading), action, now)? {
                uploading.upload.handle(event, uploading.group_bytes);
            }
        }
        let made = uploading.upload.take_made();
        if let Some(Ok(made)) = &made {
            let spelled = |(seq, store)| (seq, uploading.spelled_out(seq, store));
            let stores = made.stores.iter().map(|(seq, store)| (*seq, store));
            self.spelled.extend(stores.map(spelled));
        }
        Ok(made)
    }

    /// Does what needs no server, or asks it.
    fn local(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (id, uploading): (UploadId, &mut Uploading),
        action: Action<Bytes, Copy>,
        now: Time,
    ) -> Result<Option<Event<Bytes, Copy>>, Violation> {
        let seq = uploading.opened;
        Ok(Some(match action {
            Action::FindBases(seq) => Event::Bases(bases(core, disk, (seq, uploading.data(seq)?))),
            Action::Open(seq) => {
                uploading.opened = seq;
                let data = uploading.data(seq)?;
                let is_whole = core.is_wanted_whole(seq);
                if is_whole && self.complete(core, (id, data), now) {
                    return Ok(None);
                }
                Event::Opened(Ok(is_whole))
            }
            Action::FindData(range) => {
                let data = uploading.data(seq)?;
                Event::Data(Ok(next_data(&disk.source(core, (seq, data), &range), &range)))
            }
            Action::Read(range) => {
                let bytes = disk.source(core, (seq, uploading.data(seq)?), &range);
                uploading.read.insert((seq, range.start), bytes.clone().into());
                Event::Read(Ok(bytes))
            }
            Action::Cut(cutter, range) => {
                let part = upload::window(&cutter, &range);
                let bytes = disk.source(core, (seq, uploading.data(seq)?), &part);
                let cuts = upload::cut(&cutter, bytes.into(), part.end == range.end);
                uploading.remember(range.start, &cuts);
                Event::Cut(Ok(cuts))
            }
            action => {
                self.ask_server(disk, id, action, now);
                return Ok(None);
            }
        }))
    }

    fn ask_server(
        &mut self,
        disk: &HostDisk,
        id: UploadId,
        action: Action<Bytes, Copy>,
        now: Time,
    ) {
        let (waits, message) = match action {
            Action::Outline(ask) => (Waits::Outline, (Request::Outline(ask), Vec::new())),
            Action::Stage(leaf, ino) => {
                let stage = Stage { leaves: vec![leaf], files: vec![ino] };
                (Waits::Stage, (Request::Stage(stage), Vec::new()))
            }
            Action::Offer(id, chunks) => {
                let proof =
                    |chunk: &Chunk<Bytes>| (chunk.name, possession_proof(&NONCE, &chunk.bytes));
                let chunks = chunks.iter().map(proof).collect();
                (Waits::Offer(id), (Request::Offer(Offer { chunks }), Vec::new()))
            }
            Action::Put(id, put) => (Waits::Put(id), put_request(disk, put)),
            // Nobody waits for progress, and the others were done.
            _ => return,
        };
        self.ask_for((id, waits), message, now);
    }

    fn ask_for(&mut self, (id, waits): (UploadId, Waits), message: (Request, Vec<u8>), now: Time) {
        self.send(message, Errand::Upload(id, waits), now);
    }

    /// Asks for the first missing bytes of a store that must be whole. False if none can be had.
    fn complete(
        &mut self,
        core: &mut Host,
        (id, data): (UploadId, &DataChange),
        now: Time,
    ) -> bool {
        let size = core.tree().peek(data.ino).map_or(0, |attr| attr.size);
        let Some(request) = self.next_gap(core, data.ino, 0..data.size, size) else { return false };
        let Request::Fetch(ask) = request else { return false };
        self.ask_for((id, Waits::Fetch(ask)), (request, Vec::new()), now);
        true
    }

    /// An upload goes on with an answer, which was asked for and came at these `times`.
    pub(super) fn upload_heard(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        (id, uploading): (UploadId, &mut Uploading),
        (waits, answer): (Waits, Answer),
        times: [Time; 2],
    ) -> Result<(), Violation> {
        let refused = match &answer.0 {
            Reply::Refused(refused) => Some(refused.refusal),
            _ => None,
        };
        let event = match (waits, answer) {
            (Waits::Outline, (Reply::Outlined(outlined), _)) => Event::Outlined(Ok(outlined)),
            (Waits::Stage, (Reply::Staged(staged), _)) => Event::Staged(Ok(staged)),
            (Waits::Offer(id), (Reply::Wanted(wanted), _)) => Event::Wanted(id, Ok(wanted.indexes)),
            (Waits::Put(id), (Reply::Stored(stored), _)) => Event::Stored(id, Ok(stored.lacking)),
            (Waits::Fetch(ask), answer) => {
                let ended = self.took_missing((core, disk), ask, answer, times);
                let data = uploading.data(uploading.opened)?;
                if ended.is_none() && self.complete(core, (id, data), times[1]) {
                    return Ok(());
                }
                Event::Opened(ended.unwrap_or(Ok(true)))
            }
            (waits, (reply, _)) => {
                let refusal = refused
                    .ok_or_else(|| Violation(format!("{waits:?} is answered by {reply:?}")))?;
                match waits {
                    Waits::Outline => Event::Outlined(Err(refusal)),
                    Waits::Offer(id) => Event::Wanted(id, Err(refusal)),
                    Waits::Put(id) => Event::Stored(id, Err(refusal)),
                    Waits::Stage | Waits::Fetch(_) => Event::Staged(Err(refusal)),
                }
            }
        };
        uploading.upload.handle(event, uploading.group_bytes);
        Ok(())
    }

    /// Takes in missing bytes of a store that must be whole, if they came. Returns how it is opened
    /// if no others can be had.
    fn took_missing(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        ask: Fetch,
        answer: Answer,
        times: [Time; 2],
    ) -> Option<Result<bool, Refusal>> {
        match &answer.0 {
            Reply::Refused(refused) if refused.refusal == Refusal::Unreachable => {
                Some(Err(refused.refusal))
            }
            Reply::Fetched(_) => {
                // No end of asking would bring what was cut off here meanwhile.
                let had_place = has_place_for(core, &ask);
                self.take_data((core, disk), &Request::Fetch(ask), answer, times);
                (!had_place || is_cut(core, &ask)).then_some(Ok(true))
            }
            _ => Some(Ok(true)),
        }
    }
}

/// Versions that the server may have, and that change `seq` may have much in common with.
fn bases(
    core: &mut Host,
    disk: &HostDisk,
    (seq, data): (u64, &DataChange),
) -> Vec<Candidate<Copy>> {
    let bases = core.bases(data.ino, seq);
    let candidate = |ino| {
        disk.load(core, ino).ok();
        let version = core.stored_version(ino)?;
        let clean = core.clean_copy(ino).filter(|copy| copy.version == version);
        // The bytes of the file itself have changed since.
        let own = (ino == data.ino).then_some((ino, data.container));
        Some(Candidate { ino, version, copy: own.or(clean.map(|copy| (ino, copy.container))) })
    };
    bases.into_iter().filter_map(candidate).collect()
}

/// The first run of bytes that are not zeros.
fn next_data(bytes: &[u8], range: &Range<u64>) -> Range<u64> {
    let at = |at: usize| range.start + at as u64;
    let Some(start) = bytes.iter().position(|byte| *byte != 0) else {
        return range.end..range.end;
    };
    let len = bytes.iter().skip(start).position(|byte| *byte == 0);
    at(start)..len.map_or(range.end, |len| at(start + len))
}

/// The message that puts chunks, as differences where there is a copy of the basis.
fn put_request(disk: &HostDisk, put: upload::Put<Bytes, Copy>) -> (Request, Vec<u8>) {
    let upload::Put { chunks, files, hints } = put;
    let deltas = hints.map_or_else(Vec::new, |hints| {
        let container = disk.kept.containers.get(&hints.copy);
        let of_copy = |raw: &Bytes, range: Range<u64>| {
            let copy = bytes_of(&container?.bytes, &range);
            (!copy.is_empty()).then(|| difference(raw, &copy))
        };
        hints.differences(&chunks, of_copy)
    });
    let differing = |index: u32| deltas.iter().find(|(delta, _)| delta.index == index);
    let body = (0..).zip(&chunks).flat_map(|(index, chunk)| match differing(index) {
        Some((_, bytes)) => bytes.clone(),
        None => chunk.bytes.to_vec(),
    });
    let body = body.collect();
    let deltas = deltas.iter().map(|(delta, _)| delta.clone()).collect();
    let chunks = chunks.iter().map(|chunk| (chunk.name, chunk.len)).collect();
    (Request::Put(Put { chunks, files, deltas }), body)
}

/// True if fetched bytes are still missing, and there is no place for them. They may have been cut
/// off since, in a change that only the log of an earlier process knows: they would be fetched for
/// ever.
fn is_cut(core: &Host, ask: &Fetch) -> bool {
    let size = core.tree().peek(ask.ino).map_or(0, |attr| attr.size);
    let range = ask.offset..ask.offset + ask.len;
    core.data_of(ask.ino).is_some_and(|file| {
        let is_missing = !file.to_fetch(range.clone(), size).is_empty();
        is_missing && file.version() == ask.version && file.fillable(range, ask.version).is_empty()
    })
}
