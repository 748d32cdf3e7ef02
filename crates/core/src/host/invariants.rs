//! Invariants that hold between events. All parts of a host are checked by the simulator after each
//! step, and by a mount with debug assertions once a second. Every build checks some after each
//! event, in turn, and sums where they change.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Host;
use super::cache::{FileData, Way};
use super::call::OpenFile;
use crate::nouns::Ino;

/// So many files, and so many changes, are checked after each event.
const IN_TURN: usize = 1;

/// The parts that were checked last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    file: Option<Ino>,
    change: Option<u64>,
}

/// Behind `last`, or from the beginning on.
fn behind<T>(last: Option<T>) -> (Bound<T>, Bound<T>) {
    (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl Host {
    /// Panics if the parts whose turn it is contradict others.
    pub(super) fn check_in_turn(&mut self) {
        self.check_numbers();
        let mut last = None;
        for (ino, file) in self.files.range(behind(self.turn.file)).take(IN_TURN) {
            self.check_file(*ino, file);
            last = Some(*ino);
        }
        self.turn.file = last;
        self.turn.change = self.queue.check_in_turn(behind(self.turn.change), IN_TURN);
    }

    /// Panics if the parts of the host contradict each other.
    pub fn check_invariants(&self) {
        self.check_numbers();
        self.queue.check_invariants();
        self.check_files();
        self.check_handles();
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
}
