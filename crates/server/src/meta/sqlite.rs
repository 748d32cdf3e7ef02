//! The ordered key-value store as one table of SQLite.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use segue_core::namespace::{MetaSnapshot, MetaTxn};

/// Pages of the log after which a commit writes them back: 16 MiB.
const CHECKPOINT_PAGES: u32 = 4096;

/// Opens the one connection that writes.
pub(super) fn writer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // Negative: KiB.
    connection.pragma_update(None, "cache_size", -65_536)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
    )?;
    Ok(connection)
}

/// Opens a connection that reads.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    Ok(connection)
}

/// A transaction that is open on a connection, for reading or for writing.
pub(crate) struct Kv<'a>(pub(super) &'a Connection);

impl MetaSnapshot for Kv<'_> {
    type Error = rusqlite::Error;

    fn get(&mut self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let mut statement = self.0.prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        statement.query_row(params![key], |row| row.get(0)).optional()
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self
            .0
            .prepare_cached("SELECT k, v FROM kv WHERE k >= ?1 AND k < ?2 ORDER BY k LIMIT ?3")?;
        let rows =
            statement.query_map(params![from, to, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }
}

impl MetaTxn for Kv<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> rusqlite::Result<()> {
        let mut statement = self.0.prepare_cached(
            "INSERT INTO kv (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = ?2",
        )?;
        statement.execute(params![key, value]).map(drop)
    }

    fn remove(&mut self, key: &[u8]) -> rusqlite::Result<()> {
        let mut statement = self.0.prepare_cached("DELETE FROM kv WHERE k = ?1")?;
        statement.execute(params![key]).map(drop)
    }
}
