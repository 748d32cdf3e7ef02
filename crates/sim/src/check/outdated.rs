//! Stores of a host that has changed or removed their file since, in a tail of its log that it lost
//! (`namespace::lost_tail`).

use segue_core::nouns::{Base, ClientId, OpId, Store};

use super::ledger::{FileState, Ledger};

impl Ledger {
    /// `client` knows the outcomes of all its records before this one.
    pub(crate) fn acked(&mut self, client: ClientId, below: u64) {
        let known = self.acked_below.entry(client).or_default();
        *known = below.max(*known);
    }

    /// True if the host of `op`, a store, has changed the file later, or removed it by a record of
    /// which it is `known` that it is.
    pub(super) fn is_outdated(
        &self,
        op: OpId,
        store: &Store,
        known: impl Fn(&OpId) -> bool,
    ) -> bool {
        let made_after = self.made_after(op, store);
        let is_later = |by: &OpId| by.client == op.client && by.seq > made_after;
        let removed_by = self.removed_by.get(&store.ino).filter(|by| known(by));
        self.is_rewritten(op, store, is_later) || removed_by.is_some_and(is_later)
    }

    /// True if the server may not have forgotten the outcome of `op`.
    pub(super) fn is_kept(&self, op: &OpId) -> bool {
        self.acked_below.get(&op.client).is_none_or(|below| op.seq >= *below)
    }

    /// The last record of its host that `op`, a store, follows.
    fn made_after(&self, op: OpId, store: &Store) -> u64 {
        match self.base_left(op, store) {
            None => op.seq,
            Some(Base::Result(seq)) => seq,
            Some(Base::Version(_)) => 0,
        }
    }

    /// What `op`, a store, was made from, if it is what a loss of power left.
    fn base_left(&self, op: OpId, store: &Store) -> Option<Base> {
        self.left.contains(&(op.client, op.seq)).then_some(store.base)
    }

    /// True if a record that `is_later` made what the file has, or its copy.
    fn is_rewritten(&self, op: OpId, store: &Store, is_later: impl Fn(&OpId) -> bool) -> bool {
        let is_newer = |file: &FileState| match self.base_left(op, store) {
            Some(Base::Version(version)) if file.version <= version => false,
            _ => file.made_by.iter().any(&is_later),
        };
        let copy = self.copies.get(&(op.client, store.ino));
        let files = [Some(&store.ino), copy].into_iter().flatten();
        let named = files.filter(|ino| self.is_named(**ino));
        named.filter_map(|ino| self.files.get(ino)).any(is_newer)
    }
}
