//! The floor: what the disk, SQLite and the processor give without Segue.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::chunk::fingerprint;

use super::client::wrong;
use super::data::CHUNK;
use super::recorder::{Recorder, Transaction, Write};
use crate::workload::expect;
use segue_bed::{Doing, Error, Result};

/// Bytes of each small file, here as in the server.
pub(super) const FILE_BYTES: usize = 1024;

/// A database as the server's, and what the rules would write into it.
pub(super) struct Floor {
    dir: PathBuf,
    connection: Connection,
    recorder: Recorder,
}

impl Floor {
    /// Makes the floor in `dir`.
    pub(super) fn open(dir: &Path) -> Result<Floor> {
        let connection = writer(&dir.join("floor.db"))?;
        let (recorder, made) = Recorder::new(vec![b'x'; FILE_BYTES])?;
        replay(&connection, &[made])?;
        Ok(Floor { dir: dir.to_owned(), connection, recorder })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is written for the next changes, `changes` in each transaction.
    pub(super) fn record(&mut self, transactions: u32, changes: u32) -> Result<Vec<Transaction>> {
        (0..transactions).map(|_| self.recorder.transaction(changes)).collect()
    }

    /// Seconds that SQLite takes for the next changes.
    pub(super) fn apply(&mut self, transactions: u32, changes: u32) -> Result<f64> {
        let all = self.record(transactions, changes)?;
        let seconds = replay(&self.connection, &all)?;
        let count = "SELECT count(*) FROM kv";
        let rows: i64 = self.connection.query_row(count, [], |row| row.get(0)).map_err(sql)?;
        let right = usize::try_from(rows) == Ok(self.recorder.rows());
        expect(right, || format!("SQLite has {rows} rows, not {}", self.recorder.rows()))?;
        Ok(seconds)
    }

    /// Seconds for writing chunks durably: synced, then a row for each, `batch` at a time.
    pub(super) fn keep(&self, chunks: &[&[u8]], batch: usize) -> Result<f64> {
        let mut file = File::create(self.plain()).doing("make a plain file")?;
        let rows: Vec<Transaction> = chunks
            .chunks(batch)
            .map(|batch| {
                let key = |chunk: &&[u8]| fingerprint(chunk).0.to_vec();
                // About as long as the place of a chunk.
                batch.iter().map(|chunk| Write::Put(key(chunk), vec![1; 24])).collect()
            })
            .collect();
        let start = Instant::now();
        for (batch, rows) in chunks.chunks(batch).zip(&rows) {
            for chunk in batch {
                file.write_all(chunk).doing("write a plain file")?;
            }
            file.sync_data().doing("sync a plain file")?;
            replay(&self.connection, std::slice::from_ref(rows))?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let forget = |write: &Write| match write {
            Write::Put(key, _) | Write::Remove(key) => Write::Remove(key.clone()),
        };
        let back: Vec<Transaction> =
            rows.iter().map(|rows| rows.iter().map(forget).collect()).collect();
        replay(&self.connection, &back)?;
        Ok(seconds)
    }

    /// Seconds for reading the plain file and hashing it.
    pub(super) fn read_and_hash(&self) -> Result<f64> {
        let start = Instant::now();
        read_and_hash(&self.plain())?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn plain(&self) -> PathBuf {
        self.dir.join("plain")
    }
}

/// Reads a file and hashes it, a chunk at a time; its length.
pub(super) fn read_and_hash(path: &Path) -> Result<u64> {
    let mut file = File::open(path).doing("open a plain file")?;
    let mut buffer = vec![0; CHUNK];
    let (mut sum, mut bytes) = (0u8, 0);
    loop {
        match file.read(&mut buffer).doing("read a plain file")? {
            0 => break,
            len => {
                sum ^= fingerprint(buffer.get(..len).unwrap_or_default()).0[0];
                bytes += len as u64;
            }
        }
    }
    std::hint::black_box(sum);
    Ok(bytes)
}

/// Opens a database for writing as the server does (`server::meta::sqlite`).
pub(super) fn writer(path: &Path) -> Result<Connection> {
    let open = || {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "page_size", 16_384)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 1024)?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
        )?;
        Ok(connection)
    };
    open().map_err(sql)
}

/// Opens a database for reading as the server does.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path).map_err(sql)?;
    connection.pragma_update(None, "cache_size", -16_384).map_err(sql)?;
    Ok(connection)
}

/// The value of `key`, in a read transaction of its own.
pub(super) fn look_up(connection: &Connection, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let read = || {
        connection.execute_batch("BEGIN")?;
        let mut statement = connection.prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        let value = statement.query_row(params![key], |row| row.get(0)).optional()?;
        connection.execute_batch("ROLLBACK")?;
        Ok(value)
    };
    read().map_err(sql)
}

/// Seconds for writing `transactions`, each durable before the next.
pub(super) fn replay(connection: &Connection, transactions: &[Transaction]) -> Result<f64> {
    let start = Instant::now();
    for transaction in transactions {
        write(connection, transaction).map_err(sql)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn write(connection: &Connection, transaction: &Transaction) -> rusqlite::Result<()> {
    let batch = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
    batch("BEGIN IMMEDIATE")?;
    let mut put = connection.prepare_cached(
        "INSERT INTO kv (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = ?2",
    )?;
    let mut remove = connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?;
    for write in transaction {
        match write {
            Write::Put(key, value) => put.execute(params![key, value])?,
            Write::Remove(key) => remove.execute(params![key])?,
        };
    }
    batch("COMMIT")
}

pub(super) fn sql(error: rusqlite::Error) -> Error {
    wrong(error)
}
