//! Chunk packs: append-only files that hold the bytes of many chunks.
//!
//! A chunk is checked against its fingerprint before it comes in and each time it goes out, so
//! damage on the disk is an error and never wrong bytes. It is synced before its row is
//! committed; bytes that no row points to (a torn tail, an upload that came twice) are dead
//! weight until their pack is compacted. Nothing is ever written twice to one place, and a pack
//! goes only when no row points into it and nobody holds a [`Pin`] from before.

mod damaged;
mod format;
mod pins;
pub(crate) mod scan;
mod upkeep;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use segue_core::chunk::fingerprint;
use segue_core::namespace::{ChunkPlace, DamagedChunks};
use segue_core::nouns::{Fingerprint, VolumeId};
use segue_rpc::codec::decompress;

use crate::disk_space::{DiskSpace, Purpose};

use format::{ENTRY_HEADER, Entry, PACK_HEADER, pack_header};
pub(crate) use pins::Pin;
use pins::Pins;

/// Bytes of a pack that a chunk takes besides its own.
pub(crate) const ENTRY_BYTES: u64 = ENTRY_HEADER as u64;
/// A pack is closed when it has this many bytes.
const PACK_BYTES: u64 = 64 << 20;
/// Damaged chunks that are remembered: 800 KB. A read finds the others again.
const DAMAGED_MAX: usize = 1 << 14;
/// Packs open for reading at the same time.
const OPEN_MAX: usize = 128;

/// A chunk in the form in which it is stored and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredChunk {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) raw_len: u32,
    /// The chunk itself if it has `raw_len` bytes, else one zstd frame.
    pub(crate) stored: Bytes,
}

/// Why a chunk cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    /// The disk.
    #[error("pack {pack}: {error}")]
    Read { pack: u64, error: io::Error },
    /// The bytes are not what was stored.
    #[error("pack {pack} is damaged at byte {offset}")]
    Damaged { pack: u64, offset: u64 },
}

/// The open packs.
pub(crate) struct Packs {
    directory: PathBuf,
    disk_space: Arc<DiskSpace>,
    current: Mutex<Current>,
    open: Mutex<BTreeMap<u64, Arc<File>>>,
    pins: Mutex<Pins>,
    /// Shared with the records that are being applied.
    damaged: Mutex<Arc<DamagedChunks>>,
    /// There was damage since the start.
    was_damaged: AtomicBool,
}

/// Where the next chunk goes.
struct Current {
    next_id: u64,
    pack: Option<Arc<Pack>>,
}

/// A pack being written.
struct Pack {
    id: u64,
    file: Arc<File>,
    /// Bytes written.
    end: AtomicU64,
    /// Bytes known to be on the disk; who waits for the lock mostly finds his among them.
    /// `None` after a sync failed: the next could succeed without the bytes that this one lost.
    synced: Mutex<Option<u64>>,
}

/// Bytes of a pack that have to be on the disk before their rows are.
pub(crate) struct Unsynced(Vec<(Arc<Pack>, u64)>);

/// Numbers of the packs in `directory`, ascending.
pub(crate) fn pack_files(directory: &Path) -> io::Result<Vec<u64>> {
    let mut packs = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".pack")?.parse::<u64>().ok());
        packs.extend(id);
    }
    packs.sort_unstable();
    Ok(packs)
}

/// The name of a pack's file.
pub(crate) fn file_name(id: u64) -> String {
    format!("{id:08}.pack")
}

impl Packs {
    /// Opens the packs in `directory`, of which rows refer to none beyond `last_known`.
    pub(crate) fn open(directory: &Path, last_known: u64) -> io::Result<Packs> {
        let packs = Packs {
            directory: directory.to_owned(),
            disk_space: Arc::new(DiskSpace::of(directory)),
            current: Mutex::new(Current { next_id: last_known + 1, pack: None }),
            open: Mutex::new(BTreeMap::new()),
            pins: Mutex::new(Pins::default()),
            damaged: Mutex::new(Arc::new(DamagedChunks::new(DAMAGED_MAX))),
            was_damaged: AtomicBool::new(false),
        };
        let last = packs.ids()?.last().copied().unwrap_or(0);
        // The number of a pack that was lost is never another one's.
        lock(&packs.current).next_id = last.max(last_known) + 1;
        // A tail that was torn by a crash stays as it is: the next chunk starts a new pack.
        if last > 0
            && last >= last_known
            && let Some(pack) = packs.resume(last)?
        {
            lock(&packs.current).pack = Some(pack);
        }
        Ok(packs)
    }

    /// The same packs, in the room of their data directory.
    pub(crate) fn within(self, disk_space: Arc<DiskSpace>) -> Packs {
        Packs { disk_space, ..self }
    }

    /// The numbers of all packs, ascending.
    pub(crate) fn ids(&self) -> io::Result<Vec<u64>> {
        pack_files(&self.directory)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(file_name(id))
    }

    /// The pack `id` to go on with, if it is whole to its end.
    fn resume(&self, id: u64) -> io::Result<Option<Arc<Pack>>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(id))?;
        let end = file.metadata()?.len();
        let mut header = [0; PACK_HEADER];
        let begun = end >= PACK_HEADER as u64;
        if !begun || file.read_exact_at(&mut header, 0).is_err() || header != pack_header() {
            return Ok(None);
        }
        let mut at = PACK_HEADER as u64;
        while at < end {
            let mut header = [0; ENTRY_HEADER];
            if end - at < ENTRY_HEADER as u64 {
                return Ok(None);
            }
            file.read_exact_at(&mut header, at)?;
            let Some(entry) = Entry::decode(&header) else { return Ok(None) };
            let next = at + (ENTRY_HEADER as u64) + u64::from(entry.stored_len);
            if next > end || (next == end && !holds(&file, at, &entry)?) {
                return Ok(None);
            }
            at = next;
        }
        let (end, synced) = (AtomicU64::new(end), Mutex::new(Some(0)));
        Ok(Some(Arc::new(Pack { id, file: Arc::new(file), end, synced })))
    }

    /// Appends chunks whose fingerprints have been checked. They may be referred to after
    /// [`Packs::sync`].
    pub(crate) fn append(
        &self,
        volume: VolumeId,
        chunks: &[StoredChunk],
        purpose: Purpose,
    ) -> io::Result<(Vec<ChunkPlace>, Unsynced)> {
        let mut places = Vec::with_capacity(chunks.len());
        let mut unsynced: Vec<(Arc<Pack>, u64)> = Vec::new();
        let bytes = chunks.iter().map(|chunk| ENTRY_BYTES + chunk.stored.len() as u64).sum();
        let mut current = lock(&self.current);
        // Under the lock: of two writers the second finds what the first has left.
        self.disk_space.make(bytes, purpose)?;
        for chunk in chunks {
            let pack = self.room(&mut current)?;
            let (place, end) = match pack.append(volume, chunk) {
                Ok(done) => done,
                Err(error) => {
                    // What a failed write left is not known: nothing comes after it.
                    current.pack = None;
                    return Err(error);
                }
            };
            places.push(place);
            match unsynced.last_mut() {
                Some((last, upto)) if last.id == pack.id => *upto = end,
                _ => unsynced.push((pack, end)),
            }
        }
        Ok((places, Unsynced(unsynced)))
    }

    /// The pack that the next chunk goes to.
    fn room(&self, current: &mut MutexGuard<'_, Current>) -> io::Result<Arc<Pack>> {
        if let Some(pack) = &current.pack
            && pack.end.load(Ordering::Acquire) < PACK_BYTES
        {
            return Ok(pack.clone());
        }
        let id = current.next_id;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(id))?;
        current.next_id += 1;
        file.write_all_at(&pack_header(), 0)?;
        // The name has to last as long as the bytes.
        File::open(&self.directory)?.sync_all()?;
        let end = AtomicU64::new(PACK_HEADER as u64);
        let pack = Arc::new(Pack { id, file: Arc::new(file), end, synced: Mutex::new(Some(0)) });
        current.pack = Some(pack.clone());
        Ok(pack)
    }

    /// Returns when the bytes are on the disk. An error means that nobody knows what is.
    pub(crate) fn sync(&self, unsynced: &Unsynced) -> io::Result<()> {
        for (pack, upto) in &unsynced.0 {
            let mut synced = lock(&pack.synced);
            let done =
                synced.ok_or_else(|| io::Error::other("an earlier sync of this file failed"))?;
            if done < *upto {
                let end = pack.end.load(Ordering::Acquire);
                *synced = None;
                pack.file.sync_data()?;
                *synced = Some(end);
            }
        }
        Ok(())
    }

    /// The chunk as it is stored, and the chunk itself, checked. A chunk that cannot be read is
    /// remembered as damaged, until it can.
    pub(crate) fn read(
        &self,
        fingerprint: &Fingerprint,
        place: &ChunkPlace,
    ) -> Result<(StoredChunk, Bytes), ChunkError> {
        let chunk = self.read_checked(fingerprint, place);
        self.note_damage(fingerprint, place, chunk.is_err());
        chunk
    }

    fn read_checked(
        &self,
        fingerprint_wanted: &Fingerprint,
        place: &ChunkPlace,
    ) -> Result<(StoredChunk, Bytes), ChunkError> {
        let read = |error| ChunkError::Read { pack: place.pack, error };
        let damaged = || ChunkError::Damaged { pack: place.pack, offset: place.offset };
        let file = self.file(place.pack).map_err(read)?;
        let mut stored = vec![0; place.stored_len as usize];
        file.read_exact_at(&mut stored, place.offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(),
            _ => read(error),
        })?;
        let stored = Bytes::from(stored);
        let raw = decompress(place.raw_len as usize, stored.clone()).map_err(|_| damaged())?;
        if fingerprint(&raw) != *fingerprint_wanted {
            return Err(damaged());
        }
        let (fingerprint, raw_len) = (*fingerprint_wanted, place.raw_len);
        Ok((StoredChunk { fingerprint, raw_len, stored }, raw))
    }

    fn file(&self, id: u64) -> io::Result<Arc<File>> {
        let mut open = lock(&self.open);
        if let Some(file) = open.get(&id) {
            return Ok(file.clone());
        }
        if open.len() >= OPEN_MAX {
            // The oldest pack: what is written together is mostly read together.
            open.pop_first();
        }
        let file = Arc::new(File::open(self.path(id))?);
        open.insert(id, file.clone());
        Ok(file)
    }
}

impl Pack {
    /// Writes one entry; returns its place and the pack's new end.
    fn append(&self, volume: VolumeId, chunk: &StoredChunk) -> io::Result<(ChunkPlace, u64)> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let stored_len = u32::try_from(chunk.stored.len()).map_err(too_long)?;
        let entry = Entry::new(volume, chunk, stored_len);
        let at = self.end.load(Ordering::Acquire);
        let offset = at + ENTRY_HEADER as u64;
        self.file.write_all_at(&entry.encode(), at)?;
        self.file.write_all_at(&chunk.stored, offset)?;
        let end = offset + u64::from(stored_len);
        self.end.store(end, Ordering::Release);
        let place = ChunkPlace {
            pack: self.id,
            offset,
            stored_len,
            raw_len: chunk.raw_len,
            compressed: stored_len < chunk.raw_len,
        };
        Ok((place, end))
    }
}

/// True if the bytes after the entry at `at` are those it was made for.
fn holds(file: &File, at: u64, entry: &Entry) -> io::Result<bool> {
    let mut stored = vec![0; entry.stored_len as usize];
    file.read_exact_at(&mut stored, at + ENTRY_HEADER as u64)?;
    Ok(entry.holds(&stored))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
