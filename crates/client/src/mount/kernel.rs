//! Telling the kernel to forget: on threads of their own, because the kernel may make the
//! teller wait for a request that only we can answer.
//!
//! Attributes alone make nobody wait, and are forgotten on the spot.
//!
//! Names and data have a thread each. Forgetting a name takes the directory's lock, which a
//! request may hold that waits here until data are forgotten.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;

use segue_core::cache::Nodes;
use segue_core::types::{Ino, Name};
use segue_fuse::Notifier;
use tokio::sync::watch;

use super::lock;

/// The way to the threads.
#[derive(Debug)]
pub(crate) struct KernelCache {
    data: mpsc::Sender<Ino>,
    names: mpsc::Sender<(Ino, Name)>,
    /// How often data were to be forgotten.
    asked: AtomicU64,
    /// How often they have been.
    done: watch::Receiver<u64>,
    notifier: Arc<OnceLock<Notifier>>,
    nodes: Arc<Mutex<Nodes>>,
}

/// The other ends, until the session is there.
#[derive(Debug)]
pub(crate) struct KernelCacheThreads {
    data: mpsc::Receiver<Ino>,
    names: mpsc::Receiver<(Ino, Name)>,
    done: watch::Sender<u64>,
    notifier: Arc<OnceLock<Notifier>>,
    nodes: Arc<Mutex<Nodes>>,
}

impl KernelCache {
    /// The senders, and the threads to be.
    pub(crate) fn new(nodes: &Arc<Mutex<Nodes>>) -> (KernelCache, KernelCacheThreads) {
        let (tell_data, data) = mpsc::channel();
        let (tell_name, names) = mpsc::channel();
        let (tell_done, done) = watch::channel(0);
        let asked = AtomicU64::new(0);
        let notifier = Arc::<OnceLock<_>>::default();
        let theirs = (Arc::clone(&notifier), Arc::clone(nodes));
        let nodes = Arc::clone(nodes);
        let cache = KernelCache { data: tell_data, names: tell_name, asked, done, notifier, nodes };
        let (notifier, nodes) = theirs;
        (cache, KernelCacheThreads { data, names, done: tell_done, notifier, nodes })
    }

    /// The way to tell, once there is a session.
    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// Has pages and attributes of `ino` dropped.
    pub(crate) fn forget_data(&self, ino: Ino) {
        // Without a thread there is no mount, hence no cache.
        if self.data.send(ino).is_ok() {
            self.asked.fetch_add(1, Ordering::Release);
        }
    }

    /// Has the attributes of `ino` dropped before this returns.
    pub(crate) fn forget_attributes(&self, ino: Ino) {
        // Without a mount there is no cache.
        let Some(notifier) = self.notifier.get() else { return };
        for node in known(&self.nodes, ino) {
            if let Err(error) = notifier.invalidate_attributes(node) {
                tracing::debug!("forget the attributes of #{ino}: {error}");
            }
        }
    }

    /// Returns when the kernel has forgotten all data that it was to forget so far.
    pub(crate) async fn forgotten(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        let mut done = self.done.clone();
        // An error means that the mount is ending.
        done.wait_for(|done| *done >= asked).await.ok();
    }

    /// Has dropped what `name` in `parent` means.
    pub(crate) fn forget_name(&self, parent: Ino, name: Name) {
        self.names.send((parent, name)).ok();
    }
}

impl KernelCacheThreads {
    /// Starts them; they end with the last `KernelCache`.
    pub(crate) fn start(self, notifier: Notifier) -> std::io::Result<()> {
        let KernelCacheThreads { data, names, done, notifier: shared, nodes } = self;
        shared.get_or_init(|| notifier.clone());
        let kernel = notifier.clone();
        let forget_data = move || {
            while let Ok(ino) = data.recv() {
                for node in known(&nodes, ino) {
                    if let Err(error) = kernel.invalidate(node, 0..u64::MAX) {
                        tracing::debug!("forget #{ino}: {error}");
                    }
                }
                done.send_modify(|done| *done += 1);
            }
        };
        let forget_names = move || {
            while let Ok((parent, name)) = names.recv() {
                let bytes = OsStr::from_bytes(name.as_bytes());
                if let Err(error) = notifier.forget_name(parent.0, bytes) {
                    tracing::debug!("forget {name} in #{parent}: {error}");
                }
            }
        };
        thread::Builder::new().name("forget-data".into()).spawn(forget_data)?;
        thread::Builder::new().name("forget-names".into()).spawn(forget_names).map(drop)
    }
}

/// All that the kernel may know `ino` by.
fn known(nodes: &Mutex<Nodes>, ino: Ino) -> Vec<u64> {
    lock(nodes).all(ino).collect()
}
