//! Invariants that hold between events. The simulator checks it after each step, and a
//! mount with debug assertions once a second. Cheap ones are always checked, where they change.

use std::collections::BTreeMap;

use super::Host;
use super::cache::Way;
use super::call::OpenFile;
use crate::nouns::Ino;

impl Host {
    /// Panics if the parts of the host contradict each other.
    pub fn check_invariants(&self) {
        assert!(self.next_seq <= self.seq_reserved, "numbers are reserved before they are used");
        let newest = self.queue.newest_seq();
        assert!(newest.is_none_or(|newest| newest < self.next_seq), "a change is from the future");
        self.queue.check_invariants();
        self.check_files();
        self.check_handles();
    }

    /// Pending data are known to the tree, and preserved bytes belong to pending changes.
    fn check_files(&self) {
        for (ino, file) in &self.files {
            let is_pending = !file.has_dirty() || self.tree.is_pending(*ino);
            assert!(is_pending || self.tree.peek(*ino).is_none(), "{ino} is written, and clean");
            let unfinished = [file.has_dirty(), file.is_ahead()];
            assert!(unfinished != [true, false], "{ino} is written, and not ahead of the server");
        }
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
