//! Telling the kernel to forget: on a thread of its own, because the kernel may make the
//! teller wait for a request that only we can answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
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
}

/// The other end, until the session is there.
#[derive(Debug)]
pub(crate) struct KernelCacheThread {
    told: mpsc::Receiver<Forget>,
}

impl KernelCache {
    /// A sender and the thread to be.
    pub(crate) fn new() -> (KernelCache, KernelCacheThread) {
        let (tell, told) = mpsc::channel();
        (KernelCache { tell }, KernelCacheThread { told })
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
