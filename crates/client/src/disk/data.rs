//! Containers: which one a file has, and bytes that were fetched into it.

use std::sync::Arc;

use bytes::Bytes;
use segue_core::chunk::{CHUNK_MAX, fingerprint};
use segue_core::nouns::{ContainerId, Fingerprint, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::upload::Chunk;

use crate::disk::CacheDisk;
use crate::disk::files::Container;
use crate::disk::notes::known;

impl CacheDisk {
    /// The container of `ino` as it is now.
    pub(crate) fn container(&self, ino: Ino) -> Result<Arc<Container>, Refusal> {
        let id = self.host.lock().container(ino).ok_or(Refusal::Stale)?;
        self.open_container(ino, id)
    }

    pub(crate) fn open_container(
        &self,
        ino: Ino,
        id: ContainerId,
    ) -> Result<Arc<Container>, Refusal> {
        self.containers.open((ino, id)).map_err(|error| self.disk_refusal("containers", &error))
    }

    /// Makes the data state of `ino`, from the index if an earlier life left something.
    pub(crate) fn load(&self, ino: Ino) -> Result<(), Refusal> {
        if self.host.lock().data_of(ino).is_some() {
            return Ok(());
        }
        let _loading = self.space.loading.lock();
        let noted = known("index.db", self.index.file(ino)).flatten();
        let noted = noted.filter(|note| self.containers.exists((ino, note.container)));
        match self.host.lock().load(ino, noted) {
            true => Ok(()),
            false => Err(Refusal::Stale),
        }
    }

    /// Puts fetched bytes (or zeros) into the container where nothing newer is.
    pub(crate) fn fill(
        &self,
        ino: Ino,
        version: Version,
        at: u64,
        bytes: Option<&[u8]>,
        len: u64,
    ) -> Result<(), Refusal> {
        let container = self.container(ino)?;
        let _writing = container.writing();
        let key = (ino, container.id);
        let parts = self.host.lock().to_fill(key, at..at + len, version)?;
        for part in &parts {
            let written = match bytes {
                Some(bytes) => {
                    let from = usize::try_from(part.start - at).map_err(|_| Refusal::Io)?;
                    let to = usize::try_from(part.end - at).map_err(|_| Refusal::Io)?;
                    container.write(bytes.get(from..to).ok_or(Refusal::Io)?, part.start)
                }
                None => container.zero(part.start, part.end - part.start),
            };
            written.map_err(|error| self.disk_refusal("containers", &error))?;
        }
        self.host.lock().filled(key, parts, version);
        Ok(())
    }

    /// The chunk that stands at `offset` of a file, if that is what the cache has there.
    pub(crate) fn cached_chunk(
        &self,
        ino: Ino,
        (offset, name, len): (u64, Fingerprint, u32),
    ) -> Result<Option<Chunk<Bytes>>, Refusal> {
        let end = offset.checked_add(u64::from(len)).ok_or(Refusal::Protocol)?;
        if len as usize > CHUNK_MAX {
            return Err(Refusal::Protocol);
        }
        let sight = self.host.lock().sight(ino, &(offset..end)).ok_or(Refusal::Stale)?;
        if sight.range != (offset..end) || !sight.missing.is_empty() {
            return Ok(None);
        }
        let read = self.open_container(ino, sight.container)?.read(offset, len as usize);
        let bytes = Bytes::from(read.map_err(|error| self.disk_refusal("containers", &error))?);
        Ok((fingerprint(&bytes) == name).then_some(Chunk { name, len, bytes }))
    }
}
