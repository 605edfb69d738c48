//! Stacks, of the caller and of other threads.

use std::os::fd::OwnedFd;
use std::ptr;

use rustix::mm::MapFlags;
use unipgas_shm::adopt::Refusal;

use crate::memory::{PAGE, adopt, map, map_at, map_file, memfd, pages_of, release, unmap};
use crate::rounds_of;

/// The range contains the caller's frames and the frames of its calls, so the swap cannot write there.
#[test]
fn the_callers_own_stack() {
    fn deep(fd: &OwnedFd, round: u8) {
        let mut here = [round; 100];
        let at = std::hint::black_box(here.as_mut_ptr());
        // The page of the variable, and the pages below, with the frames of the calls from here.
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

/// Calls from a frame below all frames of the callers.
#[inline(never)]
fn stack_and_heap(fd: &OwnedFd, round: usize) {
    let mut mine = [round as u64; 16];
    let (first, len) = pages_of(mine.as_ptr().cast(), size_of_val(&mine));
    let heap: Vec<u8> = vec![round as u8; 1 + round * 7 % 5000];
    let (block, block_len) = pages_of(heap.as_ptr(), heap.len());
    adopt(fd, 0, first, len).expect("the stack");
    let heap_is_mine = adopt(fd, 16 * PAGE, block, block_len);
    mine[3] += 1;
    std::hint::black_box(&mut mine);
    // Heap blocks of both threads may share a page. The second adoption then fails with `AlreadyShared`.
    match heap_is_mine {
        Ok(()) => release(fd, 16 * PAGE, block, block_len).expect("release the heap"),
        Err(refusal) => assert_eq!(refusal, Refusal::AlreadyShared),
    }
    release(fd, 0, first, len).expect("release the stack");
    assert!(heap.iter().all(|byte| *byte == round as u8));
    assert_eq!((mine[2], mine[3]), (round as u64, round as u64 + 1));
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
                    stack_and_heap(&fd, round);
                }
                std::hint::black_box(&mut room);
            });
        }
    });
}

/// The page that the kernel writes at the end of a thread stays private, for a call of any thread. So a join that began before the
/// swap ends.
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
            // Both results are right: they depend on the size of the thread-local memory in between.
            match adopt(&fd, 0, first, len) {
                // The C library may reuse the stack for another thread.
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

/// A heap may begin right behind a stack, at the end of the thread's control block.
#[test]
fn the_page_behind_a_threads_control_block_is_adopted() {
    // The minimum on some machines.
    const STACK: usize = 64 * PAGE;
    extern "C" fn adopts_behind_its_stack(end: *mut libc::c_void) -> *mut libc::c_void {
        let fd = memfd(2 * PAGE);
        let behind = end.cast::<u8>();
        // SAFETY:
        // - no preconditions
        let block = unsafe { libc::pthread_self() } as *const u8;
        let (first, len) = pages_of(block, 1);
        assert_eq!(adopt(&fd, 0, first, len), Err(Refusal::ThreadControl));
        adopt(&fd, 0, behind, PAGE).expect("memory of only the program");
        release(&fd, 0, behind, PAGE).expect("release");
        ptr::null_mut()
    }
    let at = map(STACK + PAGE, MapFlags::PRIVATE);
    // SAFETY:
    // - the thread's stack is the first pages of the mapping; the thread is joined before the mapping is dropped
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

/// A stack still grows below an adopted page that was its lowest page.
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
