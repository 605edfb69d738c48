//! The threads of a process, as release 1.6 helps to start and to join them (GASPI_Threads.h): no part of GASPI 17.1.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use parking_lot::Mutex;

use crate::environment::process;
use crate::process::deadline;
use crate::status::{Result, Status, from_engine};

pub use unipgas_gaspi_sys::gaspi_thread_function as Function;

/// The threads that meet.
struct Pool {
    /// Which one it is of this process's.
    serial: u64,
    size: u32,
    registered: AtomicU32,
    barrier: Barrier,
    meeting: Mutex<Meeting>,
}

/// Of all threads of all processes.
struct Meeting {
    /// How many there have been before.
    number: u64,
    /// Threads of this process that have come.
    come: u32,
    /// One of them is in the barrier of the processes.
    entered: bool,
    /// What has come of the one before.
    last: Result<()>,
}

static POOL: Mutex<Option<Arc<Pool>>> = Mutex::new(None);
static POOLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread, if it is registered, and the pool in which it is.
    static NUMBER: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
    /// The pool's meeting that this thread has come to, and whose end it has not been told.
    static COME: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
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
        meeting: Mutex::new(Meeting {
            number: 0,
            come: 0,
            entered: false,
            last: Ok(()),
        }),
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

/// All threads of all processes of the group meet: when all of a process have come, one of them enters the group's barrier. Errors: those of
/// [`Process::barrier`](crate::Process::barrier), for all threads; [`Status::Timeout`]: the thread calls again, and has come already.
pub fn sync_all(group: u8, timeout: u64) -> Result<()> {
    let (pool, _) = registered()?;
    let process = process()?;
    let (engine, deadline) = (process.world().engine(), deadline(timeout));
    let mine = match COME.get() {
        Some((serial, number)) if serial == pool.serial => number,
        _ => pool.comes(),
    };
    let met = engine.wait_for(deadline, &mut || Ok(()), || pool.next(mine));
    let met = match met.map_err(from_engine)? {
        Next::Over(met) => met,
        Next::Enter => {
            let met = process.barrier_until(group, deadline);
            pool.left(met);
            // Another thread has the time to go on with it, or nobody has to any more.
            engine.ring();
            met
        }
    };
    if met != Err(Status::Timeout) {
        COME.set(None);
    }
    met
}

/// What a thread does that has come.
enum Next {
    Over(Result<()>),
    Enter,
}

impl Pool {
    /// Another thread comes to the next meeting, whose number this gives.
    fn comes(&self) -> u64 {
        let mut meeting = self.meeting.lock();
        meeting.come += 1;
        COME.set(Some((self.serial, meeting.number)));
        meeting.number
    }

    fn next(&self, number: u64) -> Option<Next> {
        let mut meeting = self.meeting.lock();
        if meeting.number != number {
            // The next one cannot be over before this thread has come to it.
            return Some(Next::Over(meeting.last));
        }
        let enters = meeting.come == self.size && !meeting.entered;
        meeting.entered |= enters;
        enters.then_some(Next::Enter)
    }

    /// The thread that has entered the barrier has left it.
    fn left(&self, met: Result<()>) {
        let mut meeting = self.meeting.lock();
        meeting.entered = false;
        if met != Err(Status::Timeout) {
            *meeting = Meeting {
                number: meeting.number + 1,
                come: 0,
                entered: false,
                last: met,
            };
        }
    }
}
