//! The rules on SQLite are equivalent to the rules on a map: outcomes, reasons of refusal, and
//! every row. The tests of `segue-core` compare the results on a map with a model.

use proptest::prelude::*;
use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::namespace::{
    Admits, ApplyResult, ChunkPlace, Context, DamagedChunks, Fault, MapStore, MetaSnapshot,
    MetaTxn, Rights, apply, arrived, bind, create_volume, grant, lease,
};
use segue_core::nouns::{
    Base, NewNode, Piece, PieceBytes, Record, RenameMode, SetAttr, Stamped, Store as Stored,
};
use segue_core::nouns::{
    Caller, ClientId, Fingerprint, Ino, Name, Role, Timestamp, Version, VolumeId,
};
use segue_core::upkeep::collect::collect;

use super::Store;

const VOLUME: VolumeId = VolumeId(1);
const CLIENT: ClientId = ClientId([1; 16]);

/// What is done next; numbers choose among few names and inodes, so that they meet.
#[derive(Clone, Debug)]
enum Step {
    Create(u64, u8, u8),
    Link(u64, u64, u8),
    Unlink(u64, u8, u64, bool),
    Rmdir(u64, u8, u64),
    Rename(u64, u8, u64, u64, u8, u8),
    Mode(u64, u32),
    Xattr(u64, u8, bool),
    Store(u64, u64, Vec<(u16, u8)>, bool),
    Release(u64),
    Clone(u64, u64, u64),
    Collect(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (ino, name) = (|| 0u64..14, || 0u8..5);
    let pieces = || prop::collection::vec((0u16..9000, any::<u8>()), 0..5);
    prop_oneof![
        4 => (ino(), name(), 0u8..3).prop_map(|(p, n, k)| Step::Create(p, n, k)),
        1 => (ino(), ino(), name()).prop_map(|(i, p, n)| Step::Link(i, p, n)),
        1 => (ino(), name(), ino(), any::<bool>())
            .prop_map(|(p, n, i, o)| Step::Unlink(p, n, i, o)),
        1 => (ino(), name(), ino()).prop_map(|(p, n, i)| Step::Rmdir(p, n, i)),
        2 => (ino(), name(), ino(), ino(), name(), 0u8..3)
            .prop_map(|(fp, f, i, tp, t, m)| Step::Rename(fp, f, i, tp, t, m)),
        1 => (ino(), 0u32..0o10000).prop_map(|(i, m)| Step::Mode(i, m)),
        1 => (ino(), name(), any::<bool>()).prop_map(|(i, n, s)| Step::Xattr(i, n, s)),
        4 => (ino(), 0u64..60, pieces(), any::<bool>())
            .prop_map(|(i, v, p, w)| Step::Store(i, v, p, w)),
        1 => ino().prop_map(Step::Release),
        1 => (ino(), ino(), 0u64..60).prop_map(|(i, f, v)| Step::Clone(i, f, v)),
        1 => (0usize..20).prop_map(Step::Collect),
    ]
}

/// The inode that a number means: the root, or one of the client's first.
fn inode(number: u64) -> Ino {
    if number == 0 { Ino::ROOT } else { Ino((1 << 20) + number) }
}

fn name(number: u8) -> Name {
    Name::new(format!("name-{number}")).unwrap()
}

fn record(step: &Step) -> Option<Record> {
    Some(match step {
        Step::Create(parent, called, kind) => {
            let node = match kind {
                0 => NewNode::File,
                1 => NewNode::Directory,
                _ => NewNode::Symlink(b"to".to_vec()),
            };
            let (ino, name) = (inode(u64::from(*called) * 3 + u64::from(*kind) + 1), name(*called));
            Record::Create { parent: inode(*parent), name, ino, node, mode: 0o755, uid: 0, gid: 0 }
        }
        Step::Link(ino, parent, called) => {
            Record::Link { ino: inode(*ino), parent: inode(*parent), name: name(*called) }
        }
        Step::Unlink(parent, called, ino, open) => {
            let (parent, name) = (inode(*parent), name(*called));
            Record::Unlink { parent, name, ino: inode(*ino), open: *open }
        }
        Step::Rmdir(parent, called, ino) => {
            Record::Rmdir { parent: inode(*parent), name: name(*called), ino: inode(*ino) }
        }
        Step::Rename(from, called, ino, to, new, mode) => Record::Rename {
            from_parent: inode(*from),
            from_name: name(*called),
            ino: inode(*ino),
            to_parent: inode(*to),
            to_name: name(*new),
            mode: match mode {
                0 => RenameMode::NoReplace,
                1 => RenameMode::Replace(None),
                _ => RenameMode::Exchange(inode(u64::from(*new) + 1)),
            },
            open: false,
        },
        Step::Mode(ino, mode) => {
            let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
            Record::SetAttr { ino: inode(*ino), set }
        }
        Step::Xattr(ino, called, true) => {
            let (name, value) = (format!("user.{called}").into_bytes(), vec![*called; 40]);
            Record::SetXattr { ino: inode(*ino), name, value }
        }
        Step::Xattr(ino, called, false) => {
            Record::RemoveXattr { ino: inode(*ino), name: format!("user.{called}").into_bytes() }
        }
        Step::Store(ino, version, parts, whole) => stored(inode(*ino), *version, parts, *whole),
        Step::Release(ino) => Record::Release { ino: inode(*ino) },
        Step::Clone(ino, from, counter) => {
            let version = Version { epoch: 1, counter: *counter };
            let base = Base::Version(version);
            Record::Clone { ino: inode(*ino), base, from: inode(*from), version }
        }
        Step::Collect(_) => return None,
    })
}

fn stored(ino: Ino, counter: u64, parts: &[(u16, u8)], whole: bool) -> Record {
    let (mut offset, mut pieces) = (0, Vec::new());
    for (gap, seed) in parts {
        offset += u64::from(*gap);
        let bytes = match seed % 3 {
            0 => PieceBytes::Inline(vec![*seed; 700]),
            1 => PieceBytes::Hole { len: 5_000 },
            _ => PieceBytes::Chunk { fingerprint: Fingerprint([*seed; 32]), len: 3_000 },
        };
        let piece = Piece { offset, bytes };
        offset += piece.len();
        pieces.push(piece);
    }
    let base = Base::Version(Version { epoch: 1, counter });
    Record::Store(Stored { ino, base, cut: None, size: offset, pieces, mtime: None, whole })
}

/// Does one step on a store.
fn carry_out<T: MetaTxn>(
    txn: &mut T,
    seq: u64,
    step: &Step,
) -> Result<Option<ApplyResult>, Fault<T::Error>> {
    let Some(record) = record(step) else {
        if let Step::Collect(budget) = step {
            collect(txn, 1, *budget)?;
        }
        return Ok(None);
    };
    if let Record::Store(store) = &record {
        for piece in &store.pieces {
            let PieceBytes::Chunk { fingerprint, len } = &piece.bytes else { continue };
            let place =
                ChunkPlace { pack: 1, offset: 64, stored_len: 9, raw_len: *len, compressed: true };
            arrived(txn, (VOLUME, fingerprint), place, None, lease(0))?;
        }
    }
    let context = Context {
        is_shared: true,
        volume: VOLUME,
        client: CLIENT,
        incarnation: 1,
        host: "tin",
        rights: Rights { role: Role::Writer, no_root_squash: false },
        proven: &|_| true,
        admits: Admits::All,
        damaged: &DamagedChunks::new(0),
        awaited: &Default::default(),
    };
    let time = Timestamp { secs: 1_795_250_399, nanos: 0 };
    let stamped =
        Stamped { seq, time, caller: Caller::default(), operation: None, known: None, record };
    apply(txn, &context, &stamped, &[7; 32]).map(Some)
}

fn begin<T: MetaTxn>(txn: &mut T) -> Result<(), Fault<T::Error>> {
    create_volume(txn, "home", [7; 16], Timestamp::default())?.unwrap();
    bind(txn, CLIENT, "identity", VOLUME, 1)?.unwrap();
    grant(txn, CLIENT)?.unwrap();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_rules_come_to_the_same_on_sqlite_as_on_a_map(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::make(&dir.path().join("meta.db")).unwrap();
        let mut map = MapStore::default();
        begin(&mut map).unwrap();
        store.write_blocking(|txn| begin(txn)).unwrap();
        let there = steps.clone();
        let found = store.write_blocking(move |txn| {
            let done = (1..).zip(&there).map(|(seq, step)| carry_out(txn, seq, step));
            done.collect::<Result<Vec<_>, _>>()
        });
        let here = (1..).zip(&steps).map(|(seq, step)| carry_out(&mut map, seq, step));
        let expected: Vec<_> = here.map(Result::unwrap).collect();
        prop_assert_eq!(found.unwrap(), expected);
        let rows = store.read_blocking(|kv| kv.range(&[], &[SERVER_TAGS], usize::MAX));
        prop_assert_eq!(rows.unwrap().unwrap(), map.0.into_iter().collect::<Vec<_>>());
    }
}
