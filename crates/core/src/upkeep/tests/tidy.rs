//! Putting a file in order changes how it is kept and nothing else.

use proptest::prelude::*;

use super::*;
use crate::chunk::Cutter;
use crate::upkeep::tidy::{self, Untidy};
use crate::wire::Fetch;

/// All bytes of a file, with what chunks there are.
fn bytes(txn: &mut MapTxn, ino: Ino, chunks: &BTreeMap<Fingerprint, Vec<u8>>) -> Vec<u8> {
    let attr = attr(txn, ino);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < attr.size {
        let (offset, len) = (bytes.len() as u64, attr.size);
        let ask = Fetch { ino, version: attr.data_version, offset, len };
        for segment in read::contents(txn, VOLUME, &ask).unwrap() {
            let len = segment.len as usize;
            match segment.source {
                None => bytes.resize(bytes.len() + len, 0),
                Some(Source::Inline(inline)) => bytes.extend_from_slice(&inline),
                Some(Source::Chunk { fingerprint, start }) => {
                    bytes.extend_from_slice(&chunks[&fingerprint][start as usize..][..len]);
                }
                Some(Source::Leaf { .. }) => panic!("a leaf"),
            }
        }
    }
    bytes
}

/// As the server's shell does it. Returns how often something was done.
fn put_in_order(txn: &mut MapTxn, ino: Ino, chunks: &mut BTreeMap<Fingerprint, Vec<u8>>) -> usize {
    let (key, attr) = ((VOLUME, ino), attr(txn, ino));
    let (mut from, mut done) = (0, 0);
    while let Some(next) = tidy::untidy(txn, key, from).unwrap() {
        done += 1;
        match next {
            Untidy::Chunks(range) => {
                from = range.end;
                assert!(tidy::gather(txn, key, attr.data_version, range).unwrap());
            }
            Untidy::Fragments(range) => {
                from = range.end;
                let all = bytes(txn, ino, chunks);
                let run = &all[range.start as usize..range.end as usize];
                let mut extents = Vec::new();
                for part in Cutter::for_file(attr.size).cut(run) {
                    let fingerprint = arrive(txn, part);
                    chunks.insert(fingerprint, part.to_vec());
                    let source = Source::Chunk { fingerprint, start: 0 };
                    extents.push(Extent { len: part.len() as u64, source });
                }
                assert!(tidy::replace(txn, key, attr.data_version, range, extents).unwrap());
            }
        }
    }
    tidy::clear_ragged(txn, key, Some(attr.data_version)).unwrap();
    done
}

fn rows(txn: &MapTxn) -> usize {
    txn.0.keys().filter(|key| key.starts_with(&keys::all_extents(VOLUME))).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_file_in_order_has_the_same_bytes(
        writes in prop::collection::vec((0u64..400_000, 1usize..8192, any::<u8>()), 1..120),
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let ino = tin.file(&mut txn, Ino::ROOT, "f");
        for (offset, len, seed) in writes {
            let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(seed)).collect();
            let size = attr(&mut txn, ino).size.max(offset + len as u64);
            let write = splice(ino, version(&mut txn, ino), offset, &bytes, size);
            tin.apply(&mut txn, write);
        }
        let (mut chunks, before) = (BTreeMap::new(), attr(&mut txn, ino));
        let expected = bytes(&mut txn, ino, &chunks);
        put_in_order(&mut txn, ino, &mut chunks);
        prop_assert_eq!(bytes(&mut txn, ino, &chunks), expected);
        prop_assert_eq!(attr(&mut txn, ino), before);
        prop_assert_eq!(check::findings(&mut txn), []);
        prop_assert_eq!(put_in_order(&mut txn, ino, &mut chunks), 0, "once is enough");
        prop_assert!(!txn.0.contains_key(&keys::ragged(VOLUME, ino)));
    }
}

/// A log that grew line by line becomes a few chunks; what is written meanwhile is not touched.
#[test]
fn what_grew_in_small_steps_is_read_in_large_ones() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.file(&mut txn, Ino::ROOT, "log");
    let line: Vec<u8> = (0..5_000_u32).map(|at| (at % 251) as u8).collect();
    for at in 0..100 {
        let write = splice(ino, version(&mut txn, ino), at * 5_000, &line, (at + 1) * 5_000);
        tin.apply(&mut txn, write);
    }
    assert!(rows(&txn) >= 50 && txn.0.contains_key(&keys::ragged(VOLUME, ino)));
    let Base::Version(old) = version(&mut txn, ino) else { panic!() };
    let write = splice(ino, version(&mut txn, ino), 0, b"new", 500_000);
    tin.apply(&mut txn, write);
    let nothing = tidy::replace(&mut txn, (VOLUME, ino), old, 0..10_000, Vec::new()).unwrap();
    assert!(!nothing, "of a version that is gone");
    tidy::clear_ragged(&mut txn, (VOLUME, ino), Some(old)).unwrap();
    assert!(txn.0.contains_key(&keys::ragged(VOLUME, ino)));
    assert!(put_in_order(&mut txn, ino, &mut BTreeMap::new()) > 0);
    assert!(rows(&txn) < 20, "{}", rows(&txn));
}

/// Many chunks one after the other become leaves.
#[test]
fn a_thousand_chunks_become_a_leaf() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let ino = tin.file(&mut txn, Ino::ROOT, "large");
    let (mut pieces, mut chunks) = (Vec::new(), BTreeMap::new());
    for at in 0..2_100_u64 {
        let bytes = vec![(at % 255) as u8 + 1; 20_000 + at as usize];
        let fingerprint = arrive(&mut txn, &bytes);
        tin.proven.insert(fingerprint);
        let (offset, len) = (pieces.iter().map(Piece::len).sum(), bytes.len() as u32);
        pieces.push(Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len } });
        chunks.insert(fingerprint, bytes);
    }
    let size = pieces.iter().map(Piece::len).sum();
    let base = version(&mut txn, ino);
    let store = Store { ino, base, cut: None, size, pieces, mtime: None, whole: true };
    let stamped = tin.stamp(Record::Store(store));
    assert!(matches!(tin.send(&mut txn, &stamped), ApplyResult::Outcome(Outcome::Done { .. })));
    let expected = bytes(&mut txn, ino, &chunks);
    assert_eq!(put_in_order(&mut txn, ino, &mut chunks), 2);
    assert_eq!(rows(&txn), 2_100 - 2 * LEAF_EXTENTS_MAX + 2);
    assert!(bytes(&mut txn, ino, &chunks) == expected);
    assert_eq!(check::findings(&mut txn), []);
}
