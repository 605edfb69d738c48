//! The interface for Rust in jobs of several processes. Each test starts this program again, with its own name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use unipgas_core::Error;
use unipgas_core::job::{Board, RankState};
use unipgas_ircce::environment::{finalize, init};
use unipgas_ircce::launch::LaunchSettings;
use unipgas_ircce::scope::RequestStatus;
use unipgas_ircce::status::Result;
use unipgas_ircce::wait_list::RequestResult;
use unipgas_ircce::{Failure, Ue};
use unipgas_launcher::{Exit, JobOutcome, Launch, Output};

/// Variable with the name of the rank's test.
const TEST: &str = "UNIPGAS_TEST_IRCCE_RUST";

/// Lengths around the limits of messages: lines, MPBs, and the engine's thresholds.
const LENGTHS: [usize; 12] = [
    0,
    1,
    31,
    32,
    33,
    4096,
    8191,
    8192,
    8193,
    65_536,
    65_537,
    1 << 20,
];

/// Whether this process is a rank of the test. Otherwise starts `size` ranks on each backend, on chaos under `seeds`, and checks their exits.
fn is_rank(test: &str, size: u32, seeds: u64, judge: fn(&JobOutcome) -> bool) -> bool {
    if std::env::var_os(TEST).is_some_and(|name| name == test) {
        unipgas_backends::init();
        return true;
    }
    let chaos = (1..=seeds).map(|seed| ("chaos", seed));
    for (backend, seed) in [("shm", 1), ("streams", 1)].into_iter().chain(chaos) {
        let mut launch = Launch::new(size, std::env::current_exe().expect("this program"));
        launch.args = ["--exact", test, "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .to_vec();
        launch.env = vec![(TEST.into(), test.into())];
        launch.backend = Some(backend.into());
        launch.seed = Some(seed);
        launch.keep_going = true;
        launch.output = Output::Capture;
        let outcome = launch.run().expect("the job starts");
        let text = |rank: &unipgas_launcher::RankOutcome| {
            let errors = String::from_utf8_lossy(&rank.stderr);
            format!("rank {} {}\n{errors}", rank.rank, rank.exit)
        };
        let texts: String = outcome.ranks.iter().map(text).collect();
        assert!(
            judge(&outcome),
            "{test} on {backend} under seed {seed}: {texts}"
        );
    }
    false
}

macro_rules! ranks {
    ($($test:ident: $body:ident, $size:literal, $seeds:literal;)*) => {$(
        #[test]
        fn $test() {
            if is_rank(stringify!($test), $size, $seeds, JobOutcome::success) {
                let ue = init(&[]).expect("the UE starts");
                $body(ue).expect("every call succeeds");
                finalize().expect("the UE ends");
            }
        }
    )*};
}

ranks! {
    messages_go_round: ring, 4, 20;
    a_scope_ends_with_its_requests: left, 3, 20;
    lists_give_requests_back: list, 4, 20;
    an_error_ends_a_scope: failed, 2, 20;
}

#[test]
fn a_death_ends_a_scope() {
    let judge = |outcome: &JobOutcome| {
        let ends: Vec<_> = outcome.ranks.iter().map(|rank| rank.exit).collect();
        ends == [Exit::Code(0), Exit::Code(0), Exit::Signal(libc::SIGKILL)]
    };
    if is_rank("a_death_ends_a_scope", 3, 1, judge) {
        death(init(&[]).expect("the UE starts")).expect("calls succeed but for the scope");
        std::process::exit(0);
    }
}

#[test]
fn ues_are_connected_when_they_need_it() {
    if is_rank(
        "ues_are_connected_when_they_need_it",
        48,
        1,
        JobOutcome::success,
    ) {
        connections().expect("every call succeeds");
    }
}

/// A barrier of the live ranks. It uses no call of RCCE.
fn meet() {
    static TURN: AtomicU64 = AtomicU64::new(0);
    const KEY: &str = "rust.turn";
    let variable = |name| std::env::var(name).expect("set by the launcher");
    let board = Board::attach(&variable("UNIPGAS_JOB")).expect("the job's board");
    let me = variable("UNIPGAS_RANK").parse().expect("a rank");
    let turn = TURN.fetch_add(1, Ordering::Relaxed) + 1;
    let published = board.publish(me, KEY, &turn.to_le_bytes());
    published.expect("room on the board");
    for rank in 0..board.size() {
        let has_come = || {
            let told = board.fetch(rank, KEY).ok().flatten();
            let told = told.and_then(|bytes| bytes.try_into().ok());
            told.map_or(0, u64::from_le_bytes) >= turn
        };
        while !has_come() && board.state(rank) != Ok(RankState::Dead) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The bytes of message `nth`: the same on all UEs.
fn content(nth: u64, len: usize) -> Vec<u8> {
    let of = |at: u64| (nth << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |at: u64| (of(at) >> 56) as u8;
    (0..len as u64).map(byte).collect()
}

fn receive(ue: &Ue, len: usize, source: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    ue.receive(&mut bytes, Some(source))?;
    Ok(bytes)
}

/// Messages of every length go round. All UEs send and receive at once, within scopes.
fn ring(ue: &Ue) -> Result<()> {
    let n = ue.num();
    let (to, from) = ((ue.id() + 1) % n, (ue.id() + n - 1) % n);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        let salt = |id: u32| nth as u64 * 64 + u64::from(id);
        let data = content(salt(ue.id()), len);
        let mut room = vec![0x33; len + 1];
        let seen = ue.scope(|s| {
            let send = s.isend(&data, to)?;
            let receive = s.irecv(&mut room, (nth % 2 == 0).then_some(from))?;
            if nth % 3 == 0 {
                while !receive.test()? {
                    ue.push_sends()?;
                }
            }
            let message = receive.wait()?;
            let seen = (message.source, message.len, send.dest());
            send.wait()?;
            Ok::<_, Failure>(seen)
        })?;
        assert_eq!(seen, (from, len, to), "source, length and receiver");
        assert!(
            room[..len] == content(salt(from), len) && room[len] == 0x33,
            "the message of {len} bytes is wrong"
        );
        ue.barrier(&ue.comm_world())?;
    }
    Ok(())
}

/// A scope ends after its requests, even if the program has not waited for them.
fn left(ue: &Ue) -> Result<()> {
    for round in 0..10u64 {
        let len = [30, 3000, 70_000][round as usize % 3];
        let of =
            |from: u32, to: u32| content(round * 100 + u64::from(from) * 10 + u64::from(to), len);
        let others: Vec<u32> = (0..ue.num()).filter(|id| *id != ue.id()).collect();
        let data: Vec<_> = others.iter().map(|to| of(ue.id(), *to)).collect();
        let mut rooms: Vec<_> = others.iter().map(|_| vec![0; len]).collect();
        ue.scope(|s| {
            for ((data, room), id) in data.iter().zip(&mut rooms).zip(&others) {
                // Neither dropped nor forgotten requests are lost.
                let _ = s.irecv(room, Some(*id))?;
                Box::leak(Box::new(s.isend(data, *id)?));
            }
            Ok::<_, Failure>(())
        })?;
        for (room, from) in rooms.iter().zip(&others) {
            assert!(
                *room == of(*from, ue.id()),
                "the message of UE {from} in round {round} is wrong"
            );
        }
    }
    Ok(())
}

/// Lists return requests one by one as they end, with source and length of each message.
fn list(ue: &Ue) -> Result<()> {
    const EACH: u64 = 12;
    let len = |from: u32, nth: u64| (u64::from(from) * 700 + nth * 997) as usize % 9000;
    let of = |from: u32, nth: u64| content(u64::from(from) << 8 | nth, len(from, nth));
    if ue.id() != 0 {
        let data: Vec<_> = (0..EACH).map(|nth| of(ue.id(), nth)).collect();
        return ue.scope(|s| {
            let mut list = s.wait_list();
            for data in &data {
                list.add_send(s.isend(data, 0)?);
            }
            for finished in list.wait_all()? {
                finished.ended?;
            }
            Ok(())
        });
    }
    let senders = ue.num() - 1;
    let mut rooms = vec![vec![0; 9000]; (EACH * u64::from(senders)) as usize];
    let mut seen = vec![0; ue.num() as usize];
    let (mut wrong, mut random) = (None, 9u64);
    ue.scope(|s| {
        let mut list = s.wait_list();
        for room in &mut rooms {
            list.add_receive(s.irecv(room, None)?);
        }
        let mut given = vec![false; list.len()];
        while !list.is_empty() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let found = if random >> 63 == 0 {
                list.wait_any()?
            } else {
                list.test_any()?
            };
            let Some(finished) = found else {
                continue;
            };
            let number = finished.number;
            let RequestResult::Received(message) = finished.ended? else {
                wrong = Some("a send in a list of receives".to_string());
                break;
            };
            // Wildcard receives take the messages of a sender in order.
            let nth = seen[message.source as usize];
            if std::mem::replace(&mut given[number], true)
                || message.bytes().is_empty() != (len(message.source, nth) == 0)
            {
                wrong = Some(format!(
                    "member {number} came twice, or with another length"
                ));
            }
            seen[message.source as usize] += 1;
        }
        Ok::<_, Failure>(())
    })?;
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    assert_eq!(seen[1..], vec![EACH; senders as usize], "messages of each");
    for from in 1..=senders {
        for nth in 0..EACH {
            let expected = of(from, nth);
            let found = rooms
                .iter()
                .filter(|room| room[..expected.len()] == expected);
            assert!(
                found.count() > 0,
                "message {nth} of UE {from} is in no buffer"
            );
        }
    }
    Ok(())
}

/// After an error, receives without a message are cancelled, and begun messages are received. No buffer is written later.
fn failed(ue: &Ue) -> Result<()> {
    for len in [20, 3000, 70_000] {
        let data = content(len as u64, len);
        if ue.id() == 1 {
            meet();
            assert!(
                receive(ue, len, 0)? == data,
                "wrong data in the first message"
            );
            // If the second send had begun, its bytes are here too.
            meet();
            while let Some(more) = ue.try_probe(Some(0))? {
                receive(ue, more.len, 0)?;
            }
            ue.send(&[1; 40], 0)?;
            continue;
        }
        let mut rooms = [[0xaa; 64]; 2];
        let ended: Result<(), Failure> = ue.scope(|s| {
            let [first, second] = &mut rooms;
            let _ = (s.irecv(first, Some(1))?, s.irecv(second, None)?);
            let begun = s.isend(&data, 1)?;
            let waits = s.isend(&data, 1)?;
            let states = (begun.status(), waits.status());
            assert_eq!(states, (RequestStatus::Pending, RequestStatus::Reserved));
            meet();
            Err(Failure::NotRunning)
        });
        assert_eq!(ended, Err(Failure::NotRunning), "the error of the body");
        drop(data);
        meet();
        assert!(
            receive(ue, 40, 1)? == [1; 40],
            "a message after the scope is wrong"
        );
        assert_eq!(
            rooms, [[0xaa; 64]; 2],
            "buffers of receives that were taken back"
        );
    }
    Ok(())
}

/// After the death of a UE the scope ends with an error. Its buffers are not used later.
fn death(ue: &Ue) -> Result<()> {
    ue.barrier(&ue.comm_world())?;
    if ue.id() == 2 {
        // The requests of the others have begun.
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY:
        // - ends this process.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    if ue.id() == 1 {
        meet();
        let failure = ue.send(&[1; 40], 0);
        assert_eq!(failure, Ok(()), "a message between live UEs");
        return Ok(());
    }
    let mut rooms = vec![vec![0xaa; 70_000]; 3];
    let long = vec![1; 70_000];
    let ended = {
        let [first, second, third] = &mut rooms[..] else {
            unreachable!("three of them")
        };
        ue.scope(|s| {
            let _ = (s.irecv(first, Some(2))?, s.irecv(second, None)?);
            let _ = (s.isend(&long, 2)?, s.isend(&long, 1)?);
            s.irecv(third, Some(2))?.wait().map(|_| ())
        })
    };
    assert_eq!(
        ended,
        Err(Failure::Engine(Error::RankDead(2))),
        "the end of the scope"
    );
    drop(long);
    meet();
    let mut room = [0; 40];
    let received = ue.receive(&mut room, Some(1))?;
    assert_eq!((received.len, room), (40, [1; 40]), "the message of UE 1");
    assert!(
        rooms.iter().flatten().all(|byte| *byte == 0xaa),
        "a buffer of the scope was written after it"
    );
    Ok(())
}

/// A start connects no UEs. A barrier of n UEs connects each to about log n others. A call connects to its target.
fn connections() -> Result<()> {
    // C programs read the addresses of all MPBs from a variable. It requires connections to all UEs.
    let wishes = LaunchSettings::from_env().expect("the environment is right");
    let ue = Ue::start(&wishes, &[])?;
    let n = ue.num();
    let so_far = || ue.world().connections();
    assert_eq!(so_far(), 0, "connections after the start");
    let world = ue.comm_world();
    for _ in 0..3 {
        ue.air_barrier(&world)?;
    }
    // The UE of the counters, and the children in the tree.
    assert!(so_far() <= 3, "{} connections for iRCCE_barrier", so_far());
    for _ in 0..3 {
        ue.barrier(&world)?;
    }
    let log = n.next_power_of_two().trailing_zeros();
    let of_barriers = so_far();
    assert!(
        of_barriers <= 3 + log + 1,
        "{of_barriers} connections for barriers of {n} UEs"
    );
    // UE 0 holds the registers and the shared memory.
    let register = ue.atomic_alloc().expect("a register");
    ue.atomic_inc(register).map(drop)?;
    // None if the memory of other processes is not mapped.
    let shared = ue.shmalloc(64);
    assert_eq!(so_far(), of_barriers, "connections after allocations");
    let place = ue.malloc(64).expect("room in the MPB");
    let to = (ue.id() + n / 2 + 5) % n;
    ue.put(place, &[7; 64], to)?;
    assert!(
        so_far() <= of_barriers + 1,
        "a put has connected {} UEs",
        so_far() - of_barriers
    );
    if let Some(shared) = shared {
        assert!(ue.shfree(shared.as_ptr()), "RCCE_shfree");
    }
    ue.finalize()
}
