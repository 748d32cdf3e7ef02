//! Lives: what each start of a server counts on from.
//!
//! A data directory that is put back from a copy has forgotten the last commits, and hosts know
//! them. So no number may be given twice: with each start the counters of versions, commits and
//! inode numbers jump, and a row says from where to where. A number in a gap is one that this
//! directory has forgotten.
//!
//! ```text
//!   life 1      gap       life 2        gap       life 3
//!   1 ... 30    31 .. 999 1000 ... 1045 1046 ..   2000 ...      put back to the end of life 2:
//!   1 ... 30    31 .. 999 1000 ... 1045 1046 ..                 3000 ...     2017 is unknown
//! ```
//!
//! The time goes into each jump, so that no two lives of copies of a directory begin at the same
//! number.

use serde::{Deserialize, Serialize};

use super::changes::{self, Head};
use super::rows::{self, Tally, VolumeRow};
use super::{Fault, MetaSnapshot, MetaTxn, keys, readable};
use crate::nouns::{InoGrant, Timestamp, Version, VolumeId};
use crate::wire::History;

/// Seconds until 2025: jumps count from there, so that numbers are short.
const SINCE: i64 = 1_735_689_600;
/// Versions that are counted for each second that goes by: more than there are commits in one.
const BITS_OF_SECOND: u32 = 12;
/// Inode numbers that are passed over at least, and for each second: more than are granted in one.
const JUMP: u64 = 1 << 28;
/// No life begins with a later inode number, whatever the clock says.
const FIRST_INO_MAX: u64 = 1 << 62;
/// Most lives that a host is told of. What is older counts as unknown to it.
const LIVES_MAX: usize = 4096;

/// What is noted of the life that ended when another began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LifeRow {
    /// The last number of before.
    last: u64,
    /// The first inode number that nobody was granted.
    next_ino: u64,
}

/// A start of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// When.
    pub now: Timestamp,
    /// Tells it from others in the same second.
    pub random: u64,
}

/// A server starts. The number of its last commit from then on, if there was any.
pub fn begin<T: MetaTxn>(txn: &mut T, start: Start) -> Result<Option<u64>, Fault<T::Error>> {
    for (volume, row) in super::volumes(txn)? {
        // One that cannot be read is left to a repair.
        if let Some(row) = readable::<T, _>(row.map(Some))? {
            begin_volume(txn, volume, row, start)?;
        }
    }
    let head: Result<Option<Head>, _> = rows::get_row(txn, &keys::changes_head(), "a head");
    let Some(mut head) = readable::<T, _>(head)? else { return Ok(None) };
    let row = LifeRow { last: head.last, next_ino: 0 };
    head.last = beyond(head.last, changes::first_number(start.now), start);
    rows::put_row(txn, &keys::commit_life(head.last), &row)?;
    rows::put_row(txn, &keys::changes_head(), &head)?;
    Ok(Some(head.last))
}

fn begin_volume<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    mut row: VolumeRow,
    start: Start,
) -> Result<(), Fault<T::Error>> {
    let tally = rows::get_row(txn, &keys::volume_tally(volume), "a volume's tally");
    let Some(mut tally) = readable::<T, Tally>(tally)? else { return Ok(()) };
    let life = LifeRow { last: tally.commits, next_ino: row.next_ino };
    tally.commits = jump(tally.commits, start);
    // The server's own numbers were used on as well.
    tally.own_next = tally.own_end;
    let next_ino = first_ino(life.next_ino, tally.commits);
    row.next_ino = next_ino.ok_or(Fault::Damaged("inode numbers ran out"))?;
    rows::put_row(txn, &keys::life(volume, tally.commits), &life)?;
    rows::put_row(txn, &keys::volume_tally(volume), &tally)?;
    rows::put_row(txn, &keys::volume(volume), &row)
}

/// Notes that `volume` goes on as `tally`, which had counted to `last`.
pub(crate) fn note_jump<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    tally: &Tally,
    (last, next_ino): (u64, u64),
) -> Result<(), Fault<T::Error>> {
    rows::put_row(txn, &keys::life(volume, tally.commits), &LifeRow { last, next_ino })
}

/// The first inode number of a life that begins with version `start`, behind one that had granted
/// those below `next_ino`. The time is in it, as it is in `start`: lives of two copies of a
/// directory grant different numbers.
pub(crate) fn first_ino(next_ino: u64, start: u64) -> Option<u64> {
    let by_time = (start >> BITS_OF_SECOND).saturating_mul(JUMP).min(FIRST_INO_MAX);
    next_ino.checked_add(JUMP).map(|least| least.max(by_time))
}

/// The first version of a life behind one whose last is `last`.
pub(crate) fn jump(last: u64, start: Start) -> u64 {
    let seconds = u64::try_from(start.now.secs.saturating_sub(SINCE)).unwrap_or_default();
    beyond(last, seconds << BITS_OF_SECOND, start)
}

fn beyond(last: u64, least: u64, start: Start) -> u64 {
    last.saturating_add(1).max(least).saturating_add(start.random % (1 << BITS_OF_SECOND))
}

/// A life, with the key of its row.
type KeyedLife = (Vec<u8>, LifeRow);

/// The key of the first life behind `number`, and the state before it.
fn next_life<S: MetaSnapshot>(
    snapshot: &mut S,
    key: impl Fn(u64) -> Vec<u8>,
    number: u64,
) -> Result<Option<KeyedLife>, Fault<S::Error>> {
    let (from, end) = (key(number.saturating_add(1)), key(u64::MAX));
    let rows = snapshot.range(&from, &end, 1).map_err(Fault::Store)?;
    let Some((key, value)) = rows.into_iter().next() else { return Ok(None) };
    Ok(Some((key, rows::decode(&value, "a life")?)))
}

/// True if commit `number` is one of this directory's.
pub(super) fn has_commit<S: MetaSnapshot>(
    snapshot: &mut S,
    number: u64,
    last: u64,
) -> Result<bool, Fault<S::Error>> {
    let next = next_life(snapshot, keys::commit_life, number)?;
    Ok(number <= next.map_or(last, |(_, life)| life.last))
}

/// What a host has to know of the volume which knows it up to `known`: nothing if that is a version
/// of its.
pub fn history<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    known: Version,
) -> Result<Option<History>, Fault<S::Error>> {
    let row = super::volume::existing(snapshot, volume)?;
    let commits = super::tally(snapshot, volume)?.commits;
    let life = next_life(snapshot, |start| keys::life(volume, start), known.counter)?;
    let last = life.map_or(commits, |(_, life)| life.last);
    if known.epoch <= row.epoch && known.counter <= last {
        return Ok(None);
    }
    let mut lives = lives(snapshot, volume)?;
    let lives = lives.split_off(lives.len().saturating_sub(LIVES_MAX));
    Ok(Some(History { epoch: row.epoch, lives }))
}

/// True if nothing was ever committed in the volume, whose first version is `first`.
pub(super) fn is_unused<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    first: Version,
) -> Result<bool, Fault<S::Error>> {
    let lives = lives(snapshot, volume)?;
    Ok(lives.into_iter().all(|(start, last)| last <= start.max(first.counter)))
}

/// The first and the last version of each life.
fn lives<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
) -> Result<Vec<(u64, u64)>, Fault<S::Error>> {
    let (from, end) = (keys::life(volume, 0), keys::life(volume, u64::MAX));
    let rows = snapshot.range(&from, &end, usize::MAX).map_err(Fault::Store)?;
    let mut lives = Vec::new();
    let mut first = 0;
    for (key, value) in &rows {
        let life: LifeRow = rows::decode(value, "a life")?;
        lives.push((first, life.last));
        first = keys::life_part(key).ok_or(Fault::Damaged("a life's key"))?;
    }
    lives.push((first, super::tally(snapshot, volume)?.commits));
    Ok(lives)
}

/// Some host knows `known`, which the volume has forgotten: inode numbers that were granted since
/// may be used by those who have them, as far as no inode has them.
pub fn admit_lost<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
    known: Version,
) -> Result<(), Fault<T::Error>> {
    let life = next_life(txn, |start| keys::life(volume, start), known.counter)?;
    let Some((key, LifeRow { next_ino: first, .. })) = life else { return Ok(()) };
    let start = keys::life_part(&key).ok_or(Fault::Damaged("a life's key"))?;
    // All that any lost life granted: each of them began before this one did.
    let end = first_ino(first, start).ok_or(Fault::Damaged("a life's row"))?;
    let mut row = super::volume::existing(txn, volume)?;
    if row.lost.iter().any(|lost| lost.contains(crate::nouns::Ino(first))) {
        return Ok(());
    }
    row.lost.push(InoGrant { first, count: end - first });
    rows::put_row(txn, &keys::volume(volume), &row)
}
