//! What a log file that was left behind means.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, DataChange, Entry, Instead, Logged, Replaced, WritePlace};
use crate::host::cache::FileData;
use crate::nouns::{Attr, Base, Ino, Outcome, RangeSet, Timestamp, Version};

/// What an earlier life of the client left undone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftover {
    /// Changes that are not settled, in order.
    pub changes: Vec<Logged>,
    /// Files that were written and not stored, to be stored after `changes`.
    pub unsealed: Vec<DataChange>,
    /// Which bytes of `changes` are in files of their own.
    pub preserved: BTreeMap<u64, RangeSet>,
    /// The highest seq seen.
    pub newest_seq: u64,
}

struct Written {
    data: FileData,
    base: Base,
    size: u64,
    time: Timestamp,
}

impl Written {
    fn on(place: &WritePlace) -> Written {
        Written {
            data: FileData::new(Version::default(), place.container),
            base: place.base,
            size: place.old_size,
            time: Timestamp::default(),
        }
    }

    /// What was a change.
    fn again(data: &DataChange) -> Written {
        let mut file = FileData::new(Version::default(), data.container);
        file.left_unsealed(data);
        Written { data: file, base: data.base, size: data.size, time: data.mtime }
    }

    /// What it is as a change.
    fn change(self, ino: Ino) -> Option<DataChange> {
        let unsealed = self.data.unsealed()?;
        Some(DataChange {
            ino,
            container: self.data.container(),
            base: self.base,
            cut: unsealed.cut,
            size: self.size,
            ranges: unsealed.ranges,
            mtime: self.time,
        })
    }
}

/// The latest version that the outcomes in a log file tell.
pub fn latest_told<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<Version> {
    let mut told = Vec::new();
    for entry in entries {
        match entry {
            Entry::Settled { outcome, .. } => {
                told.extend(outcome.touched().iter().map(Attr::latest));
            }
            Entry::Forgot(history) => told.retain(|version| history.has(*version)),
            _ => {}
        }
    }
    told.into_iter().max()
}

/// What the entries of a log file leave to be done.
pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Leftover {
    let mut replay = Replay::default();
    entries.into_iter().for_each(|entry| replay.take_in(entry));
    let Replay { mut left, changes, unsealed, cancelled } = replay;
    left.unsealed = unsealed.into_iter().filter_map(|(ino, file)| file.change(ino)).collect();
    left.changes = changes.into_values().collect();
    left.changes.iter_mut().for_each(|logged| logged.after.forget(&cancelled));
    left
}

/// What is left by the entries so far.
#[derive(Default)]
struct Replay {
    left: Leftover,
    changes: BTreeMap<u64, Logged>,
    unsealed: BTreeMap<Ino, Written>,
    cancelled: BTreeSet<u64>,
}

impl Replay {
    fn take_in(&mut self, entry: &Entry) {
        entry.abandoned().and_then(|ino| self.unsealed.remove(&ino));
        match entry {
            Entry::Change(logged) => {
                self.left.newest_seq = self.left.newest_seq.max(logged.seq);
                if let Change::Data(data) = &logged.change {
                    self.unsealed.remove(&data.ino);
                }
                self.changes.insert(logged.seq, logged.clone());
            }
            Entry::Written { place, offset, data } => {
                let range = *offset..offset.saturating_add(data.len());
                let file = self.written(place);
                file.size = file.size.max(range.end);
                file.data.write(range, place.old_size);
            }
            Entry::Resized { place, size } => {
                let file = self.written(place);
                file.data.truncate(*size, place.old_size);
                file.data.move_to(place.container);
                file.size = *size;
            }
            Entry::Preserved { seq, range, .. } => {
                self.left.preserved.entry(*seq).or_default().insert(range.clone());
            }
            Entry::Settled { seq, outcome } => self.settled(*seq, outcome),
            Entry::Replaced(replaced) => self.replaced(replaced),
            Entry::Synced | Entry::Nameless(_) | Entry::Spoiled { .. } | Entry::Forgot(_) => {}
        }
    }

    fn written(&mut self, place: &WritePlace) -> &mut Written {
        let file = self.unsealed.entry(place.ino).or_insert_with(|| Written::on(place));
        file.time = place.time;
        file
    }

    fn settled(&mut self, seq: u64, outcome: &Outcome) {
        let settled = self.changes.remove(&seq);
        self.left.preserved.remove(&seq);
        // This host removed its last name, and nobody has it open any more.
        if let Some(ino) = settled.and_then(|logged| logged.change.unnamed())
            && self.unsealed.contains_key(&ino)
            && outcome.leaves_nameless(ino)
            && !self.changes.values().any(|logged| logged.change.names(ino))
        {
            self.unsealed.remove(&ino);
        }
    }

    fn replaced(&mut self, replaced: &Replaced) {
        replaced.takes_unsealed().and_then(|ino| self.unsealed.remove(&ino));
        let Replaced { seqs, by } = replaced;
        match by {
            Instead::More { time, data } => {
                seqs.iter().for_each(|seq| self.amended(*seq, *time, data));
            }
            Instead::Unsealed => seqs.iter().for_each(|seq| self.unsealed_again(*seq)),
            Instead::Nothing(_) => seqs.iter().for_each(|seq| self.cancelled(*seq)),
            Instead::Rename(_, by) => {
                seqs.iter().for_each(|seq| self.cancelled(*seq));
                if let Some(logged) = self.changes.get_mut(&by.seq) {
                    *logged = Logged::clone(by);
                }
            }
        }
    }

    fn amended(&mut self, seq: u64, time: Timestamp, data: &DataChange) {
        if let Some(logged) = self.changes.get_mut(&seq) {
            logged.amend(time, data);
        }
        if let Some(preserved) = self.left.preserved.get_mut(&seq) {
            data.overwrites(preserved);
        }
    }

    fn unsealed_again(&mut self, seq: u64) {
        self.left.preserved.remove(&seq);
        self.cancelled.insert(seq);
        if let Some(Logged { change: Change::Data(data), .. }) = self.changes.remove(&seq) {
            let later = self.unsealed.remove(&data.ino).and_then(|later| later.change(data.ino));
            let all = later.and_then(|later| data.with(&later));
            self.unsealed.insert(data.ino, Written::again(all.as_ref().unwrap_or(&data)));
        }
    }

    fn cancelled(&mut self, seq: u64) {
        self.left.preserved.remove(&seq);
        self.cancelled.insert(seq);
        self.changes.remove(&seq);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::host::log::{After, Payload};
    use crate::nouns::{Caller, ContainerId, Record};

    const BASE: Base = Base::Version(Version { epoch: 1, counter: 4 });
    const TIME: Timestamp = Timestamp { secs: 5, nanos: 0 };

    fn place(ino: u64, old_size: u64) -> WritePlace {
        WritePlace { ino: Ino(ino), container: ContainerId(7), base: BASE, old_size, time: TIME }
    }

    fn written(ino: u64, range: Range<u64>, old_size: u64) -> Entry {
        let data = Payload::Durable { len: range.end - range.start };
        Entry::Written { place: place(ino, old_size), offset: range.start, data }
    }

    fn change(seq: u64, record: Record) -> Entry {
        let (time, caller) = (Timestamp::default(), Caller::default());
        let change = Change::Record(record);
        Entry::Change(Logged {
            seq,
            time,
            caller,
            operation: None,
            after: After::Nothing,
            known: None,
            change,
        })
    }

    /// Another host may have given it a name that this one did not know of.
    #[test]
    fn what_was_written_to_a_file_that_lost_its_last_known_name_is_stored() {
        let (parent, name) = (Ino::ROOT, crate::nouns::Name::new("f").unwrap());
        let unlink = change(1, Record::Unlink { parent, name, ino: Ino(9), open: true });
        let leftover = replay(&[written(9, 0..5, 0), unlink]);
        assert_eq!((leftover.changes.len(), leftover.unsealed.len()), (1, 1));
    }

    #[test]
    fn what_was_written_to_a_file_without_any_name_is_not_stored() {
        let nameless = Entry::Nameless(Box::new(written(9, 0..5, 0)));
        let entries = [written(9, 0..5, 0), nameless.clone(), nameless];
        assert!(replay(&entries).unsealed.is_empty());
        let release = change(1, Record::Release { ino: Ino(9) });
        let leftover = replay(&[written(8, 0..5, 0), written(9, 0..5, 0), release]);
        assert_eq!(leftover.unsealed.iter().map(|data| data.ino).collect::<Vec<_>>(), [Ino(8)]);
    }

    #[test]
    fn what_was_written_and_not_stored_is_stored_after_the_rest() {
        let first = DataChange {
            ino: Ino(9),
            container: ContainerId(7),
            base: BASE,
            cut: None,
            size: 10,
            ranges: vec![0..10],
            mtime: TIME,
        };
        let (done, preserved) = (Outcome::Done { touched: Vec::new() }, vec![1]);
        let leftover = replay(&[
            written(9, 0..10, 0),
            Entry::Change(first.logged(3, Caller::default())),
            Entry::Preserved { seq: 3, range: 0..4, sums: preserved },
            Entry::Settled { seq: 3, outcome: Box::new(done) },
            written(9, 10..20, 10),
            Entry::Resized { place: place(9, 20), size: 15 },
        ]);
        assert!(leftover.changes.is_empty() && leftover.preserved.is_empty());
        assert_eq!(leftover.newest_seq, 3);
        let [left] = leftover.unsealed.as_slice() else { panic!("one file") };
        assert_eq!(left.ranges, [10..15]);
        assert_eq!((left.cut, left.size, left.container), (Some(15), 15, ContainerId(7)));
    }
}
