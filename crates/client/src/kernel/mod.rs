//! The kernel's view of the mount: its caches, and the containers that it reads by itself.

pub(crate) mod cache;
pub(crate) mod through;

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLockReadGuard};
use std::time::Duration;

use segue_core::nouns::{Ino, Name};
use tokio::time::timeout;

use crate::clock::slept;
use crate::disk::CacheDisk;
use crate::host::SharedHost;
use crate::rank::Ranked;

pub(crate) use cache::KernelCache;
pub(crate) use through::PassthroughState;

/// The kernel's clock may stand still for so long unnoticed: the lease is shorter than it could be
/// by more.
const NAP: Duration = Duration::from_millis(200);
/// Longest wait for the kernel to write modified pages back. On a full disk it may take longer.
const WRITE_BACK_MAX: Duration = Duration::from_secs(2);

/// What may end it.
#[derive(Debug)]
pub(crate) struct Told {
    /// For how long this host had slept when it was looked last.
    pub(crate) slept: Ranked<Duration>,
    /// Held while the kernel is to forget.
    pub(crate) taking_back: tokio::sync::Mutex<()>,
}

impl Default for Told {
    fn default() -> Told {
        Told { slept: Ranked::leaf(slept()), taking_back: tokio::sync::Mutex::default() }
    }
}

/// The kernel, as a mount sees it.
pub(crate) struct KernelView {
    pub(crate) host: Arc<SharedHost>,
    pub(crate) disk: Arc<CacheDisk>,
    pub(crate) cache: KernelCache,
    pub(crate) through: PassthroughState,
}

impl KernelView {
    fn reap_one(&self, ino: Ino) {
        let mut core = self.host.lock();
        if core.is_gone(ino) {
            core.forget_file(ino, self.host.now());
        }
    }

    /// The kernel has let go of `ino`, and asks for it by a name if it wants it again.
    pub(crate) fn let_go(&self, ino: Ino) {
        let was_held = self.host.lock().let_go(ino);
        if was_held {
            self.reap_one(ino);
        }
    }

    /// What the kernel is to call `ino`, and how long it may keep its attributes.
    pub(crate) fn numbered(&self, ino: Ino) -> (u64, Duration) {
        let (host, now) = (self.host.lock(), self.host.now());
        (host.nodes().node(ino), host.tree().remaining(ino, now))
    }

    /// Held while an answer to the kernel is made and given: what is taken back is taken back
    /// behind it.
    pub(crate) fn hears(&self) -> RwLockReadGuard<'_, ()> {
        self.cache.answering()
    }

    /// The kernel asks for something.
    pub(crate) fn asks(&self) {
        self.cache.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// What the kernel is to call `ino`, and how long it may keep that `name` in `parent` is this.
    pub(crate) fn named(&self, parent: Ino, name: &Name, ino: Ino) -> (u64, Duration) {
        let (host, now) = (self.host.lock(), self.host.now());
        (host.nodes().node(ino), host.tree().name_remaining(parent, name, ino, now))
    }

    /// True if this host slept since this was asked last.
    pub(crate) fn has_slept(&self) -> bool {
        let slept = slept();
        let mut known = self.cache.told.slept.lock();
        let has_slept = slept.saturating_sub(*known) > NAP;
        *known = slept;
        has_slept
    }

    /// The kernel is to call `ino` something else from now on.
    pub(crate) fn forget_names_of(&self, ino: Ino) {
        let (place, links) = {
            let core = self.host.lock();
            (core.tree().place(ino), core.tree().peek(ino).map_or(0, |attr| attr.nlink))
        };
        match place {
            Some((directory, name)) if links < 2 => self.cache.forget_name(directory, name),
            _ => self.cache.forget_all_names(),
        }
    }
}

impl KernelView {
    /// Has the kernel write back the modified pages of inodes whose numbers are about to be
    /// released. Their handles are refused afterwards.
    pub(crate) async fn release_pages(&self, numbers: Vec<Ino>) {
        numbers.into_iter().for_each(|ino| self.cache.forget_data(ino));
        timeout(WRITE_BACK_MAX, self.cache.forgotten()).await.ok();
    }
}
