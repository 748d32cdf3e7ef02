//! What came and is in no file counts, once, and no longer than it is kept.

use proptest::prelude::*;

use super::*;
use crate::namespace::arrivals::{admit, bytes};
use crate::upkeep::collect::collect;

const LIMIT: u64 = 1000;
/// With the hundredth that is taken over it.
const MOST: u64 = 1010;

fn limited() -> (MapTxn, Client) {
    let mut txn = store();
    let tin = Client::new(&mut txn, 1, OWNER);
    limit_volume(&mut txn, VOLUME, Limits { bytes: Some(LIMIT), inodes: None }).unwrap();
    (txn, tin)
}

fn waiting(txn: &mut MapTxn) -> u64 {
    assert_eq!(check::findings(txn), []);
    bytes(txn, VOLUME).unwrap()
}

fn takes(txn: &mut MapTxn, more: u64, files: &[Ino]) -> bool {
    admit(txn, VOLUME, more, brought_for(files)).unwrap().is_ok()
}

fn chunk_piece(offset: u64, bytes: &[u8]) -> Piece {
    let fingerprint = crate::chunk::fingerprint(bytes);
    Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len: bytes.len() as u32 } }
}

/// A store of all of a file.
fn pieces(txn: &mut MapTxn, ino: Ino, pieces: Vec<Piece>) -> Record {
    let size = pieces.iter().map(Piece::len).sum();
    let base = version(txn, ino);
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: true })
}

/// Proves S21.7.
#[test]
fn what_came_counts_until_it_is_in_a_file_or_gone() {
    let (mut txn, mut tin) = limited();
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let names = [[1; 300], [2; 300]].map(|bytes| arrive(&mut txn, &bytes));
    tin.proven.extend(names);
    assert_eq!(waiting(&mut txn), 600);
    assert!(takes(&mut txn, 410, &[]) && !takes(&mut txn, 411, &[]));
    let store = pieces(&mut txn, file, vec![chunk_piece(0, &[1; 300])]);
    assert!(matches!(tin.apply(&mut txn, store), Outcome::Done { .. }));
    assert_eq!(waiting(&mut txn), 300);
    assert!(takes(&mut txn, 410, &[]) && !takes(&mut txn, 411, &[]));
    // What the file holds is replaced by what comes for it; a file that is named twice is one.
    assert!(takes(&mut txn, 710, &[file]) && !takes(&mut txn, 711, &[file, file]));
    // What a file had is nobody's any more.
    let store = pieces(&mut txn, file, Vec::new());
    tin.apply(&mut txn, store);
    assert_eq!(waiting(&mut txn), 300);
    while collect(&mut txn, lease(NOW) + 1, 5).unwrap().rows > 0 {}
    assert_eq!(waiting(&mut txn), 0);
    limit_volume(&mut txn, VOLUME, Limits::default()).unwrap();
    assert!(takes(&mut txn, u64::MAX, &[]));
}

/// The store of a host goes to the conflict copy that it has. It was told to bring the chunks, and
/// they were refused, for ever.
/// Proves S21.7.
#[test]
fn what_a_conflict_copy_holds_is_replaced_too() {
    let (mut txn, mut tin) = limited();
    let mut other = Client::new(&mut txn, 2, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let names = [&[1; 300][..], &[2; 100]].map(|bytes| arrive(&mut txn, bytes));
    let mine = pieces(&mut txn, file, vec![chunk_piece(0, &[1; 300])]);
    let others = pieces(&mut txn, file, vec![chunk_piece(0, &[2; 100])]);
    for client in [&mut tin, &mut other] {
        client.proven.extend(names);
    }
    assert!(matches!(other.apply(&mut txn, others), Outcome::Done { .. }));
    assert!(matches!(tin.apply(&mut txn, mine), Outcome::Conflict { .. }));
    assert!(takes(&mut txn, 610, &[]) && !takes(&mut txn, 611, &[]));
    assert!(takes(&mut txn, 910, &[file]) && !takes(&mut txn, 911, &[file]), "one of the two");
}

/// df shows the room that files take.
/// Proves S21.7.
#[test]
fn what_came_is_no_part_of_the_space() {
    let (mut txn, _) = limited();
    let free = |txn: &mut MapTxn| space(txn, VOLUME, Ino::ROOT, (5_000, 5_000)).unwrap().free_bytes;
    assert_eq!(free(&mut txn), LIMIT);
    arrive(&mut txn, &[1; 600]);
    assert_eq!((waiting(&mut txn), free(&mut txn)), (600, LIMIT));
}

#[test]
fn a_leaf_counts_instead_of_its_chunks() {
    let (mut txn, mut tin) = limited();
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let part = (arrive(&mut txn, &[1; 300]), 300);
    let mut staged = |txn: &mut MapTxn, parts: &[(Fingerprint, u32)]| {
        let leaf = stage(txn, VOLUME, (parts, brought_for(&[file])), &|_, _| true, NOW).unwrap();
        tin.proven.extend(leaf.iter());
        leaf
    };
    let leaf = staged(&mut txn, &[part, part]).unwrap();
    assert_eq!(waiting(&mut txn), 600);
    let full = Err(NotStaged::Refused(Refusal::Quota));
    assert_eq!(staged(&mut txn, &[part, part, part]), full);
    assert_eq!(staged(&mut txn, &[part, part]), Ok(leaf));
    let bytes = PieceBytes::Leaf { leaf, len: 600 };
    let store = pieces(&mut txn, file, vec![Piece { offset: 0, bytes }]);
    assert!(matches!(tin.apply(&mut txn, store), Outcome::Done { .. }));
    assert_eq!(waiting(&mut txn), 0);
}

/// A host whose chunks are not taken sends the record without them, to hear whether it is
/// refused: if it is, what came for it goes at once, and not when its lease is over.
/// Proves S21.2, S21.8.
#[test]
fn a_record_without_its_chunks_is_refused_where_it_would_be_with_them() {
    let (mut txn, mut tin) = limited();
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let came = arrive(&mut txn, &[1; 800]);
    tin.proven.insert(came);
    let parts = |len| vec![chunk_piece(0, &[1; 800]), chunk_piece(800, &vec![2; len])];
    let fits = pieces(&mut txn, file, parts(210));
    let missing = crate::chunk::fingerprint(&[2; 210]);
    assert_eq!(tin.apply(&mut txn, fits), Outcome::Missing { chunks: vec![missing] });
    assert_eq!(waiting(&mut txn), 800);
    let over = pieces(&mut txn, file, parts(211));
    assert_eq!(tin.apply(&mut txn, over), refused(Refusal::Quota));
    assert_eq!(waiting(&mut txn), 0);
    while collect(&mut txn, NOW, 5).unwrap().rows > 0 {}
    assert_eq!(chunk(&mut txn, VOLUME, &came).unwrap(), None);
    // What others send counts too, as long as it is kept.
    arrive(&mut txn, &[3; 900]);
    let fits = pieces(&mut txn, file, vec![chunk_piece(0, &[1; 200])]);
    assert_eq!(tin.apply(&mut txn, fits), refused(Refusal::Quota));
    while collect(&mut txn, u64::MAX, 5).unwrap().rows > 0 {}
    let fits = pieces(&mut txn, file, vec![chunk_piece(0, &[1; 200])]);
    assert!(matches!(tin.apply(&mut txn, fits), Outcome::Missing { .. }));
}

/// A host whose chunks find no room on the disk sends the record without them, and hears that it is
/// refused: what came for it goes at once.
/// Proves S20.10.
#[test]
fn a_record_whose_chunks_find_no_room_is_refused() {
    let (mut txn, mut tin) = limited();
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let came = arrive(&mut txn, &[1; 400]);
    tin.proven.insert(came);
    let parts = [chunk_piece(0, &[1; 400]), chunk_piece(400, &[2; 100])];
    let store = pieces(&mut txn, file, parts.to_vec());
    assert!(matches!(tin.apply(&mut txn, store.clone()), Outcome::Missing { .. }));
    tin.admits = Admits::Metadata;
    assert_eq!(tin.apply(&mut txn, store), refused(Refusal::NoSpace));
    assert_eq!(waiting(&mut txn), 0);
    // What is here needs no room.
    let came = arrive(&mut txn, &[1; 400]);
    tin.proven.insert(came);
    let store = pieces(&mut txn, file, parts[..1].to_vec());
    assert!(matches!(tin.apply(&mut txn, store), Outcome::Done { .. }));
}

/// A file that gets these parts, some of its first ones in a leaf.
type Upload = (usize, Vec<u8>, usize);

fn upload() -> impl Strategy<Value = Upload> {
    (0usize..3, prop::collection::vec(0u8..9, 0..9), 0usize..5)
}

fn part(which: u8) -> Vec<u8> {
    vec![which + 1; 40 * usize::from(which) + 60]
}

/// Uploads as a host does, until the server takes no more; what the record then names.
fn send(txn: &mut MapTxn, tin: &mut Client, ino: Ino, (_, parts, in_leaf): &Upload) -> Vec<Piece> {
    let mut is_full = false;
    for which in parts {
        let bytes = part(*which);
        let name = crate::chunk::fingerprint(&bytes);
        let is_here = chunk(txn, VOLUME, &name).unwrap().is_some();
        is_full |= !is_here && !takes(txn, bytes.len() as u64, &[ino]);
        if !is_full {
            tin.proven.insert(arrive(txn, &bytes));
        }
    }
    let (run, rest) = parts.split_at((*in_leaf).min(parts.len()));
    let named = |which: &u8| (crate::chunk::fingerprint(&part(*which)), part(*which).len() as u32);
    let leaf: Vec<_> = run.iter().map(named).collect();
    let is_staged = !is_full && !run.is_empty();
    let staged = is_staged
        .then(|| stage(txn, VOLUME, (&leaf, brought_for(&[ino])), &|_, _| true, NOW).unwrap());
    let (mut pieces, mut offset) = (Vec::new(), 0);
    let mut single = rest;
    match staged {
        Some(Ok(leaf)) => {
            tin.proven.insert(leaf);
            let len = run.iter().map(|which| part(*which).len() as u64).sum();
            pieces.push(Piece { offset, bytes: PieceBytes::Leaf { leaf, len } });
            offset = len;
        }
        // What is not staged is named by itself.
        _ => single = parts,
    }
    for which in single {
        pieces.push(chunk_piece(offset, &part(*which)));
        offset += part(*which).len() as u64;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// An upload whose record fits is never refused for what it brought itself, one that does
    /// not fit always is, and leaves nothing that counts.
    /// Proves S21.8.
    #[test]
    fn what_fits_is_taken(uploads in prop::collection::vec(upload(), 1..20)) {
        let (mut txn, mut tin) = limited();
        let files = ["a", "b", "c"].map(|name| tin.file(&mut txn, Ino::ROOT, name));
        let mut sizes = [0; 3];
        for upload in uploads {
            let (which, parts, _) = &upload;
            let size: u64 = parts.iter().map(|which| part(*which).len() as u64).sum();
            let total = sizes.iter().sum::<u64>() - sizes[*which] + size;
            let pieces = send(&mut txn, &mut tin, files[*which], &upload);
            let record = self::pieces(&mut txn, files[*which], pieces);
            let outcome = tin.apply(&mut txn, record);
            if total <= MOST {
                prop_assert!(matches!(outcome, Outcome::Done { .. }), "{:?} {:?}", outcome, upload);
                sizes[*which] = size;
            } else {
                prop_assert_eq!(outcome, refused(Refusal::Quota), "{:?}", upload);
            }
            while collect(&mut txn, NOW, 9).unwrap().rows > 0 {}
            prop_assert_eq!(waiting(&mut txn), 0, "{:?}", upload);
        }
    }
}
