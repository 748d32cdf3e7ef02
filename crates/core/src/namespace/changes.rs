//! Which inodes each commit changed, and which names in which directories: so a host that comes
//! back asks what changed since, and who watches is told what does (DESIGN.md 6, catching up).
//!
//! ```text
//!   commit 41          commit 42          commit 43            head
//!   volume 1: 7, 9     volume 2: 5        volume 1: 7          last 43, forgotten 40
//!             9: "a"
//! ```
//!
//! A row for each volume and commit, numbered over all volumes, in the transaction of what changed.
//! The oldest rows go by age and when all are too large; who asks for what was before them is told
//! that it is not known.
//!
//! Invariant: a row of a volume that is newer than `forgotten` names every inode whose row that
//! commit wrote or removed. A number stands for one commit, also after the head was lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rows::{decode, get_row, put_row};
use super::{Fault, MetaSnapshot, MetaTxn, is_damage, keys, lives};
use crate::nouns::{Ino, Timestamp, VolumeId};
use crate::promise::Inodes;
use crate::wire::{Resume, Resumed};

/// Rows that are read at a time.
const PAGE: usize = 256;
/// Rows that are read for one question: beyond, hosts ask anew.
const ROWS_MAX: usize = 1 << 20;
/// Where numbers begin, in a second: more than there will be commits in one.
const BITS_OF_SECOND: u32 = 20;

/// What a commit changed in a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// Inodes.
    pub inodes: BTreeSet<Ino>,
    /// Names in directories.
    pub names: BTreeMap<Ino, BTreeSet<Vec<u8>>>,
}

impl Changed {
    /// What `keys` of written rows say, by volume.
    pub fn of<'a>(keys: impl Iterator<Item = &'a [u8]>) -> BTreeMap<VolumeId, Changed> {
        let mut all: BTreeMap<VolumeId, Changed> = BTreeMap::new();
        for key in keys {
            if let Some((volume, ino)) = keys::inode_of(key) {
                all.entry(volume).or_default().inodes.insert(ino);
            } else if let Some((volume, directory, name)) = keys::dentry_of(key) {
                let names = &mut all.entry(volume).or_default().names;
                names.entry(directory).or_default().insert(name.to_vec());
            }
        }
        all
    }

    /// And what `other` says.
    pub fn and(&mut self, other: Changed) {
        self.inodes.extend(other.inodes);
        for (directory, names) in other.names {
            self.names.entry(directory).or_default().extend(names);
        }
    }
}

/// What is known of all commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Number of the last.
    pub last: u64,
    /// Of those up to here the rows may be gone.
    pub forgotten: u64,
    /// Bytes of all rows that were ever written.
    bytes: u64,
}

impl Head {
    /// Before the first commit; `now` in seconds since 1970, so that it is later than any that was
    /// numbered before and of which nothing is known.
    fn first(now: u64) -> Head {
        let last = now << BITS_OF_SECOND;
        Head { last, forgotten: last, bytes: 0 }
    }
}

/// The number of a commit before any that a server numbers which starts at `now`.
pub(super) fn first_number(now: Timestamp) -> u64 {
    u64::try_from(now.secs).unwrap_or_default() << BITS_OF_SECOND
}

#[derive(Serialize, Deserialize)]
struct Row {
    /// When, in seconds since 1970.
    at: u64,
    /// Bytes of all rows before it.
    before: u64,
    inodes: Inodes,
    names: Vec<(Ino, Vec<Vec<u8>>)>,
}

impl From<Row> for Changed {
    fn from(row: Row) -> Changed {
        let names = row.names.into_iter().map(|(ino, names)| (ino, names.into_iter().collect()));
        Changed { inodes: row.inodes.iter().collect(), names: names.collect() }
    }
}

/// The head; where it is lost or damaged, one behind all that were.
pub fn head<S: MetaSnapshot>(snapshot: &mut S, now: u64) -> Result<Head, Fault<S::Error>> {
    match get_row(snapshot, &keys::changes_head(), "the head of the changes") {
        Ok(head) => Ok(head.unwrap_or_else(|| Head::first(now))),
        Err(fault) if is_damage::<S>(&fault) => Ok(Head::first(now)),
        Err(fault) => Err(fault),
    }
}

/// Notes what a commit at `now` changed, before it is committed. Its number.
pub fn note<T: MetaTxn>(
    txn: &mut T,
    changed: BTreeMap<VolumeId, Changed>,
    now: u64,
) -> Result<u64, Fault<T::Error>> {
    let mut head = head(txn, now)?;
    head.last += 1;
    for (volume, Changed { inodes, names }) in changed {
        let names = names.into_iter().map(|(ino, names)| (ino, names.into_iter().collect()));
        let inodes = inodes.into_iter().collect();
        let row = Row { at: now, before: head.bytes, inodes, names: names.collect() };
        let bytes = postcard::to_stdvec(&row).map_err(|_| Fault::Damaged("changes"))?;
        let key = keys::changes(head.last, volume);
        txn.put(&key, &bytes).map_err(Fault::Store)?;
        head.bytes += (key.len() + bytes.len()) as u64;
    }
    put_row(txn, &keys::changes_head(), &head)?;
    Ok(head.last)
}

/// Some commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Those behind this number.
    pub since: u64,
    /// Up to this one.
    pub through: u64,
}

/// Tells `each`, which says whether to go on, what changed in `volume` by each of these commits.
/// The number of the last that was looked at; `None` if not all of that is known.
pub fn since<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    Span { since, through }: Span,
    mut each: impl FnMut(Changed) -> bool,
) -> Result<Option<u64>, Fault<S::Error>> {
    // Where the head is lost nothing is known, whatever the time is.
    let Head { last, forgotten, .. } = head(snapshot, 0)?;
    if since < forgotten || !lives::has_commit(snapshot, since, last)? {
        return Ok(None);
    }
    let last = last.min(through);
    let mut from = keys::changes(since.saturating_add(1), VolumeId(0));
    let end = keys::changes(last.saturating_add(1), VolumeId(0));
    for _ in 0..ROWS_MAX / PAGE {
        let rows = snapshot.range(&from, &end, PAGE).map_err(Fault::Store)?;
        for (key, value) in &rows {
            let Some((number, _)) = keys::changes_part(key).filter(|(_, of)| *of == volume) else {
                continue;
            };
            if !each(decode::<Row, _>(value, "changes")?.into()) {
                return Ok(Some(number));
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == PAGE => from = [key.as_slice(), &[0]].concat(),
            _ => return Ok(Some(last)),
        }
    }
    Ok(None)
}

/// Which of what a host knows from before has changed since: `None` if that is not known. All of it
/// is to be promised to the host before `snapshot` is taken, so that what changes behind that is
/// told.
pub fn resumed<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    resume: &Resume,
) -> Result<Option<Resumed>, Fault<S::Error>> {
    let held: BTreeSet<Ino> = resume.held.iter().collect();
    let mut changed = BTreeSet::new();
    let span = Span { since: resume.since, through: u64::MAX };
    let commit = since(snapshot, volume, span, |more| {
        changed.extend(more.inodes.intersection(&held));
        true
    })?;
    Ok(commit.map(|commit| Resumed { changed: changed.into_iter().collect(), commit }))
}

/// Removes at most `limit` of the oldest rows: those of before `time`, and those without which at
/// most `most` bytes are left. True if there are more of them.
pub fn forget<T: MetaTxn>(
    txn: &mut T,
    (time, most): (u64, u64),
    limit: usize,
) -> Result<bool, Fault<T::Error>> {
    let mut head = head(txn, time)?;
    let (from, end) = (keys::changes(0, VolumeId(0)), keys::changes_head());
    let rows = txn.range(&from, &end, limit).map_err(Fault::Store)?;
    let mut gone = 0;
    for (key, value) in &rows {
        let row: Row = decode(value, "changes")?;
        if row.at >= time && head.bytes.saturating_sub(row.before) <= most {
            break;
        }
        txn.remove(key).map_err(Fault::Store)?;
        head.forgotten =
            keys::changes_part(key).map_or(0, |(number, _)| number).max(head.forgotten);
        gone += 1;
    }
    if gone > 0 {
        put_row(txn, &keys::changes_head(), &head)?;
    }
    Ok(gone > 0 && gone == limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::MapStore;

    const VOLUME: VolumeId = VolumeId(1);
    const OTHER: VolumeId = VolumeId(2);

    fn note_of(store: &mut MapStore, volume: VolumeId, inodes: &[u64], now: u64) -> u64 {
        let rows: Vec<Vec<u8>> = inodes
            .iter()
            .flat_map(|ino| {
                [keys::inode(volume, Ino(*ino)), keys::dentry(volume, Ino(*ino), b"name")]
            })
            .collect();
        note(store, Changed::of(rows.iter().map(Vec::as_slice)), now).unwrap()
    }

    fn behind(since: u64) -> Span {
        Span { since, through: u64::MAX }
    }

    fn inodes_since(store: &mut MapStore, number: u64) -> Option<Vec<u64>> {
        let mut all = Changed::default();
        let take = |changed| {
            all.and(changed);
            true
        };
        since(store, VOLUME, behind(number), take).unwrap()?;
        assert!(all.names.keys().eq(&all.inodes));
        Some(all.inodes.into_iter().map(|ino| ino.0).collect())
    }

    #[test]
    fn what_changed_since_is_told_of_one_volume() {
        let mut store = MapStore::default();
        assert_eq!(inodes_since(&mut store, 0), Some(vec![]));
        let first = note_of(&mut store, VOLUME, &[7, 9], 100);
        let second = note_of(&mut store, OTHER, &[8], 101);
        let third = note_of(&mut store, VOLUME, &[7], 102);
        assert_eq!((second, third), (first + 1, first + 2));
        assert_eq!(inodes_since(&mut store, first - 1), Some(vec![7, 9]));
        assert_eq!(inodes_since(&mut store, first), Some(vec![7]));
        assert_eq!(since(&mut store, VOLUME, behind(first - 1), |_| false).unwrap(), Some(first));
        let up_to = Span { since: first - 1, through: first };
        let one = |changed: Changed| changed.inodes.len() == 2;
        assert_eq!(since(&mut store, VOLUME, up_to, one).unwrap(), Some(first));
        assert_eq!(inodes_since(&mut store, third), Some(vec![]));
        assert_eq!(inodes_since(&mut store, third + 1), None, "of another history");
        assert_eq!(inodes_since(&mut store, first - 2), None, "of before the first");
        let more = (0..PAGE as u64 * 2).map(|ino| note_of(&mut store, VOLUME, &[ino], 103));
        assert_eq!(more.last(), Some(third + PAGE as u64 * 2));
        assert_eq!(inodes_since(&mut store, third).unwrap().len(), PAGE * 2);
    }

    /// Proves S22.4.
    #[test]
    fn old_rows_go_by_age_and_by_size() {
        let mut store = MapStore::default();
        let numbers: Vec<u64> =
            (0..10).map(|at| note_of(&mut store, VOLUME, &[at + 20], 100 + at)).collect();
        assert!(!forget(&mut store, (100, 1 << 20), 3).unwrap());
        assert_eq!(inodes_since(&mut store, numbers[0]).map(|all| all.len()), Some(9));
        assert!(forget(&mut store, (105, 1 << 20), 3).unwrap());
        assert!(!forget(&mut store, (105, 1 << 20), 3).unwrap());
        assert_eq!(inodes_since(&mut store, numbers[3]), None);
        assert_eq!(inodes_since(&mut store, numbers[4]).map(|all| all.len()), Some(5));
        assert!(!forget(&mut store, (0, 60), 9).unwrap());
        assert!(store.0.len() < 5, "{}", store.0.len());
        assert!(forget(&mut store, (1000, 0), 1).unwrap());
        while forget(&mut store, (1000, 0), 1).unwrap() {}
        let next = note_of(&mut store, VOLUME, &[5], 200);
        assert_eq!(next, numbers[9] + 1, "numbers go on");
        assert_eq!(inodes_since(&mut store, numbers[9]), Some(vec![5]));
    }

    /// Numbers would begin again, and who knows an old one be told that little has changed.
    /// Proves S22.4.
    #[test]
    fn where_the_head_is_lost_nothing_from_before_is_known() {
        let mut store = MapStore::default();
        let number = note_of(&mut store, VOLUME, &[7], 100);
        for lost in [None, Some(vec![1])] {
            match lost {
                None => store.0.remove(&keys::changes_head()),
                Some(bytes) => store.0.insert(keys::changes_head(), bytes),
            };
            assert_eq!(inodes_since(&mut store, number), None);
            note_of(&mut store, VOLUME, &[8], 101);
            assert_eq!(inodes_since(&mut store, number), None);
        }
    }
}
