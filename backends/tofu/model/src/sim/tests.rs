use super::*;
use crate::collectives::{CollectiveAlgorithm, CollectiveOperation, plans, run};
use unipgas_schedule::{Barrier, Broadcast};

fn flat(n: u32) -> JobLayout {
    JobLayout::of(n, 1).unwrap()
}

fn time(job: &JobLayout, plan: CollectiveAlgorithm, bytes: u64) -> f64 {
    run(job, &Figures::default(), Fidelity::Injection, plan, bytes)
        .unwrap()
        .time_ns
}

const DISSEMINATION: CollectiveAlgorithm = CollectiveAlgorithm::Barrier(Barrier::Dissemination);

fn setting<'a>(
    job: &'a JobLayout,
    figures: &'a Figures,
    fidelity: Fidelity,
    bytes: u64,
) -> SimSetting<'a> {
    SimSetting {
        job,
        figures,
        fidelity,
        bytes,
        gates: None,
    }
}

const PLANS: [(CollectiveOperation, u64); 5] = [
    (CollectiveOperation::Barrier, 0),
    (CollectiveOperation::AllReduce, 8),
    (CollectiveOperation::AllReduce, 1 << 20),
    (CollectiveOperation::Broadcast, 8),
    (CollectiveOperation::Broadcast, 1 << 20),
];

/// Two nodes signal each other once. The time is the post and the rest of a put.
#[test]
fn a_barrier_of_two_takes_a_put() {
    let figures = Figures::default();
    assert_eq!(time(&flat(2), DISSEMINATION, 0), figures.put_ns);
    let within = JobLayout::of(2, 4).unwrap();
    assert_eq!(time(&within, DISSEMINATION, 0), figures.local_ns);
}

/// On a ring of 8, the rounds of a dissemination take 1, 2 and 4 hops, for all members equally.
#[test]
fn rounds_of_a_barrier_add_up() {
    let figures = Figures::default();
    let job = JobLayout::full("8x1x1x1x1x1".parse().unwrap(), 1).unwrap();
    let sum: f64 = [1, 2, 4].map(|hops| figures.put(8, hops)).iter().sum();
    assert_eq!(time(&job, DISSEMINATION, 0), sum);
    let gates: f64 = [1.0, 2.0, 4.0]
        .map(|hops| figures.gate_ns + (hops - 1.0) * figures.hop_ns)
        .iter()
        .sum();
    let ends = figures.put_ns - figures.gate_ns;
    assert_eq!(
        time(&job, CollectiveAlgorithm::GateBarrier, 0),
        gates + ends
    );
}

/// A member sends to all others by one TNI. The messages leave one after another.
#[test]
fn what_leaves_by_one_interface_leaves_in_turn() {
    let mut figures = Figures::default();
    figures.set("tnis=1").unwrap();
    figures.set("injection=6.35").unwrap();
    let job = JobLayout::full("5x1x1x1x1x1".parse().unwrap(), 1).unwrap();
    let bytes = 1 << 20;
    let setting = setting(&job, &figures, Fidelity::Injection, bytes);
    let star = |me: u32| Schedule {
        steps: match me {
            0 => (1..5).map(|to| Step::Send { to, slot: 0 }).collect(),
            _ => Box::new([Step::Take { slot: 0 }]),
        },
        slots: 1,
    };
    let outcome = simulate(&setting, star).unwrap();
    // The last arrival is the third message, over two hops, or the last one, over one.
    let through = bytes as f64 / figures.put_gbs();
    let expected =
        (2.0 * through + figures.put(bytes, 2)).max(3.0 * through + figures.put(bytes, 1));
    assert!(
        (outcome.time_ns - expected).abs() < 0.01,
        "{} {expected}",
        outcome.time_ns
    );
    assert_eq!(outcome.sent[0].sends, 4);
    assert_eq!(outcome.remote, 4);
}

#[test]
fn with_contention_nothing_is_faster_and_one_link_carries_one_message_after_another() {
    let figures = Figures::default();
    for (operation, bytes) in PLANS {
        for (members, per_node) in [(24, 1), (50, 4), (96, 4)] {
            let job = JobLayout::of(members, per_node).unwrap();
            for plan in plans(operation, &job, bytes) {
                let [free, shared] = [Fidelity::Injection, Fidelity::Contention]
                    .map(|fidelity| run(&job, &figures, fidelity, plan, bytes).unwrap());
                assert!(shared.time_ns >= free.time_ns, "{operation} {plan}");
                assert_eq!(shared.sent, free.sent);
            }
        }
    }
    // In a line of 4, ranks 0 and 1 send to 2 and 3. Both messages use the link from 1 to 2.
    let job = JobLayout {
        shape: "4x1x1x1x1x1".parse::<crate::TorusShape>().unwrap().open(),
        ..flat(4)
    };
    let bytes = 1 << 20;
    let setting = setting(&job, &figures, Fidelity::Contention, bytes);
    let outcome = simulate(&setting, |me| Schedule {
        steps: match me {
            0 | 1 => Box::new([Step::Send {
                to: me + 2,
                slot: 0,
            }]),
            _ => Box::new([Step::Take { slot: 0 }]),
        },
        slots: 1,
    });
    let through = bytes as f64 / figures.link_payload_gbs();
    let time = outcome.unwrap().time_ns;
    assert!(
        time > through + figures.put(bytes, 2) - figures.hop_ns - 0.01,
        "{time}"
    );
    assert!(
        time < through + figures.put(bytes, 2) + 2.0 * figures.hop_ns,
        "{time}"
    );
}

#[test]
fn more_members_bytes_or_latency_never_make_it_faster() {
    for (operation, bytes) in PLANS {
        let job = flat(48);
        for plan in plans(operation, &job, bytes) {
            let base = time(&job, plan, bytes);
            assert!(time(&flat(96), plan, bytes) >= base, "{plan}");
            if bytes > 0 && plan != CollectiveAlgorithm::GateAllReduce {
                assert!(time(&job, plan, 2 * bytes) >= base, "{plan}");
            }
            let mut slow = Figures::default();
            slow.set("hop=200").unwrap();
            let slower = run(&job, &slow, Fidelity::Injection, plan, bytes).unwrap();
            assert!(slower.time_ns > base, "{plan}");
        }
    }
}

#[test]
fn all_plans_end_for_every_size() {
    for (operation, bytes) in PLANS {
        for n in (1..40).chain([63, 64, 65, 200]) {
            for per_node in [1, 3, 4] {
                let job = JobLayout::of(n, per_node).unwrap();
                for plan in plans(operation, &job, bytes) {
                    let outcome = run(&job, &Figures::default(), Fidelity::Injection, plan, bytes);
                    let outcome =
                        outcome.unwrap_or_else(|why| panic!("{operation} {plan} of {n}: {why}"));
                    assert!(outcome.first_ns <= outcome.time_ns);
                    assert_eq!(outcome.time_ns > 0.0, n > 1, "{operation} {plan} of {n}");
                    let all: u64 = outcome
                        .sent
                        .iter()
                        .map(|sent| u64::from(sent.signals + sent.sends + sent.meets))
                        .sum();
                    // The member that owns the counter sends no message to count.
                    let meets =
                        u64::from(plan == CollectiveAlgorithm::Barrier(Barrier::Counting) && n > 1);
                    assert!(
                        all - meets - outcome.remote - outcome.local <= meets,
                        "{operation} {plan} of {n}"
                    );
                }
            }
        }
    }
}

#[test]
fn who_waits_for_ever_is_told() {
    let job = flat(3);
    let figures = Figures::default();
    let setting = setting(&job, &figures, Fidelity::Injection, 0);
    let stuck = simulate(&setting, |me| Schedule {
        steps: if me == 1 {
            Box::new([Step::Await { slot: 0 }])
        } else {
            Box::new([])
        },
        slots: 1,
    });
    assert_eq!(stuck.unwrap_err().0, "1 of 3 members wait for ever");
}

/// A broadcast with acknowledgements passes three times through the tree. A broadcast with a following barrier passes once through it, and through the barrier.
#[test]
fn a_barrier_behind_a_broadcast_is_shorter_than_two_more_trees() {
    let job = JobLayout::of(1000, 1).unwrap();
    let tree = time(&job, CollectiveAlgorithm::Broadcast(Broadcast::Tree(2)), 8);
    let acknowledged = time(&job, CollectiveAlgorithm::Broadcast(Broadcast::Binomial), 8);
    assert!(tree < acknowledged, "{tree} {acknowledged}");
}

#[test]
fn where_nothing_is_shared_the_order_of_members_changes_nothing() {
    let figures = Figures::default();
    for (operation, bytes) in PLANS {
        for (members, per_node) in [(13, 1), (50, 4), (333, 4), (96, 6)] {
            let job = JobLayout::of(members, per_node).unwrap();
            for plan in plans(operation, &job, bytes) {
                if plan == CollectiveAlgorithm::Barrier(Barrier::Counting) {
                    continue;
                }
                let setting = setting(&job, &figures, Fidelity::Injection, bytes);
                let slots = plan.schedule(0, &job).slots;
                let [ordered, other] = [true, false].map(|ordered| {
                    simulate_in(&setting, |me| plan.schedule(me, &job), slots, ordered).unwrap()
                });
                assert_eq!(ordered, other, "{operation} {plan} of {members}");
            }
        }
    }
}
