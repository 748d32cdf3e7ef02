//! Who asks, and what POSIX lets them do.
//!
//! A personal identity is the volume's owner whatever local user asks, so every permission
//! check passes; what it may not have is devices and the extended attributes that a kernel
//! believes. A host's identity speaks for its users: each is checked as a local file system
//! would, and its root, user and group, is nobody unless the invite said otherwise.

use std::borrow::Cow;

use super::{Context, Stop};
use crate::nouns::{Attr, Base, Caller, Kind, OpId, Record, Role, Stamped, Timestamp};
use crate::refusal::Refusal;

/// What a squashed root becomes.
const NOBODY: u32 = 65534;
/// May read.
pub(super) const READ: u32 = 4;
/// May write.
pub(super) const WRITE: u32 = 2;
/// May search; with write, may change entries.
pub(super) const SEARCH: u32 = 1;
/// Set user on execution.
pub(super) const SET_UID: u32 = 0o4000;
/// Set group on execution; of a directory: its group is inherited.
pub(super) const SET_GID: u32 = 0o2000;
/// Only owners remove entries.
const STICKY: u32 = 0o1000;
/// Members of the group may execute.
pub(super) const GROUP_EXECUTE: u32 = 0o010;

/// What an identity may do on its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Its role.
    pub role: Role,
    /// Uid 0 of a host is root here too.
    pub no_root_squash: bool,
}

/// One record's circumstances.
pub(super) struct Change<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) actor: Actor<'a>,
    pub(super) time: Timestamp,
    pub(super) op: OpId,
    /// See [`Stamped::known`].
    pub(super) known: Option<Base>,
}

impl<'a> Change<'a> {
    pub(super) fn new<E>(context: &'a Context<'a>, stamped: &'a Stamped) -> Result<Self, Stop<E>> {
        if !stamped.time.is_valid() || names_no_id(stamped) {
            return Err(Refusal::Invalid.into());
        }
        let actor = Actor::new(context.rights, &stamped.caller).ok_or(Refusal::ReadOnly)?;
        let (time, known) = (stamped.time, stamped.known);
        Ok(Change { context, actor, time, op: context.op(stamped.seq), known })
    }
}

/// Who makes a change.
pub(super) enum Actor<'a> {
    /// The volume's owner.
    Owner,
    /// Root of a host that is trusted with it.
    Root,
    /// A user of a host.
    User {
        /// Effective user.
        uid: u32,
        /// Effective group.
        gid: u32,
        /// Further groups.
        groups: Cow<'a, [u32]>,
    },
}

impl<'a> Actor<'a> {
    /// `None` for a reader, who changes nothing.
    fn new(rights: Rights, caller: &'a Caller) -> Option<Actor<'a>> {
        Some(match rights.role {
            Role::Reader => return None,
            Role::Writer => Actor::Owner,
            Role::Host if caller.uid == 0 && rights.no_root_squash => Actor::Root,
            Role::Host if caller.uid == 0 => {
                Actor::User { uid: NOBODY, gid: NOBODY, groups: Cow::Borrowed(&[]) }
            }
            Role::Host if rights.no_root_squash => {
                let groups = Cow::Borrowed(&caller.groups[..]);
                Actor::User { uid: caller.uid, gid: caller.gid, groups }
            }
            Role::Host => {
                let groups = caller.groups.iter().map(|group| squashed(*group)).collect();
                Actor::User { uid: caller.uid, gid: squashed(caller.gid), groups }
            }
        })
    }

    /// No permission check applies.
    pub(super) fn privileged(&self) -> bool {
        !matches!(self, Actor::User { .. })
    }

    /// Devices and the attributes that a kernel believes.
    pub(super) fn trusted(&self) -> bool {
        matches!(self, Actor::Root)
    }

    /// Set-id bits survive this actor's writes.
    pub(super) fn keeps_set_id(&self) -> bool {
        matches!(self, Actor::Root)
    }

    /// User and group of a file that nobody chose an owner for.
    pub(super) fn ids(&self) -> (u32, u32) {
        match self {
            Actor::User { uid, gid, .. } => (*uid, *gid),
            _ => (0, 0),
        }
    }

    pub(super) fn owns(&self, attr: &Attr) -> bool {
        match self {
            Actor::User { uid, .. } => *uid == attr.uid,
            _ => true,
        }
    }

    pub(super) fn in_group(&self, group: u32) -> bool {
        match self {
            Actor::User { gid, groups, .. } => *gid == group || groups.contains(&group),
            _ => true,
        }
    }

    /// True if the mode bits grant all of `want`.
    pub(super) fn may(&self, attr: &Attr, want: u32) -> bool {
        if self.privileged() {
            return true;
        }
        let shift = match (self.owns(attr), self.in_group(attr.gid)) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        (attr.mode >> shift) & want == want
    }

    /// Refuses, unless the actor may make entries in `directory`.
    pub(super) fn check_enter<E>(&self, directory: &Attr) -> Result<(), Stop<E>> {
        if !self.may(directory, WRITE | SEARCH) {
            return Err(Refusal::Access.into());
        }
        Ok(())
    }

    /// Refuses, unless the actor may remove the entry of `inode` in `directory`.
    pub(super) fn check_remove<E>(&self, directory: &Attr, inode: &Attr) -> Result<(), Stop<E>> {
        self.check_enter(directory)?;
        let sticky = directory.mode & STICKY != 0;
        if sticky && !self.owns(directory) && !self.owns(inode) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// User and group that a new inode in `directory` really gets.
    pub(super) fn ownership<E>(
        &self,
        directory: &Attr,
        asked: (u32, u32),
    ) -> Result<(u32, u32), Stop<E>> {
        let Actor::User { uid, gid, .. } = self else { return Ok(asked) };
        // A squashed root, or member of its group, asks for what its own kernel took it for.
        let user = if *uid == NOBODY { squashed(asked.0) } else { asked.0 };
        let inherited = directory.mode & SET_GID != 0 && asked.1 == directory.gid;
        let group = if *gid == NOBODY && !inherited { squashed(asked.1) } else { asked.1 };
        if user != *uid || !(inherited || self.in_group(group)) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok((user, group))
    }

    /// Mode bits that a new inode in a directory really gets from this actor.
    pub(super) fn first_mode(&self, mode: u32, kind: Kind, gid: u32) -> u32 {
        match (self, kind) {
            // It may have the bit from the directory that it is in.
            (Actor::User { .. }, Kind::Directory) => mode & 0o7777,
            _ => self.mode(mode, kind, gid),
        }
    }

    /// Mode bits that this actor may really give an inode of group `gid`.
    pub(super) fn mode(&self, mode: u32, kind: Kind, gid: u32) -> u32 {
        let mode = mode & 0o7777;
        match self {
            Actor::Root => mode,
            Actor::Owner => personal_mode(mode, kind),
            Actor::User { .. } if self.in_group(gid) => mode,
            Actor::User { .. } => mode & !SET_GID,
        }
    }
}

/// The mode of what somebody makes or changes who speaks for one user only. Hosts show the volume's
/// owner as their root: so what such a user makes is no set-id program anywhere.
pub fn personal_mode(mode: u32, kind: Kind) -> u32 {
    if kind == Kind::Directory { mode } else { mode & !(SET_UID | SET_GID) }
}

/// What root's user or group is where it is nobody.
fn squashed(id: u32) -> u32 {
    if id == 0 { NOBODY } else { id }
}

/// True if `stamped` names a user or a group that there cannot be: chown(2) means none by it.
fn names_no_id(stamped: &Stamped) -> bool {
    let Caller { uid, gid, groups, .. } = &stamped.caller;
    let of_caller = [uid, gid].into_iter().chain(groups);
    let of_record = match &stamped.record {
        Record::Create { uid, gid, .. } => [Some(uid), Some(gid)],
        Record::SetAttr { set, .. } => [set.uid.as_ref(), set.gid.as_ref()],
        _ => [None, None],
    };
    of_caller.chain(of_record.into_iter().flatten()).any(|id| *id == u32::MAX)
}

/// The mode of a file after somebody else than root wrote it, or anybody gave it away.
pub(crate) fn mode_after_write(mode: u32) -> u32 {
    let mode = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 { mode & !SET_GID } else { mode }
}
