//! What is not sent: stores of files that lose their last names, and what was made and removed
//! before the server heard of it.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::host::log::{Change, Logged};
use crate::host::send::Unsealed;
use crate::nouns::{Base, Ino, Record, SetAttr, Time};

impl Host {
    /// The change with the newest data of `ino`, if it can be [unsealed](Host::unseal): the
    /// file, which nobody has open, is about to lose its last name. It is taken until then, or
    /// until it is [sent after all](Host::send_after_all). Log `Entry::Unsealed` before.
    pub fn take_to_unseal(&mut self, ino: Ino) -> Option<u64> {
        let is_last = self.tree.peek(ino)?.nlink == 1;
        let file = self.files.get(&ino)?;
        let seq = self.queue.to_unseal(ino)?;
        let Some(Change::Data(data)) = self.queue.change(seq) else { return None };
        let fits = self.unsealed_data(ino).is_none_or(|later| data.with(&later).is_some());
        if !is_last || self.is_open(ino) || file.is_mapped() || !fits || self.is_wanted(seq) {
            return None;
        }
        self.queue.take(seq);
        Some(seq)
    }

    /// Change `seq` is not sent: what it had of a file's data, and who made it when, is as if it
    /// had never been closed. Returns it.
    pub fn unseal(&mut self, seq: u64, now: Time) -> Option<Logged> {
        let logged = self.queue.cancel(seq)?;
        self.forget_ended();
        self.ahead.cancelled(&logged);
        let Change::Data(data) = &logged.change else { return Some(logged) };
        let ino = data.ino;
        let later = self.unsealed_data(ino);
        if later.is_some() {
            // One unsettled change stands for everything that is not sealed.
            self.tree.cancel(&logged.change.touched());
        }
        let before = match data.base {
            Base::Result(before) => Some(before).filter(|seq| self.queue.stage(*seq).is_some()),
            Base::Version(_) => None,
        };
        let all = later.and_then(|later| data.with(&later)).unwrap_or_else(|| data.clone());
        if let Some(file) = self.files.get_mut(&ino) {
            file.unsealed_again(seq, &all, before);
        }
        self.room.unsealed(seq, ino);
        let unsealed = Unsealed::reopened(now, logged.caller.clone());
        self.unsealed.entry(ino).or_insert(unsealed);
        self.writers.entry(ino).or_default().insert(logged.caller.session);
        self.release_data(seq, data);
        Some(logged)
    }

    /// The changes that made `ino` and removed its last name, if they can go without the server.
    /// They are taken until they are [cancelled](Host::cancel), or [sent after
    /// all](Host::send_after_all). Log `Entry::Cancelled` with them before.
    pub fn take_to_cancel(&mut self, ino: Ino) -> Option<Vec<u64>> {
        if !self.is_out_of_reach(ino) {
            return None;
        }
        let seqs: Vec<u64> = self.queue.cancel_out(ino)?.into_iter().collect();
        if seqs.iter().any(|seq| self.is_wanted(*seq)) {
            return None;
        }
        seqs.iter().for_each(|seq| self.queue.take(*seq));
        Some(seqs)
    }

    /// The changes that made the file which change `by` renamed another one over, and what that
    /// change is without them, if they can go without the server. All are taken until they are
    /// [superseded](Host::supersede), or [sent after all](Host::send_after_all) with
    /// `by`. Log `Entry::Superseded` before.
    pub fn take_superseded(&mut self, by: u64) -> Option<(Ino, Vec<u64>, Logged)> {
        let ino = self.queue.change(by)?.unnamed()?;
        if !self.is_out_of_reach(ino) {
            return None;
        }
        let (seqs, amended) = self.queue.superseded(by)?;
        if seqs.iter().chain([&by]).any(|seq| self.is_wanted(*seq)) {
            return None;
        }
        seqs.iter().chain([&by]).for_each(|seq| self.queue.take(*seq));
        Some((ino, seqs.into_iter().collect(), amended))
    }

    /// These, all changes of `ino`, are as if they had never been made, and a later rename is `by`.
    /// Returns them.
    pub fn supersede(&mut self, ino: Ino, seqs: &[u64], by: &Logged) -> Vec<Logged> {
        let replacing = |seq: &&u64| self.queue.change(**seq).and_then(Change::unnamed).is_some();
        let earlier = seqs.iter().find(replacing).copied();
        self.room.superseded(earlier, by.seq);
        if let Some(before) = self.queue.supersede(by) {
            self.tree.mark_all(&by.change.touched());
            self.tree.cancel(&before.change.touched());
        }
        // What follows what a sync covered follows what stands for it.
        for covered in self.covered.values_mut() {
            if seqs.iter().any(|seq| covered.contains(seq)) {
                covered.insert(by.seq);
            }
        }
        let cancelled = self.cancel(ino, seqs);
        self.queue.put_back(by.seq);
        cancelled
    }

    /// True if the server or a call wants change `seq` as it is.
    pub(in crate::host) fn is_wanted(&self, seq: u64) -> bool {
        self.whole.contains(&seq) || self.waiters.is_waited_for(seq)
    }

    /// What was taken to be cancelled waits again.
    pub fn send_after_all(&mut self, seqs: &[u64]) {
        seqs.iter().for_each(|seq| self.queue.put_back(*seq));
    }

    /// These, all changes of `ino` and earlier times of its directories, are as if they had never
    /// been made. Returns them.
    pub fn cancel(&mut self, ino: Ino, seqs: &[u64]) -> Vec<Logged> {
        let mut cancelled = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let Some(logged) = self.queue.cancel(*seq) else { continue };
            self.room.settled(*seq, false);
            self.ahead.cancelled(&logged);
            self.pending.less(logged.change.bytes());
            self.tree.cancel(&logged.change.touched());
            if let Some(file) = self.files.get_mut(&logged.change.ino()) {
                file.withdrawn(*seq);
            }
            if let Change::Data(data) = &logged.change {
                self.release_data(*seq, data);
            }
            cancelled.push(logged);
        }
        self.forget_ended();
        self.tree.mark_orphan(ino);
        self.drop_dirty(ino);
        cancelled
    }

    /// What is left of changes that cancelled out: their directories were changed, last at these
    /// times. One record for each that is still there.
    pub fn times_of_cancelled(&self, cancelled: &[Logged]) -> Vec<Record> {
        let mut times = BTreeMap::new();
        for logged in cancelled {
            let names = logged.change.touched().names;
            times.extend(names.into_iter().map(|(directory, _)| (directory, logged.time)));
        }
        let is_there = |ino: &Ino| self.tree.peek(*ino).is_some_and(|attr| attr.nlink > 0);
        let times = times.into_iter().filter(|(directory, _)| is_there(directory));
        let record = |(ino, time)| Record::SetAttr {
            ino,
            set: SetAttr { mtime: Some(time), times_now: true, ..SetAttr::default() },
        };
        times.map(record).collect()
    }

    /// Nothing follows what ended any more.
    pub(in crate::host) fn forget_ended(&mut self) {
        let ended = self.queue.take_ended();
        if ended.is_empty() {
            return;
        }
        self.covered.retain(|_, seqs| {
            ended.iter().for_each(|seq| {
                seqs.remove(seq);
            });
            !seqs.is_empty()
        });
    }
}
