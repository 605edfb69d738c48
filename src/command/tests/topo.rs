//! `unipgas topo`.

use std::process::Output;

mod common;

use common::{Said, has, unipgas, words};

fn topo(args: &str) -> Output {
    let mut command = unipgas(&["topo"]);
    command.args(words(args)).output().unwrap()
}

fn text(args: &str) -> String {
    topo(args).ok()
}

fn json(args: &str) -> serde_json::Value {
    serde_json::from_str(&text(&format!("{args} --json"))).unwrap()
}

#[test]
fn a_small_job_is_drawn_node_by_node() {
    let text = text("--shape 2x2x1x2x3x2");
    let nodes = text.split_whitespace().filter(|word| {
        let (rank, load) = word.split_once(':').unwrap_or_default();
        rank.parse().is_ok_and(|rank: u32| rank.is_multiple_of(4)) && load.len() == 1
    });
    assert_eq!(nodes.count(), 48, "{text}");
    assert!(text.contains("48 nodes, 192 processes"), "{text}");
}

#[test]
fn every_drawing_has_lines_of_eighty_columns() {
    for args in [
        "--nodes 1",
        "--shape 2x2x1x2x3x2 --bytes 1M",
        "-n 7000 --pattern random:3",
        "--shape 24x23x24x2x3x2 --pattern alltoall --bytes 1M",
        "--nodes 1000000 --pattern ring --open",
        "--shape 255x1x1x1x1x1",
        "--shape 1x1x255x2x3x2 --per-node 48 --path spread",
    ] {
        let text = text(args);
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{args:?}:\n{text}");
        has(
            &text,
            &["model of TofuD, not measured", "Published", "Assumed"],
        );
    }
    let planes = text("--shape 24x23x24x2x3x2 --pattern random");
    let planes = planes.lines().filter(|line| line.ends_with('#'));
    assert_eq!(planes.count(), 24 + 23 + 24);
}

#[test]
fn eight_bytes_to_a_neighbour_take_what_is_published() {
    let told = json("--shape 2x1x1x2x3x2 --pattern pair");
    assert_eq!(told["time_ns"], 490.0);
    assert_eq!(told["bottleneck"], "latency");
    let told = json("--shape 2x1x1x2x3x2 --pattern pair:0-92 --set hop=10");
    assert_eq!(told["longest_hops"], 4);
    assert_eq!(told["time_ns"], 520.0);
    let figures = told["figures"].as_array().unwrap();
    assert!(
        figures
            .iter()
            .all(|figure| { figure["published"].is_string() != figure["assumed"].is_string() })
    );
}

#[test]
fn a_drawing_shows_every_node_and_link_or_every_unit() {
    let file = std::env::temp_dir().join(format!("unipgas-topo-{}.svg", std::process::id()));
    let name = file.to_str().unwrap();
    let drawn = |args: &str| {
        text(&format!("{args} --svg {name}"));
        let svg = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let count = |what: &str| svg.matches(what).count();
        (count("<rect"), count("<polyline"), count("of 64 bytes"))
    };
    // The background is a rectangle, and five lines belong to the legend. 24 nodes; links: one on X, 12 each on A and C, and three for each ring of B.
    let nodes = drawn("--shape 2x1x1x2x3x2 --bytes 64");
    assert_eq!(nodes, (1 + 24, 5 + 12 + 12 + 12 + 24, 1));
    // 24 x 24 units on a torus: the same number of links on X and on Y.
    let units = drawn("--shape 24x24x1x2x3x2 --bytes 64");
    assert_eq!(units, (1 + 24 * 24, 5 + 2 * 24 * 24, 1));
    let lost = topo("-n 9 --svg /nowhere/at/all.svg");
    let status = lost.status.code().unwrap();
    assert_ne!(status, 0);
    lost.refuses(status, "/nowhere/at/all.svg");
}

#[test]
fn collectives_have_a_best_schedule_at_every_size() {
    let told = json("--collectives --nodes 48");
    let operations = told["sizes"][0]["operations"].as_array().unwrap();
    assert_eq!(operations.len(), 3);
    for operation in operations {
        let plans = operation["plans"].as_array().unwrap();
        let time = |name: &serde_json::Value| {
            let plan = plans.iter().find(|plan| plan["plan"] == *name);
            plan.unwrap()["time_ns"].as_f64().unwrap()
        };
        let best = time(&operation["best"]);
        assert!(best > 490.0, "{operation}");
        assert!(time(&operation["best_of_groups"]) >= best);
        for plan in plans {
            assert!(plan["time_ns"].as_f64().unwrap() >= best, "{operation}");
        }
    }
    let crowded = json("--collectives --nodes 48 --contention --bytes 1M");
    assert_eq!(crowded["contention"], true);
    let text = text("--collectives --nodes 768 --per-node 1");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(text.matches("     768 ").count(), 6, "{text}");
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    for (args, said) in [
        ("", "--shape"),
        ("--shape 2x2", "six lengths"),
        ("--shape 4x4x4x3x3x2", "the A axis"),
        ("--nodes 0", "1 to"),
        ("--nodes 9 --per-node 0", "1 to 48"),
        ("-n 9 --per-node 49", "1 to 48"),
        ("-n 9 --nodes 3", "cannot be used"),
        ("-n 9 --pattern star", "no pattern"),
        ("-n 9 --pattern alltoone:9", "no rank 9"),
        ("-n 9 --path 1,2,3", "outside"),
        ("-n 9 --bytes 1T", "no size"),
        ("-n 9 --set hop=-1", "above 0"),
        ("-n 9 --set speed=1", "no figure"),
        ("-n 9 --contention", "--collectives"),
        ("--collectives -n 9 --path 1,2,3", "outside"),
        ("--collectives --nodes 100000 --per-node 12", "1048576"),
    ] {
        let output = topo(args);
        output.refuses(2, said);
        assert!(output.stdout.is_empty());
    }
}
