//! The ordered key-value store as one table of SQLite.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Row, ffi, params};
use segue_core::namespace::{MetaSnapshot, MetaTxn};

use super::pending::Pending;
use super::seal::{seal, unseal};

/// Bytes of a page of a new store. SQLite keeps up to a quarter of it of a row in place, and a
/// row that is longer costs a page of its own: the data of a small file should not.
const PAGE_BYTES: u32 = 16 << 10;
/// Pages of the log after which a commit writes them back: 16 MiB.
const CHECKPOINT_PAGES: u32 = 1024;

/// Opens the one connection that writes; `make` makes a store where there is none.
pub(super) fn writer(path: &Path, make: bool) -> rusqlite::Result<Connection> {
    let made = if make { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | made;
    let connection = Connection::open_with_flags(path, flags)?;
    // Before the first write, or it is too late.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // Negative: KiB.
    connection.pragma_update(None, "cache_size", -65_536)?;
    distrust(&connection)?;
    if make {
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
        )?;
    }
    Ok(connection)
}

/// Opens a connection that reads.
pub(super) fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    distrust(&connection)?;
    Ok(connection)
}

/// Has SQLite look closely at each page that it takes from the disk.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cell_size_check", true)
}

/// A row that is not what was written.
fn damage(key: &[u8]) -> rusqlite::Error {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let words = format!("the row {key} is not what was written");
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(words))
}

/// True if what was read is damaged, which leaves everything else usable.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// A transaction that is open on a connection, for reading or for writing.
pub(crate) struct Kv<'a> {
    connection: &'a Connection,
    /// Where keys of damaged rows go, for whoever goes on without them.
    noted: Option<Noted>,
    /// What the transaction has written so far; `None` for one that reads.
    pending: Option<&'a mut Pending>,
}

/// Keys of damaged rows that were passed over.
#[derive(Clone, Default)]
pub(crate) struct Noted(Rc<RefCell<Vec<Vec<u8>>>>);

impl Noted {
    fn note(&self, key: &[u8]) {
        self.0.borrow_mut().push(key.to_vec());
    }

    /// Those since the last call, each once.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        let mut keys = self.0.take();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl<'a> Kv<'a> {
    /// A transaction that reads.
    pub(super) fn reading(connection: &'a Connection) -> Self {
        Kv { connection, noted: None, pending: None }
    }

    /// A transaction whose writes gather in `pending`.
    pub(super) fn writing(connection: &'a Connection, pending: &'a mut Pending) -> Self {
        Kv { connection, noted: None, pending: Some(pending) }
    }

    /// A transaction that reads and passes over damaged rows as if they were not there, and notes their keys.
    pub(super) fn noting(connection: &'a Connection) -> Self {
        Kv { connection, noted: Some(Noted::default()), pending: None }
    }

    /// The damaged rows that were passed over, each once.
    pub(super) fn noted(self) -> Vec<Vec<u8>> {
        self.noted.map(|noted| noted.take()).unwrap_or_default()
    }

    /// From now on damaged rows are passed over too, and their keys are told.
    pub(crate) fn note(&mut self) -> Noted {
        self.noted.get_or_insert_default().clone()
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    /// The key and value of a row; `None` if it is damaged and passed over.
    fn checked<'r>(&self, row: &'r Row<'_>) -> rusqlite::Result<Option<(&'r [u8], &'r [u8])>> {
        // A flip may have made something else than bytes of either.
        let key = row.get_ref(0)?.as_blob().unwrap_or_default();
        let sealed = row.get_ref(1)?.as_blob().unwrap_or_default();
        match (unseal(key, sealed), &self.noted) {
            (Some(value), _) => Ok(Some((key, value))),
            (None, None) => Err(damage(key)),
            (None, Some(noted)) => {
                noted.note(key);
                Ok(None)
            }
        }
    }

    /// Checks the rows of a search that wants nothing of them.
    fn check(&self, sql: &str, key: &[u8]) -> rusqlite::Result<()> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params![key])?;
        if let Some(row) = rows.next()? {
            self.checked(row)?;
        }
        Ok(())
    }

    fn stored(&self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let mut statement = self.statement("SELECT k, v FROM kv WHERE k = ?1")?;
        let mut rows = statement.query(params![key])?;
        if let Some(row) = rows.next()? {
            return Ok(self.checked(row)?.map(|(_, value)| value.to_vec()));
        }
        self.check(BEFORE, key)?;
        self.check(AFTER, key)?;
        Ok(None)
    }

    fn stored_range(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        self.check(BEFORE, from)?;
        // Without an end, which only a row that is whole can say.
        let mut statement = self.statement("SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k")?;
        let mut rows = statement.query(params![from])?;
        while found.len() < limit
            && let Some(row) = rows.next()?
        {
            match self.checked(row)? {
                Some((key, _)) if key >= to => break,
                Some((key, value)) => found.push((key.to_vec(), value.to_vec())),
                None => {}
            }
        }
        Ok(found)
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> rusqlite::Result<()> {
        match &mut self.pending {
            Some(pending) => {
                pending.set(key, value.map(<[u8]>::to_vec));
                Ok(())
            }
            None => store(self.connection, key, value),
        }
    }
}

/// Puts a row into SQLite, or removes it.
pub(super) fn store(
    connection: &Connection,
    key: &[u8],
    value: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let Some(value) = value else {
        let mut statement = connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?;
        return statement.execute(params![key]).map(drop);
    };
    let mut statement = connection.prepare_cached(
        "INSERT INTO kv (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = ?2",
    )?;
    statement.execute(params![key, seal(key, value)]).map(drop)
}

const BEFORE: &str = "SELECT k, v FROM kv WHERE k < ?1 ORDER BY k DESC LIMIT 1";
const AFTER: &str = "SELECT k, v FROM kv WHERE k > ?1 ORDER BY k LIMIT 1";

impl MetaSnapshot for Kv<'_> {
    type Error = rusqlite::Error;

    fn get(&mut self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        if let Some(known) = self.pending.as_ref().and_then(|pending| pending.get(key)) {
            return Ok(known);
        }
        let value = self.stored(key)?;
        if let Some(pending) = &mut self.pending {
            pending.learn(key, &value);
        }
        Ok(value)
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Some(pending) = &self.pending else { return self.stored_range(from, to, limit) };
        // Each new row hides at most one that SQLite has.
        let hidden = pending.new_in(from, to);
        let rows = self.stored_range(from, to, limit.saturating_add(hidden))?;
        if hidden == 0 {
            return Ok(rows);
        }
        Ok(pending.merge((from, to), limit, rows))
    }
}

impl MetaTxn for Kv<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> rusqlite::Result<()> {
        self.write(key, Some(value))
    }

    fn remove(&mut self, key: &[u8]) -> rusqlite::Result<()> {
        self.write(key, None)
    }
}
