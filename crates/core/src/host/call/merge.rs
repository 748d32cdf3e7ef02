//! Merging of duplicates: directories, and files with the same contents.
//!
//! The server keeps both, the later one as a conflict copy. The host that made the copy moves all
//! entries of a directory into the other one, by changes like those of a user, and removes the
//! copy. Nothing is replaced: an entry whose name is taken there gets another name from the server.
//! Entries that may not be moved stay, and the copy with them. A file goes once it is the same as
//! the other one, which it may become later: a host sends names before data. It goes in the version
//! that was compared. A later write, here or on another host, keeps it.
//!
//! ```text
//!   look ─▶ for each name: move, remove, or merge below ─▶ outcomes ─▶ remove the directory
//! ```

use super::facts::{Facts, Halt, Known};
use super::{Answer, Call, Kept, KeptAs, NameCall, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Patience};
use crate::host::conflict::{Are, Duplicate, may_become_one};
use crate::host::log::{Change, Logged};
use crate::host::send::{Claim, WaiterId};
use crate::nouns::{Attr, Caller, Dentry, Ino, Kind, Name, Outcome, Record, RenameMode, Version};
use crate::refusal::Refusal;

/// Deepest tree that is merged: deeper ones stay as they are.
const DEPTH_MAX: usize = 200;

/// How far a merge came.
#[derive(Debug, Default)]
pub(super) struct Merging {
    is_begun: bool,
    /// The pairs under way, the outermost first.
    pairs: Vec<Pair>,
    /// The change that is under way.
    doing: Option<Doing>,
}

/// A copy, and the other one into which it goes.
#[derive(Debug)]
struct Pair {
    /// The copy, and its place.
    from: Ino,
    at: Dentry,
    into: Ino,
    /// Entries of the copy that are left to look at.
    names: Vec<(Name, Ino)>,
    /// Changes without an outcome.
    moving: Vec<Moving>,
    /// Moved files that got another name, to be kept for the user.
    beside: Vec<Kept>,
    /// An entry stays in it.
    is_left: bool,
    is_directory: bool,
}

#[derive(Debug)]
struct Moving {
    number: (u64, WaiterId),
    logged: Logged,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Move,
    /// A file that is the same as the other one.
    Remove,
    /// The directory, after its entries.
    RemoveDirectory,
}

/// The fate of an entry.
enum Fate {
    Stays,
    Moves,
    Goes(Version),
    Merges(Vec<(Name, Ino)>, Ino),
}

impl Host {
    /// The merge is over: its changes have no waiter any more.
    pub(super) fn stop_merging(&mut self, merging: &Merging) {
        let moving = merging.pairs.iter().flat_map(|pair| &pair.moving);
        moving.for_each(|Moving { number: (seq, waiter), .. }| self.waiters.leave(*seq, *waiter));
    }

    pub(super) fn attempt_merge(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Merge(duplicate) = &call.call else { return Err(Refusal::Invalid) };
        let duplicate = duplicate.clone();
        let by = Caller { pid: 0, process_group: 0, session: 0, ..duplicate.by.clone() };
        if call.has_inner() {
            let ended = self.go_on_inner(id, call, now);
            if call.inner.is_some() {
                return Ok(Next::Step);
            }
            self.did(call, ended)?;
        }
        loop {
            let begins = !call.so_far.merging.is_begun;
            let is_stepping = match call.so_far.merging.pairs.last_mut() {
                None if begins => self.begins_merge(id, call, (&duplicate, &by), now)?,
                None => return Ok(Next::Reply(Answer::default())),
                Some(pair) => match pair.names.pop() {
                    Some(named) => self.merges_name(id, call, (named, &by), now)?,
                    None => self.ends_pair(id, call, &by, now)?,
                },
            };
            if is_stepping {
                return Ok(Next::Step);
            }
        }
    }

    /// Begins with the outermost pair. True if an action is under way.
    fn begins_merge(
        &mut self,
        id: CallId,
        call: &mut Running,
        (duplicate, by): (&Duplicate, &Caller),
        now: Now,
    ) -> Result<bool, Refusal> {
        let decide = |host: &Host, known: Known<'_>| {
            let wanted = Dentry { parent: duplicate.at.parent, name: duplicate.name.clone() };
            let copy = known.name(&duplicate.at)?.filter(|copy| copy.ino == duplicate.ino);
            // It may be moved back, or another one may get the name.
            let (Some(copy), Some(into)) = (copy, known.name(&wanted)?) else {
                return Err(Refusal::Changed.into());
            };
            match host.fate(known, &copy, Some(&into))? {
                Fate::Goes(version) => Ok((Vec::new(), Some(version), into.ino)),
                Fate::Merges(names, into) => Ok((names, None, into)),
                Fate::Moves if copy.kind == Kind::Directory => Err(Refusal::NotPermitted.into()),
                Fate::Moves | Fate::Stays => Err(Refusal::Changed.into()),
            }
        };
        let Some((names, goes, into)) = self.with_facts(id, call, now, decide)? else {
            return Ok(true);
        };
        call.so_far.facts = Facts::default();
        call.so_far.merging.is_begun = true;
        let (from, at) = (duplicate.ino, duplicate.at.clone());
        let mut pair = Pair::new((from, at.clone()), into, names);
        pair.is_directory = goes.is_none();
        call.so_far.merging.pairs.push(pair);
        match goes {
            Some(version) => self.removes(id, call, (at, from, version), by, now),
            None => Ok(false),
        }
    }

    /// The fate of `ours`, where `there` has its name.
    fn fate(&self, known: Known<'_>, ours: &Attr, there: Option<&Attr>) -> Result<Fate, Halt> {
        let Some(there) = there else { return Ok(Fate::Moves) };
        if may_become_one(ours, there) {
            let mut names = known.listing(ours.ino)?.to_vec();
            names.reverse();
            return Ok(Fate::Merges(names, there.ino));
        }
        Ok(match self.are(known, ours, there)? {
            Are::Same => Fate::Goes(ours.data_version),
            Are::Unsettled => Fate::Stays,
            Are::Different => Fate::Moves,
        })
    }

    /// Decides about one name of the innermost directory, and does it. True if an action is under
    /// way.
    fn merges_name(
        &mut self,
        id: CallId,
        call: &mut Running,
        ((name, ino), by): ((Name, Ino), &Caller),
        now: Now,
    ) -> Result<bool, Refusal> {
        let Some(pair) = call.so_far.merging.pairs.last() else { return Ok(false) };
        let (at, to) = (pair.in_one(&name), pair.in_other(&name));
        let decide = |host: &Host, known: Known<'_>| {
            let (there, ours) = (known.name(&to)?, known.attr(ino)?);
            host.fate(known, &ours, there.as_ref())
        };
        let Some(fate) = self.with_facts(id, call, now, decide)? else {
            // It is looked at again once the answer is here.
            call.so_far.merging.pairs.last_mut().into_iter().for_each(|pair| {
                pair.names.push((name.clone(), ino));
            });
            return Ok(true);
        };
        call.so_far.facts = Facts::default();
        [at.clone(), to.clone()].into_iter().for_each(|at| self.act(Action::ForgetName(at)));
        match fate {
            Fate::Stays => {
                call.so_far.merging.stays();
                Ok(false)
            }
            Fate::Goes(version) => self.removes(id, call, (at, ino, version), by, now),
            Fate::Moves => {
                let Dentry { parent: from_parent, name: from_name } = at;
                let Dentry { parent: to_parent, name: to_name } = to;
                let (mode, open) = (RenameMode::Replace(None), false);
                let record =
                    Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open };
                self.does(id, call, (Doing::Move, change(record, by, None)), now)
            }
            Fate::Merges(names, into) => {
                if call.so_far.merging.pairs.len() > DEPTH_MAX {
                    return Err(Refusal::TooLarge);
                }
                call.so_far.merging.pairs.push(Pair::new((ino, at), into, names));
                Ok(false)
            }
        }
    }

    /// Removes one that is the same as the other. True if an action is under way.
    fn removes(
        &mut self,
        id: CallId,
        call: &mut Running,
        (at, ino, version): (Dentry, Ino, Version),
        by: &Caller,
        now: Now,
    ) -> Result<bool, Refusal> {
        let record = Record::Unlink { parent: at.parent, name: at.name, ino, open: false };
        self.does(id, call, (Doing::Remove, change(record, by, Some(version))), now)
    }

    /// Makes a change. True if an action is under way.
    fn does(
        &mut self,
        id: CallId,
        call: &mut Running,
        (doing, change): (Doing, Call),
        now: Now,
    ) -> Result<bool, Refusal> {
        call.so_far.merging.doing = Some(doing);
        let ended = self.begin_inner(id, call, change, now);
        if call.inner.is_some() {
            return Ok(true);
        }
        self.did(call, ended)?;
        Ok(false)
    }

    /// The change that was under way is logged, or is not.
    fn did(
        &mut self,
        call: &mut Running,
        ended: Result<Option<Answer>, Refusal>,
    ) -> Result<(), Refusal> {
        let merging = &mut call.so_far.merging;
        let (Some(doing), Some(pair)) = (merging.doing.take(), merging.pairs.last_mut()) else {
            return Ok(());
        };
        let answer = match (doing, ended) {
            // It is another one by now, or somebody has it open.
            (Doing::Remove, Err(Refusal::Changed)) => {
                pair.is_left = true;
                return Ok(());
            }
            // Something was made in it meanwhile.
            (Doing::RemoveDirectory, Err(Refusal::NotEmpty)) => {
                return merging.pops(true);
            }
            (Doing::RemoveDirectory, ended) => {
                ended?;
                let at = pair.at.clone();
                self.act(Action::ForgetData(at.parent));
                self.act(Action::ForgetName(at));
                return merging.pops(false);
            }
            (_, ended) => ended?.unwrap_or_default(),
        };
        let number = answer.waiter.ok_or(Refusal::Io)?;
        let logged = self.queue.iter_from(number.0).next().ok_or(Refusal::Io)?.clone();
        pair.moving.push(Moving { number, logged });
        Ok(())
    }

    /// All names of the innermost directory were looked at. True if an action is under way.
    fn ends_pair(
        &mut self,
        id: CallId,
        call: &mut Running,
        by: &Caller,
        now: Now,
    ) -> Result<bool, Refusal> {
        let Some(pair) = call.so_far.merging.pairs.last_mut() else { return Ok(false) };
        let is_told = |moving: &Moving| self.waiters.is_told(moving.number.1);
        if !pair.moving.iter().all(is_told) {
            // However long that takes: no refusal of these is the user's to deal with.
            self.awaits(id, call, Patience::Ever, None);
            return Ok(true);
        }
        for Moving { number, logged } in std::mem::take(&mut pair.moving) {
            match self.waiters.heard(number.1) {
                Some(Outcome::Refused { .. }) if logged.change.unnamed().is_some() => {
                    pair.is_left = true;
                }
                Some(Outcome::Refused { refusal }) => return Err(refusal),
                Some(Outcome::Conflict { parent, name, .. }) => {
                    pair.beside.extend(logged.moved_beside(Dentry { parent, name }));
                }
                _ => {}
            }
        }
        if let Some(kept) = pair.beside.pop() {
            call.step = Some(Step::Keep);
            self.act(Action::Keep(id, Box::new(kept)));
            return Ok(true);
        }
        let (from, into) = (pair.from, pair.into);
        let (at, is_left, is_directory) = (pair.at.clone(), pair.is_left, pair.is_directory);
        if !is_directory {
            self.act(Action::ForgetData(at.parent));
            return call.so_far.merging.pops(is_left).map(|()| false);
        }
        [from, into].into_iter().for_each(|ino| self.act(Action::ForgetData(ino)));
        match is_left {
            true => call.so_far.merging.pops(true).map(|()| false),
            false => {
                let removes = Call::Name(NameCall::Rmdir(at), by.clone());
                self.does(id, call, (Doing::RemoveDirectory, removes), now)
            }
        }
    }
}

impl Pair {
    fn new((from, at): (Ino, Dentry), into: Ino, names: Vec<(Name, Ino)>) -> Pair {
        let (moving, beside) = (Vec::new(), Vec::new());
        Pair { from, at, into, names, moving, beside, is_left: false, is_directory: true }
    }

    fn in_one(&self, name: &Name) -> Dentry {
        Dentry { parent: self.from, name: name.clone() }
    }

    fn in_other(&self, name: &Name) -> Dentry {
        Dentry { parent: self.into, name: name.clone() }
    }
}

impl Merging {
    /// Something stays in the innermost directory.
    fn stays(&mut self) {
        if let Some(pair) = self.pairs.last_mut() {
            pair.is_left = true;
        }
    }

    /// The innermost pair is done with, or one `is_left` of it.
    fn pops(&mut self, is_left: bool) -> Result<(), Refusal> {
        self.pairs.pop();
        match self.pairs.last_mut() {
            Some(above) => above.is_left |= is_left,
            None if is_left => return Err(Refusal::NotEmpty),
            None => {}
        }
        Ok(())
    }
}

impl Logged {
    /// The note for the user of a moved file that the server put `at` another name.
    fn moved_beside(self, at: Dentry) -> Option<Kept> {
        let Change::Record(Record::Rename { ino, to_name, .. }) = &self.change else {
            return None;
        };
        let (ino, name, by) = (*ino, to_name.clone(), self.caller.clone());
        let Dentry { parent, name: copy } = at.clone();
        let duplicate = Some(Box::new(Duplicate { at, name, ino, by }));
        Some(Kept { logged: self, to: KeptAs::Copy { parent, name: copy, duplicate } })
    }
}

/// A change that the merge waits for.
fn change(record: Record, by: &Caller, expects: Option<Version>) -> Call {
    Call::Change { record, caller: by.clone(), claim: Some(Claim::Answers), expects }
}
