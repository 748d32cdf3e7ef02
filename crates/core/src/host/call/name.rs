//! Calls that change names and attributes: which facts each needs, when it is refused, and the
//! record that it becomes.

use super::facts::{Facts, Halt, Known};
use super::{Answer, Call, Next, Running};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Reach, Task};
use crate::host::log::Writers;
use crate::host::send::Claim;
use crate::namespace::check_border;
use crate::nouns::SetAttr;
use crate::nouns::{Attr, Caller, Dentry, Ino, Kind, NewNode, Record, RenameMode, SYMLINK_MAX};
use crate::refusal::Refusal;

/// A change of names or attributes, as a program asks for it.
#[derive(Clone, PartialEq, Debug)]
pub enum NameCall {
    /// A new inode under a new name.
    Create {
        /// The name.
        at: Dentry,
        /// What it names.
        node: NewNode,
        /// Permissions.
        mode: u32,
        /// No host may have the name.
        exclusive: bool,
    },
    /// A further name.
    Link {
        /// Of this inode.
        ino: Ino,
        /// The name.
        at: Dentry,
    },
    /// The removal of a name of anything but a directory.
    Unlink(Dentry),
    /// The removal of an empty directory.
    Rmdir(Dentry),
    /// Another name instead of one.
    Rename {
        /// The one.
        from: Dentry,
        /// The other.
        to: Dentry,
        /// What may be there.
        flag: RenameFlag,
    },
    /// Attributes. Ids are those of this host.
    SetAttr {
        /// Of this inode.
        ino: Ino,
        /// The new ones.
        set: SetAttr,
    },
    /// An extended attribute.
    SetXattr {
        /// Of this inode.
        ino: Ino,
        /// Its name.
        name: Vec<u8>,
        /// Its value. `None`: it is removed.
        value: Option<Vec<u8>>,
    },
}

/// What a rename makes of the file that has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameFlag {
    /// It is replaced.
    Replace,
    /// There must be none.
    NoReplace,
    /// It gets the other name.
    Exchange,
}

impl Host {
    pub(super) fn attempt_name(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Name(asked, caller) = &call.call else { return Err(Refusal::Invalid) };
        let is_exclusive = match asked {
            NameCall::Create { node, exclusive, .. } => *exclusive || *node != NewNode::File,
            NameCall::Rename { flag, .. } => *flag == RenameFlag::NoReplace,
            NameCall::Link { .. } => true,
            _ => false,
        };
        let caller = caller.clone();
        let asked = asked.clone();
        let decide = |host: &Host, known: Known<'_>| host.record_of(&asked, &caller, known, now);
        let Some(record) = self.with_facts(id, call, now, decide)? else { return Ok(Next::Step) };
        // It would change nothing.
        let Some(record) = record else { return Ok(Next::Reply(Answer::default())) };
        if call.so_far.has_waited && self.is_overtaken(&call.so_far.facts, now) {
            (call.so_far.facts, call.so_far.has_waited) = (Facts::default(), false);
            return self.attempt_name(id, call, now);
        }
        if let Record::Create { ino, .. } = record
            && self.is_known(ino)
        {
            // A copy of this cache made it.
            call.so_far.facts.number = None;
            return self.attempt_name(id, call, now);
        }
        self.may_add(&record, now)?;
        let claim = self.lm_of(&record).waits(is_exclusive).then_some(Claim::Answers);
        (call.so_far.ino, call.so_far.is_named) = (Some(record.ino()), true);
        self.act(Action::Made(record.clone()));
        call.call = Call::Change { record, caller, claim, expects: None };
        self.attempt_change(id, call, now)
    }

    /// True if a name that was looked up surely means something else by now.
    fn is_overtaken(&self, facts: &Facts, now: Now) -> bool {
        let ino = |found: &Option<Attr>| found.map(|attr| attr.ino);
        facts.names.iter().any(|(at, found)| self.names_another(at, ino(found), now))
    }

    /// The record that a call becomes. `None`: the call changes nothing.
    fn record_of(
        &self,
        call: &NameCall,
        caller: &Caller,
        known: Known<'_>,
        now: Now,
    ) -> Result<Option<Record>, Halt> {
        Ok(Some(match call {
            NameCall::Create { at, node, mode, .. } => {
                self.creation(known, (at, node, *mode), caller)?
            }
            NameCall::Link { ino, at } => {
                known.free(at)?;
                let attr = known.attr(*ino)?;
                if attr.kind == Kind::Directory {
                    return Err(Refusal::NotPermitted.into());
                }
                check_border(&attr, &known.attr(at.parent)?, false)?;
                let Dentry { parent, name } = at.clone();
                Record::Link { ino: *ino, parent, name }
            }
            NameCall::Unlink(at) => {
                let attr = known.existing(at)?;
                if attr.kind == Kind::Directory {
                    return Err(Refusal::IsDirectory.into());
                }
                known.attr(at.parent)?;
                let Dentry { parent, name } = at.clone();
                Record::Unlink { parent, name, ino: attr.ino, open: false }
            }
            NameCall::Rmdir(at) => {
                let attr = known.existing(at)?;
                if attr.kind != Kind::Directory {
                    return Err(Refusal::NotDirectory.into());
                }
                known.empty(attr.ino)?;
                known.attr(at.parent)?;
                let Dentry { parent, name } = at.clone();
                Record::Rmdir { parent, name, ino: attr.ino }
            }
            NameCall::Rename { from, to, flag } => {
                return self.renaming(known, (from, to, *flag), now);
            }
            NameCall::SetAttr { ino, set } => {
                let kind = known.attr(*ino)?.kind;
                let (uid, gid) =
                    self.settings.owner.to_store(set.uid.unwrap_or(0), set.gid.unwrap_or(0));
                let mode = set.mode.map(|mode| self.settings.owner.mode(mode, kind));
                let (uid, gid) = (set.uid.map(|_| uid), set.gid.map(|_| gid));
                Record::SetAttr { ino: *ino, set: SetAttr { uid, gid, mode, ..*set } }
            }
            NameCall::SetXattr { ino, name, value } => {
                let (ino, name) = (*ino, name.clone());
                match value.clone() {
                    Some(value) => Record::SetXattr { ino, name, value },
                    None => Record::RemoveXattr { ino, name },
                }
            }
        }))
    }

    fn creation(
        &self,
        known: Known<'_>,
        (at, node, mode): (&Dentry, &NewNode, u32),
        caller: &Caller,
    ) -> Result<Record, Halt> {
        if matches!(node, NewNode::Symlink(target) if target.len() > SYMLINK_MAX) {
            return Err(Refusal::NameTooLong.into());
        }
        known.free(at)?;
        let parent = known.attr(at.parent)?;
        let ino = known.number()?;
        let (uid, mut gid) = self.settings.owner.to_store(caller.uid, caller.gid);
        let is_directory = *node == NewNode::Directory;
        let kind = if is_directory { Kind::Directory } else { Kind::File };
        let mut mode = self.settings.owner.mode(mode & 0o7777, kind);
        // A set-group-id directory gives its group, and directories also the bit.
        if parent.mode & 0o2000 != 0 {
            gid = self.tree.peek(at.parent).map_or(gid, |attr| attr.gid);
            mode |= if is_directory { 0o2000 } else { 0 };
        }
        let (Dentry { parent, name }, node) = (at.clone(), node.clone());
        Ok(Record::Create { parent, name, ino, node, mode, uid, gid })
    }

    fn renaming(
        &self,
        known: Known<'_>,
        (from, to, flag): (&Dentry, &Dentry, RenameFlag),
        now: Now,
    ) -> Result<Option<Record>, Halt> {
        let source = known.existing(from)?;
        let target = known.name(to)?;
        let directories = (known.attr(from.parent)?, known.attr(to.parent)?);
        check_border(&source, &directories.1, true)?;
        if let (RenameFlag::Exchange, Some(target)) = (flag, &target) {
            check_border(target, &directories.0, true)?;
        }
        let mode = match (flag, target) {
            (RenameFlag::NoReplace, Some(_)) => return Err(Refusal::Exists.into()),
            (RenameFlag::NoReplace, None) if self.hears_verdict(to.parent, now) => {
                RenameMode::NoReplace
            }
            // It is done here, whoever else has the name by then: the server puts it beside.
            (RenameFlag::NoReplace, None) => RenameMode::Replace(None),
            (RenameFlag::Exchange, None) => return Err(Refusal::NotFound.into()),
            (_, Some(target)) if target.ino == source.ino => return Ok(None),
            (RenameFlag::Exchange, Some(target)) => RenameMode::Exchange(target.ino),
            (RenameFlag::Replace, target) => {
                if let Some(target) = &target {
                    known.replaceable(&source, target)?;
                }
                RenameMode::Replace(target.map(|target| target.ino))
            }
        };
        let Dentry { parent: from_parent, name: from_name } = from.clone();
        let Dentry { parent: to_parent, name: to_name } = to.clone();
        let (ino, open) = (source.ino, false);
        let record = Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open };
        Ok(Some(record))
    }

    /// True if a call that gives a name in `directory` hears from the server whether it was free.
    fn hears_verdict(&self, directory: Ino, now: Now) -> bool {
        self.lm(directory).waits(true) && now.link == Reach::Online
    }

    /// Refuses a record for which there is no room in the update log or in a quota.
    fn may_add(&mut self, record: &Record, now: Now) -> Result<(), Refusal> {
        let adds =
            matches!(record, Record::Create { .. } | Record::Link { .. } | Record::SetXattr { .. });
        if adds && self.writers() == Writers::Refused {
            return Err(Refusal::NoSpace);
        }
        let Record::Create { parent, .. } = record else { return Ok(()) };
        let Some(more) = self.growth_in(*parent) else { return Ok(()) };
        let refuses = self.room.refuses(more, now.time, now.link == Reach::Offline);
        if self.room.is_wanting() {
            self.wake(Task::Quotas);
        }
        if refuses { Err(Refusal::Quota) } else { Ok(()) }
    }
}
