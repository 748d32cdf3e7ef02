//! A fix for each finding that has one.

use super::found::{self, blank, put_inode};
use super::held;
use super::names;
use super::quotas;
use super::remnants;
use super::{Repairer, Unreadable};
use crate::namespace::refs::Held;
use crate::namespace::rows::{self, ClientRow, InodeRow, Tally, VolumeRow};
use crate::namespace::volume::existing;
use crate::namespace::{Fault, MetaTxn, arrivals, keys, tally};
use crate::nouns::{ClientId, Ino, Kind, SYMLINK_MAX, VolumeId};
use crate::upkeep::check::{Damage, Finding};

/// How far a version may be beyond the volume's counter and still be taken for one that the
/// volume gave: more is damage of the inode, and not of the counter.
const COUNTER_LEAP: u64 = 1 << 40;

/// Commits of a tally that was rebuilt: one more than a volume has that nobody has used.
const REBUILT: u64 = 2;

/// How, or `None`.
pub(super) type Fixed<E> = Result<Option<&'static str>, Fault<E>>;

/// Puts `finding` right; says how, or `None` if that cannot be.
pub(super) fn fix<T: MetaTxn, R: Repairer>(
    txn: &mut T,
    id: VolumeId,
    finding: &Finding,
    damaged: &Unreadable,
    repairer: &mut R,
) -> Fixed<T::Error> {
    // The root's place is its volume's business.
    let Some(ino) = finding.ino.filter(|_| finding.damage != Damage::NoRoot) else {
        return match &finding.damage {
            // What stands under another key than its own is about something else.
            Damage::Row { key, .. }
                if key.starts_with(&keys::all_extents(id))
                    && !matches!(damaged.get(key), Some(Some(_))) =>
            {
                held::lose(txn, id, key)
            }
            Damage::Row { key, .. } => fix_row(txn, id, key, repairer),
            Damage::StrayName { name } => forget_name(txn, name, damaged),
            Damage::Nobody { client } => forget_nobody(txn, *client, damaged),
            damage => fix_volume(txn, id, damage),
        };
    };
    match &finding.damage {
        Damage::BadName | Damage::SecondName => {
            let Some((directory, name)) = &finding.entry else { return Ok(None) };
            names::remove(txn, id, (*directory, name))
        }
        Damage::NameOfNothing => {
            let Some((directory, name)) = &finding.entry else { return Ok(None) };
            let is_there = is_unreadable(damaged, &keys::inode(id, ino));
            names::of_nothing(txn, id, ino, (*directory, name), is_there)
        }
        Damage::NotDirectory => {
            remove_all(txn, &keys::dentry(id, ino, &[]))?;
            Ok(Some("the names were removed"))
        }
        Damage::NoDirectory => names::find_again(txn, id, ino, Kind::Directory),
        Damage::ExtentsOfNothing => match row(txn, id, ino)? {
            Some(row) => {
                held::bury(txn, id, &row)?;
                Ok(Some("garbage collection will remove them"))
            }
            None => names::find_again(txn, id, ino, Kind::File),
        },
        Damage::XattrsOfNothing => {
            let key = keys::inode(id, ino);
            if txn.get(&key).map_err(Fault::Store)?.is_some() || is_unreadable(damaged, &key) {
                return Ok(None);
            }
            remove_all(txn, &keys::xattr(id, ino, &[]))?;
            Ok(Some("the attributes were removed"))
        }
        Damage::NoChunk { fingerprint, .. } | Damage::ChunkLength { fingerprint, .. } => {
            match repairer.find_chunk(fingerprint) {
                Some(place) => held::put_chunk(txn, id, fingerprint, place),
                None => Ok(None),
            }
        }
        Damage::OrphanOfNothing | Damage::OrphanWithName | Damage::OrphanOfNobody => {
            let all = !matches!(finding.damage, Damage::OrphanOfNobody);
            remove_orphans(txn, id, ino, &mut |known| all || !known)?;
            Ok(Some("the note was removed"))
        }
        Damage::QuotaBytes { .. }
        | Damage::QuotaInodes { .. }
        | Damage::NoQuota
        | Damage::OtherQuota => quotas::forget(txn, id),
        damage => match row(txn, id, ino)? {
            Some(row) => fix_inode(txn, id, row, damage),
            None => Ok(None),
        },
    }
}

/// True for the key of a row that is there and cannot be read.
fn is_unreadable(damaged: &Unreadable, key: &[u8]) -> bool {
    damaged.contains_key(key) || damaged.values().flatten().any(|own| own == key)
}

/// Removes a volume's name that is not that of the volume it leads to.
fn forget_name<T: MetaTxn>(txn: &mut T, name: &str, damaged: &Unreadable) -> Fixed<T::Error> {
    let key = keys::volume_name(name);
    let Some(named) = rows::get_row::<_, VolumeId>(txn, &key, "a name")? else { return Ok(None) };
    let volume: Option<VolumeRow> = rows::get_row(txn, &keys::volume(named), "a volume")?;
    let is_its = volume.is_some_and(|row| row.name == name);
    if is_its || is_unreadable(damaged, &keys::volume(named)) {
        return Ok(None);
    }
    txn.remove(&key).map_err(Fault::Store)?;
    Ok(Some("the name was removed"))
}

/// Removes what is remembered of a client that is not there.
fn forget_nobody<T: MetaTxn>(
    txn: &mut T,
    client: ClientId,
    damaged: &Unreadable,
) -> Fixed<T::Error> {
    if is_unreadable(damaged, &keys::client(client)) {
        return Ok(None);
    }
    for table in keys::tables_of_client(client) {
        remove_all(txn, &table)?;
    }
    Ok(Some("they were removed"))
}

/// What is about the volume as a whole, or a row that belongs to nothing else.
fn fix_volume<T: MetaTxn>(txn: &mut T, id: VolumeId, damage: &Damage) -> Fixed<T::Error> {
    match damage {
        Damage::ChunkRefs { fingerprint, found, .. } => {
            held::recount(txn, Held::Chunk(id, *fingerprint), *found)
        }
        Damage::LeafRefs { leaf, found, .. } => held::recount(txn, Held::Leaf(id, *leaf), *found),
        Damage::NotIdle { fingerprint } => held::make_idle(txn, id, *fingerprint),
        Damage::IdleOfNothing => held::wake(txn, id),
        Damage::LeafName { leaf } => held::measure(txn, id, *leaf),
        Damage::Arrived { found, .. } => {
            arrivals::put(txn, id, *found)?;
            Ok(Some("it was counted anew"))
        }
        Damage::Pack { .. } => {
            held::recount_packs(txn)?;
            Ok(Some("it was counted anew"))
        }
        Damage::VolumeName => {
            let key = keys::volume_name(&existing(txn, id)?.name);
            let other = rows::get_row::<_, VolumeId>(txn, &key, "a name").ok().flatten();
            let other = other.map(|other| txn.get(&keys::volume(other)).map_err(Fault::Store));
            if other.transpose()?.flatten().is_some() {
                return Ok(None);
            }
            rows::put_row(txn, &key, &id)?;
            Ok(Some("the name leads to it again"))
        }
        Damage::NoTally => rebuild_tally(txn, id),
        Damage::NoRoot => {
            let mut root = match row(txn, id, Ino::ROOT)? {
                Some(root) if root.attr.kind == Kind::Directory => root,
                _ => blank(Ino::ROOT, Kind::Directory, existing(txn, id)?.created)?,
            };
            (root.parent, root.name) = (Ino::ROOT, b"root".to_vec());
            put_inode(txn, id, root)?;
            Ok(Some("the root was created anew"))
        }
        Damage::TallyInodes { found, .. } => {
            alter_tally(txn, id, |tally, _| tally.inodes = *found, "it was counted anew")
        }
        Damage::TallyBytes { found, .. } => {
            alter_tally(txn, id, |tally, _| tally.allocated = *found, "it was counted anew")
        }
        Damage::OwnNumbers => {
            let fresh = |tally: &mut Tally, row: &VolumeRow| {
                (tally.own_next, tally.own_end) = (row.next_ino, row.next_ino);
            };
            alter_tally(txn, id, fresh, "the server will take new numbers")
        }
        Damage::Grants { client } => {
            let row: Option<ClientRow> = rows::client(txn, *client)?;
            let grants = row.map(|row| row.grants).unwrap_or_default();
            let ends = grants.iter().filter_map(|grant| grant.first.checked_add(grant.count));
            raise_numbers(txn, id, ends.max().unwrap_or(0))
        }
        _ => Ok(None),
    }
}

/// Of rows that cannot be read, those go whose whole meaning is found again without them.
fn fix_row<T: MetaTxn, R: Repairer>(
    txn: &mut T,
    id: VolumeId,
    key: &[u8],
    repairer: &mut R,
) -> Fixed<T::Error> {
    if key == keys::volume_tally(id) {
        return rebuild_tally(txn, id);
    }
    if key.starts_with(&keys::quotas(id)) {
        return quotas::forget(txn, id);
    }
    if key.starts_with(&keys::chunks(id)) {
        let fingerprint = keys::fingerprint_part(key);
        let place = fingerprint.and_then(|fingerprint| repairer.find_chunk(&fingerprint));
        if let (Some(fingerprint), Some(place)) = (fingerprint, place) {
            return held::put_chunk(txn, id, &fingerprint, place);
        }
        // Files that need it say so.
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed"));
    }
    if key.starts_with(&keys::leaves(id)) {
        // Files that need it say so, and writing one of them anew makes it anew.
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed"));
    }
    if key.starts_with(&keys::all_idle()) || key == keys::arrived(id) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed"));
    }
    if key.starts_with(&keys::dentries(id)) || key.starts_with(&keys::all_orphans(id)) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed; the repair searches for its object"));
    }
    if key.starts_with(&keys::graves(id)) {
        return fix_grave(txn, id, key);
    }
    let remnants = [keys::remnants(id), keys::remnant_orders(id), keys::remnant_tally(id)];
    if remnants.iter().any(|table| key.starts_with(table)) {
        return remnants::repair(txn, id, key);
    }
    if key.starts_with(&keys::ragged_of(id)) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed: the next write to the file makes it again"));
    }
    if key.starts_with(&keys::all_hard_links(id)) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed: the name itself exists"));
    }
    if key.starts_with(&keys::all_awaited(id)) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed: its host says so again when it connects"));
    }
    if let Some(op) = keys::outcome_part(key).filter(|op| *key == keys::outcome(*op)) {
        let floor = keys::floor(op.client, op.incarnation);
        let floor: Option<u64> = rows::get_row(txn, &floor, "a floor").unwrap_or(None);
        // Of any other the client may still ask what became of it.
        if floor.is_some_and(|floor| op.seq < floor) {
            txn.remove(key).map_err(Fault::Store)?;
            return Ok(Some("it was removed: the client already has this outcome"));
        }
    }
    if key.starts_with(&keys::all_xattrs(id)) {
        txn.remove(key).map_err(Fault::Store)?;
        return Ok(Some("it was removed"));
    }
    if let Some((ino, [])) = keys::inode_part(key).filter(|_| key.starts_with(&keys::inodes(id)))
        && let Ok(Some(mut row)) = rows::inode(txn, id, ino)
        && row.attr.ino != ino
    {
        row.attr.ino = ino;
        put_inode(txn, id, row)?;
        return Ok(Some("its inode number was corrected"));
    }
    Ok(None)
}

/// A grave says all by its key, if that is of contents that nobody has.
fn fix_grave<T: MetaTxn>(txn: &mut T, id: VolumeId, key: &[u8]) -> Fixed<T::Error> {
    let Some(contents) = keys::grave_part(key) else { return Ok(None) };
    if txn.get(&keys::inode(id, contents.ino)).map_err(Fault::Store)?.is_some() {
        let present = row(txn, id, contents.ino)?.map(|row| row.generation);
        // Extents without a grave are found again.
        if present.is_none_or(|present| present == contents.generation) {
            txn.remove(key).map_err(Fault::Store)?;
            return Ok(Some("it was removed"));
        }
    }
    rows::put_row(txn, key, &())?;
    Ok(Some("it was written anew"))
}

fn fix_inode<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    mut row: InodeRow,
    damage: &Damage,
) -> Fixed<T::Error> {
    let how = match damage {
        Damage::NoName | Damage::Ring | Damage::NotOpen { clients: 0 } => {
            found::put(txn, id, row)?;
            return Ok(Some("it was moved to /.segue-found"));
        }
        Damage::NotOpen { .. } => {
            let mut first = true;
            let ino = row.attr.ino;
            remove_orphans(txn, id, ino, &mut |_| !std::mem::take(&mut first))?;
            return Ok(Some("it is now noted as open by one client"));
        }
        Damage::Links { found, .. } | Damage::Subdirectories { found, .. } => {
            row.attr.nlink = *found;
            "it was counted anew"
        }
        Damage::Allocated { found, .. } => {
            row.attr.allocated = *found;
            "it was counted anew"
        }
        Damage::BeyondEnd { end, .. } => {
            row.attr.size = *end;
            "its size was set to the end of its extents"
        }
        Damage::ExtentsOfKind if row.attr.kind != Kind::Directory => {
            (row.attr.kind, row.target) = (Kind::File, None);
            "it is a regular file now"
        }
        Damage::Target => match (&row.target, row.attr.kind) {
            (Some(target), Kind::Symlink) if (1..=SYMLINK_MAX).contains(&target.len()) => {
                row.attr.size = target.len() as u64;
                "its size was set to the length of its target"
            }
            (Some(_), kind) if kind != Kind::Symlink => {
                row.target = None;
                "the target was removed"
            }
            _ => return Ok(None),
        },
        Damage::Number => return raise_numbers(txn, id, row.attr.ino.0.saturating_add(1)),
        Damage::Versions => return fix_versions(txn, id, row),
        _ => return Ok(None),
    };
    put_inode(txn, id, row)?;
    Ok(Some(how))
}

/// Where the volume's counter is behind its inodes, it is raised; else the inode is wrong.
fn fix_versions<T: MetaTxn>(txn: &mut T, id: VolumeId, mut row: InodeRow) -> Fixed<T::Error> {
    let (change, epoch) = (row.attr.change, existing(txn, id)?.epoch);
    let commits = tally(txn, id)?.commits;
    let leap = change.counter.saturating_sub(commits);
    if change.epoch == epoch && leap > 0 && leap < COUNTER_LEAP {
        let raise = |tally: &mut Tally, _: &VolumeRow| tally.commits = change.counter;
        return alter_tally(txn, id, raise, "the commit counter of the volume was raised");
    }
    row.attr.data_version = found::next_version(txn, id)?;
    put_inode(txn, id, row)?;
    Ok(Some("its data got a new version"))
}

/// The row of an inode, if it can be read.
fn row<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
) -> Result<Option<InodeRow>, Fault<T::Error>> {
    match rows::inode(txn, id, ino) {
        Ok(Some(row)) if row.attr.ino != ino => Ok(None),
        Err(Fault::Damaged(_)) => Ok(None),
        other => other,
    }
}

fn remove_all<T: MetaTxn>(txn: &mut T, prefix: &[u8]) -> Result<(), Fault<T::Error>> {
    let rows = txn.range(prefix, &keys::after(prefix), usize::MAX).map_err(Fault::Store)?;
    rows.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)
}

/// Removes the orphans of an inode of which `goes` says so; it hears whether the volume has the
/// client.
fn remove_orphans<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    ino: Ino,
    goes: &mut dyn FnMut(bool) -> bool,
) -> Result<(), Fault<T::Error>> {
    let all = keys::all_orphans(id);
    let rows = txn.range(&all, &keys::after(&all), usize::MAX).map_err(Fault::Store)?;
    for (key, _) in rows {
        let Some((client, of)) = keys::orphan_parts(&key) else { continue };
        if of == ino && goes(is_client(txn, id, client)) {
            txn.remove(&key).map_err(Fault::Store)?;
        }
    }
    Ok(())
}

fn is_client<T: MetaTxn>(txn: &mut T, id: VolumeId, client: ClientId) -> bool {
    rows::client(txn, client).is_ok_and(|row| row.is_some_and(|row| row.volume == id))
}

fn alter_tally<T: MetaTxn>(
    txn: &mut T,
    id: VolumeId,
    alter: impl FnOnce(&mut Tally, &VolumeRow),
    how: &'static str,
) -> Fixed<T::Error> {
    let row = existing(txn, id)?;
    let mut tally = tally(txn, id)?;
    alter(&mut tally, &row);
    rows::put_row(txn, &keys::volume_tally(id), &tally)?;
    Ok(Some(how))
}

/// What the tally counts is counted in the rounds that follow. Which versions were given nobody
/// can say, since what had the last ones may be gone: a new epoch begins, and none is given twice.
fn rebuild_tally<T: MetaTxn>(txn: &mut T, id: VolumeId) -> Fixed<T::Error> {
    let mut volume = existing(txn, id)?;
    volume.epoch = volume.epoch.checked_add(1).ok_or(Fault::Damaged("epochs ran out"))?;
    rows::put_row(txn, &keys::volume(id), &volume)?;
    let next = volume.next_ino;
    let tally = Tally { commits: REBUILT, own_next: next, own_end: next, ..Tally::default() };
    rows::put_row(txn, &keys::volume_tally(id), &tally)?;
    Ok(Some("they were counted anew, and the volume begins a new epoch"))
}

/// Numbers below `end` have been granted.
fn raise_numbers<T: MetaTxn>(txn: &mut T, id: VolumeId, end: u64) -> Fixed<T::Error> {
    let mut row = existing(txn, id)?;
    row.next_ino = row.next_ino.max(end);
    rows::put_row(txn, &keys::volume(id), &row)?;
    Ok(Some("the next inode number of the volume was raised"))
}
