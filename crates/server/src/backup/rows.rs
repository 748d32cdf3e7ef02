//! The file of a snapshot: all rows of a volume, checksummed to the end.
//!
//! ```text
//! file = one zstd stream of: "SEGUEROW" version u32 head_len u32 head row* end
//! row  = key_len u16 (not 0) value_len u32 key value
//! end  = 0 u16 rows u64 BLAKE3-256 of everything before it
//! ```
//!
//! Numbers are little-endian, the head is postcard. A file that was cut has no end, and one that
//! was changed has another sum, so a reader that came to its end has read what was written.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use segue_core::namespace::{Tally, VolumeRow};
use serde::{Deserialize, Serialize};

use crate::admin::FailReason;
use crate::task::Failed;

const MAGIC: &[u8; 8] = b"SEGUEROW";
const VERSION: u32 = 2;
/// zstd's own default.
const LEVEL: i32 = 3;
/// A head has a name and some numbers.
const HEAD_MAX: usize = 1 << 20;
/// Longest value: a leaf of 1,024 extents that all stand in it, twice over.
const VALUE_MAX: usize = 16 << 20;

/// A key and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// What a snapshot is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The volume as it was.
    pub(crate) volume: VolumeRow,
    /// How much it held.
    pub(crate) tally: Tally,
    /// When, in seconds since 1970.
    pub(crate) taken: i64,
}

/// Writes a snapshot's file.
pub(crate) struct Writer {
    path: PathBuf,
    out: zstd::Encoder<'static, BufWriter<File>>,
    sum: blake3::Hasher,
    rows: u64,
}

impl Writer {
    /// Begins the file `path` anew.
    pub(crate) fn create(path: &Path, head: &Head) -> Result<Writer, Failed> {
        let fail = |error: io::Error| Failed::io(path, &error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let out = zstd::Encoder::new(BufWriter::new(file.map_err(fail)?), LEVEL).map_err(fail)?;
        let (path, sum) = (path.to_owned(), blake3::Hasher::new());
        let mut writer = Writer { path, out, sum, rows: 0 };
        let head = postcard::to_stdvec(head).map_err(|error| fail(io::Error::other(error)))?;
        let length = u32::try_from(head.len()).map_err(|error| fail(io::Error::other(error)))?;
        writer.write(&[MAGIC, &VERSION.to_le_bytes(), &length.to_le_bytes(), &head])?;
        Ok(writer)
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failed> {
        let lengths = (u16::try_from(key.len()), u32::try_from(value.len()));
        let (Ok(key_len @ 1..), Ok(value_len)) = lengths else {
            let words = "a row of the metadata has an impossible length".to_owned();
            return Err(Failed::new(FailReason::Damaged, words));
        };
        self.rows += 1;
        self.write(&[&key_len.to_le_bytes(), &value_len.to_le_bytes(), key, value])
    }

    /// Ends the file, and returns when it is on the disk.
    pub(crate) fn finish(mut self) -> Result<u64, Failed> {
        let rows = self.rows;
        self.write(&[&[0; 2], &rows.to_le_bytes()])?;
        let sum = *self.sum.finalize().as_bytes();
        self.write(&[&sum])?;
        let Writer { path, out, .. } = self;
        let end = || out.finish()?.into_inner()?.sync_all();
        end().map_err(|error| Failed::io(&path, &error))?;
        Ok(rows)
    }

    fn write(&mut self, parts: &[&[u8]]) -> Result<(), Failed> {
        for part in parts {
            self.sum.update(part);
            self.out.write_all(part).map_err(|error| Failed::io(&self.path, &error))?;
        }
        Ok(())
    }
}

/// Reads a snapshot's file, row by row.
pub(crate) struct Reader {
    input: Input,
    rows: u64,
    /// What the snapshot is of.
    pub(crate) head: Head,
}

impl Reader {
    /// Begins to read the file `path`.
    pub(crate) fn open(path: &Path) -> Result<Reader, Failed> {
        let fail = |error: io::Error| Failed::io(path, &error);
        let stream = zstd::Decoder::new(File::open(path).map_err(fail)?).map_err(fail)?;
        let mut input = Input { path: path.to_owned(), stream, sum: blake3::Hasher::new() };
        let (magic, version) = (input.array::<8>()?, u32::from_le_bytes(input.array()?));
        if magic != *MAGIC || version != VERSION {
            return Err(input.damaged("is not a snapshot that this version of segue can read"));
        }
        let length = u32::from_le_bytes(input.array()?) as usize;
        if length > HEAD_MAX {
            return Err(input.damaged("is damaged"));
        }
        let head = input.bytes(length)?;
        let head = postcard::from_bytes(&head).map_err(|_| input.damaged("is damaged"))?;
        Ok(Reader { input, rows: 0, head })
    }

    /// The next row; `None` at the end of a file that is what was written.
    pub(crate) fn next(&mut self) -> Result<Option<Row>, Failed> {
        let key_len = usize::from(u16::from_le_bytes(self.input.array()?));
        if key_len == 0 {
            return self.end().map(|()| None);
        }
        let value_len = u32::from_le_bytes(self.input.array()?) as usize;
        if value_len > VALUE_MAX {
            return Err(self.input.damaged("is damaged"));
        }
        self.rows += 1;
        Ok(Some((self.input.bytes(key_len)?, self.input.bytes(value_len)?)))
    }

    fn end(&mut self) -> Result<(), Failed> {
        let rows = u64::from_le_bytes(self.input.array()?);
        let expected = *self.input.sum.finalize().as_bytes();
        let sum: [u8; 32] = self.input.array()?;
        match rows == self.rows && sum == expected {
            true => Ok(()),
            false => Err(self.input.damaged("is damaged")),
        }
    }
}

struct Input {
    path: PathBuf,
    stream: zstd::Decoder<'static, BufReader<File>>,
    sum: blake3::Hasher,
}

impl Input {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failed> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, Failed> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failed> {
        match self.stream.read_exact(bytes) {
            Ok(()) => {
                self.sum.update(bytes);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged("was cut off"))
            }
            // What zstd says of bytes that are not its own is no error of the system.
            Err(error) if error.raw_os_error().is_none() => Err(self.damaged("is damaged")),
            Err(error) => Err(Failed::io(&self.path, &error)),
        }
    }

    fn damaged(&self, how: &str) -> Failed {
        let words = format!("{} {how}; choose another snapshot", self.path.display());
        Failed::new(FailReason::Damaged, words)
    }
}

#[cfg(test)]
mod tests {
    use segue_core::nouns::Timestamp;

    use super::*;

    fn head() -> Head {
        let volume = VolumeRow {
            name: "home".to_owned(),
            uuid: [7; 16],
            epoch: 3,
            created: Timestamp::default(),
            next_ino: 1 << 20,
            lost: Vec::new(),
            limits: segue_core::namespace::Limits::default(),
        };
        Head { volume, tally: Tally { commits: 9, ..Tally::default() }, taken: 1_795_250_399 }
    }

    fn rows() -> Vec<Row> {
        (0..500_u16).map(|n| (n.to_be_bytes().to_vec(), vec![7; usize::from(n % 50)])).collect()
    }

    fn read(path: &Path) -> Result<Vec<Row>, Failed> {
        let mut reader = Reader::open(path)?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next()? {
            rows.push(row);
        }
        assert_eq!(reader.head, head());
        Ok(rows)
    }

    #[test]
    fn rows_come_back_and_a_cut_or_changed_file_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        let mut writer = Writer::create(&path, &head()).unwrap();
        rows().iter().for_each(|(key, value)| writer.row(key, value).unwrap());
        assert_eq!(writer.finish().unwrap(), 500);
        assert_eq!(read(&path).unwrap(), rows());

        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(read(&path).is_err(), "the first {len} of {} bytes", whole.len());
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            // A bit of the frame's header may mean nothing; then nothing is other than it was.
            if let Ok(found) = read(&path) {
                assert_eq!(found, rows(), "byte {at}");
            }
        }
    }
}
