//! Adoption in separate processes: without the right to a full userfaultfd, with initialised data, and after `fork`.

#[path = "adopt/memory.rs"]
#[allow(dead_code, reason = "tests with threads use more")]
mod memory;

use std::os::fd::OwnedFd;

use rustix::mm::{self, MapFlags};
use unipgas_shm::adopt::{self, Refusal};

use memory::{PAGE, adopt, map, memfd, pages_of, release};

const NOBODY: libc::c_long = 65534;

/// Root drops its rights. Other users have none.
fn become_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // SAFETY:
    // - the raw call changes this thread alone, and takes no pointers
    let failed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(failed, 0);
}

fn private_page() -> *mut u8 {
    map(PAGE, MapFlags::PRIVATE)
}

fn page_of(word: *const u64) -> *mut u8 {
    pages_of(word.cast(), 1).0
}

/// Reads the word from the file. Its page was adopted at offset 0.
fn in_file(fd: &OwnedFd, word: *const u64) -> u64 {
    let mut seen = [0_u8; 8];
    assert_eq!(
        rustix::io::pread(fd, &mut seen, (word as usize % PAGE) as u64),
        Ok(8)
    );
    u64::from_ne_bytes(seen)
}

/// A private page, a page of initialised data, and the caller's own stack.
fn alone_and_without_rights() {
    static mut DATA: [u64; 2048] = [77; 2048];
    become_nobody();
    adopt::available().expect_err("adoption by an unprivileged user with threads");
    let fd = memfd(PAGE);
    let local = std::hint::black_box([77_u64; 8]);
    let private: *mut u64 = private_page().cast();
    // SAFETY:
    // - the mapping just made
    unsafe { private.write(77) };
    let data = (&raw mut DATA).cast::<u64>().wrapping_add(1024);
    for (what, word) in [
        ("private", private),
        ("data", data),
        ("stack", local.as_ptr().cast_mut()),
    ] {
        for round in 78..178 {
            adopt(&fd, 0, page_of(word), PAGE).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(in_file(&fd, word), round - 1, "{what}");
            // SAFETY:
            // - a mapped word that only this function uses
            unsafe { word.write_volatile(round) };
            assert_eq!(in_file(&fd, word), round, "{what}");
            release(&fd, 0, page_of(word), PAGE).unwrap_or_else(|e| panic!("{what}: {e}"));
            // SAFETY:
            // - a mapped word that only this function uses
            assert_eq!(unsafe { word.read_volatile() }, round, "{what}");
        }
    }
}

/// Initialised data becomes ordinary memory. Then it is adopted while another thread runs.
fn settled_data() {
    static mut DATA: [u64; 2048] = [77; 2048];
    // SAFETY:
    // - the program's data stays mapped until exit
    let first = unsafe { adopt::settle_static_data() };
    // SAFETY:
    // - as above
    let second = unsafe { adopt::settle_static_data() };
    assert!(first.expect("one thread") > 0);
    assert_eq!(second, Ok(0));
    let word = (&raw mut DATA).cast::<u64>().wrapping_add(1024);
    let fd = memfd(PAGE);
    let parked = std::thread::spawn(std::thread::park);
    // SAFETY:
    // - the program's data stays mapped until exit
    let third = unsafe { adopt::settle_static_data() };
    assert_eq!(third, Err(Refusal::FileBacked));
    adopt(&fd, 0, page_of(word), PAGE).expect("ordinary memory by now");
    // SAFETY:
    // - a word of a static that only this function uses
    assert_eq!(unsafe { word.read_volatile() }, 77);
    assert_eq!(in_file(&fd, word), 77);
    // SAFETY:
    // - as above
    unsafe { word.write_volatile(78) };
    assert_eq!(in_file(&fd, word), 78);
    parked.thread().unpark();
    parked.join().expect("the parked thread");
}

/// Adopted pages are not inherited; released ones are.
fn children_do_not_inherit() {
    let page = private_page();
    let fd = memfd(PAGE);
    let inherited = || {
        in_child(|| {
            // SAFETY:
            // - reads no memory: checks whether the page is mapped
            assert!(unsafe { mm::msync(page.cast(), PAGE, mm::MsyncFlags::ASYNC) }.is_ok());
        })
    };
    assert!(inherited());
    adopt(&fd, 0, page, PAGE).expect("adopt");
    assert!(!inherited());
    // The child creates new descriptors, and adopts its own memory.
    assert!(in_child(|| {
        let (own, fd) = (private_page(), memfd(PAGE));
        // SAFETY:
        // - this process's own page and file
        unsafe { own.write(9) };
        adopt(&fd, 0, own, PAGE).expect("adopt in the child");
        assert_eq!(in_file(&fd, own.cast()), 9);
    }));
    release(&fd, 0, page, PAGE).expect("release");
    assert!(inherited());
}

/// Whether `body` succeeds in a forked child, which has one thread.
fn in_child(body: impl FnOnce()) -> bool {
    // SAFETY:
    // - the parent's other threads hold no lock that the child needs
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY:
        // - ends the child
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY:
    // - waits for the child just made
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    libc::WEXITSTATUS(status) == 0
}

/// One test, because children of a harness that runs other tests at the same time would inherit their locks.
#[test]
fn in_processes_of_their_own() {
    assert!(in_child(alone_and_without_rights));
    assert!(in_child(settled_data));
    assert!(in_child(children_do_not_inherit));

    if !rustix::process::geteuid().is_root() {
        // A thread of an ordinary user cannot become another one.
        return;
    }
    // Here the harness's own thread runs too.
    let refused = std::thread::spawn(move || {
        become_nobody();
        let why = adopt::available().expect_err("adoption by an unprivileged user");
        let page = private_page();
        let refusal =
            adopt(&memfd(PAGE), 0, page, PAGE).expect_err("adoption by an unprivileged user");
        assert!(why.contains("unprivileged_userfaultfd"), "{why}");
        // A process that has changed its user is not dumpable: its threads cannot be stopped either.
        assert!(
            matches!(&refusal, Refusal::NotPermitted(text) if text.starts_with(&why) && text.contains("dumpable")),
            "{refusal:?}"
        );
    });
    refused.join().expect("refused in words");
}
