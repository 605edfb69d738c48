//! Memory that a child of a fork does not get: from `ibv_fork_init` on the pages of all that is registered, as where the kernel does not copy them for the
//! child.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::fork::{ForkMutex, lock};

static WANTED: AtomicBool = AtomicBool::new(false);
/// What is registered, a page's address at both ends; some of it more than once.
static REGISTERED: ForkMutex<Vec<Range<usize>>> = ForkMutex::new(Vec::new());

/// The parent keeps what it registers from now on.
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
    // - nothing is read or written; what is not mapped any more is refused.
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

/// Before a fork, so that its child does not find it locked.
pub fn hold() -> PagesGuard {
    lock(&REGISTERED)
}
