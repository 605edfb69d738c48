//! How much memory a thread has at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what each thread takes and gives back.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Bytes that this thread has taken and not given back; fewer than none where another thread has taken them.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // Not in the last moments of a thread.
    let now = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        now.get()
    });
    if let Ok(now) = now {
        let _ = MOST.try_with(|most| most.set(most.get().max(now)));
    }
}

// SAFETY:
// - all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY:
        // - contract of `GlobalAlloc::alloc`: the caller keeps it, and the arguments are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY:
        // - contract of `GlobalAlloc::alloc_zeroed`: the caller keeps it, and the arguments are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY:
        // - contract of `GlobalAlloc::dealloc`: the caller keeps it, and the arguments are passed on.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count(len as isize - layout.size() as isize);
        // SAFETY:
        // - contract of `GlobalAlloc::realloc`: the caller keeps it, and the arguments are passed on.
        unsafe { System.realloc(block, layout, len) }
    }
}

/// What this thread has now: for [`most_since`].
pub fn begin() -> isize {
    let now = NOW.get();
    MOST.set(now);
    now
}

/// The most that it has had at a time, beyond what it had then.
pub fn most_since(begin: isize) -> usize {
    usize::try_from(MOST.get() - begin).unwrap_or(0)
}
