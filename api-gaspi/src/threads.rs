//! The threads of a process, as release 1.6 helps to start and to join them (GASPI_Threads.h): no part of GASPI 17.1.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use parking_lot::Mutex;

use crate::environment::process;
use crate::status::{Result, Status};

/// What a thread runs.
pub type Function = extern "C" fn(*mut c_void) -> *mut c_void;

/// The threads that meet.
struct Pool {
    /// Which one it is of this process's.
    serial: u64,
    size: u32,
    registered: AtomicU32,
    barrier: Barrier,
    /// What has come of the meeting of all processes.
    met: Mutex<Result<()>>,
}

static POOL: Mutex<Option<Arc<Pool>>> = Mutex::new(None);
static POOLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread, if it is registered, and the pool in which it is.
    static NUMBER: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
}

fn pool() -> Result<Arc<Pool>> {
    let pool = POOL.lock().clone();
    pool.ok_or_else(|| refuse("gaspi_threads_init_user has not been called"))
}

#[cold]
fn refuse(why: &str) -> Status {
    unipgas_core::tell(&format!("gaspi_threads: {why}"));
    Status::Error
}

/// So many threads will register and meet. Errors: [`Status::Error`]: none, or they have been told before.
pub fn init(size: u32) -> Result<()> {
    if size == 0 {
        return Err(refuse("no threads"));
    }
    let mut pool = POOL.lock();
    if pool.is_some() {
        return Err(refuse("initialised twice"));
    }
    *pool = Some(Arc::new(Pool {
        serial: POOLS.fetch_add(1, Ordering::Relaxed),
        size,
        registered: AtomicU32::new(0),
        barrier: Barrier::new(size as usize),
        met: Mutex::new(Ok(())),
    }));
    Ok(())
}

/// The threads have met for the last time.
pub fn term() {
    *POOL.lock() = None;
}

/// Gives the calling thread its number, the next one. Errors: [`Status::Error`]: all have one, or nobody has said how many there are.
pub fn register() -> Result<u32> {
    let pool = pool()?;
    let number = pool.registered.fetch_add(1, Ordering::Relaxed);
    if number >= pool.size {
        pool.registered.fetch_sub(1, Ordering::Relaxed);
        return Err(refuse("more threads than gaspi_threads_init_user was told"));
    }
    NUMBER.set(Some((pool.serial, number)));
    Ok(number)
}

/// The number of the calling thread. Errors: [`Status::Error`]: it has none.
pub fn number() -> Result<u32> {
    registered().map(|(_, number)| number)
}

fn registered() -> Result<(Arc<Pool>, u32)> {
    let pool = pool()?;
    match NUMBER.get() {
        Some((serial, number)) if serial == pool.serial => Ok((pool, number)),
        _ => Err(refuse("this thread has not called gaspi_threads_register")),
    }
}

/// How many there are. Errors: [`Status::Error`].
pub fn total() -> Result<u32> {
    pool().map(|pool| pool.size)
}

/// Processors that this thread may run on. Errors: [`Status::Error`].
pub fn cores() -> Result<u32> {
    let allowed = rustix::thread::sched_getaffinity(None);
    allowed
        .map(|allowed| allowed.count())
        .map_err(|_| Status::Error)
}

/// Runs the function in a thread of its own. Errors: [`Status::Error`].
///
/// # Safety
/// The function may be called with `arg`, from any thread.
pub unsafe fn run(function: Function, arg: *mut c_void) -> Result<()> {
    pool()?;
    // Not by the standard library: the function may end by pthread_exit, which must find no frames of Rust.
    // SAFETY:
    // - the attributes are initialised, and destroyed once; the function by the caller's word.
    let status = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut thread = std::mem::zeroed();
        let status = libc::pthread_create(&mut thread, &attributes, function, arg);
        libc::pthread_attr_destroy(&mut attributes);
        status
    };
    match status {
        0 => Ok(()),
        _ => Err(refuse("the system starts no further thread")),
    }
}

/// Waits until all registered threads have come. Errors: [`Status::Error`].
pub fn sync() -> Result<()> {
    registered()?.0.barrier.wait();
    Ok(())
}

/// All threads of all processes of the group meet: one thread of each process in its barrier. Errors: those of
/// [`Process::barrier`](crate::Process::barrier), for all threads; after [`Status::Timeout`] all call it again.
pub fn sync_all(group: u8, timeout: u64) -> Result<()> {
    let (pool, _) = registered()?;
    if pool.barrier.wait().is_leader() {
        let met = process().and_then(|process| process.barrier(group, timeout));
        *pool.met.lock() = met;
    }
    pool.barrier.wait();
    *pool.met.lock()
}
