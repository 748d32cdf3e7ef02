//! What an outcome changes here: the change leaves the queue, and what is cached follows the
//! server again where nothing of this host is left.

use std::collections::BTreeSet;

use crate::host::cache::{AsOf, FileData, Tree};
use crate::host::log::{Change, Logged};
use crate::host::{Effect, Host};
use crate::nouns::{Attr, Ino, Kind, Name, Outcome, Record, Touched, names_after, touched};

impl Host {
    /// The server's final answer to change `seq`. Log `Entry::Settled` with it before.
    ///
    /// What is not promised of it is as of when the change was first sent: the server repeats what
    /// it answered then.
    pub(in crate::host) fn settle(
        &mut self,
        seq: u64,
        outcome: &Outcome,
        as_of: &AsOf,
    ) -> Vec<Effect> {
        let as_of = &self.queue.sent(seq).map_or(as_of.clone(), |sent| as_of.asked_at(sent));
        let Some(logged) = self.queue.settle(seq) else { return Vec::new() };
        self.covered.retain(|_, seqs| {
            seqs.remove(&seq);
            !seqs.is_empty()
        });
        self.forget_ended();
        self.whole.remove(&seq);
        self.ahead.settled(&logged);
        self.pending.less(logged.change.bytes());
        let effects = self.settle_logged(&logged, outcome, as_of);
        if let Change::Data(data) = &logged.change {
            self.release_data(seq, data);
        }
        effects
    }

    /// The number of another inode that `logged` gave to a new one. Before `outcome` is logged,
    /// data under that number are sealed and the number is released: later changes are of the
    /// other inode. `None` also if that was done before.
    pub fn number_to_release(&self, logged: &Logged, outcome: &Outcome) -> Option<Ino> {
        logged.mistaken(outcome).filter(|ino| !self.ends_with_release(*ino))
    }

    fn settle_logged(&mut self, logged: &Logged, outcome: &Outcome, as_of: &AsOf) -> Vec<Effect> {
        let seq = logged.seq;
        self.room.settled(seq, !matches!(outcome, Outcome::Refused { .. }));
        let ino = logged.change.ino();
        let is_data =
            matches!(logged.change, Change::Data(_) | Change::Record(Record::Clone { .. }));
        let touched = match &logged.change {
            Change::Record(record) => touched(record),
            Change::Data(data) => Touched { inodes: vec![data.ino], names: Vec::new() },
        };
        match outcome {
            Outcome::Done { touched: attrs } => {
                let mut replaced = None;
                if was_there(&logged.change, attrs) {
                    replaced = self.give_up(seq, ino, attrs);
                    self.tree.mistook(ino);
                } else {
                    self.data_committed(seq, ino, attrs, &logged.change);
                }
                let doubtful = self.drop_doubtful(ino);
                self.doubt_unrelated(&touched, attrs, as_of);
                self.settle_names(touched, &logged.change, attrs, as_of);
                let moved = self.learn(attrs, as_of);
                let orphan = self.note_orphan(&logged.change, outcome);
                let released = orphan.filter(|ino| self.ends_unsent(*ino)).map(Effect::Release);
                // It followed an earlier change of ours into that one's conflict copy.
                let is_elsewhere = is_data && !attrs.iter().any(|attr| attr.ino == ino);
                let given_up = is_elsewhere.then(|| self.give_up(seq, ino, &[])).flatten();
                let own = doubtful.into_iter().chain(replaced).chain(released).chain(given_up);
                own.chain(moved).collect()
            }
            Outcome::Conflict { parent, name, touched: attrs, .. } => {
                self.tree.undo(&touched);
                self.keep_name(&logged.change);
                self.tree.expire(*parent);
                let is_mistaken = logged.mistaken(outcome).is_some();
                if is_mistaken {
                    self.tree.mistook(ino);
                }
                let mut effects =
                    vec![Effect::Conflict { ino, parent: *parent, name: name.clone() }];
                if is_data || is_mistaken {
                    effects.extend(self.give_up(seq, ino, attrs));
                } else {
                    self.data_committed(seq, ino, attrs, &logged.change);
                }
                effects.extend(self.learn(attrs, as_of));
                effects
            }
            Outcome::Refused { refusal } => {
                self.tree.undo(&touched);
                self.keep_name(&logged.change);
                let mut effects = vec![Effect::Refused { refusal: *refusal }];
                let is_create = matches!(logged.change, Change::Record(Record::Create { .. }));
                if is_create {
                    self.tree.mistook(ino);
                }
                if is_data || is_create {
                    let given_up = self.give_up(seq, ino, &[]);
                    if given_up.is_some() {
                        self.tree.lose_size(ino);
                    }
                    effects.extend(given_up);
                }
                effects
            }
            Outcome::NeedsWhole | Outcome::Missing { .. } => {
                unreachable!("only final outcomes settle a change")
            }
        }
    }

    /// `change`, which touched these, is committed. Where the server says nothing of a directory it
    /// did nothing there: a file that was renamed over another name of itself has both. Where it
    /// says nothing of the inode that got a name, that inode has another number.
    fn settle_names(&mut self, touched: Touched, change: &Change, attrs: &[Attr], as_of: &AsOf) {
        let Touched { inodes, names } = touched;
        let is_said = |ino: &Ino| attrs.iter().any(|attr| attr.ino == *ino);
        let given = match change {
            Change::Record(record) => names_after(record),
            Change::Data(_) => Vec::new(),
        };
        let is_renumbered = |key: &(Ino, Name)| {
            given.iter().any(|(name, ino)| name == key && !ino.as_ref().is_none_or(is_said))
        };
        let is_changed = |key: &(Ino, Name)| is_said(&key.0) && !is_renumbered(key);
        let (names, unchanged) = names.into_iter().partition(is_changed);
        self.tree.settle(&Touched { inodes, names }, as_of);
        self.tree.undo(&Touched { inodes: Vec::new(), names: unchanged });
    }

    /// Takes in the attributes in an outcome. If another host wrote to a file meanwhile, its cached
    /// data are forgotten.
    fn learn(&mut self, attrs: &[Attr], as_of: &AsOf) -> Vec<Effect> {
        let version = |tree: &Tree, ino| {
            let file = tree.peek(ino).filter(|attr| attr.kind == Kind::File);
            file.map(|attr| attr.data_version)
        };
        let before: Vec<_> = attrs.iter().map(|attr| version(&self.tree, attr.ino)).collect();
        let files = &self.files;
        let ahead = |ino| files.get(&ino).is_some_and(FileData::is_ahead);
        self.tree.learn(attrs, ahead, as_of);
        let mut moved = Vec::new();
        for (ino, before) in attrs.iter().map(|attr| attr.ino).zip(before) {
            let Some(now) = version(&self.tree, ino) else { continue };
            // A later version may have been told of while the file was ahead of the server.
            let has_moved = Some(now) != before;
            let is_here = self.files.get(&ino).is_some_and(|file| file.version() == now);
            if !is_here && (self.observe(ino, now) || has_moved && !self.is_ahead(ino)) {
                moved.push(Effect::Replace(ino));
            }
        }
        moved
    }

    /// A change that will not be took no name.
    fn keep_name(&mut self, change: &Change) {
        if let Change::Record(record) = change
            && let Some(ino) = record.removed()
        {
            self.let_go(ino);
        }
    }

    /// Nothing is promised of an inode that only the change or only its outcome speaks of. The
    /// server knows it by another number than this host, or has removed it.
    fn doubt_unrelated(&mut self, touched: &Touched, attrs: &[Attr], as_of: &AsOf) {
        let told = attrs.iter().map(|attr| attr.ino).collect::<BTreeSet<Ino>>();
        let asked = touched.inodes.iter().copied().collect::<BTreeSet<Ino>>();
        for ino in told.symmetric_difference(&asked) {
            self.tree.broken(*ino, as_of.came());
        }
    }

    /// The file that has lost its last name by `change`, and that the server keeps for this host.
    fn note_orphan(&mut self, change: &Change, outcome: &Outcome) -> Option<Ino> {
        let Change::Record(record) = change else { return None };
        let ino = record.unnamed().filter(|ino| outcome.leaves_nameless(*ino))?;
        self.tree.mark_orphan(ino);
        self.files.get_mut(&ino).map(FileData::not_noted);
        record.keeps_unnamed().then_some(ino)
    }

    fn data_committed(&mut self, seq: u64, ino: Ino, attrs: &[Attr], change: &Change) {
        let about_data = matches!(
            change,
            Change::Data(_) | Change::Record(Record::Create { .. } | Record::Clone { .. })
        );
        let attr = attrs.iter().find(|attr| attr.ino == ino);
        if let (true, Some(file), Some(attr)) = (about_data, self.files.get_mut(&ino), attr) {
            file.committed(seq, attr.data_version);
        }
    }

    /// The server has all of a file that was ahead of it when the host went down: a change that was
    /// sent before had what the file was then, and the container may have later bytes by now.
    fn drop_doubtful(&mut self, ino: Ino) -> Option<Effect> {
        let fresh = self.fresh_container();
        let file = self.files.get_mut(&ino).filter(|file| file.is_to_go())?;
        let old = file.container();
        file.discard(file.version(), fresh);
        self.abandon(ino, old);
        Some(Effect::Replace(ino))
    }

    /// Our version of the data stands elsewhere now: what is here follows the server again,
    /// once nothing that was written after it waits in the container.
    fn give_up(&mut self, seq: u64, ino: Ino, attrs: &[Attr]) -> Option<Effect> {
        let fresh = self.fresh_container();
        let mut abandoned = None;
        let mut waits = self.is_queued(ino);
        if let Some(file) = self.files.get_mut(&ino) {
            file.withdrawn(seq);
            waits |= file.is_ahead();
            if !waits {
                let kept = attrs.iter().find(|attr| attr.ino == ino);
                // A refusal says nothing of the file: what was known of it before still holds.
                let known = kept.or_else(|| self.tree.peek(ino));
                abandoned = Some(file.container());
                file.discard(known.map(|attr| attr.data_version).unwrap_or_default(), fresh);
            }
        }
        if let Some(container) = abandoned {
            self.abandon(ino, container);
        }
        (!waits).then_some(Effect::Replace(ino))
    }
}

/// True if `change` creates an inode that existed, because another copy of this cache had sent the
/// same change, and that has changed since. A new inode has the version of its directory. An empty
/// file with one version has nothing yet that could be lost.
fn was_there(change: &Change, attrs: &[Attr]) -> bool {
    let Change::Record(Record::Create { parent, ino, .. }) = change else { return false };
    let of = |ino: Ino| attrs.iter().find(|attr| attr.ino == ino);
    let Some((made, home)) = of(*ino).zip(of(*parent)) else { return false };
    let is_empty = made.kind == Kind::File && made.size == 0;
    made.change != made.data_version || made.change != home.change && !is_empty
}
