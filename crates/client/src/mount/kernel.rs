//! Telling the kernel to forget: on a thread of its own, because the kernel may make the
//! teller wait for a request that only we can answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use fuser::{INodeNo, Notifier};
use segue_core::types::{Ino, Name};

/// What the kernel should forget.
#[derive(Debug)]
enum Forget {
    Data(Ino),
    Name(Ino, Name),
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct KernelCache {
    tell: mpsc::Sender<Forget>,
    notifier: Arc<OnceLock<Notifier>>,
}

/// The other end, until the session is there.
#[derive(Debug)]
pub(crate) struct KernelCacheThread {
    told: mpsc::Receiver<Forget>,
    notifier: Arc<OnceLock<Notifier>>,
}

impl KernelCache {
    /// A sender and the thread to be.
    pub(crate) fn new() -> (KernelCache, KernelCacheThread) {
        let (tell, told) = mpsc::channel();
        let notifier = Arc::new(OnceLock::new());
        let cache = KernelCache { tell, notifier: Arc::clone(&notifier) };
        (cache, KernelCacheThread { told, notifier })
    }

    /// Drops attributes of `ino`, pages not: done when this returns. The kernel takes no lock
    /// for it that a request could hold.
    pub(crate) fn forget_attr_now(&self, ino: Ino) {
        const NO_PAGES: i64 = -1;
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(INodeNo(ino.0), NO_PAGES, 0)
        {
            tracing::debug!("forget #{ino}: {error}");
        }
    }

    /// Drops pages and attributes of `ino`.
    pub(crate) fn forget_data(&self, ino: Ino) {
        // Without a thread there is no mount, hence no cache.
        self.tell.send(Forget::Data(ino)).ok();
    }

    /// Drops what `name` in `parent` means.
    pub(crate) fn forget_name(&self, parent: Ino, name: Name) {
        self.tell.send(Forget::Name(parent, name)).ok();
    }
}

impl KernelCacheThread {
    /// Starts it; it ends with the last `KernelCache`.
    pub(crate) fn start(self, notifier: Notifier) -> std::io::Result<()> {
        // It is started once.
        self.notifier.set(notifier.clone()).ok();
        let run = move || {
            while let Ok(forget) = self.told.recv() {
                let result = match &forget {
                    Forget::Data(ino) => notifier.inval_inode(INodeNo(ino.0), 0, 0),
                    Forget::Name(parent, name) => {
                        notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name.as_bytes()))
                    }
                };
                if let Err(error) = result {
                    tracing::debug!("{forget:?}: {error}");
                }
            }
        };
        thread::Builder::new().name("kernel-cache".into()).spawn(run).map(drop)
    }
}
