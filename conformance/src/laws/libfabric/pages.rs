//! Pages below a registration appear, vanish and are replaced, if the mode lacks FI_MR_ALLOCATED.
//!
//! Each law is a table of changes to the pages. After a change all [`ACCESSES`] are tried.

use libc::{
    MADV_DONTNEED, MADV_FREE, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, PROT_NONE,
    PROT_READ,
};

use super::kit::*;
use super::memory::{exchanged, register};

laws! {
    replaced: "mr.pages.replaced", "fi_mr(3) FI_MR_MMU_NOTIFY; fi_domain(3)", 2, [mr_reg, write, inject_write, writedata, read, atomic, fetch_atomic, compare_atomic],
        "peers reach what is at an address when they access it, also if the owner has replaced the pages since the registration";
    gone: "mr.pages.gone", "fi_mr(3)", 2, [mr_reg, write, inject_write, writedata, read, atomic, fetch_atomic, compare_atomic],
        "an access without pages, or without the pages' permission, fails with FI_EACCES and changes nothing; the owner goes on, and new pages are reached";
    before_memory: "mr.pages.before", "fi_mr(3) FI_MR_ALLOCATED", 2, [mr_reg, write, inject_write, writedata, read, atomic, fetch_atomic, compare_atomic],
        "addresses can be registered before memory is there: reserved, not mapped, untouched, or mapped in part";
    all: "mr.pages.all", "fi_mr(3) FI_MR_ALLOCATED", 2, [mr_reg, write, inject_write, writedata, read, atomic, fetch_atomic, compare_atomic],
        "all addresses can be registered at once, and peers reach heap, static data, stack, and what is mapped later";
    both with(&Plan::DEFAULT, 256): "mr.pages.both", "fi_atomic(3) §4; fi_mr(3)", 3, [mr_reg, fetch_atomic] + ordering,
        "memory that is registered with FI_MR_ALLOCATED and without is the same memory, and operations by both ways are atomic with each other";
    in_place: "mr.pages.in-place", "fi_mr(3) FI_MR_ALLOCATED", 2, [mr_reg, write, read, atomic, fetch_atomic, compare_atomic],
        "with UNIPGAS_MR_ALLOCATED=1 memory that exists is shared in place in each mode, and addresses without memory can be registered";
    ranges: "mr.pages.range", "fi_mr(3)", 1, [mr_reg],
        "a range beyond the last address is refused; with FI_MR_ALLOCATED one without pages is refused, too (FI_EINVAL)";
}

/// Modes without FI_MR_ALLOCATED.
const MODES: [c_int; 3] = [0, FI_MR_VIRT_ADDR, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY];
const PAGE: usize = 4096;
const LEN: usize = 4 * PAGE;

/// Accesses that succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    All,
    /// Accesses that only read.
    Reads,
    Nothing,
    /// No access is tried.
    Unseen,
}

/// A change to the pages, and the accesses that succeed after it.
type Step = (fn(Memory), Sees);

/// A row: changes to the pages, in turn.
struct Kind {
    name: &'static str,
    steps: Vec<Step>,
}

fn kind(name: &'static str, steps: &[Step]) -> Kind {
    let steps = steps.to_vec();
    Kind { name, steps }
}

/// Rows: `kind` or `used`, the name, and the steps.
macro_rules! kinds {
    ($($make:ident $name:literal: $(($change:expr, $sees:expr)),+;)+) => {
        [$($make($name, &[$(($change, $sees)),+])),+]
    };
}

const VALUE: u64 = 5;
const LONG: usize = PAGE + 8;
pub(crate) static SOURCE: [u64; LONG / 8] = [VALUE; LONG / 8];

/// Name, call, effect on a value, and two flags: the access returns the value before; the access writes.
pub(crate) type Row = (&'static str, Operation, fn(u64) -> u64, bool, bool);

/// The accesses that are tried, with the operand [`VALUE`].
pub(crate) const ACCESSES: [Row; 10] = rows! {
    "fi_write": Words::write, |_| VALUE, false, true;
    "fi_inject_write": Words::inject, |_| VALUE, false, true;
    "fi_writedata": |words| words.write_data(7), |_| VALUE, false, true;
    "fi_read": Words::read, |before| before, true, false;
    "fi_atomic": Words::add, |before| before + VALUE, false, true;
    "fi_atomic of 4 bytes": |words| words.atomic(UINT32, SUM), |before| before + VALUE, false, true;
    "fi_fetch_atomic": Words::fetch_add, |before| before + VALUE, true, true;
    "fi_fetch_atomic that reads": Words::load, |before| before, true, false;
    "fi_compare_atomic": |words| words.compare(words.operand, CSWAP + 1), |_| VALUE, true, true;
    "a long fi_write": |words| Words { count: LONG / 8, ..*words }.write(), |_| VALUE, false, true;
};
/// Rows of [`ACCESSES`]: `INJECTED` has no completion, `WITH_DATA` sends data to the target's queue.
pub(crate) const INJECTED: usize = 1;
const WITH_DATA: usize = 2;

fn place(nth: usize) -> usize {
    nth * 1024 + 8
}

fn before(nth: usize) -> u64 {
    100 + nth as u64
}

/// Tries all accesses on the right neighbour's memory, at `base`. The left neighbour tries them on `own`, which is touched only if it can be read.
fn access(job: &Job<'_>, own: Memory, (key, base): (u64, u64), sees: Sees, what: &str) -> Verdict {
    let all = || ACCESSES.iter().enumerate();
    if sees == Sees::All {
        all().for_each(|(nth, _)| own.set(place(nth), before(nth)));
    }
    job.meet();
    let to = job.peer(job.right()).address;
    for (nth, (name, call, _, reads, writes)) in all() {
        let (what, mut result) = (format!("{what}: {name}"), 0u64);
        let at = base.wrapping_add(place(nth) as u64);
        let words = Words::new(job.ep, (to, at, key)).from(SOURCE.as_ptr());
        let words = words.into(&mut result).told(1);
        let works = sees == Sees::All || sees == Sees::Reads && !writes;
        job.post(|| call(&words))?;
        match works {
            true if nth == INJECTED => {}
            true => drop(job.tx.next().map_err(|text| format!("{what}: {text}"))?),
            false => drop(job.tx.fails(FI_EACCES, &what)?),
        }
        if works && *reads {
            ensure_eq!(current(&result), before(nth), "{what}: the result");
        }
    }
    job.meet_and_progress();
    if matches!(sees, Sees::All | Sees::Reads) {
        for (nth, (name, _, after, ..)) in all() {
            let value = match sees {
                Sees::All => after(before(nth)),
                _ => before(nth),
            };
            until(&format!("{what}: {value} by {name}"), || {
                own.get(place(nth)) == value
            })?;
        }
    }
    if sees == Sees::All {
        let seen = job.rx.next()?.data;
        ensure_eq!(seen, 7, "{what}: the data of {}", ACCESSES[WITH_DATA].0);
    }
    job.meet();
    Ok(())
}

/// Runs a table. `make` allocates the memory that is registered.
fn table(ctx: &Ctx, make: fn() -> Memory, kinds: &[Kind]) -> Verdict {
    for mr_mode in MODES {
        with(ctx, &Plan::DEFAULT.mr_mode(mr_mode), 256, |job| {
            for Kind { name, steps } in kinds {
                let memory = make();
                let region = register(job, memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 90, 0)?;
                let theirs = exchanged(job, region);
                for (nth, (change, sees)) in steps.iter().enumerate() {
                    change(memory);
                    if *sees != Sees::Unseen {
                        let what = format!("mode {mr_mode:#x}, {name}, step {nth}");
                        access(job, memory, theirs, *sees, &what)?;
                    }
                }
                close(region.mr)?;
                unmap(memory);
            }
            Ok(())
        })?;
    }
    Ok(())
}

const BOTH: c_int = PROT_READ | libc::PROT_WRITE;

/// Maps `len` bytes. If `at` is not null, the mapping replaces the pages at `at`.
fn map(at: *mut u8, len: usize, rights: c_int, how: c_int, file: c_int) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY:
    // - a new mapping, or one in place of memory that this file has mapped.
    let base = unsafe { libc::mmap(at.cast(), len, rights, how | fixed, file, 0) };
    assert_ne!(base, libc::MAP_FAILED, "no memory");
    base.cast()
}

const PRIVATE: c_int = MAP_PRIVATE | MAP_ANONYMOUS;

fn anonymous(memory: Memory) {
    map(memory.base, memory.len, BOTH, PRIVATE, -1);
}

fn map_shared(memory: Memory) {
    let how = MAP_SHARED | MAP_ANONYMOUS;
    map(memory.base, memory.len, BOTH, how, -1);
}

fn unmap(memory: Memory) {
    // SAFETY:
    // - mapped by this file, without further use.
    unsafe { libc::munmap(memory.base.cast(), memory.len) };
}

fn protect(memory: Memory, rights: c_int) {
    // SAFETY:
    // - memory that this file has mapped; it is filled again before it is read.
    let code = unsafe { libc::mprotect(memory.base.cast(), memory.len, rights) };
    assert_eq!(code, 0, "mprotect");
}

fn advise(memory: Memory, advice: c_int) {
    // SAFETY:
    // - memory that this file has mapped; it is filled again before it is read.
    let code = unsafe { libc::madvise(memory.base.cast(), memory.len, advice) };
    assert_eq!(code, 0, "madvise");
}

/// Half `nth` of the memory.
fn half(memory: Memory, nth: usize) -> Memory {
    let len = memory.len / 2;
    Memory {
        base: memory.at(nth * len),
        len,
    }
}

/// Maps a file of `len` bytes over it.
fn file(memory: Memory, len: usize, how: c_int) -> c_int {
    // SAFETY:
    // - a new file in memory.
    let file = unsafe { libc::memfd_create(c"pages".as_ptr(), 0) };
    // SAFETY:
    // - that file.
    assert_eq!(unsafe { libc::ftruncate(file, len as libc::off_t) }, 0);
    map(memory.base, memory.len, BOTH, how, file);
    file
}

fn with_file(memory: Memory, len: usize, how: c_int) {
    let file = file(memory, len, how);
    // SAFETY:
    // - the file has just been opened; this is its only close.
    unsafe { libc::close(file) };
}

fn move_away(memory: Memory) {
    let elsewhere = map(null_mut(), memory.len, PROT_NONE, PRIVATE, -1);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY:
    // - this file has made both mappings; the move replaces the second one.
    let moved =
        unsafe { libc::mremap(memory.base.cast(), memory.len, memory.len, flags, elsewhere) };
    assert_ne!(moved, libc::MAP_FAILED);
}

fn attach(memory: Memory) {
    // SAFETY:
    // - a new segment replaces memory that this file has mapped; the segment is removed with its last user.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, memory.len, 0o600);
        let at = libc::shmat(id, memory.base.cast(), 0x4000 /* SHM_REMAP */);
        libc::shmctl(id, libc::IPC_RMID, null_mut());
        assert_eq!(at.cast(), memory.base, "shmat");
    }
}

/// Memory with the length and alignment of a huge page.
fn aligned() -> Memory {
    const HUGE: usize = 2 << 20;
    let all = map(null_mut(), 2 * HUGE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1);
    let base = all.map_addr(|at| at.next_multiple_of(HUGE));
    Memory { base, len: HUGE }
}

fn small() -> Memory {
    of_len(map(null_mut(), LEN, BOTH, PRIVATE, -1))
}

fn of_len(base: *mut u8) -> Memory {
    Memory { base, len: LEN }
}

fn huge(memory: Memory) {
    let flags = PRIVATE | libc::MAP_FIXED | libc::MAP_HUGETLB;
    // SAFETY:
    // - the mapping replaces memory that this file has mapped.
    let base = unsafe { libc::mmap(memory.base.cast(), memory.len, BOTH, flags, -1, 0) };
    // Few machines have huge pages.
    if base == libc::MAP_FAILED {
        anonymous(memory);
    }
}

fn transparent(memory: Memory) {
    anonymous(memory);
    // SAFETY:
    // - advice on memory that this file has mapped.
    unsafe { libc::madvise(memory.base.cast(), memory.len, libc::MADV_HUGEPAGE) };
}

fn keep(_: Memory) {}

/// A row in which the pages are used before they change.
fn used(name: &'static str, steps: &[Step]) -> Kind {
    let steps = [&[(keep as fn(Memory), Sees::All)], steps].concat();
    Kind { name, steps }
}

fn replaced(ctx: &Ctx) -> Verdict {
    use Sees::{All, Unseen};
    let whole = kinds! {
        used "nothing": (keep, All);
        used "MADV_DONTNEED": (|m| advise(m, MADV_DONTNEED), All);
        used "MADV_FREE": (|m| advise(m, MADV_FREE), All);
        used "munmap and mmap": (unmap, Unseen), (anonymous, All);
        used "MAP_FIXED": (anonymous, All);
        used "mremap": (move_away, Unseen), (anonymous, All);
        used "mprotect and back": (|m| protect(m, PROT_NONE), Unseen), (|m| protect(m, BOTH), All);
        used "a half": (|m| anonymous(half(m, 1)), All), (|m| anonymous(half(m, 0)), All);
        used "shmat": (attach, All), (anonymous, All);
        used "a shared file": (|m| with_file(m, m.len, MAP_SHARED), All), (anonymous, All);
        used "a private file": (|m| with_file(m, m.len, MAP_PRIVATE), All), (anonymous, All);
        kind "shared memory": (map_shared, All), (anonymous, All);
    };
    table(ctx, small, &whole)?;
    let large = kinds! {
        kind "huge pages": (anonymous, All), (huge, All), (anonymous, All);
        kind "transparent huge pages": (transparent, All), (|m| advise(m, MADV_DONTNEED), All), (transparent, All);
    };
    table(ctx, aligned, &large)?;
    heap(ctx)
}

/// free and malloc.
fn heap(ctx: &Ctx) -> Verdict {
    with(ctx, &Plan::DEFAULT.mr_mode(0), 256, |job| {
        for len in [LEN, 1 << 20] {
            let memory = Buffer::new(len);
            let region = register(job, *memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 90, 0)?;
            let theirs = exchanged(job, region);
            access(job, *memory, theirs, Sees::All, "malloc")?;
            let again = Buffer::new(len);
            // At a new address, the old range has no memory.
            if again.base == memory.base {
                job.ctx.tell(&[1]);
            }
            job.meet();
            if (0..job.size).all(|rank| job.ctx.told(rank).is_some_and(|told| told == [1])) {
                access(job, *again, theirs, Sees::All, "free and malloc")?;
            }
            close(region.mr)?;
        }
        Ok(())
    })
}

fn gone(ctx: &Ctx) -> Verdict {
    use Sees::{All, Nothing, Reads, Unseen};
    let kinds = kinds! {
        used "munmap": (unmap, Nothing), (anonymous, All);
        used "mremap": (move_away, Nothing), (anonymous, All);
        used "PROT_NONE": (|m| protect(m, PROT_NONE), Nothing), (|m| protect(m, BOTH), All);
        kind "PROT_READ": (fill, Unseen), (|m| protect(m, PROT_READ), Reads), (|m| protect(m, BOTH), All);
        kind "a file that has become shorter":
            (|m| with_file(m, m.len, MAP_SHARED), All), (|m| with_file(m, 0, MAP_SHARED), Nothing), (anonymous, All);
    };
    table(ctx, small, &kinds)
}

fn fill(memory: Memory) {
    (0..ACCESSES.len()).for_each(|nth| memory.set(place(nth), before(nth)));
}

fn reserved() -> Memory {
    of_len(map(null_mut(), LEN, PROT_NONE, PRIVATE | MAP_NORESERVE, -1))
}

fn before_memory(ctx: &Ctx) -> Verdict {
    use Sees::{All, Nothing, Unseen};
    let kinds = kinds! {
        kind "reserved": (keep, Nothing), (|m| protect(m, BOTH), All);
        kind "not touched": (anonymous, All);
        kind "in part": (|m| anonymous(half(m, 0)), Unseen), (|m| anonymous(half(m, 1)), All);
        kind "a file that grows": (|m| with_file(m, 0, MAP_SHARED), Nothing), (|m| with_file(m, m.len, MAP_SHARED), All);
    };
    table(ctx, reserved, &kinds)?;
    let nowhere = || {
        let memory = reserved();
        unmap(memory);
        memory
    };
    let kinds = kinds! { kind "not mapped": (keep, Nothing), (anonymous, All); };
    table(ctx, nowhere, &kinds)
}

static STATIC: [std::sync::atomic::AtomicU64; LEN / 8] =
    [const { std::sync::atomic::AtomicU64::new(0) }; LEN / 8];

fn all(ctx: &Ctx) -> Verdict {
    for mr_mode in MODES {
        with(ctx, &Plan::DEFAULT.mr_mode(mr_mode), 256, |job| {
            let everything = Memory {
                base: null_mut(),
                len: usize::MAX,
            };
            let region = register(job, everything, FI_REMOTE_READ | FI_REMOTE_WRITE, 90, 0)?;
            let (heap, mut stack) = (Buffer::new(LEN), [0u64; LEN / 8]);
            let later = small();
            for (name, memory, sees) in rows! {
                "heap": *heap, Sees::All;
                "static data": of_len((&raw const STATIC).cast_mut().cast()), Sees::All;
                "stack": of_len(stack.as_mut_ptr().cast()), Sees::All;
                "what is mapped later": later, Sees::All;
                "no memory": of_len(std::ptr::without_provenance_mut(PAGE)), Sees::Nothing;
            } {
                let base = memory.base.expose_provenance() as u64;
                let theirs = exchanged(job, Registered { base, ..region });
                let what = format!("mode {mr_mode:#x}, {name}");
                access(job, memory, theirs, sees, &what)?;
            }
            close(region.mr)?;
            unmap(later);
            Ok(())
        })?;
    }
    Ok(())
}

fn ranges(ctx: &Ctx) -> Verdict {
    for mr_mode in [0, BASIC] {
        with(ctx, &Plan::DEFAULT.mr_mode(mr_mode), 256, |job| {
            let refuses = |base: usize, len: usize, access: u64| -> Verdict {
                let (at, mut mr) = (std::ptr::without_provenance::<c_void>(base), null_mut());
                let code = call!(mr job.station.domain, reg(at, len, access, 0, 90, 0, &mut mr, null_mut()));
                let what = format!("mode {mr_mode:#x}: {len:#x} bytes at {base:#x}");
                equal!(code, -FI_EINVAL, "{what}")
            };
            for access in [FI_REMOTE_READ | FI_REMOTE_WRITE, FI_READ] {
                refuses(PAGE, 0, access)?;
                refuses(2, usize::MAX, access)?;
                refuses(usize::MAX, 2, access)?;
                if mr_mode == BASIC {
                    refuses(0, usize::MAX, access)?;
                    refuses(PAGE, PAGE, access)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn both(job: &Job<'_>) -> Verdict {
    let each = many(job.ctx, 20);
    let plan = Plan::DEFAULT.mr_mode(FI_MR_VIRT_ADDR);
    let other = Station::open(&plan)?;
    let region = other.register(job.memory, 90)?;
    job.ctx.tell(&other.name()?);
    job.meet();
    let (to, words) = (job.known(0)?, job.words(0, 8));
    let mut last = 0;
    for nth in 0..each {
        let words = match nth % 2 {
            0 => words,
            _ => words.of(to).under(region.key),
        };
        let mut count = 0u64;
        job.done(|| words.from(&VALUE).into(&mut count).fetch_add())?;
        let count = current(&count);
        ensure!(nth == 0 || count > last, "{count} comes after {last}");
        last = count;
    }
    job.meet();
    let sum = VALUE * each * u64::from(job.size);
    job.shows_at(0, 8, sum, "the sum")?;
    close(region.mr)?;
    other.close()
}

fn in_place(ctx: &Ctx) -> Verdict {
    const NAME: &str = "UNIPGAS_MR_ALLOCATED";
    // SAFETY:
    // - the threads of laws read the environment only through the standard library, which locks it.
    unsafe { std::env::set_var(NAME, "1") };
    let nothing = kinds! { kind "nothing": (keep, Sees::All); };
    let protected = kinds! { kind "reserved": (|m| protect(m, BOTH), Sees::All); };
    let seen = table(ctx, small, &nothing)
        .and_then(|()| table(ctx, reserved, &protected))
        .and_then(|()| {
            with(ctx, &Plan::DEFAULT.mr_mode(0), 256, |job| {
                let memory = small();
                let region = job.station.register(memory, 90)?;
                let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
                let line = format!("{:x}-", memory.base.addr());
                let found = maps.lines().find(|found| found.starts_with(&line));
                let found = found.unwrap_or_default();
                let shared = ctx.backend != "shm" || found.contains("mirror");
                ensure!(shared, "it is not shared: {found}");
                close(region.mr)?;
                unmap(memory);
                Ok(())
            })
        });
    // SAFETY:
    // - as above.
    unsafe { std::env::remove_var(NAME) };
    seen
}
