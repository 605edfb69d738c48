//! Start and synchronization of the threads of a process (GASPI_Threads.h of release 1.6). GASPI 17.1 does not have it.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::environment::process;
use crate::process::deadline;
use crate::status::{Result, Status, from_engine};

pub use unipgas_gaspi_sys::gaspi_thread_function as Function;

/// The threads that synchronize.
struct Pool {
    /// Number of the pool among all pools of this process.
    serial: u64,
    size: u32,
    registered: AtomicU32,
    /// Whether [`term`] has ended it.
    is_over: AtomicBool,
    gathering: Mutex<Gathering>,
    gathered: Condvar,
    meeting: Mutex<Meeting>,
}

/// A synchronization of the threads of this process.
struct Gathering {
    /// Number of earlier ones.
    number: u64,
    /// Number of threads that have arrived.
    come: u32,
}

/// A synchronization of all threads of all processes.
struct Meeting {
    /// Number of earlier meetings.
    number: u64,
    /// Number of threads of this process that have arrived.
    come: u32,
    /// Whether an arrived thread is in the barrier of the processes.
    entered: bool,
    /// Result of the previous meeting.
    last: Result<()>,
}

static POOL: Mutex<Option<Arc<Pool>>> = Mutex::new(None);
static POOLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The pool of this thread and its number in it, if it is registered.
    static NUMBER: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
    /// The pool and the meeting at which this thread has arrived. It is set until a call returns the result of the meeting.
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

/// Sets the number of threads that will register. Errors: [`Status::Error`]: 0 threads, or a second call.
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
        is_over: AtomicBool::new(false),
        gathering: Mutex::new(Gathering { number: 0, come: 0 }),
        gathered: Condvar::new(),
        meeting: Mutex::new(Meeting {
            number: 0,
            come: 0,
            entered: false,
            last: Ok(()),
        }),
    }));
    Ok(())
}

/// Ends the pool. Threads that wait in [`sync`] or [`sync_all`] return with an error.
pub fn term() {
    let Some(pool) = POOL.lock().take() else {
        return;
    };
    pool.is_over.store(true, Ordering::Release);
    // With the lock: no thread is between its look and its sleep.
    drop(pool.gathering.lock());
    pool.gathered.notify_all();
    if let Ok(process) = process() {
        process.world().engine().ring();
    }
}

/// Gives the calling thread the next number. Errors: [`Status::Error`]: all threads are registered, or [`init`] has not been called.
pub fn register() -> Result<u32> {
    let pool = pool()?;
    let number = pool.registered.fetch_add(1, Ordering::Relaxed);
    if number >= pool.size {
        pool.registered.fetch_sub(1, Ordering::Relaxed);
        return Err(refuse(
            "more threads than the number in gaspi_threads_init_user",
        ));
    }
    NUMBER.set(Some((pool.serial, number)));
    Ok(number)
}

/// The number of the calling thread. Errors: [`Status::Error`]: the thread is not registered.
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

/// The number of threads of [`init`]. Errors: [`Status::Error`]: [`init`] has not been called.
pub fn total() -> Result<u32> {
    pool().map(|pool| pool.size)
}

/// Number of processors on which this thread may run. Errors: [`Status::Error`].
pub fn cores() -> Result<u32> {
    let allowed = rustix::thread::sched_getaffinity(None);
    allowed
        .map(|allowed| allowed.count())
        .map_err(|_| Status::Error)
}

/// Runs the function in a new, detached thread. Errors: [`Status::Error`]: [`init`] has not been called, or the system refuses.
///
/// # Safety
/// The function may be called with `arg`, from any thread.
pub unsafe fn run(function: Function, arg: *mut c_void) -> Result<()> {
    pool()?;
    // Without the standard library: the function may call pthread_exit, which must not unwind Rust frames.
    // SAFETY:
    // - the attributes are initialised before their use, and destroyed once.
    // - contract of this function: any thread may call `function` with `arg`.
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

/// Waits until all threads of the pool have called it. Errors: [`Status::Error`]: the thread is not registered, or [`term`] has ended the pool.
pub fn sync() -> Result<()> {
    let (pool, _) = registered()?;
    let mut gathering = pool.gathering.lock();
    let number = gathering.number;
    gathering.come += 1;
    if gathering.come == pool.size {
        *gathering = Gathering {
            number: number + 1,
            come: 0,
        };
        pool.gathered.notify_all();
    }
    while gathering.number == number {
        if pool.is_over.load(Ordering::Acquire) {
            return Err(Status::Error);
        }
        pool.gathered.wait(&mut gathering);
    }
    Ok(())
}

/// Synchronizes all threads of all processes of the group. After all threads of a process have arrived, one of them enters the barrier of the
/// group. Errors: as [`GaspiProcess::barrier`](crate::GaspiProcess::barrier), for all threads; [`Status::Error`]: [`term`] has ended the pool;
/// [`Status::Timeout`]: the thread has arrived, and calls again.
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
            // After a timeout, another thread may resume the barrier. Otherwise all threads return.
            engine.ring();
            met
        }
    };
    if met != Err(Status::Timeout) {
        COME.set(None);
    }
    met
}

/// The next step of an arrived thread.
enum Next {
    Over(Result<()>),
    Enter,
}

impl Pool {
    /// The calling thread arrives at the next meeting. Returns the number of the meeting.
    fn comes(&self) -> u64 {
        let mut meeting = self.meeting.lock();
        meeting.come += 1;
        COME.set(Some((self.serial, meeting.number)));
        meeting.number
    }

    fn next(&self, number: u64) -> Option<Next> {
        let mut meeting = self.meeting.lock();
        if meeting.number != number {
            // The next meeting cannot end before this thread has arrived at it, so `last` belongs to meeting `number`.
            return Some(Next::Over(meeting.last));
        }
        if self.is_over.load(Ordering::Acquire) {
            return Some(Next::Over(Err(Status::Error)));
        }
        let enters = meeting.come == self.size && !meeting.entered;
        meeting.entered |= enters;
        enters.then_some(Next::Enter)
    }

    /// The thread in the barrier has left it.
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
