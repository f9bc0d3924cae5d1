//! Allocations of this process, counted while asked for.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// What happened between [`count`]'s start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocations {
    /// New or grown allocations.
    pub(crate) calls: u64,
    /// By how much the live bytes grew, less what of older ones was freed.
    pub(crate) bytes: i64,
}

/// Runs `work` and tells what it allocated, on all threads.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    CALLS.store(0, Ordering::Relaxed);
    BYTES.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let result = work();
    COUNTING.store(false, Ordering::Relaxed);
    let allocations =
        Allocations { calls: CALLS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) };
    (result, allocations)
}

/// The system's allocator with an eye on it; costs one load while nobody counts.
#[derive(Debug)]
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn note(&self, calls: u64, bytes: i64) {
        if COUNTING.load(Ordering::Relaxed) {
            CALLS.fetch_add(calls, Ordering::Relaxed);
            BYTES.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call goes on to `System` with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.note(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.note(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.note(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.note(1, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_counts_and_what_is_freed_does_not() {
        let (kept, allocations) = count(|| {
            drop(Vec::<u8>::with_capacity(500));
            Vec::<u8>::with_capacity(1 << 20)
        });

        // Other tests may allocate meanwhile, little beside a megabyte.
        assert!(2 <= allocations.calls);
        assert!((1 << 19..1 << 21).contains(&allocations.bytes));
        drop(kept);
    }
}
