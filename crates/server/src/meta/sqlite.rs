//! The ordered key-value store as one table of SQLite.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Row, ffi, params};
use segue_core::namespace::{MetaSnapshot, MetaTxn, PastDamage};
use segue_core::upkeep::repair::Unreadable;

use super::checksum::{checked, own_key, with_sum};
use super::neighbour_rows::{NeighbourRows, is_within};
use super::write_buffer::WriteBuffer;

/// Bytes of a page of a new store. SQLite keeps up to a quarter of it of a row in place, and a
/// row that is longer costs a page of its own: the data of a small file should not.
const PAGE_BYTES: u32 = 16 << 10;
/// Pages of the log after which a commit writes them back: 16 MiB.
const CHECKPOINT_PAGES: u32 = 1024;

/// Opens the one connection that writes; `make` makes a store where there is none.
pub(super) fn writer(path: &Path, make: bool) -> rusqlite::Result<Connection> {
    let made = if make { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | made;
    make_private(path, make)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
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

/// Nobody else reads the store, nor the files that SQLite makes beside it, which get its mode.
fn make_private(path: &Path, make: bool) -> io::Result<()> {
    if make {
        File::options().create(true).append(true).mode(0o600).open(path)?;
    }
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match fs::set_permissions(&file, Permissions::from_mode(0o600)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => made?,
        }
    }
    Ok(())
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

/// A key and its value with the sum.
pub(super) type Stored<'r> = (&'r [u8], &'r [u8]);

fn stored<'r>(row: &'r Row<'_>) -> Stored<'r> {
    // A flip may have made something else than bytes of either.
    let blob = |column| row.get_ref(column).ok().and_then(|value| value.as_blob().ok());
    (blob(0).unwrap_or_default(), blob(1).unwrap_or_default())
}

/// A row that is not what was written.
pub(super) fn damage(key: &[u8]) -> rusqlite::Error {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let words = format!("the row {key} is not as it was written");
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
    buffer: Option<&'a mut WriteBuffer>,
}

/// Damaged rows that were passed over.
#[derive(Clone, Default)]
pub(crate) struct Noted(Rc<RefCell<Unreadable>>);

impl Noted {
    fn note(&self, (key, sealed): Stored<'_>) {
        self.0.borrow_mut().entry(key.to_vec()).or_insert_with(|| own_key(key, sealed));
    }

    /// Those since the last call.
    pub(crate) fn take(&self) -> Unreadable {
        self.0.take()
    }
}

impl<'a> Kv<'a> {
    /// A transaction that reads.
    pub(super) fn reading(connection: &'a Connection) -> Self {
        Kv { connection, noted: None, buffer: None }
    }

    /// A transaction whose writes gather in `buffer`.
    pub(super) fn writing(connection: &'a Connection, buffer: &'a mut WriteBuffer) -> Self {
        Kv { connection, noted: None, buffer: Some(buffer) }
    }

    /// A transaction that reads and passes over damaged rows as if they were not there, and notes
    /// their keys.
    pub(super) fn noting(connection: &'a Connection) -> Self {
        Kv { connection, noted: Some(Noted::default()), buffer: None }
    }

    /// The damaged rows that were passed over, each once.
    pub(super) fn noted(self) -> Vec<Vec<u8>> {
        self.noted.map(|noted| noted.take().into_keys().collect()).unwrap_or_default()
    }

    /// From now on damaged rows are passed over too, and their keys are told.
    pub(crate) fn note(&mut self) -> Noted {
        self.noted.get_or_insert_default().clone()
    }

    /// True if so much was written that the rest of the work should be left to another job.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.is_large())
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    /// The value of a row; `None` if it is damaged, which is noted where such rows are passed
    /// over.
    fn value<'r>(&self, (key, sealed): Stored<'r>) -> Option<&'r [u8]> {
        let value = checked(key, sealed);
        if let (None, Some(noted)) = (value, &self.noted) {
            noted.note((key, sealed));
        }
        value
    }

    /// What stands on one side of `key`.
    fn beside(&self, sql: &str, key: &[u8]) -> rusqlite::Result<NeighbourRows> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params![key])?;
        let mut beside = NeighbourRows::default();
        while let Some(row) = rows.next()? {
            let (key, sealed) = stored(row);
            if self.value((key, sealed)).is_some() {
                beside.whole = Some(key.to_vec());
                break;
            }
            if self.noted.is_none() {
                beside.damaged.push((key, sealed))?;
            }
        }
        Ok(beside)
    }

    fn find(&self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let mut statement = self.statement("SELECT k, v FROM kv WHERE k = ?1")?;
        let mut rows = statement.query(params![key])?;
        if let Some(row) = rows.next()? {
            return match self.value(stored(row)) {
                None if self.noted.is_none() => Err(damage(key)),
                value => Ok(value.map(<[u8]>::to_vec)),
            };
        }
        let (before, after) = (self.beside(BEFORE, key)?, self.beside(AFTER, key)?);
        if self.noted.is_none() {
            let between = (before.whole.as_deref(), after.whole.as_deref());
            is_within(key, between).then_some(()).ok_or_else(|| damage(key))?;
            let is_wanted = |(_, sealed): Stored<'_>| checked(key, sealed).is_some();
            before.damaged.check_others(between, is_wanted)?;
            after.damaged.check_others(between, is_wanted)?;
        }
        Ok(None)
    }

    fn find_range(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let NeighbourRows { mut damaged, whole: before } = self.beside(BEFORE, from)?;
        let is_inside = |(own, _): Stored<'_>| own >= from && own < to;
        // Without an end, which only a row that is whole can say.
        let mut statement = self.statement("SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k")?;
        let mut rows = statement.query(params![from])?;
        while found.len() < limit {
            let row = rows.next()?.map(stored);
            let value = row.and_then(|row| self.value(row));
            if self.noted.is_none() {
                if let (Some(row), None) = (row, value) {
                    damaged.push(row)?;
                    continue;
                }
                let after = row.map(|(key, _)| key);
                after.is_none_or(|key| key >= from).then_some(()).ok_or_else(|| damage(from))?;
                let last = found.last().map(|(key, _)| key).or(before.as_ref());
                damaged.check_others((last.map(Vec::as_slice), after), is_inside)?;
                damaged.clear();
            }
            match (row, value) {
                (Some((key, _)), Some(value)) if key < to => {
                    found.push((key.to_vec(), value.to_vec()));
                }
                // One that is damaged, and noted.
                (Some(_), None) => {}
                _ => break,
            }
        }
        Ok(found)
    }

    fn find_past_damage(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<PastDamage> {
        let mut found = PastDamage::new();
        let mut statement = self.statement("SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k")?;
        let mut rows = statement.query(params![from])?;
        while found.len() < limit
            && let Some(row) = rows.next()?
        {
            let (key, sealed) = stored(row);
            match self.value((key, sealed)) {
                Some(_) if key >= to => break,
                Some(value) => found.push((key.to_vec(), Some(value.to_vec()))),
                None if key >= from && key < to && own_key(key, sealed).is_none() => {
                    found.push((key.to_vec(), None));
                }
                None => {}
            }
        }
        Ok(found)
    }

    /// What `below` says of SQLite's rows, with those in it that it has not been given.
    fn with_pending<V: From<Vec<u8>>>(
        &self,
        (from, to): (&[u8], &[u8]),
        limit: usize,
        below: impl FnOnce(usize) -> rusqlite::Result<Vec<(Vec<u8>, V)>>,
    ) -> rusqlite::Result<Vec<(Vec<u8>, V)>> {
        let Some(buffer) = &self.buffer else { return below(limit) };
        // Each new row hides at most one that SQLite has.
        let hidden = buffer.new_in(from, to);
        let rows = below(limit.saturating_add(hidden))?;
        Ok(if hidden == 0 { rows } else { buffer.merge((from, to), limit, rows) })
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> rusqlite::Result<()> {
        match &mut self.buffer {
            Some(buffer) => {
                buffer.set(key, value.map(<[u8]>::to_vec));
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
    statement.execute(params![key, with_sum(key, value)]).map(drop)
}

const BEFORE: &str = "SELECT k, v FROM kv WHERE k < ?1 ORDER BY k DESC";
const AFTER: &str = "SELECT k, v FROM kv WHERE k > ?1 ORDER BY k";

impl MetaSnapshot for Kv<'_> {
    type Error = rusqlite::Error;

    fn get(&mut self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        if let Some(known) = self.buffer.as_ref().and_then(|buffer| buffer.get(key)) {
            return Ok(known);
        }
        let value = self.find(key)?;
        if let Some(buffer) = &mut self.buffer {
            buffer.learn(key, &value);
        }
        Ok(value)
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.with_pending((from, to), limit, |limit| self.find_range(from, to, limit))
    }

    fn range_past_damage(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> rusqlite::Result<PastDamage> {
        self.with_pending((from, to), limit, |limit| self.find_past_damage(from, to, limit))
    }

    fn is_damage(error: &rusqlite::Error) -> bool {
        is_damage(error)
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
