//! An endless run of changes as one client's log has them: a directory, a thousand files in it,
//! the next directory.

use segue_core::nouns::{
    Base, Caller, Ino, InoGrant, Name, NewNode, Piece, PieceBytes, Record, Stamped, Store,
    Timestamp,
};

use segue_bed::{Error, Result};

/// Files of a directory.
const FILES: u32 = 1_000;
/// Of so many inodes the place of one is kept.
const KEPT: u64 = 100;

/// A file and its name.
#[derive(Debug, Clone)]
pub(super) struct NamedFile {
    pub(super) parent: Ino,
    pub(super) name: Name,
    pub(super) ino: Ino,
}

/// The changes.
#[derive(Debug)]
pub(super) struct Changes {
    seq: u64,
    numbers: InoGrant,
    taken: u64,
    /// What each file holds; nothing: it stays empty.
    data: Vec<u8>,
    directory: Ino,
    files: u32,
    /// The file whose data come next.
    unwritten: Option<Ino>,
    kept: Vec<NamedFile>,
}

impl Changes {
    pub(super) fn new(numbers: InoGrant, data: Vec<u8>) -> Changes {
        Changes {
            seq: 0,
            numbers,
            taken: 0,
            data,
            directory: Ino::ROOT,
            files: FILES,
            unwritten: None,
            kept: Vec::new(),
        }
    }

    /// Sequence number of the next change.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    /// Inodes made so far.
    pub(super) fn inodes(&self) -> u64 {
        self.taken
    }

    /// Where some of them are, evenly spread.
    pub(super) fn into_kept(self) -> Vec<NamedFile> {
        self.kept
    }

    /// The next `count` changes.
    pub(super) fn take(&mut self, count: u32) -> Result<Vec<Stamped>> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Result<Stamped> {
        if let Some(ino) = self.unwritten.take() {
            let pieces = vec![Piece { offset: 0, bytes: PieceBytes::Inline(self.data.clone()) }];
            return Ok(self.store(ino, self.data.len() as u64, pieces));
        }
        if self.files == FILES {
            let (place, made) = self.create(Ino::ROOT, NewNode::Directory)?;
            (self.directory, self.files) = (place.ino, 0);
            return Ok(made);
        }
        self.files += 1;
        let (place, made) = self.create(self.directory, NewNode::File)?;
        self.unwritten = (!self.data.is_empty()).then_some(place.ino);
        Ok(made)
    }

    /// A new file or directory.
    pub(super) fn create(&mut self, parent: Ino, node: NewNode) -> Result<(NamedFile, Stamped)> {
        if self.taken == self.numbers.count {
            return Err(Error::Wrong("a client has used up its inode numbers".into()));
        }
        let ino = Ino(self.numbers.first + self.taken);
        self.taken += 1;
        let name = name(ino)?;
        let place = NamedFile { parent, name: name.clone(), ino };
        if self.taken.is_multiple_of(KEPT) {
            self.kept.push(place.clone());
        }
        let record = Record::Create { parent, name, ino, node, mode: 0o755, uid: 0, gid: 0 };
        Ok((place, self.stamp(record)))
    }

    /// The whole content of the file that the last change made.
    pub(super) fn store(&mut self, ino: Ino, size: u64, pieces: Vec<Piece>) -> Stamped {
        let base = Base::Result(self.seq);
        self.stamp(Record::Store(Store {
            ino,
            base,
            cut: None,
            size,
            pieces,
            mtime: None,
            whole: true,
        }))
    }

    /// `record` as the log has it.
    pub(super) fn stamp(&mut self, record: Record) -> Stamped {
        self.seq += 1;
        let caller = Caller { uid: 1000, gid: 1000, ..Caller::default() };
        let time = Timestamp { secs: 1_795_250_399, nanos: 123_456_789 };
        Stamped { seq: self.seq, time, caller, operation: None, known: None, record }
    }
}

/// Numbers differ between clients, and so do these names.
fn name(ino: Ino) -> Result<Name> {
    Name::new(format!("file-{:010}", ino.0)).map_err(|error| Error::Wrong(error.to_string()))
}
