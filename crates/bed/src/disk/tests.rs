//! What the model promises, on recordings made by hand.

use std::collections::BTreeSet;

use segue_fuse::abi::ROOT;

use super::recording::{Fate, Op, Recording};
use super::tree::Tree;

const SEEDS: u64 = 300;
const DIR: u64 = 2;
const FILE: u64 = 3;

fn make(dir: u64, name: &str, node: u64) -> Op {
    let kind = if node == DIR { libc::S_IFDIR } else { libc::S_IFREG };
    Op::Make { dir, name: name.into(), node, mode: kind | 0o700 }
}

fn write(file: u64, offset: u64, byte: u8, len: usize) -> Op {
    Op::Write { file, offset, bytes: vec![byte; len].into() }
}

fn rename(from: (u64, &str), to: (u64, &str)) -> Op {
    Op::Rename { from: (from.0, from.1.into()), to: (to.0, to.1.into()) }
}

const SYNC: Op = Op::Sync { file: FILE };

/// A file `f` whose name is safe, and what happens to it then.
fn with_file(ops: impl IntoIterator<Item = Op>) -> Recording {
    let first = [make(ROOT, "f", FILE), Op::SyncNames { dir: ROOT }];
    Recording { ops: first.into_iter().chain(ops).collect() }
}

/// What `f` can be found to be at the end of `recording`, over all seeds.
fn found(recording: &Recording) -> BTreeSet<Vec<u8>> {
    let image = |seed| recording.image(recording.end(), Fate::Chance(seed));
    (0..SEEDS).map(|seed| image(seed).read("f").unwrap()).collect()
}

/// A file's bytes, one byte for each sector, all of which are of one kind.
fn by_sector(bytes: &[u8]) -> Vec<u8> {
    let sector = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
        sector[0]
    };
    bytes.chunks(512).map(sector).collect()
}

#[test]
fn what_was_synced_is_there_whatever_happens_next() {
    let recording = with_file([
        write(FILE, 0, 1, 3000),
        SYNC,
        write(FILE, 3000, 2, 3000),
        write(FILE, 512, 3, 512),
    ]);
    for bytes in found(&recording) {
        assert!(bytes.len() >= 3000, "{}", bytes.len());
        let kept = bytes[..512].iter().chain(&bytes[1024..3000]);
        assert!(kept.into_iter().all(|byte| *byte == 1));
    }
    let lost = recording.image(recording.end(), Fate::Lost);
    assert_eq!(lost.read("f").unwrap(), vec![1; 3000]);
}

#[test]
fn what_was_not_synced_can_vanish_and_can_stay() {
    let recording = with_file([write(FILE, 0, 1, 1024), SYNC, write(FILE, 0, 2, 1024)]);
    let found: BTreeSet<_> = found(&recording).iter().map(|bytes| by_sector(bytes)).collect();
    let all = [vec![1, 1], vec![1, 2], vec![2, 1], vec![2, 2]];
    assert_eq!(found, BTreeSet::from(all));
}

#[test]
fn a_write_is_torn_between_sectors_and_never_in_one() {
    let recording = with_file([write(FILE, 0, 1, 4096), SYNC, write(FILE, 0, 2, 4096)]);
    let torn = |bytes: &Vec<u8>| bytes.contains(&1) && bytes.contains(&2);
    let found: BTreeSet<_> = found(&recording).iter().map(|bytes| by_sector(bytes)).collect();
    assert!(found.iter().filter(|bytes| torn(bytes)).count() > 10, "{found:?}");
}

/// Two writes into one sector reach it in their order.
#[test]
fn a_sector_is_never_newer_in_one_place_than_in_another() {
    let recording = with_file([write(FILE, 0, 1, 256), write(FILE, 256, 2, 256)]);
    for bytes in found(&recording) {
        let has = (bytes.contains(&1), bytes.contains(&2));
        assert_ne!(has, (false, true), "{bytes:?}");
    }
}

/// A later write can be there without an earlier one, which then reads as zeros.
#[test]
fn writes_reach_the_disk_in_any_order() {
    let recording = with_file([write(FILE, 0, 1, 512), write(FILE, 512, 2, 512)]);
    let found: BTreeSet<_> = found(&recording).iter().map(|bytes| by_sector(bytes)).collect();
    let all = [vec![], vec![0], vec![1], vec![0, 0], vec![0, 2], vec![1, 0], vec![1, 2]];
    assert_eq!(found, BTreeSet::from(all));
}

/// Blocks that a file gave up are another's until the journal says so: nothing of the new is
/// found in the old file.
#[test]
fn what_replaces_the_bytes_of_a_file_is_there_only_with_its_cutting_off() {
    let recording = with_file([
        write(FILE, 0, 1, 1024),
        SYNC,
        Op::Resize { file: FILE, size: 0 },
        write(FILE, 0, 2, 512),
    ]);
    let found: BTreeSet<_> = found(&recording).iter().map(|bytes| by_sector(bytes)).collect();
    assert_eq!(found, BTreeSet::from([vec![1, 1], vec![], vec![0], vec![2]]));
}

#[test]
fn a_hole_is_there_or_is_not() {
    let recording = with_file([
        write(FILE, 0, 1, 1536),
        SYNC,
        Op::Punch { file: FILE, hole: 512..1024 },
        write(FILE, 512, 2, 512),
    ]);
    let found: BTreeSet<_> = found(&recording).iter().map(|bytes| by_sector(bytes)).collect();
    assert_eq!(found, BTreeSet::from([vec![1, 1, 1], vec![1, 0, 1], vec![1, 2, 1]]));
}

/// The names in the root and in its directory `d`, over all seeds.
fn names_found(ops: &[Op]) -> BTreeSet<String> {
    let first = [make(ROOT, "d", DIR), Op::SyncNames { dir: ROOT }];
    let recording = Recording { ops: first.iter().chain(ops).cloned().collect() };
    let all = ["a", "b", "d/a", "d/b"];
    let names = |seed| {
        let image = recording.image(recording.end(), Fate::Chance(seed));
        all.into_iter().filter(|name| image.read(name).is_some()).collect::<Vec<_>>().join(" ")
    };
    (0..SEEDS).map(names).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn names_come_with_the_sync_of_their_directory_and_not_before() {
    let made = [make(DIR, "a", FILE), write(FILE, 0, 1, 9), SYNC, Op::SyncNames { dir: ROOT }];
    assert_eq!(names_found(&made), set(&["", "d/a"]));
    let synced = [&made[..], &[Op::SyncNames { dir: DIR }, make(DIR, "b", 4)]].concat();
    assert_eq!(names_found(&synced), set(&["d/a", "d/a d/b"]));
}

#[test]
fn names_do_not_keep_the_order_of_each_other() {
    let made = [make(DIR, "a", FILE), make(DIR, "b", 4)];
    assert_eq!(names_found(&made), set(&["", "d/a", "d/b", "d/a d/b"]));
}

#[test]
fn a_rename_is_there_at_both_ends_or_at_none() {
    let moved =
        [make(ROOT, "a", FILE), Op::SyncNames { dir: ROOT }, rename((ROOT, "a"), (DIR, "a"))];
    assert_eq!(names_found(&moved), set(&["a", "d/a"]));
    // Whichever directory is synced.
    for dir in [ROOT, DIR] {
        let synced = [&moved[..], &[Op::SyncNames { dir }]].concat();
        assert_eq!(names_found(&synced), set(&["d/a"]));
    }
}

/// What is synced at one end of a rename brings along what it was renamed from.
#[test]
fn a_name_comes_with_what_led_to_it() {
    let replaced = [
        make(ROOT, "a", FILE),
        make(DIR, "b", 4),
        rename((ROOT, "a"), (DIR, "b")),
        Op::SyncNames { dir: DIR },
    ];
    assert_eq!(names_found(&replaced), set(&["d/b"]));
}

#[test]
fn a_lie_saves_nothing() {
    let mut recording = with_file([write(FILE, 0, 1, 512), SYNC]);
    let end = recording.end();
    let lost = |recording: &Recording| recording.image(end, Fate::Lost).read("f");
    assert_eq!(lost(&recording).unwrap().len(), 512);
    assert_eq!(recording.syncs(0..end), [1, 3]);
    recording.lie(3);
    assert_eq!(lost(&recording).unwrap().len(), 0);
    assert_eq!(recording.syncs(0..end), [1]);
    recording.lie(1);
    assert_eq!(lost(&recording), None);
}

/// Kept, everything is as the programs had it; and each seed has its image.
#[test]
fn an_image_is_made_by_its_seed() {
    let recording = with_file([
        write(FILE, 100, 1, 5000),
        SYNC,
        write(FILE, 3000, 2, 5000),
        Op::Resize { file: FILE, size: 6000 },
        rename((ROOT, "f"), (ROOT, "g")),
        make(ROOT, "f", 4),
        Op::Remove { dir: ROOT, name: "g".into() },
    ]);
    let mut tree = Tree::default();
    recording.ops.iter().for_each(|op| tree.apply(op));
    let end = recording.end();
    let kept = recording.image(end, Fate::Kept);
    assert_eq!(kept.read("f"), Some(Vec::new()));
    assert_eq!((kept.read("g"), tree.names(ROOT).unwrap().len()), (None, 1));
    let image = |seed| recording.image(end, Fate::Chance(seed));
    assert!((0..50).all(|seed| image(seed) == image(seed)));
    assert!((0..50).any(|seed| image(seed) != image(0)));
}
