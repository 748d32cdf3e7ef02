//! Where the chunks of a directory of backups are.
//!
//! It only spares reading all packs: what packs have beyond what it knows is looked up in them
//! when it is opened, and a missing one is made anew from them. That a pack still has what it
//! says is known only from reading it again ([`Index::read_again`]).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use segue_core::namespace::ChunkPlace;
use segue_core::nouns::{Fingerprint, VolumeId};

use super::BackupDir;
use crate::packs::{file_name, pack_files, scan};
use crate::task::Failed;

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
                tracing::warn!("{} is damaged, rebuilding it: {error}", path.display());
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
            tracing::info!("using a temporary index of {}: {}", packs.display(), failed.words);
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
             CREATE INDEX IF NOT EXISTS chunk_of_pack ON chunk (pack); \
             CREATE TABLE IF NOT EXISTS pack (id INTEGER PRIMARY KEY, upto INTEGER, round INTEGER)",
        )?;
        Ok(Index { path: path.to_owned(), connection, of: None })
    }

    fn fail(&self, error: &rusqlite::Error) -> Failed {
        let words = "remove it, and the next backup rebuilds it from the packs";
        Failed::disk(&self.path, &format!("{error}; {words}"))
    }

    /// Where a chunk is.
    pub(crate) fn find(&self, fingerprint: &Fingerprint) -> Result<Option<ChunkPlace>, Failed> {
        self.try_find(fingerprint).map_err(|error| self.fail(&error))
    }

    fn try_find(&self, fingerprint: &Fingerprint) -> rusqlite::Result<Option<ChunkPlace>> {
        let sql = "SELECT pack, offset, stored_len, raw_len FROM chunk WHERE fingerprint = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row(params![fingerprint.0], place).optional()
    }

    /// Adds chunks that are on the disk, each in its pack behind those that were added before.
    pub(crate) fn add(&self, chunks: &[(Fingerprint, ChunkPlace)]) -> Result<(), Failed> {
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

    fn put(&self, fingerprint: &Fingerprint, place: &ChunkPlace) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO chunk VALUES (?1, ?2, ?3, ?4, ?5)";
        let ChunkPlace { pack, offset, stored_len, raw_len, .. } = *place;
        let mut statement = self.connection.prepare_cached(sql)?;
        let (of, at) = (pack.cast_signed(), offset.cast_signed());
        statement.execute(params![fingerprint.0, of, at, stored_len, raw_len])?;
        self.put_pack(pack, offset + u64::from(stored_len))
    }

    fn put_pack(&self, pack: u64, upto: u64) -> rusqlite::Result<()> {
        let numbers = params![pack.cast_signed(), upto.cast_signed()];
        let sql = "UPDATE pack SET upto = ?2 WHERE id = ?1";
        if self.connection.prepare_cached(sql)?.execute(numbers)? == 0 {
            // Behind all others: however many are new each time, the old ones have their turn.
            let sql = "INSERT INTO pack SELECT ?1, ?2, COALESCE(MAX(round), 0) FROM pack";
            self.connection.execute(sql, numbers)?;
        }
        Ok(())
    }

    /// All packs, those first that were read again the longest ago.
    pub(crate) fn packs(&self) -> Result<Vec<u64>, Failed> {
        let packs = || -> rusqlite::Result<Vec<u64>> {
            let sql = "SELECT id FROM pack ORDER BY round, id";
            let mut statement = self.connection.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0).map(i64::cast_unsigned))?;
            rows.collect()
        };
        packs().map_err(|error| self.fail(&error))
    }

    /// The number of the next round of reading again.
    pub(crate) fn next_round(&self) -> Result<i64, Failed> {
        let sql = "SELECT COALESCE(MAX(round), 0) + 1 FROM pack";
        let round = self.connection.query_row(sql, [], |row| row.get(0));
        round.map_err(|error| self.fail(&error))
    }

    /// Reads all of a pack, and forgets what is not there any more as it was written: that is
    /// returned. `each` is given the length of every chunk, and says whether to go on.
    pub(crate) fn read_again(
        &self,
        (packs, pack): (&Path, u64),
        round: i64,
        each: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<Fingerprint>, Failed> {
        let fail = |error: rusqlite::Error| self.fail(&error);
        let mut gone = self.chunks_of(pack).map_err(fail)?;
        let path = packs.join(file_name(pack));
        let read = scan::entries(&path, 0, &mut |entry, offset| {
            if gone.get(&entry.fingerprint) == Some(&entry.place(pack, offset)) {
                gone.remove(&entry.fingerprint);
            }
            match each(u64::from(entry.stored_len)) {
                true => Ok(()),
                false => Err(Broken::Stopped),
            }
        });
        match read {
            // What a disk cannot read is gone like what it reads wrong.
            Ok(_) | Err(Broken::Pack(_)) => {}
            Err(Broken::Stopped) => return Err(Failed::stopped()),
            Err(Broken::Index(error)) => return Err(fail(error)),
        }
        let forget = || {
            self.begin()?;
            let mut statement =
                self.connection.prepare_cached("DELETE FROM chunk WHERE fingerprint = ?1")?;
            gone.keys().try_for_each(|name| statement.execute(params![name.0]).map(drop))?;
            let sql = "UPDATE pack SET round = ?2 WHERE id = ?1";
            self.connection.execute(sql, params![pack.cast_signed(), round])?;
            self.commit()
        };
        forget().map_err(fail)?;
        Ok(gone.into_keys().collect())
    }

    fn chunks_of(&self, pack: u64) -> rusqlite::Result<BTreeMap<Fingerprint, ChunkPlace>> {
        let sql =
            "SELECT pack, offset, stored_len, raw_len, fingerprint FROM chunk WHERE pack = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![pack.cast_signed()], |row| {
            Ok((Fingerprint(row.get(4)?), place(row)?))
        })?;
        rows.collect()
    }

    /// Takes in what packs have and the index does not, and the other way round.
    fn catch_up(&self, packs: &Path) -> Result<(), Failed> {
        let fail = |error: rusqlite::Error| self.fail(&error);
        let files = pack_files(packs).map_err(|error| Failed::io(packs, &error))?;
        self.make_lasting(packs)?;
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
                self.make_lasting(&path)?;
                self.put_pack(pack, end).and_then(|()| self.commit()).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// Returns when the bytes of a pack, or the names of all, are on the disk. A backup that was
    /// killed may not have come to that, and whoever finds a chunk in the index takes it for kept.
    fn make_lasting(&self, path: &Path) -> Result<(), Failed> {
        if self.path.as_os_str().is_empty() {
            // Nobody relies on an index that is gone with its reader.
            return Ok(());
        }
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|error| Failed::io(path, &error))
    }

    fn known(&self) -> rusqlite::Result<Vec<(u64, u64)>> {
        let mut statement = self.connection.prepare("SELECT id, upto FROM pack")?;
        let rows = statement.query_map([], |row| {
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            Ok((number(0)?, number(1)?))
        })?;
        rows.collect()
    }

    /// Forgets a pack that goes: another one that has its number is not taken for it.
    pub(crate) fn remove(&self, pack: u64) -> Result<(), Failed> {
        self.forget(pack).map_err(|error| self.fail(&error))
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

/// The place that a row begins with.
fn place(row: &rusqlite::Row<'_>) -> rusqlite::Result<ChunkPlace> {
    let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let (stored_len, raw_len) = (row.get(2)?, row.get(3)?);
    let (pack, offset, compressed) = (number(0)?, number(1)?, stored_len < raw_len);
    Ok(ChunkPlace { pack, offset, stored_len, raw_len, compressed })
}

/// Why a pack cannot be taken in.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Pack(#[from] io::Error),
    #[error("its index: {0}")]
    Index(#[from] rusqlite::Error),
    #[error("nobody listens any more")]
    Stopped,
}

fn is_broken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::disk_space::Purpose;
    use crate::packs::{Packs, StoredChunk};

    fn put(packs: &Packs, bytes: &'static [u8]) -> (Fingerprint, ChunkPlace) {
        let fingerprint = segue_core::chunk::fingerprint(bytes);
        let raw_len = u32::try_from(bytes.len()).unwrap();
        let chunk = StoredChunk { fingerprint, raw_len, stored: bytes.into() };
        let (places, unsynced) = packs.append(VolumeId(1), &[chunk], Purpose::Store).unwrap();
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
    /// Some at a time, all are read again; what is not what it was is forgotten, and what stands
    /// beside it is not.
    #[test]
    fn packs_have_their_turns_to_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, packs_path) = (dir.path().join("index.db"), dir.path().join("packs"));
        std::fs::create_dir(&packs_path).unwrap();
        let packs = Packs::open(&packs_path, 0).unwrap();
        let chunks: Vec<_> = [&b"one"[..], b"two", b"three", b"four", b"five", b"six"]
            .into_iter()
            .enumerate()
            .map(|(number, bytes)| {
                let chunk = put(&packs, bytes);
                if number % 2 == 1 {
                    packs.close(chunk.1.pack);
                }
                chunk
            })
            .collect();
        let index = Index::open(&path, &packs_path).unwrap();
        let mut turns = Vec::new();
        for _ in 0..3 {
            let (pack, round) = (index.packs().unwrap()[0], index.next_round().unwrap());
            let gone = index.read_again((&packs_path, pack), round, &mut |_| true).unwrap();
            assert_eq!(gone, []);
            turns.push(pack);
        }
        assert_eq!(turns, [1, 2, 3]);
        // One that is read wrong, and one that cannot be read at all.
        let file = OpenOptions::new().write(true).open(packs_path.join(file_name(1))).unwrap();
        file.write_all_at(b"x", chunks[0].1.offset).unwrap();
        std::fs::remove_file(packs_path.join(file_name(3))).unwrap();
        std::fs::create_dir(packs_path.join(file_name(3))).unwrap();
        let read = |pack| index.read_again((&packs_path, pack), 9, &mut |_| true).unwrap();
        assert_eq!(read(1), [chunks[0].0]);
        let gone = read(3);
        assert!(gone.len() == 2 && gone.contains(&chunks[4].0) && gone.contains(&chunks[5].0));
        let known = chunks.iter().map(|(name, _)| index.find(name).unwrap().is_some());
        assert!(known.eq([false, true, true, true, false, false]));
    }
}
