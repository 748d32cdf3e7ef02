//! Room on this host's disk: what is cached goes when there is too much of it, and nothing is taken
//! in that could not be kept.
//!
//! ```text
//!   cached ─▶ core lets go of it ─▶ out of the index ─▶ its container goes
//! ```
//!
//! In that order a process that dies anywhere leaves no row without its bytes: at most a container
//! without a row, which the next one removes. Containers are never made again under the same
//! number. While core and index are asked nothing is noted, and no file comes into memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use segue_core::host::cache::{Bounds, Candidate, Disk, Scrap, choose};
use segue_core::host::call::DISK_RESERVE;
use segue_core::nouns::Time;
use segue_core::refusal::Refusal;
use tokio::sync::Notify;

use crate::disk::CacheDisk;
use crate::disk::notes::known;
use crate::rank::{Rank, Ranked};

/// So many files go at once: whoever opens a file may have to wait for it.
const STEP: u32 = 64;
/// When nothing could go it is tried again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of the room for the cache.
#[derive(Debug)]
pub(crate) struct Space {
    /// More bytes than this are too many.
    soft: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// More is cached than may be.
    pub(crate) to_clean: Notify,
    /// Held by who removes something. Taken before `noting`; in it, since when too little went.
    cleaning: Ranked<Option<Time>>,
    /// Held while what the index has of a file comes into memory, or goes from both. Taken after
    /// `noting`, and before the core.
    pub(crate) loading: Ranked<()>,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            soft: AtomicU64::default(),
            evicted: AtomicU64::default(),
            to_clean: Notify::new(),
            cleaning: Ranked::new(Rank::Cleaning, None),
            loading: Ranked::new(Rank::Loading, ()),
        }
    }
}

impl CacheDisk {
    fn disk(&self) -> Result<Disk, Refusal> {
        let space = rustix::fs::statvfs(&self.for_user.refused.directory)
            .map_err(|error| self.disk_refusal("cache directory", &error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Disk { total: bytes(space.f_blocks), free: bytes(space.f_bavail) })
    }

    /// Bytes that are free on the cache's disk.
    pub(crate) fn free_space(&self) -> Result<u64, Refusal> {
        Ok(self.disk()?.free)
    }

    /// Reserves room for `more` bytes; false if there is none.
    pub(crate) fn reserve_room(&self, more: u64) -> Result<bool, Refusal> {
        let now = self.host.now();
        let known = self.host.lock().reserve_space(more, now);
        if let Some(is_there) = known {
            return Ok(is_there);
        }
        let free = self.free_space()?;
        let mut core = self.host.lock();
        core.told_free(free, now);
        Ok(core.reserve_space(more, now) == Some(true))
    }

    /// Refuses `more` bytes that somebody writes if there is no room for them, even without what
    /// is cached.
    pub(crate) fn check_room(&self, more: u64) -> Result<(), Refusal> {
        if self.reserve_room(more)?
            || self.drop_bases() && self.reserve_room(more)?
            || self.clean_cache() > 0 && self.reserve_room(more)?
        {
            return Ok(());
        }
        Err(Refusal::NoSpace)
    }

    /// Removes what is to go; true if something went.
    pub(crate) async fn make_room(self: &Arc<Self>) -> bool {
        let disk = Arc::clone(self);
        tokio::task::spawn_blocking(move || disk.clean_cache()).await.is_ok_and(|freed| freed > 0)
    }

    /// How many bytes are cached that the server has.
    fn clean_bytes(&self) -> u64 {
        self.containers.bytes().saturating_sub(self.host.lock().unsafe_bytes())
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            size: self.volume.options.cache_size,
            min_free: self.volume.options.cache_min_free,
            // Whoever writes is to find some room before the cleaner has made it.
            reserve: DISK_RESERVE + DISK_RESERVE / 4,
        }
    }

    /// How much may be cached, as the disk is now.
    pub(crate) fn cache_limit(&self) -> u64 {
        match self.disk() {
            Ok(disk) => self.bounds().limit(disk, self.clean_bytes()),
            Err(_) => self.volume.options.cache_size,
        }
    }

    /// Wakes the cleaner if the cache has grown too large.
    pub(crate) fn wake_cleaner(&self) {
        if self.containers.bytes() > self.space.soft.load(Ordering::Relaxed) {
            self.space.to_clean.notify_one();
        }
    }

    /// Removes what is too much, whenever there is.
    pub(crate) async fn keep_bounds(self: Arc<Self>) {
        loop {
            let told = self.space.to_clean.notified();
            tokio::time::timeout(PAUSE, told).await.ok();
            self.make_room().await;
        }
    }

    /// Removes what is to go, and returns how many bytes went.
    pub(super) fn clean_cache(&self) -> u64 {
        let mut failed = self.space.cleaning.lock();
        let now = self.host.now();
        if failed.is_some_and(|at| now.since(at) < PAUSE) {
            return 0;
        }
        let (limit, clean) = (self.cache_limit(), self.clean_bytes());
        let ahead = self.containers.bytes().saturating_sub(clean);
        self.space.soft.store(Bounds::soft(limit).saturating_add(ahead), Ordering::Relaxed);
        let excess = Bounds::excess(limit, clean);
        let mut freed = self.evict(excess);
        // What came in the last second can go once it is noted.
        if freed < excess && self.note().is_ok() {
            freed += self.evict(excess - freed);
        }
        *failed = (freed < excess).then_some(now);
        self.space.evicted.fetch_add(freed, Ordering::Relaxed);
        self.host.lock().freed();
        freed
    }

    /// Removes `excess` bytes of clean data, those used longest ago first, if there are so many.
    fn evict(&self, excess: u64) -> u64 {
        let (mut freed, mut after) = (0, None);
        while freed < excess {
            let Some(mut files) = known("index.db", self.index.oldest(after, STEP)) else { break };
            let Some(last) = files.last() else { break };
            after = Some((last.used, last.ino));
            for file in &mut files {
                file.bytes = self.containers.bytes_of((file.ino, file.container));
            }
            let gone = self.forget_files(files, excess - freed);
            for file in &gone {
                self.remove(Scrap::Container(file.ino, file.container));
                freed += file.bytes;
            }
        }
        freed
    }

    /// Takes out of memory and the index what goes of `files`.
    fn forget_files(&self, files: Vec<Candidate>, excess: u64) -> Vec<Candidate> {
        let _noting = self.noting.lock();
        let _loading = self.space.loading.lock();
        let gone = {
            let mut core = self.host.lock();
            choose(files, excess, |file| core.evict(file.ino, file.container))
        };
        match known("index.db", self.index.evict(&gone)) {
            Some(()) => gone,
            // They are there, and come back when somebody opens them.
            None => Vec::new(),
        }
    }
}
