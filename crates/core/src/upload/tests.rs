//! One upload against a file in memory and a server that has chunks.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::nouns::{Base, ContainerId, Piece, PieceBytes, Timestamp};
use crate::wire::{LeafPart, Outlined};

const FILE: Ino = Ino(5);
const SEQ: u64 = 9;
const SIZES: Sizes = Sizes {
    average: Some(16),
    inline_max: 15,
    basis_min: 32,
    hole_min: 16,
    offer_from: 1 << 20,
    leaf: 8,
};

type Under = Upload<Bytes, ()>;

/// The shell and the server.
struct World {
    file: Vec<u8>,
    has: BTreeSet<Fingerprint>,
    /// What the basis has.
    basis: Option<Vec<u8>>,
    /// Refuses what is put.
    is_full: bool,
    /// The basis is another one when a leaf is made of it.
    is_astray: bool,
    /// Differences that led to nothing are sent whole.
    lacks_differences: bool,
    is_whole: bool,
    actions: Vec<String>,
    most_flying: usize,
}

impl World {
    fn new(file: &[u8]) -> World {
        World {
            file: file.to_vec(),
            has: BTreeSet::new(),
            basis: None,
            is_full: false,
            is_astray: false,
            lacks_differences: false,
            is_whole: false,
            actions: Vec::new(),
            most_flying: 0,
        }
    }

    fn change(&self, ranges: Vec<Range<u64>>) -> DataChange {
        DataChange {
            ino: FILE,
            container: ContainerId(1),
            base: Base::Version(Version { epoch: 1, counter: 3 }),
            cut: None,
            size: self.file.len() as u64,
            ranges,
            mtime: Timestamp::default(),
        }
    }

    /// Uploads the whole file.
    fn upload(&mut self, way: Way) -> Result<Made<Bytes>, Refusal> {
        let whole = self.change(vec![0..self.file.len() as u64]);
        self.run(Upload::new([(SEQ, whole)], way, SIZES, 64))
    }

    fn run(&mut self, mut upload: Under) -> Result<Made<Bytes>, Refusal> {
        loop {
            // Several flights are there at once before one is answered.
            let mut flights = Vec::new();
            while let Some(action) = upload.poll_action() {
                let words = format!("{action:?}");
                self.actions.push(words.split(['(', ' ']).next().unwrap().to_owned());
                match action {
                    Action::Offer(..) | Action::Put(..) => flights.push(action),
                    Action::Progress(_) => {}
                    action => {
                        let event = self.event(action);
                        upload.handle(event, 64);
                    }
                }
            }
            self.most_flying = self.most_flying.max(flights.len());
            if let Some(made) = upload.take_made() {
                return made;
            }
            assert!(!flights.is_empty(), "an upload that waits for nothing: {upload:?}");
            for flight in flights {
                let event = self.event(flight);
                upload.handle(event, 64);
            }
        }
    }

    fn event(&mut self, action: Action<Bytes, ()>) -> Event<Bytes, ()> {
        let part = |range: &Range<u64>| {
            let at = |at: u64| usize::try_from(at).unwrap();
            self.file[at(range.start)..at(range.end)].to_vec()
        };
        match action {
            Action::FindBases(SEQ) => {
                let version = Version { epoch: 1, counter: 3 };
                let basis = self.basis.as_ref();
                let basis = basis.map(|_| Candidate { ino: FILE, version, copy: Some(()) });
                Event::Bases(basis.into_iter().collect())
            }
            Action::Outline(Outline { offset: 0, .. }) => {
                let basis = self.basis.clone().unwrap();
                let cut = cut(&Cutter::of_average(16), basis.clone().into(), true);
                let parts = cut.into_iter().map(|cut| match cut {
                    Cut::Zeros(len) => (len, None),
                    Cut::Chunk(chunk) => {
                        (u64::from(chunk.len), Some(crate::wire::Brief::from(&chunk.name)))
                    }
                });
                let (size, parts) = (basis.len() as u64, parts.collect());
                Event::Outlined(Ok(Outlined { size, start: 0, parts }))
            }
            Action::Outline(_) => Event::Outlined(Err(Refusal::Changed)),
            Action::Open(SEQ) => Event::Opened(Ok(self.is_whole)),
            Action::FindData(range) => {
                let bytes = part(&range);
                let from = bytes.iter().position(|byte| *byte != 0);
                let from = from.map_or(range.end, |from| range.start + from as u64);
                Event::Data(Ok(from..range.end))
            }
            Action::Read(range) => Event::Read(Ok(part(&range))),
            Action::Cut(cutter, range) => {
                let end = range.end.min(range.start + 2 * cutter.longest() as u64);
                let window = part(&(range.start..end));
                Event::Cut(Ok(cut(&cutter, window.into(), end == range.end)))
            }
            Action::Stage(leaf, FILE) => {
                let parts = leaf.parts.iter();
                let missing = parts.filter_map(|part| match part {
                    LeafPart::Chunk(name, _) if !self.has.contains(name) => Some(*name),
                    _ => None,
                });
                let missing = missing.collect();
                let is_astray = std::mem::take(&mut self.is_astray);
                let astray = if is_astray { vec![0] } else { Vec::new() };
                Event::Staged(Ok(Staged { missing, astray }))
            }
            action => self.answer(action),
        }
    }

    /// What the server answers to a flight.
    fn answer(&mut self, action: Action<Bytes, ()>) -> Event<Bytes, ()> {
        match action {
            Action::Offer(id, chunks) => {
                let lacks = |(_, chunk): &(u32, &Chunk<Bytes>)| !self.has.contains(&chunk.name);
                let wanted = (0..).zip(&chunks).filter(lacks).map(|(index, _)| index);
                Event::Wanted(id, Ok(wanted.collect()))
            }
            Action::Put(id, _) if self.is_full => Event::Stored(id, Err(Refusal::Quota)),
            Action::Put(id, Put { chunks, hints, files }) => {
                assert_eq!(files, [FILE]);
                let deltas = hints.map_or(Vec::new(), |hints| {
                    hints.differences(&chunks, |raw, _| Some(raw.to_vec()))
                });
                let differing: BTreeSet<u32> =
                    deltas.iter().map(|(delta, _)| delta.index).collect();
                let lacking = |index: &u32| self.lacks_differences && differing.contains(index);
                let indexes = (0..chunks.len() as u32).collect::<Vec<_>>();
                for index in indexes.iter().filter(|index| !lacking(index)) {
                    self.has.insert(chunks[*index as usize].name);
                }
                if !differing.is_empty() {
                    self.actions.push("differences".into());
                }
                Event::Stored(id, Ok(indexes.into_iter().filter(lacking).collect()))
            }
            action => panic!("{action:?}"),
        }
    }

    fn did(&self, action: &str) -> usize {
        self.actions.iter().filter(|done| *done == action).count()
    }
}

fn noise(len: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) * 2 + 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3] | 1
    };
    (0..len).map(step).collect()
}

fn only(made: &Made<Bytes>) -> &[Piece] {
    let [(SEQ, store)] = made.stores.as_slice() else { panic!("{made:?}") };
    &store.pieces
}

/// How many pieces are inline, chunks, leaves and holes.
fn kinds(made: &Made<Bytes>) -> [usize; 4] {
    let mut kinds = [0; 4];
    for piece in only(made) {
        let kind = match piece.bytes {
            PieceBytes::Inline(_) => 0,
            PieceBytes::Chunk { .. } => 1,
            PieceBytes::Leaf { .. } => 2,
            PieceBytes::Hole { .. } => 3,
        };
        kinds[kind] += 1;
    }
    kinds
}

#[test]
fn few_bytes_are_in_the_record() {
    let mut world = World::new(&noise(100, 1));
    let small = world.change(vec![3..7, 90..100]);
    let made = world.run(Upload::new([(SEQ, small)], Way::Along, SIZES, 64)).unwrap();
    assert_eq!((kinds(&made), made.chunks.len()), ([2, 0, 0, 0], 0));
    assert_eq!(world.actions, ["Open", "Read", "Read"]);
}

#[test]
fn chunks_go_along_in_groups_and_as_leaves() {
    let mut world = World::new(&noise(60, 1));
    let made = world.upload(Way::Along).unwrap();
    assert_eq!(world.did("Offer"), 0);
    let brought: BTreeSet<_> = made.chunks.iter().map(|chunk| chunk.name).collect();
    let named = only(&made).iter().filter_map(|piece| match piece.bytes {
        PieceBytes::Chunk { fingerprint, .. } => Some(fingerprint),
        _ => None,
    });
    assert_eq!(named.collect::<BTreeSet<_>>(), brought);
    let mut world = World::new(&noise(2000, 1));
    let made = world.upload(Way::Ahead).unwrap();
    assert!(made.chunks.is_empty() && kinds(&made)[2] > 5, "{:?}", kinds(&made));
    assert_eq!(only(&made).iter().map(Piece::len).sum::<u64>(), 2000);
    assert!(world.did("Offer") >= 2000 / 100);
}

/// The second group is cut while the first one is on its way, and no third one.
#[test]
fn two_groups_are_on_their_way() {
    let mut world = World::new(&noise(2000, 1));
    let sizes = Sizes { leaf: 1000, ..SIZES };
    let whole = world.change(vec![0..2000]);
    world.run(Upload::new([(SEQ, whole)], Way::Ahead, sizes, 64)).unwrap();
    assert_eq!(world.most_flying, FLYING_MAX);
}

#[test]
fn holes_are_told_and_short_zeros_are_not() {
    let file = [noise(40, 1), vec![0; 500], noise(40, 2), vec![0; 3], noise(40, 3)].concat();
    let mut world = World::new(&file);
    let made = world.upload(Way::Along).unwrap();
    assert_eq!(kinds(&made)[3], 1);
    assert_eq!(only(&made).iter().map(Piece::len).sum::<u64>(), file.len() as u64);
}

/// A leaf is of what the server has there already, and of one chunk that differs.
#[test]
fn of_a_file_with_a_basis_what_differs_is_sent() {
    let old = noise(600, 1);
    let mut new = old.clone();
    new.splice(300..300, noise(5, 9));
    let (cut_old, mut world) =
        (cut(&Cutter::of_average(16), old.clone().into(), true), World::new(&new));
    let names = cut_old.iter().filter_map(|cut| match cut {
        Cut::Chunk(chunk) => Some(chunk.name),
        Cut::Zeros(_) => None,
    });
    world.has.extend(names);
    world.basis = Some(old);
    let made = world.upload(Way::Along).unwrap();
    assert!(made.chunks.is_empty(), "what differs is sent as it is found");
    assert_eq!((world.did("Outline"), world.did("differences")), (1, 1));
    assert!(world.did("Put") <= 3, "{:?}", world.actions);
}

#[test]
fn differences_that_lead_to_nothing_are_sent_whole() {
    let old = noise(600, 1);
    let mut new = old.clone();
    new.splice(300..300, noise(5, 9));
    let mut world = World::new(&new);
    (world.basis, world.lacks_differences) = (Some(old), true);
    world.upload(Way::Along).unwrap();
    assert!(world.did("Put") > world.did("Offer"), "{:?}", world.actions);
}

/// Proves S6.17.
#[test]
fn a_store_whose_basis_is_another_one_is_made_anew_without() {
    let old = noise(600, 1);
    let mut world = World::new(&old);
    (world.basis, world.is_astray) = (Some(old.clone()), true);
    let made = world.upload(Way::Along).unwrap();
    assert_eq!((world.did("Outline"), world.did("Open")), (1, 2));
    assert_eq!(only(&made).iter().map(Piece::len).sum::<u64>(), 600);
    let names = cut(&Cutter::of_average(16), old.into(), true);
    let sent: BTreeSet<_> =
        world.has.iter().copied().chain(made.chunks.iter().map(|c| c.name)).collect();
    assert!(names.iter().all(|cut| matches!(cut, Cut::Chunk(chunk) if sent.contains(&chunk.name))));
}

/// The first leaf says which chunks are there, the others are only named.
#[test]
fn a_server_that_takes_no_more_hears_names() {
    let mut world = World::new(&noise(600, 1));
    world.is_full = true;
    assert_eq!(world.upload(Way::Along).unwrap_err(), Refusal::Quota);
    world.actions.clear();
    let made = world.upload(Way::Named).unwrap();
    assert_eq!((world.did("Offer"), world.did("Put"), world.did("Stage")), (0, 0, 1));
    assert!(made.chunks.is_empty());
    let [_, chunks, leaves, _] = kinds(&made);
    assert!(chunks >= 8 && leaves > 1, "{chunks} chunks, {leaves} leaves");
}

#[test]
fn a_store_that_is_wanted_whole_is_cut_from_its_beginning() {
    let mut world = World::new(&noise(200, 1));
    world.is_whole = true;
    let change = world.change(vec![50..60]);
    let made = world.run(Upload::new([(SEQ, change)], Way::Along, SIZES, 64)).unwrap();
    let [(_, store)] = made.stores.as_slice() else { panic!("{made:?}") };
    assert_eq!((store.cut, store.whole), (Some(0), true));
    assert_eq!(store.pieces.iter().map(Piece::len).sum::<u64>(), 200);
}

#[test]
fn an_event_that_nobody_waits_for_ends_the_upload() {
    let world = World::new(&noise(100, 1));
    let change = world.change(vec![0..100]);
    let mut upload: Under = Upload::new([(SEQ, change)], Way::Along, SIZES, 64);
    while upload.poll_action().is_some() {}
    upload.handle(Event::Read(Ok(Vec::new())), 64);
    assert_eq!(upload.take_made(), Some(Err(Refusal::Protocol)));
}
