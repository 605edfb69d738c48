//! Adoption in place, with other threads at work on the same pages.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{self, MapFlags, ProtFlags};
use unipgas_shm::adopt::{self, Refusal};

const PAGE: usize = 4096;
const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

const ORDINARY: &str = "UNIPGAS_TEST_ORDINARY";

/// So many, or fewer where each has to wait until all threads have come to a core.
fn rounds_of(rounds: usize) -> usize {
    if std::env::var_os(ORDINARY).is_some() {
        (rounds / 100).max(2)
    } else {
        rounds
    }
}

fn memfd(len: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("adopt-test", MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, len as u64).expect("size");
    fd
}

/// Unused pages lie around it: the control block of another test's thread, at the end of that thread's stack, might be next to it,
/// and such neighbours are refused.
fn map(len: usize, flags: MapFlags) -> *mut u8 {
    let margins = len.next_multiple_of(PAGE) + 2 * PAGE;
    // SAFETY:
    // - new mappings; the second replaces the inside of the first
    unsafe {
        let around = mm::mmap_anonymous(
            ptr::null_mut(),
            margins,
            mm::ProtFlags::empty(),
            MapFlags::PRIVATE,
        )
        .expect("mmap");
        mm::mmap_anonymous(around.byte_add(PAGE), len, RIGHTS, flags | MapFlags::FIXED)
            .expect("mmap")
            .cast()
    }
}

/// A private mapping where no other mapping of the process comes to lie.
fn map_at(at: usize, len: usize, flags: i32) -> *mut u8 {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY:
    // - a new mapping, which replaces none
    let place = unsafe {
        libc::mmap(
            at as *mut _,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(
        place,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    place.cast()
}

fn map_file(fd: &OwnedFd, offset: usize, len: usize) -> *mut u8 {
    // SAFETY:
    // - a new mapping, placed by the kernel
    unsafe {
        mm::mmap(
            ptr::null_mut(),
            len,
            RIGHTS,
            MapFlags::SHARED,
            fd,
            offset as u64,
        )
    }
    .expect("mmap")
    .cast()
}

fn unmap(at: *mut u8, len: usize) {
    // SAFETY:
    // - a mapping of the test that calls, which does not use it any more
    unsafe { mm::munmap(at.cast(), len) }.expect("munmap");
}

fn pages_of(at: *const u8, len: usize) -> (*mut u8, usize) {
    let first = at as usize & !(PAGE - 1);
    let end = (at as usize + len).next_multiple_of(PAGE);
    (first as *mut u8, end - first)
}

fn adopt(fd: &OwnedFd, offset: usize, at: *mut u8, len: usize) -> Result<(), Refusal> {
    // SAFETY:
    // - the tests' own memory and file; the kernel has no transfer under way on it
    unsafe { adopt::adopt(fd.as_fd(), offset as u64, at, len) }
}

fn release(fd: &OwnedFd, offset: usize, at: *mut u8, len: usize) -> Result<(), Refusal> {
    // SAFETY:
    // - as above
    unsafe { adopt::release(fd.as_fd(), offset as u64, at, len) }
}

/// A word for one thread alone, incremented without an atomic read-modify-write: a lost store shows at once.
fn bump(word: *mut u64) {
    // SAFETY:
    // - the word is mapped during the test, and one thread alone writes to it
    unsafe { word.write_volatile(word.read_volatile() + 1) };
}

fn read(word: *const u64) -> u64 {
    // SAFETY:
    // - the word is mapped during the test
    unsafe { word.read_volatile() }
}

/// Threads increment their words, `words[thread]`, while `rounds` times the pages are adopted and released.
/// In between, the file must show of each word at least what was stored before the adoption.
fn hammer(words: &[Vec<usize>], first: *mut u8, len: usize, rounds: usize) {
    let offset = 3 * PAGE;
    let fd = memfd(offset + len);
    let peer = map_file(&fd, offset, len) as usize;
    let first = first as usize;
    let stop = AtomicBool::new(false);
    let start = Barrier::new(words.len() + 1);
    let (stop, start) = (&stop, &start);
    std::thread::scope(|scope| {
        let counters: Vec<_> = words
            .iter()
            .map(|mine| {
                scope.spawn(move || {
                    start.wait();
                    let mut expected = 0_u64;
                    loop {
                        for word in mine {
                            bump(*word as *mut u64);
                        }
                        expected += 1;
                        for word in mine {
                            assert_eq!(read(*word as *const u64), expected, "an increment is lost");
                        }
                        if stop.load(Ordering::Relaxed) {
                            return expected;
                        }
                    }
                })
            })
            .collect();
        start.wait();
        let outcome = (0..rounds_of(rounds)).try_for_each(|_| {
            let before: Vec<_> = words
                .iter()
                .flatten()
                .map(|word| read(*word as *const u64))
                .collect();
            adopt(&fd, offset, first as *mut u8, len)?;
            for (word, before) in words.iter().flatten().zip(before) {
                let seen = read((peer + (word - first)) as *const u64);
                if seen < before {
                    return Err(Refusal::Os(format!(
                        "the file shows {seen}, {before} were stored before"
                    )));
                }
            }
            release(&fd, offset, first as *mut u8, len)
        });
        stop.store(true, Ordering::Relaxed);
        let reached: Vec<_> = counters.into_iter().map(|counter| counter.join()).collect();
        outcome.expect("adopt and release");
        for (mine, reached) in words.iter().zip(reached) {
            let reached = reached.expect("no increment is lost");
            assert!(reached > 0);
            for word in mine {
                assert_eq!(read(*word as *const u64), reached);
            }
        }
    });
    unmap(peer as *mut u8, len);
}

/// Words of three threads, interleaved in every page of the range.
fn interleaved(first: *mut u8, len: usize) -> Vec<Vec<usize>> {
    (0..3)
        .map(|t| {
            (0..len / PAGE)
                .map(|page| first as usize + page * PAGE + 128 + 8 * t)
                .collect()
        })
        .collect()
}

#[test]
fn no_store_is_lost_on_the_heap() {
    let mut heap = vec![0_u8; 6 * PAGE];
    let (first, len) = pages_of(&raw const heap[PAGE], 3 * PAGE);
    hammer(&interleaved(first, len), first, len, 2000);
    heap.fill(1);
}

#[test]
fn no_store_is_lost_in_one_page() {
    let at = map(PAGE, MapFlags::PRIVATE);
    hammer(&interleaved(at, PAGE), at, PAGE, 3000);
    unmap(at, PAGE);
}

#[test]
fn no_store_is_lost_when_threads_share_the_copy() {
    let len = 34 << 20;
    let at = map(len, MapFlags::PRIVATE);
    let words = (0..2)
        .map(|t| {
            (0..64)
                .map(|i| at as usize + i * (len / 64) + 8 * t)
                .collect()
        })
        .collect::<Vec<_>>();
    hammer(&words, at, len, 20);
    unmap(at, len);
}

#[test]
fn no_store_is_lost_in_static_memory() {
    static mut ZEROED: [u8; 8 * PAGE] = [0; 8 * PAGE];
    let (first, len) = pages_of(
        (&raw const ZEROED).cast::<u8>().wrapping_add(2 * PAGE),
        2 * PAGE,
    );
    hammer(&interleaved(first, len), first, len, 2000);
}

#[test]
fn no_store_is_lost_on_stacks_of_living_threads() {
    let at = AtomicUsize::new(0);
    let done = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut frame = [0_u8; 6 * PAGE];
            at.store(
                std::hint::black_box(frame.as_mut_ptr()) as usize,
                Ordering::Release,
            );
            done.wait();
            std::hint::black_box(&mut frame);
        });
        let frame = loop {
            match at.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                frame => break frame,
            }
        };
        let (first, len) = pages_of((frame + PAGE) as *const u8, 3 * PAGE);
        hammer(&interleaved(first, len), first, len, 2000);
        done.wait();
    });
}

/// The caller's own frames lie in the range, and so do those of its calls: the swap cannot write there.
#[test]
fn the_callers_own_stack() {
    fn deep(fd: &OwnedFd, round: u8) {
        let mut here = [round; 100];
        let at = std::hint::black_box(here.as_mut_ptr());
        // The page of the variable, and those below where the calls from here live.
        let (first, len) = pages_of(at.wrapping_sub(4 * PAGE), 4 * PAGE + 100);
        adopt(fd, 0, first, len).expect("adopt");
        let peer = map_file(fd, 0, len);
        // SAFETY:
        // - mapped just now, as long as the range that `at` lies in
        let theirs = unsafe { peer.add(at as usize - first as usize + 50) };
        // SAFETY:
        // - points into that mapping
        assert_eq!(unsafe { theirs.read_volatile() }, round);
        here[50] = round.wrapping_add(1);
        std::hint::black_box(&mut here);
        // SAFETY:
        // - as above
        assert_eq!(unsafe { theirs.read_volatile() }, round.wrapping_add(1));
        unmap(peer, len);
        release(fd, 0, first, len).expect("release");
        assert_eq!(
            std::hint::black_box(&here)[49..52],
            [round, round.wrapping_add(1), round]
        );
    }
    let fd = memfd(64 * PAGE);
    // Far enough below the thread's control block.
    let mut room = [0_u8; 4 * PAGE];
    std::hint::black_box(&mut room);
    for round in 0..rounds_of(500) {
        deep(&fd, round as u8);
    }
    std::hint::black_box(&mut room);
}

#[test]
fn two_threads_adopt_their_own_stacks_while_both_allocate() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let fd = memfd(64 * PAGE);
                let mut room = [0_u8; 2 * PAGE];
                std::hint::black_box(&mut room);
                for round in 0..rounds_of(1000) {
                    let mut mine = [round as u64; 16];
                    let (first, len) = pages_of(mine.as_ptr().cast(), size_of_val(&mine));
                    let heap: Vec<u8> = vec![round as u8; 1 + round * 7 % 5000];
                    let (block, block_len) = pages_of(heap.as_ptr(), heap.len());
                    adopt(&fd, 0, first, len).expect("the stack");
                    let heap_is_mine = adopt(&fd, 16 * PAGE, block, block_len);
                    mine[3] += 1;
                    std::hint::black_box(&mut mine);
                    // Heap blocks of both threads may share a page; then the second is told so.
                    match heap_is_mine {
                        Ok(()) => {
                            release(&fd, 16 * PAGE, block, block_len).expect("release the heap")
                        }
                        Err(refusal) => assert_eq!(refusal, Refusal::AlreadyShared),
                    }
                    release(&fd, 0, first, len).expect("release the stack");
                    assert!(heap.iter().all(|byte| *byte == round as u8));
                    assert_eq!((mine[2], mine[3]), (round as u64, round as u64 + 1));
                }
                std::hint::black_box(&mut room);
            });
        }
    });
}

/// The page that the kernel writes to at a thread's end stays private, whichever thread asks, so that a join that
/// waits since before the swap hears of it.
#[test]
fn joins_that_wait_across_the_swap_return() {
    for _ in 0..30 {
        let (tell_control, control) = std::sync::mpsc::channel();
        let (tell_end, end) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY:
            // - no preconditions
            tell_control
                .send(unsafe { libc::pthread_self() } as usize)
                .expect("the other thread listens");
            let mine = [1_u64; 4];
            let fd = memfd(2 * PAGE);
            end.recv().expect("the other thread speaks");
            let (first, len) = pages_of(mine.as_ptr().cast(), size_of_val(&mine));
            // Either answer is right: it depends on how much thread-local memory lies between.
            match adopt(&fd, 0, first, len) {
                // The C library may give the stack to another thread.
                Ok(()) => release(&fd, 0, first, len).expect("release"),
                Err(Refusal::ThreadControl) => {}
                Err(other) => panic!("{other}"),
            }
        });
        let adopter = std::thread::spawn(move || {
            let control = control.recv().expect("the thread lives");
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (first, len) = pages_of(control as *const u8, 1);
            let outcome = adopt(&memfd(PAGE), 0, first, len);
            tell_end.send(()).expect("the thread listens");
            outcome
        });
        thread.join().expect("the thread ends well");
        assert_eq!(
            adopter.join().expect("no panic"),
            Err(Refusal::ThreadControl)
        );
    }
}

/// A heap may begin right behind a stack, where the thread's control block ends.
#[test]
fn the_page_behind_a_threads_control_block_is_adopted() {
    const STACK: usize = 16 * PAGE;
    extern "C" fn adopts_behind_its_stack(end: *mut libc::c_void) -> *mut libc::c_void {
        let fd = memfd(2 * PAGE);
        let behind = end.cast::<u8>();
        assert_eq!(
            adopt(&fd, 0, behind.wrapping_sub(PAGE), PAGE),
            Err(Refusal::ThreadControl)
        );
        adopt(&fd, 0, behind, PAGE).expect("memory of nobody's but the program's");
        release(&fd, 0, behind, PAGE).expect("release");
        ptr::null_mut()
    }
    let at = map(STACK + PAGE, MapFlags::PRIVATE);
    // SAFETY:
    // - the thread has the mapping's first pages as its stack, and is joined before anything goes
    // - all attributes are initialised before they are read
    unsafe {
        let mut attributes = std::mem::MaybeUninit::uninit();
        let mut thread = std::mem::MaybeUninit::uninit();
        assert_eq!(libc::pthread_attr_init(attributes.as_mut_ptr()), 0);
        assert_eq!(
            libc::pthread_attr_setstack(attributes.as_mut_ptr(), at.cast(), STACK),
            0
        );
        assert_eq!(
            libc::pthread_create(
                thread.as_mut_ptr(),
                attributes.as_ptr(),
                adopts_behind_its_stack,
                at.wrapping_add(STACK).cast()
            ),
            0
        );
        assert_eq!(libc::pthread_join(thread.assume_init(), ptr::null_mut()), 0);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
}

#[test]
fn system_calls_of_other_threads_succeed_throughout() {
    let len = 4 * PAGE;
    let at = map(len, MapFlags::PRIVATE) as usize;
    let fd = memfd(len);
    let source = std::fs::File::open("/dev/zero").expect("/dev/zero");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, source) = (&stop, &source);
        let reader = scope.spawn(move || {
            let mut calls = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // SAFETY:
                // - one page of the mapping, which this thread alone uses
                let page = unsafe { std::slice::from_raw_parts_mut((at + PAGE) as *mut u8, PAGE) };
                page.fill(0xFF);
                assert_eq!(rustix::io::read(source, &mut *page), Ok(PAGE));
                assert!(
                    page.iter().all(|byte| *byte == 0),
                    "bytes of a read are lost"
                );
                calls += 1;
            }
            calls
        });
        let writer = scope.spawn(move || {
            let (from, to) = rustix::pipe::pipe().expect("pipe");
            let mut round = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                let word = (at + 2 * PAGE + 64) as *mut u64;
                // SAFETY:
                // - two words of the mapping, which this thread alone uses
                let (sent, back) = unsafe {
                    word.write_volatile(round);
                    (
                        std::slice::from_raw_parts(word.cast::<u8>(), 8),
                        std::slice::from_raw_parts_mut(word.add(1).cast::<u8>(), 8),
                    )
                };
                assert_eq!(rustix::io::write(&to, sent), Ok(8));
                assert_eq!(rustix::io::read(&from, &mut *back), Ok(8));
                assert_eq!(back, round.to_ne_bytes());
            }
            round
        });
        let outcome = (0..rounds_of(2000)).try_for_each(|_| {
            adopt(&fd, 0, at as *mut u8, len)?;
            release(&fd, 0, at as *mut u8, len)
        });
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("no read fails") > 0);
        assert!(writer.join().expect("no write fails") > 0);
        outcome.expect("adopt and release");
    });
    unmap(at as *mut u8, len);
}

fn pattern(len: usize) -> impl Iterator<Item = u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
}

#[test]
fn content_is_kept_from_one_byte_to_64_mebibytes() {
    for size in [
        1,
        2,
        PAGE - 1,
        PAGE,
        PAGE + 1,
        3 * PAGE + 5,
        1 << 20,
        (2 << 20) + 17,
        64 << 20,
    ] {
        // Pages of its own, unaligned start: other tests' blocks must not share them.
        let span = size + 2 * PAGE;
        let whole = map(span, MapFlags::PRIVATE);
        // SAFETY:
        // - this test's own mapping, longer than that
        let mine = unsafe { std::slice::from_raw_parts_mut(whole.add(PAGE - 1), size) };
        mine.iter_mut()
            .zip(pattern(size))
            .for_each(|(byte, value)| *byte = value);
        let (first, len) = pages_of(mine.as_ptr(), size);
        let fd = memfd(len + PAGE);
        adopt(&fd, PAGE, first, len).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        assert!(
            mine.iter().copied().eq(pattern(size)),
            "{size} bytes after adoption"
        );
        let peer = map_file(&fd, PAGE, len);
        // SAFETY:
        // - the file holds the whole pages of the block
        let theirs = unsafe { std::slice::from_raw_parts_mut(peer.add(PAGE - 1), size) };
        assert!(
            theirs.iter().copied().eq(pattern(size)),
            "{size} bytes as the peer sees them"
        );
        theirs[size - 1] ^= 0x55;
        assert_eq!(std::hint::black_box(&*mine)[size - 1], theirs[size - 1]);
        mine[0] ^= 0xAA;
        assert_eq!(mine[0], std::hint::black_box(&*theirs)[0]);
        release(&fd, PAGE, first, len).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        assert!(mine == theirs, "{size} bytes after release");
        mine[0] ^= 0x0F;
        assert_ne!(
            mine[0],
            std::hint::black_box(&*theirs)[0],
            "the file must not see changes after release"
        );
        theirs[size - 1] ^= 0x33;
        assert_ne!(
            std::hint::black_box(&*mine)[size - 1],
            theirs[size - 1],
            "nor the memory those of the file"
        );
        unmap(peer, len);
        unmap(whole, span);
    }
}

/// Pages never touched, several mappings in one range, and a file that has stale pages there already.
#[test]
fn untouched_pages_several_mappings_and_stale_file_pages() {
    let len = 64 * PAGE;
    let at = map(len, MapFlags::PRIVATE);
    // SAFETY:
    // - this test's own mapping: the advice splits it in three
    unsafe { mm::madvise(at.add(8 * PAGE).cast(), 8 * PAGE, mm::Advice::LinuxDontDump) }
        .expect("madvise");
    // SAFETY:
    // - inside the mapping
    unsafe { at.add(9 * PAGE).write(9) };
    let fd = memfd(len);
    let stale = map_file(&fd, 0, len);
    for page in (0..64).step_by(3) {
        // SAFETY:
        // - inside the mapping
        unsafe { stale.add(page * PAGE).write(0xEE) };
    }
    for _ in 0..3 {
        adopt(&fd, 0, at, len).expect("adopt");
        for page in 0..64 {
            // SAFETY:
            // - inside both mappings
            let (mine, theirs) = unsafe {
                (
                    at.add(page * PAGE).read_volatile(),
                    stale.add(page * PAGE).read_volatile(),
                )
            };
            assert_eq!(
                (mine, theirs),
                if page == 9 { (9, 9) } else { (0, 0) },
                "page {page}"
            );
        }
        release(&fd, 0, at, len).expect("release");
    }
    unmap(stale, len);
    unmap(at, len);
}

/// A stack goes on growing below an adopted page that was its lowest one.
#[test]
fn a_growing_stack_grows_below_an_adopted_page() {
    let page = map_at(0x2000_0000_0000, PAGE, libc::MAP_GROWSDOWN);
    let fd = memfd(PAGE);
    // SAFETY:
    // - the page just mapped
    unsafe { page.write(5) };
    adopt(&fd, 0, page, PAGE).expect("adopt");
    for below in 1..60 {
        // SAFETY:
        // - the mapping grows down to it, or the test dies here
        unsafe { page.sub(below * PAGE).write_volatile(1) };
    }
    // SAFETY:
    // - the page just adopted
    assert_eq!(unsafe { page.read_volatile() }, 5);
    release(&fd, 0, page, PAGE).expect("release");
}

#[test]
fn refusals_for_each_kind() {
    let fd = memfd(8 * PAGE);
    let private = map_at(0x1000_0000_0000, 4 * PAGE, 0);
    assert_eq!(
        adopt(&fd, 0, private.wrapping_add(1), PAGE),
        Err(Refusal::Unaligned)
    );
    assert_eq!(adopt(&fd, 1, private, PAGE), Err(Refusal::Unaligned));
    assert_eq!(adopt(&fd, 0, private, PAGE - 1), Err(Refusal::Unaligned));
    assert_eq!(adopt(&fd, 0, private, 0), Err(Refusal::Unaligned));
    assert_eq!(release(&fd, 0, private, PAGE), Err(Refusal::NotAdopted));

    unmap(private.wrapping_add(3 * PAGE), PAGE);
    assert_eq!(adopt(&fd, 0, private, 4 * PAGE), Err(Refusal::Unmapped));
    assert_eq!(
        adopt(&fd, 0, private.wrapping_add(3 * PAGE), PAGE),
        Err(Refusal::Unmapped)
    );

    let middle = private.wrapping_add(PAGE);
    // SAFETY:
    // - this test's own mapping
    unsafe { mm::mprotect(middle.cast(), PAGE, mm::MprotectFlags::READ) }.expect("mprotect");
    assert_eq!(adopt(&fd, 0, private, 3 * PAGE), Err(Refusal::ReadOnly));
    let all = mm::MprotectFlags::READ | mm::MprotectFlags::WRITE | mm::MprotectFlags::EXEC;
    // SAFETY:
    // - this test's own mapping
    unsafe { mm::mprotect(middle.cast(), PAGE, all) }.expect("mprotect");
    assert_eq!(adopt(&fd, 0, private, 3 * PAGE), Err(Refusal::Executable));

    let shared = map(PAGE, MapFlags::SHARED);
    assert_eq!(adopt(&fd, 0, shared, PAGE), Err(Refusal::AlreadyShared));
    let (code, len) = pages_of(refusals_for_each_kind as *const u8, 1);
    assert_eq!(adopt(&fd, 0, code, len), Err(Refusal::ReadOnly));

    static INITIALISED: AtomicU64 = AtomicU64::new(77);
    let (data, len) = pages_of((&raw const INITIALISED).cast(), 8);
    // The other threads are stopped for that.
    assert_eq!(adopt(&fd, 0, data, len), Ok(()));
    assert_eq!(INITIALISED.load(Ordering::Relaxed), 77);
    assert_eq!(release(&fd, 0, data, len), Ok(()));

    assert_eq!(adopt(&fd, 0, private, PAGE), Ok(()));
    assert_eq!(adopt(&fd, PAGE, private, PAGE), Err(Refusal::AlreadyShared));
    assert_eq!(release(&fd, PAGE, private, PAGE), Err(Refusal::NotAdopted));
    assert_eq!(
        release(&memfd(PAGE), 0, private, PAGE),
        Err(Refusal::NotAdopted)
    );
    assert_eq!(release(&fd, 0, private, PAGE), Ok(()));
}

#[test]
fn devices_are_refused() {
    let mut setup = [0_u64; 15];
    // SAFETY:
    // - io_uring_setup reads and writes the 120 bytes of its parameters
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, setup.as_mut_ptr()) };
    assert!(ring >= 0, "io_uring: {}", std::io::Error::last_os_error());
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY:
    // - a new mapping of the ring just made
    let queue = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            rights,
            libc::MAP_SHARED,
            ring as i32,
            0,
        )
    };
    assert_ne!(queue, libc::MAP_FAILED);
    assert_eq!(
        adopt(&memfd(PAGE), 0, queue.cast(), PAGE),
        Err(Refusal::Device)
    );
}

#[test]
fn huge_pages_are_refused() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    // SAFETY:
    // - a new mapping, placed by the kernel, never touched: no huge page needs to be free
    let huge = unsafe {
        libc::mmap(
            ptr::null_mut(),
            2 << 20,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(
        huge,
        libc::MAP_FAILED,
        "{}",
        std::io::Error::last_os_error()
    );
    assert_eq!(
        adopt(&memfd(PAGE), 0, huge.cast(), PAGE),
        Err(Refusal::Huge)
    );
}

/// A file that is too short makes the copy fail in the middle of the swap: everything must be as before.
#[test]
fn a_failure_in_the_window_puts_everything_back() {
    let len = 4 * PAGE;
    let at = map(len, MapFlags::PRIVATE) as usize;
    let fd = rustix::fs::memfd_create("adopt-test", MemfdFlags::ALLOW_SEALING).expect("memfd");
    rustix::fs::ftruncate(&fd, 2 * PAGE as u64).expect("size");
    rustix::fs::fcntl_add_seals(&fd, rustix::fs::SealFlags::GROW).expect("seal");
    let word = at + 3 * PAGE + 8;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut expected = 0;
            while !stop.load(Ordering::Relaxed) {
                bump(word as *mut u64);
                expected += 1;
                assert_eq!(read(word as *const u64), expected, "an increment is lost");
            }
            expected
        });
        let outcomes: Vec<_> = (0..rounds_of(500))
            .map(|_| adopt(&fd, 0, at as *mut u8, len))
            .collect();
        stop.store(true, Ordering::Relaxed);
        let reached = counter.join().expect("no increment is lost");
        assert_eq!(read(word as *const u64), reached);
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, Err(Refusal::Os(_)))),
            "{:?}",
            outcomes[0]
        );
    });
    let enough = memfd(len);
    adopt(&enough, 0, at as *mut u8, len).expect("adopt after a failure");
    release(&enough, 0, at as *mut u8, len).expect("release");
    unmap(at as *mut u8, len);
}

/// Answers userfaultfd by EPERM from now on, in this process and what it starts.
fn deny_userfaultfd() -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let filter = [
        // The number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_userfaultfd as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY:
    // - the kernel copies the program, which lives here
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// All of that once more in a process that may not have a userfaultfd, of an ordinary user: other threads are stopped there.
#[test]
fn as_an_ordinary_user() {
    use std::os::unix::process::CommandExt;
    if std::env::var_os(ORDINARY).is_some() {
        assert!(adopt::available().is_err(), "there is a userfaultfd");
        assert_eq!(adopt::way(), Ok(adopt::Way::Halt));
        return;
    }
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args([
            "--test-threads=2",
            "--skip",
            "huge_pages",
            "--skip",
            "devices",
        ])
        .env(ORDINARY, "1");
    let drop_rights = || {
        const NOBODY: u32 = 65534;
        // SAFETY:
        // - numbers; of the process that is going to be the other program
        unsafe {
            if libc::geteuid() == 0
                && (libc::setgroups(0, ptr::null()) != 0
                    || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
                    || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0)
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        deny_userfaultfd()
    };
    // SAFETY:
    // - the closure makes system calls only
    unsafe { command.pre_exec(drop_rights) };
    let output = command.output().expect("this program again");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
