//! A repair leaves nothing to be found but what cannot be rebuilt, and loses no file's bytes.

use proptest::prelude::*;

use super::check::{altered, findings, lived_in, may_go};
use super::*;
use crate::namespace::tests::model::op;
use crate::nouns::Kind;
use crate::upkeep::check::{Counts, Damage, Finding};
use crate::upkeep::repair::{FOUND, Repairer, Unreadable, rehearse, repair};

/// Hears what is done, and knows the places of all chunks.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) repaired: Vec<(Finding, &'static str)>,
    pub(crate) lost: Vec<Finding>,
    chunks: BTreeMap<Fingerprint, ChunkPlace>,
}

impl Heard {
    /// Who knows what is in the packs of `txn`.
    fn of(txn: &MapTxn) -> Heard {
        let chunks = txn.0.iter().filter_map(|(key, value)| dump::chunk(key, value));
        let chunks = chunks.map(|(fingerprint, row)| (fingerprint, row.place)).collect();
        Heard { chunks, ..Heard::default() }
    }
}

impl Repairer for Heard {
    fn repaired(&mut self, finding: &Finding, how: &'static str) {
        self.repaired.push((finding.clone(), how));
    }
    fn lost(&mut self, finding: &Finding) {
        self.lost.push(finding.clone());
    }
    fn damaged(&mut self) -> Unreadable {
        Unreadable::new()
    }
    fn progress(&mut self, _: &Counts) {}
    fn find_chunk(&mut self, fingerprint: &Fingerprint) -> Option<ChunkPlace> {
        self.chunks.get(fingerprint).copied()
    }
}

/// Extents and inodes of files: what a repair may move and may not lose.
fn bytes(txn: &MapTxn) -> Vec<(Vec<u8>, Vec<u8>)> {
    let extents = keys::all_extents(VOLUME);
    let rows = txn.0.iter().filter(|(key, _)| key.starts_with(&extents));
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Repairs `damaged`; what it calls lost is what a check still finds, a rehearsal says the same
/// and changes nothing, and a second repair finds nothing to do.
pub(crate) fn repaired(whole: &MapTxn, damaged: &MapTxn) -> (MapTxn, Heard) {
    let (mut heard, mut rehearsed) = (Heard::of(whole), Heard::of(whole));
    let mut txn = damaged.clone();
    rehearse(&mut txn, VOLUME, &mut rehearsed).unwrap();
    assert!(txn == *damaged, "a rehearsal changed something");
    repair(&mut txn, VOLUME, &mut heard).unwrap();
    assert_eq!(heard.repaired, rehearsed.repaired);
    assert_eq!(heard.lost, rehearsed.lost);
    let mut left = findings(&mut txn);
    heard.lost.sort_by_key(|finding| format!("{finding:?}"));
    left.sort_by_key(|finding| format!("{finding:?}"));
    assert_eq!(left, heard.lost, "after {:?}", heard.repaired);
    let (before, mut again) = (txn.clone(), Heard::of(whole));
    repair(&mut txn, VOLUME, &mut again).unwrap();
    assert_eq!(again.repaired, []);
    assert!(txn == before);
    (txn, heard)
}

/// Rows without which nobody can say what was there.
fn is_irreplaceable(key: &[u8]) -> bool {
    key == keys::volume(VOLUME)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_row_that_is_gone_is_rebuilt_as_far_as_it_can_be(
        ops in prop::collection::vec(op(), 0..30),
    ) {
        let txn = lived_in(ops);
        for key in txn.0.keys().filter(|key| !may_go(&txn, key) && !is_irreplaceable(key)) {
            let mut damaged = txn.clone();
            damaged.0.remove(key);
            let (fixed, heard) = repaired(&txn, &damaged);
            let is_leaf = key.starts_with(&keys::leaves(VOLUME));
            let is_lost = |lost: &Finding| is_leaf && matches!(lost.damage, Damage::NoLeaf { .. });
            prop_assert!(heard.lost.iter().all(is_lost), "without {key:?}: {:?}", heard.lost);
            prop_assert!(bytes(&fixed) == bytes(&damaged), "without {key:?}");
        }
    }

    #[test]
    fn a_row_that_says_something_else_is_put_right(ops in prop::collection::vec(op(), 0..30)) {
        let txn = lived_in(ops);
        let inodes: Vec<Ino> = txn.0.keys().filter(|key| key.starts_with(&keys::inodes(VOLUME)))
            .filter_map(|key| keys::inode_part(key)).map(|(ino, _)| ino).collect();
        for key in txn.0.keys() {
            for damaged in altered(&txn, key, &inodes) {
                let (fixed, heard) = repaired(&txn, &damaged);
                let is_lost = |finding: &Finding| matches!(
                    finding.damage,
                    Damage::Row { .. } | Damage::Overlap { .. } | Damage::InlineLength { .. }
                        | Damage::NoChunk { .. } | Damage::ChunkLength { .. } | Damage::Target
                        | Damage::NoLeaf { .. } | Damage::LeafLength { .. }
                        | Damage::LeafName { .. }
                        | Damage::ExtentsOfKind
                );
                prop_assert!(heard.lost.iter().all(is_lost), "{key:?}: {:?}", heard.lost);
                prop_assert!(bytes(&fixed) == bytes(&damaged), "{key:?}");
            }
        }
    }

    #[test]
    fn torn_rows_are_kept_or_rebuilt(ops in prop::collection::vec(op(), 0..30)) {
        let txn = lived_in(ops);
        for (key, value) in &txn.0 {
            let Some((_, torn)) = value.split_last() else { continue };
            if is_irreplaceable(key) || *key == keys::next_volume() {
                continue;
            }
            let mut damaged = txn.clone();
            damaged.0.insert(key.clone(), torn.to_vec());
            let (_, heard) = repaired(&txn, &damaged);
            // What is lost is the row itself, or what only it said.
            prop_assert!(heard.lost.len() <= 3, "{key:?}: {:?}", heard.lost);
        }
    }
}

/// What lost its inode is made anew under its name, with everything below it, what lost its name
/// is found by its number, and bytes that are nowhere are lost and said so.
#[test]
fn what_lost_its_place_is_found() {
    let mut txn = lived_in(Vec::new());
    let dir = named(&mut txn, Ino::ROOT, "dir").unwrap();
    let below = named(&mut txn, dir, "below").unwrap();
    let file = named(&mut txn, below, "file").unwrap();
    let whole = txn.clone();
    txn.remove(&keys::inode(VOLUME, dir)).unwrap();
    txn.remove(&keys::inode(VOLUME, file)).unwrap();
    let (mut txn, _) = repaired(&whole, &txn);
    assert_eq!(named(&mut txn, Ino::ROOT, "dir"), Some(dir));
    assert_eq!(named(&mut txn, dir, "second"), Some(file));
    assert_eq!(named(&mut txn, below, "file"), Some(file));
    assert_eq!((attr(&mut txn, file).kind, attr(&mut txn, file).nlink), (Kind::File, 3));
    assert_eq!(named(&mut txn, Ino::ROOT, FOUND), None);
    txn.remove(&keys::dentry(VOLUME, dir, b"below")).unwrap();
    let (mut txn, _) = repaired(&whole, &txn);
    let found = named(&mut txn, Ino::ROOT, FOUND).unwrap();
    assert_eq!(named(&mut txn, found, &below.to_string()), Some(below));

    let mut nowhere = whole.clone();
    let mut heard = Heard::default();
    nowhere.0.retain(|key, value| dump::chunk(key, value).is_none());
    repair(&mut nowhere, VOLUME, &mut heard).unwrap();
    assert!(heard.lost.iter().all(|lost| lost.ino == Some(file)));
    assert!(heard.lost.iter().any(|lost| matches!(lost.damage, Damage::NoChunk { .. })));
}

/// A volume without its own row cannot be repaired: nobody knows its identity.
#[test]
fn a_volume_without_its_row_stays_as_it_is() {
    use crate::upkeep::repair::Unrepaired;
    let mut txn = lived_in(Vec::new());
    txn.remove(&keys::volume(VOLUME)).unwrap();
    let before = txn.clone();
    let unrepaired = repair(&mut txn, VOLUME, &mut Heard::default());
    assert_eq!(unrepaired, Err(Unrepaired::NoVolume));
    assert!(txn == before);
}

/// A volume that lost its counters gives no version that it has given before, to whatever else
/// is repaired in the same round.
#[test]
fn no_version_is_given_twice() {
    let mut txn = lived_in(Vec::new());
    let versions = |txn: &MapTxn| -> BTreeMap<Ino, crate::nouns::Version> {
        let inodes = txn.0.iter().filter(|(key, _)| key.starts_with(&keys::inodes(VOLUME)));
        let rows = inodes.map(|(_, value)| postcard::from_bytes::<rows::InodeRow>(value).unwrap());
        rows.map(|row| (row.attr.ino, row.attr.change)).collect()
    };
    let before = versions(&txn);
    let last = *before.values().max().unwrap();
    let dir = named(&mut txn, Ino::ROOT, "dir").unwrap();
    let whole = txn.clone();
    txn.remove(&keys::volume_tally(VOLUME)).unwrap();
    txn.remove(&keys::dentry(VOLUME, Ino::ROOT, b"dir")).unwrap();
    let (mut txn, _) = repaired(&whole, &txn);
    let after = versions(&txn);
    assert!(after[&dir] > last, "{:?} after {last:?}", after[&dir]);
    for (ino, version) in after {
        assert!(version > last || before.get(&ino) == Some(&version), "{ino}: {version:?}");
    }
    assert!(!is_unused(&mut txn, VOLUME).unwrap());
}

/// Rows that nothing else says anything about are read too: what cannot be one is found and put
/// right.
#[test]
fn rows_beside_the_tree_are_put_right() {
    let txn = lived_in(Vec::new());
    let (grave, ragged) = (keys::graves(VOLUME), keys::ragged_of(VOLUME));
    let first = |table: &[u8]| txn.0.keys().find(|key| key.starts_with(table)).unwrap().clone();
    for key in [first(&grave), first(&ragged)] {
        let mut damaged = txn.clone();
        damaged.0.insert(key.clone(), vec![1]);
        let (fixed, heard) = repaired(&txn, &damaged);
        assert_eq!((heard.repaired.len(), heard.lost), (1, Vec::new()));
        assert_eq!(fixed.0.get(&key), key.starts_with(&grave).then_some(&Vec::new()));
    }

    let mut damaged = txn.clone();
    put_row(&mut damaged, &keys::volume_name("stray"), &VolumeId(9)).unwrap();
    damaged.remove(&keys::client(ClientId([1; 16]))).unwrap();
    let (fixed, heard) = repaired(&txn, &damaged);
    let damages: Vec<_> = heard.repaired.iter().map(|(finding, _)| &finding.damage).collect();
    assert!(damages.contains(&&Damage::StrayName { name: "stray".to_owned() }), "{damages:?}");
    assert!(damages.contains(&&Damage::Nobody { client: ClientId([1; 16]) }), "{damages:?}");
    let memories = keys::memories();
    assert!(!fixed.0.keys().any(|key| memories.iter().any(|table| key.starts_with(table))));
}

/// A file with an extent that cannot be read was as it was for ever; now it can be overwritten,
/// and until then its bytes are lost, and not zeros.
#[test]
fn an_extent_that_cannot_be_read_can_be_overwritten() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let file = tin.file(&mut txn, Ino::ROOT, "file");
    let written = whole(file, version(&mut txn, file), &[1; 8000]);
    tin.apply(&mut txn, written);
    let added = splice(file, version(&mut txn, file), 8000, &[2; 8000], 16_000);
    tin.apply(&mut txn, added);
    let contents = Contents { volume: VOLUME, ino: file, generation: 0 };
    let mut damaged = txn.clone();
    damaged.0.insert(keys::extent(contents, 16_000), vec![]);
    let (mut txn, heard) = repaired(&txn, &damaged);
    let lost = |finding: &Finding| matches!(finding.damage, Damage::NoChunk { end: 16_000, .. });
    assert!(heard.lost.iter().all(lost) && heard.lost.len() == 1, "{:?}", heard.lost);
    assert_eq!(attr(&mut txn, file).allocated, 16_000);
    let over = splice(file, version(&mut txn, file), 8000, &[3; 8000], 16_000);
    let over = tin.stamp(over);
    let outcome = tin.send_unchecked(&mut txn, &over);
    assert!(matches!(outcome, Ok(ApplyResult::Outcome(Outcome::Done { .. }))), "{outcome:?}");
    assert_eq!(content(&mut txn, file), [vec![1; 8000], vec![3; 8000]].concat());
    assert_eq!(findings(&mut txn), []);
}
