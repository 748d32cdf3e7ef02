//! Requests that wait, and how to end them early.
//!
//! The kernel sends INTERRUPT when a signal reaches a process whose request was read but not
//! answered. Until that request is answered the process cannot even be killed. The interrupt
//! may be read before the request's own thread has made it a waiting one, so early interrupts
//! are remembered for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most remembered interrupts without a waiting request. Some of them are for requests that were
/// answered meanwhile, and are never fetched.
const EARLY_MAX: usize = 1024;

type Wake = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Wake>,
    early: VecDeque<u64>,
}

/// The requests that wait.
#[derive(Clone, Default)]
pub struct Interrupts(Arc<Mutex<Table>>);

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupts").field("waiting", &self.table().waiting.len()).finish()
    }
}

/// A pending request; dropped when it waits no longer.
#[derive(Debug)]
pub struct PendingCall {
    table: Interrupts,
    unique: u64,
}

impl Interrupts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Request `unique` waits from now on. `wake` is called once to end it, at once if its
    /// interrupt came before.
    pub fn wait(&self, unique: u64, wake: impl FnOnce() + Send + 'static) -> PendingCall {
        let mut table = self.table();
        let early = table.early.iter().position(|other| *other == unique);
        match early {
            Some(at) => {
                table.early.remove(at);
                drop(table);
                wake();
            }
            None => {
                table.waiting.insert(unique, Box::new(wake));
            }
        }
        PendingCall { table: self.clone(), unique }
    }

    /// Request `unique` is to end.
    pub fn interrupt(&self, unique: u64) {
        let mut table = self.table();
        let wake = table.waiting.remove(&unique);
        if wake.is_none() {
            table.early.push_back(unique);
            if table.early.len() > EARLY_MAX {
                table.early.pop_front();
            }
        }
        drop(table);
        if let Some(wake) = wake {
            wake();
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.table.table().waiting.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn counter() -> (Arc<AtomicU32>, impl Fn() + Clone + Send + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        (count, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn an_interrupt_wakes_its_request_once_whichever_comes_first() {
        let interrupts = Interrupts::default();
        let (count, wake) = counter();
        let waiting = interrupts.wait(4, wake.clone());
        interrupts.interrupt(6);
        assert_eq!(count.load(Ordering::SeqCst), 0);
        interrupts.interrupt(4);
        interrupts.interrupt(4);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(waiting);
        let early = interrupts.wait(6, wake);
        assert_eq!(count.load(Ordering::SeqCst), 2);
        drop(early);
    }

    #[test]
    fn what_no_longer_waits_is_not_woken() {
        let interrupts = Interrupts::default();
        let (count, wake) = counter();
        drop(interrupts.wait(4, wake));
        interrupts.interrupt(4);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn interrupts_of_answered_requests_do_not_pile_up() {
        let interrupts = Interrupts::default();
        for unique in 0..3 * EARLY_MAX as u64 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.table().early.len(), EARLY_MAX);
    }
}
