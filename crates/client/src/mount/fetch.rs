//! Getting data from the server into containers; or past them, where the disk is full.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use segue_core::host::cache::{FileData, Sight};
use segue_core::nouns::{Attr, Class, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::FETCH_MAX;
use segue_rpc::Rpc;

use super::data::OpenMode;
use super::why::waits;
use super::{Mount, Shared, idle};

/// A file up to this size is fetched when it is opened: one question, as for its attributes alone.
const SMALL: u64 = 64 << 10;
/// A fetch is given up after so many attempts at one version of the data. Each other version is a
/// change of another host, which fails no read.
const ATTEMPTS: u32 = 16;
/// A wait for the outcome of a store ends if nothing is settled for this long.
const TURN: Duration = Duration::from_secs(1);
/// It ends after this long in any case: the store itself may be what waits.
const TURNS: Duration = Duration::from_secs(10);

/// What is fetched goes into its container in pieces of so many bytes.
const PIECE: u64 = 1 << 20;

/// Keeps `range` marked as being fetched.
pub(super) struct Fetching {
    pub(super) mount: Shared,
    pub(super) ino: Ino,
    pub(super) range: Range<u64>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if let Some(file) = self.mount.core().files.get_mut(&self.ino) {
            file.fetch_ended(self.range.clone());
        }
        self.mount.fetched.notify_waiters();
    }
}

/// Fetched bytes on their way into a container. They go there in large pieces at even places, of
/// which the kernel makes large pages: a file in pages as its chunks were cut is read a third
/// slower when it is cached. What has come is put down also when the rest does not come.
struct Gathered<'a> {
    mount: &'a Mount,
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
            return self.mount.fill(self.ino, self.version, at, None, len);
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
        let put = self.mount.fill(self.ino, self.version, self.at, Some(&self.bytes), len);
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

impl Mount {
    /// Attributes of `ino`, which is being opened. Of data that are not here the server is asked in
    /// any case, also where it has promised to tell of changes, and sooner is better: whether
    /// another host removed the file since its name was looked up can be told from an open, with
    /// which the kernel begins anew, but not from a read.
    pub(super) async fn getattr_to_read(
        self: &Shared,
        ino: Ino,
        mode: &OpenMode,
        pid: u32,
    ) -> Result<Attr, Refusal> {
        let attr = self.getattr(ino).await?;
        let is_asked = !mode.truncate && !self.remote.is_silent();
        if !is_asked || self.core().tree.is_pending(ino) {
            return Ok(attr);
        }
        self.load(ino)?;
        let is_here = |file: &mut FileData| file.is_valid(0..attr.size, attr.size);
        if self.core().file(ino).is_some_and(is_here) {
            return Ok(attr);
        }
        if attr.size > SMALL {
            return self.ask_attr(ino).await;
        }
        match self.fetch_at(idle::class_of(pid), ino, 0..attr.size).await {
            Err(Refusal::Stale) => self.ask_attr(ino).await,
            // A read tells of anything else.
            _ => self.core().tree.peek(ino).copied().ok_or(Refusal::Stale),
        }
    }

    /// Returns when all of `range` is here. Without room for it that is refused.
    pub(super) async fn fetch(self: &Shared, ino: Ino, range: Range<u64>) -> Result<(), Refusal> {
        self.fetch_at(Class::Fetch, ino, range).await
    }

    /// The same, at the class of whoever waits.
    pub(super) async fn fetch_at(
        self: &Shared,
        class: Class,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        self.cloned(ino).await?;
        let sight = self.core().sight(ino, &range).ok_or(Refusal::Stale)?;
        if !self.can_cache(sight.missing.iter().map(|gap| gap.end - gap.start).sum()).await {
            return Err(Refusal::NoSpace);
        }
        let (mut attempts, mut tried) = (0, None);
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
            if class == Class::Fetch {
                self.fetches.want(ino, &range);
            }
            // Others are at it. However often some fetch ends meanwhile, nothing was tried here.
            if gaps.is_empty() {
                waits(|| "data that were already on their way".to_owned(), fetched).await;
                continue;
            }
            let is_other = tried.replace(version).is_some_and(|before| before != version);
            attempts = if is_other { 1 } else { attempts + 1 };
            let fetching: Vec<_> = gaps
                .into_iter()
                .map(|range| Fetching { mount: Arc::clone(self), ino, range })
                .collect();
            for gap in &fetching {
                let data = || format!("{} bytes of data", gap.range.end - gap.range.start);
                match waits(data, self.fetch_demanded(class, version, gap)).await {
                    Ok(()) => {}
                    Err(Refusal::Changed) => {
                        self.catch_up(ino, version).await?;
                        break;
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        Err(Refusal::Io)
    }

    /// Fetches what somebody waits for.
    async fn fetch_demanded(
        &self,
        class: Class,
        version: Version,
        gap: &Fetching,
    ) -> Result<(), Refusal> {
        let rpc = Rpc::new(class);
        let fetched = self.fetch_gap(gap.ino, version, gap.range.clone(), &rpc);
        match class {
            Class::Fetch => self.fetches.demand(fetched).await,
            // Whoever else wants it is in a hurry.
            _ => self.fetches.unhurried(gap.ino, &gap.range, &rpc, fetched).await,
        }
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

    /// The server has another version than `version`, which was being fetched.
    async fn catch_up(&self, ino: Ino, version: Version) -> Result<(), Refusal> {
        let ahead = self.core().files.get(&ino).is_some_and(|file| file.is_ahead());
        if !ahead {
            return self.ask_attr(ino).await.map(drop);
        }
        // Our own store made that version, and its outcome is on the way; or another host
        // did, and the rest of our base is gone: the store will become a conflict copy.
        let mut settled = self.settled.subscribe();
        let waits = |file: &FileData| file.version() == version && file.is_ahead();
        let caught_up = async {
            while self.core().files.get(&ino).is_some_and(waits) {
                // As long as other changes are settled, this file's turn comes.
                if tokio::time::timeout(TURN, settled.changed()).await.is_err() {
                    return Err(Refusal::Stale);
                }
            }
            Ok(())
        };
        tokio::time::timeout(TURNS, caught_up).await.unwrap_or(Err(Refusal::Stale))
    }

    pub(super) async fn fetch_gap(
        &self,
        ino: Ino,
        version: Version,
        gap: Range<u64>,
        rpc: &Rpc,
    ) -> Result<(), Refusal> {
        let mut gathered = Gathered { mount: self, ino, version, at: 0, bytes: Vec::new() };
        let put = |at: u64, len: u64, bytes: Option<&[u8]>| gathered.take(at, len, bytes);
        self.fetch_to((ino, version), gap, rpc, put).await?;
        gathered.put_down()?;
        self.wake_cleaner();
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

    /// Bytes of a file of which some are not here and cannot be kept here.
    pub(super) async fn read_uncached(
        self: &Shared,
        ino: Ino,
        wanted: Range<u64>,
        class: Class,
    ) -> Result<Vec<u8>, Refusal> {
        let (mut attempts, mut tried) = (0, None);
        while attempts < ATTEMPTS {
            let before = self.core().sight(ino, &wanted).ok_or(Refusal::Stale)?;
            let is_other =
                tried.replace(before.version).is_some_and(|tried| tried != before.version);
            attempts = if is_other { 1 } else { attempts + 1 };
            match self.read_past(ino, &before, class).await {
                Err(Refusal::Changed) => self.catch_up(ino, before.version).await?,
                Err(refusal) => return Err(refusal),
                Ok(bytes) if self.core().sight(ino, &wanted).as_ref() == Some(&before) => {
                    return Ok(bytes);
                }
                // What was read in between is of two states.
                Ok(_) => {}
            }
        }
        Err(Refusal::Io)
    }

    async fn read_past(&self, ino: Ino, sight: &Sight, class: Class) -> Result<Vec<u8>, Refusal> {
        let Range { start, end } = sight.range;
        let len = usize::try_from(end - start).map_err(|_| Refusal::TooLarge)?;
        let is_nothing_here = sight.missing.first() == Some(&sight.range);
        let mut bytes = match is_nothing_here {
            true => vec![0; len],
            false => {
                let read = self.open_container(ino, sight.container)?.read(start, len);
                read.map_err(|error| self.disk_refusal("containers", &error))?
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
