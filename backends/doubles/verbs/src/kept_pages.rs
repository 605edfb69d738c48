//! Memory that the child of a fork does not get. After `ibv_fork_init` these are the pages of all registered memory, as on kernels that do not copy such pages
//! for the child.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::fork::{ForkMutex, lock};

static WANTED: AtomicBool = AtomicBool::new(false);
/// Registered ranges, extended to whole pages. They may overlap.
static REGISTERED: ForkMutex<Vec<Range<usize>>> = ForkMutex::new(Vec::new());

/// Ranges that are registered from now on stay with the parent.
pub fn begin() {
    WANTED.store(true, Relaxed);
}

pub fn are_wanted() -> bool {
    WANTED.load(Relaxed)
}

fn pages(base: *mut u8, len: usize) -> Range<usize> {
    let page = rustix::param::page_size();
    base.addr() / page * page..(base.addr() + len).next_multiple_of(page)
}

fn advise(range: &Range<usize>, advice: libc::c_int) {
    let first = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY:
    // - the call neither reads nor writes memory, and refuses unmapped ranges.
    unsafe { libc::madvise(first, range.len(), advice) };
}

pub fn register(base: *mut u8, len: usize) {
    if are_wanted() {
        let range = pages(base, len);
        advise(&range, libc::MADV_DONTFORK);
        lock(&REGISTERED).push(range);
    }
}

pub fn deregister(base: *mut u8, len: usize) {
    let range = pages(base, len);
    let mut registered = lock(&REGISTERED);
    let Some(at) = registered.iter().position(|one| *one == range) else {
        return;
    };
    registered.swap_remove(at);
    let mut others: Vec<_> = registered
        .iter()
        .filter(|one| one.start < range.end && range.start < one.end)
        .cloned()
        .collect();
    others.sort_by_key(|one| one.start);
    let mut free = range.start;
    for one in others {
        if free < one.start {
            advise(&(free..one.start), libc::MADV_DOFORK);
        }
        free = free.max(one.end);
    }
    if free < range.end {
        advise(&(free..range.end), libc::MADV_DOFORK);
    }
}

pub(crate) type PagesGuard = std::sync::MutexGuard<'static, Vec<Range<usize>>>;

/// Takes the lock before a fork, so that no other thread holds it in the child.
pub fn hold() -> PagesGuard {
    lock(&REGISTERED)
}
