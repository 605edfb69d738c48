//! Adoption in place: private pages of this process become pages of a memfd, and back, while other threads use them.
//!
//! A thread of the program may write a neighbouring word of the same page at any moment. A copy followed by a remapping would lose such stores. So a
//! userfaultfd write-protects the pages first. Readers continue. Writers, in user code or in a system call, sleep in the kernel. The content is copied to a
//! new mapping, which replaces the pages in one system call. Then the writers wake and repeat their stores. No store is lost or done twice. A process of one
//! thread needs no userfaultfd. If userfaultfd is not permitted, the swap stops the other threads.
//!
//! Adopted pages are not inherited by `fork` (`MADV_DONTFORK`; uTofu user's guide §6.1.4.1).
//!
//! A swap cannot see the following. The program must not have it in progress on the pages:
//! - transfers for which the kernel has pinned the pages beforehand: reads with `O_DIRECT` or through registered
//!   buffers of io_uring into them, and `process_vm_writev` of a peer
//! - a thread that sleeps in a process-shared futex in them (process-private ones are fine); a priority-inheritance
//!   mutex that is contended during the swap
//! - the end of a thread that holds a robust mutex in them
//!
//! `mlock`, NUMA policy and `madvise` settings of the private pages are not carried over.

mod halt;
mod kinds;
mod threads;
mod uffd;
mod valgrind;
mod window;

pub(crate) use halt::{ANYBODY_MAY_TRACE, yama_asks};
pub(crate) use valgrind::on_valgrind;

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use kinds::Kind;
use threads::SignalsBlocked;
use uffd::Uffd;
use unipgas_core::user_memory::maps::{FileNames, Maps};
use unipgas_core::userfaultfd::FaultKinds;
use window::{Direction, Failure, Stage, Swap};

/// Minimum size of a copy that threads share, in bytes.
const SHARED_COPY: usize = 32 << 20;
const MOST_HELPERS: usize = 3;

/// Why a range stays as it is. The caller uses the copying path then.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Address, length or file offset is not a multiple of the page size, or the length is zero.
    Unaligned,
    /// Some page of the range is not mapped.
    Unmapped,
    /// Some page is not readable and writable.
    ReadOnly,
    /// Some page is executable.
    Executable,
    /// Some page is a huge page of hugetlbfs.
    Huge,
    /// Some page is shared already.
    AlreadyShared,
    /// Some page belongs to a device.
    Device,
    /// Some page is a file's initialised data, and the process has several threads: see [`settle_static_data`].
    FileBacked,
    /// Some page holds a thread's control block (the C library's own state of a thread).
    ThreadControl,
    /// The range to be released is not that part of that file.
    NotAdopted,
    /// Not permitted, or not possible on this machine; the text has the reason.
    NotPermitted(String),
    /// The operating system refused; the text names the step and its error.
    Os(String),
}

impl Refusal {
    fn os(step: &str, errno: Errno) -> Refusal {
        Refusal::Os(format!("cannot {step}: {errno}"))
    }
}

impl From<unipgas_core::Error> for Refusal {
    fn from(error: unipgas_core::Error) -> Self {
        Refusal::Os(error.to_string())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Unaligned => "address, length and file offset must be whole pages",
            Refusal::Unmapped => "the range is not mapped throughout",
            Refusal::ReadOnly => "the range is not readable and writable throughout",
            Refusal::Executable => "the range is executable",
            Refusal::Huge => "the range has hugetlbfs pages",
            Refusal::AlreadyShared => "the range is shared memory already",
            Refusal::Device => "the range is a device's",
            Refusal::FileBacked => "the range is a file's initialised data, and other threads run",
            Refusal::ThreadControl => "the range holds a thread's control block",
            Refusal::NotAdopted => "the range is not an adopted one of this file and offset",
            Refusal::NotPermitted(why) | Refusal::Os(why) => why,
        })
    }
}

impl std::error::Error for Refusal {}

/// Resources of all swaps of a process. A child of `fork` makes its own.
struct Tools {
    pid: u32,
    maps: Maps,
    stage: Stage,
    uffd: Result<Uffd, String>,
}

// A holder of this lock never waits for a thread that a swap blocks. A swap blocks threads only inside the
// window, and depends on no other thread there.
static TOOLS: Mutex<Option<Tools>> = Mutex::new(None);

type Locked = MutexGuard<'static, Option<Tools>>;

fn lock() -> Locked {
    TOOLS.lock()
}

fn tools(locked: &mut Locked) -> Result<&Tools, Refusal> {
    if !window::BUILT_FOR_THIS_MACHINE {
        return Err(Refusal::NotPermitted(
            "adoption is not built for this processor".into(),
        ));
    }
    let pid = unipgas_core::process::id();
    if locked.as_ref().is_some_and(|tools| tools.pid != pid) {
        **locked = None;
    }
    if locked.is_none() {
        let stage = Stage::new().map_err(|e| Refusal::os("map a stack", e))?;
        **locked = Some(Tools {
            pid,
            maps: Maps::open()?,
            stage,
            uffd: Uffd::open(),
        });
    }
    locked.as_ref().ok_or(Refusal::Unmapped)
}

/// Whether memory of a process with several threads can be adopted. The error names the missing feature.
///
/// # Errors
/// One line with the reason. A process of one thread may still be able to adopt.
pub fn available() -> Result<(), String> {
    let mut locked = lock();
    match tools(&mut locked) {
        Ok(tools) => tools.uffd.as_ref().map(|_| ()).map_err(Clone::clone),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// How memory of a program with several threads is adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdoptionMethod {
    /// Threads that write wait during the swap.
    Userfaultfd,
    /// The swap stops all threads.
    Halt,
}

/// Finds the adoption method of this machine: adopts a page beside another thread.
///
/// # Errors
/// One line with the reason that there is none. Then only programs of one thread adopt memory.
pub fn way() -> Result<AdoptionMethod, String> {
    if available().is_ok() {
        return Ok(AdoptionMethod::Userfaultfd);
    }
    let len = rustix::param::page_size();
    let os = |e: Errno| format!("a file in memory: {e}");
    let file =
        rustix::fs::memfd_create("unipgas-probe", rustix::fs::MemfdFlags::CLOEXEC).map_err(os)?;
    rustix::fs::ftruncate(&file, len as u64).map_err(os)?;
    let page = Fresh::anonymous(len).map_err(|refusal| refusal.to_string())?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                std::thread::park();
            }
        });
        // SAFETY:
        // - a page and a file that only this call uses; the other thread does not access them
        let adopted = unsafe { adopt(file.as_fd(), 0, page.start as *mut u8, len) };
        over.store(true, Ordering::Release);
        other.thread().unpark();
        adopted
            .map(|()| AdoptionMethod::Halt)
            .map_err(|refusal| refusal.to_string())
    })
}

/// Turns `len` bytes of private memory at `first_page` into a shared mapping of `fd` at `file_offset`, in place. Memory and file have the content, and
/// stores of other threads during the call.
///
/// `fd` is a memfd opened for reading and writing, at least `file_offset + len` bytes long. Its content there is
/// overwritten. Address, offset and length are multiples of the page size.
///
/// # Errors
/// A [`Refusal`]; the memory is as before.
///
/// # Safety
/// - no thread unmaps, remaps or shrinks the range or the file during the call
/// - until [`release`], no thread discards the pages (`MADV_DONTNEED`) or uses that part of the file for anything else
/// - none of the transfers that the module's description excludes is in progress
pub unsafe fn adopt(
    fd: BorrowedFd<'_>,
    file_offset: u64,
    first_page: *mut u8,
    len: usize,
) -> Result<(), Refusal> {
    let range = whole_pages(file_offset, first_page, len)?;
    let mut locked = lock();
    let tools = tools(&mut locked)?;
    let mappings = tools.maps.within(&range, FileNames::Read)?;
    let kind = kinds::classify(&mappings, &range)?;
    let guard = guard(tools, kind, &range)?;

    if mappings
        .first()
        .is_some_and(|lowest| lowest.range.start == range.start)
    {
        // This may be the lowest page of a stack that grows on demand. One page more below it keeps a growing
        // mapping below the adopted page.
        threads::touch(range.start.wrapping_sub(size_of::<u64>()));
    }

    // SAFETY:
    // - a new mapping, placed by the kernel
    let fresh = unsafe {
        mm::mmap(
            ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            file_offset,
        )
    }
    .map_err(|e| Refusal::os("map the file", e))?;
    let fresh = Fresh {
        start: fresh as usize,
        len,
        armed: true,
    };
    // SAFETY:
    // - the mapping just made
    unsafe { mm::madvise(fresh.start as *mut _, len, Advice::LinuxDontFork) }
        .map_err(|e| Refusal::os("keep the pages from forked children", e))?;
    // SAFETY:
    // - the range is private memory of a kind that the guard covers, as just found
    unsafe {
        swap(
            tools,
            Direction::IntoFile,
            guard,
            range,
            fresh,
            Some((fd, file_offset)),
        )
    }
}

/// Makes `len` bytes at `first_page`, which [`adopt`] made a mapping of `fd` at `file_offset`, private anonymous memory again. The memory
/// keeps its content, and stores of other threads during the call. The file keeps its last content, and no longer sees changes.
///
/// # Errors
/// A [`Refusal`]; the memory is as before.
///
/// # Safety
/// - no thread unmaps, remaps or shrinks the range or the file during the call
/// - no peer writes to that part of the file any more: its stores would be lost
/// - none of the transfers that the module's description excludes is in progress
pub unsafe fn release(
    fd: BorrowedFd<'_>,
    file_offset: u64,
    first_page: *mut u8,
    len: usize,
) -> Result<(), Refusal> {
    let range = whole_pages(file_offset, first_page, len)?;
    let mut locked = lock();
    let tools = tools(&mut locked)?;
    look_adopted(tools, fd, file_offset, &range)?;
    let guard = guard(tools, Kind::Anonymous, &range)?;
    let fresh = Fresh::anonymous(len)?;
    // SAFETY:
    // - the range is a mapping of this file, as just found
    unsafe {
        swap(
            tools,
            Direction::OutOfFile,
            guard,
            range,
            fresh,
            Some((fd, file_offset)),
        )
    }
}

/// Refuses pages that do not belong to `fd` at `file_offset`: the program may have replaced them.
///
/// # Errors
/// [`Refusal::Unmapped`], [`Refusal::NotAdopted`]; [`Refusal::Os`].
pub fn check_adopted(
    fd: BorrowedFd<'_>,
    file_offset: u64,
    range: &Range<usize>,
) -> Result<(), Refusal> {
    look_adopted(tools(&mut lock())?, fd, file_offset, range)
}

fn look_adopted(
    tools: &Tools,
    fd: BorrowedFd<'_>,
    file_offset: u64,
    range: &Range<usize>,
) -> Result<(), Refusal> {
    let mappings = tools.maps.within(range, FileNames::Unread)?;
    kinds::covers(&mappings, range)?;
    let file = rustix::fs::fstat(fd).map_err(|e| Refusal::os("look at the file", e))?;
    let device = (
        rustix::fs::major(file.st_dev),
        rustix::fs::minor(file.st_dev),
    );
    for mapping in &mappings {
        let there = mapping
            .offset
            .wrapping_sub(mapping.range.start as u64)
            .wrapping_add(range.start as u64);
        if !mapping.is_shared()
            || (mapping.inode, mapping.device) != (file.st_ino, device)
            || there != file_offset
        {
            return Err(Refusal::NotAdopted);
        }
    }
    Ok(())
}

/// Makes the program's initialised data (`.data`, and the first page of `.bss`) ordinary private memory, so that it
/// can be adopted later, while other threads run. Returns the bytes changed; 0 at the second call.
///
/// # Errors
/// [`Refusal::FileBacked`] if other threads run already.
///
/// # Safety
/// - no thread unmaps or remaps the program's data during the call
pub unsafe fn settle_static_data() -> Result<usize, Refusal> {
    let mut locked = lock();
    let tools = tools(&mut locked)?;
    if threads::count() != Some(1) {
        return Err(Refusal::FileBacked);
    }
    let mut settled = 0;
    for mapping in kinds::static_data()? {
        let len = mapping.range.len();
        if threads::control_block_in(&mapping.range, Some(1)) {
            continue;
        }
        let fresh = Fresh::anonymous(len)?;
        // SAFETY:
        // - the range is private data of the program's file, and this is the only thread
        unsafe {
            swap(
                tools,
                Direction::IntoAnonymous,
                Guard::Alone,
                mapping.range,
                fresh,
                None,
            )
        }?;
        settled += len;
    }
    Ok(settled)
}

fn whole_pages(file_offset: u64, first_page: *mut u8, len: usize) -> Result<Range<usize>, Refusal> {
    let page = rustix::param::page_size();
    let start = first_page as usize;
    let aligned = start.is_multiple_of(page)
        && len.is_multiple_of(page)
        && file_offset.is_multiple_of(page as u64);
    match start.checked_add(len) {
        Some(end) if aligned && len > 0 && start > 0 => Ok(start..end),
        _ => Err(Refusal::Unaligned),
    }
}

/// Protection of the stores of other threads during the swap.
#[derive(Clone, Copy)]
enum Guard<'a> {
    /// There are none.
    Alone,
    /// Writing threads sleep.
    Uffd(&'a Uffd),
    /// The other threads are stopped.
    Halt,
}

fn guard<'a>(tools: &'a Tools, kind: Kind, range: &Range<usize>) -> Result<Guard<'a>, Refusal> {
    let threads = threads::count();
    let stage = tools.stage.range();
    if threads::control_block_in(range, threads)
        || (range.start < stage.end && stage.start < range.end)
    {
        return Err(Refusal::ThreadControl);
    }
    Ok(match (&tools.uffd, kind) {
        (Ok(uffd), Kind::Anonymous) => Guard::Uffd(uffd),
        _ if threads == Some(1) => Guard::Alone,
        _ => Guard::Halt,
    })
}

/// A mapping that replaces the range. It is unmapped if the swap fails.
struct Fresh {
    start: usize,
    len: usize,
    armed: bool,
}

impl Fresh {
    fn anonymous(len: usize) -> Result<Fresh, Refusal> {
        // SAFETY:
        // - a new mapping, placed by the kernel
        let start = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(|e| Refusal::os("map memory", e))?;
        Ok(Fresh {
            start: start as usize,
            len,
            armed: true,
        })
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.armed {
            // SAFETY:
            // - this object's own mapping, which has not replaced another one
            unsafe { mm::munmap(self.start as *mut _, self.len) }.ok();
        }
    }
}

/// # Safety
/// - `range` is mapped as `direction` says
/// - `guard` is a result of [`guard`]
unsafe fn swap(
    tools: &Tools,
    direction: Direction,
    guard: Guard<'_>,
    range: Range<usize>,
    mut fresh: Fresh,
    file: Option<(BorrowedFd<'_>, u64)>,
) -> Result<(), Refusal> {
    let len = fresh.len;
    let uffd = match guard {
        Guard::Uffd(uffd) => Some(uffd),
        Guard::Alone | Guard::Halt => None,
    };
    if let Some(uffd) = uffd {
        if !uffd.protects_unpopulated {
            // SAFETY:
            // - only brings pages in
            unsafe { mm::madvise(range.start as *mut _, len, Advice::LinuxPopulateRead) }
                .map_err(|e| Refusal::os("bring the pages in", e))?;
        }
        let new = fresh.start..fresh.start + len;
        uffd.register(&new, FaultKinds::Missing)
            .map_err(|e| Refusal::os("register the new pages with userfaultfd", e))?;
        uffd.register(&range, FaultKinds::Protected).map_err(|e| {
            // The range may contain several mappings, and the first of them may be registered already.
            uffd.unregister(&range).ok();
            Refusal::os("register the pages with userfaultfd", e)
        })?;
    }
    let board = tools.stage.board();
    let mut plan = Swap {
        direction,
        uffd,
        range,
        fresh: fresh.start,
        file,
        board,
        helpers: 0,
    };
    let signals = SignalsBlocked::new();
    if uffd.is_some() && len >= SHARED_COPY {
        plan.helpers = helpers_wanted();
    }
    let result = match guard {
        // SAFETY:
        // - signals are blocked; range, fresh mapping, stage and control blocks are as demanded, by the caller's contract
        //   and by `guard`
        Guard::Halt => unsafe { halt::run(&tools.stage, &plan) }.map_err(|denied| {
            let uffd = tools.uffd.as_ref().err().map(|why| format!("{why}; "));
            let text = format!("{}{denied}", uffd.unwrap_or_default());
            Refusal::NotPermitted(text)
        }),
        Guard::Alone | Guard::Uffd(_) => {
            // SAFETY:
            // - as above
            Ok(
                unsafe { with_helpers(&tools.stage, &plan) }.unwrap_or_else(|| {
                    plan.helpers = 0;
                    // SAFETY:
                    // - as above
                    unsafe { window::run(&tools.stage, &plan) }
                }),
            )
        }
    };
    let result = result
        .and_then(|swapped| swapped.map_err(|failure| Refusal::os(failure.call, failure.errno)));
    drop(signals);
    match &result {
        Ok(()) => fresh.armed = false,
        Err(_) => {
            if let Some(uffd) = uffd {
                uffd.unregister(&plan.range).ok();
            }
        }
    }
    result
}

/// Runs the swap with its helpers. `None`: the helpers cannot start, and the memory is as before.
///
/// # Safety
/// - contract of [`window::run`]
unsafe fn with_helpers(stage: &Stage, plan: &Swap<'_>) -> Option<Result<(), Failure>> {
    let board = stage.board();
    board.reset();
    if plan.helpers == 0 {
        // SAFETY:
        // - the caller's contract
        return Some(unsafe { window::run(stage, plan) });
    }
    std::thread::scope(|scope| {
        let help = |part| move || window::help(plan, part);
        let start = |part| {
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn_scoped(scope, help(part))
                .is_ok()
        };
        let started = (1..=plan.helpers).take_while(|part| start(*part)).count() as u32;
        // A starting helper allocates memory. So all have started before the window opens.
        while board.helpers_ready() < started {
            rustix::thread::sched_yield();
        }
        if started < plan.helpers {
            board.send_home();
            return None;
        }
        // SAFETY:
        // - the caller's contract
        Some(unsafe { window::run(stage, plan) })
    })
}

fn helpers_wanted() -> u32 {
    std::thread::available_parallelism()
        .map_or(0, |cpus| cpus.get() - 1)
        .min(MOST_HELPERS) as u32
}
