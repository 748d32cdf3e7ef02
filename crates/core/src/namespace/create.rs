//! New names: create, mkdir, symlink, mknod, link.

use super::conflict;
use super::copied::{self, Number};
use super::outcome::Effect;
use super::permission::{Actor, Change};
use super::rows::{self, InodeRow};
use super::tree::Tree;
use super::{Fault, MetaTxn, Stop, awaited, hard_links, quota, remnant};
use crate::nouns::{Attr, Ino, Kind, Name, NewNode, Record, SYMLINK_MAX, Timestamp};
use crate::refusal::Refusal;

/// Most names of one inode that is not a directory (ext4's number).
pub(super) const LINK_MAX: u32 = 65_000;
/// Most subdirectories of one directory (XFS's number), so that counts never wrap.
const SUBDIRECTORY_MAX: u32 = i32::MAX as u32;

/// A [`Record::Create`].
pub(super) fn create<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    record: &Record,
) -> Result<Effect, Stop<T::Error>> {
    let Record::Create { parent, name, ino, node, mode, uid, gid } = record else {
        return Err(Refusal::Protocol.into());
    };
    // What is made in a directory that another host has removed meanwhile is kept, too.
    let home = match tree.find(*parent)? {
        Some(_) => *parent,
        None => conflict::shelter(tree, change)?,
    };
    let directory = tree.directory(home)?;
    change.actor.check_enter(&directory.attr)?;
    let taken = tree.dentry(home, name)?;
    let number = match number(tree, change, (*ino, node), taken)? {
        Number::Free(number) => number,
        Number::Made(made) => {
            [home, made].into_iter().for_each(|ino| tree.mention(ino));
            return Ok(match made == *ino {
                true => Effect::Done,
                false => Effect::Conflict { parent: home, name: name.clone(), copy: made },
            });
        }
    };
    check_node(&change.actor, node)?;
    let kind = kind_of(node);
    if kind == Kind::Directory && directory.attr.nlink >= SUBDIRECTORY_MAX {
        return Err(Refusal::TooManyLinks.into());
    }
    let (uid, gid) = change.actor.ownership(&directory.attr, (*uid, *gid))?;
    let mode = change.actor.first_mode(*mode, kind, gid);
    let place = match taken {
        None if home == *parent => name.clone(),
        _ => conflict::free_name(tree, change, home, name)?,
    };
    let mut row = new_inode(number, kind, (home, &place), change.time);
    (row.attr.mode, row.attr.uid, row.attr.gid) = (mode, uid, gid);
    row.made_by = vec![change.op];
    match node {
        NewNode::Symlink(target) => {
            row.attr.size = target.len() as u64;
            row.target = Some(target.clone());
        }
        NewNode::CharDevice(rdev) | NewNode::BlockDevice(rdev) => row.attr.rdev = *rdev,
        NewNode::File | NewNode::Directory | NewNode::Fifo | NewNode::Socket => {}
    }
    insert(tree, row, &place, change.time)?;
    if kind == Kind::File {
        awaited::note(tree, change, (*ino, number))?;
    }
    taken.into_iter().for_each(|kept| tree.mention(kept));
    Ok(match place == *name && number == *ino {
        true => Effect::Done,
        false => Effect::Conflict { parent: home, name: place, copy: number },
    })
}

/// A [`Record::Link`].
pub(super) fn link<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    ino: Ino,
    parent: Ino,
    name: &Name,
) -> Result<Effect, Stop<T::Error>> {
    let mut row = tree.inode(ino)?;
    let directory = tree.directory(parent)?;
    change.actor.check_enter(&directory.attr)?;
    if row.attr.kind == Kind::Directory {
        return Err(Refusal::NotPermitted.into());
    }
    if row.attr.nlink == 0 {
        return Err(Refusal::NotFound.into());
    }
    quota::check_border(&row.attr, &directory.attr, false)?;
    let taken = tree.dentry(parent, name)?;
    if taken == Some(ino) {
        tree.mention(ino);
        tree.mention(parent);
        return Ok(Effect::Done);
    }
    if row.attr.nlink >= LINK_MAX {
        return Err(Refusal::TooManyLinks.into());
    }
    let place = match taken {
        None => name.clone(),
        Some(_) => conflict::free_name(tree, change, parent, name)?,
    };
    row.attr.nlink += 1;
    row.attr.ctime = change.time;
    tree.put_inode(row)?;
    tree.put_dentry(parent, &place, ino)?;
    hard_links::add(tree, ino, (parent, place.as_bytes()))?;
    tree.entries_changed(parent, 0, change.time)?;
    Ok(match taken {
        None => Effect::Done,
        Some(kept) => {
            tree.mention(kept);
            Effect::Conflict { parent, name: place, copy: ino }
        }
    })
}

/// The row of a new inode: empty, owned by the volume's owner, its first name as given.
pub(crate) fn new_inode(ino: Ino, kind: Kind, at: (Ino, &Name), time: Timestamp) -> InodeRow {
    let attr = Attr {
        ino,
        kind,
        mode: 0,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: time,
        mtime: time,
        ctime: time,
        change: Default::default(),
        data_version: Default::default(),
        quota: None,
        lm: None,
    };
    InodeRow {
        attr,
        target: None,
        parent: at.0,
        name: at.1.as_bytes().to_vec(),
        made_by: Vec::new(),
        generation: 0,
    }
}

/// Puts a new inode into the tree under `name`.
pub(super) fn insert<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    mut row: InodeRow,
    name: &Name,
    time: Timestamp,
) -> Result<(), Stop<T::Error>> {
    let (ino, parent) = (row.attr.ino, row.parent);
    let links = i32::from(row.attr.kind == Kind::Directory);
    row.attr.data_version = tree.version;
    row.generation = remnant::displace(tree, ino)?;
    row.attr.quota = tree.directory(parent)?.attr.quota;
    let came = row.target.as_ref().map_or(0, Vec::len) as u64;
    tree.charge(row.attr.quota, quota::Change { inodes: 1, came, gone: 0 })?;
    tree.put_dentry(parent, name, ino)?;
    tree.put_inode(row)?;
    tree.entries_changed(parent, links, time)
}

/// The number of a new inode that the client calls `ino`, for a name that stands for `named`.
fn number<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    (ino, node): (Ino, &NewNode),
    named: Option<Ino>,
) -> Result<Number, Stop<T::Error>> {
    let client = rows::client(&mut tree.txn, change.context.client)?
        .ok_or(Fault::Damaged("a client is missing"))?;
    let volume = super::volume::existing(&mut tree.txn, change.context.volume)?;
    let is_granted = client.grants.iter().any(|grant| grant.contains(ino));
    // A grant that a restore has no record of is among the lost ones.
    let is_lost = volume.lost.iter().any(|grant| grant.contains(ino));
    if is_granted {
        return match tree.find(ino)? {
            None => Ok(Number::Free(ino)),
            // Nobody else has this grant.
            Some(_) => Err(Refusal::Copied.into()),
        };
    }
    let is_it = |row: &InodeRow| match node {
        NewNode::Symlink(target) => row.target.as_ref() == Some(target),
        _ => row.attr.kind == kind_of(node),
    };
    copied::number(tree, change, (ino, is_lost), (named, is_it))?.ok_or(Refusal::Protocol.into())
}

fn check_node(actor: &Actor<'_>, node: &NewNode) -> Result<(), Refusal> {
    match node {
        NewNode::Symlink(target) if target.is_empty() => Err(Refusal::NotFound),
        NewNode::Symlink(target) if target.len() > SYMLINK_MAX => Err(Refusal::NameTooLong),
        NewNode::Symlink(target) if target.contains(&0) => Err(Refusal::Invalid),
        // Who has no root here brings no devices: other hosts would believe them.
        NewNode::CharDevice(_) | NewNode::BlockDevice(_) if !actor.trusted() => {
            Err(Refusal::NotPermitted)
        }
        _ => Ok(()),
    }
}

fn kind_of(node: &NewNode) -> Kind {
    match node {
        NewNode::File => Kind::File,
        NewNode::Directory => Kind::Directory,
        NewNode::Symlink(_) => Kind::Symlink,
        NewNode::Fifo => Kind::Fifo,
        NewNode::Socket => Kind::Socket,
        NewNode::CharDevice(_) => Kind::CharDevice,
        NewNode::BlockDevice(_) => Kind::BlockDevice,
    }
}
