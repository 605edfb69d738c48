//! Actions of other threads during a swap, and failures during a swap.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::MapFlags;
use unipgas_shm::adopt::{AdoptionMethod, Refusal, way as adopt_way};

use crate::memory::{PAGE, adopt, bump, map, memfd, read, release, unmap};
use crate::rounds_of;

/// mremap of memory that a network watches waits for the thread that reads the event.
#[test]
fn watched_memory_is_adopted() {
    use unipgas_core::userfaultfd::{FaultKinds, Features, Userfaultfd};
    let Ok(events) = Userfaultfd::of_user_code() else {
        return;
    };
    let wanted =
        Features::WP | Features::EVENT_REMAP | Features::EVENT_REMOVE | Features::EVENT_UNMAP;
    if events.handshake(wanted).is_err() || adopt_way() != Ok(AdoptionMethod::Halt) {
        return;
    }
    let (at, fd) = (map(PAGE, MapFlags::PRIVATE), memfd(PAGE));
    let range = at as usize..at as usize + PAGE;
    events
        .register(&range, FaultKinds::Protected)
        .expect("private memory");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let listener = std::thread::Builder::new().name(unipgas_core::LISTENER.into());
        let (named, is_named) = std::sync::mpsc::channel();
        let (stop, events) = (&stop, &events);
        let listens = listener.spawn_scoped(scope, move || {
            let mut message = [0; 32];
            named.send(()).expect("a receiver");
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::io::read(events, &mut message);
                std::thread::yield_now();
            }
        });
        listens.expect("a thread");
        is_named.recv().expect("its word");
        let outcome = adopt(&fd, 0, at, PAGE).and_then(|()| release(&fd, 0, at, PAGE));
        stop.store(true, Ordering::Relaxed);
        outcome.expect("ordinary memory");
    });
    drop(events);
    unmap(at, PAGE);
}

const VICTIM: &str = "UNIPGAS_TEST_VICTIM";

/// The task that swaps ends with its process, even in a mremap with an unread event. A remaining task would keep the
/// process a zombie, since it traces the threads.
#[test]
fn watched_memory_is_adopted_unless_the_process_is_killed() {
    use std::process::{Command, Stdio};
    use unipgas_core::userfaultfd::{FaultKinds, Features, Userfaultfd};
    let Ok(events) = Userfaultfd::of_user_code() else {
        return;
    };
    let wanted = Features::WP | Features::EVENT_REMAP | Features::EVENT_UNMAP;
    if events.handshake(wanted).is_err() || adopt_way() != Ok(AdoptionMethod::Halt) {
        return;
    }
    if std::env::var_os(VICTIM).is_some() {
        let (at, fd) = (map(PAGE, MapFlags::PRIVATE), memfd(PAGE));
        let range = at as usize..at as usize + PAGE;
        events
            .register(&range, FaultKinds::Protected)
            .expect("private memory");
        let _ = adopt(&fd, 0, at, PAGE);
        panic!("adopted although the event is not read");
    }
    let mut victim = Command::new("/proc/self/exe")
        .args([
            "--exact",
            "others::watched_memory_is_adopted_unless_the_process_is_killed",
        ])
        .env(VICTIM, "1")
        .stdout(Stdio::null())
        .spawn()
        .expect("this program again");
    let task = loop {
        let ended = victim.try_wait().expect("a child");
        assert!(ended.is_none(), "{ended:?} before the swap");
        if let Some((task, 'D')) = child_of(victim.id()) {
            break task;
        }
        std::thread::yield_now();
    };
    victim.kill().expect("a child");
    victim.wait().expect("a child");
    while std::fs::exists(format!("/proc/{task}")).expect("/proc") {
        std::thread::yield_now();
    }
}

/// A child of the process, and its state letter (proc_pid_stat(5)).
fn child_of(process: u32) -> Option<(u32, char)> {
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let task = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?.chars().next()?;
            (fields.next()?.parse() == Ok(process)).then_some((task, state))
        })
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

/// The copy to a file that is too short fails during the swap. All memory must be as before.
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
