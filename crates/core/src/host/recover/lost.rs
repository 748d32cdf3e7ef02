//! Stores of which the disk lacks data.
//!
//! Whoever removes a file of the cache directory, or a disk that forgets one, takes data that no
//! server has. The store would be zeros, or wait for ever with everything behind it. So this host
//! refuses it: what is left of it is kept for the user.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::LeftDisk;
use super::begun::Damaged;
use crate::host::Host;
use crate::host::action::Now;
use crate::host::cache::FileData;
use crate::host::call::{Call, Settle};
use crate::host::log::{Change, Covered, DataChange, Logged};
use crate::nouns::{ContainerId, Ino, Outcome, RangeSet};
use crate::refusal::Refusal;

impl Host {
    /// Finds the stores in the queue of which `disk` lacks data that the log does not have either.
    pub(super) fn find_lost<D: LeftDisk>(
        &mut self,
        disk: &D,
        covered: &Covered,
        damaged: &Damaged,
    ) -> Result<(), D::Error> {
        let there: BTreeSet<u64> = disk.preserved()?.into_iter().collect();
        let queued = self.queue.iter().map(|(logged, _)| logged);
        let lost = queued.filter(|logged| {
            let Change::Data(data) = &logged.change else { return false };
            let preserved = self.preserved(logged.seq);
            let is_gone = !preserved.is_empty() && !there.contains(&logged.seq);
            is_gone
                || damaged.preserved.contains(&logged.seq)
                || is_lacking(disk, data, &preserved, covered, damaged)
        });
        let lost: Vec<u64> = lost.map(|logged| logged.seq).collect();
        self.lost_stores.extend(lost);
        Ok(())
    }

    /// True if a container has pending data, and all of them are of stores that are lost.
    pub(super) fn has_lost_only(&self, ino: Ino, container: ContainerId) -> bool {
        let file = self.files.get(&ino).filter(|file| file.container() == container);
        let is_unsealed = file.is_some_and(FileData::has_dirty);
        let mut stores =
            self.queued_data(ino).filter(|(_, data)| data.container == container).peekable();
        let has_stores = stores.peek().is_some();
        has_stores && !is_unsealed && stores.all(|(seq, _)| self.lost_stores.contains(&seq))
    }

    /// The call that refuses stores whose data the disk has lost, if there are any.
    pub fn refuse_lost(&mut self, now: Now) -> Option<Call> {
        let lost = std::mem::take(&mut self.lost_stores);
        let queued = self.queue.iter().map(|(logged, _)| logged);
        let lost: Vec<&Logged> = queued.filter(|logged| lost.contains(&logged.seq)).collect();
        let refused = || Outcome::Refused { refusal: Refusal::Lost };
        let answered: Vec<_> = lost.into_iter().map(|of| (of.clone(), refused())).collect();
        let as_of = self.tree.as_of(None, [now.time; 2]);
        (!answered.is_empty()).then(|| Call::Settle(Arc::new(Settle { answered, as_of })))
    }
}

/// True if the container of a store lacks some of its data that are in nothing else.
fn is_lacking<D: LeftDisk>(
    disk: &D,
    data: &DataChange,
    preserved: &RangeSet,
    covered: &Covered,
    damaged: &Damaged,
) -> bool {
    let key = (data.ino, data.container);
    let here = data.ranges.iter().flat_map(|range| preserved.missing(range.clone()));
    let here: Vec<Range<u64>> = here.collect();
    let in_log = covered.get(&key);
    let is_logged = |range: &Range<u64>| in_log.is_some_and(|log| log.contains(range.clone()));
    damaged.lacks(key, &here) || !disk.has_container(key.0, key.1) && !here.iter().all(is_logged)
}
