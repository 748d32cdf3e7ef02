//! The kernel's view of the mount: its caches, and the containers that it reads by itself.

mod asked_again;
pub(crate) mod cache;
pub(crate) mod through;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

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

/// A process that waits for the answer to a lookup has run so long after the answer, at the latest.
const TAKEN_IN: Duration = Duration::from_secs(1);
/// Names that were told lately; more are of a shorter time.
const LATELY_MAX: usize = 1 << 16;

/// What the kernel was told, as far as it matters when it is to forget.
#[derive(Debug)]
pub(crate) struct Told {
    /// Names that were looked up lately. The kernel may look up a name that it knows without a
    /// lock, and takes in the answer when the asking process runs: behind an order to forget.
    lately: Ranked<VecDeque<(Instant, Ino, Name)>>,
    /// For how long this host had slept when it was looked last.
    pub(crate) slept: Ranked<Duration>,
    /// Held while the kernel is to forget.
    pub(crate) taking_back: tokio::sync::Mutex<()>,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            lately: Ranked::leaf(VecDeque::new()),
            slept: Ranked::leaf(slept()),
            taking_back: tokio::sync::Mutex::default(),
        }
    }
}

impl Told {
    /// The answer to a lookup tells of `name` in `parent`.
    fn name(&self, parent: Ino, name: &Name) {
        let now = Instant::now();
        let mut lately = self.lately.lock();
        let is_old = |told: &(Instant, Ino, Name)| now.duration_since(told.0) > TAKEN_IN;
        while lately.len() >= LATELY_MAX || lately.front().is_some_and(is_old) {
            lately.pop_front();
        }
        lately.push_back((now, parent, name.clone()));
    }

    /// Names of which the kernel was told within `time`, in directories that are `concerned`.
    fn names_within(&self, time: Duration, concerned: impl Fn(Ino) -> bool) -> Vec<(Ino, Name)> {
        let lately = self.lately.lock();
        let young = lately.iter().rev().take_while(|(told, ..)| told.elapsed() <= time);
        let concerned = young.filter(|(_, parent, _)| concerned(*parent));
        concerned.map(|(_, parent, name)| (*parent, name.clone())).collect()
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

    /// The same for an answer to a change. The kernel takes it in whatever it forgot meanwhile, so
    /// it does not outlive the lease.
    pub(crate) fn made(&self, ino: Ino) -> (u64, Duration) {
        let (node, lifetime) = self.numbered(ino);
        (node, self.within_lease(lifetime))
    }

    pub(crate) fn within_lease(&self, lifetime: Duration) -> Duration {
        self.host.lock().tree().within_lease(lifetime, self.host.now())
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
        let (node, lifetime) = {
            let (host, now) = (self.host.lock(), self.host.now());
            (host.nodes().node(ino), host.tree().name_remaining(parent, name, ino, now))
        };
        if !lifetime.is_zero() {
            self.cache.told.name(parent, name);
        }
        (node, lifetime)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_told_lately_are_known_by_directory() {
        let told = Told::default();
        let name = |name: &str| Name::new(name.as_bytes()).unwrap();
        told.name(Ino(5), &name("a"));
        told.name(Ino(6), &name("b"));
        let within = |time, of: &[u64]| told.names_within(time, |ino| of.contains(&ino.0));
        assert_eq!(within(Duration::MAX, &[6]), [(Ino(6), name("b"))]);
        assert_eq!(within(Duration::MAX, &[5, 6]).len(), 2);
        (0..LATELY_MAX).for_each(|_| told.name(Ino(7), &name("c")));
        assert!(within(Duration::MAX, &[5, 6]).is_empty());
        assert!(within(Duration::MAX, &[7]).len() <= LATELY_MAX);
    }
}
