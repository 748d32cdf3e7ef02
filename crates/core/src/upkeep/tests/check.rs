//! A check finds nothing in what the rules made, and something in what they did not.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::chunk::fingerprint;
use crate::namespace::rows::InodeRow;
use crate::namespace::tests::brought_for;
use crate::namespace::tests::model::{self, Model, op};
use crate::nouns::Kind;
use crate::upkeep::check::{self, Counts, Damage, Finding, Halt, Visitor};

#[derive(Default)]
struct Heard(Vec<Finding>);

impl Visitor for Heard {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }
    fn progress(&mut self, _: &Counts) -> bool {
        true
    }
}

/// What is wrong; the same whether further names are counted in one round or in many.
pub(crate) fn findings(txn: &mut MapTxn) -> Vec<Finding> {
    findings_of(txn, VOLUME)
}

/// The same of another volume.
pub(crate) fn findings_of(txn: &mut MapTxn, volume: VolumeId) -> Vec<Finding> {
    let found = |txn: &mut MapTxn, links_max| {
        let mut heard = Heard::default();
        check::check_within(txn, volume, &mut heard, links_max).unwrap();
        check::shared(txn, &mut heard).unwrap();
        heard.0
    };
    let mut all = found(txn, check::LINKS_MAX);
    let mut rounds = found(txn, 2);
    all.sort_by_key(|finding| format!("{finding:?}"));
    rounds.sort_by_key(|finding| format!("{finding:?}"));
    assert_eq!(all, rounds);
    all
}

fn damages(txn: &mut MapTxn) -> Vec<Damage> {
    findings(txn).into_iter().map(|finding| finding.damage).collect()
}

/// A store of the chunks `parts` at their offsets.
fn chunks(txn: &mut MapTxn, client: &mut Client, ino: Ino, parts: &[(u64, &[u8])]) {
    let mut pieces = Vec::new();
    for (offset, bytes) in parts {
        let (fingerprint, len) = (arrive(txn, bytes), bytes.len() as u32);
        client.proven.insert(fingerprint);
        pieces.push(Piece { offset: *offset, bytes: PieceBytes::Chunk { fingerprint, len } });
    }
    let (size, base) = (1 << 30, version(txn, ino));
    let store = Store { ino, base, cut: None, size, pieces, mtime: None, whole: false };
    let outcome = client.apply(txn, Record::Store(store));
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

/// One of everything: directories, links whose first name went, a file in chunks with a hole,
/// one with two names, symbolic link, attribute, one that is open without a name, a quota.
fn furnish(txn: &mut MapTxn, tin: &mut Client) {
    let dir = tin.directory(txn, Ino::ROOT, "dir");
    let below = tin.directory(txn, dir, "below");
    let file = tin.file(txn, below, "file");
    chunks(txn, tin, file, &[(0, &[1; 9000]), (100_000, &[2; 9000]), (200_000, &[1; 9000])]);
    let cut = splice(file, version(txn, file), 104_000, b"spliced", 1 << 30);
    tin.apply(txn, cut);
    for name in ["second", "third"] {
        tin.apply(txn, Record::Link { ino: file, parent: dir, name: name_of(name) });
    }
    let parts = [arrive(txn, &[3; 5000]), arrive(txn, &[4; 5000])].map(|name| (name, 5000));
    tin.proven.extend(parts.map(|(name, _)| name));
    let proven = |_: &Fingerprint, _: &ChunkPlace| true;
    let leaf = stage(txn, VOLUME, (&parts, brought_for(&[])), &proven, NOW).unwrap().unwrap();
    tin.proven.insert(leaf);
    let bytes = PieceBytes::Leaf { leaf, len: 10_000 };
    let (base, pieces) = (version(txn, file), vec![Piece { offset: 1 << 20, bytes }]);
    let size = 1 << 30;
    let store = Store { ino: file, base, cut: None, size, pieces, mtime: None, whole: false };
    tin.apply(txn, Record::Store(store));
    let tear = splice(file, version(txn, file), (1 << 20) + 100, b"torn apart", 1 << 30);
    tin.apply(txn, tear);
    // Things that nothing refers to yet, and a content that is not collected yet.
    arrive(txn, &[5; 5000]);
    stage(txn, VOLUME, (&parts[..1], brought_for(&[])), &proven, NOW).unwrap().unwrap();
    let many = tin.file(txn, dir, "many");
    let pieces = (0..300).map(|at| Piece { offset: at * 9, bytes: PieceBytes::Inline(vec![1]) });
    let (base, size) = (version(txn, many), 3000);
    let pieces = pieces.collect();
    let store = Store { ino: many, base, cut: None, size, pieces, mtime: None, whole: false };
    tin.apply(txn, Record::Store(store));
    let written = whole(many, version(txn, many), b"new");
    tin.apply(txn, written);
    let moved = tin.file(txn, dir, "first");
    tin.apply(txn, Record::Link { ino: moved, parent: below, name: name_of("left") });
    tin.apply(txn, unlink(dir, "first", moved, false));
    tin.make(txn, dir, "symlink", NewNode::Symlink(b"below/file".to_vec()));
    tin.awaited_file(txn, dir, "awaited");
    let open = tin.file(txn, dir, "open");
    let written = whole(open, version(txn, open), b"still written");
    tin.apply(txn, written);
    tin.apply(txn, unlink(dir, "open", open, true));
    let value = b"value".to_vec();
    tin.apply(txn, Record::SetXattr { ino: file, name: b"user.name".to_vec(), value });
    let limited = tin.directory(txn, Ino::ROOT, "limited");
    let counted = tin.file(txn, limited, "counted");
    let written = whole(counted, version(txn, counted), b"counted");
    tin.apply(txn, written);
    let limits = Limits { bytes: Some(100), inodes: None };
    limit_directory(txn, VOLUME, &[name_of("limited")], limits).unwrap().unwrap();
}

/// A store after random operations, with one of everything beside.
pub(crate) fn lived_in(ops: Vec<model::Op>) -> MapTxn {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let (mut model, mut all) = (Model::new(), vec![Ino::ROOT]);
    for op in ops {
        let record = model::record(&mut tin, &mut txn, &model, &mut all, op);
        model.apply(&record);
        if let Outcome::Conflict { parent, name, copy, .. } = tin.apply(&mut txn, record) {
            model.conflicted(&mut txn, parent, &name, copy);
        }
    }
    furnish(&mut txn, &mut tin);
    txn
}

/// Rows without which a volume is another one, though each of them alone makes sense: what an
/// attribute was, and which records were applied.
pub(crate) fn may_go(txn: &MapTxn, key: &[u8]) -> bool {
    let client = ClientId([1; 16]);
    key.starts_with(&keys::all_xattrs(VOLUME))
        || key.starts_with(&keys::outcomes(client))
        || key == keys::client(client)
        || key.starts_with(&keys::all_ragged())
        || key.starts_with(&keys::all_hard_links(VOLUME))
        || key.starts_with(&keys::all_awaited(VOLUME))
        || is_buried(txn, key)
        || key == keys::next_volume()
}

/// An extent of contents that collection is about to remove, or will after a while.
fn is_buried(txn: &MapTxn, key: &[u8]) -> bool {
    let Some((ino, rest)) = keys::inode_part(key) else { return false };
    let Some((generation, _)) = keys::extent_part(rest) else { return false };
    let is_extent = key.starts_with(&keys::all_extents(VOLUME));
    let grave = keys::grave(Contents { volume: VOLUME, ino, generation });
    let remnant = keys::remnant(VOLUME, ino);
    is_extent && (txn.0.contains_key(&grave) || txn.0.contains_key(&remnant))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_row_that_is_gone_or_torn_is_found(ops in prop::collection::vec(op(), 0..40)) {
        let txn = lived_in(ops);
        for (key, value) in &txn.0 {
            let mut damaged = txn.clone();
            damaged.0.remove(key);
            let is_found = |txn: &mut MapTxn| !findings(txn).is_empty();
            prop_assert!(may_go(&txn, key) || is_found(&mut damaged), "without {key:?}");
            if let Some((_, torn)) = value.split_last()
                && !key.starts_with(&keys::all_xattrs(VOLUME))
                && *key != keys::next_volume()
            {
                damaged.0.insert(key.clone(), torn.to_vec());
                prop_assert_ne!(findings(&mut damaged), [], "{:?} torn", key);
            }
        }
    }

    #[test]
    fn any_row_that_says_something_else_is_found(ops in prop::collection::vec(op(), 0..40)) {
        let txn = lived_in(ops);
        let inodes: Vec<Ino> = txn.0.keys().filter(|key| key.starts_with(&keys::inodes(VOLUME)))
            .filter_map(|key| keys::inode_part(key)).map(|(ino, _)| ino).collect();
        for key in txn.0.keys().filter(|key| !is_buried(&txn, key)) {
            for damaged in altered(&txn, key, &inodes) {
                let found = findings(&mut damaged.clone());
                prop_assert_ne!(found, [], "{:?} is {:?}", key, damaged.0.get(key));
            }
        }
    }
}

/// The store with the row under `key` changed in each way that the rules never would.
pub(crate) fn altered(txn: &MapTxn, key: &[u8], inodes: &[Ino]) -> Vec<MapTxn> {
    let in_table = |table: Vec<u8>| key.starts_with(&table);
    if in_table(keys::inodes(VOLUME)) {
        let row: InodeRow = row(txn, key);
        let mut rows = Vec::new();
        let mut alter = |change: &dyn Fn(&mut InodeRow)| {
            let mut row = row.clone();
            change(&mut row);
            rows.push(row);
        };
        alter(&|row| row.attr.nlink += 1);
        alter(&|row| row.attr.allocated += 1);
        alter(&|row| row.attr.ino.0 += 1);
        alter(&|row| row.attr.change.counter = u64::MAX);
        alter(&|row| row.attr.data_version.epoch += 1);
        alter(&|row| row.target = Some(Vec::new()));
        alter(&|row| row.attr.quota = row.attr.quota.xor(Some(Ino(u64::MAX))));
        if row.attr.allocated > 0 {
            alter(&|row| row.attr.size = 0);
            alter(&|row| row.attr.kind = Kind::Fifo);
        }
        if row.attr.kind == Kind::Directory {
            alter(&|row| row.attr.kind = Kind::File);
            alter(&|row| row.parent = Ino(row.parent.0 + 1));
        }
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    if in_table(keys::dentries(VOLUME)) {
        let named: Ino = row(txn, key);
        let others = inodes.iter().filter(|ino| **ino != named).chain(&[Ino(u64::MAX)]);
        return others.map(|ino| with(txn, key, ino)).collect();
    }
    if in_table(keys::all_extents(VOLUME)) {
        let Extent { len, source } = row(txn, key);
        let nowhere = Source::Chunk { fingerprint: Fingerprint([0; 32]), start: 0 };
        if is_buried(txn, key) {
            return Vec::new();
        }
        let mut rows = vec![
            Extent { len: len - 1, source: source.clone() },
            Extent { len: len + 1, source: source.clone() },
            Extent { len, source: nowhere },
        ];
        if let Source::Chunk { fingerprint, .. } = source {
            rows.push(Extent { len, source: Source::Chunk { fingerprint, start: u32::MAX } });
        }
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    if key == keys::volume_tally(VOLUME) {
        let tally: Tally = row(txn, key);
        let rows = [
            Tally { inodes: tally.inodes + 1, ..tally },
            Tally { allocated: tally.allocated + 1, ..tally },
            Tally { commits: 0, ..tally },
            Tally { own_end: u64::MAX, ..tally },
        ];
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    if key == keys::arrived(VOLUME) {
        let bytes: u64 = row(txn, key);
        return vec![with(txn, key, &(bytes + 1)), with(txn, key, &(bytes - 1))];
    }
    if key == keys::volume_name("home") {
        return vec![with(txn, key, &VolumeId(2))];
    }
    altered_contents(txn, key)
}

/// The same, where it is about a chunk, a leaf or a pack.
fn altered_contents(txn: &MapTxn, key: &[u8]) -> Vec<MapTxn> {
    let in_table = |table: Vec<u8>| key.starts_with(&table);
    if in_table(keys::chunks(VOLUME)) {
        let chunk: ChunkRow = row(txn, key);
        let place = chunk.place;
        let mut rows = vec![
            ChunkRow { place: ChunkPlace { stored_len: place.stored_len + 1, ..place }, ..chunk },
            ChunkRow { refs: chunk.refs + 1, ..chunk },
        ];
        if chunk.refs > 0 {
            rows.push(ChunkRow { place: ChunkPlace { compressed: true, ..place }, ..chunk });
            rows.push(ChunkRow { refs: 0, ..chunk });
        } else {
            rows.push(ChunkRow { due: chunk.due + 1, ..chunk });
        }
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    if in_table(keys::leaves(VOLUME)) {
        let leaf: LeafRow = row(txn, key);
        let rows = [
            LeafRow { refs: leaf.refs + 1, ..leaf.clone() },
            LeafRow { len: leaf.len - 1, ..leaf.clone() },
            LeafRow { extents: leaf.extents[1..].to_vec(), ..leaf },
        ];
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    if in_table(keys::quotas(VOLUME)) {
        let QuotaRow { limits, usage } = row(txn, key);
        let usages = [
            Usage { bytes: usage.bytes + 1, ..usage },
            Usage { inodes: usage.inodes + 1, ..usage },
        ];
        return usages.map(|usage| with(txn, key, &QuotaRow { limits, usage })).into();
    }
    if in_table(keys::packs()) {
        let pack: PackRow = row(txn, key);
        let rows = [
            PackRow { chunks: pack.chunks + 1, ..pack },
            PackRow { live_bytes: pack.live_bytes + 1, ..pack },
        ];
        return rows.iter().map(|row| with(txn, key, row)).collect();
    }
    Vec::new()
}

fn row<R: DeserializeOwned>(txn: &MapTxn, key: &[u8]) -> R {
    postcard::from_bytes(&txn.0[key]).unwrap()
}

fn with(txn: &MapTxn, key: &[u8], row: &impl Serialize) -> MapTxn {
    let mut txn = txn.clone();
    put_row(&mut txn, key, row).unwrap();
    txn
}

/// Two directories, each in the other, with right counts everywhere: only the way up shows it.
#[test]
fn a_ring_is_found_once() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let first = tin.directory(&mut txn, Ino::ROOT, "first");
    let second = tin.directory(&mut txn, first, "second");
    let third = tin.directory(&mut txn, second, "third");
    tin.file(&mut txn, third, "file");
    txn.remove(&keys::dentry(VOLUME, Ino::ROOT, b"first")).unwrap();
    put_row(&mut txn, &keys::dentry(VOLUME, third, b"first"), &first).unwrap();
    for (ino, change) in [(first, 0), (third, 1), (Ino::ROOT, -1)] {
        let key = keys::inode(VOLUME, ino);
        let mut row: InodeRow = row(&txn, &key);
        row.attr.nlink = row.attr.nlink.saturating_add_signed(change);
        if ino == first {
            row.parent = third;
        }
        put_row(&mut txn, &key, &row).unwrap();
    }
    let found = findings(&mut txn);
    let ring = Finding { ino: Some(first), path: None, entry: None, damage: Damage::Ring };
    let [Finding { ino, damage, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((ino, damage), (&ring.ino, &ring.damage));
}

/// What is found says where: by path if names lead there, else as far as they do.
#[test]
fn findings_say_where() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    furnish(&mut txn, &mut tin);
    let dir = named(&mut txn, Ino::ROOT, "dir").unwrap();
    let below = named(&mut txn, dir, "below").unwrap();
    let file = named(&mut txn, below, "file").unwrap();

    let mut damaged = txn.clone();
    damaged.remove(&keys::chunk(VOLUME, &fingerprint(&[1; 9000]))).unwrap();
    let mut found = findings(&mut damaged);
    found.retain(|finding| finding.ino.is_some());
    assert_eq!(found.len(), 2, "each place of the chunk: {found:?}");
    assert!(found.iter().all(|finding| finding.path.as_deref() == Some("/dir/below/file")));

    let mut damaged = txn.clone();
    damaged.remove(&keys::inode(VOLUME, dir)).unwrap();
    let path = check::path(&mut damaged, VOLUME, file).unwrap();
    assert_eq!(path, Some(format!("[inode {dir}]/below/file")));
    assert!(damages(&mut damaged).contains(&Damage::NoDirectory));
    assert!(damages(&mut damaged).contains(&Damage::NameOfNothing));

    let left = named(&mut txn, below, "left").unwrap();
    let path = check::path(&mut txn, VOLUME, left);
    assert_eq!(path, Ok(Some("/dir/below/left".to_owned())), "its first name is gone");
    assert_eq!(check::path(&mut txn, VOLUME, Ino::ROOT), Ok(Some("/".to_owned())));
}

/// Pages of chunks are all chunks, each with its file and place in it.
#[test]
fn every_use_of_a_chunk_is_listed() {
    let mut txn = store();
    let mut tin = Client::new(&mut txn, 1, OWNER);
    let mut expected = Vec::new();
    for number in 0..3_u64 {
        let ino = tin.file(&mut txn, Ino::ROOT, &format!("file-{number}"));
        let bytes: Vec<_> = (0..150).map(|at| vec![at as u8 + 1; 10]).collect();
        let parts: Vec<_> = (0..150).map(|at| (at * 20, &bytes[at as usize][..])).collect();
        chunks(&mut txn, &mut tin, ino, &parts);
        expected.extend(parts.iter().map(|(at, bytes)| (ino, *at, fingerprint(bytes))));
    }
    let (mut found, mut from) = (Vec::new(), Some(Vec::new()));
    while let Some(at) = from {
        let (uses, next) = check::chunk_uses(&mut txn, VOLUME, &at).unwrap();
        found.extend(uses.iter().map(|used| (used.ino, used.offset, used.fingerprint)));
        from = next;
    }
    assert_eq!(found, expected);
}

/// Who wants no more is not told more.
#[test]
fn a_check_ends_when_nobody_listens() {
    struct Deaf;
    impl Visitor for Deaf {
        fn finding(&mut self, finding: Finding) {
            panic!("{finding:?}");
        }
        fn progress(&mut self, _: &Counts) -> bool {
            false
        }
    }
    let mut txn = store();
    for number in 0..3_000_u64 {
        txn.put(&keys::xattr(VOLUME, Ino::ROOT, &number.to_be_bytes()), b"").unwrap();
    }
    assert_eq!(check::check(&mut txn, VOLUME, &mut Deaf), Err(Halt::Stopped));
}
