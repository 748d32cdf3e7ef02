//! Extents against an array of bytes.

use proptest::prelude::*;

use super::*;
use crate::wire::{Fetch, Seek};

/// Longest file here.
const LEN: usize = 30_000;

#[derive(Clone, Debug)]
struct Write {
    cut: Option<u64>,
    size: u64,
    /// Gap before the piece, its length, and what it is.
    pieces: Vec<(usize, usize, u8)>,
    whole: bool,
    seed: u8,
}

fn write() -> impl Strategy<Value = Write> {
    let piece = (0usize..6000, prop_oneof![1usize..20, 1usize..8192], 0u8..7);
    (
        prop::option::of(0..LEN as u64),
        0..LEN as u64,
        prop::collection::vec(piece, 0..4),
        prop::bool::weighted(0.1),
        any::<u8>(),
    )
        .prop_map(|(cut, size, pieces, whole, seed)| Write { cut, size, pieces, whole, seed })
}

/// Bytes of a piece: never zero, so that a hole is told from data.
fn fill(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + usize::from(seed)) % 255) as u8 + 1).collect()
}

/// A file as it should be: `None` is a hole.
#[derive(Default)]
struct Array(Vec<Option<u8>>);

impl Array {
    /// Of each byte, whether it is data.
    fn places(&self) -> Vec<bool> {
        self.0.iter().map(Option::is_some).collect()
    }

    fn apply(&mut self, store: &Store, chunks: &BTreeMap<Fingerprint, Vec<u8>>) {
        let cut = if store.whole { 0 } else { store.cut.unwrap_or(u64::MAX) };
        self.0.truncate(usize::try_from(cut.min(store.size)).unwrap());
        self.0.resize(usize::try_from(store.size).unwrap(), None);
        for piece in &store.pieces {
            let at = piece.offset as usize;
            let bytes: Vec<Option<u8>> = match &piece.bytes {
                PieceBytes::Inline(bytes) => bytes.iter().copied().map(Some).collect(),
                PieceBytes::Chunk { fingerprint, .. }
                | PieceBytes::Leaf { leaf: fingerprint, .. } => {
                    chunks[fingerprint].iter().copied().map(Some).collect()
                }
                PieceBytes::Hole { len } => vec![None; *len as usize],
            };
            self.0[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

fn fetched(
    txn: &mut MapTxn,
    ask: &Fetch,
    chunks: &BTreeMap<Fingerprint, Vec<u8>>,
) -> Vec<Option<u8>> {
    let mut bytes = Vec::new();
    for segment in read::contents(txn, VOLUME, ask).unwrap() {
        let len = segment.len as usize;
        match segment.source {
            None => bytes.extend(vec![None; len]),
            Some(Source::Inline(inline)) => bytes.extend(inline.iter().copied().map(Some)),
            Some(Source::Chunk { fingerprint, start }) => {
                let part = &chunks[&fingerprint][start as usize..start as usize + len];
                bytes.extend(part.iter().copied().map(Some));
            }
            Some(Source::Leaf { .. }) => panic!("a leaf is not a place of bytes"),
        }
    }
    bytes
}

/// The same, as somebody finds it who goes from data to data.
fn walked(txn: &mut MapTxn, attr: &Attr) -> Vec<bool> {
    let (ino, version, mut places) = (attr.ino, attr.data_version, Vec::new());
    while places.len() < attr.size as usize {
        let offset = places.len() as u64;
        let run = read::seek(txn, VOLUME, &Seek { ino, version, offset }).unwrap();
        assert!(run.start >= offset && run.end > offset, "{run:?} from {offset}");
        places.resize(run.start as usize, false);
        places.resize(run.end as usize, true);
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_file_holds_what_was_stored(
        writes in prop::collection::vec(write(), 1..12),
        asks in prop::collection::vec((0..LEN as u64, 0..LEN as u64), 4),
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let ino = tin.file(&mut txn, Ino::ROOT, "f");
        let (mut array, mut chunks) = (Array::default(), BTreeMap::new());
        for write in writes {
            // What the file has is not touched.
            crate::upkeep::collect::collect(&mut txn, NOW + 1, write.seed.into()).unwrap();
            let (mut at, mut pieces) = (0, Vec::new());
            for (gap, len, kind) in write.pieces {
                let offset = at + gap as u64;
                at = offset + len as u64;
                let bytes = fill(len, write.seed.wrapping_add(kind));
                let bytes = match kind {
                    0 => PieceBytes::Hole { len: len as u64 },
                    1 | 2 => {
                        let fingerprint = arrive(&mut txn, &bytes);
                        tin.proven.insert(fingerprint);
                        chunks.insert(fingerprint, bytes);
                        PieceBytes::Chunk { fingerprint, len: len as u32 }
                    }
                    3 => {
                        let mut parts = Vec::new();
                        for part in bytes.chunks(len / 3 + 1) {
                            let fingerprint = arrive(&mut txn, part);
                            tin.proven.insert(fingerprint);
                            chunks.insert(fingerprint, part.to_vec());
                            parts.push((fingerprint, part.len() as u32));
                        }
                        let proven =
                            |name: &Fingerprint, _: &ChunkPlace| tin.proven.contains(name);
                        let parts = (parts.as_slice(), brought_for(&[]));
                        let leaf = stage(&mut txn, VOLUME, parts, &proven, NOW);
                        let leaf = leaf.unwrap().unwrap();
                        tin.proven.insert(leaf);
                        chunks.insert(leaf, bytes);
                        PieceBytes::Leaf { leaf, len: len as u64 }
                    }
                    _ => PieceBytes::Inline(bytes),
                };
                pieces.push(Piece { offset, bytes });
            }
            let (size, base) = (write.size.max(at), version(&mut txn, ino));
            let (cut, whole) = (write.cut, write.whole);
            let store = Store { ino, base, cut, size, pieces, mtime: None, whole };
            array.apply(&store, &chunks);
            let outcome = tin.apply(&mut txn, Record::Store(store));
            prop_assert!(matches!(outcome, Outcome::Done { .. }), "{:?}", outcome);

            let attr = attr(&mut txn, ino);
            let all = Fetch { ino, version: attr.data_version, offset: 0, len: u64::MAX };
            prop_assert_eq!(&fetched(&mut txn, &all, &chunks), &array.0);
            let data = array.0.iter().flatten().count() as u64;
            prop_assert_eq!((attr.size, attr.allocated), (array.0.len() as u64, data));
            prop_assert_eq!(walked(&mut txn, &attr), array.places());
            prop_assert_eq!(tally(&mut txn, VOLUME).unwrap().allocated, data);
        }
        let version = attr(&mut txn, ino).data_version;
        for (offset, len) in asks {
            let found = fetched(&mut txn, &Fetch { ino, version, offset, len }, &chunks);
            let end = array.0.len().min((offset + len) as usize);
            prop_assert_eq!(&found[..], array.0.get(offset as usize..end).unwrap_or_default());
        }
        tin.apply(&mut txn, unlink(Ino::ROOT, "f", ino, false));
        crate::upkeep::RemnantAges::default().expire(&mut txn, 0, 1, true).unwrap();
        while crate::upkeep::collect::collect(&mut txn, u64::MAX, 50).unwrap().rows > 0 {}
        let chunks = [keys::chunks(VOLUME), keys::leaves(VOLUME), keys::packs()];
        for table in [keys::all_extents(VOLUME), keys::all_idle()].into_iter().chain(chunks) {
            prop_assert!(!txn.0.keys().any(|key| key.starts_with(&table)));
        }
    }
}

/// The work for one answer is bounded, however many rows a run of data has.
#[test]
fn a_long_run_of_data_is_found_in_parts() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.file(&mut txn, Ino::ROOT, "f");
    let fingerprint = arrive(&mut txn, &[7; 10]);
    tin.proven.insert(fingerprint);
    let piece = |at| Piece { offset: at, bytes: PieceBytes::Chunk { fingerprint, len: 10 } };
    let pieces: Vec<Piece> = (0..1_500).map(|number| piece(100 + number * 10)).collect();
    let (base, size) = (version(&mut txn, ino), 20_000);
    let store = Store { ino, base, cut: None, size, pieces, mtime: None, whole: false };
    assert!(matches!(tin.apply(&mut txn, Record::Store(store)), Outcome::Done { .. }));
    let attr = attr(&mut txn, ino);
    let ask = Seek { ino, version: attr.data_version, offset: 0 };
    let first = read::seek(&mut txn, VOLUME, &ask).unwrap();
    assert!(first.start == 100 && first.end < 15_000, "{first:?}");
    let mut places = vec![false; 20_000];
    places[100..15_100].fill(true);
    assert!(walked(&mut txn, &attr) == places);
}

/// A file of `count` bytes, each with a hole behind it and in a row of its own.
fn scattered(txn: &mut MapTxn, tin: &mut Client, count: u64) -> Ino {
    let ino = tin.file(txn, Ino::ROOT, "f");
    let mut base = version(txn, ino);
    let places: Vec<u64> = (0..count).map(|at| at * 2).collect();
    for places in places.chunks(1 << 16) {
        let piece = |at: &u64| Piece { offset: *at, bytes: PieceBytes::Inline(vec![b'x']) };
        let pieces: Vec<Piece> = places.iter().map(piece).collect();
        let size = pieces.last().unwrap().offset + 1;
        let store = Store { ino, base, cut: None, size, pieces, mtime: None, whole: false };
        let stamped = tin.stamp(Record::Store(store));
        tin.send_unchecked(txn, &stamped).unwrap();
        base = Base::Result(tin.seq);
    }
    ino
}

/// A range of two million pieces, each one byte, took a gigabyte and minutes.
#[test]
fn a_range_of_very_many_pieces_is_told_in_part() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = scattered(&mut txn, &mut tin, 20_000);
    let attr = attr(&mut txn, ino);
    let (mut at, mut answers) = (1, Vec::new());
    while at < attr.size {
        let ask = Fetch { ino, version: attr.data_version, offset: at, len: attr.size };
        let segments = read::contents(&mut txn, VOLUME, &ask).unwrap();
        for segment in &segments {
            assert_eq!((segment.len, segment.source.is_some()), (1, at % 2 == 0), "at {at}");
            at += 1;
        }
        answers.push(segments.len());
    }
    assert_eq!(answers, [16_384, 16_384, 7_230]);
}

/// Of a file of which a store would remove very many rows the host stores all.
#[test]
fn a_store_over_very_many_pieces_is_to_be_whole() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = scattered(&mut txn, &mut tin, (1 << 18) + 2);
    let (base, size) = (Base::Result(tin.seq), attr(&mut txn, ino).size);
    let mut over = |txn: &mut MapTxn, cut, whole| {
        let pieces = vec![];
        let store = Store { ino, base, cut, size, pieces, mtime: None, whole };
        let stamped = tin.stamp(Record::Store(store));
        match tin.send_unchecked(txn, &stamped).unwrap() {
            ApplyResult::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    };
    let before = txn.clone();
    assert_eq!(over(&mut txn, Some(1), false), Outcome::NeedsWhole);
    assert_eq!(txn.0, before.0, "nothing was removed");
    let mut less = txn.clone();
    let done = over(&mut less, Some(3), false);
    assert!(matches!(done, Outcome::Done { .. }), "{done:?}");
    let done = over(&mut txn, None, true);
    assert!(matches!(done, Outcome::Done { .. }), "{done:?}");
    assert_eq!(attr(&mut txn, ino).allocated, 0);
}

/// Proves S23.3.
#[test]
fn a_file_has_no_more_bytes_than_an_offset_counts() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.file(&mut txn, Ino::ROOT, "f");
    let base = version(&mut txn, ino);
    let of_size = |size| {
        let (cut, pieces, mtime, whole) = (None, Vec::new(), None, true);
        Record::Store(Store { ino, base, cut, size, pieces, mtime, whole })
    };
    let longest = i64::MAX.cast_unsigned();
    assert_eq!(tin.apply(&mut txn, of_size(longest + 1)), refused(Refusal::TooLarge));
    let outcome = tin.apply(&mut txn, of_size(longest));
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    assert_eq!(attr(&mut txn, ino).size, longest);
}
