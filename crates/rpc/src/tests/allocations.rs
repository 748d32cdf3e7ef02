//! How much memory a piece of work takes, by asking the allocator.

#![allow(unsafe_code, reason = "an allocator is")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has taken and not given back, and the most since it was asked last.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: usize, is_taken: bool) {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
    // A thread that ends has none any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = if is_taken { now.saturating_add(bytes) } else { now.saturating_sub(bytes) };
        held.set((now, most.max(now)));
    });
}

// SAFETY: every call is the system's; counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), true);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), true);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // It may be moved, and be there twice for a moment.
        count(size, true);
        count(layout.size(), false);
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), false);
        unsafe { System.dealloc(at, layout) }
    }
}

/// The result of `work`, and the most bytes that it held at any moment.
pub(crate) fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get().0;
    HELD.set((before, before));
    let done = work();
    let most = HELD.get().1.saturating_sub(before);
    (done, usize::try_from(most).unwrap_or(0))
}

#[test]
fn what_is_held_at_once_is_counted() {
    let (_, bytes) = most(|| {
        drop(vec![1_u8; 5_000]);
        drop(vec![0_u8; 9_000]);
        vec![1_u8; 100]
    });
    assert!((9_000..9_500).contains(&bytes), "{bytes}");
}
