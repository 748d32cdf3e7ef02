//! Conflict copies: where the side that came second keeps what it did.
//!
//! A copy stands beside the original as `NAME.conflict-HOST-TIME`, with the time of the change
//! in UTC. Where there is no such place (the directory is gone, or the caller may not write in
//! it) it stands in `.segue-conflicts/HOST` under the root.

use super::create::{insert, new_inode};
use super::permission::{Change, SEARCH, WRITE};
use super::rows::InodeRow;
use super::tree::Tree;
use super::{Fault, MetaTxn, Stop};
use crate::refusal::Refusal;
use crate::types::{Ino, Kind, NAME_MAX, Name, Timestamp};

/// Directory under the root for copies that have no other place.
const SHELTER: &str = ".segue-conflicts";
/// Longest part of a host's name that goes into the name of a copy, in bytes.
const HOST_MAX: usize = 64;
/// Most copies of one name, host and second; a client that makes more is broken.
const COPIES_MAX: u32 = 10_000;

/// A name like `name` that is free in `directory` and says whose copy it is.
pub(super) fn free_name<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    directory: Ino,
    name: &Name,
) -> Result<Name, Stop<T::Error>> {
    let host = host_name(change.context.host);
    for number in 1..COPIES_MAX {
        let candidate = copy_name(name, &host, change.time, number)?;
        if tree.dentry(directory, &candidate)?.is_none() {
            return Ok(candidate);
        }
    }
    Err(Refusal::Exists.into())
}

/// Makes an empty file that will hold what the caller wrote to `original`, or to the inode
/// `gone` when nothing is left of it. Returns the copy's row and name.
pub(super) fn copy_of<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    original: Option<&InodeRow>,
    gone: Ino,
) -> Result<(InodeRow, Name), Stop<T::Error>> {
    let beside = match original {
        Some(row) => beside(tree, change, row)?,
        None => None,
    };
    let (parent, name) = match beside {
        Some(place) => place,
        None => {
            let name = match original {
                Some(row) => Name::new(row.name.clone()).map_err(Refusal::from)?,
                None => Name::new(format!("removed-{gone}")).map_err(Refusal::from)?,
            };
            (shelter(tree, change)?, name)
        }
    };
    let name = free_name(tree, change, parent, &name)?;
    let ino = tree.own_ino()?;
    let mut row = new_inode(ino, Kind::File, (parent, &name), change.time);
    match original {
        Some(original) => {
            (row.attr.mode, row.attr.uid, row.attr.gid) =
                (original.attr.mode, original.attr.uid, original.attr.gid);
        }
        None => {
            row.attr.mode = 0o600;
            (row.attr.uid, row.attr.gid) = change.actor.ids();
        }
    }
    insert(tree, row, &name, change.time)?;
    let row = tree.find(ino)?.ok_or(Fault::Damaged("a new inode is missing"))?;
    Ok((row, name))
}

/// The original's directory and name, if a copy can stand there.
fn beside<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    original: &InodeRow,
) -> Result<Option<(Ino, Name)>, Stop<T::Error>> {
    let Some(directory) = tree.find(original.parent)? else { return Ok(None) };
    if !change.actor.may(&directory.attr, WRITE | SEARCH) {
        return Ok(None);
    }
    let name = Name::new(original.name.clone()).map_err(Refusal::from)?;
    Ok(Some((original.parent, name)))
}

/// `.segue-conflicts/HOST`, made if it is not there.
pub(super) fn shelter<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
) -> Result<Ino, Stop<T::Error>> {
    let all = directory(tree, change, Ino::ROOT, SHELTER, 0o755)?;
    // Every user of the host keeps copies here, and removes only his own.
    directory(tree, change, all, &host_name(change.context.host), 0o1777)
}

/// The directory `name`, or the first of `name-2`, `name-3`.. that is one or is free.
fn directory<T: MetaTxn>(
    tree: &mut Tree<'_, T>,
    change: &Change<'_>,
    parent: Ino,
    name: &str,
    mode: u32,
) -> Result<Ino, Stop<T::Error>> {
    for number in 1..COPIES_MAX {
        let candidate = match number {
            1 => Name::new(name),
            _ => Name::new(format!("{name}-{number}")),
        };
        let candidate = candidate.map_err(Refusal::from)?;
        let Some(ino) = tree.dentry(parent, &candidate)? else {
            let ino = tree.own_ino()?;
            let mut row = new_inode(ino, Kind::Directory, (parent, &candidate), change.time);
            row.attr.mode = mode;
            insert(tree, row, &candidate, change.time)?;
            return Ok(ino);
        };
        let found = tree.find(ino)?.ok_or(Fault::Damaged("a name without an inode"))?;
        if found.attr.kind == Kind::Directory {
            return Ok(ino);
        }
    }
    Err(Refusal::Exists.into())
}

/// `NAME.conflict-HOST-TIME`, from the second on with `-NUMBER`; NAME is cut where all of it
/// would be too long.
fn copy_name(name: &Name, host: &str, time: Timestamp, number: u32) -> Result<Name, Refusal> {
    let mut suffix = format!(".conflict-{host}-{}", utc(time.secs));
    if number > 1 {
        suffix.push_str(&format!("-{number}"));
    }
    let room = NAME_MAX.saturating_sub(suffix.len());
    let mut bytes = shortened(name.as_bytes(), room).to_vec();
    bytes.extend_from_slice(suffix.as_bytes());
    Ok(Name::new(bytes)?)
}

/// The first `room` bytes, fewer where a character of UTF-8 would be cut.
fn shortened(name: &[u8], room: usize) -> &[u8] {
    let Some((cut, rest)) = name.split_at_checked(room) else { return name };
    if rest.first().is_none_or(|byte| byte & 0xC0 != 0x80) {
        return cut;
    }
    let start = cut.iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
    cut.get(..start).unwrap_or(cut)
}

/// A host's name as part of a file's.
fn host_name(host: &str) -> String {
    let fit = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = host.chars().filter(fit).take(HOST_MAX).collect();
    if name.trim_matches('.').is_empty() { "host".to_owned() } else { name }
}

/// `20261121-083959`: a time in UTC, by the proleptic Gregorian calendar.
pub fn utc(secs: i64) -> String {
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years, so that leap days end a year.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(-1), "19691231-235959");
        assert_eq!(utc(951_782_400), "20000229-000000");
        assert_eq!(utc(1_795_250_399), "20261121-083959");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = Name::new("ä".repeat(127)).unwrap();
        let copy = copy_name(&name, "tin", Timestamp::default(), 2).unwrap();
        let copy = String::from_utf8(copy.as_bytes().to_vec()).unwrap();
        assert!(copy.starts_with("ää") && copy.ends_with("ä.conflict-tin-19700101-000000-2"));
        assert!(copy.len() <= NAME_MAX && copy.len() >= NAME_MAX - 1);
    }

    #[test]
    fn any_host_name_makes_a_name() {
        assert_eq!(host_name("../a b/ü"), "..ab");
        assert_eq!(host_name(".."), "host");
        assert_eq!(host_name(""), "host");
        assert_eq!(host_name(&"x".repeat(300)).len(), HOST_MAX);
    }
}
