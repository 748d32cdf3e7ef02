//! A second opinion on every commit: what the record and its outcome say may have changed, and
//! nothing else.
//!
//! The ledger keeps its own dentries and contents, moved only by what outcomes say, so a file
//! whose bytes change or vanish without a committed record that says so is seen at that commit.
//!
//! Proves S9.1.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::namespace::{ApplyResult, keys};
use segue_core::nouns::{
    Attr, Base, ClientId, Fingerprint, Ino, Kind, Name, NewNode, OpId, Outcome, PieceBytes, Record,
    RenameMode, Stamped, Store, Version, VolumeId,
};

use super::lives::Lives;
use crate::Violation;
use crate::server::content;
use crate::store::{Txn, Written};

/// A name in a directory.
pub(crate) type LedgerName = (Ino, Vec<u8>);

/// A change of a dentry: before, after.
type Names = BTreeMap<LedgerName, (Option<Ino>, Option<Ino>)>;

/// A file as commits left it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct FileState {
    pub(crate) content: Vec<u8>,
    pub(crate) version: Version,
    /// Those that made it, or would have made the same.
    pub(super) made_by: Vec<OpId>,
}

/// All that was committed.
#[derive(Clone)]
pub(crate) struct Ledger {
    pub(super) volume: VolumeId,
    pub(crate) outcomes: BTreeMap<OpId, Outcome>,
    pub(crate) files: BTreeMap<Ino, FileState>,
    pub(crate) names: BTreeMap<LedgerName, Ino>,
    pub(super) copies: BTreeMap<(ClientId, Ino), Ino>,
    /// Orphans that went when a client's process began.
    dropped: BTreeSet<(ClientId, Ino)>,
    /// What else went, by which record.
    pub(super) removed_by: BTreeMap<Ino, OpId>,
    /// Before which of its records a host knows all outcomes, which the server may forget.
    pub(super) acked_below: BTreeMap<ClientId, u64>,
    /// Changes that are what a loss of power left.
    pub(super) left: BTreeSet<(ClientId, u64)>,
    /// Every inode that was ever made.
    pub(crate) seen: BTreeSet<Ino>,
    /// Every chunk that ever came.
    pub(crate) chunks: BTreeMap<Fingerprint, Vec<u8>>,
    /// The bytes of every leaf that was ever made.
    leaves: BTreeMap<Fingerprint, Vec<u8>>,
    pub(super) lives: Lives,
}

/// Rows that a commit wrote, by what they are.
#[derive(Default, Debug)]
struct Changes {
    names: Names,
    made: BTreeSet<Ino>,
    removed: BTreeSet<Ino>,
    /// Inodes whose extents or extended attributes changed.
    inside: BTreeSet<Ino>,
}

impl Ledger {
    pub(crate) fn new(volume: VolumeId) -> Ledger {
        Ledger {
            volume,
            outcomes: BTreeMap::new(),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            copies: BTreeMap::new(),
            dropped: BTreeSet::new(),
            removed_by: BTreeMap::new(),
            acked_below: BTreeMap::new(),
            left: BTreeSet::new(),
            seen: BTreeSet::new(),
            chunks: BTreeMap::new(),
            leaves: BTreeMap::new(),
            lives: Lives::default(),
        }
    }

    /// Changes that are what a loss of power left of what `client` had written.
    pub(crate) fn left(&mut self, client: ClientId, seqs: &BTreeSet<u64>) {
        self.left.extend(seqs.iter().map(|seq| (client, *seq)));
    }

    /// A leaf was made of these chunks.
    pub(crate) fn staged(
        &mut self,
        name: Fingerprint,
        chunks: &[(Fingerprint, u32)],
    ) -> Result<(), Violation> {
        let bytes = chunks.iter().map(|(chunk, _)| self.chunks.get(chunk).map(Vec::as_slice));
        let bytes: Option<Vec<&[u8]>> = bytes.collect();
        let bytes = bytes.ok_or_else(|| Violation("a leaf of chunks that never came".into()))?;
        self.leaves.insert(name, bytes.concat());
        Ok(())
    }

    /// A record was applied with `result`, and wrote `written`.
    pub(crate) fn applied(
        &mut self,
        txn: &mut Txn<'_>,
        (op, stamped, digest): (OpId, &Stamped, &[u8; 32]),
        result: &ApplyResult,
        written: &Written,
    ) -> Result<(), Violation> {
        self.learn_versions(txn, written);
        let sent = stamped;
        let stamped = &self.meant(op, sent);
        let wrong = |what: &str| Violation(format!("{op:?} {:?}: {what}", stamped.record));
        let outcome = match result {
            ApplyResult::Outcome(outcome) | ApplyResult::Repeated(outcome)
                if outcome.is_final() =>
            {
                outcome
            }
            _ if written.is_empty() => return Ok(()),
            _ => return Err(wrong("wrote without a final outcome")),
        };
        if let Some(known) = self.outcomes.get(&op) {
            return match known == outcome && written.is_empty() {
                true => Ok(()),
                false => Err(wrong(&format!("applied twice: {known:?}, then {outcome:?}"))),
            };
        }
        self.end_number(op.client, &sent.record);
        self.outcomes.insert(op, outcome.clone());
        self.lives.applied(op, digest, outcome).map_err(|Violation(what)| wrong(&what))?;
        let changes = self.changes(txn, written);
        self.removed_by.extend(changes.removed.iter().map(|ino| (*ino, op)));
        let expected = self.expected_names(&stamped.record, outcome);
        self.check_names(&changes, &expected, &stamped.record, outcome)
            .and_then(|()| self.check_known(op, stamped, &changes))
            .and_then(|()| self.check_inodes(&changes, &stamped.record, outcome))
            .and_then(|()| self.take_number(op, stamped, outcome, &changes.made))
            .and_then(|is_made| match is_made {
                true => self.take_data(txn, op, &stamped.record, outcome),
                false => Ok(()),
            })
            .map_err(|Violation(what)| wrong(&format!("{outcome:?}: {what}")))
    }

    /// The nameless files of `client` were dropped.
    pub(crate) fn orphans_dropped(
        &mut self,
        txn: &mut Txn<'_>,
        client: ClientId,
        written: &Written,
    ) -> Result<(), Violation> {
        self.learn_versions(txn, written);
        let changes = self.changes(txn, written);
        if !changes.names.is_empty() {
            return Err(Violation("names went with orphans".into()));
        }
        self.dropped.extend(changes.removed.iter().map(|ino| (client, *ino)));
        self.check_removed(&changes.removed)
    }

    fn changes(&self, txn: &Txn<'_>, written: &Written) -> Changes {
        let tag = |key: Vec<u8>| key[0];
        let inode = tag(keys::inode(self.volume, Ino::ROOT));
        let dentry = tag(keys::dentry(self.volume, Ino::ROOT, b""));
        let xattr = tag(keys::xattr(self.volume, Ino::ROOT, b""));
        let extent = tag(keys::all_extents(self.volume));
        let mut changes = Changes::default();
        for (key, old) in written {
            let new = txn.rows().0.get(key);
            // The key of an inode, and what follows it.
            let Some((head, rest)) = key.split_at_checked(13) else { continue };
            let ino = Ino(head[5..].iter().fold(0, |ino, &byte| ino << 8 | u64::from(byte)));
            if head[0] == dentry {
                let target = |value: &Vec<u8>| postcard::from_bytes(value).unwrap_or(Ino(0));
                let change = (old.as_ref().map(target), new.map(target));
                if change.0 != change.1 {
                    changes.names.insert((ino, rest.to_vec()), change);
                }
            } else if head[0] == inode {
                match (old.is_some(), new.is_some()) {
                    (false, true) => drop(changes.made.insert(ino)),
                    (true, false) => drop(changes.removed.insert(ino)),
                    _ => {}
                }
            } else if (head[0] == xattr || head[0] == extent) && old.as_ref() != new {
                changes.inside.insert(ino);
            }
        }
        changes
    }

    /// True if `ino` can be reached by a name: what was written to it must be there.
    pub(crate) fn is_named(&self, ino: Ino) -> bool {
        self.names.values().any(|named| *named == ino)
    }

    fn named(&self, parent: Ino, name: &Name) -> Option<Ino> {
        self.names.get(&(parent, name.as_bytes().to_vec())).copied()
    }

    /// The changes of names that `outcome` of `record` stands for.
    fn expected_names(&self, record: &Record, outcome: &Outcome) -> Names {
        let at = |parent: Ino, name: &Name| (parent, name.as_bytes().to_vec());
        let mut names = Names::new();
        let mut set = |parent, name: &Name, new| {
            let old = self.named(parent, name);
            if old != new {
                names.insert(at(parent, name), (old, new));
            }
        };
        match (record, outcome) {
            (Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, .. }, _) => {
                let place = match outcome {
                    Outcome::Done { .. } => Some((*to_parent, to_name)),
                    Outcome::Conflict { parent, name, .. } => Some((*parent, name)),
                    _ => None,
                };
                let Some((parent, name)) = place else { return names };
                if self.named(parent, name) == Some(*ino) {
                    return names;
                }
                let left = match mode {
                    RenameMode::Exchange(other) => Some(*other),
                    _ => None,
                };
                set(*from_parent, from_name, left);
                set(parent, name, Some(*ino));
            }
            (
                Record::Create { ino, parent, name, .. } | Record::Link { ino, parent, name },
                Outcome::Done { .. },
            ) => set(*parent, name, Some(*ino)),
            (
                Record::Unlink { parent, name, .. } | Record::Rmdir { parent, name, .. },
                Outcome::Done { .. },
            ) => set(*parent, name, None),
            (_, Outcome::Conflict { parent, name, copy, .. }) => set(*parent, name, Some(*copy)),
            _ => {}
        }
        names
    }

    fn check_names(
        &mut self,
        changes: &Changes,
        expected: &Names,
        record: &Record,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        // A conflict copy may need the directories for those that have no other place.
        let has_copy = matches!(record, Record::Store(_) | Record::Create { .. });
        let shelter = has_copy && matches!(outcome, Outcome::Conflict { .. });
        let made_here = |(old, new): &(Option<Ino>, Option<Ino>)| {
            old.is_none() && new.is_some_and(|ino| changes.made.contains(&ino))
        };
        for (place, change) in &changes.names {
            let explained = expected.get(place) == Some(change);
            if !(explained || shelter && made_here(change)) {
                return Err(Violation(format!("{place:?} went {change:?}")));
            }
        }
        if let Some(missing) = expected.keys().find(|place| !changes.names.contains_key(*place)) {
            return Err(Violation(format!("{missing:?} did not change")));
        }
        for (place, (_, new)) in &changes.names {
            match new {
                Some(ino) => self.names.insert(place.clone(), *ino),
                None => self.names.remove(place),
            };
        }
        Ok(())
    }

    /// What its host had not seen of a file is there still, also where the host removed it.
    fn check_known(&self, op: OpId, stamped: &Stamped, changes: &Changes) -> Result<(), Violation> {
        let lost_a_name = |ino: &Ino| changes.names.values().any(|(old, _)| *old == Some(*ino));
        let removed = stamped.record.unnamed().filter(lost_a_name);
        let (Some(known), Some(ino)) = (stamped.known, removed) else { return Ok(()) };
        let file = self.files.get(&ino).filter(|_| !self.is_named(ino));
        match file.is_none_or(|file| is_base(file, op, known)) {
            true => Ok(()),
            false => Err(Violation(format!("#{ino} went with what its host had not seen"))),
        }
    }

    fn check_inodes(
        &mut self,
        changes: &Changes,
        record: &Record,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        let mut may_go: Vec<Ino> = Vec::new();
        match record {
            Record::Unlink { ino, .. } | Record::Rmdir { ino, .. } | Record::Release { ino } => {
                may_go.push(*ino);
            }
            Record::Rename { mode: RenameMode::Replace(Some(ino)), .. } => may_go.push(*ino),
            _ => {}
        }
        if let Some(gone) = changes.removed.iter().find(|ino| !may_go.contains(ino)) {
            return Err(Violation(format!("#{gone} went")));
        }
        let about = match outcome {
            Outcome::Conflict { copy, .. } => Some(*copy),
            _ => None,
        };
        let own = |ino: &Ino| {
            *ino == record.ino()
                || Some(*ino) == about
                || changes.removed.contains(ino)
                || self.copies.values().any(|copy| copy == ino)
        };
        if let Some(other) = changes.inside.iter().find(|ino| !own(ino)) {
            return Err(Violation(format!("the inside of #{other} changed")));
        }
        self.seen.extend(&changes.made);
        self.check_removed(&changes.removed)
    }

    fn check_removed(&mut self, removed: &BTreeSet<Ino>) -> Result<(), Violation> {
        for ino in removed {
            if let Some((place, _)) = self.names.iter().find(|(_, named)| *named == ino) {
                return Err(Violation(format!("#{ino} went and is still named {place:?}")));
            }
            self.files.remove(ino);
        }
        Ok(())
    }

    /// Moves the contents on, and compares the server's with them.
    fn take_data(
        &mut self,
        txn: &mut Txn<'_>,
        op: OpId,
        record: &Record,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        match (record, outcome) {
            (_, Outcome::Refused { .. }) => Ok(()),
            (Record::Store(store), Outcome::Done { touched }) if touched.is_empty() => {
                self.check_left_out(op, store)
            }
            (
                Record::Create { ino, node: NewNode::File, .. },
                Outcome::Done { touched } | Outcome::Conflict { touched, .. },
            ) => {
                let ino = match outcome {
                    Outcome::Conflict { copy, .. } => *copy,
                    _ => *ino,
                };
                let version = attr_of(touched, ino)?.data_version;
                let state = FileState { content: Vec::new(), version, made_by: vec![op] };
                self.lives.given(ino, &state)?;
                self.files.insert(ino, state);
                Ok(())
            }
            (Record::Store(store), Outcome::Done { touched }) => {
                self.take_store(txn, op, store, touched)
            }
            (Record::Clone { ino, base, from, version }, Outcome::Done { touched }) => {
                self.take_clone(txn, op, (*ino, *base), (*from, *version), touched)
            }
            (Record::Store(store), Outcome::Conflict { touched, copy, .. }) => {
                if !store.whole {
                    return Err(Violation("a conflict copy of a part".into()));
                }
                // Without a name it may be there for another client, which has it open.
                let is_named = self.is_named(store.ino);
                let original = self.files.get(&store.ino).filter(|_| is_named);
                // What the other one of two copies did is of this client, and of another host.
                let is_own =
                    self.is_outdated(op, store, |by| self.is_kept(by)) && !self.lives.may_be_two();
                if is_own || original.is_some_and(|file| is_base(file, op, store.base)) {
                    return Err(Violation("a conflict with nobody".into()));
                }
                self.copies.insert((op.client, store.ino), *copy);
                self.write(txn, op, store, (*copy, attr_of(touched, *copy)?.data_version))
            }
            _ => Ok(()),
        }
    }

    /// A store changed nothing: all hosts that had the file open have let it go, or its own host
    /// has forgotten what it did later.
    fn check_left_out(&self, op: OpId, store: &Store) -> Result<(), Violation> {
        let is_dropped = self.dropped.contains(&(op.client, store.ino));
        match is_dropped || self.is_outdated(op, store, |_| true) {
            true => Ok(()),
            false => Err(Violation("was left out".into())),
        }
    }

    /// True if `ino` was removed once, in a history that was lost too: its host may have heard it.
    pub(crate) fn was_removed(&self, ino: Ino) -> bool {
        self.removed_by.contains_key(&ino)
            || self.dropped.iter().any(|(_, dropped)| *dropped == ino)
            || self.lives.nameless.contains(&ino)
    }

    /// A copy is of that version, or there is none. Either way an empty file that nobody else
    /// changed is the result of it.
    fn take_clone(
        &mut self,
        txn: &mut Txn<'_>,
        op: OpId,
        (ino, base): (Ino, Base),
        (from, version): (Ino, Version),
        touched: &[Attr],
    ) -> Result<(), Violation> {
        let Some(attr) = touched.iter().find(|attr| attr.ino == ino) else { return Ok(()) };
        let source = self.files.get(&from).filter(|source| source.version == version).cloned();
        let Some(file) = self.files.get_mut(&ino) else { return Ok(()) };
        if !file.content.is_empty() || !is_base(file, op, base) {
            return match attr.data_version == file.version {
                true => Ok(()),
                false => Err(Violation(format!("#{ino} was cloned over"))),
            };
        }
        file.made_by = vec![op];
        if attr.data_version == file.version {
            return Ok(());
        }
        let source = source.ok_or_else(|| Violation(format!("#{ino} is of another version")))?;
        (file.content, file.version) = (source.content, attr.data_version);
        let state = file.clone();
        self.lives.given(ino, &state)?;
        match content(txn, self.volume, ino)? == state.content {
            true => Ok(()),
            false => Err(Violation(format!("#{ino} is another copy"))),
        }
    }

    fn take_store(
        &mut self,
        txn: &mut Txn<'_>,
        op: OpId,
        store: &Store,
        touched: &[Attr],
    ) -> Result<(), Violation> {
        let [Attr { ino, kind: Kind::File, data_version, .. }] = touched else {
            return Err(Violation("a store touches one file".into()));
        };
        let known = *ino == store.ino
            || self.copies.get(&(op.client, store.ino)).is_some_and(|copy| copy == ino);
        let file = self.files.get(ino).filter(|_| known);
        let file = file.ok_or_else(|| Violation(format!("stored into #{ino}")))?;
        if !is_base(file, op, store.base) {
            let mut same = Vec::new();
            self.splice(store, &mut same)?;
            if store.whole && same == file.content && *data_version == file.version {
                self.files.entry(*ino).or_default().made_by.push(op);
                return Ok(());
            }
            let words = format!("#{ino} was overwritten: it was made by {:?}", file.made_by);
            return Err(Violation(words));
        }
        self.write(txn, op, store, (*ino, *data_version))
    }

    fn write(
        &mut self,
        txn: &mut Txn<'_>,
        op: OpId,
        store: &Store,
        (ino, version): (Ino, Version),
    ) -> Result<(), Violation> {
        let mut bytes = std::mem::take(&mut self.files.entry(ino).or_default().content);
        self.splice(store, &mut bytes)?;
        let is_so = content(txn, self.volume, ino)? == bytes;
        let state = FileState { content: bytes, version, made_by: vec![op] };
        self.lives.given(ino, &state)?;
        self.files.insert(ino, state);
        match is_so {
            true => Ok(()),
            false => Err(Violation(format!("#{ino} has other bytes than were stored"))),
        }
    }

    /// Makes of `bytes` what `store` makes of them.
    fn splice(&self, store: &Store, bytes: &mut Vec<u8>) -> Result<(), Violation> {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        if store.whole {
            bytes.clear();
        }
        bytes.truncate(index(store.cut.unwrap_or(u64::MAX)));
        bytes.resize(index(store.size), 0);
        for piece in &store.pieces {
            let at = index(piece.offset);
            match &piece.bytes {
                PieceBytes::Inline(new) => bytes[at..at + new.len()].copy_from_slice(new),
                PieceBytes::Chunk { fingerprint: name, .. }
                | PieceBytes::Leaf { leaf: name, .. } => {
                    let known = self.chunks.get(name).or_else(|| self.leaves.get(name));
                    let known = known.ok_or_else(|| Violation("a chunk that never came".into()))?;
                    bytes[at..at + known.len()].copy_from_slice(known);
                }
                _ => bytes[at..at + index(piece.len())].fill(0),
            }
        }
        Ok(())
    }
}

fn is_base(file: &FileState, op: OpId, base: Base) -> bool {
    match base {
        Base::Version(version) => file.version == version,
        Base::Result(seq) => file.made_by.contains(&OpId { seq, ..op }),
    }
}

fn attr_of(touched: &[Attr], ino: Ino) -> Result<&Attr, Violation> {
    let found = touched.iter().find(|attr| attr.ino == ino);
    found.ok_or_else(|| Violation(format!("the outcome does not say what #{ino} is")))
}
