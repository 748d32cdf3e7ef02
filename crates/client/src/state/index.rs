//! Which bytes of the containers are valid, kept over restarts.
//!
//! The index may lag behind: a row names the data version its ranges belong to, and a row of
//! another version than the server's is worth nothing. It is never ahead of the containers (a
//! file's row goes before its container is changed) but after a power loss, when it is emptied.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::cache::{FileData, RangeSet};
use segue_core::types::{Ino, Version};

/// The index of one cache directory.
#[derive(Debug)]
pub(crate) struct Index {
    db: Mutex<Connection>,
}

impl Index {
    /// Opens the index at `path`; a damaged one is made anew, which only costs refetching.
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Index> {
        let db = connect(path).or_else(|error| {
            tracing::warn!("{}: {error}; starting a new one", path.display());
            std::fs::remove_file(path).ok();
            connect(path)
        })?;
        Ok(Index { db: Mutex::new(db) })
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) -> rusqlite::Result<()> {
        self.db().execute("DELETE FROM files", []).map(drop)
    }

    /// Forgets `ino`. Do this before its container is replaced.
    pub(crate) fn remove(&self, ino: Ino) -> rusqlite::Result<()> {
        self.db().prepare_cached("DELETE FROM files WHERE ino = ?1")?.execute([key(ino)]).map(drop)
    }

    /// What is valid of `ino`.
    pub(crate) fn load(&self, ino: Ino) -> rusqlite::Result<Option<(Version, RangeSet)>> {
        let db = self.db();
        let mut query =
            db.prepare_cached("SELECT epoch, counter, ranges FROM files WHERE ino = ?1")?;
        let row = query
            .query_row([key(ino)], |row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?))
            })
            .optional()?;
        Ok(row.and_then(|(epoch, counter, ranges)| {
            let ranges: Vec<(u64, u64)> = postcard::from_bytes(&ranges).ok()?;
            let version = Version { epoch, counter: u64::try_from(counter).ok()? };
            Some((version, ranges.into_iter().map(|(start, end)| start..end).collect()))
        }))
    }

    /// Notes what is valid of clean files.
    pub(crate) fn save(&self, files: &[(Ino, FileData)]) -> rusqlite::Result<()> {
        let mut db = self.db();
        let txn = db.transaction()?;
        {
            let mut put = txn.prepare_cached(
                "INSERT OR REPLACE INTO files (ino, epoch, counter, ranges) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for (ino, data) in files {
                let ranges: Vec<(u64, u64)> =
                    data.valid().iter().map(|range| (range.start, range.end)).collect();
                let ranges = postcard::to_stdvec(&ranges)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
                let version = data.version();
                let counter = i64::try_from(version.counter).unwrap_or(-1);
                put.execute(params![key(*ino), version.epoch, counter, ranges])?;
            }
        }
        txn.commit()
    }
}

/// SQLite's integers are signed; the bits are what matters.
fn key(ino: Ino) -> i64 {
    ino.0.cast_signed()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS files (
            ino INTEGER PRIMARY KEY, epoch INTEGER, counter INTEGER, ranges BLOB
        )",
    )?;
    Ok(db)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_valid_survives_and_a_damaged_index_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.db");
        let version = Version { epoch: 1, counter: 9 };
        let valid: RangeSet = [0..10, 20..30].into_iter().collect();
        let data = FileData::restored(version, valid.clone());
        let index = Index::open(&path).unwrap();
        index.save(&[(Ino(u64::MAX), data)]).unwrap();
        drop(index);
        let index = Index::open(&path).unwrap();
        assert_eq!(index.load(Ino(u64::MAX)).unwrap(), Some((version, valid)));
        index.remove(Ino(u64::MAX)).unwrap();
        assert_eq!(index.load(Ino(u64::MAX)).unwrap(), None);
        drop(index);
        std::fs::write(&path, "no database at all, but long enough to be taken for one").unwrap();
        assert_eq!(Index::open(&path).unwrap().load(Ino(1)).unwrap(), None);
    }
}
