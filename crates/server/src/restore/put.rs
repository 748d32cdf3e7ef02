//! Rows and chunks of a restore, put in under a number that nobody knows.

use segue_core::namespace::ChunkRow;
use segue_core::nouns::Fingerprint;
use segue_core::upkeep::dump;
use segue_core::upkeep::restore::Restore;

use super::{Source, Work};
use crate::admin::FailReason;
use crate::backup::{Index, Reader, Row};
use crate::disk_space::Purpose;
use crate::packs::{Packs, StoredChunk};
use crate::task::{Failed, RateLimit};

/// Rows of one transaction, so that none keeps others waiting for long.
const SLICE: usize = 256;
/// Bytes of chunks that are in memory at the same time.
const BATCH_BYTES: usize = 4 << 20;

type Rows = Vec<Row>;

/// What is left to do when everything is put in.
pub(super) struct Rest {
    /// Rows of the volume's clients, which come with the swap.
    pub(super) clients: Rows,
    /// Chunks that stand in the backup and could not be read.
    pub(super) lost: u64,
}

/// Puts in all rows of the volume but those of its clients.
pub(super) fn all(
    work: &mut Work<'_>,
    rate: &mut RateLimit,
    source: &Source,
    restore: &Restore,
) -> Result<Rest, Failed> {
    let path = source.directory.packs();
    let packs = Packs::open(&path, 0).map_err(|error| Failed::io(&path, &error))?;
    let (chunks, rows) = (Batch::default(), Vec::new());
    let rest = Rest { clients: Vec::new(), lost: 0 };
    let index = &source.index;
    let mut put = Put { work, rate, index, packs, restore, chunks, rows, rest };
    let mut reader = Reader::open(&source.directory.snapshot(&source.snapshot))?;
    let mut done = 0;
    while let Some((key, value)) = reader.next()? {
        match dump::chunk(&key, &value) {
            Some((fingerprint, row)) => {
                done += u64::from(row.place.stored_len);
                put.chunk(fingerprint, &row)?;
            }
            None => put.row(&key, value)?,
        }
        put.work.progress(done, source.bytes)?;
    }
    put.flush_chunks()?;
    put.flush_rows()?;
    Ok(put.rest)
}

/// Chunks that were read from the backup.
#[derive(Default)]
struct Batch {
    chunks: Vec<StoredChunk>,
    /// Their rows in the dump.
    rows: Vec<ChunkRow>,
    bytes: usize,
}

struct Put<'a, 'b> {
    work: &'a mut Work<'b>,
    rate: &'a mut RateLimit,
    index: &'a Index,
    /// Those of the backup.
    packs: Packs,
    restore: &'a Restore,
    chunks: Batch,
    rows: Rows,
    rest: Rest,
}

impl Put<'_, '_> {
    fn chunk(&mut self, fingerprint: Fingerprint, row: &ChunkRow) -> Result<(), Failed> {
        // Whether it may be missing was decided before.
        let Some(place) = self.index.find(&fingerprint)? else { return Ok(()) };
        let reporter = &self.work.reporter;
        if !self.rate.wait(u64::from(place.stored_len), || reporter.goes_on()) {
            return Err(Failed::stopped());
        }
        let chunk = match self.packs.read(&fingerprint, &place) {
            Ok((chunk, _)) => chunk,
            Err(_) if self.work.request.partial => {
                self.rest.lost += 1;
                return Ok(());
            }
            Err(error) => {
                let words = format!(
                    "the backup is damaged: {error}; if a server still has the volume, segue \
                     volume backup --verify copies the data again; otherwise choose another \
                     snapshot, or restore without these bytes: --partial"
                );
                return Err(Failed::new(FailReason::Damaged, words));
            }
        };
        self.chunks.bytes += chunk.stored.len();
        self.chunks.chunks.push(chunk);
        self.chunks.rows.push(*row);
        match self.chunks.bytes >= BATCH_BYTES || self.chunks.rows.len() >= SLICE {
            true => self.flush_chunks(),
            false => Ok(()),
        }
    }

    /// Bytes first, and then the rows that say where they are.
    fn flush_chunks(&mut self) -> Result<(), Failed> {
        let Batch { chunks, rows, .. } = std::mem::take(&mut self.chunks);
        let data = self.work.data;
        let restore = self.restore.clone();
        let places = data.keep(restore.volume, &chunks, Purpose::Store)?;
        let names = chunks.iter().map(|chunk| chunk.fingerprint);
        let put: Vec<_> = names.zip(rows).zip(places).collect();
        data.store.write_blocking(move |txn| {
            put.iter()
                .try_for_each(|((name, row), place)| restore.put_chunk(txn, name, row, *place))
        })?;
        Ok(())
    }

    fn row(&mut self, key: &[u8], value: Vec<u8>) -> Result<(), Failed> {
        if dump::is_of_client(key) {
            self.rest.clients.push((key.to_vec(), value));
            return Ok(());
        }
        self.rows.push((key.to_vec(), value));
        if self.rows.len() >= SLICE { self.flush_rows() } else { Ok(()) }
    }

    fn flush_rows(&mut self) -> Result<(), Failed> {
        let rows = std::mem::take(&mut self.rows);
        let restore = self.restore.clone();
        self.work.data.store.write_blocking(move |txn| {
            rows.iter().try_for_each(|(key, value)| restore.put(txn, key, value))
        })?;
        Ok(())
    }
}
