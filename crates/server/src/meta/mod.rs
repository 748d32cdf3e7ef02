//! The metadata store: one writer, many snapshots.
//!
//! Writes go to the store thread and come back durable. Reads take a connection of their own,
//! see one moment of the store and never wait for a commit.
//!
//! What is read is what was written, or it is an error: see `with_sum`.

mod checksum;
mod neighbour_rows;
mod sqlite;
mod write_buffer;
mod writer;

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use segue_core::namespace::lives::{self, Start};
use segue_core::namespace::{Fault, all_awaited, changes};
use segue_core::nouns::Ino;
use segue_core::promise::{Promising, SessionId};
use tokio::sync::{Semaphore, oneshot};

pub(crate) use sqlite::{Kv, Noted};
use writer::{Job, Task};

use crate::connected_clients;
use crate::disk_space::{COMMIT_BYTES, DiskSpace};
use crate::promises::Promises;

/// Snapshots at the same time: more would only queue for the processors.
const READERS: usize = 8;

/// A fault of this store.
pub(crate) type MetaFault = Fault<rusqlite::Error>;

/// Why the store did not do something.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// A write to the disk failed, now or before.
    #[error("the server's disk failed; see the server's log, then restart the server")]
    Poisoned,
    /// There is no space on the disk: nothing was written.
    #[error("the server's disk is full")]
    Full,
    /// Bytes of files could not be written.
    #[error("the server cannot write chunks: {0}")]
    Chunks(String),
    /// It could not be read.
    #[error("the server's metadata cannot be read: {0}")]
    Read(String),
    /// A row makes no sense, or is not what was written.
    #[error("the server's metadata are damaged: {0}")]
    Damaged(Cow<'static, str>),
}

impl From<MetaFault> for StoreError {
    fn from(fault: MetaFault) -> StoreError {
        match fault {
            Fault::Store(error) => error.into(),
            Fault::Damaged(what) => StoreError::Damaged(what.into()),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match sqlite::is_damage(&error) {
            true => StoreError::Damaged(error.to_string().into()),
            false => StoreError::Read(error.to_string()),
        }
    }
}

/// The open store.
pub(crate) struct Store {
    path: PathBuf,
    /// `None` once it is being closed.
    jobs: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    poisoned: Arc<AtomicBool>,
    promises: Arc<Promises>,
    idle: Mutex<Vec<Connection>>,
    readers: Semaphore,
    disk_space: Arc<DiskSpace>,
}

impl Store {
    /// Opens the store in `path`, or makes it.
    pub(crate) fn make(path: &Path) -> Result<Store, String> {
        Self::start(path, true)
    }

    /// Opens the store in `path`, which has to be there.
    pub(crate) fn open(path: &Path) -> Result<Store, String> {
        Self::start(path, false)
    }

    fn start(path: &Path, make: bool) -> Result<Store, String> {
        let disk_space = Arc::new(DiskSpace::beside(path));
        // Also to open it: SQLite makes files beside it.
        disk_space.make_available(COMMIT_BYTES).map_err(|error| error.to_string())?;
        let connection = sqlite::writer(path, make).map_err(|error| error.to_string())?;
        let (jobs, queue) = channel();
        let poisoned = Arc::new(AtomicBool::new(false));
        let absent = connected_clients::all(&mut Kv::reading(&connection));
        let head = changes::head(&mut Kv::reading(&connection), 0);
        let commit = head.map_err(|fault| StoreError::from(fault).to_string())?.last;
        let awaited = all_awaited(&mut Kv::reading(&connection));
        let awaited = awaited.map_err(|fault| StoreError::from(fault).to_string())?;
        let promises = Arc::new(Promises::new(absent, &awaited, commit));
        let (seen, told, of) = (poisoned.clone(), promises.clone(), disk_space.clone());
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                writer::run(&connection, &queue, (&seen, &of), &told, write_buffer::LARGE)
            })
            .map_err(|error| error.to_string())?;
        Ok(Store {
            path: path.to_owned(),
            jobs: Some(jobs),
            thread: Some(thread),
            poisoned,
            promises,
            idle: Mutex::new(Vec::new()),
            readers: Semaphore::new(READERS),
            disk_space,
        })
    }

    /// Has all numbers jump, before anybody is given one: of those of a copy of this store, which
    /// may have been in use, none is given again.
    pub(crate) fn begin_life(&self, start: Start) -> Result<(), StoreError> {
        let last = self.write_blocking(move |txn| lives::begin(txn, start))?;
        last.into_iter().for_each(|last| self.promises.committed(last));
        Ok(())
    }

    /// No write is accepted any more: something that was to be durable may not be.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// The room on the store's disk.
    pub(crate) fn disk_space(&self) -> &Arc<DiskSpace> {
        &self.disk_space
    }

    /// Who is to hear of changes.
    pub(crate) fn promises(&self) -> &Arc<Promises> {
        &self.promises
    }

    fn submit<R: Send + 'static>(
        &self,
        author: Option<SessionId>,
        work: impl FnOnce(&mut Kv<'_>) -> Result<(R, Vec<Ino>), MetaFault> + Send + 'static,
    ) -> oneshot::Receiver<writer::Done<R>> {
        let (answer, answered) = oneshot::channel();
        if let Some(jobs) = &self.jobs {
            // A thread that is gone drops the job, and with it `answer`.
            let _ = jobs.send(Box::new(Task::new(author, work, answer)));
        }
        answered
    }

    /// Does `work` in a transaction and returns when it is durable.
    pub(crate) async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Kv<'_>) -> Result<R, MetaFault> + Send + 'static,
    ) -> Result<R, StoreError> {
        let done = self.submit(None, |txn| Ok((work(txn)?, Vec::new()))).await;
        done.unwrap_or(Err(StoreError::Poisoned)).map(|(result, _)| result)
    }

    /// [`Store::write`] for a session, which is told what the inodes are that come with the result.
    /// What it may rely on of these comes back.
    pub(crate) async fn write_as<R: Send + 'static>(
        &self,
        author: SessionId,
        work: impl FnOnce(&mut Kv<'_>) -> Result<(R, Vec<Ino>), MetaFault> + Send + 'static,
    ) -> Result<(R, Promising), StoreError> {
        self.submit(Some(author), work).await.unwrap_or(Err(StoreError::Poisoned))
    }

    /// [`Store::write`] for who does not wait for it.
    pub(crate) fn write_later(
        &self,
        work: impl FnOnce(&mut Kv<'_>) -> Result<(), MetaFault> + Send + 'static,
    ) {
        drop(self.submit(None, |txn| Ok((work(txn)?, Vec::new()))));
    }

    /// [`Store::write`] for threads that may block.
    pub(crate) fn write_blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Kv<'_>) -> Result<R, MetaFault> + Send + 'static,
    ) -> Result<R, StoreError> {
        let done = self.submit(None, |txn| Ok((work(txn)?, Vec::new()))).blocking_recv();
        done.unwrap_or(Err(StoreError::Poisoned)).map(|(result, _)| result)
    }

    /// Does `work` on a snapshot, on a thread that may block.
    pub(crate) async fn read<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Kv<'_>) -> R + Send + 'static,
    ) -> Result<R, StoreError> {
        let Ok(_permit) = self.readers.acquire().await else { return Err(StoreError::Poisoned) };
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || store.read_blocking(work)).await;
        done.unwrap_or_else(|error| Err(StoreError::Read(error.to_string())))
    }

    /// [`Store::read`] for threads that may block.
    pub(crate) fn read_blocking<R>(
        &self,
        work: impl FnOnce(&mut Kv<'_>) -> R,
    ) -> Result<R, StoreError> {
        self.on_snapshot(|connection| work(&mut Kv::reading(connection)))
    }

    /// [`Store::read_blocking`] that passes over rows that are not what was written, and tells
    /// their keys.
    pub(crate) fn read_noting<R>(
        &self,
        work: impl FnOnce(&mut Kv<'_>) -> R,
    ) -> Result<(R, Vec<Vec<u8>>), StoreError> {
        self.on_snapshot(|connection| {
            let mut kv = Kv::noting(connection);
            (work(&mut kv), kv.noted())
        })
    }

    fn on_snapshot<R>(&self, work: impl FnOnce(&Connection) -> R) -> Result<R, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => sqlite::reader(&self.path)?,
        };
        let run = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
        run("BEGIN")?;
        let result = work(&connection);
        run("ROLLBACK")?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(result)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The writer closes last, because only it may tidy up the log.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been reported where it happened.
            let _ = thread.join();
        }
    }
}
