//! The store thread: the only writer, which commits what has come in as one transaction.
//!
//! While one group is being made durable the next one gathers, so a commit's fsync is shared
//! by everything that arrived during the one before. What jobs write gathers in memory: one that
//! fails leaves nothing and the others of its group proceed, also where it reads something
//! damaged; and SQLite gets each row once. Nobody is answered before the commit.
//!
//! A failed commit poisons the store until the next start: what the disk then holds is not
//! known, and asking again would only hide that. A full disk is different: SQLite takes the
//! group back, and there may be space later. So is a damaged page that a row belongs on: nothing
//! of the group was written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use rusqlite::Connection;
use segue_core::namespace::changes::{self, Changed};
use segue_core::namespace::{Fault, keys};
use segue_core::nouns::{Ino, VolumeId};
use segue_core::promise::{Change, Object, Promising, SessionId};
use tokio::sync::oneshot;

use super::sqlite::{Kv, is_damage, store};
use super::write_buffer::WriteBuffer;
use super::{MetaFault, StoreError};
use crate::clock::now_seconds;
use crate::disk_space::{COMMIT_BYTES, DiskSpace};
use crate::promises::Promises;

/// Most jobs of one commit, so that none waits long for the others.
const GROUP_MAX: usize = 128;

/// Something to be done in a transaction and answered after its commit.
pub(super) trait Job: Send {
    /// The session that asked for it, if one did.
    fn author(&self) -> Option<SessionId>;
    /// Does it; false takes back what it wrote.
    fn run(&mut self, txn: &mut Kv<'_>) -> Result<bool, rusqlite::Error>;
    /// Of which inodes its author is told what they are now.
    fn tells(&self) -> &[Ino];
    /// Tells who asked what came of the commit, and of which of these inodes changes are not
    /// promised.
    fn answer(self: Box<Self>, commit: Result<Promising, StoreError>);
}

/// A job made of a closure.
pub(super) struct Task<F, R> {
    author: Option<SessionId>,
    work: Option<F>,
    result: Option<Result<R, StoreError>>,
    tells: Vec<Ino>,
    answer: oneshot::Sender<Done<R>>,
}

/// What came of a job, and of which inodes that its author was told of changes are not promised.
pub(super) type Done<R> = Result<(R, Promising), StoreError>;

impl<F, R> Task<F, R> {
    pub(super) fn new(
        author: Option<SessionId>,
        work: F,
        answer: oneshot::Sender<Done<R>>,
    ) -> Self {
        Task { author, work: Some(work), result: None, tells: Vec::new(), answer }
    }
}

impl<F, R> Job for Task<F, R>
where
    F: FnOnce(&mut Kv<'_>) -> Result<(R, Vec<Ino>), MetaFault> + Send,
    R: Send,
{
    fn author(&self) -> Option<SessionId> {
        self.author
    }

    fn run(&mut self, txn: &mut Kv<'_>) -> Result<bool, rusqlite::Error> {
        let Some(work) = self.work.take() else { return Ok(false) };
        match work(txn) {
            Ok((result, tells)) => (self.result, self.tells) = (Some(Ok(result)), tells),
            Err(Fault::Store(error)) if !is_damage(&error) => return Err(error),
            Err(fault) => {
                let error = StoreError::from(fault);
                tracing::error!("{error}");
                self.result = Some(Err(error));
            }
        }
        Ok(matches!(self.result, Some(Ok(_))))
    }

    fn tells(&self) -> &[Ino] {
        &self.tells
    }

    fn answer(self: Box<Self>, commit: Result<Promising, StoreError>) {
        let Task { result, answer, .. } = *self;
        let result = result.unwrap_or(Err(StoreError::Poisoned));
        // Who asked may have gone: the work is done all the same.
        let _ = answer.send(commit.and_then(|promising| Ok((result?, promising))));
    }
}

/// Runs jobs until nobody can send any more. From `large` bytes of rows on SQLite gets them
/// before the next job.
pub(super) fn run(
    connection: &Connection,
    jobs: &Receiver<Box<dyn Job>>,
    (poisoned, disk_space): (&AtomicBool, &DiskSpace),
    promises: &Promises,
    large: usize,
) {
    while let Ok(first) = jobs.recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(next) = jobs.try_recv()
        {
            group.push(next);
        }
        let done = match poisoned.load(Ordering::Acquire) {
            true => Err(StoreError::Poisoned),
            false => {
                // A commit that finds no space fails, and says so.
                disk_space.make_available(COMMIT_BYTES).ok();
                let done = commit(connection, &mut group, WriteBuffer::new(large));
                done.map_err(|error| failed(&error, poisoned))
            }
        };
        match done {
            // Before anybody hears that it is done: who reads from now on reads what is new.
            Ok(Committed { changes, number }) => {
                let told = |(job, change): (Box<dyn Job>, _)| {
                    let promising = promises.committed_by(job.author(), &change, job.tells());
                    (job, promising)
                };
                let told: Vec<_> = group.into_iter().zip(changes).map(told).collect();
                number.into_iter().for_each(|number| promises.committed(number));
                told.into_iter().for_each(|(job, promising)| job.answer(Ok(promising)));
            }
            Err(error) => group.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }
}

fn failed(error: &rusqlite::Error, poisoned: &AtomicBool) -> StoreError {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
        tracing::error!("the disk is full: {error}");
        return StoreError::Full;
    }
    if is_damage(error) {
        let error = StoreError::Damaged(error.to_string().into());
        tracing::error!("{error}");
        return error;
    }
    poisoned.store(true, Ordering::Release);
    tracing::error!("cannot write the metadata, restart the server: {error}");
    StoreError::Poisoned
}

/// What a group of jobs did.
struct Committed {
    /// What each of them changed.
    changes: Vec<Change>,
    /// The number of the commit, if it changed anything.
    number: Option<u64>,
}

fn commit(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    buffer: WriteBuffer,
) -> rusqlite::Result<Committed> {
    let done = try_commit(connection, group, buffer);
    // Some errors have rolled back by themselves.
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    done
}

fn try_commit(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    mut buffer: WriteBuffer,
) -> rusqlite::Result<Committed> {
    let mut changes = Vec::new();
    let mut all: BTreeMap<VolumeId, Changed> = BTreeMap::new();
    let batch = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
    batch("BEGIN IMMEDIATE")?;
    for job in group {
        let mut change = Change::default();
        match job.run(&mut Kv::writing(connection, &mut buffer))? {
            true => {
                for (volume, changed) in Changed::of(buffer.written()) {
                    change.objects.extend(changed.inodes.iter().map(|ino| (volume, *ino)));
                    all.entry(volume).or_default().and(changed);
                }
                let is_gone = |(volume, ino): &Object| {
                    buffer.get(&keys::inode(*volume, *ino)).is_some_and(|row| row.is_none())
                };
                change.gone = change.objects.iter().copied().filter(is_gone).collect();
                buffer.keep();
            }
            false => buffer.take_back(),
        }
        changes.push(change);
        if buffer.is_large() {
            flush(connection, &mut buffer)?;
        }
    }
    let number = match all.is_empty() {
        true => None,
        false => Some(note(connection, &mut buffer, all)?),
    };
    flush(connection, &mut buffer)?;
    batch("COMMIT")?;
    Ok(Committed { changes, number })
}

/// Notes what the group changed. Its number.
fn note(
    connection: &Connection,
    buffer: &mut WriteBuffer,
    changed: BTreeMap<VolumeId, Changed>,
) -> rusqlite::Result<u64> {
    let noted = changes::note(&mut Kv::writing(connection, buffer), changed, now_seconds());
    buffer.keep();
    noted.map_err(|fault| match fault {
        Fault::Store(error) => error,
        Fault::Damaged(what) => rusqlite::Error::ToSqlConversionFailure(what.into()),
    })
}

fn flush(connection: &Connection, buffer: &mut WriteBuffer) -> rusqlite::Result<()> {
    buffer.take().try_for_each(|(key, value)| store(connection, &key, value.as_deref()))
}
