use super::*;
use crate::route::PathRule;
use crate::shape::TorusShape;

fn job(shape: &str, per_node: u32) -> JobLayout {
    JobLayout::full(shape.parse().unwrap(), per_node).unwrap()
}

fn loads(job: &JobLayout, pattern: TrafficPattern, bytes: u64) -> Loads {
    predict(job, &Figures::default(), pattern, bytes)
        .unwrap()
        .loads
}

const PATHS: [PathRule; 4] = [
    PathRule::Target,
    PathRule::Source,
    PathRule::Spread,
    PathRule::Fixed([0; 3]),
];

const ALL: [TrafficPattern; 7] = [
    TrafficPattern::Pair(None),
    TrafficPattern::Ring,
    TrafficPattern::Shift(0, 1),
    TrafficPattern::Halo,
    TrafficPattern::AllToAll,
    TrafficPattern::AllToOne(1),
    TrafficPattern::Random(3),
];

#[test]
fn links_carry_all_hops() {
    for shape in ["3x2x1x2x3x2", "4x4x1x1x1x1", "5x1x1x2x1x2"] {
        for path in PATHS {
            for pattern in ALL {
                let job = JobLayout {
                    path,
                    ..job(shape, 2)
                };
                let loads = loads(&job, pattern, 100);
                assert_eq!(
                    loads.links.iter().sum::<u64>(),
                    100 * loads.hops,
                    "{shape} {pattern}"
                );
                for (link, bytes) in loads.links.iter().enumerate() {
                    let there = job.shape.has_link((link / PORTS) as u32, link % PORTS);
                    assert!(there || *bytes == 0, "{shape} {pattern}: {link}");
                }
            }
        }
    }
}

/// In a ring of 2k, k * k * k / 2 of the messages between its halves cross each of two cuts in each direction. The test counts them pair by pair.
#[test]
fn what_crosses_a_bisection_is_what_the_links_there_carry() {
    let job = job("6x4x1x1x1x1", 1);
    let loads = loads(&job, TrafficPattern::AllToAll, 1);
    let half = |node: u32| job.shape.coords(node)[0] < 3;
    let mut crossing = 0;
    for from in 0..24 {
        for to in 0..24 {
            let (x, goal) = (job.shape.coords(from)[0], job.shape.coords(to)[0]);
            // At most 3 steps around a ring of 6; upwards if both directions are equal.
            let steps = (goal + 6 - x) % 6;
            let ring: Vec<u32> = match steps <= 3 {
                true => (0..=steps).map(|step| (x + step) % 6).collect(),
                false => (0..=6 - steps).map(|step| (x + 6 - step) % 6).collect(),
            };
            crossing += ring
                .windows(2)
                .filter(|pair| (pair[0] < 3) != (pair[1] < 3))
                .count() as u64;
        }
    }
    let cut: u64 = loads
        .links
        .iter()
        .enumerate()
        .filter(|(link, _)| {
            let (node, port) = ((link / PORTS) as u32, link % PORTS);
            let next = job.shape.neighbour(node, port / 2, port % 2 == 1);
            next.is_some_and(|next| half(node) != half(next))
        })
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(cut, crossing);
    // 12 nodes on either side: 288 messages must cross.
    assert!(cut >= 2 * 12 * 12, "{cut}");
}

#[test]
fn patterns_that_look_the_same_from_everywhere_load_links_alike() {
    let job = job("5x3x4x1x3x1", 1);
    for pattern in [
        TrafficPattern::AllToAll,
        TrafficPattern::Shift(2, 2),
        TrafficPattern::Halo,
    ] {
        let loads = loads(&job, pattern, 8);
        for port in 0..PORTS {
            let first = loads.links[port];
            let all = loads.links.iter().skip(port).step_by(PORTS);
            assert!(all.clone().all(|bytes| *bytes == first), "{pattern} {port}");
        }
    }
}

/// In odd rings both directions are equal. With n places, each link carries (n * n - 1) / 8 messages in each direction.
#[test]
fn all_to_all_on_an_odd_ring_is_known() {
    let loads = loads(&job("7x1x1x1x1x1", 1), TrafficPattern::AllToAll, 1);
    let links: Vec<u64> = loads.links.into_iter().filter(|bytes| *bytes > 0).collect();
    assert_eq!(links, vec![(7 * 7 - 1) / 8; 14]);
}

#[test]
fn folding_changes_nothing() {
    for (shape, per_node) in [
        ("3x4x1x2x3x2", 2),
        ("5x2x3x1x3x2", 1),
        ("2x2x2x2x3x2", 3),
        ("4x1x1x1x1x1", 7),
    ] {
        for path in PATHS {
            let job = JobLayout {
                path,
                ..job(shape, per_node)
            };
            let folded = folded(&job, 6, 16).unwrap();
            let mut followed = followed(&job, 6, TrafficPattern::AllToAll, 16);
            // The TNI that gets one message more depends on the order.
            for side in 0..2 {
                let (bytes, messages) = followed.tni[side];
                assert!(
                    messages.abs_diff(folded.tni[side].1)
                        <= u64::from(per_node) * u64::from(job.processes) / 6,
                    "{shape}"
                );
                assert_eq!(bytes, 16 * messages);
            }
            followed.tni = folded.tni;
            assert_eq!(folded, followed, "{shape} {path:?}");
        }
    }
}

#[test]
fn a_neighbour_gets_eight_bytes_as_published_and_many_at_the_rate_of_a_put() {
    let (job, figures) = (job("4x1x1x2x3x2", 4), Figures::default());
    let short = predict(&job, &figures, TrafficPattern::Pair(None), 8).unwrap();
    assert_eq!(
        (short.time_ns, short.bottleneck),
        (490.0, Bottleneck::Latency)
    );
    for bytes in [8, 64, 4096, 1 << 20] {
        let pair = predict(&job, &figures, TrafficPattern::Pair(None), bytes).unwrap();
        assert!((pair.time_ns - figures.put(bytes, 1)).abs() < 1e-6);
    }
    let within = predict(&job, &figures, TrafficPattern::Pair(Some((0, 3))), 8).unwrap();
    assert_eq!(within.time_ns, figures.local_ns);
}

#[test]
fn the_bottleneck_is_where_it_must_be() {
    let figures = Figures::default();
    for (shape, per_node, pattern, bytes, expected) in [
        (
            "4x4x4x2x3x2",
            1,
            TrafficPattern::AllToOne(0),
            1 << 20,
            Bottleneck::Link,
        ),
        (
            "3x3x3x1x1x1",
            4,
            TrafficPattern::AllToOne(0),
            1 << 20,
            Bottleneck::TniIn,
        ),
        (
            "4x4x4x2x3x2",
            4,
            TrafficPattern::Shift(0, 2),
            1 << 20,
            Bottleneck::Link,
        ),
        // Two TNIs have ten messages of one process.
        (
            "4x4x4x2x3x2",
            4,
            TrafficPattern::Halo,
            1 << 20,
            Bottleneck::TniOut,
        ),
        ("4x4x4x2x3x2", 4, TrafficPattern::Halo, 8, Bottleneck::Post),
        (
            "1x1x1x1x1x1",
            4,
            TrafficPattern::Ring,
            1 << 20,
            Bottleneck::Copy,
        ),
    ] {
        let found = predict(&job(shape, per_node), &figures, pattern, bytes);
        assert_eq!(found.unwrap().bottleneck, expected, "{shape} {pattern}");
    }
}

#[test]
fn a_ring_in_a_line_without_an_end_to_end_link_is_slower() {
    let figures = Figures::default();
    let closed = JobLayout {
        shape: "8x1x1x1x1x1".parse().unwrap(),
        ..job("8x1x1x1x1x1", 1)
    };
    let open = JobLayout {
        shape: closed.shape.open(),
        ..closed
    };
    let time = |job: &JobLayout| {
        predict(job, &figures, TrafficPattern::Ring, 1 << 20)
            .unwrap()
            .time_ns
    };
    assert_eq!(time(&open) - time(&closed), 6.0 * figures.hop_ns);
}

#[test]
fn the_full_machine_is_predicted() {
    let job = JobLayout::full(TorusShape::new(TorusShape::FUGAKU).unwrap(), 4).unwrap();
    let figures = Figures::default();
    let all = predict(&job, &figures, TrafficPattern::AllToAll, 1024).unwrap();
    // Each X link carries the messages of the 24 nodes of its ring that pass it: 12 * 13 / 2 upwards, times the number of nodes in the other axes.
    let others = 23 * 24 * 12 * 16 * 1024;
    let hottest = all.loads.hottest().map(|(_, bytes)| bytes);
    assert_eq!(hottest, Some(12 * 13 / 2 * others));
    assert_eq!(all.bottleneck, Bottleneck::Link);
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let open = JobLayout {
        shape: "24x23x24x2x3x2".parse::<TorusShape>().unwrap().open(),
        ..job("24x23x24x2x3x2", 1)
    };
    let figures = Figures::default();
    let refused = predict(&open, &figures, TrafficPattern::AllToAll, 8).unwrap_err();
    assert!(refused.0.ends_with("take at most 2048"), "{refused}");
    for pattern in [
        TrafficPattern::Pair(Some((0, 0))),
        TrafficPattern::AllToOne(400_000),
        TrafficPattern::Shift(3, 2),
    ] {
        assert!(predict(&open, &figures, pattern, 8).is_err(), "{pattern}");
    }
}
