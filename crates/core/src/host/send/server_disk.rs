//! The server's disk: how long changes wait for room on it.
//!
//! A close that waits hears at once that the disk is full. A change that nobody waits for is sent
//! again for a while, because removed files give their space back within half a minute. Then the
//! server refuses the change, and this host keeps it. Otherwise the changes behind it, removals
//! among them, would wait for as long as the disk is full.
//!
//! There is one exception: a save that ends with a rename over the older file. Without the data,
//! the rename would leave an empty file in place of the older one. Such data wait for room.

use std::time::Duration;

use crate::host::log::{Change, Logged, Queue};
use crate::nouns::{Record, RenameMode, Time};

/// A change that nobody waits for is sent again for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the server's disk takes chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct ServerDisk {
    full_since: Option<Time>,
    /// How often it had no room.
    refusals: u64,
}

impl ServerDisk {
    /// The server took chunks.
    pub(super) fn note_taken(&mut self) {
        self.full_since = None;
    }

    /// The server had no room for chunks.
    pub(super) fn note_full(&mut self, now: Time) {
        self.full_since.get_or_insert(now);
        self.refusals += 1;
    }

    /// How often the server had no room for chunks.
    pub(in crate::host) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// True if the server is to say for good whether it refuses a change.
    pub(super) fn decides(&self, now: Time, is_awaited: bool) -> bool {
        self.full_since.is_some_and(|since| is_awaited || now.since(since) >= PATIENCE)
    }
}

/// True if a later change puts the file of `logged` in the place of another file.
pub(super) fn is_to_replace(queue: &Queue, logged: &Logged) -> bool {
    let Change::Data(data) = &logged.change else { return false };
    let replaces = |later: &Logged| match &later.change {
        Change::Record(Record::Rename { ino, mode: RenameMode::Replace(Some(_)), .. }) => {
            *ino == data.ino
        }
        _ => false,
    };
    queue.iter_from(logged.seq).any(replaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::log::DataChange;
    use crate::nouns::{Base, Caller, ContainerId, Ino, Name, Timestamp, Version};

    /// Proves S20.11.
    #[test]
    fn a_change_that_nobody_waits_for_has_a_minute() {
        let at = |seconds| Time(Duration::from_secs(seconds));
        let mut disk = ServerDisk::default();
        assert!(!disk.decides(at(5), true));
        disk.note_full(at(10));
        assert!(disk.decides(at(10), true) && !disk.decides(at(10), false));
        disk.note_full(at(60));
        assert!(!disk.decides(at(69), false) && disk.decides(at(70), false));
        disk.note_taken();
        disk.note_full(at(100));
        assert!(!disk.decides(at(159), false));
    }
    fn data(seq: u64, ino: u64) -> Logged {
        let data = DataChange {
            ino: Ino(ino),
            container: ContainerId::default(),
            base: Base::Version(Version::default()),
            cut: None,
            size: 100_000,
            ranges: vec![0..100_000],
            mtime: Timestamp::default(),
        };
        data.logged(seq, Caller::default())
    }

    fn rename(seq: u64, ino: u64, mode: RenameMode) -> Logged {
        let name = Name::new("name").unwrap();
        let rename = Record::Rename {
            from_parent: Ino::ROOT,
            from_name: name.clone(),
            ino: Ino(ino),
            to_parent: Ino::ROOT,
            to_name: name,
            mode,
            open: false,
        };
        Logged { change: Change::Record(rename), ..data(seq, ino) }
    }

    /// Proves S20.11.
    #[test]
    fn data_of_a_file_that_replaces_another_are_known() {
        let mut queue = Queue::default();
        let over = RenameMode::Replace(Some(Ino(9)));
        let changes = [
            rename(1, 5, over),
            data(2, 5),
            data(3, 6),
            rename(4, 6, over),
            data(5, 7),
            rename(6, 7, RenameMode::Replace(None)),
        ];
        for change in &changes {
            queue.push(change.clone(), Time::default(), |_| false);
        }
        let replace: Vec<u64> = changes
            .iter()
            .filter(|change| is_to_replace(&queue, change))
            .map(|change| change.seq)
            .collect();
        assert_eq!(replace, [3]);
    }
}
