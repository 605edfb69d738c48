//! Real groups of 2 to 1,000 processes send the numbers of messages that the simulation counts.
//!
//! The processes are places of the engine's loopback, behind a transport that counts and maps nothing. One thread executes all of them: an operation that must
//! wait returns a timeout, and continues in the next call.

mod counted;

use std::sync::Arc;

use counted::{AccessCounts, CountingTransport};
use unipgas_core::bootstrap::LoopbackJob;
use unipgas_core::group::{Forming, RankGroup};
use unipgas_core::job::Job as EngineJob;
use unipgas_core::loopback::LoopbackNet;
use unipgas_core::schedule::{AllReduce, Barrier, Broadcast, FEW, Schedule, Shapes};
use unipgas_core::{Deadline, Engine, Error, World};
use unipgas_tofud::sim::{Fidelity, SentCounts, SimResult, SimSetting, simulate};
use unipgas_tofud::{Figures, JobLayout};

/// One of the processes.
struct Process {
    world: Arc<World>,
    counts: Arc<AccessCounts>,
}

fn processes(n: u32) -> Vec<Process> {
    let net = Arc::new(LoopbackNet::default());
    let job = LoopbackJob::of(n);
    (0..n)
        .map(|rank| {
            let counts = Arc::new(AccessCounts::default());
            let transport = CountingTransport::join(&net, counts.clone());
            let engine = Engine::new(vec![Arc::new(transport)]).unwrap();
            let job = EngineJob::new(job.rank(rank));
            let world = Arc::new(World::new(engine, job, 1).unwrap());
            Process { world, counts }
        })
        .collect()
}

fn groups(processes: &[Process], shapes: Shapes, name: u64) -> Vec<RankGroup> {
    let members: Vec<u32> = (0..processes.len() as u32).collect();
    let forming: Vec<Forming> = processes
        .iter()
        .map(|process| Forming::shaped(&process.world, &members, [name, 0], shapes).unwrap())
        .collect();
    // All have begun, so no call waits.
    forming
        .into_iter()
        .map(|mut forming| forming.conclude().unwrap())
        .collect()
}

/// Executes an operation on all members, and returns the numbers of messages that each has sent.
fn walk(
    processes: &[Process],
    mut operation: impl FnMut(usize) -> Result<(), Error>,
) -> Vec<SentCounts> {
    let before: Vec<SentCounts> = processes
        .iter()
        .map(|process| process.counts.sent())
        .collect();
    let mut open: Vec<usize> = (0..processes.len()).collect();
    for pass in 0.. {
        open.retain(|member| match operation(*member) {
            Ok(()) => false,
            Err(Error::Timeout) => true,
            Err(error) => panic!("{member}: {error}"),
        });
        if open.is_empty() {
            break;
        }
        assert!(pass < 10_000, "members wait for ever: {open:?}");
    }
    let sent = processes.iter().zip(before);
    sent.map(|(process, before)| {
        let now = process.counts.sent();
        SentCounts {
            signals: now.signals - before.signals,
            sends: now.sends - before.sends,
            meets: now.meets - before.meets,
        }
    })
    .collect()
}

fn simulated(n: u32, bytes: u64, schedule: impl Fn(u32) -> Schedule) -> SimResult {
    let job = JobLayout::of(n, 4).unwrap();
    let figures = Figures::default();
    let setting = SimSetting {
        job: &job,
        figures: &figures,
        fidelity: Fidelity::Injection,
        bytes,
        gates: None,
    };
    simulate(&setting, schedule).unwrap()
}

fn check(processes: &[Process], shapes: Shapes, name: u64) {
    let n = processes.len() as u32;
    let groups = groups(processes, shapes, name);
    let root = n / 3;
    // In the second round, all members are connected, and the other buffers are in use.
    for _ in 0..2 {
        let real = walk(processes, |me| groups[me].barrier(Deadline::Now));
        let model = simulated(n, 0, |me| shapes.barrier.schedule(me, n)).sent;
        match shapes.barrier {
            // Any member may arrive last and release the others, so only the totals agree.
            Barrier::Counting => assert_eq!(total(&real), total(&model), "counting of {n}"),
            shape => assert_eq!(real, model, "{shape} of {n}"),
        }

        for bytes in [8usize, 2048] {
            let mut results = vec![vec![0; bytes]; n as usize];
            let mut value = vec![0; bytes];
            let real = walk(processes, |me| {
                value[..8].copy_from_slice(&(me as u64 + 1).to_le_bytes());
                groups[me].all_reduce(&value, &mut results[me], &mut add, Deadline::Now)
            });
            let model = simulated(n, bytes as u64, |me| shapes.all_reduce.schedule(me, n)).sent;
            assert_eq!(real, model, "{} of {n}", shapes.all_reduce);
            let sum = u64::from(n) * (u64::from(n) + 1) / 2;
            assert!(
                results
                    .iter()
                    .all(|result| result[..8] == sum.to_le_bytes())
            );
        }

        let mut values = vec![0; n as usize];
        values[root as usize] = 77;
        let real = walk(processes, |me| {
            groups[me].broadcast(std::slice::from_mut(&mut values[me]), root, Deadline::Now)
        });
        let model = simulated(n, 1, |me| shapes.broadcast.schedule(me, n, root)).sent;
        assert_eq!(real, model, "{} of {n}", shapes.broadcast);
        assert!(values.iter().all(|value| *value == 77));
    }
}

fn total(all: &[SentCounts]) -> SentCounts {
    all.iter()
        .fold(SentCounts::default(), |sum, sent| SentCounts {
            signals: sum.signals + sent.signals,
            sends: sum.sends + sent.sends,
            meets: sum.meets + sent.meets,
        })
}

fn add(held: &mut [u8], other: &[u8]) -> Result<(), Error> {
    let value = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let sum = value(held) + value(other);
    held[..8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

fn all_shapes(n: u32) {
    let processes = processes(n);
    let crowded = Shapes::usual(n, true);
    assert_eq!(crowded.all_reduce == AllReduce::Flat, n <= FEW);
    let shapes = [
        Shapes::usual(n, false),
        crowded,
        Shapes {
            barrier: Barrier::Radix(4),
            all_reduce: AllReduce::Radix(4),
            broadcast: Broadcast::Tree(2),
        },
        Shapes {
            barrier: Barrier::ByNode(4, 2),
            all_reduce: AllReduce::ByNode(4, 2),
            broadcast: Broadcast::ByNode(4, 4),
        },
        Shapes {
            barrier: Barrier::Radix(3),
            all_reduce: AllReduce::Tree(4),
            broadcast: Broadcast::Tree(8),
        },
    ];
    for (name, shapes) in shapes.into_iter().enumerate() {
        check(&processes, shapes, name as u64);
    }
}

#[test]
fn groups_of_few_send_what_is_simulated() {
    for n in (2..=20).chain([31, 32, 33, 63, 64, 65]) {
        all_shapes(n);
    }
}

#[test]
fn groups_of_a_hundred_and_more_send_what_is_simulated() {
    for n in [100, 255, 256, 500] {
        all_shapes(n);
    }
}

#[test]
fn groups_of_a_thousand_send_what_is_simulated() {
    all_shapes(1000);
}
