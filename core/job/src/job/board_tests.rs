use std::process::Command;
use std::sync::atomic::Ordering;

use super::*;

fn pair(size: u32) -> (Board, OwnedFd, Board) {
    let (board, fd) = Board::create(size).unwrap();
    let other = Board::attach(&board.token()).unwrap();
    (board, fd, other)
}

#[test]
fn what_one_attachment_publishes_the_other_fetches() {
    let (a, _fd, b) = pair(3);
    assert_eq!((b.size(), b.job_id, b.cpus()), (3, a.job_id, a.cpus()));
    assert_eq!(b.fetch(1, "addr").unwrap(), None);
    a.publish(1, "addr", b"hello").unwrap();
    a.publish(1, "empty", b"").unwrap();
    assert_eq!(b.fetch(1, "addr").unwrap().unwrap(), b"hello");
    assert_eq!(b.fetch(1, "empty").unwrap().unwrap(), b"");
    assert_eq!(b.fetch(2, "addr").unwrap(), None);
    a.publish(1, "addr", &[7; MAX_VALUE]).unwrap();
    assert_eq!(b.fetch(1, "addr").unwrap().unwrap(), [7; MAX_VALUE]);
}

#[track_caller]
fn invalid<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::InvalidArgument(_))));
}

#[test]
fn arguments_out_of_range_are_refused() {
    invalid(Board::create(0));
    invalid(Board::create(MAX_SIZE + 1));
    let (a, _fd, _b) = pair(2);
    invalid(a.publish(2, "k", b""));
    invalid(a.publish(0, "", b""));
    invalid(a.publish(0, &"k".repeat(MAX_KEY + 1), b""));
    invalid(a.publish(0, "k", &[0; MAX_VALUE + 1]));
    invalid(a.fetch(u32::MAX, "k"));
    invalid(a.set_pid(2, 1));
    for index in 0..SLOTS_PER_RANK {
        a.publish(0, &format!("{index}{}", "k".repeat(29)), b"v")
            .unwrap();
    }
    assert!(matches!(
        a.publish(0, "one more", b"v"),
        Err(Error::Exhausted(_))
    ));
    a.publish(0, &format!("3{}", "k".repeat(29)), b"again")
        .unwrap();
}

#[test]
fn tokens_that_lead_nowhere_are_refused() {
    for token in [
        "", "1", "1:2", "1:2:3:4", "a:b:c", "0:1:2", "1:1:-1", "-1:0:0",
    ] {
        invalid(Board::attach(token));
    }
    let unreachable = |token: &str| {
        let attached = Board::attach(token);
        assert!(matches!(attached, Err(Error::Unreachable(_))), "{token}");
    };
    let (a, fd, _b) = pair(1);
    let start = process_start_time(std::process::id()).unwrap();
    let pid = std::process::id();
    // A wrong start time, a file of another kind, and no file.
    let null = std::fs::File::open("/dev/null").unwrap();
    for token in [
        format!("{pid}:{}:{}", start + 1, fd.as_raw_fd()),
        format!("{pid}:{start}:{}", null.as_raw_fd()),
        format!("{pid}:{start}:1000000"),
    ] {
        unreachable(&token);
    }
    let token = a.token();
    drop(fd);
    unreachable(&token);
}

#[test]
fn a_memfd_that_is_not_a_board_is_refused() {
    let fd =
        rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let pid = std::process::id();
    let start = process_start_time(pid).unwrap();
    let token = format!("{pid}:{start}:{}", fd.as_raw_fd());
    let refused = |why: &str| match Board::attach(&token) {
        Err(Error::Unreachable(text)) => assert!(text.contains(why), "{text} has no {why}"),
        other => panic!("{other:?}"),
    };
    rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
    refused("not sealed");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    refused("magic");
    let header = |at: usize, bytes: &[u8]| {
        assert_eq!(rustix::io::pwrite(&fd, bytes, at as u64), Ok(bytes.len()))
    };
    header(H_MAGIC, &MAGIC.to_ne_bytes());
    refused("version 0");
    header(H_VERSION, &VERSION.to_ne_bytes());
    refused("another process");
    header(H_PID, &pid.to_ne_bytes());
    header(H_START, &start.to_ne_bytes());
    header(H_SIZE, &u32::MAX.to_ne_bytes());
    refused("inconsistent");
    header(H_SIZE, &3u32.to_ne_bytes());
    refused("inconsistent");
}

#[test]
fn fences_leave_out_the_dead_and_the_finalized() {
    let (a, _fd, b) = pair(4);
    assert!(a.arrived(0) && !a.arrived(1));
    for rank in 0..2 {
        a.set_state(rank, RankState::Joined).unwrap();
        a.arrive(rank, 2).unwrap();
    }
    assert!(!b.arrived(1));
    b.set_state(2, RankState::Finalized).unwrap();
    assert_eq!(a.deaths(), 0);
    b.mark_dead(3).unwrap();
    b.mark_dead(3).unwrap();
    assert_eq!((a.deaths(), a.state(3).unwrap()), (1, RankState::Dead));
    assert!(b.arrived(1) && b.arrived(2) && !b.arrived(3));
    a.arrive(0, 1).unwrap();
    assert!(b.arrived(2), "epochs never go back");
    a.set_state(3, RankState::Joined).unwrap();
    assert_eq!(b.state(3).unwrap(), RankState::Dead);
    a.set_pid(3, 4711).unwrap();
    assert_eq!((b.pid(3).unwrap(), b.pid(0).unwrap()), (4711, 0));
}

#[test]
fn the_last_one_to_arrive_wakes_the_others() {
    let (a, _fd, b) = pair(2);
    let forever = Duration::from_secs(3600);
    let sleep = |epoch| {
        let mut answers = 0;
        while a
            .sleep(forever, || {
                answers += 1;
                Ok(a.arrived(epoch).then_some(()))
            })
            .unwrap()
            .is_none()
        {}
        answers
    };
    let wait_for_sleeper = || {
        while b.word(H_SLEEPERS).load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    };
    assert_eq!(sleep(0), 1, "nobody to wait for");
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            a.arrive(0, 1).unwrap();
            sleep(1)
        });
        wait_for_sleeper();
        b.arrive(1, 1).unwrap();
        assert!(sleeper.join().unwrap() >= 1);
    });
    assert_eq!(b.word(H_SLEEPERS).load(Ordering::SeqCst), 0);
    // A death wakes, too, and so does each ring.
    let before = b.changes();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| sleep(2));
        a.arrive(0, 2).unwrap();
        wait_for_sleeper();
        b.mark_dead(1).unwrap();
        sleeper.join().unwrap();
    });
    assert_ne!(b.changes(), before);
    assert!(
        a.sleep(forever, || Err::<Option<()>, _>(Error::Timeout))
            .is_err()
    );
    assert_eq!(b.word(H_SLEEPERS).load(Ordering::SeqCst), 0);
}

#[test]
fn readers_never_see_half_a_value() {
    let (a, _fd, b) = pair(1);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40_000u32 {
                let len = 1 + round as usize % MAX_VALUE;
                a.publish(0, "k", &vec![round as u8; len]).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut seen = 0u32;
        while !done.load(Ordering::Acquire) {
            if let Some(value) = b.fetch(0, "k").unwrap() {
                assert!(value.iter().all(|&byte| byte == value[0]), "{value:?}");
                seen += 1;
            }
        }
        assert!(seen > 0);
    });
    assert_eq!(b.fetch(0, "k").unwrap().unwrap()[0], 39_999u32 as u8);
}

#[test]
fn a_writer_that_died_in_the_middle_blocks_nobody() {
    let (a, _fd, b) = pair(1);
    a.publish(0, "before", b"1").unwrap();
    a.publish(0, "victim", b"2").unwrap();
    let victim = a.slot(0, 1);
    victim.0[slot::S_SEQ].fetch_add(1, Ordering::Relaxed);
    assert_eq!(b.fetch(0, "victim").unwrap(), None);
    assert_eq!(b.fetch(0, "before").unwrap().unwrap(), b"1");
    a.publish(0, "victim", b"3").unwrap();
    assert_eq!(b.fetch(0, "victim").unwrap().unwrap(), b"3");
}

#[test]
fn garbage_in_the_memory_harms_nobody() {
    let (a, _fd, b) = pair(5);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200u32 {
        for word in 0..a.len / 4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = match round % 4 {
                0 => u32::MAX,
                1 => (state as u32) & 0xffff,
                // An even version above lengths of each kind.
                2 => (state as u32) & !1,
                _ => state as u32,
            };
            a.word(word * 4).store(value, Ordering::Relaxed);
        }
        for rank in 0..5 {
            let _ = b.fetch(rank, "k").unwrap();
            let _ = b.state(rank).unwrap();
            let _ = b.pid(rank).unwrap();
            let _ = b.publish(rank, "k", b"v");
        }
        let _ = (b.arrived(7), b.deaths(), b.changes());
        let _ = b.arrive(round % 5, round);
        b.ring();
        assert_eq!(b.size(), 5);
        let _ = Board::attach(&b.token());
    }
}

/// The test starts itself again. The child finds the board in its environment.
#[test]
fn two_processes_share_a_board() {
    if let Ok(token) = std::env::var("UNIPGAS_TEST_BOARD") {
        return answer_the_parent(&token);
    }
    let (board, _fd) = Board::create(2).unwrap();
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::two_processes_share_a_board");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test])
        .env("UNIPGAS_TEST_BOARD", board.token())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    board.publish(0, "question", b"?").unwrap();
    board.arrive(0, 1).unwrap();
    while !board.arrived(1) {
        assert!(
            child
                .try_wait()
                .unwrap()
                .is_none_or(|status| status.success())
        );
        std::thread::yield_now();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(
        board.fetch(1, "answer").unwrap().unwrap(),
        board.job_id.to_ne_bytes()
    );
    assert_eq!(
        (board.state(1).unwrap(), board.pid(1).unwrap()),
        (RankState::Joined, child.id())
    );
}

fn answer_the_parent(token: &str) {
    let board = Board::attach(token).unwrap();
    board.set_state(1, RankState::Joined).unwrap();
    board.set_pid(1, std::process::id()).unwrap();
    while board.fetch(0, "question").unwrap().is_none() {
        std::thread::yield_now();
    }
    board
        .publish(1, "answer", &board.job_id.to_ne_bytes())
        .unwrap();
    board.arrive(1, 1).unwrap();
}
