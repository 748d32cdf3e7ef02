//! What collection and repair need of packs: what is in them, and their end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use segue_core::namespace::ChunkPlace;
use segue_core::nouns::{Fingerprint, VolumeId};

use super::format::{ENTRY_HEADER, Entry, PACK_HEADER, pack_header};
use super::{Packs, Pin, lock};
use crate::disk_space::Purpose;

/// An entry of a pack: whose, which, and where.
pub(crate) type Listed = (VolumeId, Fingerprint, ChunkPlace);

impl Packs {
    /// Keeps every pack that a row leads to now.
    pub(crate) fn pin(&self) -> Pin {
        lock(&self.pins).pin()
    }

    /// Takes packs to which no row leads any more out of use.
    pub(crate) fn retire(&self, packs: &[u64]) {
        let mut pins = lock(&self.pins);
        let packs: Vec<u64> =
            packs.iter().copied().filter(|pack| !pins.is_retired(*pack)).collect();
        if !packs.is_empty() {
            pins.retire(packs);
        }
    }

    /// Retired packs that nobody reads any more; each is told once.
    pub(crate) fn unread(&self) -> Vec<u64> {
        lock(&self.pins).unread()
    }

    /// Removes a pack.
    pub(crate) fn remove(&self, id: u64) -> io::Result<()> {
        lock(&self.open).remove(&id);
        self.forget_damage_of(id);
        std::fs::remove_file(self.path(id))
    }

    /// True if `bytes` of entries can be appended now.
    pub(crate) fn has_room(&self, bytes: u64, purpose: Purpose) -> io::Result<bool> {
        self.disk_space.has(bytes, purpose)
    }

    /// The pack that chunks are appended to now.
    pub(crate) fn current(&self) -> Option<u64> {
        lock(&self.current).pack.as_ref().map(|pack| pack.id)
    }

    /// Nothing more is appended to the pack `id`.
    pub(crate) fn close(&self, id: u64) {
        let mut current = lock(&self.current);
        if current.pack.as_ref().is_some_and(|pack| pack.id == id) {
            current.pack = None;
        }
    }

    /// Bytes of a pack's entries, dead ones included.
    pub(crate) fn entry_bytes(&self, id: u64) -> io::Result<u64> {
        Ok(std::fs::metadata(self.path(id))?.len().saturating_sub(PACK_HEADER as u64))
    }

    /// All entries of a pack, up to where its last one was torn. Their bytes are not looked at.
    pub(crate) fn entries(&self, id: u64) -> io::Result<Vec<Listed>> {
        let file = File::open(self.path(id))?;
        let len = file.metadata()?.len();
        let mut header = [0; PACK_HEADER];
        if len < PACK_HEADER as u64 {
            return Ok(Vec::new());
        }
        file.read_exact_at(&mut header, 0)?;
        if header != pack_header() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is damaged"));
        }
        let (mut at, mut entries) = (PACK_HEADER as u64, Vec::new());
        while len - at >= ENTRY_HEADER as u64 {
            let mut header = [0; ENTRY_HEADER];
            file.read_exact_at(&mut header, at)?;
            let Some(entry) = Entry::decode(&header) else { break };
            let offset = at + ENTRY_HEADER as u64;
            at = offset + u64::from(entry.stored_len);
            if at > len {
                break;
            }
            entries.push((entry.volume, entry.fingerprint, entry.place(id, offset)));
        }
        Ok(entries)
    }
}
