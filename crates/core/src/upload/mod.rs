//! The making of stores: changed files are cut into chunks, and the server gets those that it lacks
//! before a record refers to them. Only the remote of a Segue server knows of this.
//!
//! ```text
//!   change ─▶ basis? ─▶ ranges ─▶ holes, data ─▶ chunks ─▶ pieces, leaves ─▶ store
//!                                                  └─▶ group ─▶ offer ─▶ put      (flight)
//! ```
//!
//! While one group is on its way the next is cut. Of a store with a *basis*, which the server has,
//! only those chunks go that differ from it.
//!
//! Where a quota or a full disk lets no more in, the upload fails. The records before go first,
//! which may make room. The oldest store then goes with the names of its chunks only: so the server
//! says whether it is refused, once and for all (`host::send::server_disk`).
//!
//! The bytes of a chunk and a copy of a basis are tokens of the shell, `B` and `C`.

mod differ;
mod flight;
mod group;
mod making;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use crate::chunk::{Cutter, fingerprint};
use crate::host::log::{Change, DataChange, Logged};
use crate::nouns::{Fingerprint, Ino, Store, Version};
use crate::refusal::Refusal;
use crate::wire::{Leaf, Outline, Outlined, Staged};

use flight::Flight;
use group::Group;
use making::{Awaited, Making, Todo};

pub use differ::Hints;
pub use sizes::Sizes;

/// Groups on their way at once: one more than are cut.
const FLYING_MAX: usize = 2;
/// Reads are as long as so many of the longest chunks.
const WINDOW: u64 = 4;
/// Most pieces of one store: half of what a session of the server remembers to have got, and of
/// what fits into a message.
const PIECES_MAX: usize = 1 << 16;

/// What becomes of the chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The server gets all that it lacks, ahead of the records.
    Ahead,
    /// Likewise, but the last ones may go along with the records if they are few.
    Along,
    /// It takes no more, and hears what they are called.
    Named,
}

/// A group of chunks on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlightId(u64);

/// A chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk<B> {
    /// Its name.
    pub name: Fingerprint,
    /// Its length, in bytes.
    pub len: u32,
    /// Its bytes.
    pub bytes: B,
}

/// A part of a file between two cuts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cut<B> {
    /// So many zeros.
    Zeros(u64),
    /// Anything else.
    Chunk(Chunk<B>),
}

/// A version of a file that the server may have, and with which a store may have data in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate<C> {
    /// The file.
    pub ino: Ino,
    /// Its data version.
    pub version: Version,
    /// This host's copy of it.
    pub copy: Option<C>,
}

/// Chunks that are put.
#[derive(Debug)]
pub struct Put<B, C> {
    /// The chunks.
    pub chunks: Vec<Chunk<B>>,
    /// For these files.
    pub files: Vec<Ino>,
    /// How they may be told as differences.
    pub hints: Option<Hints<C>>,
}

/// What is to be done. All but the flights is done one at a time, each about the change that was
/// opened last.
#[derive(Debug)]
pub enum Action<B, C> {
    /// Look for bases of change `.0`: [`Event::Bases`].
    FindBases(u64),
    /// Ask the server how a basis is cut: [`Event::Outlined`].
    Outline(Outline),
    /// Open the bytes of change `.0`, complete if the server wants it whole: [`Event::Opened`].
    Open(u64),
    /// Find the first data in a range, which is empty and at its end if there are none:
    /// [`Event::Data`].
    FindData(Range<u64>),
    /// Read a range: [`Event::Read`].
    Read(Range<u64>),
    /// Read as much of a range as one window holds, and cut it: [`Event::Cut`].
    Cut(Cutter, Range<u64>),
    /// Have the server make a leaf for a file: [`Event::Staged`].
    Stage(Leaf, Ino),
    /// Ask which of these chunks the server lacks: [`Event::Wanted`].
    Offer(FlightId, Vec<Chunk<B>>),
    /// Put chunks: [`Event::Stored`].
    Put(FlightId, Put<B, C>),
    /// So many bytes more are at the server.
    Progress(u64),
}

/// An action has ended.
#[derive(Debug)]
pub enum Event<B, C> {
    /// Likely bases, the likeliest first.
    Bases(Vec<Candidate<C>>),
    /// How a basis is cut.
    Outlined(Result<Outlined, Refusal>),
    /// True if the server wants the change whole.
    Opened(Result<bool, Refusal>),
    /// Where the next data are.
    Data(Result<Range<u64>, Refusal>),
    /// The bytes of a range.
    Read(Result<Vec<u8>, Refusal>),
    /// The first chunks of a range, at least one.
    Cut(Result<Vec<Cut<B>>, Refusal>),
    /// A leaf was made, or something is missing for it.
    Staged(Result<Staged, Refusal>),
    /// The indexes of the chunks that the server lacks.
    Wanted(FlightId, Result<Vec<u32>, Refusal>),
    /// The indexes of the chunks that led to nothing as differences.
    Stored(FlightId, Result<Vec<u32>, Refusal>),
}

/// The stores of some changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Made<B> {
    /// Each with the number of its change.
    pub stores: Vec<(u64, Store)>,
    /// To bring along. The server has every other chunk that the stores refer to.
    pub chunks: Vec<Chunk<B>>,
}

/// The making of the stores of some changes.
#[derive(Debug)]
pub struct Upload<B, C> {
    sizes: Sizes,
    way: Way,
    /// Of so many bytes a group is.
    group_bytes: usize,
    changes: VecDeque<(u64, DataChange)>,
    stores: Vec<(u64, Store)>,
    group: Group<B>,
    making: Option<Making<C>>,
    /// The next steps, in order.
    todo: VecDeque<Todo<B>>,
    /// The action whose end the next step waits for.
    awaited: Option<Awaited>,
    flights: BTreeMap<FlightId, Flight<B, C>>,
    next_flight: u64,
    actions: VecDeque<Action<B, C>>,
    /// A leaf cannot be made of names only: the server lacks some.
    is_lacking: bool,
    /// All stores are made.
    is_last: bool,
    ended: Option<Result<(), Refusal>>,
}

impl<B: Clone, C: Clone> Upload<B, C> {
    /// Begins to make the stores of changes, with groups of about so many bytes.
    pub fn new(
        changes: impl IntoIterator<Item = (u64, DataChange)>,
        way: Way,
        sizes: Sizes,
        group_bytes: usize,
    ) -> Upload<B, C> {
        let mut upload = Upload {
            sizes,
            way,
            group_bytes,
            changes: changes.into_iter().collect(),
            stores: Vec::new(),
            group: Group::new(way == Way::Named),
            making: None,
            todo: VecDeque::new(),
            awaited: None,
            flights: BTreeMap::new(),
            next_flight: 0,
            actions: VecDeque::new(),
            is_lacking: false,
            is_last: false,
            ended: None,
        };
        upload.run();
        upload
    }

    /// An action has ended. A group is of about `group_bytes` on this link now.
    pub fn handle(&mut self, event: Event<B, C>, group_bytes: usize) {
        if self.ended.is_some() {
            return;
        }
        self.group_bytes = group_bytes;
        let handled = match event {
            Event::Wanted(id, wanted) => wanted.map(|indexes| self.wanted(id, &indexes)),
            Event::Stored(id, stored) => stored.map(|lacking| self.stored(id, &lacking)),
            event => self.go_on(event),
        };
        match handled {
            Ok(()) => self.run(),
            Err(refusal) => self.end(Err(refusal)),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action<B, C>> {
        self.actions.pop_front()
    }

    /// The stores, or why they were not made, once that is known. Nothing is to be done then.
    pub fn take_made(&mut self) -> Option<Result<Made<B>, Refusal>> {
        let ended = self.ended.take()?;
        let stores = std::mem::take(&mut self.stores);
        let chunks = self.group.take_along();
        Some(ended.map(|()| Made { stores, chunks }))
    }

    /// Takes steps until one waits.
    fn run(&mut self) {
        while self.awaited.is_none() && self.ended.is_none() {
            let Some(todo) = self.todo.pop_front() else {
                self.next_store();
                continue;
            };
            let has_to_wait = match todo {
                Todo::Send => self.flights.len() >= FLYING_MAX && self.group.has_chunks(),
                Todo::Land => !self.flights.is_empty(),
                _ => false,
            };
            if has_to_wait {
                self.todo.push_front(todo);
                return;
            }
            if let Err(refusal) = self.step(todo) {
                self.end(Err(refusal));
            }
        }
    }

    fn next_store(&mut self) {
        if let Some((seq, data)) = self.changes.pop_front() {
            let is_large = self.way != Way::Named && bytes_in(&data.ranges) >= self.sizes.basis_min;
            self.making = Some(Making::new(seq, data));
            self.todo.push_back(if is_large { Todo::FindBases } else { Todo::Open });
            return;
        }
        if self.is_last {
            return self.end(Ok(()));
        }
        self.is_last = true;
        if self.way == Way::Ahead || self.group.bytes() >= self.sizes.offer_from {
            self.todo.push_back(Todo::Send);
        }
        self.todo.push_back(Todo::Land);
    }

    fn end(&mut self, ended: Result<(), Refusal>) {
        self.actions.clear();
        self.ended = Some(ended);
    }

    /// Sends the chunks of the group on their way.
    fn send(&mut self) {
        let hints = self.making.as_mut().and_then(Making::hints);
        let Some((chunks, files)) = self.group.take() else { return };
        let id = FlightId(self.next_flight);
        self.next_flight += 1;
        let flight = Flight::new(id, chunks, files, hints);
        self.actions.push_back(flight.offer());
        self.flights.insert(id, flight);
    }

    fn wanted(&mut self, id: FlightId, indexes: &[u32]) {
        if let Some(flight) = self.flights.get_mut(&id) {
            let known = flight.wanted(indexes);
            if known > 0 {
                self.actions.push_back(Action::Progress(known));
            }
            self.put(id);
        }
    }

    fn stored(&mut self, id: FlightId, lacking: &[u32]) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        match flight.stored(lacking) {
            Ok(bytes) => {
                self.actions.push_back(Action::Progress(bytes));
                self.put(id);
            }
            Err(whole) => self.actions.push_back(whole),
        }
    }

    fn put(&mut self, id: FlightId) {
        match self.flights.get_mut(&id).and_then(Flight::next_put) {
            Some(put) => self.actions.push_back(put),
            None => drop(self.flights.remove(&id)),
        }
    }
}

/// The changes of data among these.
pub fn changes_of(batch: &[Logged]) -> Vec<(u64, DataChange)> {
    let data = |logged: &Logged| match &logged.change {
        Change::Data(data) => Some((logged.seq, data.clone())),
        Change::Record(_) => None,
    };
    batch.iter().filter_map(data).collect()
}

/// The first part of a range that is read at once for [`Action::Cut`].
pub fn window(cutter: &Cutter, range: &Range<u64>) -> Range<u64> {
    let longest = cutter.longest() as u64 * WINDOW;
    range.start..range.end.min(range.start.saturating_add(longest))
}

/// Cuts a window of a file, which ends with the part that is cut if it `is_last`.
pub fn cut(cutter: &Cutter, mut window: Bytes, is_last: bool) -> Vec<Cut<Bytes>> {
    let mut cuts = Vec::new();
    while let Some(len) = cutter.first(&window, is_last) {
        let bytes = window.split_to(len);
        if bytes.iter().all(|&byte| byte == 0) {
            cuts.push(Cut::Zeros(len as u64));
            continue;
        }
        let (name, len) = (fingerprint(&bytes), u32::try_from(len).unwrap_or(u32::MAX));
        cuts.push(Cut::Chunk(Chunk { name, len, bytes }));
    }
    cuts
}

/// How many bytes ranges have together.
fn bytes_in(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// How many bytes chunks have together.
fn bytes_of<'a, B: 'a>(chunks: impl IntoIterator<Item = &'a Chunk<B>>) -> u64 {
    chunks.into_iter().map(|chunk| u64::from(chunk.len)).sum()
}
