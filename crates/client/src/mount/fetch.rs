//! Getting data from the server into containers; or past them, where the disk is full.

use std::ops::Range;

use segue_core::host::action::{Await, Done, Event, Gap, Patience, Undone};
use segue_core::host::cache::Sight;
use segue_core::host::call::{Call, FetchCall};
use segue_core::nouns::{Class, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::FETCH_MAX;
use segue_rpc::Rpc;
use tokio::time::Instant;

use super::shell::{Asked, Ran, Running};
use super::why::waits;
use super::{Mount, Shared};

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
        self.mount.core().fetch_ended(self.ino, self.range.clone());
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
        let call = Call::Fetch(FetchCall { ino, range, passes: false });
        self.call_fetching(class, call).await.map(drop)
    }

    /// Bytes of a file of which some are not here and cannot be kept here.
    pub(super) async fn read_uncached(
        self: &Shared,
        ino: Ino,
        range: Range<u64>,
        class: Class,
    ) -> Result<Vec<u8>, Refusal> {
        let call = Call::Fetch(FetchCall { ino, range, passes: true });
        self.call_fetching(class, call).await
    }

    /// Carries out a call that fetches at that class. Returns the bytes that pass.
    pub(super) async fn call_fetching(
        self: &Shared,
        class: Class,
        call: Call,
    ) -> Result<Vec<u8>, Refusal> {
        let (rpc, mut running) = (Rpc::new(Class::Fetch), Running::new(self, &call));
        let mut event = Event::Call { id: running.id, call };
        let mut passed = Vec::new();
        loop {
            let asked = match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => return answer.map(|_| passed),
                Ran::Asks(asked) => asked,
            };
            if class == Class::Fetch {
                self.want(&asked);
            }
            let done = match asked {
                Asked::Fetch(gap) => {
                    let data = || format!("{} bytes of data", gap.range.end - gap.range.start);
                    waits(data, self.fetch_demanded(class, &gap)).await.map(|()| Done::Carried)
                }
                Asked::Pass(sight) => match self.read_past(&sight, class).await {
                    Ok(bytes) => {
                        passed = bytes;
                        Ok(Done::Carried)
                    }
                    Err(refusal) => Err(refusal),
                },
                Asked::Await(awaited) => self.progressed(awaited).await,
                Asked::Evict => {
                    self.make_room().await;
                    Ok(Done::Carried)
                }
                asked => self.answer(&rpc, asked).await,
            };
            event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
        }
    }

    /// Raises fetches of the same bytes that go without hurry.
    fn want(&self, asked: &Asked) {
        match asked {
            Asked::Fetch(gap) => self.fetches.want(gap.ino, &gap.range),
            Asked::Await(Await { data: Some((ino, range)), .. }) => self.fetches.want(*ino, range),
            _ => {}
        }
    }

    /// Waits until something was settled or fetched.
    pub(super) async fn progressed(&self, awaited: Await) -> Result<Done, Refusal> {
        let mut settled = self.settled.subscribe();
        let fetched = self.fetched.notified();
        tokio::pin!(fetched);
        fetched.as_mut().enable();
        if self.core().progress() != awaited.since {
            return Ok(Done::Carried);
        }
        let progress = async {
            tokio::select! {
                () = fetched => {}
                _ = settled.changed() => {}
            }
        };
        let what = match awaited.data {
            Some(_) => "data that were already on their way",
            None => "the server to commit the change",
        };
        let is_late = match awaited.patience {
            Patience::AtMost(time) => tokio::time::timeout(time, progress).await.is_err(),
            Patience::Ever => {
                waits(|| what.to_owned(), progress).await;
                false
            }
            Patience::Grace => waits(|| what.to_owned(), self.loses_patience(progress)).await,
        };
        if is_late { Err(Refusal::Unreachable) } else { Ok(Done::Carried) }
    }

    /// Waits for `progress`; true if the connection was lost for longer than `grace` before.
    async fn loses_patience(&self, progress: impl Future<Output = ()>) -> bool {
        tokio::pin!(progress);
        let mut link = self.remote.link().watch();
        // Counted from the loss of the link: every failed attempt to connect changes its state.
        let mut until = None;
        loop {
            let is_offline = self.remote.is_offline();
            if !is_offline {
                until = None;
            }
            let left = || self.remote.link().patience_left(self.options.grace);
            let deadline = *until.get_or_insert_with(|| Instant::now() + left());
            tokio::select! {
                () = &mut progress => return false,
                _ = link.changed() => {}
                () = tokio::time::sleep_until(deadline), if is_offline => return true,
            }
        }
    }

    /// Fetches a gap for a waiting call.
    async fn fetch_demanded(&self, class: Class, gap: &Gap) -> Result<(), Refusal> {
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

    async fn read_past(&self, sight: &Sight, class: Class) -> Result<Vec<u8>, Refusal> {
        let (Range { start, end }, ino) = (sight.range.clone(), sight.ino);
        let len = usize::try_from(end - start).map_err(|_| Refusal::TooLarge)?;
        let is_nothing_here = sight.missing.first() == Some(&(start..end));
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
        let key = (ino, container.id);
        let parts = self.core().to_fill(key, at..at + len, version)?;
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
        self.core().filled(key, parts, version);
        Ok(())
    }
}
