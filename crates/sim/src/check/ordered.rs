//! What goes to the server before what, by the rule as a user could tell it: changes of one inode,
//! what a process group does to names, and what a session does behind a sync.
//!
//! Proves S7.4, S7.6, S7.7, S11.5.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use segue_core::host::log::{Change, Logged};
use segue_core::nouns::{Ino, Record};

use crate::Violation;

/// A change, as far as its order goes.
#[derive(Clone, Debug)]
struct Made {
    ino: Ino,
    group: u32,
    /// It moves or takes names, or gives a further one.
    is_of_names: bool,
    is_data: bool,
    /// What syncs covered before it.
    after: BTreeSet<u64>,
}

impl Made {
    /// True if `later` must not go before this one.
    fn is_before(&self, seq: u64, later: &Made) -> bool {
        let is_named = self.is_of_names && self.group == later.group;
        self.ino == later.ino
            || is_named && (later.is_of_names || later.is_data)
            || later.after.contains(&seq)
    }
}

/// What was changed and is not settled, and what syncs covered.
#[derive(Clone, Debug, Default)]
pub(super) struct Ordered {
    made: BTreeMap<u64, Rc<Made>>,
    covered: BTreeMap<u32, BTreeSet<u64>>,
}

impl Ordered {
    /// A change by this process group and these sessions was logged.
    pub(super) fn logged(&mut self, logged: &Logged, group: u32, sessions: &BTreeSet<u32>) {
        let is_of_names = matches!(
            logged.change,
            Change::Record(
                Record::Link { .. }
                    | Record::Unlink { .. }
                    | Record::Rmdir { .. }
                    | Record::Rename { .. }
            )
        );
        let made = Made {
            ino: logged.change.ino(),
            group,
            is_of_names,
            is_data: matches!(logged.change, Change::Data(_)),
            after: self.covered_by(sessions),
        };
        self.made.insert(logged.seq, Rc::new(made));
    }

    /// What these sessions wrote became part of change `seq`.
    pub(super) fn amended(&mut self, seq: u64, sessions: &BTreeSet<u32>) {
        let covered = self.covered_by(sessions);
        if let Some(made) = self.made.get_mut(&seq) {
            let after = &mut Rc::make_mut(made).after;
            after.extend(covered);
            after.remove(&seq);
        }
    }

    fn covered_by(&self, sessions: &BTreeSet<u32>) -> BTreeSet<u64> {
        sessions.iter().filter_map(|session| self.covered.get(session)).flatten().copied().collect()
    }

    /// Covers the changes of `ino` so far by a sync of `session`.
    pub(super) fn cover(&mut self, session: u32, ino: Ino) {
        let of_file = self.made.iter().filter(|(_, made)| made.ino == ino);
        self.covered.entry(session).or_default().extend(of_file.map(|(seq, _)| *seq));
    }

    /// The process died, and what it knew of sessions with it.
    pub(super) fn crashed(&mut self) {
        self.covered.clear();
    }

    /// Change `seq` is settled.
    pub(super) fn settled(&mut self, seq: u64) {
        self.made.remove(&seq);
    }

    /// Change `seq` is sent behind these.
    pub(super) fn sent(&self, seq: u64, is_there: impl Fn(u64) -> bool) -> Result<(), Violation> {
        let Some(made) = self.made.get(&seq) else { return Ok(()) };
        let mut earlier = self.made.range(..seq).filter(|(other, _)| !is_there(**other));
        match earlier.find(|(other, earlier)| earlier.is_before(**other, made)) {
            Some((other, earlier)) => {
                Err(Violation(format!("{seq} {made:?} is sent before {other} {earlier:?}")))
            }
            None => Ok(()),
        }
    }
}
