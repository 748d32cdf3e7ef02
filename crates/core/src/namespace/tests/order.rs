//! The two lanes of the update log end in the tree that the log says, whatever arrives when.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::host::log::{After, Change, DataChange, Fit, Lane, Logged, Queue};
use crate::nouns::{ContainerId, INLINE_MAX, Kind, Time};

/// What somebody does; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Create(Index, u8, bool),
    Write(Index, u8, bool),
    Remove(Index, u8),
    Rename(Index, u8, Index, u8),
    Link(Index, Index, u8),
    Chmod(Index, bool),
    /// fsync(2): what comes later follows what was done to it.
    Sync(Index),
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
        1 => at().prop_map(Op::Sync),
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
    /// What each process group, a session of its own, has synced.
    synced: BTreeMap<u32, BTreeSet<u64>>,
    log: Vec<(Logged, Stamped)>,
}

impl Work {
    fn new() -> Work {
        let mut txn = store();
        let client = Client::new(&mut txn, 1, OWNER);
        let inodes = vec![(Ino::ROOT, Kind::Directory)];
        let directories = BTreeSet::from([Ino::ROOT]);
        let (made_by, synced) = (BTreeMap::new(), BTreeMap::new());
        Work { txn, client, inodes, directories, made_by, synced, log: Vec::new() }
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

    /// A process group does it.
    fn do_one(&mut self, op: Op, group: u32) {
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
            Op::Sync(at) => {
                let Some((ino, _)) = self.any(at, None) else { return };
                let mut changes = self.log.iter().rev().map(|(logged, _)| logged);
                let last = changes.find(|logged| logged.change.inodes().contains(&ino));
                self.synced.entry(group).or_default().extend(last.map(|logged| logged.seq));
                return;
            }
        };
        self.log(record, is_big, group);
    }

    /// What comes to nothing is not logged.
    fn log(&mut self, record: Record, is_big: bool, group: u32) {
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
        let (seq, time) = (stamped.seq, stamped.time);
        let caller = Caller { process_group: group, ..stamped.caller.clone() };
        let after = After::these(self.synced.get(&group).into_iter().flatten().copied());
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

/// What the server gets of somebody's work, change by change.
struct Sent<'a> {
    work: &'a Work,
    queue: Queue,
    txn: MapTxn,
    client: Client,
    /// So much of the log is in the queue.
    pushed: usize,
    /// What is sent of each change.
    records: BTreeMap<u64, Stamped>,
    arrived: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    /// What goes instead of each one that became part of an earlier one, or was replaced by a later
    /// one.
    instead: BTreeMap<u64, u64>,
}

impl<'a> Sent<'a> {
    fn new(work: &'a Work) -> Sent<'a> {
        let mut txn = store();
        let client = Client::new(&mut txn, 1, OWNER);
        let records = work.log.iter().map(|(_, stamped)| (stamped.seq, stamped.clone())).collect();
        let (pushed, queue) = (0, Queue::default());
        let (arrived, cancelled, instead) = Default::default();
        Sent { work, queue, txn, client, pushed, records, arrived, cancelled, instead }
    }

    /// What goes to the server for change `seq`.
    fn stands_for(&self, mut seq: u64) -> u64 {
        while let Some(instead) = self.instead.get(&seq) {
            seq = *instead;
        }
        seq
    }

    /// The next change is logged, and with `spares` what need not be sent because of it is not.
    fn push(&mut self, spares: bool) {
        let Some((logged, stamped)) = self.work.log.get(self.pushed) else { return };
        self.pushed += 1;
        let after = match &logged.after {
            // A sync covers what stands for what it covered.
            After::These(seqs) => After::these(seqs.iter().map(|seq| self.stands_for(*seq))),
            after => after.clone(),
        };
        let logged = &Logged { after, ..logged.clone() };
        if let (true, Change::Data(data), Record::Store(store)) =
            (spares, &logged.change, &stamped.record)
            && let Some(into) = self.queue.to_amend(data.ino, &logged.caller, &logged.after)
        {
            self.queue.amend(into, logged.time, data).unwrap();
            self.instead.insert(logged.seq, into);
            let before = self.records.get_mut(&into).unwrap();
            if let Record::Store(before) = &mut before.record {
                *before = Store { base: before.base, ..store.clone() };
            }
            return;
        }
        self.queue.push(logged.clone(), Time::default(), |ino| self.work.is_directory(ino));
        match &logged.change {
            Change::Record(Record::Unlink { ino, .. } | Record::Rmdir { ino, .. }) if spares => {
                let out = self.queue.cancel_out(*ino).unwrap_or_default();
                out.iter().for_each(|seq| drop(self.queue.cancel(*seq)));
                self.cancelled.extend(out);
            }
            Change::Record(Record::Rename { .. }) if spares => {
                let Some((seqs, by)) = self.queue.superseded(logged.seq) else { return };
                self.queue.supersede(&by);
                if let (Change::Record(record), Some(sent)) =
                    (&by.change, self.records.get_mut(&by.seq))
                {
                    sent.record = record.clone();
                }
                self.instead.extend(seqs.into_iter().map(|seq| (seq, by.seq)));
                let seqs = self.instead.iter().filter(|(_, instead)| **instead == by.seq);
                seqs.for_each(|(seq, _)| drop(self.queue.cancel(*seq)));
            }
            _ => {}
        }
    }

    /// What change `seq` is sent with: what became part of an earlier change is that one's.
    fn what_is_sent(&self, seq: u64) -> Stamped {
        let mut stamped = self.records[&seq].clone();
        if let Record::Store(Store { base: Base::Result(base), .. }) = &mut stamped.record {
            *base = self.stands_for(*base);
        }
        stamped
    }

    fn ino(&self, seq: u64) -> Option<Ino> {
        let (logged, _) = self.work.log.iter().find(|(logged, _)| logged.seq == seq)?;
        Some(logged.change.ino())
    }

    /// Change `seq` comes to the server, after all that must have come before it.
    fn arrives(&mut self, seq: u64) -> Result<(), TestCaseError> {
        let stamped = self.what_is_sent(seq);
        let sent = self.client.send_unchecked(&mut self.txn, &stamped).unwrap();
        let is_done = matches!(
            &sent,
            ApplyResult::Outcome(Outcome::Done { .. })
                | ApplyResult::Repeated(Outcome::Done { .. })
        );
        prop_assert!(is_done, "{:?}: {sent:?}", stamped);
        self.arrived.insert(seq);
        let parts = self.instead.keys().filter(|part| self.stands_for(**part) == seq).copied();
        let mut todo: Vec<u64> = parts.chain([seq]).collect();
        let mut seen = BTreeSet::new();
        while let Some(of) = todo.pop() {
            for before in comes_before(&self.work.log, of) {
                let before = self.stands_for(before);
                if before > seq && self.ino(before) == self.ino(seq) {
                    // What is renamed is found under the name of what it replaces with that only.
                    continue;
                }
                match self.cancelled.contains(&before) {
                    // What it followed comes before what followed it.
                    true if seen.insert(before) => todo.push(before),
                    true => {}
                    false => prop_assert!(self.arrived.contains(&before), "{before} before {seq}"),
                }
            }
        }
        Ok(())
    }
}

fn gives_or_takes_a_name(change: &Change) -> bool {
    matches!(
        change,
        Change::Record(
            Record::Link { .. }
                | Record::Unlink { .. }
                | Record::Rmdir { .. }
                | Record::Rename { .. }
        )
    )
}

/// What stands before `seq` in the log and must have come before it by the rule's own words.
fn comes_before(log: &[(Logged, Stamped)], seq: u64) -> Vec<u64> {
    let (last, _) = log.iter().find(|(logged, _)| logged.seq == seq).unwrap();
    let ino = last.change.ino();
    let earlier = log.iter().take_while(|(logged, _)| logged.seq < seq);
    let is_data = matches!(last.change, Change::Data(_));
    let is_before = |logged: &Logged| {
        // Within a process group names are given and taken in order, and data come behind them.
        let is_of_group = logged.caller.process_group == last.caller.process_group;
        let is_name = gives_or_takes_a_name(&logged.change);
        if is_of_group && is_name && (is_data || gives_or_takes_a_name(&last.change)) {
            return true;
        }
        match (&logged.change, &last.change) {
            // A name comes before its data, and a directory before what is in it.
            (Change::Record(Record::Create { ino: made, .. }), Change::Record(record)) => {
                *made == ino || crate::nouns::touched(record).inodes.contains(made)
            }
            (Change::Record(Record::Create { ino: made, .. }), Change::Data(_)) => *made == ino,
            // Contents come before what shows them, and before the next ones.
            (Change::Data(data), _) => data.ino == ino,
            _ => false,
        }
    };
    let before = earlier.filter(|(logged, _)| is_before(logged)).map(|(logged, _)| logged.seq);
    // And what a sync covered before what its session did after it.
    let synced = match &last.after {
        After::These(seqs) => seqs.clone(),
        After::Nothing | After::Everything => Vec::new(),
    };
    before.chain(synced).collect()
}

proptest! {
    /// Also where some of it is not sent, for it was undone, saved again or replaced.
    #[test]
    fn lanes_end_in_the_tree_of_the_log(
        ops in prop::collection::vec((op(), 0..3_u32), 1..40),
        steps in prop::collection::vec((0..4_usize, 1..6_usize, 0..9_usize, 0..5_u8), 0..60),
        spares in any::<bool>(),
    ) {
        let mut work = Work::new();
        ops.into_iter().for_each(|(op, group)| work.do_one(op, group));
        let mut sent = Sent::new(&work);
        let mut under_way: [Vec<Logged>; 4] = Default::default();
        let last = (0..4 * work.log.len() + 4).map(|n| (n % 4, 9, 9, 0));
        for (step, (number, records, cut, fate)) in steps.into_iter().chain(last).enumerate() {
            // At first much is logged and little is sent.
            let new = if step < 8 { cut } else { records };
            (0..new).for_each(|_| sent.push(spares));
            let lane = Lane::ALL[number];
            let some = work.log.get(cut * records).map(|(logged, _)| BTreeSet::from([logged.seq]));
            match (fate, some) {
                (3, Some(some)) => drop(sent.queue.raise(&some, &BTreeSet::new())),
                (4, Some(some)) => sent.queue.pull(&some, &BTreeSet::new()),
                _ => {}
            }
            let batch = sent.queue.batch_of(lane, records, 1 << 20, |_| Fit::Takes(1));
            batch.iter().for_each(|logged| sent.queue.take(logged.seq));
            // What the other lane sent may arrive before this one, or after it.
            let batch = match fate {
                1 => std::mem::replace(&mut under_way[number], batch),
                _ => batch,
            };
            let through = if fate == 2 { cut.min(batch.len()) } else { batch.len() };
            for (place, logged) in batch.iter().enumerate() {
                if place < through {
                    sent.queue.mark_sending(logged.seq, Time::default());
                    sent.arrives(logged.seq)?;
                    // An answer may be lost: then it is sent again.
                    if fate != 2 || place < through / 2 {
                        sent.queue.settle(logged.seq);
                    }
                }
                sent.queue.put_back(logged.seq);
            }
            if fate != 1 {
                for logged in std::mem::take(&mut under_way[number]) {
                    sent.queue.put_back(logged.seq);
                }
            }
        }
        prop_assert_eq!(sent.pushed, work.log.len());
        prop_assert!(sent.queue.is_empty());
        prop_assert_eq!(tree(&mut sent.txn, Ino::ROOT, ""), tree(&mut work.txn, Ino::ROOT, ""));
    }
}
