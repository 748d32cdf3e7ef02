//! Telling the kernel to forget: on threads of their own, because the kernel may make the
//! teller wait for a request that only we can answer.
//!
//! Attributes alone make nobody wait, and are forgotten on the spot.
//!
//! Names and data have a thread each. Having a name looked up again takes the directory's lock,
//! which a request may hold that waits here until data are forgotten.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;

use segue_core::cache::Nodes;
use segue_core::types::{Ino, Name};
use segue_fuse::Notifier;
use segue_fuse::abi::init;
use tokio::sync::watch;

use super::lock;

/// The way to the threads.
#[derive(Debug)]
pub(crate) struct KernelCache {
    data: Orders<Ino>,
    names: Orders<(Ino, Name)>,
    notifier: Arc<OnceLock<Notifier>>,
    nodes: Arc<Mutex<Nodes>>,
}

/// The other ends, until the session is there.
#[derive(Debug)]
pub(crate) struct KernelCacheThreads {
    data: Worker<Ino>,
    names: Worker<(Ino, Name)>,
    notifier: Arc<OnceLock<Notifier>>,
    nodes: Arc<Mutex<Nodes>>,
}

/// What a thread is to do, and how far it is.
#[derive(Debug)]
struct Orders<T> {
    sender: mpsc::Sender<T>,
    given: AtomicU64,
    done: watch::Receiver<u64>,
}

/// The other end.
#[derive(Debug)]
struct Worker<T> {
    orders: mpsc::Receiver<T>,
    done: watch::Sender<u64>,
}

fn orders<T>() -> (Orders<T>, Worker<T>) {
    let (sender, orders) = mpsc::channel();
    let (tell, done) = watch::channel(0);
    (Orders { sender, given: AtomicU64::new(0), done }, Worker { orders, done: tell })
}

impl<T> Orders<T> {
    fn give(&self, order: T) {
        // Without a thread there is no mount, hence no cache.
        if self.sender.send(order).is_ok() {
            self.given.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns when all is done that was given before.
    async fn done(&self) {
        let given = self.given.load(Ordering::Acquire);
        let mut done = self.done.clone();
        // An error means that the mount is ending.
        done.wait_for(|done| *done >= given).await.ok();
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Works in a thread of its own until nobody can give an order.
    fn start(self, name: &str, work: impl Fn(T) + Send + 'static) -> std::io::Result<()> {
        let run = move || {
            while let Ok(order) = self.orders.recv() {
                work(order);
                self.done.send_modify(|done| *done += 1);
            }
        };
        thread::Builder::new().name(name.into()).spawn(run).map(drop)
    }
}

impl KernelCache {
    /// The senders, and the threads to be.
    pub(crate) fn new(nodes: &Arc<Mutex<Nodes>>) -> (KernelCache, KernelCacheThreads) {
        let ((tell_data, data), (tell_names, names)) = (orders(), orders());
        let notifier = Arc::<OnceLock<_>>::default();
        let cache = KernelCache {
            data: tell_data,
            names: tell_names,
            notifier: Arc::clone(&notifier),
            nodes: Arc::clone(nodes),
        };
        (cache, KernelCacheThreads { data, names, notifier, nodes: Arc::clone(nodes) })
    }

    /// The way to tell, once there is a session.
    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// Has pages and attributes of `ino` dropped.
    pub(crate) fn forget_data(&self, ino: Ino) {
        self.data.give(ino);
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
        self.data.done().await;
    }

    /// Has `name` in `parent` looked up again before it is used. What it means stays until then,
    /// which kernels before Linux 6.2 do not know: see [`KernelCache::keeps_places`].
    pub(crate) fn forget_name(&self, parent: Ino, name: Name) {
        self.names.give((parent, name));
    }

    /// True if who works in a directory can still tell where it is when its name is to be looked up
    /// again. Else getcwd(2) fails there.
    pub(crate) fn keeps_places(&self) -> bool {
        let keeps = |kernel: &Notifier| kernel.agreement().has(init::HAS_EXPIRE_ONLY);
        self.notifier.get().is_none_or(keeps)
    }

    /// Returns when all names are looked up again that were to be so far.
    pub(crate) async fn names_forgotten(&self) {
        self.names.done().await;
    }
}

impl KernelCacheThreads {
    /// Starts them; they end with the last `KernelCache`.
    pub(crate) fn start(self, notifier: Notifier) -> std::io::Result<()> {
        let KernelCacheThreads { data, names, notifier: shared, nodes } = self;
        shared.get_or_init(|| notifier.clone());
        let kernel = notifier.clone();
        data.start("forget-data", move |ino| {
            for node in known(&nodes, ino) {
                if let Err(error) = kernel.invalidate(node, 0..u64::MAX) {
                    tracing::debug!("forget #{ino}: {error}");
                }
            }
        })?;
        names.start("forget-names", move |(parent, name): (Ino, Name)| {
            let bytes = OsStr::from_bytes(name.as_bytes());
            if let Err(error) = notifier.expire_name(parent.0, bytes) {
                tracing::debug!("forget {name} in #{parent}: {error}");
            }
        })
    }
}

/// All that the kernel may know `ino` by.
fn known(nodes: &Mutex<Nodes>, ino: Ino) -> Vec<u64> {
    lock(nodes).all(ino).collect()
}
