//! Getting data from the server into containers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use segue_core::refusal::Refusal;
use segue_core::types::{Class, Ino, Version};
use segue_core::wire::FETCH_MAX;

use super::{Mount, Shared};

/// A file that changes on the server faster than it can be fetched is given up after this.
const ATTEMPTS: u32 = 16;

/// Keeps `range` marked as being fetched.
struct Fetching {
    mount: Shared,
    ino: Ino,
    range: Range<u64>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if let Some(file) = self.mount.core().files.get_mut(&self.ino) {
            file.fetch_ended(self.range.clone());
        }
        self.mount.fetched.notify_waiters();
    }
}

impl Mount {
    /// Returns when all of `range` is here.
    pub(super) async fn fetch(self: &Shared, ino: Ino, range: Range<u64>) -> Result<(), Refusal> {
        self.cloned(ino).await?;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            let fetched = self.fetched.notified();
            tokio::pin!(fetched);
            fetched.as_mut().enable();
            let (version, gaps) = {
                let mut core = self.core();
                let size = core.tree.peek(ino).ok_or(Refusal::Stale)?.size;
                let file = core.file(ino).ok_or(Refusal::Stale)?;
                if file.is_valid(range.clone(), size) {
                    return Ok(());
                }
                let gaps = file.to_fetch(range.clone(), size);
                gaps.iter().for_each(|gap| file.fetch_began(gap.clone()));
                (file.version(), gaps)
            };
            // Others are at it. However often some fetch ends meanwhile, nothing was tried here.
            if gaps.is_empty() {
                fetched.await;
                continue;
            }
            attempts += 1;
            let fetching: Vec<_> = gaps
                .into_iter()
                .map(|range| Fetching { mount: Arc::clone(self), ino, range })
                .collect();
            for gap in &fetching {
                match self.fetch_gap(ino, version, gap.range.clone(), Class::Fetch).await {
                    Ok(()) => {}
                    Err(Refusal::Changed) => {
                        self.catch_up(ino).await?;
                        break;
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        Err(Refusal::Io)
    }

    /// Returns when it is known whether `ino` got another file's data, if that is asked for.
    pub(super) async fn cloned(&self, ino: Ino) -> Result<(), Refusal> {
        let mut settled = self.settled.subscribe();
        while self.core().is_cloning(ino) {
            let told = tokio::time::timeout(self.options.grace, settled.changed()).await;
            told.map_err(|_| Refusal::Unreachable)?.map_err(|_| Refusal::Unreachable)?;
        }
        Ok(())
    }

    /// The server has another version than the one that was being fetched.
    async fn catch_up(&self, ino: Ino) -> Result<(), Refusal> {
        let ahead = self.core().files.get(&ino).is_some_and(|file| file.is_ahead());
        if !ahead {
            return self.ask_attr(ino).await.map(drop);
        }
        // Our own store made that version, and its outcome is on the way; or another host
        // did, and the rest of our base is gone: the store will become a conflict copy.
        let mut settled = self.settled.subscribe();
        match tokio::time::timeout(Duration::from_secs(1), settled.changed()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Stale),
        }
    }

    /// Starts fetching `range`, which a sequential reader will want next: so it has the class
    /// of what someone waits for.
    pub(super) fn fetch_ahead(self: &Shared, ino: Ino, range: Range<u64>) {
        let version = {
            let mut core = self.core();
            let Some(file) = core.file(ino) else { return };
            file.fetch_began(range.clone());
            file.version()
        };
        let fetching = Fetching { mount: Arc::clone(self), ino, range };
        tokio::spawn(async move {
            let (mount, range) = (&fetching.mount, fetching.range.clone());
            if let Err(refusal) = mount.fetch_gap(ino, version, range, Class::Fetch).await {
                tracing::debug!("#{ino}: read-ahead: {refusal}");
            }
        });
    }

    async fn fetch_gap(
        &self,
        ino: Ino,
        version: Version,
        gap: Range<u64>,
        class: Class,
    ) -> Result<(), Refusal> {
        let mut at = gap.start;
        while at < gap.end {
            let part = at..gap.end.min(at + FETCH_MAX);
            let (fetched, mut blocks) = self.remote.fetch(class, ino, version, part).await?;
            let before = at;
            let mut block = bytes::Bytes::new();
            for (len, is_data) in fetched.segments {
                let end = at.checked_add(len).filter(|&end| end <= gap.end);
                let end = end.ok_or(Refusal::Protocol)?;
                if !is_data {
                    self.fill(ino, version, at, None, end - at)?;
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
                    self.fill(ino, version, at, Some(&bytes), take as u64)?;
                    at += take as u64;
                }
            }
            if at == before {
                // The file ends here on the server.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Puts fetched bytes (or zeros) into the container where nothing newer is.
    fn fill(
        &self,
        ino: Ino,
        version: Version,
        at: u64,
        bytes: Option<&[u8]>,
        len: u64,
    ) -> Result<(), Refusal> {
        let container = self.container(ino)?;
        let _writing = container.writing();
        let parts = {
            let mut core = self.core();
            let file = core.file(ino).ok_or(Refusal::Stale)?;
            if file.container() == container.id {
                file.fillable(at..at + len, version)
            } else {
                Vec::new()
            }
        };
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
        if let Some(file) = self.core().files.get_mut(&ino)
            && file.container() == container.id
            && file.version() == version
        {
            parts.into_iter().for_each(|part| file.filled(part));
        }
        Ok(())
    }
}
