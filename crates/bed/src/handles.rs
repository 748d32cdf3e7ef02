//! Open files and directories, by the numbers that the kernel has for them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The open files and directories of one mount.
#[derive(Debug)]
pub struct Handles<T> {
    open: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles::new()
    }
}

impl<T> Handles<T> {
    /// A table without open files.
    pub fn new() -> Handles<T> {
        Handles { open: RwLock::default(), next: AtomicU64::new(1) }
    }

    /// Enters `what` and returns its number.
    pub fn insert(&self, what: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(what));
        number
    }

    /// The open file of this number; EBADF if there is none.
    pub fn get(&self, handle: u64) -> io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Takes it out of the table; it is closed once its last user lets go.
    pub fn remove(&self, handle: u64) {
        let removed = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        // Closed when the table is free again.
        drop(removed);
    }
}
