//! Changes that need not be sent as they are: further data of a file that waits, stores of files
//! that lose their last names, and what was made and removed before the server heard of it.
//!
//! ```text
//!   take_to_..  ──▶ logged as Entry::Replaced ──▶ replace
//!       └─────────▶ cannot be logged ──▶ send_after_all
//! ```

use std::collections::BTreeMap;

use crate::host::cache::FileData;
use crate::host::log::{Change, DataChange, Instead, Logged, Replaced};
use crate::host::send::Unsealed;
use crate::host::{Fault, Host};
use crate::nouns::{Base, Caller, Ino, Record, SetAttr, Time, Timestamp, Touched};

impl Host {
    /// Takes in that changes are replaced, which is logged. Returns those that are gone.
    pub(in crate::host) fn replace(&mut self, replaced: &Replaced, now: Time) -> Vec<Logged> {
        let Replaced { seqs, by } = replaced;
        match by {
            Instead::More { time, data } => {
                seqs.iter().for_each(|seq| self.amend(*seq, *time, data));
                Vec::new()
            }
            Instead::Unsealed => seqs.iter().filter_map(|seq| self.unseal(*seq, now)).collect(),
            Instead::Nothing(ino) => self.cancel(*ino, seqs),
            Instead::Rename(ino, by) => self.supersede(*ino, seqs, by),
        }
    }

    /// What was taken to be replaced waits again.
    pub(in crate::host) fn send_after_all(&mut self, replaced: &Replaced) {
        self.put_back(replaced.taken());
    }

    /// The change with data of `ino` that waits, if what was written since can be a part of it:
    /// nothing that has to go between them, nobody else's, and nothing that a map may write
    /// meanwhile.
    pub(in crate::host) fn take_to_amend(&mut self, ino: Ino, caller: &Caller) -> Option<Replaced> {
        let data = self.unsealed_data(ino)?;
        let time = self.tree.peek(ino)?.ctime;
        let is_mapped = self.files.get(&ino).is_some_and(FileData::is_mapped);
        let makers = self.writers.get(&ino).cloned();
        let after = self.after(&makers.unwrap_or_else(|| [caller.session].into()));
        let seq = self.queue.to_amend(ino, caller, &after)?;
        let is_uploaded = self.ahead.is_known(seq) && !self.has_planted(Fault::AmendsUploaded);
        if self.is_wanted(seq) || is_uploaded {
            return None;
        }
        let fits = match self.queue.change(seq) {
            Some(Change::Data(before)) => before.with(&data).is_some(),
            _ => false,
        };
        if is_mapped || !fits || data.base != Base::Result(seq) {
            return None;
        }
        self.queue.take(seq);
        Some(Replaced { seqs: vec![seq], by: Instead::More { time, data } })
    }

    /// Makes what was written since part of change `seq`.
    fn amend(&mut self, seq: u64, time: Timestamp, data: &DataChange) {
        self.sealed(seq, data.ino);
        // The change that it is part of stands for it.
        self.tree.cancel(&Touched { inodes: vec![data.ino], names: Vec::new() });
        let before = self.queue.amend(seq, time, data);
        self.put_back([seq]);
        if let Some(preserved) = self.preserved.get_mut(&seq) {
            data.overwrites(preserved);
        }
        if let Some(before) = before.filter(|before| before.container != data.container) {
            self.abandon(data.ino, before.container);
        }
    }

    /// The change with the newest data of `ino`, if these can count as not sealed: the file, which
    /// nobody has open, is about to lose its last name.
    pub(in crate::host) fn take_to_unseal(&mut self, ino: Ino) -> Option<Replaced> {
        let is_last = self.tree.peek(ino)?.nlink == 1;
        let file = self.files.get(&ino)?;
        let seq = self.queue.to_unseal(ino)?;
        let Some(Change::Data(data)) = self.queue.change(seq) else { return None };
        let fits = self.unsealed_data(ino).is_none_or(|later| data.with(&later).is_some());
        if !is_last || self.is_open(ino) || file.is_mapped() || !fits || self.is_wanted(seq) {
            return None;
        }
        self.queue.take(seq);
        Some(Replaced { seqs: vec![seq], by: Instead::Unsealed })
    }

    /// Change `seq` is not sent: what it had of a file's data, and who made it when, is as if it
    /// had never been closed. Returns it.
    fn unseal(&mut self, seq: u64, now: Time) -> Option<Logged> {
        let logged = self.queue.cancel(seq)?;
        self.forget_ended();
        self.ahead.cancelled(&logged);
        let Change::Data(data) = &logged.change else { return Some(logged) };
        let ino = data.ino;
        let later = self.unsealed_data(ino);
        if self.files.get(&ino).is_some_and(FileData::has_dirty) {
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
    pub(in crate::host) fn take_to_cancel(&mut self, ino: Ino) -> Option<Replaced> {
        if !self.is_out_of_reach(ino) {
            return None;
        }
        let seqs: Vec<u64> = self.queue.cancel_out(ino)?.into_iter().collect();
        if seqs.iter().any(|seq| self.is_wanted(*seq)) {
            return None;
        }
        seqs.iter().for_each(|seq| self.queue.take(*seq));
        Some(Replaced { seqs, by: Instead::Nothing(ino) })
    }

    /// The changes that made the file which change `by` renamed another one over, and what that
    /// change is without them, if they can go without the server.
    pub(in crate::host) fn take_superseded(&mut self, by: u64) -> Option<Replaced> {
        let ino = self.queue.change(by)?.unnamed()?;
        if !self.is_out_of_reach(ino) {
            return None;
        }
        let (seqs, amended) = self.queue.superseded(by)?;
        if seqs.iter().chain([&by]).any(|seq| self.is_wanted(*seq)) {
            return None;
        }
        seqs.iter().chain([&by]).for_each(|seq| self.queue.take(*seq));
        let seqs = seqs.into_iter().collect();
        Some(Replaced { seqs, by: Instead::Rename(ino, Box::new(amended)) })
    }

    /// These, all changes of `ino`, are as if they had never been made, and a later rename is `by`.
    /// Returns them.
    fn supersede(&mut self, ino: Ino, seqs: &[u64], by: &Logged) -> Vec<Logged> {
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

    /// These, all changes of `ino` and earlier times of its directories, are as if they had never
    /// been made. Returns them.
    fn cancel(&mut self, ino: Ino, seqs: &[u64]) -> Vec<Logged> {
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
