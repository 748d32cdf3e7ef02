//! What the next process makes of a disk, wherever the one before ended, itself recovering or not.

use super::calls::NOW;
use super::*;
use crate::host::cache::{FileNote, NodeNote};
use crate::host::call::Call;
use crate::host::log::{Redo, SUM_BLOCK, latest_told};
use crate::host::{LeftDisk, LeftLog};
use crate::nouns::RangeSet;
use crate::wire::History;

const MANY: u32 = 1000;

/// A disk in memory. It fails after so many changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Remains {
    log: Vec<Entry>,
    containers: BTreeMap<(Ino, ContainerId), Vec<u8>>,
    files: BTreeMap<Ino, FileNote>,
    noted: usize,
    reserved: u64,
    is_doubted: bool,
    lives: u32,
    preserved: Vec<u64>,
    durable: usize,
}

impl Remains {
    fn change(&mut self) -> Result<(), ()> {
        self.lives = self.lives.checked_sub(1).ok_or(())?;
        Ok(())
    }

    fn recover(&mut self, lives: u32, lost_power: bool) -> Result<Host, ()> {
        self.lives = lives;
        let mut next = core();
        next.number_containers(u64::from(lives) << 32);
        let log = LeftLog { entries: self.log.clone(), first_unsynced: self.durable, lost_power };
        next.recover(self, log, Time::default())?;
        Ok(next)
    }
}

impl LeftDisk for Remains {
    type Error = ();

    fn noted(&mut self, _: usize) -> Result<usize, ()> {
        Ok(self.noted)
    }

    fn node(&self, _: Ino) -> Option<NodeNote> {
        None
    }

    fn name(&self, _: Ino, _: &Name) -> Option<Option<Ino>> {
        None
    }

    fn file(&self, ino: Ino) -> Option<FileNote> {
        self.files.get(&ino).cloned()
    }

    fn has_container(&self, ino: Ino, container: ContainerId) -> bool {
        self.containers.contains_key(&(ino, container))
    }

    /// The checksum of a block is its first byte.
    fn has_written(
        &self,
        key: (Ino, ContainerId),
        range: &Range<u64>,
        sums: &[u32],
        later: &RangeSet,
    ) -> Result<bool, ()> {
        let Some(bytes) = self.containers.get(&key) else { return Ok(false) };
        let at = |at: u64| bytes.get(usize::try_from(at).unwrap()).copied().unwrap_or_default();
        let mut blocks = (range.start..range.end).step_by(usize::try_from(SUM_BLOCK).unwrap());
        Ok(blocks.all(|block| later.contains(block..block + 1) || u32::from(at(block)) == sums[0]))
    }

    fn has_preserved(&self, _: u64, _: &Range<u64>, _: &[u32], _: &RangeSet) -> Result<bool, ()> {
        Ok(true)
    }

    fn reserve_seqs(&mut self, first: u64) -> Result<u64, ()> {
        self.change()?;
        self.reserved = self.reserved.max(first) + 1;
        Ok(self.reserved)
    }

    fn mark_unsynced(&mut self, _: Ino, _: ContainerId) {}

    fn redo(&mut self, key: (Ino, ContainerId), step: Redo<'_>) -> Result<(), ()> {
        self.change()?;
        let bytes = self.containers.entry(key).or_default();
        let index = |at: u64| usize::try_from(at).unwrap();
        match step {
            Redo::Bytes(at, new) => {
                bytes.resize(bytes.len().max(index(at) + new.len()), 0);
                bytes[index(at)..][..new.len()].copy_from_slice(new);
            }
            Redo::Zeros(range) => bytes.resize(bytes.len().max(index(range.end)), 0),
            Redo::Cut(size) => bytes.truncate(index(size)),
        }
        Ok(())
    }

    fn forget_file(&mut self, ino: Ino) -> Result<(), ()> {
        self.change()?;
        self.files.remove(&ino);
        Ok(())
    }

    fn note(&mut self, notes: &Notes, entries: usize) -> Result<(), ()> {
        self.change()?;
        self.files.extend(notes.files.iter().cloned());
        self.noted = entries;
        Ok(())
    }

    fn cut_log(&mut self, entries: &[Entry]) -> Result<(), ()> {
        self.change()?;
        assert!(self.log.starts_with(entries), "the log begins with what stays");
        self.log.truncate(entries.len());
        Ok(())
    }

    fn report_lost(&mut self, _: &[Entry]) -> Result<(), ()> {
        self.change()
    }

    fn append(&mut self, entry: &Entry) -> Result<(), ()> {
        self.change()?;
        self.log.push(entry.clone());
        Ok(())
    }

    fn preserved(&self) -> Result<Vec<u64>, ()> {
        Ok(self.preserved.clone())
    }

    fn end_doubt(&mut self) -> Result<(), ()> {
        self.change()?;
        self.is_doubted = false;
        Ok(())
    }
}

/// What a process logs that makes inode 5, writes `data` to it and stores it.
fn stored(data: Payload) -> (Host, Vec<Entry>) {
    let mut core = core();
    create(&mut core);
    let made = core.queue.iter().map(|(logged, _)| Entry::Change(logged.clone()));
    let mut log: Vec<Entry> = made.collect();
    let written = core.draft_write(Ino(5), 0, data, Timestamp::default()).unwrap();
    core.admit(written.clone(), Time::default());
    let store = core.draft_seal(Ino(5), Caller::default()).unwrap();
    core.admit(store.clone(), Time::default());
    log.extend([written, store]);
    for (seq, counter) in [(1, 2), (2, 3)] {
        let attr = Attr { size: 10, ..attr(5, Kind::File, counter) };
        let outcome = Outcome::Done { touched: vec![attr] };
        settle(&mut core, seq, &outcome);
        log.push(Entry::Settled { seq, outcome: Box::new(outcome) });
    }
    (core, log)
}

/// Its container was never made: a process that was killed had it in memory. Without the server, a
/// file was unreadable of which all bytes were in the log.
#[test]
fn what_only_the_log_has_of_a_file_is_here_though_the_server_has_it_too() {
    for (data, lost_power, is_here) in [
        (Payload::Inline(vec![7; 10]), false, true),
        (Payload::Inline(vec![7; 10]), true, false),
        (Payload::Durable { len: 10 }, false, false),
    ] {
        let (before, log) = stored(data);
        let container = before.files[&Ino(5)].container();
        let mut disk = Remains { log, ..Remains::default() };
        let next = disk.recover(MANY, lost_power).unwrap();
        let file = next.files.get(&Ino(5));
        assert_eq!(file.is_some_and(|file| file.is_valid(0..10, 10)), is_here);
        let bytes = disk.containers.get(&(Ino(5), container));
        assert_eq!(bytes.is_some_and(|bytes| *bytes == [7; 10]), is_here);
    }
}

/// One write was closed by nobody, and one was only begun.
#[test]
fn a_recovery_that_ends_anywhere_is_ended_by_the_next_one() {
    let (mut before, mut log) = stored(Payload::Inline(vec![7; 10]));
    let (inline, begun) = (Payload::Inline(vec![8; 4]), Payload::Summed { len: 4, sums: vec![9] });
    for (at, data) in [(2, inline), (6, begun)] {
        let written = before.draft_write(Ino(5), at, data, Timestamp::default()).unwrap();
        before.admit(written.clone(), Time::default());
        log.push(written);
    }
    let key = (Ino(5), before.files[&Ino(5)].container());
    let left = Remains { log, is_doubted: true, ..Remains::default() };
    let mut ends = BTreeMap::new();
    for lives in 0..MANY {
        let mut disk = left.clone();
        disk.containers.insert(key, vec![7; 10]);
        let is_done = disk.recover(lives, false).is_ok();
        let next = disk.recover(MANY, false).unwrap();
        let stores = next.queue.iter().filter(|(logged, _)| logged.change.ino() == Ino(5)).count();
        let log: Vec<_> =
            disk.log.iter().filter(|entry| entry.change().is_none()).cloned().collect();
        let file = (next.files[&Ino(5)].valid().clone(), disk.containers[&key].clone());
        ends.insert(lives, (log, stores, next.has_unsealed(), file));
        if is_done {
            break;
        }
    }
    assert!(ends.len() > 5, "it was ended in between");
    let (log, stores, has_unsealed, (valid, bytes)) = &ends[&0];
    assert!(ends.values().all(|end| *end == ends[&0]), "{ends:#?}");
    assert_eq!((log.len(), *stores, *has_unsealed), (4, 1, false), "what was begun is gone");
    // Where it stood nobody knows what is there.
    assert_eq!(valid.iter().collect::<Vec<_>>(), [0..6]);
    assert_eq!(bytes[..6], [7, 7, 8, 8, 8, 8]);
}

/// What was not synced may be missing, and what came later may rely on it.
#[test]
fn a_loss_of_power_cuts_the_log_off_at_the_first_data_that_are_missing() {
    let (mut before, mut log) = stored(Payload::Inline(vec![7; 10]));
    let keeps = log.len();
    let (inline, summed) = (Payload::Inline(vec![8; 1]), Payload::Summed { len: 4, sums: vec![9] });
    for (at, data) in [(20, summed), (30, inline)] {
        let written = before.draft_write(Ino(5), at, data, Timestamp::default()).unwrap();
        before.admit(written.clone(), Time::default());
        log.push(written);
    }
    for (byte, logged) in [(9, keeps + 3), (0, keeps)] {
        let mut disk = Remains { log: log.clone(), is_doubted: true, ..Remains::default() };
        let bytes = [vec![7; 20], vec![byte; 4]].concat();
        disk.containers.insert((Ino(5), before.files[&Ino(5)].container()), bytes);
        let next = disk.recover(MANY, true).unwrap();
        assert_eq!(disk.log.len(), logged, "with the change that closes what was written");
        assert_eq!(disk.is_doubted, next.is_in_doubt());
    }
}

/// The index did not know the outcomes, and the server told nothing again: what was changed after
/// it had been put back was later than what it had forgotten.
#[test]
fn outcomes_that_the_server_has_forgotten_are_not_believed_after_a_restart() {
    let (_, mut log) = stored(Payload::Inline(vec![7; 10]));
    let history = History { epoch: 1, lives: vec![(1, 2), (8, 9)] };
    log.push(Entry::Forgot(history.clone()));
    let outcome = Outcome::Done { touched: vec![attr(6, Kind::File, 9)] };
    log.push(Entry::Settled { seq: 3, outcome: Box::new(outcome) });
    assert_eq!(latest_told(&log), Some(version(9)));
    log.pop();
    assert_eq!(latest_told(&log), Some(version(2)), "3 is none of its versions");
    let mut disk = Remains { log, ..Remains::default() };
    let next = disk.recover(MANY, false).unwrap();
    assert!(history.has(next.tree.latest()), "{:?}", next.tree.latest());
    assert!(!next.files[&Ino(5)].is_valid(0..1, 10));
}

/// Of the file only the log tells: it was written, and not noted. The bytes of a write behind its
/// end, which was only begun, were seen when the file grew over them.
#[test]
fn what_was_begun_behind_the_end_of_a_file_is_cut_off_though_only_the_log_has_the_file() {
    let mut before = core();
    before.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    let mut log = Vec::new();
    let (first, begun) = (Payload::Inline(vec![8; 10]), Payload::Summed { len: 4, sums: vec![9] });
    for (at, data) in [(0, first), (20, begun)] {
        let written = before.draft_write(Ino(7), at, data, Timestamp::default()).unwrap();
        before.admit(written.clone(), Time::default());
        log.push(written);
    }
    let key = (Ino(7), before.files[&Ino(7)].container());
    for lost_power in [false, true] {
        let mut disk = Remains { log: log.clone(), ..Remains::default() };
        disk.containers.insert(key, [vec![8; 10], vec![0; 10], vec![7; 4]].concat());
        let next = disk.recover(MANY, lost_power).unwrap();
        assert!(next.tree.peek(Ino(7)).is_none(), "nothing else is known");
        assert_eq!(disk.containers[&key].len(), 10, "power lost: {lost_power}");
    }
}

/// Whoever removes files of the cache directory, or a damaged disk, takes data that no server has.
/// The store was sent as zeros.
#[test]
fn a_store_whose_data_are_lost_is_refused_by_its_host() {
    let (before, mut log) = stored(Payload::Summed { len: 10, sums: vec![9] });
    let key = (Ino(5), before.files[&Ino(5)].container());
    log.retain(|entry| !matches!(entry, Entry::Settled { seq: 2, .. }));
    let preserved = Entry::Preserved { seq: 2, range: 0..10, sums: Vec::new() };
    let lost = |log: &[Entry], bytes: Option<u8>, preserved: &[u64]| {
        let (log, preserved) = (log.to_vec(), preserved.to_vec());
        let mut disk = Remains { log, preserved, ..Remains::default() };
        disk.containers.extend(bytes.map(|byte| (key, vec![byte; 10])));
        let mut next = disk.recover(MANY, false).unwrap();
        let call = next.refuse_lost(NOW);
        assert!(next.refuse_lost(NOW).is_none(), "once");
        match call {
            Some(Call::Settle(settle)) => {
                let refused = Outcome::Refused { refusal: Refusal::Lost };
                assert_eq!((settle.answered.len(), &settle.answered[0].1), (1, &refused));
                true
            }
            _ => false,
        }
    };
    assert!(!lost(&log, Some(9), &[]));
    assert!(lost(&log, Some(8), &[]), "other bytes are there");
    assert!(lost(&log, None, &[]), "the container is gone");
    log.push(preserved);
    assert!(!lost(&log, Some(8), &[2]), "something was written over what is preserved");
    assert!(lost(&log, Some(8), &[]), "what was preserved is gone");
    let (_, mut log) = stored(Payload::Inline(vec![7; 10]));
    log.retain(|entry| !matches!(entry, Entry::Settled { seq: 2, .. }));
    assert!(!lost(&log, None, &[]), "the log has all of it");
}

/// Makes and stores inode 6, of which the log has all bytes. Its container.
fn clean_file(core: &mut Host, log: &mut Vec<Entry>) -> (Ino, ContainerId) {
    let time = Timestamp::default();
    log.push(create_as(core, Ino(6), "b"));
    for step in 0..2 {
        let entry = match step {
            0 => core.draft_write(Ino(6), 0, Payload::Inline(vec![6; 10]), time),
            _ => core.draft_seal(Ino(6), Caller::default()),
        };
        let entry = entry.unwrap();
        core.admit(entry.clone(), Time::default());
        log.push(entry);
    }
    let of_file =
        |entry: &Entry| entry.change().filter(|it| it.change.ino() == Ino(6)).map(|it| it.seq);
    let seqs: Vec<u64> = log.iter().filter_map(of_file).collect();
    let key = (Ino(6), core.files[&Ino(6)].container());
    for (seq, counter) in seqs.into_iter().zip(4..) {
        let touched = vec![Attr { size: 10, ..attr(6, Kind::File, counter) }];
        log.push(Entry::Settled { seq, outcome: Box::new(Outcome::Done { touched }) });
    }
    key
}

/// A process found that a container was gone, wrote what the log had of it into a new one, and died
/// before it had refused the store. The next one sent the rest as zeros.
#[test]
fn a_lost_store_is_lost_for_the_next_process_too() {
    let (mut before, mut log) = stored(Payload::Inline(vec![7; 10]));
    for (at, data) in [(20, Payload::Inline(vec![8; 4])), (30, Payload::Durable { len: 4 })] {
        let written = before.draft_write(Ino(5), at, data, Timestamp::default()).unwrap();
        before.admit(written.clone(), Time::default());
        log.push(written);
    }
    let store = before.draft_seal(Ino(5), Caller::default()).unwrap();
    before.admit(store.clone(), Time::default());
    log.push(store);
    let clean = clean_file(&mut before, &mut log);
    let left = Remains { durable: log.len(), log, ..Remains::default() };
    for lives in 0..MANY {
        let mut disk = left.clone();
        let is_done = disk.recover(lives, false).is_ok();
        let mut next = disk.recover(MANY, false).unwrap();
        assert!(next.refuse_lost(NOW).is_some(), "after {lives} changes of the disk");
        assert!(disk.containers.contains_key(&clean), "what is clean and in the log is here");
        if is_done {
            break;
        }
    }
}

/// A disk lost the middle of what was written and not stored. The entry about it was taken out, and
/// the file was stored without those bytes as if it was whole; at its end it was shorter, too.
#[test]
fn unsealed_data_that_the_disk_lacks_in_part_are_refused() {
    let (mut before, mut log) = stored(Payload::Inline(vec![7; 10]));
    let lost = Payload::Summed { len: 4, sums: vec![9] };
    for (at, data) in [(10, Payload::Inline(vec![8; 4])), (14, lost), (0, Payload::Inline(vec![3]))]
    {
        let written = before.draft_write(Ino(5), at, data, Timestamp::default()).unwrap();
        before.admit(written.clone(), Time::default());
        log.push(written);
    }
    let key = (Ino(5), before.files[&Ino(5)].container());
    let mut left = Remains { log, ..Remains::default() };
    left.containers.insert(key, vec![7; 10]);
    for lives in 0..MANY {
        let mut disk = left.clone();
        let is_done = disk.recover(lives, false).is_ok();
        let mut next = disk.recover(MANY, false).unwrap();
        let stores = next.queue.iter().filter_map(|(logged, _)| match &logged.change {
            Change::Data(data) => Some((data.size, data.ranges.clone())),
            Change::Record(_) => None,
        });
        assert_eq!(stores.collect::<Vec<_>>(), [(18, vec![0..1, 10..18])], "{lives}");
        assert!(next.refuse_lost(NOW).is_some(), "after {lives} changes of the disk");
        if is_done {
            break;
        }
    }
}
