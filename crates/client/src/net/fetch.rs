//! Getting data from the server into containers; or past them, where the disk is full.

use std::ops::Range;
use std::sync::Arc;

use segue_core::host::action::Gap;
use segue_core::host::cache::Sight;
use segue_core::nouns::{Class, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::FETCH_MAX;
use segue_rpc::Rpc;

use crate::disk::CacheDisk;
use crate::net::Fetcher;

/// What is fetched goes into its container in pieces of so many bytes.
const PIECE: u64 = 1 << 20;

/// Keeps `range` marked as being fetched.
pub(super) struct Fetching {
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) ino: Ino,
    pub(crate) range: Range<u64>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.fetcher.host.lock().fetch_ended(self.ino, self.range.clone());
        self.fetcher.wakes.fetched.notify_waiters();
    }
}

/// Fetched bytes on their way into a container. They go there in large pieces at even places, of
/// which the kernel makes large pages: a file in pages as its chunks were cut is read a third
/// slower when it is cached. What has come is put down also when the rest does not come.
struct Gathered<'a> {
    disk: &'a CacheDisk,
    ino: Ino,
    version: Version,
    /// Where the bytes begin.
    at: u64,
    bytes: Vec<u8>,
}

impl Gathered<'_> {
    /// Takes what is at a place, behind what came before: bytes, or so many zeros.
    fn take(&mut self, at: u64, len: u64, bytes: Option<&[u8]>) -> Result<(), Refusal> {
        let Some(mut bytes) = bytes else {
            self.put_down()?;
            return self.disk.fill(self.ino, self.version, at, None, len);
        };
        while !bytes.is_empty() {
            let end = at + len - bytes.len() as u64;
            if self.bytes.is_empty() {
                self.at = end;
            }
            let room = usize::try_from(PIECE - end % PIECE).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.bytes.extend_from_slice(now);
            bytes = later;
            if now.len() == room {
                self.put_down()?;
            }
        }
        Ok(())
    }

    fn put_down(&mut self) -> Result<(), Refusal> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let len = self.bytes.len() as u64;
        let put = self.disk.fill(self.ino, self.version, self.at, Some(&self.bytes), len);
        self.bytes.clear();
        put
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        if let Err(refusal) = self.put_down() {
            tracing::debug!("#{}: what was fetched is not kept: {refusal}", self.ino);
        }
    }
}

impl Fetcher {
    /// Fetches a gap for a waiting call.
    pub(crate) async fn fetch_demanded(&self, class: Class, gap: &Gap) -> Result<(), Refusal> {
        let rpc = Rpc::new(class);
        let fetched = self.fetch_gap(gap.ino, gap.version, gap.range.clone(), &rpc);
        match class {
            Class::Fetch => self.fetches.demand(fetched).await,
            // A call in a hurry raises it.
            _ => self.fetches.unhurried(gap.ino, &gap.range, &rpc, fetched).await,
        }
    }

    pub(super) async fn fetch_gap(
        &self,
        ino: Ino,
        version: Version,
        gap: Range<u64>,
        rpc: &Rpc,
    ) -> Result<(), Refusal> {
        let mut gathered = Gathered { disk: &self.disk, ino, version, at: 0, bytes: Vec::new() };
        let put = |at: u64, len: u64, bytes: Option<&[u8]>| gathered.take(at, len, bytes);
        self.fetch_to((ino, version), gap, rpc, put).await?;
        gathered.put_down()?;
        self.disk.wake_cleaner();
        Ok(())
    }

    /// Fetches `gap`, and gives it to `put` from its start to its end: what is at a place, as bytes
    /// or as so many zeros.
    async fn fetch_to(
        &self,
        (ino, version): (Ino, Version),
        gap: Range<u64>,
        rpc: &Rpc,
        mut put: impl FnMut(u64, u64, Option<&[u8]>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut at = gap.start;
        while at < gap.end {
            let part = at..gap.end.min(at + FETCH_MAX);
            let (fetched, mut blocks) = self.remote.fetch(rpc, ino, version, part).await?;
            let before = at;
            let mut block = bytes::Bytes::new();
            for (len, is_data) in fetched.segments {
                let end = at.checked_add(len).filter(|&end| end <= gap.end);
                let end = end.ok_or(Refusal::Protocol)?;
                if !is_data {
                    put(at, end - at, None)?;
                    at = end;
                }
                while at < end {
                    if block.is_empty() {
                        let next = blocks.next().await.map_err(|error| {
                            tracing::debug!("#{ino}: {error}");
                            Refusal::Unreachable
                        })?;
                        block = next.filter(|block| !block.is_empty()).ok_or(Refusal::Protocol)?;
                    }
                    let take = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.len());
                    let bytes = block.split_to(take);
                    put(at, take as u64, Some(&bytes))?;
                    at += take as u64;
                }
            }
            if at == before {
                // The file ends here on the server: by what this host made it longer are zeros.
                return put(at, gap.end - at, None);
            }
        }
        Ok(())
    }

    pub(crate) async fn read_past(&self, sight: &Sight, class: Class) -> Result<Vec<u8>, Refusal> {
        let (Range { start, end }, ino) = (sight.range.clone(), sight.ino);
        let len = usize::try_from(end - start).map_err(|_| Refusal::TooLarge)?;
        let is_nothing_here = sight.missing.first() == Some(&(start..end));
        let mut bytes = match is_nothing_here {
            true => vec![0; len],
            false => {
                let read = self.disk.open_container(ino, sight.container)?.read(start, len);
                read.map_err(|error| self.disk.disk_refusal("containers", &error))?
            }
        };
        for gap in &sight.missing {
            let put = |at: u64, len: u64, fetched: Option<&[u8]>| {
                let place = |at: u64| usize::try_from(at - start).map_err(|_| Refusal::Io);
                let part = bytes.get_mut(place(at)?..place(at + len)?).ok_or(Refusal::Io)?;
                match fetched {
                    Some(fetched) => part.copy_from_slice(fetched),
                    None => part.fill(0),
                }
                Ok(())
            };
            let rpc = Rpc::new(class);
            let fetched = self.fetch_to((ino, sight.version), gap.clone(), &rpc, put);
            match class {
                Class::Fetch => self.fetches.demand(fetched).await?,
                _ => fetched.await?,
            }
        }
        Ok(bytes)
    }
}
