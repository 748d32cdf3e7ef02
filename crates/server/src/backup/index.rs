//! Where the chunks of a directory of backups are.
//!
//! It only spares reading all packs: what packs have beyond what it knows is looked up in them
//! when it is opened, and a missing one is made anew from them.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use segue_core::namespace::Place;
use segue_core::types::{Fingerprint, VolumeId};

use super::BackupDir;
use crate::failed::Failed;
use crate::packs::{file_name, pack_files, scan};

/// The open index.
pub(crate) struct Index {
    path: PathBuf,
    connection: Connection,
    /// Whose chunks only, if not all of them.
    of: Option<VolumeId>,
}

impl Index {
    /// Opens the index in `path` of the packs in `packs`, up to date.
    pub(crate) fn open(path: &Path, packs: &Path) -> Result<Index, Failed> {
        let index = match Index::at(path) {
            Err(error) if is_broken(&error) => {
                tracing::warn!("{} is damaged and is made anew: {error}", path.display());
                std::fs::remove_file(path).map_err(|error| Failed::io(path, &error))?;
                Index::at(path)
            }
            other => other,
        };
        let index = index.map_err(|error| Failed::disk(path, &error))?;
        index.catch_up(packs)?;
        Ok(index)
    }

    /// The index of a directory of backups that may be one to read only.
    pub(crate) fn reading(directory: &BackupDir) -> Result<Index, Failed> {
        let packs = directory.packs();
        let opened = Index::open(&directory.index(), &packs);
        opened.or_else(|failed| {
            tracing::info!("an index is made beside {}: {}", packs.display(), failed.words);
            Index::beside(&packs, None)
        })
    }

    /// An index in a file that has no name: of all chunks, or those of one volume.
    pub(crate) fn beside(packs: &Path, of: Option<VolumeId>) -> Result<Index, Failed> {
        let index = Index::at(Path::new("")).map_err(|error| Failed::disk(packs, &error))?;
        let index = Index { of, ..index };
        index.catch_up(packs)?;
        Ok(index)
    }

    fn at(path: &Path) -> rusqlite::Result<Index> {
        if !path.as_os_str().is_empty() {
            // SQLite would make it readable for others.
            let mut options = OpenOptions::new();
            let made = options.write(true).create(true).truncate(false).mode(0o600).open(path);
            drop(made);
        }
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS chunk (fingerprint BLOB PRIMARY KEY, pack INTEGER, \
             offset INTEGER, stored_len INTEGER, raw_len INTEGER) WITHOUT ROWID; \
             CREATE TABLE IF NOT EXISTS pack (id INTEGER PRIMARY KEY, upto INTEGER)",
        )?;
        Ok(Index { path: path.to_owned(), connection, of: None })
    }

    fn fail(&self, error: &rusqlite::Error) -> Failed {
        let words = "remove it, and it is made again from the packs";
        Failed::disk(&self.path, &format!("{error}; {words}"))
    }

    /// Where a chunk is.
    pub(crate) fn find(&self, fingerprint: &Fingerprint) -> Result<Option<Place>, Failed> {
        self.try_find(fingerprint).map_err(|error| self.fail(&error))
    }

    fn try_find(&self, fingerprint: &Fingerprint) -> rusqlite::Result<Option<Place>> {
        let sql = "SELECT pack, offset, stored_len, raw_len FROM chunk WHERE fingerprint = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let place = |row: &rusqlite::Row<'_>| {
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            let (stored_len, raw_len) = (row.get(2)?, row.get(3)?);
            let (pack, offset, compressed) = (number(0)?, number(1)?, stored_len < raw_len);
            Ok(Place { pack, offset, stored_len, raw_len, compressed })
        };
        statement.query_row(params![fingerprint.0], place).optional()
    }

    /// Adds chunks that are on the disk, each in its pack behind those that were added before.
    pub(crate) fn add(&self, chunks: &[(Fingerprint, Place)]) -> Result<(), Failed> {
        let add = || {
            self.begin()?;
            chunks.iter().try_for_each(|(fingerprint, place)| self.put(fingerprint, place))?;
            self.commit()
        };
        add().map_err(|error: rusqlite::Error| self.fail(&error))
    }

    fn begin(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")
    }

    fn commit(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")
    }

    fn put(&self, fingerprint: &Fingerprint, place: &Place) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO chunk VALUES (?1, ?2, ?3, ?4, ?5)";
        let Place { pack, offset, stored_len, raw_len, .. } = *place;
        let mut statement = self.connection.prepare_cached(sql)?;
        let (of, at) = (pack.cast_signed(), offset.cast_signed());
        statement.execute(params![fingerprint.0, of, at, stored_len, raw_len])?;
        self.put_pack(pack, offset + u64::from(stored_len))
    }

    fn put_pack(&self, pack: u64, upto: u64) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO pack VALUES (?1, ?2)";
        self.connection
            .prepare_cached(sql)?
            .execute(params![pack.cast_signed(), upto.cast_signed()])
            .map(drop)
    }

    /// Takes in what packs have and the index does not, and the other way round.
    fn catch_up(&self, packs: &Path) -> Result<(), Failed> {
        let fail = |error: rusqlite::Error| self.fail(&error);
        let files = pack_files(packs).map_err(|error| Failed::io(packs, &error))?;
        let known = self.known().map_err(fail)?;
        for (pack, _) in known.iter().filter(|(pack, _)| !files.contains(pack)) {
            self.forget(*pack).map_err(fail)?;
        }
        for pack in files {
            let path = packs.join(file_name(pack));
            let len = path.metadata().map_err(|error| Failed::io(&path, &error))?.len();
            let upto = known.iter().find(|(known, _)| *known == pack).map_or(0, |(_, upto)| *upto);
            if upto > len {
                self.forget(pack).map_err(fail)?;
            }
            if upto != len {
                let from = if upto > len { 0 } else { upto };
                self.begin().map_err(fail)?;
                let end = self.take_in(pack, &path, from);
                let end = end.map_err(|error| Failed::disk(&path, &error))?;
                self.put_pack(pack, end).and_then(|()| self.commit()).map_err(fail)?;
            }
        }
        Ok(())
    }

    fn known(&self) -> rusqlite::Result<Vec<(u64, u64)>> {
        let mut statement = self.connection.prepare("SELECT id, upto FROM pack")?;
        let rows = statement.query_map([], |row| {
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            Ok((number(0)?, number(1)?))
        })?;
        rows.collect()
    }

    fn forget(&self, pack: u64) -> rusqlite::Result<()> {
        let pack = params![pack.cast_signed()];
        self.connection.execute("DELETE FROM chunk WHERE pack = ?1", pack)?;
        self.connection.execute("DELETE FROM pack WHERE id = ?1", pack).map(drop)
    }

    fn take_in(&self, pack: u64, path: &Path, from: u64) -> Result<u64, Broken> {
        scan::entries(path, from, &mut |entry, offset| {
            if self.of.is_some_and(|of| of != entry.volume) {
                return Ok(());
            }
            Ok(self.put(&entry.fingerprint, &entry.place(pack, offset))?)
        })
    }
}

/// Why a pack cannot be taken in.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Pack(#[from] io::Error),
    #[error("its index: {0}")]
    Index(#[from] rusqlite::Error),
}

fn is_broken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::{Packs, StoredChunk};

    fn put(packs: &Packs, bytes: &'static [u8]) -> (Fingerprint, Place) {
        let fingerprint = segue_core::chunk::fingerprint(bytes);
        let raw_len = u32::try_from(bytes.len()).unwrap();
        let chunk = StoredChunk { fingerprint, raw_len, stored: bytes.into() };
        let (places, unsynced) = packs.append(VolumeId(1), &[chunk]).unwrap();
        packs.sync(&unsynced).unwrap();
        (fingerprint, places[0])
    }

    /// Whatever becomes of the index, it says what the packs have.
    #[test]
    fn an_index_follows_its_packs() {
        let dir = tempfile::tempdir().unwrap();
        let (path, packs_path) = (dir.path().join("index.db"), dir.path().join("packs"));
        std::fs::create_dir(&packs_path).unwrap();
        let packs = Packs::open(&packs_path, 0).unwrap();
        let first = put(&packs, b"first");
        let open = || Index::open(&path, &packs_path).unwrap();
        let index = open();
        assert_eq!(index.find(&first.0).unwrap(), Some(first.1));
        // One that was told, and one that a killed backup left.
        let (second, third) = (put(&packs, b"second"), put(&packs, b"third"));
        index.add(&[second]).unwrap();
        assert_eq!(index.find(&third.0).unwrap(), None);
        drop(index);
        for harm in [None, Some(&b"not a database, but long enough to be one, and more"[..])] {
            if let Some(bytes) = harm {
                std::fs::write(&path, bytes).unwrap();
            }
            for (fingerprint, place) in [first, second, third] {
                assert_eq!(open().find(&fingerprint).unwrap(), Some(place));
            }
        }
        let pack = packs_path.join(file_name(1));
        let file = OpenOptions::new().write(true).open(&pack).unwrap();
        file.set_len(third.1.offset).unwrap();
        assert_eq!(open().find(&second.0).unwrap(), Some(second.1));
        assert_eq!(open().find(&third.0).unwrap(), None);
        std::fs::remove_file(&pack).unwrap();
        assert_eq!(open().find(&first.0).unwrap(), None);
    }
}
