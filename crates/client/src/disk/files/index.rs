//! The index: what of the volume is cached, kept over restarts and for what does not fit into
//! memory.
//!
//! It says what was known at one [`Position`] of the update log. It is never ahead of the log: what
//! is not durable there does not get here.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use segue_core::host::Notes;
use segue_core::host::cache::{Candidate, FileNote, NodeNote, TreeNotes};
use segue_core::nouns::{ContainerId, Ino, Name, Version};
use segue_core::wire::{History, Space};

use super::log::Position;

use crate::rank::{Held, Ranked};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS position (
        one INTEGER PRIMARY KEY, generation INTEGER, entries INTEGER
    );
    CREATE TABLE IF NOT EXISTS latest (one INTEGER PRIMARY KEY, version BLOB);
    CREATE TABLE IF NOT EXISTS space (quota INTEGER PRIMARY KEY, space BLOB);
    CREATE TABLE IF NOT EXISTS nodes (ino INTEGER PRIMARY KEY, note BLOB);
    CREATE TABLE IF NOT EXISTS names (
        directory INTEGER, name BLOB, ino INTEGER, PRIMARY KEY (directory, name)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS files (
        ino INTEGER PRIMARY KEY, container INTEGER, used INTEGER, note BLOB
    );
    CREATE INDEX IF NOT EXISTS files_by_use ON files (used, ino);
";
/// What these tables are like. An index of another layout is made anew.
const LAYOUT: i64 = 3;
const NO_TABLES: &str = "
    DROP TABLE IF EXISTS position; DROP TABLE IF EXISTS latest; DROP TABLE IF EXISTS nodes;
    DROP TABLE IF EXISTS names; DROP TABLE IF EXISTS files;
";

/// The index of one cache directory.
#[derive(Debug)]
pub(crate) struct Index {
    db: Ranked<Connection>,
}

impl Index {
    /// Opens the index at `path`; a damaged one is made anew, which only costs asking and fetching
    /// again.
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Index> {
        let db = connect(path).or_else(|error| {
            tracing::warn!("{}: {error}; starting a new index", path.display());
            for end in ["", "-wal", "-shm"] {
                let mut file = path.as_os_str().to_owned();
                file.push(end);
                std::fs::remove_file(file).ok();
            }
            connect(path)
        })?;
        Ok(Index { db: Ranked::leaf(db) })
    }

    /// Opens one that nobody uses, to look only; `None` if it cannot be read.
    pub(crate) fn open_to_read(path: &Path) -> Option<Index> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let index = Index { db: Ranked::leaf(db.ok()?) };
        index.position().ok().map(|_| index)
    }

    fn db(&self) -> Held<'_, Connection> {
        self.db.lock()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) -> rusqlite::Result<()> {
        self.db().execute_batch(
            "DELETE FROM position; DELETE FROM nodes; DELETE FROM names; DELETE FROM files",
        )
    }

    /// Forgets which data are here, except those of the files `kept`.
    pub(crate) fn clear_files(&self, kept: &[Ino]) -> rusqlite::Result<()> {
        let kept: Vec<String> = kept.iter().map(|ino| signed(ino.0).to_string()).collect();
        let rest = format!("DELETE FROM files WHERE ino NOT IN ({})", kept.join(","));
        self.db().execute(&rest, []).map(drop)
    }

    /// How many inodes it knows, and of how many files it knows data.
    pub(crate) fn counts(&self) -> rusqlite::Result<(u64, u64)> {
        let db = self.db();
        let count = |query: &str| db.query_row(query, [], |row| row.get(0).map(unsigned));
        Ok((count("SELECT count(*) FROM nodes")?, count("SELECT count(*) FROM files")?))
    }

    /// Up to where in the log it is.
    pub(crate) fn position(&self) -> rusqlite::Result<Option<Position>> {
        let db = self.db();
        let mut query = db.prepare_cached("SELECT generation, entries FROM position")?;
        let row = query.query_row([], |row| {
            Ok(Position { generation: unsigned(row.get(0)?), entries: unsigned(row.get(1)?) })
        });
        row.optional()
    }

    /// What is known of an inode.
    pub(crate) fn node(&self, ino: Ino) -> rusqlite::Result<Option<NodeNote>> {
        let db = self.db();
        let mut query = db.prepare_cached("SELECT note FROM nodes WHERE ino = ?1")?;
        let row = query.query_row([signed(ino.0)], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        Ok(row.and_then(|note| postcard::from_bytes(&note).ok()))
    }

    /// What a name means: an inode, or surely nothing.
    pub(crate) fn name(
        &self,
        directory: Ino,
        name: &Name,
    ) -> rusqlite::Result<Option<Option<Ino>>> {
        let db = self.db();
        let mut query =
            db.prepare_cached("SELECT ino FROM names WHERE directory = ?1 AND name = ?2")?;
        let row = query.query_row(params![signed(directory.0), name.as_bytes()], |row| {
            Ok(row.get::<_, Option<i64>>(0)?.map(|ino| Ino(unsigned(ino))))
        });
        row.optional()
    }

    /// All names in a directory that mean something, with what is known of that.
    pub(crate) fn listing(
        &self,
        directory: Ino,
    ) -> rusqlite::Result<Vec<(Name, Ino, Option<NodeNote>)>> {
        let db = self.db();
        let mut query = db.prepare_cached(
            "SELECT names.name, names.ino, nodes.note FROM names
             LEFT JOIN nodes ON nodes.ino = names.ino
             WHERE names.directory = ?1 AND names.ino IS NOT NULL",
        )?;
        let rows = query.query_map([signed(directory.0)], |row| {
            Ok((
                row.get::<_, Vec<u8>>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, Option<Vec<u8>>>(2)?,
            ))
        })?;
        let mut listing = Vec::new();
        for row in rows {
            let (name, ino, note) = row?;
            if let Ok(name) = Name::new(name) {
                let note = note.and_then(|note| postcard::from_bytes(&note).ok());
                listing.push((name, Ino(unsigned(ino)), note));
            }
        }
        Ok(listing)
    }

    /// Which data of `ino` are here.
    pub(crate) fn file(&self, ino: Ino) -> rusqlite::Result<Option<FileNote>> {
        let db = self.db();
        let mut query = db.prepare_cached("SELECT note FROM files WHERE ino = ?1")?;
        let row = query.query_row([signed(ino.0)], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        Ok(row.and_then(|note| postcard::from_bytes(&note).ok()))
    }

    /// Which container of `ino` it speaks of.
    pub(crate) fn container(&self, ino: Ino) -> rusqlite::Result<Option<ContainerId>> {
        let db = self.db();
        let mut query = db.prepare_cached("SELECT container FROM files WHERE ino = ?1")?;
        let row = query.query_row([signed(ino.0)], |row| row.get::<_, i64>(0)).optional()?;
        Ok(row.map(|id| ContainerId(unsigned(id))))
    }

    /// The files that were used longest ago, after the file that was used at such a time; no more
    /// than `most`. The room that they take is not known here.
    pub(crate) fn oldest(
        &self,
        after: Option<(u64, Ino)>,
        most: u32,
    ) -> rusqlite::Result<Vec<Candidate>> {
        let db = self.db();
        let mut query = db.prepare_cached(
            "SELECT used, ino, container FROM files WHERE (used, ino) > (?1, ?2)
             ORDER BY used, ino LIMIT ?3",
        )?;
        let (used, ino) =
            after.map_or((i64::MIN, i64::MIN), |(used, ino)| (signed(used), signed(ino.0)));
        let rows = query.query_map(params![used, ino, most], |row| {
            let (used, ino, container) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let container = ContainerId(unsigned(container));
            Ok(Candidate { ino: Ino(unsigned(ino)), container, used: unsigned(used), bytes: 0 })
        })?;
        rows.collect()
    }

    /// Forgets which data of these files are here.
    pub(crate) fn evict(&self, files: &[Candidate]) -> rusqlite::Result<()> {
        let mut db = self.db();
        let txn = db.transaction()?;
        {
            let mut remove =
                txn.prepare_cached("DELETE FROM files WHERE ino = ?1 AND container = ?2")?;
            for file in files {
                remove.execute(params![signed(file.ino.0), signed(file.container.0)])?;
            }
        }
        txn.commit()
    }

    /// Forgets which data of `ino` are here.
    pub(crate) fn forget_file(&self, ino: Ino) -> rusqlite::Result<()> {
        self.db().execute("DELETE FROM files WHERE ino = ?1", [signed(ino.0)]).map(drop)
    }

    /// Notes at time `now` what was known at `position`. Returns the containers of inodes that are
    /// gone.
    pub(crate) fn save(
        &self,
        notes: &Notes,
        position: Position,
        now: u64,
    ) -> rusqlite::Result<Vec<(Ino, ContainerId)>> {
        let mut db = self.db();
        let txn = db.transaction()?;
        txn.prepare_cached("INSERT OR REPLACE INTO position VALUES (1, ?1, ?2)")?
            .execute(params![signed(position.generation), signed(position.entries)])?;
        let known = latest(&txn)?;
        if let Some(version) = notes.latest().filter(|version| Some(*version) > known) {
            txn.prepare_cached("INSERT OR REPLACE INTO latest VALUES (1, ?1)")?
                .execute([encoded(&version)?])?;
        }
        let gone = save_nodes(&txn, &notes.tree)?;
        save_names(&txn, &notes.tree)?;
        {
            let now = signed(now);
            let mut put =
                txn.prepare_cached("INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3, ?4)")?;
            for (ino, note) in &notes.files {
                put.execute(params![signed(ino.0), signed(note.container.0), now, encoded(note)?])?;
            }
            let mut used = txn.prepare_cached("UPDATE files SET used = ?2 WHERE ino = ?1")?;
            for ino in &notes.used {
                used.execute(params![signed(ino.0), now])?;
            }
        }
        txn.commit()?;
        Ok(gone)
    }

    /// The space that the server last told: of quotas by their inodes, and of the volume.
    pub(crate) fn spaces(&self) -> rusqlite::Result<BTreeMap<Option<Ino>, Space>> {
        let db = self.db();
        let mut query = db.prepare_cached("SELECT quota, space FROM space")?;
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(i64, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
        let space = |(quota, space): (i64, Vec<u8>)| {
            let quota = (quota != 0).then_some(Ino(unsigned(quota)));
            Some((quota, postcard::from_bytes(&space).ok()?))
        };
        Ok(rows.into_iter().filter_map(space).collect())
    }

    /// Notes the space of `quota`, or of the volume.
    pub(crate) fn save_space(&self, quota: Option<Ino>, space: &Space) -> rusqlite::Result<()> {
        let quota = quota.map_or(0, |ino| signed(ino.0));
        self.db()
            .prepare_cached("INSERT OR REPLACE INTO space VALUES (?1, ?2)")?
            .execute((quota, encoded(space)?))
            .map(drop)
    }

    /// The latest version of anything that was noted.
    pub(crate) fn latest(&self) -> rusqlite::Result<Option<Version>> {
        latest(&self.db())
    }

    /// Forgets what is known of versions that `history` has not, but for the data of files that
    /// are to be `kept`. Returns the containers of the others.
    pub(crate) fn forget_lost(
        &self,
        history: &History,
        kept: impl Fn(Ino) -> bool,
    ) -> rusqlite::Result<Vec<(Ino, ContainerId)>> {
        let mut db = self.db();
        let txn = db.transaction()?;
        let mut gone = Vec::new();
        let mut found = Version::default();
        {
            let mut nodes = txn.prepare("SELECT ino, note FROM nodes")?;
            let mut remove = txn.prepare("DELETE FROM nodes WHERE ino = ?1")?;
            let mut remove_names = txn.prepare("DELETE FROM names WHERE directory = ?1")?;
            let mut rows = nodes.query([])?;
            while let Some(row) = rows.next()? {
                let (ino, note) = (row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?);
                let note: Option<NodeNote> = postcard::from_bytes(&note).ok();
                match note.filter(|note| note.is_of(history)) {
                    Some(note) => found = found.max(note.attr.latest()),
                    None => {
                        remove.execute([ino])?;
                        remove_names.execute([ino])?;
                    }
                }
            }
            let mut files = txn.prepare("SELECT ino, container, note FROM files")?;
            let mut remove = txn.prepare("DELETE FROM files WHERE ino = ?1")?;
            let mut rows = files.query([])?;
            while let Some(row) = rows.next()? {
                let ino = Ino(unsigned(row.get(0)?));
                let note: Option<FileNote> = postcard::from_bytes(&row.get::<_, Vec<u8>>(2)?).ok();
                match note.map(|note| note.version).filter(|version| history.has(*version)) {
                    Some(version) => found = found.max(version),
                    None if kept(ino) => {}
                    None => {
                        gone.push((ino, ContainerId(unsigned(row.get(1)?))));
                        remove.execute([signed(ino.0)])?;
                    }
                }
            }
            txn.execute("INSERT OR REPLACE INTO latest VALUES (1, ?1)", [encoded(&found)?])?;
        }
        txn.commit()?;
        Ok(gone)
    }

    /// Makes durable what was noted.
    pub(crate) fn sync(&self) -> rusqlite::Result<()> {
        let db = self.db();
        let mut checkpoint = db.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
        match checkpoint.query_row([], |row| row.get::<_, i64>(0))? {
            0 => Ok(()),
            _ => Err(rusqlite::Error::StatementChangedRows(0)),
        }
    }
}

fn latest(db: &Connection) -> rusqlite::Result<Option<Version>> {
    let mut query = db.prepare_cached("SELECT version FROM latest")?;
    let row = query.query_row([], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(row.and_then(|version| postcard::from_bytes(&version).ok()))
}

fn save_nodes(
    txn: &Transaction<'_>,
    notes: &TreeNotes,
) -> rusqlite::Result<Vec<(Ino, ContainerId)>> {
    let mut put = txn.prepare_cached("INSERT OR REPLACE INTO nodes VALUES (?1, ?2)")?;
    let mut remove = txn.prepare_cached("DELETE FROM nodes WHERE ino = ?1")?;
    let mut remove_file =
        txn.prepare_cached("DELETE FROM files WHERE ino = ?1 RETURNING container")?;
    let mut gone = Vec::new();
    for (ino, note) in &notes.nodes {
        let key = signed(ino.0);
        match note {
            Some(note) => drop(put.execute(params![key, encoded(note)?])?),
            None => {
                remove.execute([key])?;
                let container = remove_file.query_row([key], |row| row.get::<_, i64>(0));
                let container = container.optional()?;
                gone.extend(container.map(|id| (*ino, ContainerId(unsigned(id)))));
            }
        }
    }
    Ok(gone)
}

fn save_names(txn: &Transaction<'_>, notes: &TreeNotes) -> rusqlite::Result<()> {
    let mut clear = txn.prepare_cached("DELETE FROM names WHERE directory = ?1")?;
    for directory in &notes.relisted {
        clear.execute([signed(directory.0)])?;
    }
    let mut put = txn.prepare_cached("INSERT OR REPLACE INTO names VALUES (?1, ?2, ?3)")?;
    let mut remove = txn.prepare_cached("DELETE FROM names WHERE directory = ?1 AND name = ?2")?;
    for ((directory, name), meaning) in &notes.names {
        let (directory, name) = (signed(directory.0), name.as_bytes());
        match meaning {
            Some(ino) => put.execute(params![directory, name, ino.map(|ino| signed(ino.0))])?,
            None => remove.execute(params![directory, name])?,
        };
    }
    Ok(())
}

fn encoded(note: &impl serde::Serialize) -> rusqlite::Result<Vec<u8>> {
    postcard::to_stdvec(note)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// SQLite's integers are signed; the bits are what matters.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "cache_size", -32_768)?;
    if db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? != LAYOUT {
        db.execute_batch(NO_TABLES)?;
        db.pragma_update(None, "user_version", LAYOUT)?;
    }
    db.execute_batch(TABLES)?;
    Ok(db)
}

#[cfg(test)]
mod tests {
    use segue_core::nouns::{Attr, Kind, RangeSet, Timestamp};

    use super::*;

    fn node(ino: u64) -> NodeNote {
        let (time, version) = (Timestamp::default(), Version { epoch: 1, counter: ino });
        let attr = Attr {
            ino: Ino(ino),
            kind: Kind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 5,
            allocated: 5,
            atime: time,
            mtime: time,
            ctime: time,
            change: version,
            data_version: version,
            quota: None,
            lm: None,
        };
        NodeNote { attr, target: None, is_listed: false, xattrs: None, place: None }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn file(container: u64) -> FileNote {
        let valid: RangeSet = [0..10, 20..30].into_iter().collect();
        let version = Version { epoch: 1, counter: 9 };
        FileNote { version, container: ContainerId(container), valid }
    }

    #[test]
    fn what_is_noted_survives_and_a_damaged_index_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.db");
        let index = Index::open(&path).unwrap();
        assert_eq!(index.position().unwrap(), None);
        let mut notes = Notes::default();
        notes.files.push((Ino(u64::MAX), file(u64::MAX)));
        notes.tree.nodes.push((Ino(7), Some(node(7))));
        notes.tree.names.push(((Ino(1), name("a")), Some(Some(Ino(7)))));
        notes.tree.names.push(((Ino(1), name("b")), Some(None)));
        let at = Position { generation: 3, entries: 4 };
        index.save(&notes, at, 1).unwrap();
        index.sync().unwrap();
        drop(index);
        let index = Index::open(&path).unwrap();
        assert_eq!(index.position().unwrap(), Some(at));
        assert_eq!(index.file(Ino(u64::MAX)).unwrap(), Some(file(u64::MAX)));
        assert_eq!(index.node(Ino(7)).unwrap(), Some(node(7)));
        let meaning = |text| index.name(Ino(1), &name(text)).unwrap();
        assert_eq!(["a", "b", "c"].map(meaning), [Some(Some(Ino(7))), Some(None), None]);
        let listing = index.listing(Ino(1)).unwrap();
        assert_eq!(listing, [(name("a"), Ino(7), Some(node(7)))]);
        drop(index);
        let db = Connection::open(&path).unwrap();
        db.pragma_update(None, "user_version", LAYOUT - 1).unwrap();
        drop(db);
        let index = Index::open(&path).unwrap();
        assert_eq!((index.position().unwrap(), index.node(Ino(7)).unwrap()), (None, None));
        drop(index);
        std::fs::write(&path, "no database at all, but long enough to be taken for one").unwrap();
        assert_eq!(Index::open(&path).unwrap().file(Ino(u64::MAX)).unwrap(), None);
    }

    #[test]
    fn files_come_in_the_order_of_their_last_use_and_are_forgotten_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(&dir.path().join("index.db")).unwrap();
        let save = |files: &[u64], used: &[u64], now| {
            let files = files.iter().map(|&ino| (Ino(ino), file(ino))).collect();
            let used = used.iter().copied().map(Ino).collect();
            let notes = Notes { files, used, ..Notes::default() };
            index.save(&notes, Position::default(), now).unwrap();
        };
        let order = |after, most: u32| -> Vec<u64> {
            index.oldest(after, most).unwrap().iter().map(|file| file.ino.0).collect()
        };
        save(&[3, 4], &[], 10);
        save(&[1, 2], &[9], 11);
        assert_eq!(order(None, 9), [3, 4, 1, 2]);
        save(&[], &[3], 12);
        assert_eq!(order(None, 3), [4, 1, 2]);
        assert_eq!(order(Some((11, Ino(1))), 9), [2, 3]);
        let mut gone = index.oldest(None, 2).unwrap();
        gone[1].container = ContainerId(77);
        index.evict(&gone).unwrap();
        assert_eq!(order(None, 9), [1, 2, 3], "the other one is not where it was");
    }

    #[test]
    fn what_is_gone_is_forgotten_with_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(&dir.path().join("index.db")).unwrap();
        let mut notes = Notes::default();
        notes.files.push((Ino(7), file(3)));
        notes.tree.nodes.push((Ino(7), Some(node(7))));
        let old = ["a", "b"].map(|text| ((Ino(1), name(text)), Some(Some(Ino(7)))));
        notes.tree.names.extend(old);
        let at = Position::default();
        assert!(index.save(&notes, at, 1).unwrap().is_empty());
        let mut notes = Notes::default();
        notes.tree.nodes.push((Ino(7), None));
        notes.tree.relisted.push(Ino(1));
        notes.tree.names.push(((Ino(1), name("b")), Some(Some(Ino(8)))));
        assert_eq!(index.save(&notes, at, 1).unwrap(), [(Ino(7), ContainerId(3))]);
        assert_eq!((index.node(Ino(7)).unwrap(), index.file(Ino(7)).unwrap()), (None, None));
        assert_eq!(index.listing(Ino(1)).unwrap(), [(name("b"), Ino(8), None)]);
        let mut notes = Notes::default();
        notes.tree.names.push(((Ino(1), name("b")), None));
        index.save(&notes, at, 1).unwrap();
        assert!(index.listing(Ino(1)).unwrap().is_empty());
    }
}
