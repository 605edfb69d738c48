//! The swap of memory. Writers are held back at its start. They continue on the other memory at its end.
//!
//! The thread that swaps must not write to the range, because it would wait for itself. So all code here runs on a separate stack. It does not allocate or
//! log, and writes only to that stack and to the [`Board`].

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MremapFlags, MsyncFlags, ProtFlags};

use super::uffd::Uffd;
use super::valgrind;

const STACK: usize = 64 * 1024;

const GO: u32 = 1;
const GO_HOME: u32 = 2;

/// Communication of the swapping thread and its helpers. It lies outside every range.
#[repr(C)]
pub(super) struct Board {
    ready: AtomicU32,
    go: AtomicU32,
    done: AtomicU32,
    failed: AtomicI32,
}

/// The stack that swaps run on, with the board in its last page.
pub(super) struct Stage {
    base: usize,
    len: usize,
    page: usize,
}

impl Stage {
    pub(super) fn new() -> Result<Stage, Errno> {
        let page = rustix::param::page_size();
        let len = STACK + 2 * page;
        // SAFETY:
        // - a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let stage = Stage {
            base: base as usize,
            len,
            page,
        };
        valgrind::register_stack(stage.base + page, stage.top());
        // SAFETY:
        // - the first page of the new mapping. No pointer leads into it.
        unsafe { mm::mprotect(base, page, mm::MprotectFlags::empty()) }?;
        Ok(stage)
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + self.len
    }

    pub(super) fn top(&self) -> usize {
        self.base + self.len - self.page
    }

    pub(super) fn board(&self) -> &Board {
        // SAFETY:
        // - the last page of the mapping: zeroed at first, large enough and aligned.
        // - all its words are atomics, and it lives as long as the stage.
        unsafe { &*(self.top() as *const Board) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY:
        // - this object owns the mapping. The borrow of the board has ended.
        unsafe { mm::munmap(self.base as *mut _, self.len) }.ok();
    }
}

impl Board {
    pub(super) fn reset(&self) {
        for word in [&self.ready, &self.go, &self.done] {
            word.store(0, Ordering::Relaxed);
        }
        self.failed.store(0, Ordering::Release);
    }

    /// Lets the helpers end without work.
    pub(super) fn send_home(&self) {
        self.go.store(GO_HOME, Ordering::Release);
    }

    pub(super) fn helpers_ready(&self) -> u32 {
        self.ready.load(Ordering::Acquire)
    }
}

/// The result for the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Private memory becomes the file's.
    IntoFile,
    /// The file's memory becomes private.
    OutOfFile,
    /// Private memory of one kind becomes private anonymous memory.
    IntoAnonymous,
}

/// One swap. The window reads it and never writes to it.
pub(super) struct Swap<'a> {
    pub(super) direction: Direction,
    /// `None` if no other thread runs.
    pub(super) uffd: Option<&'a Uffd>,
    pub(super) range: Range<usize>,
    /// The mapping that takes the range's place, as long as the range.
    pub(super) fresh: usize,
    /// The file and the offset in it. `None` for [`Direction::IntoAnonymous`].
    pub(super) file: Option<(BorrowedFd<'a>, u64)>,
    pub(super) board: &'a Board,
    /// Number of ready helpers. The window copies the first of `helpers + 1` parts.
    pub(super) helpers: u32,
}

/// The failure of a swap. The range is unchanged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) errno: Errno,
}

const CALLS: [&str; 4] = [
    "",
    "write-protect the pages",
    "copy the pages",
    "map the pages",
];
const PROTECT: i64 = 1;
const COPY: i64 = 2;
const MAP: i64 = 3;

fn failed(call: i64, errno: Errno) -> i64 {
    (call << 32) | i64::from(errno.raw_os_error())
}

/// Runs the swap on `stage`.
///
/// # Safety
/// - all signals of this thread are blocked
/// - `swap.range` is mapped, and of the kind that the direction names
/// - the range is registered with `swap.uffd` for writes; without `swap.uffd`, this is the process's only thread
/// - `swap.fresh` is a mapping of `swap.range.len()` bytes without other users; after a success it is gone
/// - neither `stage` nor the thread's errno or control block lies in the range
pub(super) unsafe fn run(stage: &Stage, swap: &Swap<'_>) -> Result<(), Failure> {
    // SAFETY:
    // - no other thread uses the stage's stack: its owner holds the process-wide lock.
    // - `window` takes one pointer, which outlives the call, and returns an i64
    outcome(unsafe { call_on(stage.top(), window, ptr::from_ref(swap).cast()) })
}

/// The result of a value of [`run_here`].
pub(super) fn outcome(answer: i64) -> Result<(), Failure> {
    if answer == 0 {
        return Ok(());
    }
    Err(Failure {
        call: CALLS[(answer >> 32) as usize & 3],
        errno: Errno::from_raw_os_error(answer as u32 as i32),
    })
}

/// Runs the swap on the caller's stack. [`outcome`] translates the number.
///
/// # Safety
/// - as for [`run`], and the caller's stack is not in the range
/// - the process may have other threads if they are stopped
pub(super) unsafe fn run_here(swap: &Swap<'_>) -> i64 {
    window(ptr::from_ref(swap).cast())
}

extern "C" fn window(swap: *const Swap<'static>) -> i64 {
    // SAFETY:
    // - `run` passes a reference that outlives the call
    let swap = unsafe { &*swap };
    if let Some(uffd) = swap.uffd
        && let Err(errno) = uffd.protect(&swap.range)
    {
        swap.board.send_home();
        uffd.unprotect(&swap.range).ok();
        return failed(PROTECT, errno);
    }
    swap.board.go.store(GO, Ordering::Release);
    let mut outcome = copy_part(swap, 0);
    while swap.board.done.load(Ordering::Acquire) < swap.helpers {
        rustix::thread::sched_yield();
    }
    if outcome.is_ok() {
        outcome = match swap.board.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            raw => Err(Errno::from_raw_os_error(raw)),
        };
    }
    let answer = match outcome {
        Err(errno) => failed(COPY, errno),
        Ok(()) => match exchange(swap) {
            Err(errno) => failed(MAP, errno),
            Ok(()) => 0,
        },
    };
    if let Some(uffd) = swap.uffd {
        if answer != 0 {
            uffd.unprotect(&swap.range).ok();
        }
        uffd.wake(&swap.range).ok();
    }
    answer
}

/// A helper's part of a swap. A separate thread calls it while the window is prepared.
pub(super) fn help(swap: &Swap<'_>, part: u32) {
    swap.board.ready.fetch_add(1, Ordering::AcqRel);
    let word = loop {
        match swap.board.go.load(Ordering::Acquire) {
            0 => rustix::thread::sched_yield(),
            word => break word,
        }
    };
    if word == GO
        && let Err(errno) = copy_part(swap, part)
    {
        swap.board
            .failed
            .store(errno.raw_os_error(), Ordering::Release);
    }
    swap.board.done.fetch_add(1, Ordering::AcqRel);
}

fn copy_part(swap: &Swap<'_>, part: u32) -> Result<(), Errno> {
    let len = swap.range.end.wrapping_sub(swap.range.start);
    let unit = rustix::param::page_size();
    let share = (len / unit / (swap.helpers as usize + 1)) * unit;
    let from = share.wrapping_mul(part as usize);
    let to = if part == swap.helpers {
        len
    } else {
        from.wrapping_add(share)
    };
    let mut at = from;
    if let Some(uffd) = swap.uffd {
        // SAFETY:
        // - a part of the fresh mapping, which only this swap uses, and of the range, which is mapped and readable.
        let filled = unsafe { uffd.fill(swap.fresh + at, swap.range.start + at, to - at) };
        match filled {
            Ok(()) => return Ok(()),
            // The file already has a page here, so only the rest is written.
            Err((done, Errno::EXIST)) if swap.file.is_some() => at += done,
            Err((_, errno)) => return Err(errno),
        }
    }
    match (swap.direction, swap.file) {
        (Direction::IntoFile, Some((file, offset))) => {
            while at < to {
                // SAFETY:
                // - the range is mapped and readable, and no thread writes to it during the window.
                let rest = unsafe {
                    std::slice::from_raw_parts((swap.range.start + at) as *const u8, to - at)
                };
                match rustix::io::pwrite(file, rest, offset + at as u64) {
                    Ok(0) => return Err(Errno::NOSPC),
                    Ok(done) => at += done,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(())
        }
        _ => {
            // SAFETY:
            // - both mappings have `to` bytes. The fresh one is writable and has no other user.
            unsafe {
                copy_unseen(
                    (swap.range.start + at) as *const u8,
                    (swap.fresh + at) as *mut u8,
                    to - at,
                );
            }
            Ok(())
        }
    }
}

/// Copies like `memcpy`. Debugging tools replace `memcpy`, and would report the bytes between the program's objects on the pages.
///
/// # Safety
/// - the contract of [`ptr::copy_nonoverlapping`]
unsafe fn copy_unseen(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - contract of this call. The direction flag is clear by the C convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in (0..len).step_by(size_of::<u64>()) {
        // Volatile: otherwise the compiler makes it a call of memcpy. Pages are whole words.
        //
        // SAFETY:
        // - contract of this call.
        unsafe {
            let word = from.add(at).cast::<u64>().read_volatile();
            to.add(at).cast::<u64>().write_volatile(word);
        }
    }
}

fn exchange(swap: &Swap<'_>) -> Result<(), Errno> {
    let len = swap.range.end - swap.range.start;
    let place = swap.range.start as *mut core::ffi::c_void;
    // SAFETY:
    // - only this swap uses the fresh mapping, which has the content of the range.
    // - no thread sees a difference: writers sleep, and readers read the same bytes before and after.
    let moved =
        unsafe { mm::mremap_fixed(swap.fresh as *mut _, len, len, MremapFlags::MAYMOVE, place) };
    let Err(errno) = moved else { return Ok(()) };
    // SAFETY:
    // - changes no memory: it checks that the whole range is still mapped.
    if unsafe { mm::msync(place, len, MsyncFlags::ASYNC) }.is_ok() {
        return Err(errno);
    }
    // The kernel failed after it removed the old mapping. The file has its content.
    if let Some((file, offset)) = swap.file {
        // SAFETY:
        // - the range belongs to this swap. In both directions the file has its content.
        let again = unsafe {
            mm::mmap(
                place,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                offset,
            )
        };
        if again.is_ok() {
            // SAFETY:
            // - the mapping just made
            unsafe { mm::madvise(place, len, Advice::LinuxDontFork) }.ok();
            return if swap.direction == Direction::IntoFile {
                Ok(())
            } else {
                Err(errno)
            };
        }
    }
    let last_words = b"unipgas: the kernel lost a page range while exchanging it (out of memory); ending the process\n";
    loop {
        // SAFETY:
        // - reads a constant
        unsafe { libc::syscall(libc::SYS_write, 2, last_words.as_ptr(), last_words.len()) };
        // SAFETY:
        // - ends the process; takes no pointers
        unsafe { libc::syscall(libc::SYS_exit_group, 134) };
    }
}

/// Calls `body(argument)` with the stack pointer at `top`.
///
/// # Safety
/// - `top` is the end of an unused stack, aligned to 16 bytes
/// - `body` does not unwind
unsafe fn call_on(
    top: usize,
    body: extern "C" fn(*const Swap<'static>) -> i64,
    argument: *const Swap<'static>,
) -> i64 {
    let answer: i64;
    // SAFETY:
    // - r12 (x20 on aarch64) survives the call by the C convention, and restores the old stack pointer.
    // - all other registers that a C function may change are declared as changed.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {body}",
            "mov rsp, r12",
            top = in(reg) top,
            body = in(reg) body,
            inlateout("rdi") argument => _,
            lateout("rax") answer,
            out("r12") _,
            clobber_abi("C"),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {body}",
            "mov sp, x20",
            top = in(reg) top,
            body = in(reg) body,
            inlateout("x0") argument => answer,
            out("x20") _,
            clobber_abi("C"),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = top;
        answer = body(argument);
    }
    answer
}

/// Whether this architecture has a [`call_on`].
pub(super) const BUILT_FOR_THIS_MACHINE: bool =
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
