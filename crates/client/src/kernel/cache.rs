//! Telling the kernel to forget: on threads of their own, because the kernel may make the
//! teller wait for a request that only we can answer.
//!
//! Attributes alone make nobody wait, and are forgotten on the spot.
//!
//! Names and data have a thread each. Having a name looked up again takes the directory's lock,
//! which a request may hold that waits here until data are forgotten.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use segue_core::host::action::TakenBack;
use segue_core::nouns::{Dentry, Ino, Name};
use segue_fuse::Notifier;
use segue_fuse::abi::init;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::asked_again::AskedAgain;
use super::{TAKEN_IN, Told};
use crate::host::SharedHost;

/// Names are looked up again one by one if that does not take longer.
const PATIENCE: Duration = Duration::from_millis(500);
/// The same if it is all of them.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(2);
/// A process to which an answer was given has usually run so long after it.
const RUN: Duration = Duration::from_millis(10);
/// The attributes of more inodes are forgotten on a thread of their own.
const FEW: usize = 256;
/// So often it is looked whether the kernel has taken in an answer.
const LOOK: Duration = Duration::from_millis(1);
/// From this version of its protocol on the kernel can have all names looked up again (Linux 6.17).
const EPOCHS: u32 = 44;

/// The way to the threads.
pub(crate) struct KernelCache {
    data: Orders<Ino>,
    names: Arc<Orders<(Ino, Name)>>,
    notifier: Arc<OnceLock<Notifier>>,
    host: Arc<SharedHost>,
    /// Read while an answer is made and given.
    answering: RwLock<()>,
    pub(crate) told: Told,
    asked_again: Arc<AskedAgain>,
    /// So often it has asked for something.
    pub(crate) requests: AtomicU64,
}

/// The other ends, until the session is there.
pub(crate) struct KernelCacheThreads {
    data: Worker<Ino>,
    names: Worker<(Ino, Name)>,
    notifier: Arc<OnceLock<Notifier>>,
    host: Arc<SharedHost>,
    asked_again: Arc<AskedAgain>,
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
    pub(crate) fn new(host: &Arc<SharedHost>) -> (KernelCache, KernelCacheThreads) {
        let ((tell_data, data), (tell_names, names)) = (orders(), orders());
        let notifier = Arc::<OnceLock<_>>::default();
        let cache = KernelCache {
            data: tell_data,
            names: Arc::new(tell_names),
            notifier: Arc::clone(&notifier),
            host: Arc::clone(host),
            answering: RwLock::new(()),
            told: Told::default(),
            asked_again: Arc::default(),
            requests: AtomicU64::new(0),
        };
        let (host, asked_again) = (Arc::clone(host), Arc::clone(&cache.asked_again));
        (cache, KernelCacheThreads { data, names, notifier, host, asked_again })
    }

    /// The way to tell, once there is a session.
    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// Has pages and attributes of `ino` dropped; the attributes at once, because a page that the
    /// kernel asked for before does not tell it where the file ends.
    pub(crate) fn forget_data(&self, ino: Ino) {
        self.forget_attributes(ino);
        self.data.give(ino);
    }

    /// The kernel asks for a page of `ino`, which is `size` long, until this is dropped.
    pub(crate) fn asks(&self, ino: Ino, size: u64) -> PageAsked {
        let (believed, is_again) = self.asked_again.begins(ino, size, Instant::now());
        PageAsked { ino, believed, is_again, asked_again: Arc::clone(&self.asked_again) }
    }

    /// Has the kernel forget the listing of `directory`, if it may have that. Nobody waits: what is
    /// in a listing waits for no request.
    fn forget_listing(&self, directory: Ino) {
        let may_have = self.host.lock().drop_listing(directory);
        if may_have {
            self.forget_pages(directory);
        }
    }

    /// Has the kernel forget the pages of `directory`, which are its listing.
    fn forget_pages(&self, directory: Ino) {
        if let Some(notifier) = self.notifier.get() {
            forget_data(&self.host, notifier, directory);
        }
    }

    /// The same before this returns, while other tasks go on.
    pub(crate) async fn forget_listing_now(&self, directory: Ino) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        let host = Arc::clone(&self.host);
        let forgetting =
            tokio::task::spawn_blocking(move || forget_data(&host, &notifier, directory));
        if let Err(error) = forgetting.await {
            tracing::error!("the kernel may use an old listing for a while: {error}");
        }
    }

    /// Has the attributes of `ino` dropped before this returns.
    pub(crate) fn forget_attributes(&self, ino: Ino) {
        self.forget_attributes_of(known(&self.host, ino));
    }

    /// The same of the kernel's inodes. Returns those of which it was told in answers that it has
    /// not taken in yet: their attributes would be known afterwards.
    fn forget_attributes_of(&self, nodes: Vec<u64>) -> Vec<u64> {
        // Without a mount there is no cache.
        let Some(notifier) = self.notifier.get() else { return Vec::new() };
        forget_attributes(&self.host, notifier, nodes)
    }

    /// The same of many, while other tasks go on.
    async fn forget_attributes_of_many(&self, nodes: Vec<u64>) -> Vec<u64> {
        let Some(notifier) = self.notifier.get().filter(|_| nodes.len() > FEW).cloned() else {
            return self.forget_attributes_of(nodes);
        };
        let host = Arc::clone(&self.host);
        let forgetting =
            tokio::task::spawn_blocking(move || forget_attributes(&host, &notifier, nodes));
        forgetting.await.unwrap_or_else(|error| {
            tracing::error!("the kernel may use old attributes for a while: {error}");
            Vec::new()
        })
    }

    /// Has the kernel forget the attributes of these of its inodes as soon as it has taken in the
    /// answers that tell of them: once the processes that asked have run.
    async fn forget_untaken(&self, mut nodes: Vec<u64>) {
        let end = Instant::now() + PATIENCE;
        while !nodes.is_empty() {
            if Instant::now() > end {
                tracing::warn!("the kernel has not taken in {} answers", nodes.len());
                nodes.iter().for_each(|node| self.host.lock().untold(*node));
                return self.forget_all_names();
            }
            sleep(LOOK).await;
            nodes = self.forget_attributes_of(nodes);
        }
    }

    /// Returns when the kernel has forgotten all data that it was to forget so far.
    pub(crate) async fn forgotten(&self) {
        self.data.done().await;
    }

    /// Has `name` in `parent` looked up again before it is used. What it means stays until then,
    /// which kernels before Linux 6.2 do not know: see [`KernelCache::keeps_places`].
    pub(crate) fn forget_name(&self, parent: Ino, name: Name) {
        self.forget_listing(parent);
        let mut late = self.told.names_within(TAKEN_IN, |ino| ino == parent);
        late.retain(|(_, told)| *told == name);
        self.names.give((parent, name));
        self.forget_later(late);
    }

    /// Held while an answer is made and given, so that [`KernelCache::answers_given`] waits for it.
    pub(crate) fn answering(&self) -> RwLockReadGuard<'_, ()> {
        self.answering.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the kernel has all answers that were made before. What is forgotten then is not
    /// told again by one of them.
    fn answers_given(&self) {
        drop(self.answering.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// True if all that the kernel was told can be taken back at any time, so that it may be told
    /// for as long as the server's promises hold.
    pub(crate) fn can_be_told_for_long(&self) -> bool {
        let has_epochs = |kernel: &Notifier| kernel.agreement().minor >= EPOCHS;
        self.keeps_places() && self.notifier.get().is_some_and(has_epochs)
    }

    /// Has all names looked up again before they are used, also those that nobody here knows any
    /// more. They are dropped one after the other as they are used.
    pub(super) fn forget_all_names(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.increment_epoch() {
            tracing::debug!("forget all names: {error}");
        }
    }

    /// Has the kernel forget attributes and names. This host uses its own copies of them no more.
    /// Returns when the kernel uses none of them.
    pub(crate) async fn take_back(&self, taken: TakenBack) {
        let (began, everything) = (Instant::now(), taken.everything);
        let TakenBack { inodes, listings, mut names, places, all_names, .. } = taken;
        if self.keeps_places() {
            names.extend(places);
        }
        // Brief: answers are made without waiting.
        self.answers_given();
        let concerned: BTreeSet<Ino> = inodes.into_iter().collect();
        listings.into_iter().for_each(|directory| self.forget_pages(directory));
        let (nodes, patience): (Vec<u64>, _) = match everything {
            true => (self.host.lock().nodes().known().collect(), PATIENCE_WITH_ALL),
            false => (concerned.iter().flat_map(|ino| known(&self.host, *ino)).collect(), PATIENCE),
        };
        let count = [nodes.len(), names.len()];
        names.into_iter().for_each(|Dentry { parent, name }| self.names.give((parent, name)));
        let untaken = self.forget_attributes_of_many(nodes).await;
        // A directory is locked while somebody waits for an answer about it, and the connection
        // that the answer is to come over may wait for this.
        let left = patience.saturating_sub(began.elapsed());
        let mut is_done = timeout(left.max(LOOK), self.names.done()).await.is_ok();
        is_done &= self.forget_late_names(|ino| everything || concerned.contains(&ino)).await;
        self.forget_untaken(untaken).await;
        if all_names || !is_done {
            self.forget_all_names();
        }
        if !is_done && !self.can_be_told_for_long() {
            self.names.done().await;
        }
        if everything {
            let (took, [inodes, names]) = (began.elapsed(), count);
            tracing::debug!(
                inodes,
                names,
                ?took,
                is_done,
                "all that the kernel knew is taken back"
            );
        }
    }

    /// Has names forgotten once more when the kernel has surely taken in what it was told of them.
    fn forget_later(&self, late: Vec<(Ino, Name)>) {
        // Without a runtime the mount is ending.
        if let (false, Ok(runtime)) = (late.is_empty(), Handle::try_current()) {
            let names = Arc::clone(&self.names);
            runtime.spawn(async move {
                sleep(TAKEN_IN).await;
                late.into_iter().for_each(|name| names.give(name));
            });
        }
    }

    /// Has names forgotten again that the kernel may have taken in after they were forgotten: it
    /// was told of them just before. False if that takes too long.
    async fn forget_late_names(&self, concerned: impl Fn(Ino) -> bool) -> bool {
        let late = self.told.names_within(TAKEN_IN, &concerned);
        if late.is_empty() {
            return true;
        }
        let latest = self.told.names_within(RUN, &concerned);
        self.forget_later(late);
        if latest.is_empty() {
            return true;
        }
        sleep(RUN).await;
        latest.into_iter().for_each(|name| self.names.give(name));
        timeout(PATIENCE, self.names.done()).await.is_ok()
    }

    /// True if who works in a directory can still tell where it is when its name is to be looked up
    /// again. Else getcwd(2) fails there.
    pub(crate) fn keeps_places(&self) -> bool {
        let keeps = |kernel: &Notifier| kernel.agreement().has(init::HAS_EXPIRE_ONLY);
        self.notifier.get().is_none_or(keeps)
    }
}

/// The kernel asks for a page of this file.
pub(crate) struct PageAsked {
    ino: Ino,
    /// The kernel may believe that the file is so long.
    pub(crate) believed: u64,
    is_again: bool,
    asked_again: Arc<AskedAgain>,
}

impl PageAsked {
    /// The kernel is to ask again: the file is only `size` long.
    pub(crate) fn refuse(mut self, size: u64) {
        self.is_again = false;
        self.asked_again.refused(self.ino, size, Instant::now());
    }
}

impl Drop for PageAsked {
    fn drop(&mut self) {
        if self.is_again {
            self.asked_again.ends(self.ino);
        }
    }
}

impl KernelCacheThreads {
    /// Starts them; they end with the last `KernelCache`.
    pub(crate) fn start(self, notifier: Notifier) -> std::io::Result<()> {
        let KernelCacheThreads { data, names, notifier: shared, host, asked_again } = self;
        shared.get_or_init(|| notifier.clone());
        let (kernel, of_data) = (notifier.clone(), Arc::clone(&host));
        data.start("forget-data", move |ino| {
            while asked_again.is_awaited(ino, Instant::now()) {
                thread::sleep(LOOK);
            }
            forget_data(&of_data, &kernel, ino);
        })?;
        names.start("forget-names", move |(parent, name): (Ino, Name)| {
            let bytes = OsStr::from_bytes(name.as_bytes());
            for node in known(&host, parent) {
                if let Err(error) = notifier.expire_name(node, bytes) {
                    tracing::debug!("forget {name} in #{parent}: {error}");
                }
            }
        })
    }
}

fn forget_data(host: &SharedHost, notifier: &Notifier, ino: Ino) {
    for node in known(host, ino) {
        if let Err(error) = notifier.invalidate(node, 0..u64::MAX) {
            tracing::debug!("forget #{ino}: {error}");
        }
    }
}

fn forget_attributes(host: &SharedHost, notifier: &Notifier, mut nodes: Vec<u64>) -> Vec<u64> {
    nodes.retain(|node| match notifier.invalidate_attributes(*node) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => host.lock().nodes().is_told(*node),
        Err(error) => {
            tracing::debug!("forget the attributes of node {node}: {error}");
            false
        }
    });
    nodes
}

/// All that the kernel may know `ino` by.
fn known(host: &SharedHost, ino: Ino) -> Vec<u64> {
    host.lock().nodes().all(ino).collect()
}
