//! The two lanes of the update log end in the tree that the log says, whatever arrives when.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::cache::ContainerId;
use crate::modlog::{After, Change, DataChange, Fit, INLINE_MAX, Lane, Logged, Queue};
use crate::types::{Kind, Time};

/// What somebody does; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Create(Index, u8, bool),
    Write(Index, u8, bool),
    Remove(Index, u8),
    Rename(Index, u8, Index, u8),
    Link(Index, Index, u8),
    Chmod(Index, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, name) = (any::<Index>, || 0..4_u8);
    prop_oneof![
        3 => (at(), name(), any::<bool>()).prop_map(|(d, n, dir)| Op::Create(d, n, dir)),
        4 => (at(), any::<u8>(), any::<bool>()).prop_map(|(f, byte, big)| Op::Write(f, byte, big)),
        2 => (at(), name()).prop_map(|(d, n)| Op::Remove(d, n)),
        3 => (at(), name(), at(), name()).prop_map(|(d, n, e, m)| Op::Rename(d, n, e, m)),
        1 => (at(), at(), name()).prop_map(|(f, d, n)| Op::Link(f, d, n)),
        1 => (at(), any::<bool>()).prop_map(|(i, on)| Op::Chmod(i, on)),
    ]
}

/// Somebody's work, done one thing after the other.
struct Work {
    txn: MapTxn,
    client: Client,
    /// Those that there are.
    inodes: Vec<(Ino, Kind)>,
    directories: BTreeSet<Ino>,
    /// The last change of the data of each.
    made_by: BTreeMap<Ino, u64>,
    log: Vec<(Logged, Stamped)>,
}

impl Work {
    fn new() -> Work {
        let mut txn = store();
        let client = Client::new(&mut txn, 1, OWNER);
        let inodes = vec![(Ino::ROOT, Kind::Directory)];
        let directories = BTreeSet::from([Ino::ROOT]);
        Work { txn, client, inodes, directories, made_by: BTreeMap::new(), log: Vec::new() }
    }

    fn any(&self, at: Index, kind: Option<Kind>) -> Option<(Ino, Kind)> {
        let of: Vec<_> = self
            .inodes
            .iter()
            .filter(|(_, other)| kind.is_none_or(|kind| kind == *other))
            .collect();
        (!of.is_empty()).then(|| **at.get(&of))
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.directories.contains(&ino)
    }

    fn do_one(&mut self, op: Op) {
        let name = |number: u8| format!("n{number}");
        let mut is_big = false;
        let directory = |work: &Work, at| work.any(at, Some(Kind::Directory)).unwrap().0;
        let record = match op {
            Op::Create(at, number, is_directory) => {
                let (parent, ino) = (directory(self, at), self.client.ino());
                // It would become a conflict copy.
                if named(&mut self.txn, parent, &name(number)).is_some() {
                    return;
                }
                let (node, kind) = match is_directory {
                    true => (NewNode::Directory, Kind::Directory),
                    false => (NewNode::File, Kind::File),
                };
                self.inodes.push((ino, kind));
                self.directories.extend(is_directory.then_some(ino));
                self.client.creation(parent, &name(number), ino, node)
            }
            Op::Write(at, byte, big) => {
                let Some((ino, _)) = self.any(at, Some(Kind::File)) else { return };
                let Some(base) = self.made_by.get(&ino) else { return };
                is_big = big;
                whole(ino, Base::Result(*base), &[byte; 3])
            }
            Op::Remove(at, number) => {
                let parent = directory(self, at);
                let Some(ino) = named(&mut self.txn, parent, &name(number)) else { return };
                let gone = name_of(&name(number));
                match self.is_directory(ino) {
                    true => Record::Rmdir { parent, name: gone, ino },
                    false => unlink(parent, &name(number), ino, false),
                }
            }
            Op::Rename(at, number, to, new) => {
                let (from, to) = (directory(self, at), directory(self, to));
                let Some(ino) = named(&mut self.txn, from, &name(number)) else { return };
                let other = named(&mut self.txn, to, &name(new)).filter(|other| *other != ino);
                let mode = RenameMode::Replace(other);
                rename((from, &name(number)), ino, (to, &name(new)), mode)
            }
            Op::Link(at, to, number) => {
                let Some((ino, _)) = self.any(at, Some(Kind::File)) else { return };
                let parent = directory(self, to);
                if named(&mut self.txn, parent, &name(number)).is_some() {
                    return;
                }
                Record::Link { ino, parent, name: name_of(&name(number)) }
            }
            Op::Chmod(at, on) => {
                let Some((ino, _)) = self.any(at, None) else { return };
                let mode = Some(if on { 0o700 } else { 0o750 });
                Record::SetAttr { ino, set: SetAttr { mode, ..SetAttr::default() } }
            }
        };
        self.log(record, is_big);
    }

    /// What comes to nothing is not logged.
    fn log(&mut self, record: Record, is_big: bool) {
        let stamped = self.client.stamp(record);
        let sent = self.client.send_unchecked(&mut self.txn, &stamped).unwrap();
        if !matches!(sent, ApplyResult::Outcome(Outcome::Done { .. })) {
            return;
        }
        let change = match &stamped.record {
            Record::Store(store) => {
                let bytes = if is_big { INLINE_MAX as u64 + 1 } else { 3 };
                Change::Data(DataChange {
                    ino: store.ino,
                    container: ContainerId::default(),
                    base: store.base,
                    cut: None,
                    size: store.size,
                    ranges: vec![0..bytes],
                    mtime: Timestamp::default(),
                })
            }
            record => Change::Record(record.clone()),
        };
        if let Record::Store(Store { ino, .. }) | Record::Create { ino, .. } = &stamped.record {
            self.made_by.insert(*ino, stamped.seq);
        }
        let txn = &mut self.txn;
        self.inodes.retain(|(ino, _)| read::getattr(txn, VOLUME, *ino).is_ok());
        let (seq, time, caller) = (stamped.seq, stamped.time, stamped.caller.clone());
        let after = After::Nothing;
        self.log.push((
            Logged { seq, time, caller, operation: None, after, known: None, change },
            stamped,
        ));
    }
}

/// Every name with what it means: kind, permissions, links and contents.
fn tree(txn: &mut MapTxn, directory: Ino, path: &str) -> Vec<(String, Kind, u32, u32, Vec<u8>)> {
    let mut all = Vec::new();
    for number in 0..4 {
        let path = format!("{path}/n{number}");
        let Some(ino) = named(txn, directory, &format!("n{number}")) else { continue };
        let Attr { kind, mode, nlink, .. } = attr(txn, ino);
        match kind {
            Kind::Directory => {
                all.push((path.clone(), kind, mode, nlink, Vec::new()));
                all.extend(tree(txn, ino, &path));
            }
            _ => all.push((path, kind, mode, nlink, content(txn, ino))),
        }
    }
    all
}

/// What stands before `seq` in the log and must have come before it by the rule's own words.
fn comes_before(log: &[(Logged, Stamped)], seq: u64) -> Vec<u64> {
    let (last, _) = log.iter().find(|(logged, _)| logged.seq == seq).unwrap();
    let ino = last.change.ino();
    let earlier = log.iter().take_while(|(logged, _)| logged.seq < seq);
    let is_before = |logged: &Logged| match (&logged.change, &last.change) {
        // A name comes before its data, and a directory before what is in it.
        (Change::Record(Record::Create { ino: made, .. }), Change::Record(record)) => {
            *made == ino || crate::cache::touched(record).inodes.contains(made)
        }
        (Change::Record(Record::Create { ino: made, .. }), Change::Data(_)) => *made == ino,
        // Contents come before what shows them, and before the next ones.
        (Change::Data(data), _) => data.ino == ino,
        _ => false,
    };
    earlier.filter(|(logged, _)| is_before(logged)).map(|(logged, _)| logged.seq).collect()
}

proptest! {
    #[test]
    fn lanes_end_in_the_tree_of_the_log(
        ops in prop::collection::vec(op(), 1..40),
        steps in prop::collection::vec((0..3_usize, 1..6_usize, 0..9_usize, 0..4_u8), 0..60),
    ) {
        let mut work = Work::new();
        ops.into_iter().for_each(|op| work.do_one(op));
        let (mut txn, mut queue) = (store(), Queue::default());
        let client = Client::new(&mut txn, 1, OWNER);
        for (logged, _) in &work.log {
            queue.push(logged.clone(), Time::default(), |ino| work.is_directory(ino));
        }
        let mut arrived = BTreeSet::new();
        let mut under_way: [Vec<Logged>; 3] = Default::default();
        let last = (0..3 * work.log.len() + 3).map(|n| (n % 3, 9, 0, 0));
        for (number, records, cut, fate) in steps.into_iter().chain(last) {
            let lane = Lane::ALL[number];
            if fate == 3 && let Some((logged, _)) = work.log.get(cut * records) {
                queue.raise(&BTreeSet::from([logged.seq]), &BTreeSet::new());
            }
            let batch = queue.batch_of(lane, records, 1 << 20, |_| Fit::Takes(1));
            batch.iter().for_each(|logged| queue.takes(logged.seq));
            // What the other lane sent may arrive before this one, or after it.
            let batch = match fate {
                1 => std::mem::replace(&mut under_way[number], batch),
                _ => batch,
            };
            let through = if fate == 2 { cut.min(batch.len()) } else { batch.len() };
            for (place, logged) in batch.iter().enumerate() {
                let (_, stamped) =
                    work.log.iter().find(|(other, _)| other.seq == logged.seq).unwrap();
                if place < through {
                    let sent = client.send_unchecked(&mut txn, stamped).unwrap();
                    let is_done = matches!(
                        &sent,
                        ApplyResult::Outcome(Outcome::Done { .. })
                            | ApplyResult::Repeated(Outcome::Done { .. })
                    );
                    prop_assert!(is_done, "{:?}: {sent:?}", logged);
                    arrived.insert(logged.seq);
                    for before in comes_before(&work.log, logged.seq) {
                        prop_assert!(arrived.contains(&before), "{before} before {}", logged.seq);
                    }
                    // An answer may be lost: then it is sent again.
                    if fate != 2 || place < through / 2 {
                        queue.settle(logged.seq);
                    }
                }
                queue.is_back(logged.seq);
            }
            if fate != 1 {
                for logged in std::mem::take(&mut under_way[number]) {
                    queue.is_back(logged.seq);
                }
            }
        }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(tree(&mut txn, Ino::ROOT, ""), tree(&mut work.txn, Ino::ROOT, ""));
    }
}
