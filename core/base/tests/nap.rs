//! A thread that polls without a call gives its core away, if `UNIPGAS_NAP` asks for it.

use std::process::Command;

const CHILD: &str = "UNIPGAS_TEST_NAP_CHILD";

fn run(nap: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "polls", "--nocapture"])
        .env(CHILD, "1")
        .env("UNIPGAS_NAP", nap)
        .output()
        .unwrap()
}

/// How often this thread has given its core away.
fn given_away() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// In the child: polls until it sees the naps, without a call that sleeps.
#[test]
fn polls() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    if let Err(error) = unipgas_base::nap::begin() {
        eprintln!("{error}");
        std::process::exit(3);
    }
    let before = given_away();
    while given_away() < before + 20 {
        (0..100_000).for_each(|n| {
            std::hint::black_box(n);
        });
    }
}

#[test]
fn a_thread_that_polls_sleeps_between_its_looks() {
    assert!(run("100").status.success());
}

#[test]
fn wrong_times_are_refused() {
    for wrong in ["1000000", "soon"] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("UNIPGAS_NAP") && text.contains(wrong),
            "{text}"
        );
    }
}
