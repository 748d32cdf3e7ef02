//! What nobody needs goes, what somebody needs stays.

use proptest::prelude::*;

use super::*;
use crate::chunk::fingerprint;
use crate::namespace::tests::brought_for;
use crate::upkeep::collect::{collect, packs};

/// A store of whole chunks of these bytes, one after the other.
fn chunked(txn: &mut MapTxn, client: &mut Client, ino: Ino, parts: &[&[u8]]) -> Outcome {
    let (mut offset, mut pieces) = (0, Vec::new());
    for bytes in parts {
        let (fingerprint, len) = (arrive(txn, bytes), bytes.len() as u32);
        client.proven.insert(fingerprint);
        pieces.push(Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len } });
        offset += u64::from(len);
    }
    let (base, mtime) = (version(txn, ino), None);
    let store = Store { ino, base, cut: None, size: offset, pieces, mtime, whole: true };
    client.apply(txn, Record::Store(store))
}

fn has(txn: &mut MapTxn, bytes: &[u8]) -> bool {
    chunk(txn, VOLUME, &fingerprint(bytes)).unwrap().is_some()
}

fn collect_all(txn: &mut MapTxn, now_seconds: u64) {
    while collect(txn, now_seconds, 7).unwrap().rows > 0 {}
    assert_eq!(check::findings(txn), []);
}

#[test]
fn a_chunk_lives_as_long_as_somebody_needs_it() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    tin.is_shared = false;
    let one = tin.file(&mut txn, Ino::ROOT, "one");
    let two = tin.file(&mut txn, Ino::ROOT, "two");
    chunked(&mut txn, &mut tin, one, &[b"shared", b"single"]);
    chunked(&mut txn, &mut tin, two, &[b"shared"]);
    tin.apply(&mut txn, unlink(Ino::ROOT, "one", one, false));
    collect_all(&mut txn, NOW);
    assert!(has(&mut txn, b"shared") && !has(&mut txn, b"single"));
    chunked(&mut txn, &mut tin, two, &[b"other"]);
    collect_all(&mut txn, NOW);
    assert!(!has(&mut txn, b"shared") && has(&mut txn, b"other"));
}

/// An upload that broke off goes on for a week where it stopped.
#[test]
fn what_came_is_kept_for_its_record() {
    let mut txn = store();
    arrive(&mut txn, b"early");
    collect_all(&mut txn, NOW + LEASE_SECONDS);
    assert!(has(&mut txn, b"early"));
    collect_all(&mut txn, NOW + LEASE_SECONDS + 1);
    assert!(!has(&mut txn, b"early"));
}

/// A record that names a chunk which went meanwhile is told so, and applied when it came again.
#[test]
fn a_record_that_comes_too_late_is_told_what_is_missing() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let fingerprint = arrive(&mut txn, b"late");
    tin.proven.insert(fingerprint);
    collect_all(&mut txn, u64::MAX);
    let pieces = vec![Piece { offset: 0, bytes: PieceBytes::Chunk { fingerprint, len: 4 } }];
    let (base, size) = (version(&mut txn, file), 4);
    let store = Store { ino: file, base, cut: None, size, pieces, mtime: None, whole: true };
    let stamped = tin.stamp(Record::Store(store));
    let missing = ApplyResult::Outcome(Outcome::Missing { chunks: vec![fingerprint] });
    assert_eq!(tin.send(&mut txn, &stamped), missing);
    arrive(&mut txn, b"late");
    let done = tin.send(&mut txn, &stamped);
    assert!(matches!(done, ApplyResult::Outcome(Outcome::Done { .. })), "{done:?}");
}

/// Replacing or removing a file of many extents is a few rows; the others go in slices.
#[test]
fn a_large_content_goes_in_slices() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    tin.is_shared = false;
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let parts: Vec<Vec<u8>> = (0..1000_u32).map(|at| at.to_le_bytes().to_vec()).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    for _ in 0..2 {
        chunked(&mut txn, &mut tin, file, &parts);
    }
    assert_eq!(attr(&mut txn, file).allocated, 4000);
    let before = txn.0.len();
    let done = collect(&mut txn, NOW, 100).unwrap();
    assert!((100..=110).contains(&done.rows) && txn.0.len() < before, "{done:?}");
    tin.apply(&mut txn, unlink(Ino::ROOT, "file", file, false));
    assert_eq!(tally(&mut txn, VOLUME).unwrap().allocated, 0);
    collect_all(&mut txn, NOW);
    assert!(parts.iter().all(|part| !has(&mut txn, part)));
    assert_eq!(packs(&mut txn).unwrap(), BTreeMap::new());
}

/// A volume that is removed leaves no row, and others lose none.
#[test]
fn a_removed_volume_goes_with_its_clients() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    chunked(&mut txn, &mut tin, file, &[b"one", b"two"]);
    let Ok(other) = create_volume(&mut txn, "other", [8; 16], Timestamp::default()).unwrap() else {
        panic!("not made")
    };
    let client = ClientId([2; 16]);
    bind(&mut txn, client, "identity", other, 1).unwrap().unwrap();
    grant(&mut txn, client).unwrap().unwrap();
    let (_, row) = find_volume(&mut txn, "other").unwrap().unwrap();
    let kept = txn.0.len();
    txn.remove(&keys::volume(VOLUME)).unwrap();
    txn.remove(&keys::volume_name("home")).unwrap();
    txn.remove(&keys::volume_tally(VOLUME)).unwrap();
    put_row(&mut txn, &keys::removed_volume(VOLUME), &()).unwrap();
    while collect(&mut txn, NOW, 5).unwrap().rows > 0 {}
    assert!(txn.0.len() < kept && packs(&mut txn).unwrap().is_empty());
    let left: Vec<_> = txn.0.keys().collect();
    assert_eq!(left.len(), 6, "{left:?}");
    assert_eq!(find_volume(&mut txn, "other").unwrap(), Some((other, row)));
    assert_eq!(grants(&mut txn, client).unwrap().len(), 1);
}

/// A row that could not be read stopped every slice, so nothing was ever free again.
#[test]
fn damage_stops_no_collection() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    tin.is_shared = false;
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    chunked(&mut txn, &mut tin, file, &[b"one", b"two", b"three"]);
    let contents = Contents { volume: VOLUME, ino: file, generation: 0 };
    txn.0.insert(keys::extent(contents, 6), vec![]);
    txn.0.insert(keys::chunk(VOLUME, &fingerprint(b"three")), vec![]);
    let pack = keys::pack(1);
    txn.0.insert(pack.clone(), vec![]);
    let removed = tin.stamp(unlink(Ino::ROOT, "file", file, false));
    let outcome = tin.send_unchecked(&mut txn, &removed);
    assert!(matches!(outcome, Ok(ApplyResult::Outcome(Outcome::Done { .. }))), "{outcome:?}");
    while collect(&mut txn, NOW, 7).unwrap().rows > 0 {}
    // What the extent referred to is not known, and the pack stays as long as its row is damaged.
    assert!(!has(&mut txn, b"one") && has(&mut txn, b"two") && txn.0.contains_key(&pack));
    assert!(txn.0.keys().all(|key| !key.starts_with(&keys::extents(contents))));
}

#[derive(Clone, Debug)]
enum Step {
    /// All of a file is these parts.
    Store(usize, Vec<u8>),
    /// The same, as a leaf.
    Leaf(usize, Vec<u8>),
    /// A part is written at this byte.
    Splice(usize, u64, u8),
    /// A file is made this long.
    Cut(usize, u64),
    /// A file gets another's data.
    Clone(usize, usize),
    Unlink(usize),
    /// A part comes for a record that does not follow.
    Arrive(u8),
    /// A part's bytes are moved to another pack.
    Move(u8),
    Collect(usize, bool),
    /// Remnants go.
    Expire(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let (file, part) = (0usize..4, 0u8..12);
    let parts = || prop::collection::vec(0u8..12, 0..6);
    prop_oneof![
        4 => (file.clone(), parts()).prop_map(|(f, p)| Step::Store(f, p)),
        3 => (file.clone(), parts()).prop_map(|(f, p)| Step::Leaf(f, p)),
        4 => (file.clone(), 0u64..600, part.clone()).prop_map(|(f, at, p)| Step::Splice(f, at, p)),
        2 => (file.clone(), 0u64..600).prop_map(|(f, size)| Step::Cut(f, size)),
        2 => (file.clone(), file.clone()).prop_map(|(from, to)| Step::Clone(from, to)),
        2 => file.prop_map(Step::Unlink),
        1 => part.clone().prop_map(Step::Arrive),
        2 => part.prop_map(Step::Move),
        4 => (0usize..9, any::<bool>()).prop_map(|(n, due)| Step::Collect(n, due)),
        2 => (0usize..3, any::<bool>()).prop_map(|(n, is_full)| Step::Expire(n, is_full)),
    ]
}

/// A store, a host, and files that are made when they are needed.
struct Scene {
    txn: MapTxn,
    tin: Client,
    files: [Option<Ino>; 4],
    /// The pack that moved bytes go to.
    pack: u64,
}

fn part(number: u8) -> Vec<u8> {
    vec![number + 1; 100]
}

impl Scene {
    fn file(&mut self, which: usize) -> Ino {
        let made = self.files[which];
        let name = format!("file-{which}");
        let ino = made.unwrap_or_else(|| self.tin.file(&mut self.txn, Ino::ROOT, &name));
        self.files[which] = Some(ino);
        ino
    }

    fn unlink(&mut self, which: usize) {
        if let Some(ino) = self.files[which].take() {
            let name = format!("file-{which}");
            self.tin.apply(&mut self.txn, unlink(Ino::ROOT, &name, ino, false));
        }
    }

    /// Stores a piece, or nothing, in a file that is `size` long afterwards.
    fn splice(&mut self, ino: Ino, piece: Option<Piece>, size: u64, cut: Option<u64>) {
        let (base, pieces) = (version(&mut self.txn, ino), piece.into_iter().collect());
        let store = Store { ino, base, cut, size, pieces, mtime: None, whole: false };
        let outcome = self.tin.apply(&mut self.txn, Record::Store(store));
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    }

    fn leaf(&mut self, ino: Ino, parts: &[u8]) {
        let named = parts.iter().map(|number| (arrive(&mut self.txn, &part(*number)), 100));
        let parts: Vec<_> = named.collect();
        let leaf = stage(&mut self.txn, VOLUME, (&parts, brought_for(&[])), &|_, _| true, NOW)
            .unwrap()
            .unwrap();
        self.tin.proven.insert(leaf);
        let len = parts.len() as u64 * 100;
        let piece = Piece { offset: 0, bytes: PieceBytes::Leaf { leaf, len } };
        self.splice(ino, Some(piece), len, Some(0));
    }

    fn relocate(&mut self, number: u8) {
        let name = fingerprint(&part(number));
        let Some(row) = chunk(&mut self.txn, VOLUME, &name).unwrap() else { return };
        self.pack += 1;
        let place = ChunkPlace { pack: self.pack, ..row.place };
        arrived(&mut self.txn, (VOLUME, &name), place, Some(row.place), 0).unwrap();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Store(which, parts) => {
                let ino = self.file(which);
                let parts: Vec<Vec<u8>> = parts.into_iter().map(part).collect();
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                let outcome = chunked(&mut self.txn, &mut self.tin, ino, &parts);
                assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
            }
            Step::Leaf(which, parts) if !parts.is_empty() => {
                let ino = self.file(which);
                self.leaf(ino, &parts);
            }
            Step::Leaf(..) => {}
            Step::Splice(which, offset, number) => {
                let ino = self.file(which);
                let fingerprint = arrive(&mut self.txn, &part(number));
                self.tin.proven.insert(fingerprint);
                let bytes = PieceBytes::Chunk { fingerprint, len: 100 };
                let size = attr(&mut self.txn, ino).size.max(offset + 100);
                self.splice(ino, Some(Piece { offset, bytes }), size, None);
            }
            Step::Cut(which, size) => {
                let ino = self.file(which);
                self.splice(ino, None, size, Some(size));
            }
            Step::Clone(from, to) if from != to => {
                self.unlink(to);
                let (from, ino) = (self.file(from), self.file(to));
                let Base::Version(known) = version(&mut self.txn, from) else { panic!() };
                let base = version(&mut self.txn, ino);
                let record = Record::Clone { ino, base, from, version: known };
                let outcome = self.tin.apply(&mut self.txn, record);
                assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
            }
            Step::Clone(..) => {}
            Step::Unlink(which) => self.unlink(which),
            Step::Arrive(number) => drop(arrive(&mut self.txn, &part(number))),
            Step::Move(number) => self.relocate(number),
            Step::Collect(budget, due) => {
                let now = if due { u64::MAX } else { NOW };
                collect(&mut self.txn, now, budget).unwrap();
                assert_eq!(check::findings(&mut self.txn), []);
            }
            Step::Expire(budget, is_full) => {
                RemnantAges::default().expire(&mut self.txn, 0, budget, is_full).unwrap();
                assert_eq!(check::findings(&mut self.txn), []);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// Whatever is stored, spliced, cut, copied, moved, removed and collected in between, each
    /// live chunk and leaf is there: `check` sees a missing one, and counts every reference.
    #[test]
    fn no_live_chunk_is_collected(steps in prop::collection::vec(step(), 1..80)) {
        let mut txn = store();
        let tin = Client::new(&mut txn, 1, OWNER);
        let mut scene = Scene { txn, tin, files: [None; 4], pack: 1000 };
        for step in steps {
            scene.take(step);
        }
        prop_assert_eq!(check::findings(&mut scene.txn), []);
        (0..4).for_each(|which| scene.unlink(which));
        RemnantAges::default().expire(&mut scene.txn, 0, usize::MAX, true).unwrap();
        collect_all(&mut scene.txn, u64::MAX);
        prop_assert!(packs(&mut scene.txn).unwrap().is_empty());
    }
}
