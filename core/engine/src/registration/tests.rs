//! Tests with a network that pins registered pages, as devices do. A new mapping at the same address is different memory.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use super::cache::ENTRIES;
use super::*;
use crate::atomic::ElementLocks;
use crate::bell::Bell;
use crate::bundle::Tag;
use crate::transport::{Capabilities, Channel, Handler, Peer};
use crate::{Deadline, Rights};

/// The registrations, by descriptor.
type All = Arc<Mutex<Vec<(u64, Pinned)>>>;

/// A transport that registers memory and sends nothing.
#[derive(Default)]
struct Pinning {
    registered: AtomicUsize,
    ended: Arc<AtomicUsize>,
    all: All,
    next: AtomicU64,
}

/// Pages in a pipe. The pipe pins them after their address is unmapped.
struct Pinned {
    base: usize,
    len: usize,
    pages: OwnedFd,
    _end: OwnedFd,
}

struct Registration {
    base: *mut u8,
    len: usize,
    desc: u64,
    all: All,
    ended: Arc<AtomicUsize>,
}

// SAFETY:
// - the address is not accessed here. Users of the memory have their own contracts.
unsafe impl Send for Registration {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Registration {}

impl Memory for Registration {
    fn base(&self) -> *mut u8 {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
    fn key(&self) -> Vec<u8> {
        Vec::new()
    }
    fn desc(&self) -> u64 {
        self.desc
    }
    fn handle_by(&self, _: Arc<dyn Handler>) -> Result<()> {
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.all.lock().retain(|(desc, _)| *desc != self.desc);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).expect("a pipe")
}

impl Pinning {
    fn registration(&self, base: *mut u8, len: usize, desc: u64) -> Box<dyn Memory> {
        Box::new(Registration {
            base,
            len,
            desc,
            all: self.all.clone(),
            ended: self.ended.clone(),
        })
    }

    fn count(&self) -> usize {
        self.registered.load(Ordering::Relaxed)
    }

    /// The byte that a device would send from registered memory: it reads the pinned pages.
    fn sends(&self, ptr: *const u8, desc: u64) -> u8 {
        let all = self.all.lock();
        let (_, pinned) = all
            .iter()
            .find(|(one, _)| *one == desc)
            .expect("registered");
        let at = ptr.addr() - pinned.base;
        assert!(at < pinned.len);
        let (copy, into) = pipe();
        let len =
            rustix::pipe::tee(&pinned.pages, &into, pinned.len, SpliceFlags::empty()).unwrap();
        assert_eq!(len, pinned.len);
        let mut bytes = vec![0; len];
        assert_eq!(rustix::io::read(&copy, &mut bytes).unwrap(), len);
        bytes[at]
    }
}

impl Transport for Pinning {
    fn name(&self) -> &'static str {
        "pinning"
    }
    fn tag(&self) -> Tag {
        Tag::LOOPBACK
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn address(&self) -> Vec<u8> {
        Vec::new()
    }
    fn connect_within(&self, _: &[u8], _: Deadline) -> Result<Arc<dyn Peer>> {
        Err(crate::Error::Unsupported)
    }
    fn allocate(&self, len: usize, _: Rights) -> Result<Box<dyn Memory>> {
        let own = Box::leak(vec![0u8; len].into_boxed_slice());
        let desc = 1 + self.next.fetch_add(1, Ordering::Relaxed);
        Ok(self.registration(own.as_mut_ptr(), len, desc))
    }
    unsafe fn register(&self, base: *mut u8, len: usize, _: Rights) -> Result<Box<dyn Memory>> {
        let (pages, end) = pipe();
        let slice = IoSliceRaw::from_slice(
            // SAFETY:
            // - contract of `Transport::register_local`: the bytes are valid.
            unsafe { std::slice::from_raw_parts(base, len) },
        );
        // SAFETY:
        // - the pages are only read.
        let spliced = unsafe { rustix::pipe::vmsplice(&end, &[slice], SpliceFlags::empty()) };
        assert_eq!(spliced.expect("vmsplice"), len);
        let desc = 1 + self.next.fetch_add(1, Ordering::Relaxed);
        let pinned = Pinned {
            base: base.addr(),
            len,
            pages,
            _end: end,
        };
        self.all.lock().push((desc, pinned));
        self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(self.registration(base, len, desc))
    }
    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        Err(crate::Error::Unsupported)
    }
    fn bell(&self) -> &Bell {
        unreachable!("the tests never wait")
    }
    fn locks(&self) -> &ElementLocks {
        unreachable!("the tests use no locks")
    }
}

const PAGE: usize = 4096;
const LEN: usize = 8 * PAGE;

/// A mapping of the test. Each of its bytes is `byte`.
fn map(at: *mut u8, len: usize, byte: u8) -> *mut u8 {
    let fixed = if at.is_null() {
        MapFlags::empty()
    } else {
        MapFlags::FIXED
    };
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY:
    // - a new mapping, or a replacement of the test's own.
    unsafe {
        let flags = MapFlags::PRIVATE | fixed;
        let base = rustix::mm::mmap_anonymous(at.cast(), len, both, flags).expect("memory");
        base.cast::<u8>().write_bytes(byte, len);
        base.cast()
    }
}

fn unmap(at: *mut u8, len: usize) {
    // SAFETY:
    // - a test's own mapping.
    unsafe { rustix::mm::munmap(at.cast(), len) }.expect("munmap");
}

struct Bench {
    network: Arc<Pinning>,
    registrations: Registrations,
    /// Never sends during an unmapping, since the cache then registers more than necessary.
    patient: bool,
    /// One test at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock();
        let network = Arc::new(Pinning::default());
        Bench {
            _alone: alone,
            patient: true,
            registrations: Registrations::new(network.clone()),
            network,
        }
    }

    /// Sends `LEN` bytes from `at`. Returns the byte at `offset` that a peer receives.
    fn send(&self, at: *mut u8, offset: usize) -> u8 {
        while self.patient && Watch::of_this_process().is_some_and(|watch| !watch.is_settled()) {}
        // SAFETY:
        // - the test has mapped the memory, and unmaps it after the result is dropped.
        let held = unsafe { self.registrations.hold(at, LEN, false) }.expect("registered");
        self.network.sends(at.wrapping_add(offset), held.desc())
    }

    /// On systems without a watch for this user the cache keeps nothing. Only the sent bytes are tested then.
    fn caches(&self) -> bool {
        Watch::of_this_process().is_some()
    }
}

use watch::Watch;

#[test]
fn a_second_send_finds_the_registration() {
    let bench = Bench::new();
    let at = map(std::ptr::null_mut(), LEN, 1);
    for _ in 0..5 {
        assert_eq!(bench.send(at, 77), 1);
    }
    // SAFETY:
    // - memory of the test.
    unsafe { at.add(77).write(9) };
    assert_eq!(bench.send(at, 77), 9);
    assert_eq!(bench.network.count(), if bench.caches() { 1 } else { 6 });
    // A part of the memory, also at its borders.
    // SAFETY:
    // - as above.
    drop(unsafe { bench.registrations.hold(at.add(5), LEN - 5, false) });
    assert_eq!(bench.network.count(), if bench.caches() { 1 } else { 7 });
    unmap(at, LEN);
}

/// After `change`, all bytes at the address must be 2.
fn sends_what_is_there(change: impl Fn(*mut u8)) {
    let bench = Bench::new();
    for round in 0..20 {
        let at = map(std::ptr::null_mut(), LEN, 1);
        assert_eq!(bench.send(at, LEN - 1), 1);
        change(at);
        for offset in [0, 3 * PAGE, LEN - 1] {
            assert_eq!(bench.send(at, offset), 2, "round {round}, byte {offset}");
        }
        unmap(at, LEN);
    }
}

#[test]
fn memory_that_is_unmapped_and_mapped_anew() {
    let mut same = 0;
    let bench = Bench::new();
    for _ in 0..100 {
        let at = map(std::ptr::null_mut(), LEN, 1);
        assert_eq!(bench.send(at, LEN - 1), 1);
        unmap(at, LEN);
        // Mostly at the same address. Another test may have taken it before.
        let new = map(std::ptr::null_mut(), LEN, 2);
        same += usize::from(new == at);
        for offset in [0, 3 * PAGE, LEN - 1] {
            assert_eq!(bench.send(new, offset), 2);
        }
        unmap(new, LEN);
    }
    assert!(same > 0, "never the same address");
}

#[test]
fn memory_that_something_else_is_mapped_over() {
    sends_what_is_there(|at| {
        map(at, LEN, 2);
    });
}

#[test]
fn a_page_in_the_middle() {
    sends_what_is_there(|at| {
        // SAFETY:
        // - memory of the test.
        unsafe { at.write_bytes(2, LEN) };
        map(at.wrapping_add(3 * PAGE), PAGE, 2);
    });
}

#[test]
fn pages_that_are_given_back() {
    sends_what_is_there(|at| {
        // SAFETY:
        // - memory of the test, which writes the bytes again.
        unsafe {
            rustix::mm::madvise(at.cast(), LEN, Advice::LinuxDontNeed).expect("madvise");
            at.write_bytes(2, LEN);
        }
    });
}

#[test]
fn memory_that_moves() {
    sends_what_is_there(|at| {
        let aside = map(std::ptr::null_mut(), LEN, 3);
        let new = map(std::ptr::null_mut(), LEN, 2);
        let move_to = |from: *mut u8, to: *mut u8, flags| {
            // SAFETY:
            // - both are memory of the test. The moved mapping replaces the old mapping.
            let moved =
                unsafe { rustix::mm::mremap_fixed(from.cast(), LEN, LEN, flags, to.cast()) };
            moved.expect("mremap");
        };
        // No other thread must get the address meanwhile.
        move_to(at, aside, MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP);
        move_to(new, at, MremapFlags::MAYMOVE);
        unmap(aside, LEN);
    });
}

#[test]
fn the_heaps_end() {
    let bench = Bench::new();
    // Another caller of sbrk breaks the test, not the cache.
    // SAFETY:
    // - grows the heap by pages of the test, and returns them. The allocator of libc permits this.
    unsafe {
        let first = libc::sbrk(0).cast::<u8>();
        let at = first.wrapping_add(first.align_offset(PAGE) + PAGE);
        let grow = (at.addr() - first.addr() + LEN) as isize;
        for byte in [1, 2] {
            if libc::sbrk(grow).cast::<u8>() != first {
                return;
            }
            at.write_bytes(byte, LEN);
            let sent = bench.send(at, 0);
            if libc::sbrk(0).cast::<u8>() != first.wrapping_offset(grow) {
                return;
            }
            libc::sbrk(-grow);
            assert_eq!(sent, byte);
        }
    }
}

/// One thread unmaps while others map, often at the same addresses.
#[test]
fn while_other_threads_map_and_unmap() {
    let bench = Bench {
        patient: false,
        ..Bench::new()
    };
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..150u8 {
                    let byte = round.wrapping_mul(4) | thread;
                    let at = map(std::ptr::null_mut(), LEN, byte);
                    assert_eq!(bench.send(at, PAGE), byte);
                    assert_eq!(bench.send(at, LEN - 1), byte);
                    unmap(at, LEN);
                }
            });
        }
    });
}

/// Ends a forked child with the result of `body`, which makes system calls only. Returns the child's wait status.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY:
    // - the child makes system calls only, and ends here. The parent waits for the child just made.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(body());
        }
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    status
}

#[test]
fn the_child_of_a_fork_unmaps_what_it_likes() {
    let bench = Bench::new();
    let at = map(std::ptr::null_mut(), LEN, 1);
    assert_eq!(bench.send(at, 0), 1);
    // SAFETY:
    // - the child's own copy. No thread blocks the unmapping.
    let status = in_child(|| unsafe { libc::munmap(at.cast(), LEN) });
    assert_eq!(status, 0);
    // The parent's memory is unchanged.
    assert_eq!(bench.send(at, 0), 1);
    assert_eq!(bench.network.count(), if bench.caches() { 1 } else { 2 });
    unmap(at, LEN);
    map(at, LEN, 2);
    assert_eq!(bench.send(at, 0), 2);
    unmap(at, LEN);
}

#[test]
fn once_nothing_is_watched_a_fork_closes_nothing() {
    let bench = Bench::new();
    let at = map(std::ptr::null_mut(), LEN, 1);
    bench.send(at, 0);
    drop(bench);
    unmap(at, LEN);
    // The test takes all descriptor numbers that have become free.
    let taken: Vec<OwnedFd> = (0..64)
        .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
        .collect();
    // SAFETY:
    // - asks about descriptors.
    let open = |fd: &&OwnedFd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) } != -1;
    let status = in_child(|| taken.iter().filter(|fd| !open(fd)).count() as i32);
    assert_eq!(status, 0, "descriptors that the child found closed");
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let bench = Bench::new();
    if !bench.caches() {
        return;
    }
    let at = map(std::ptr::null_mut(), 2 * ENTRIES * LEN, 1);
    let nth = |n: usize| at.wrapping_add(2 * n * LEN);
    for n in 0..ENTRIES {
        bench.send(nth(n), 0);
    }
    bench.send(nth(0), 0);
    assert_eq!(bench.network.count(), ENTRIES);
    // SAFETY:
    // - memory of the test.
    let held = unsafe { bench.registrations.hold(nth(1), LEN, false) };
    bench.send(nth(2), 0);
    let more = map(std::ptr::null_mut(), LEN, 1);
    bench.send(more, 0);
    assert_eq!(bench.network.ended.load(Ordering::Relaxed), 1);
    bench.send(nth(0), 0);
    bench.send(nth(1), 0);
    assert_eq!(bench.network.count(), ENTRIES + 1);
    bench.send(nth(3), 0);
    assert_eq!(bench.network.count(), ENTRIES + 2);
    // A registration in use stays until the end of its use.
    bench.registrations.forget(nth(1), 1);
    assert_eq!(bench.network.ended.load(Ordering::Relaxed), 2);
    drop(held);
    assert_eq!(bench.network.ended.load(Ordering::Relaxed), 3);
    drop(bench);
    unmap(at, 2 * ENTRIES * LEN);
    unmap(more, LEN);
}

#[test]
fn what_cannot_be_watched_is_registered_each_time() {
    static DATA: Mutex<[u8; LEN]> = Mutex::new([7; LEN]);
    let bench = Bench::new();
    let mut data = DATA.lock();
    for _ in 0..3 {
        assert_eq!(bench.send(data.as_mut_ptr(), 5), 7);
    }
    assert_eq!(bench.network.count(), 3);
    assert_eq!(bench.network.ended.load(Ordering::Relaxed), 3);
}

#[test]
fn what_is_not_mapped_is_refused() {
    let bench = Bench::new();
    let [first, at] = [(); 2].map(|()| map(std::ptr::null_mut(), LEN, 1));
    // Starts the listener now, so that its stack does not take the freed addresses.
    bench.send(first, 0);
    unmap(at, LEN);
    // SAFETY:
    // - the call refuses the memory.
    let refused = unsafe { bench.registrations.hold(at, LEN, false) };
    assert!(matches!(refused, Err(crate::Error::InvalidArgument(_))));
    drop(bench);
    unmap(first, LEN);
}

#[test]
fn blocks_are_as_long_as_asked_for_and_used_again() {
    let bench = Bench::new();
    for len in [1, 4096, 4097, 65536, 1 << 20] {
        let (one, two) = (
            bench.registrations.block(len),
            bench.registrations.block(len),
        );
        let (one, two) = (one.unwrap().local(), two.unwrap().local());
        assert!(one.desc != 0 && two.desc != 0);
        assert!(one.ptr.addr().abs_diff(two.ptr.addr()) >= len);
    }
    let first = bench.registrations.block(5000).unwrap().local();
    let again = bench.registrations.block(8000).unwrap().local();
    assert_eq!((first.ptr, first.desc), (again.ptr, again.desc));
}
