//! The steps of making one store.

use std::collections::VecDeque;
use std::ops::Range;

use super::differ::{Differ, Hints};
use super::{Action, Candidate, Chunk, Cut, Event, PIECES_MAX, Upload, Way, bytes_in};
use crate::delta::Basis;
use crate::host::log::DataChange;
use crate::namespace::leaf_wanted;
use crate::nouns::{Fingerprint, Piece, PieceBytes};
use crate::refusal::Refusal;
use crate::wire::{Outline, Outlined, Staged};

/// A store that is being made.
#[derive(Debug)]
pub(super) struct Making<C> {
    seq: u64,
    data: DataChange,
    /// Bases that were not tried.
    candidates: VecDeque<Candidate<C>>,
    /// A basis that is asked about.
    asked: Option<(Basis, Option<C>)>,
    /// The basis.
    differ: Option<Differ<C>>,
    /// Its ranges that are not cut.
    ranges: VecDeque<Range<u64>>,
    is_inline: bool,
    cut: Option<u64>,
    pieces: Vec<Piece>,
    /// So many of the last pieces are chunks without a gap between them.
    run: usize,
}

/// A step.
#[derive(Debug)]
pub(super) enum Todo<B> {
    FindBases,
    NextBasis,
    Open,
    /// Begin the next range.
    NextRange,
    /// Look for the next hole of a range. There is none between its start and `.1`.
    Scan(Range<u64>, u64),
    Cut(Range<u64>),
    /// Take in chunks that stand one behind the other, the first at `.0`, and then cut the rest.
    Take(u64, VecDeque<Cut<B>>, u64),
    /// A gap comes next, or the end.
    EndRun,
    Hole(Range<u64>),
    /// Make one leaf of the last chunks, so that neither a record nor the work of the server grows
    /// with the file.
    Stage,
    EndStore,
    Finish,
    /// Send the group.
    Send,
    /// Wait until all chunks that were sent are at the server.
    Land,
}

/// What an action is about that the next step waits for.
#[derive(Debug)]
pub(super) enum Awaited {
    Bases,
    Outline,
    Open,
    Data(Range<u64>, u64),
    Read(u64),
    Cut(Range<u64>),
    /// A leaf that takes the place of these pieces.
    Leaf(Fingerprint, Vec<Piece>),
}

impl<C: Clone> Making<C> {
    pub(super) fn new(seq: u64, data: DataChange) -> Making<C> {
        Making {
            seq,
            data,
            candidates: VecDeque::new(),
            asked: None,
            differ: None,
            ranges: VecDeque::new(),
            is_inline: false,
            cut: None,
            pieces: Vec::new(),
            run: 0,
        }
    }

    /// How its chunks may be told that are sent now.
    pub(super) fn hints(&mut self) -> Option<Hints<C>> {
        self.differ.as_mut()?.hints()
    }

    /// Zeros need no chunk, and one hole says as much as several.
    fn push_hole(&mut self, hole: Range<u64>) {
        let more = hole.end - hole.start;
        match self.pieces.last_mut() {
            Some(Piece { offset, bytes: PieceBytes::Hole { len } })
                if *offset + *len == hole.start =>
            {
                *len += more;
            }
            _ if more == 0 => {}
            _ => {
                let bytes = PieceBytes::Hole { len: more };
                self.pieces.push(Piece { offset: hole.start, bytes });
            }
        }
    }

    /// A leaf takes the place of a run.
    fn push_leaf(&mut self, leaf: Fingerprint, run: &[Piece]) {
        let len = run.iter().map(Piece::len).sum();
        let offset = run.first().map_or(0, |piece| piece.offset);
        self.pieces.push(Piece { offset, bytes: PieceBytes::Leaf { leaf, len } });
    }

    /// The bytes of the change are there, all of the file if that is wanted.
    fn opened(&mut self, is_whole: bool, inline_max: u64) {
        let size = self.data.size;
        let (ranges, cut) = match is_whole {
            true => (vec![0..size], Some(0)),
            false => (self.data.ranges.clone(), self.data.cut),
        };
        self.is_inline = bytes_in(&ranges) <= inline_max;
        let within = |range: Range<u64>| range.start.min(size)..range.end.min(size);
        self.ranges = ranges.into_iter().map(within).filter(|range| !range.is_empty()).collect();
        (self.cut, self.pieces, self.run) = (cut, Vec::new(), 0);
    }

    /// From where on the file differs from its earlier version.
    fn differs_from(&self) -> u64 {
        let first = self.data.ranges.first().map_or(u64::MAX, |range| range.start);
        self.data.cut.unwrap_or(u64::MAX).min(first)
    }
}

impl<B: Clone, C: Clone> Upload<B, C> {
    pub(super) fn step(&mut self, todo: Todo<B>) -> Result<(), Refusal> {
        let Some(making) = &mut self.making else {
            if let Todo::Send = todo {
                self.send();
            }
            return Ok(());
        };
        let seq = making.seq;
        match todo {
            Todo::FindBases => self.waits(Awaited::Bases, Action::FindBases(seq)),
            Todo::NextBasis => self.next_basis(),
            Todo::Open => self.waits(Awaited::Open, Action::Open(seq)),
            Todo::NextRange => return self.next_range(),
            Todo::Scan(range, known) => {
                let action = Action::FindData(known..range.end);
                self.waits(Awaited::Data(range, known), action);
            }
            Todo::Cut(range) if range.is_empty() => {}
            Todo::Cut(range) => {
                let size = making.data.size;
                let size = making.differ.as_ref().map_or(size, |differ| differ.cut_size(size));
                let action = Action::Cut(self.sizes.cutter(size), range.clone());
                self.waits(Awaited::Cut(range), action);
            }
            Todo::Take(at, cuts, end) => self.take(at, cuts, end),
            Todo::EndRun => {
                if making.differ.as_ref().is_some_and(Differ::has_found) {
                    self.first(Todo::Stage);
                } else {
                    making.run = 0;
                    making.differ.as_mut().map(Differ::end_run);
                }
            }
            Todo::Hole(hole) => making.push_hole(hole),
            Todo::Stage => self.stage(),
            Todo::EndStore => {
                if making.differ.is_some() {
                    self.todo.push_back(Todo::Send);
                }
                self.todo.push_back(Todo::Finish);
            }
            Todo::Finish => self.finish(),
            Todo::Send => self.send(),
            Todo::Land => {}
        }
        Ok(())
    }

    /// The end of the awaited action.
    pub(super) fn go_on(&mut self, event: Event<B, C>) -> Result<(), Refusal> {
        let (Some(awaited), Some(making)) = (self.awaited.take(), &mut self.making) else {
            return Err(Refusal::Protocol);
        };
        match (awaited, event) {
            (Awaited::Bases, Event::Bases(candidates)) => {
                making.candidates = candidates.into();
                self.first(Todo::NextBasis);
            }
            (Awaited::Outline, Event::Outlined(outlined)) => self.outlined(outlined.ok().as_ref()),
            (Awaited::Open, Event::Opened(is_whole)) => {
                making.opened(is_whole?, self.sizes.inline_max);
                self.first(Todo::NextRange);
            }
            (Awaited::Data(range, known), Event::Data(data)) => {
                self.scanned(range, known, &data?);
            }
            (Awaited::Read(offset), Event::Read(bytes)) => {
                making.pieces.push(Piece { offset, bytes: PieceBytes::Inline(bytes?) });
                self.first(Todo::NextRange);
            }
            (Awaited::Cut(range), Event::Cut(cuts)) => {
                self.first(Todo::Take(range.start, cuts?.into(), range.end));
            }
            (Awaited::Leaf(name, run), Event::Staged(staged)) => {
                return self.staged(name, run, staged);
            }
            _ => return Err(Refusal::Protocol),
        }
        Ok(())
    }

    fn waits(&mut self, awaited: Awaited, action: Action<B, C>) {
        self.awaited = Some(awaited);
        self.actions.push_back(action);
    }

    /// This step comes next.
    fn first(&mut self, todo: Todo<B>) {
        self.todo.push_front(todo);
    }

    fn next_basis(&mut self) {
        let Some(making) = &mut self.making else { return };
        let Some(candidate) = making.candidates.pop_front() else {
            return self.first(Todo::Open);
        };
        let basis = candidate.basis();
        let is_own = candidate.ino == making.data.ino;
        let offset = if is_own { making.differs_from() } else { 0 };
        making.asked = Some((basis, candidate.copy));
        self.ask_outline(offset);
    }

    fn ask_outline(&mut self, offset: u64) {
        let asked = self.making.as_ref().and_then(|making| making.asked.as_ref());
        let Some((ino, version)) = asked.map(|(basis, _)| basis.of()) else { return };
        self.waits(Awaited::Outline, Action::Outline(Outline { ino, version, offset }));
    }

    /// A basis is cut like this. Without an answer its known part may do.
    fn outlined(&mut self, outlined: Option<&Outlined>) {
        let Some(making) = &mut self.making else { return };
        let asked = making.asked.as_mut();
        let next = asked.zip(outlined).and_then(|((basis, _), outlined)| basis.learn(outlined));
        if let Some(offset) = next {
            return self.ask_outline(offset);
        }
        match making.asked.take() {
            Some((basis, copy)) if !basis.is_empty() => {
                making.differ = Some(Differ::new(basis, copy));
                self.first(Todo::Open);
            }
            _ => self.first(Todo::NextBasis),
        }
    }

    fn next_range(&mut self) -> Result<(), Refusal> {
        let Some(making) = &mut self.making else { return Ok(()) };
        if making.pieces.len() > PIECES_MAX {
            return Err(Refusal::TooLarge);
        }
        match making.ranges.pop_front() {
            None => self.first(Todo::EndStore),
            Some(range) if making.is_inline => {
                self.waits(Awaited::Read(range.start), Action::Read(range));
            }
            Some(range) => {
                let start = range.start;
                self.first(Todo::Scan(range, start));
            }
        }
        Ok(())
    }

    /// The next data of a range are there. A long hole before them is told: so it costs no reading.
    fn scanned(&mut self, range: Range<u64>, known: u64, data: &Range<u64>) {
        if data.start - known < self.sizes.hole_min && !data.is_empty() {
            return self.first(Todo::Scan(range, data.end));
        }
        let (part, hole) = (range.start..known, known..data.start);
        self.first(match hole.end < range.end {
            true => Todo::Scan(hole.end..range.end, hole.end),
            false => Todo::NextRange,
        });
        self.first(Todo::Hole(hole));
        self.first(Todo::EndRun);
        self.first(Todo::Cut(part));
    }

    /// Takes in chunks until something has to be sent first.
    fn take(&mut self, mut at: u64, mut cuts: VecDeque<Cut<B>>, end: u64) {
        let Some(making) = &mut self.making else { return };
        while let Some(cut) = cuts.pop_front() {
            let chunk = match cut {
                Cut::Zeros(len) => {
                    self.first(Todo::Take(at + len, cuts, end));
                    self.first(Todo::Hole(at..at + len));
                    return self.first(Todo::EndRun);
                }
                Cut::Chunk(chunk) => chunk,
            };
            let Chunk { name, len, .. } = chunk;
            let is_found = making.differ.as_mut().is_some_and(|of| of.finds(at, (name, len)));
            if !is_found {
                self.group.add(making.data.ino, chunk);
            }
            let bytes = PieceBytes::Chunk { fingerprint: name, len };
            making.pieces.push(Piece { offset: at, bytes });
            making.run += 1;
            at += u64::from(len);
            let is_leaf = making.run >= self.sizes.leaf;
            let size = making.data.size;
            let waits = making.differ.as_ref().is_some_and(|of| of.waits(size, &self.sizes));
            if is_leaf || self.group.is_due(self.group_bytes, waits) {
                self.first(Todo::Take(at, cuts, end));
                return self.first(if is_leaf { Todo::Stage } else { Todo::Send });
            }
        }
        self.first(Todo::Cut(at..end));
    }

    /// Makes a leaf of the run, all of whose chunks are at the server.
    fn stage(&mut self) {
        if self.group.has_chunks() || !self.flights.is_empty() {
            self.first(Todo::Stage);
            self.first(Todo::Land);
            return self.first(Todo::Send);
        }
        let Some(making) = &mut self.making else { return };
        let from = making.pieces.len().saturating_sub(making.run);
        let run = making.pieces.split_off(from);
        making.run = 0;
        let leaf = match &mut making.differ {
            Some(differ) => differ.leaf(),
            None => leaf_wanted(&run.iter().filter_map(chunk_of).collect::<Vec<_>>()),
        };
        let Some(leaf) = leaf.filter(|_| !run.is_empty()) else { return };
        if self.is_lacking {
            making.push_leaf(leaf.name, &run);
        } else {
            let ino = making.data.ino;
            self.waits(Awaited::Leaf(leaf.name, run), Action::Stage(leaf, ino));
        }
    }

    /// The server was asked to make a leaf of a run.
    fn staged(
        &mut self,
        name: Fingerprint,
        run: Vec<Piece>,
        staged: Result<Staged, Refusal>,
    ) -> Result<(), Refusal> {
        let Some(making) = &mut self.making else { return Ok(()) };
        let is_full = matches!(staged, Err(Refusal::Quota | Refusal::NoSpace));
        if self.way == Way::Named && (is_full || staged.as_ref().is_ok_and(Staged::lacks)) {
            // Those that came are named each, so that they go if the record is refused.
            self.is_lacking = true;
            making.pieces.extend(run);
            return Ok(());
        }
        if !staged?.lacks() {
            making.push_leaf(name, &run);
        } else if making.differ.take().is_some() {
            // The basis is another one by now: the store is made anew without.
            self.todo.clear();
            self.first(Todo::Open);
        } else {
            // Collected since they were offered, a week ago: the next attempt offers all again.
            return Err(Refusal::Unreachable);
        }
        Ok(())
    }

    fn finish(&mut self) {
        let Some(Making { seq, data, pieces, cut, .. }) = self.making.take() else { return };
        self.stores.push((seq, data.store(pieces, cut)));
    }
}

/// The chunk that a piece is.
fn chunk_of(piece: &Piece) -> Option<(Fingerprint, u32)> {
    match piece.bytes {
        PieceBytes::Chunk { fingerprint, len } => Some((fingerprint, len)),
        _ => None,
    }
}
