//! The bytes of a backup: chunks that its rows name and the directory lacks.

use std::collections::BTreeSet;

use segue_core::namespace::{ChunkPlace, chunk};
use segue_core::nouns::Fingerprint;
use segue_core::upkeep::dump;

use super::index::Index;
use super::rows::Reader;
use super::{Backup, BackupLine, verify};
use crate::disk_space::Purpose;
use crate::meta::Kv;
use crate::packs::{Packs, StoredChunk, Unsynced};
use crate::task::{Failed, RateLimit, lost_files};

/// Chunks whose places are looked up on one snapshot.
const PAGE: usize = 256;
/// Bytes written between two syncs.
const SYNC_BYTES: u64 = 64 << 20;

/// What came of it.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    /// Those that cannot be read.
    pub(super) lost: BTreeSet<Fingerprint>,
    /// Those of the directory that were not what was written.
    pub(super) damaged: u64,
    /// Of these, those that were copied again.
    pub(super) mended: u64,
}

/// Copies what the directory lacks of the rows that were written.
pub(super) fn copy(backup: &mut Backup<'_, '_>, rate: &mut RateLimit) -> Result<Copied, Failed> {
    let path = backup.directory.packs();
    let index = Index::open(&backup.directory.index(), &path)?;
    let damaged = verify::read_again(backup, &index, rate)?;
    let packs = Packs::open(&path, 0).map_err(|error| Failed::io(&path, &error))?;
    let mut reader = Reader::open(&backup.directory.unfinished())?;
    let copied = Copied::default();
    let (unsynced, unindexed) = (Vec::new(), Vec::new());
    let mut copy = Copy { backup, index, packs, rate, copied, unsynced, unindexed, fresh: 0 };
    let (mut page, mut done) = (Vec::new(), 0);
    while let Some((key, value)) = reader.next()? {
        // Chunks come first. The rest is read to see that the file is what was written.
        let Some((fingerprint, row)) = dump::chunk(&key, &value) else { continue };
        done += u64::from(row.place.stored_len);
        if copy.index.find(&fingerprint)?.is_none() {
            page.push(fingerprint);
        }
        if page.len() >= PAGE {
            copy.page(std::mem::take(&mut page))?;
        }
        copy.progress(done)?;
    }
    copy.page(page)?;
    copy.sync()?;
    copy.copied.damaged = damaged.len() as u64;
    for fingerprint in &damaged {
        copy.copied.mended += u64::from(copy.index.find(fingerprint)?.is_some());
    }
    Ok(copy.copied)
}

struct Copy<'a, 'b, 'c> {
    backup: &'a mut Backup<'b, 'c>,
    index: Index,
    packs: Packs,
    rate: &'a mut RateLimit,
    copied: Copied,
    unsynced: Vec<Unsynced>,
    /// Written and not yet in the index.
    unindexed: Vec<(Fingerprint, ChunkPlace)>,
    /// Bytes of these.
    fresh: u64,
}

impl Copy<'_, '_, '_> {
    fn progress(&mut self, bytes: u64) -> Result<(), Failed> {
        let (rows, total_bytes) = (self.backup.rows, self.backup.bytes);
        let line = || BackupLine::Progress { rows, bytes, total_bytes };
        match self.backup.reporter.progress(line) {
            true => Ok(()),
            false => Err(Failed::stopped()),
        }
    }

    /// Copies some chunks from where they are now.
    fn page(&mut self, page: Vec<Fingerprint>) -> Result<(), Failed> {
        let (data, id) = (self.backup.data, self.backup.id);
        let row = |kv: &mut Kv<'_>, fingerprint| chunk(kv, id, fingerprint).ok().flatten();
        let rows: Vec<_> = data
            .store
            .read_blocking(|kv| page.iter().map(|fingerprint| row(kv, fingerprint)).collect())?;
        for (fingerprint, row) in page.into_iter().zip(rows) {
            let chunk = match row {
                Some(row) => self.read(&fingerprint, &row.place)?,
                None => None,
            };
            match chunk {
                Some(chunk) => self.write(chunk)?,
                None => drop(self.copied.lost.insert(fingerprint)),
            }
        }
        Ok(())
    }

    /// The chunk, if it can be read.
    fn read(
        &mut self,
        fingerprint: &Fingerprint,
        place: &ChunkPlace,
    ) -> Result<Option<StoredChunk>, Failed> {
        let reporter = &self.backup.reporter;
        if !self.rate.wait(u64::from(place.stored_len), || reporter.goes_on()) {
            return Err(Failed::stopped());
        }
        Ok(self.backup.data.packs.read(fingerprint, place).ok().map(|(stored, _)| stored))
    }

    fn write(&mut self, chunk: StoredChunk) -> Result<(), Failed> {
        let path = self.backup.directory.packs();
        let fail = |error| Failed::io(&path, &error);
        let (id, one) = (self.backup.id, std::slice::from_ref(&chunk));
        let appended = self.packs.append(id, one, Purpose::Store);
        let (places, unsynced) = appended.map_err(fail)?;
        for place in places {
            self.unindexed.push((chunk.fingerprint, place));
            self.copied.chunks += 1;
            self.copied.bytes += u64::from(place.stored_len);
            self.fresh += u64::from(place.stored_len);
        }
        self.unsynced.push(unsynced);
        if self.fresh >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    /// Returns when everything that was written is on the disk, and in the index.
    fn sync(&mut self) -> Result<(), Failed> {
        let path = self.backup.directory.packs();
        for unsynced in self.unsynced.drain(..) {
            self.packs.sync(&unsynced).map_err(|error| Failed::io(&path, &error))?;
        }
        self.index.add(&self.unindexed)?;
        self.unindexed.clear();
        self.fresh = 0;
        Ok(())
    }
}

/// Tells which files the chunks `lost` belong to.
pub(super) fn report(
    backup: &mut Backup<'_, '_>,
    lost: &BTreeSet<Fingerprint>,
) -> Result<(), Failed> {
    let (store, reporter) = (&backup.data.store, &mut *backup.reporter);
    lost_files::visit(store, backup.id, lost, &mut |file| {
        let what = format!(
            "{} bytes of it cannot be read and are missing from the backup, the first at byte {}",
            file.bytes, file.first
        );
        reporter.say(BackupLine::Finding { path: file.path, ino: Some(file.ino.0), what });
    })
}
