//! Open files and directories, by the numbers that the kernel has for them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug)]
pub(crate) struct Handles<T> {
    open: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles { open: RwLock::default(), next: AtomicU64::new(1) }
    }

    pub(crate) fn insert(&self, what: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(what));
        number
    }

    pub(crate) fn get(&self, handle: u64) -> io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    pub(crate) fn remove(&self, handle: u64) {
        let removed = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        // Closed when the table is free again.
        drop(removed);
    }
}
