//! Messages that can be told apart, and which of them arrived whole.

use std::collections::BTreeSet;

use bytes::Bytes;
use segue_core::chunk::fingerprint;
use segue_core::nouns::Fingerprint;

use crate::workload::content::noise;
use segue_bed::Rng;

/// The message of this number: noise, the same at both ends.
pub(super) fn message(number: u64, bytes: usize) -> Bytes {
    noise(&mut Rng::new(number), bytes).into()
}

/// What arrived.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    whole: BTreeSet<Fingerprint>,
    again: u64,
}

impl Ledger {
    /// Takes in a message that was announced by its name; false if it is not the one.
    pub(super) fn enter(&mut self, name: Fingerprint, message: &[u8]) -> bool {
        if fingerprint(message) != name {
            return false;
        }
        self.again += u64::from(!self.whole.insert(name));
        true
    }

    /// How many different ones arrived, and how often one that was here already.
    pub(super) fn counts(&self) -> [u64; 2] {
        [self.whole.len() as u64, self.again]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_messages_count_and_each_once() {
        let mut ledger = Ledger::default();
        let (one, other) = (message(1, 1000), message(2, 1000));
        assert_ne!(one, other);
        assert!(ledger.enter(fingerprint(&one), &one));
        assert!(ledger.enter(fingerprint(&one), &one));
        assert!(ledger.enter(fingerprint(&other), &other));
        assert!(!ledger.enter(fingerprint(&one), &other));
        assert!(!ledger.enter(fingerprint(&one), &one[..999]));
        assert_eq!(ledger.counts(), [2, 1]);
    }
}
