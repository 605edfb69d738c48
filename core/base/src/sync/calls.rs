//! Calls of this process's threads, which may read objects that other threads take out of use. Each thread counts the begin and the end of its calls. The
//! counts show when such objects can be freed ([`Reclaimer`](crate::reclaimer::Reclaimer)), and when the thread's next check of its peers' lives is due ([`LivenessTimer`]).

use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::exit;
use crate::liveness_timer::{LivenessTimer, MOST, now};
use crate::reclaimer::EpochReader;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, fence, statics, thread_local};

/// A call in progress. A thread has at most one.
pub struct Call {
    /// Not Send: the count belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl Call {
    /// Begins a call. Calls `look` if a check of peers is due.
    #[inline(always)]
    pub fn begin(look: impl FnOnce()) -> Self {
        match Call::begin_fast() {
            Some(call) => call,
            None => Call::begun(look),
        }
    }

    /// Begins a call. `None`: [`begun`](Call::begun) must do further work first.
    #[inline(always)]
    pub fn begin_fast() -> Option<Self> {
        let mut begun = true;
        count::Place::of_this_thread().step(|| begun = false);
        // A drop would end the call.
        begun.then(|| Call {
            _thread: PhantomData,
        })
    }

    /// Begins the call after [`begin_fast`](Call::begin_fast) returned `None`. Calls `look` if a check of peers is due.
    #[cold]
    pub fn begun(look: impl FnOnce()) -> Self {
        let count = count::Place::of_this_thread();
        if begin_count(count) {
            look();
        }
        Call {
            _thread: PhantomData,
        }
    }

    /// Whether this thread is in a call, as in a signal handler. A wait for all calls would wait for that call.
    #[cold]
    pub fn is_under_way() -> bool {
        // SAFETY:
        // - the count of this thread.
        let count = unsafe { (*count::Place::of_this_thread().word()).load(Ordering::Relaxed) };
        count.is_multiple_of(2)
    }

    /// Whether [`begin_fast`](Call::begin_fast) returned `None` in this thread, and [`begun`](Call::begun) is due.
    #[cold]
    pub fn is_left() -> bool {
        // SAFETY:
        // - the count of this thread.
        unsafe { (*count::Place::of_this_thread().word()).load(Ordering::Relaxed) == 0 }
    }
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        // A new address computation costs less than a stored address.
        count::Place::of_this_thread().end();
    }
}

/// Counts by one instruction. Other thread-local memory costs a shared library a call, which takes twice as long as this module.
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod count {
    use std::arch::{asm, global_asm};
    use std::sync::atomic::AtomicU64;

    global_asm!(
        ".pushsection .tdata.unipgas_calls, \"awT\", @progbits",
        ".p2align 3",
        ".globl unipgas_calls",
        ".hidden unipgas_calls",
        ".type unipgas_calls, @tls_object",
        ".size unipgas_calls, 8",
        "unipgas_calls:",
        ".quad -1",
        ".popsection",
    );

    /// The count of a thread, by its distance from the thread pointer. Even: a call is in progress. Odd: none. A begin that makes it 0 must do further work.
    #[derive(Clone, Copy)]
    pub struct Place(isize);

    impl Place {
        #[inline(always)]
        pub(crate) fn of_this_thread() -> Self {
            let distance: isize;
            // SAFETY:
            // - the dynamic linker writes this word before code of this library runs.
            unsafe {
                asm!(
                    "mov {}, qword ptr [rip + unipgas_calls@GOTTPOFF]",
                    out(reg) distance,
                    options(nostack, nomem, preserves_flags)
                );
            }
            Place(distance)
        }

        /// Adds 1.
        #[inline(always)]
        pub fn end(self) {
            // SAFETY:
            // - as for `step`.
            unsafe { asm!("inc qword ptr fs:[{}]", in(reg) self.0, options(nostack)) };
        }

        /// Adds 1. Calls `zero` if the result is 0.
        #[inline(always)]
        pub fn step(self, zero: impl FnOnce()) {
            // SAFETY:
            // - only this thread changes its count.
            // - the compiler takes the assembly for an access to all memory, so reads of the call stay within the call.
            unsafe {
                asm!(
                    "inc qword ptr fs:[{}]",
                    "jz {}",
                    in(reg) self.0,
                    label { zero() },
                    options(nostack)
                );
            }
        }

        /// The count. It is valid as long as the thread exists.
        pub fn word(self) -> *const AtomicU64 {
            let pointer: *const u8;
            // SAFETY:
            // - the word at fs:0 is the thread pointer itself (the ABI of thread-local storage).
            unsafe {
                asm!("mov {}, fs:0", out(reg) pointer, options(nostack, pure, readonly, preserves_flags));
            }
            pointer.wrapping_offset(self.0).cast()
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
mod count {
    use crate::sync::atomic::{AtomicU64, Ordering};
    use crate::sync::fence;

    #[cfg(not(any(all(target_arch = "aarch64", not(miri)), loom)))]
    thread_local!(static COUNT: AtomicU64 = const { AtomicU64::new(u64::MAX) });
    // As on x86-64, for the same reason.
    #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
    std::arch::global_asm!(
        ".pushsection .tdata.unipgas_calls, \"awT\", %progbits",
        ".p2align 3",
        ".globl unipgas_calls",
        ".hidden unipgas_calls",
        ".type unipgas_calls, %tls_object",
        ".size unipgas_calls, 8",
        "unipgas_calls:",
        ".xword -1",
        ".popsection",
    );
    // The model drops the memory of its threads in any order. This memory outlives them.
    #[cfg(loom)]
    loom::thread_local!(static COUNT: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(u64::MAX))));

    /// As on x86-64, by address.
    #[derive(Clone, Copy)]
    pub struct Place(*const AtomicU64);

    impl Place {
        #[inline(always)]
        pub(crate) fn of_this_thread() -> Self {
            #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
            {
                let (pointer, distance): (*const u8, isize);
                // SAFETY:
                // - programs may read the register of the thread pointer. The dynamic linker writes the word before code of this library runs.
                unsafe {
                    std::arch::asm!(
                        "mrs {pointer}, tpidr_el0",
                        "adrp {distance}, :gottprel:unipgas_calls",
                        "ldr {distance}, [{distance}, :gottprel_lo12:unipgas_calls]",
                        pointer = out(reg) pointer,
                        distance = out(reg) distance,
                        options(nostack, pure, readonly, preserves_flags)
                    );
                }
                return Place(pointer.wrapping_offset(distance).cast());
            }
            #[cfg(not(any(all(target_arch = "aarch64", not(miri)), loom)))]
            return Place(COUNT.with(std::ptr::from_ref));
            #[cfg(loom)]
            return Place(COUNT.with(|count| std::ptr::from_ref(*count)));
        }

        #[inline(always)]
        pub fn step(self, zero: impl FnOnce()) {
            // SAFETY:
            // - the count of this thread. It has no destructor, so it is valid until the thread has ended.
            let count = unsafe { &*self.0 };
            let next = count.load(Ordering::Relaxed).wrapping_add(1);
            count.store(next, Ordering::Release);
            fence::light();
            if next == 0 {
                zero();
            }
        }

        #[inline(always)]
        pub fn end(self) {
            self.step(|| {});
        }

        pub fn word(self) -> *const AtomicU64 {
            self.0
        }
    }
}

/// State of a thread that has begun a call.
struct Thread {
    entry: Arc<Entry>,
    liveness: LivenessTimer,
}

/// The count of a thread. `None`: the thread has ended.
struct Entry(Mutex<Option<*const AtomicU64>>);

// SAFETY:
// - threads access the word by atomics, under the lock. Its thread removes it before it ends.
unsafe impl Send for Entry {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Entry {}

thread_local!(static THREAD: Thread = Thread::enter());
statics! {
    static THREADS: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());
    /// A thread without its thread-local memory has made a call. The ends of such calls are unknown.
    static STRAYS: AtomicBool = AtomicBool::new(false);
}

impl Thread {
    fn enter() -> Self {
        let word = count::Place::of_this_thread().word();
        let entry = Arc::new(Entry(Mutex::new(Some(word))));
        THREADS.lock().push(entry.clone());
        Thread {
            entry,
            liveness: LivenessTimer::default(),
        }
    }
}

impl Thread {
    fn leave(&self) {
        THREADS
            .lock()
            .retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        let word = self.entry.0.lock().take();
        if let Some(word) = word {
            // SAFETY:
            // - the word of this thread, which has not ended.
            unsafe { (*word).store(u64::MAX, Ordering::Relaxed) };
        }
    }
}

#[cfg(not(loom))]
impl Drop for Thread {
    fn drop(&mut self) {
        // A signal handler that ends the process may have interrupted this thread while it held the locks.
        if !exit::is_in_signal_handler() {
            self.leave();
        }
    }
}

/// For the model: the end of this thread. The model drops thread-local memory after the statics.
#[cfg(loom)]
pub fn thread_ends() {
    THREAD.with(Thread::leave);
}

impl EpochReader for Entry {
    fn under_way(&self) -> Option<u64> {
        let word = self.0.lock();
        // SAFETY:
        // - the entry has the word only as long as its thread exists, and the lock keeps it there.
        let count = unsafe { (*(*word)?).load(Ordering::Acquire) };
        count.is_multiple_of(2).then_some(count)
    }
}

/// Starts the next count of this thread, after its count has become 0. Returns whether a check of peers is due.
#[cold]
fn begin_count(count: count::Place) -> bool {
    let (due, calls) = THREAD
        .try_with(|thread| thread.liveness.end_count(now()))
        .unwrap_or_else(|_| {
            STRAYS.store(true, Ordering::SeqCst);
            (false, MOST)
        });
    // SAFETY:
    // - the count of this thread.
    let word = unsafe { &*count.word() };
    word.store((i64::from(calls) * -2).cast_unsigned(), Ordering::Release);
    // The stored value differs from the value before the fence of `step`, so it needs a fence.
    fence::light();
    due
}

/// Waits for the end of all calls that other threads have in progress now, while `goes_on`. Objects taken out of use before the call then have no readers.
/// The calling thread must be in no call. False: a call has not ended, the system lacks `membarrier`, or a thread is unknown.
pub fn wait_for_others(mut goes_on: impl FnMut() -> bool) -> bool {
    if !(fence::register() && fence::heavy()) {
        return false;
    }
    let Some(threads) = threads() else {
        return false;
    };
    let reading = threads.iter().map(|thread| (thread, thread.under_way()));
    for (thread, call) in reading.collect::<Vec<_>>() {
        while call.is_some() && thread.under_way() == call {
            if !goes_on() {
                return false;
            }
            crate::sync::yield_now();
        }
    }
    true
}

/// The threads that have begun calls. `None`: some threads are unknown.
pub(crate) fn threads() -> Option<Vec<Arc<dyn EpochReader>>> {
    if STRAYS.load(Ordering::SeqCst) {
        return None;
    }
    let threads = THREADS.lock();
    Some(threads.iter().map(|entry| entry.clone() as _).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_thread_is_seen_in_its_calls_and_only_then() {
        let mine = || {
            let word = count::Place::of_this_thread().word();
            let threads = THREADS.lock();
            let entry = threads.iter().find(|entry| *entry.0.lock() == Some(word));
            entry.map(|entry| entry.under_way())
        };
        std::thread::spawn(move || {
            assert_eq!(mine(), None);
            for _ in 0..if cfg!(miri) { 50 } else { 1000 } {
                let call = Call::begin(|| {});
                let seen = mine().expect("an entry");
                assert!(seen.is_some());
                drop(call);
                assert_eq!(mine(), Some(None));
                let _next = Call::begin(|| {});
                assert_ne!(mine().expect("an entry"), seen);
            }
        })
        .join()
        .expect("no panic");
        assert!(threads().is_some());
    }

    #[test]
    fn looks_come_at_first_and_again() {
        std::thread::spawn(|| {
            let looks = Cell::new(0);
            let count = || drop(Call::begin(|| looks.set(looks.get() + 1)));
            count();
            assert_eq!(looks.get(), 1);
            while looks.get() < 3 {
                count();
            }
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn threads_that_have_ended_are_forgotten() {
        let many = if cfg!(miri) { 10 } else { 100 };
        for _ in 0..many {
            let thread = std::thread::spawn(|| drop(Call::begin(|| {})));
            thread.join().expect("no panic");
        }
        assert!(THREADS.lock().len() < many / 2);
    }
}
