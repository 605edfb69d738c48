//! A swap while all other threads of the process are stopped, as leak checkers stop them. Used if a userfaultfd is not permitted.
//!
//! A short-lived task stops each thread by `ptrace`. The task shares the memory, but is no thread of the process. An ordinary user may trace processes of
//! the same user. No signal is sent and no handler runs, so threads that block all signals stop too. A stopped thread is in no system call, so no write
//! to the range is in progress. The task does the swap, then resumes the threads.
//!
//! The kernel restarts interrupted system calls, as after SIGSTOP and SIGCONT (signal(7)). Exceptions return EINTR: `epoll_wait`, `semop`, `msgrcv`,
//! `sigtimedwait`, and reads from sockets with a timeout.
//!
//! Stopped threads may hold any lock, so the task does not allocate and makes only system calls.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};

use super::valgrind::on_valgrind;
use super::window::{self, Failure, Stage, Swap};

/// Maximum number of threads that can be stopped.
const MOST: usize = 4096;
/// Seconds. A thread that waits for a disk or for the child of a vfork cannot stop. After this time all threads continue. A runnable thread stops when it gets
/// a core.
const PATIENCE: i64 = 1;

const EVENT_STOP: i32 = 128;

/// The reason why the threads could not be stopped. The range is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// An error number of the system.
    Errno(i32),
    /// A thread did not stop in time.
    Slow,
    /// More than [`MOST`] threads.
    Many,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::Errno(errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "its threads cannot be stopped by ptrace ({error}; a debugger, a filter of system calls, Yama's ptrace_scope of 2 \
                     or 3, or a program that is not dumpable)"
                )
            }
            Denied::Slow => write!(f, "a thread does not stop"),
            Denied::Many => write!(f, "it has more than {MOST} threads"),
        }
    }
}

const DENIED: i64 = 1 << 60;
const SLOW: i64 = DENIED + (1 << 32);
const MANY: i64 = DENIED + (2 << 32);

/// Input and answer of the task.
struct Order<'a> {
    swap: &'a Swap<'a>,
    /// /proc/self/task.
    tasks: OwnedFd,
    process: i32,
    caller: i32,
    go: AtomicU32,
    answer: AtomicI64,
    threads: Threads,
}

/// Stopped threads, and the signals that were about to be delivered to them.
struct Threads {
    count: AtomicI32,
    ids: [AtomicI32; MOST],
    signals: [AtomicI32; MOST],
}

/// Runs the swap while all other threads are stopped.
///
/// # Safety
/// - as for [`window::run`], except that other threads may run
/// - `swap.uffd` is `None`, and the swap has no helpers
pub(super) unsafe fn run(stage: &Stage, swap: &Swap<'_>) -> Result<Result<(), Failure>, Denied> {
    if !AVAILABLE || on_valgrind() {
        return Err(Denied::Errno(libc::ENOSYS));
    }
    let tasks = unipgas_core::descriptor::open(
        "/proc/self/task",
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .map_err(|e| Denied::Errno(e.raw_os_error()))?;
    let none = || [const { AtomicI32::new(0) }; MOST];
    let order = Box::new(Order {
        swap,
        tasks,
        process: std::process::id() as i32,
        caller: rustix::thread::gettid().as_raw_pid(),
        go: AtomicU32::new(0),
        answer: AtomicI64::new(SLOW),
        threads: Threads {
            count: AtomicI32::new(0),
            ids: none(),
            signals: none(),
        },
    });
    stage.board().reset();
    // SAFETY:
    // - only this task uses the stage's stack. `order` outlives the task, because this call waits for its end.
    let task = unsafe { start(stage.top(), tracer, (&raw const *order).cast()) };
    if task < 0 {
        return Err(Denied::Errno(-task as i32));
    }
    let allowed = Allowed::by_yama(task as i32);
    order.go.store(1, Ordering::Release);
    loop {
        // Without a status: the kernel must not write to memory of this thread during the swap.
        //
        // SAFETY:
        // - waits for the new task. All pointers are null.
        let ended = unsafe { raw(libc::SYS_wait4, [task, 0, i64::from(libc::__WALL), 0]) };
        if ended != -i64::from(libc::EINTR) {
            break;
        }
    }
    drop(allowed);
    match order.answer.load(Ordering::Acquire) {
        SLOW => Err(Denied::Slow),
        MANY => Err(Denied::Many),
        answer if answer >= DENIED => Err(Denied::Errno((answer - DENIED) as i32)),
        answer => Ok(window::outcome(answer)),
    }
}

extern "C" fn tracer(order: *const Order<'static>) -> i64 {
    // SAFETY:
    // - `run` keeps it until this task has ended.
    let order = unsafe { &*order };
    // If the process is killed, this task must end too. Otherwise the traced process stays a zombie. The task would
    // also wait forever in a mremap if the thread that reads its event is dead.
    //
    // SAFETY:
    // - two numbers
    unsafe {
        let [option, signal] = [libc::PR_SET_PDEATHSIG, libc::SIGKILL].map(i64::from);
        raw(libc::SYS_prctl, [option, signal, 0, 0]);
    }
    while order.go.load(Ordering::Acquire) == 0 {
        // SAFETY:
        // - no preconditions
        let parent = unsafe {
            raw(libc::SYS_sched_yield, [0; 4]);
            raw(libc::SYS_getppid, [0; 4])
        };
        if parent != i64::from(order.process) {
            return 0;
        }
    }
    let answer = match order.stop_all() {
        // SAFETY:
        // - all other threads are stopped or wait for this task. A thread that listens writes only to its own memory.
        Ok(()) => unsafe { window::run_here(order.swap) },
        Err(denied) => denied,
    };
    order.let_go();
    order.answer.store(answer, Ordering::Release);
    0
}

impl Order<'_> {
    /// Stops threads until a complete scan of the list finds no running thread. Stopped threads cannot start another one.
    fn stop_all(&self) -> Result<(), i64> {
        let mut entries = [0u64; 512];
        loop {
            let mut fresh = false;
            let tasks = i64::from(self.tasks.as_raw_fd());
            // SAFETY:
            // - the descriptor belongs to this order.
            unsafe { raw(libc::SYS_lseek, [tasks, 0, 0, 0]) };
            loop {
                let room = size_of_val(&entries) as i64;
                let place = entries.as_mut_ptr() as i64;
                // SAFETY:
                // - writes at most `room` bytes to `entries`
                let read = unsafe { raw(libc::SYS_getdents64, [tasks, place, room, 0]) };
                if read <= 0 {
                    if read < 0 {
                        return Err(DENIED - read);
                    }
                    break;
                }
                // SAFETY:
                // - as many bytes were written
                let bytes = unsafe {
                    std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), read as usize)
                };
                let mut at = 0;
                while at + 19 < bytes.len() {
                    let len = usize::from(u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]));
                    let tid = bytes[at + 19..]
                        .iter()
                        .take_while(|byte| byte.is_ascii_digit())
                        .fold(0i32, |id, digit| id * 10 + i32::from(digit - b'0'));
                    if tid > 0
                        && tid != self.caller
                        && !self.threads.knows(tid)
                        && !self.listens(tid)
                    {
                        fresh |= self.stop(tid)?;
                    }
                    at += len.max(1);
                }
            }
            if !fresh {
                return Ok(());
            }
        }
    }

    /// Stops one thread. Returns false if it has ended.
    fn stop(&self, tid: i32) -> Result<bool, i64> {
        match trace(libc::PTRACE_SEIZE, tid, 0) {
            0 => {}
            gone if gone == -i64::from(libc::ESRCH) => return Ok(false),
            error
                if error == -i64::from(libc::EPERM)
                    && matches!(self.state(tid), None | Some(b'Z' | b'X')) =>
            {
                // It has ended but is still listed, as a main thread that other threads outlive.
                return Ok(false);
            }
            error => return Err(DENIED - error),
        }
        let nth = self.threads.count.load(Ordering::Relaxed);
        if nth as usize == MOST {
            trace(libc::PTRACE_DETACH, tid, 0);
            return Err(MANY);
        }
        self.threads.ids[nth as usize].store(tid, Ordering::Relaxed);
        self.threads.count.store(nth + 1, Ordering::Relaxed);
        trace(libc::PTRACE_INTERRUPT, tid, 0);
        let (mut looks, mut moving) = (0u32, now());
        loop {
            let mut status = 0i32;
            let how = i64::from(libc::__WALL | libc::WNOHANG);
            let place = &raw mut status as i64;
            // SAFETY:
            // - writes one int to `status`
            let answer = unsafe { raw(libc::SYS_wait4, [i64::from(tid), place, how, 0]) };
            if answer == i64::from(tid) {
                if !libc::WIFSTOPPED(status) {
                    self.threads.ids[nth as usize].store(-1, Ordering::Relaxed);
                    return Ok(true);
                }
                // It stopped at the delivery of a signal, and gets the signal when it continues.
                if status >> 16 != EVENT_STOP {
                    let signal = libc::WSTOPSIG(status);
                    self.threads.signals[nth as usize].store(signal, Ordering::Relaxed);
                }
                return Ok(true);
            }
            if answer < 0 && answer != -i64::from(libc::EINTR) {
                self.threads.ids[nth as usize].store(-1, Ordering::Relaxed);
                return Ok(true);
            }
            looks += 1;
            if looks.is_multiple_of(64) {
                if self.state(tid) != Some(b'D') {
                    moving = now();
                } else if now() - moving > PATIENCE {
                    return Err(SLOW);
                }
            }
            // SAFETY:
            // - no preconditions
            unsafe { raw(libc::SYS_sched_yield, [0; 4]) };
        }
    }

    /// Whether mremap of watched memory waits for this thread.
    fn listens(&self, tid: i32) -> bool {
        let mut text = [0u8; 96];
        let name = self.stat(tid, &mut text);
        name.is_some_and(|(name, _)| name == unipgas_core::LISTENER.as_bytes())
    }

    /// The letter of a thread's state. `None` if the thread is gone.
    fn state(&self, tid: i32) -> Option<u8> {
        let mut text = [0u8; 96];
        self.stat(tid, &mut text).map(|(_, state)| state)
    }

    /// Name and state letter of a thread (proc_pid_stat(5)). `None` if the thread is gone.
    fn stat<'a>(&self, tid: i32, text: &'a mut [u8; 96]) -> Option<(&'a [u8], u8)> {
        let mut path = [0u8; 48];
        let mut len = 0;
        for part in [self.process, tid] {
            let name: &[u8] = if len == 0 { b"/proc/" } else { b"/task/" };
            path[len..len + 6].copy_from_slice(name);
            len += 6;
            let mut digits = [0u8; 10];
            let mut count = 0;
            let mut rest = part;
            while rest > 0 {
                digits[count] = b'0' + (rest % 10) as u8;
                (count, rest) = (count + 1, rest / 10);
            }
            for digit in digits[..count].iter().rev() {
                path[len] = *digit;
                len += 1;
            }
        }
        path[len..len + 5].copy_from_slice(b"/stat");
        // SAFETY:
        // - the path ends with a zero. `text` has that many bytes.
        let read = unsafe {
            let open = [i64::from(libc::AT_FDCWD), path.as_ptr() as i64, 0, 0];
            let fd = raw(libc::SYS_openat, open);
            if fd < 0 {
                return None;
            }
            let read = [fd, text.as_mut_ptr() as i64, text.len() as i64, 0];
            let read = raw(libc::SYS_read, read);
            raw(libc::SYS_close, [fd, 0, 0, 0]);
            read
        };
        // The name, in brackets, comes before the state.
        let text = &text[..usize::try_from(read).unwrap_or(0)];
        let begin = text.iter().position(|byte| *byte == b'(')? + 1;
        let end = text.iter().rposition(|byte| *byte == b')')?;
        Some((text.get(begin..end)?, *text.get(end + 2)?))
    }

    fn let_go(&self) {
        for nth in 0..self.threads.count.load(Ordering::Relaxed) as usize {
            let tid = self.threads.ids[nth].load(Ordering::Relaxed);
            if tid > 0 {
                let signal = self.threads.signals[nth].load(Ordering::Relaxed);
                trace(libc::PTRACE_DETACH, tid, signal.into());
            }
        }
    }
}

impl Threads {
    fn knows(&self, tid: i32) -> bool {
        let count = self.count.load(Ordering::Relaxed) as usize;
        self.ids[..count]
            .iter()
            .any(|known| known.load(Ordering::Relaxed) == tid)
    }
}

fn trace(request: libc::c_uint, tid: i32, data: i64) -> i64 {
    // SAFETY:
    // - none of the requests made here reads or writes memory
    unsafe {
        raw(
            libc::SYS_ptrace,
            [i64::from(request), i64::from(tid), 0, data],
        )
    }
}

/// Seconds of the monotonic clock.
fn now() -> i64 {
    let mut time = [0i64; 2];
    let place = time.as_mut_ptr() as i64;
    let clock = i64::from(libc::CLOCK_MONOTONIC);
    // SAFETY:
    // - writes one timespec, which is two words
    unsafe { raw(libc::SYS_clock_gettime, [clock, place, 0, 0]) };
    time[0]
}

/// The process may be traced by every other one. Yama keeps only one permission, so this one must not be revoked.
pub(crate) static ANYBODY_MAY_TRACE: AtomicU32 = AtomicU32::new(0);

fn anybody_may_trace() -> bool {
    ANYBODY_MAY_TRACE.load(Ordering::Relaxed) == std::process::id()
}

/// Whether Yama requires permissions (ptrace_scope 1). Without one, a child may not trace its parent.
pub(crate) fn yama_asks() -> bool {
    unipgas_core::descriptor::read_text("/proc/sys/kernel/yama/ptrace_scope")
        .is_ok_and(|scope| scope.trim() == "1")
}

/// The permission for the task to trace this process. A drop revokes it.
struct Allowed(bool);

impl Allowed {
    fn by_yama(task: i32) -> Allowed {
        let needed = !anybody_may_trace() && yama_asks();
        if needed {
            // SAFETY:
            // - a number
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(task as u32)) };
        }
        Allowed(needed)
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if self.0 && !anybody_may_trace() {
            // SAFETY:
            // - a number
            unsafe { libc::prctl(libc::PR_SET_PTRACER, 0) };
        }
    }
}

const AVAILABLE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The task is not a thread of the process, so it may trace. `wait` for children does not see it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const FLAGS: i64 =
    (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_UNTRACED) as i64;

/// Starts a task that calls `body(argument)` on the stack that ends at `top`. Returns its id, or the negative error.
///
/// # Safety
/// - `top` is the end of an unused stack, aligned to 16 bytes, and stays unused until the task has ended
/// - `body` does not unwind, and `argument` is what it expects
unsafe fn start(
    top: usize,
    body: extern "C" fn(*const Order<'static>) -> i64,
    argument: *const Order<'static>,
) -> i64 {
    let answer: i64;
    // SAFETY:
    // - the kernel changes rax, rcx and r11 (x0 on aarch64) alone; the new task never leaves this block
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => answer,
            in("rdi") FLAGS,
            in("rsi") top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            in("r12") body,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x21",
            "blr x20",
            "mov x0, xzr",
            "mov x8, {exit}",
            "svc #0",
            "brk #1",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("x0") FLAGS => answer,
            in("x1") top,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
            in("x8") libc::SYS_clone,
            in("x20") body,
            in("x21") argument,
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (top, body, argument);
        answer = -i64::from(libc::ENOSYS);
    }
    answer
}

/// A raw system call. The function of the C library would write the thread's errno.
///
/// # Safety
/// - the contract of the system call
unsafe fn raw(number: libc::c_long, arguments: [i64; 4]) -> i64 {
    let answer: i64;
    // SAFETY:
    // - contract of this call. The kernel changes rax, rcx and r11 (x0 on aarch64), and memory; all are declared.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc #0",
            inlateout("x0") arguments[0] => answer,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x8") number,
            options(nostack),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (number, arguments);
        answer = -i64::from(libc::ENOSYS);
    }
    answer
}
