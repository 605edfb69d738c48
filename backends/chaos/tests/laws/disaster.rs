//! Death and stalls at a chosen operation. The process that dies is this test again, as a child.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::Rig;
use unipgas_chaos::ChaosConfig;
use unipgas_core::op::Flags;

const ROLE: &str = "CHAOS_TEST_CHILD";

/// Posts twenty puts and prints a line, then drains them and prints a line.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let config = ChaosConfig::from_env().unwrap();
    let rig = Rig::new(config, 1, 4096);
    println!("joined");
    for i in 0..20 {
        rig.put_notify(0, i * 64, 64, (2048 + 4 * i, 1), Flags::empty(), 0)
            .unwrap();
    }
    rig.drain();
    println!("drained");
}

fn run(seed: u64, rank: u32, chaos: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "disaster::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, "1")
        .env("UNIPGAS_SEED", seed.to_string())
        .env("UNIPGAS_RANK", rank.to_string())
        .env("UNIPGAS_CHAOS", chaos)
        .output()
        .unwrap()
}

fn said(output: &Output, what: &str) -> bool {
    String::from_utf8_lossy(&output.stdout).contains(what)
}

#[test]
fn a_process_dies_at_its_operation_and_no_other() {
    const SIGKILL: i32 = 9;
    for seed in 0..10 {
        let dead = run(seed, 1, "kill=1@19");
        assert_eq!(dead.status.signal(), Some(SIGKILL), "{dead:?}");
        assert!(said(&dead, "joined") && !said(&dead, "drained"), "{dead:?}");
    }
    // The operations have numbers 0 to 19. The test also uses another rank.
    for chaos in ["kill=1@20", "kill=0@19"] {
        let alive = run(1, 1, chaos);
        assert!(
            alive.status.success() && said(&alive, "drained"),
            "{alive:?}"
        );
    }
}

#[test]
fn a_stall_stops_all_communication_of_the_process() {
    let span = Duration::from_millis(150);
    let drain = |stall| {
        let config = ChaosConfig {
            stall,
            at_once_percent: 0,
            ..ChaosConfig::seeded(4)
        };
        let rig = Rig::new(config, 1, 4096);
        let start = Instant::now();
        for i in 0..10 {
            rig.put(0, i * 64, 64, Flags::empty(), 0).unwrap();
        }
        rig.drain();
        start.elapsed()
    };
    assert!(drain(Some((5, span))) >= span);
    // The stall is at a later operation. Otherwise the test would take a day.
    drain(Some((10, Duration::from_secs(86_400))));

    // A stall also stops a channel without delayed operations.
    let config = ChaosConfig {
        stall: Some((0, span)),
        at_once_percent: 100,
        ..ChaosConfig::seeded(4)
    };
    let stands_still = || {
        let rig = Rig::new(config.clone(), 1, 4096);
        let other = rig.issuer.endpoint(1).unwrap();
        std::thread::scope(|scope| {
            let put = scope.spawn(|| rig.put(0, 0, 64, Flags::empty(), 0).unwrap());
            let mut longest = Duration::ZERO;
            while !put.is_finished() {
                let begun = Instant::now();
                other.poll(&mut |_| ());
                longest = longest.max(begun.elapsed());
            }
            longest >= span / 3
        })
    };
    // This thread may have had no core for a while.
    assert!((0..20).any(|_| stands_still()));
}
