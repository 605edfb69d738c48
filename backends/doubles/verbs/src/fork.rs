//! A child process uses none of its parent's NICs. It closes its copies of their sockets; otherwise peers would not notice the end of the parent.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{config, counters, kept_pages};

/// A lock that is held across a fork. A `parking_lot` lock is unsuitable: unlocking may pass it to a waiting thread, which the child does not have.
#[allow(clippy::disallowed_types)]
pub(crate) type ForkMutex<T> = std::sync::Mutex<T>;
type Guard<T> = std::sync::MutexGuard<'static, T>;

pub fn lock<T>(mutex: &'static ForkMutex<T>) -> Guard<T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of forks from the process that loaded the library to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static SOCKETS: ForkMutex<BTreeSet<c_int>> = ForkMutex::new(BTreeSet::new());

pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Registers a socket that child processes close.
pub fn opened(socket: c_int) {
    lock(&SOCKETS).insert(socket);
}

pub fn closed(socket: c_int) {
    lock(&SOCKETS).remove(&socket);
}

thread_local! {
    static HELD: Cell<Option<(Guard<BTreeSet<c_int>>, kept_pages::PagesGuard)>> = const { Cell::new(None) };
}

extern "C" fn before() {
    HELD.set(Some((lock(&SOCKETS), kept_pages::hold())));
}

extern "C" fn in_parent() {
    drop(HELD.take());
}

extern "C" fn in_child() {
    in_parent();
    GENERATION.fetch_add(1, Relaxed);
    counters::forget();
    for socket in std::mem::take(&mut *lock(&SOCKETS)) {
        // SAFETY:
        // - the owner is a NIC of the parent, which this process does not use.
        unsafe { libc::close(socket) };
    }
}

/// Installs the fork handlers, once.
pub fn watch() {
    static WATCHED: parking_lot::Once = parking_lot::Once::new();
    WATCHED.call_once(|| {
        // SAFETY:
        // - the functions stay loaded: the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    watch();
    if config::config().is_some_and(|config| !config.copies_at_fork) {
        kept_pages::begin();
    }
    0
}
