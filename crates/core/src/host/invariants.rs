//! Invariants that hold between events. All parts of a host are checked by the simulator after each
//! step, and by a mount with debug assertions once a second. In each build the shell has some of
//! them checked, in turn, whenever it lets go of a host that it changed. Sums are checked where
//! they change.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Host;
use super::cache::{FileData, Scrap, Way};
use super::call::OpenFile;
use crate::nouns::Ino;

/// So many files, changes and open files are checked at a time.
const IN_TURN: usize = 1;

/// The parts that were checked last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    file: Option<Ino>,
    change: Option<u64>,
    open: Option<Ino>,
}

/// Behind `last`, or from the beginning on.
fn behind<T>(last: Option<T>) -> (Bound<T>, Bound<T>) {
    (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl Host {
    /// Panics if the parts whose turn it is contradict others.
    pub fn check_in_turn(&mut self) {
        self.check_numbers();
        self.room.check_in_turn(&self.queue);
        self.ahead.check_in_turn(&self.queue);
        let mut last = None;
        for (ino, file) in self.files.range(behind(self.turn.file)).take(IN_TURN) {
            self.check_file(*ino, file);
            last = Some(*ino);
        }
        self.turn.file = last;
        self.turn.change = self.queue.check_in_turn(behind(self.turn.change), IN_TURN);
        let mut last = None;
        for (ino, count) in self.open.range(behind(self.turn.open)).take(IN_TURN) {
            self.check_open(*ino, *count);
            last = Some(*ino);
        }
        self.turn.open = last;
    }

    /// Panics if the parts of the host contradict each other.
    pub fn check_invariants(&self) {
        self.check_numbers();
        self.queue.check_invariants();
        self.room.check_invariants(&self.queue);
        self.ahead.check_invariants(&self.queue);
        if self.queue.is_empty() && !self.has_unsealed() {
            self.tree.check_settled();
        }
        self.check_files();
        self.check_handles();
        self.check_scrap();
    }

    fn check_numbers(&self) {
        assert!(self.next_seq <= self.seq_reserved, "numbers are reserved before they are used");
        let newest = self.queue.newest_seq();
        assert!(newest.is_none_or(|newest| newest < self.next_seq), "a change is from the future");
    }

    /// Pending data are known to the tree.
    fn check_file(&self, ino: Ino, file: &FileData) {
        let is_pending = !file.has_dirty() || self.tree.is_pending(ino);
        assert!(is_pending || self.tree.peek(ino).is_none(), "{ino} is written, and clean");
        let unfinished = [file.has_dirty(), file.is_ahead()];
        assert!(unfinished != [true, false], "{ino} is written, and not ahead of the server");
    }

    /// Preserved bytes belong to pending changes.
    fn check_files(&self) {
        self.files.iter().for_each(|(ino, file)| self.check_file(*ino, file));
        let stray = self.preserved.keys().find(|seq| self.queue.change(**seq).is_none());
        assert!(stray.is_none(), "bytes are preserved for change {stray:?}, which is gone");
    }

    /// Each handle counts, in its way: an open under way may count besides.
    fn check_handles(&self) {
        self.open.iter().for_each(|(ino, count)| self.check_open(*ino, *count));
        let mut open: BTreeMap<Ino, [u32; 2]> = BTreeMap::new();
        for OpenFile { ino, way, .. } in self.handles.all() {
            open.entry(*ino).or_default()[usize::from(*way != Way::Cached)] += 1;
        }
        for (ino, [cached, backed]) in open {
            let counted = self.open.get(&ino).copied().unwrap_or(0);
            assert!(counted >= cached + backed, "{ino} is open {counted} times, by more handles");
            let known = self.nodes.descriptors(ino);
            assert!(known[0] >= cached && known[1] >= backed, "{ino} is open in other ways");
        }
    }

    /// The kernel has no more descriptors than there are opens.
    fn check_open(&self, ino: Ino, count: u32) {
        let [cached, backed] = self.nodes.descriptors(ino);
        assert!(count > 0, "{ino} is open, and by nobody");
        assert!(count >= cached + backed, "{ino} is open {count} times, by more descriptors");
    }

    /// What is to be removed is neither used nor being removed.
    fn check_scrap(&self) {
        let both = self.scrap.intersection(&self.going).next();
        assert!(both.is_none(), "{both:?} is removed twice");
        let is_used = |scrap: &&Scrap| match scrap {
            Scrap::Container(ino, id) => {
                self.files.get(ino).is_some_and(|file| file.container() == *id)
            }
            Scrap::Preserved(seq) => self.queue.change(*seq).is_some(),
        };
        let used = self.scrap.iter().chain(&self.going).find(is_used);
        assert!(used.is_none(), "{used:?} is used, and removed");
    }
}
