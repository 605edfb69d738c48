//! Published data reaches ranks of other hosts through the launcher.
//!
//! Hydra takes two names of this host as two hosts, so the test uses PMI-1 with a real server. With UNIPGAS_TEST_PART=rank, any other launcher
//! can start this program, which then checks that launcher.

use std::process::Command;
use std::time::Duration;

use unipgas_base::{Deadline, Error};
use unipgas_job::job::Job;

const PART: &str = "UNIPGAS_TEST_PART";

fn value_of(rank: u32, cycle: u32) -> Vec<u8> {
    (0..64).map(|at| (rank * 64 + at * cycle) as u8).collect()
}

fn rank() {
    let job = Job::from_env().unwrap();
    let deadline = Deadline::after(Duration::from_secs(200));
    for cycle in 1..4 {
        job.publish("value", cycle, &value_of(job.rank(), cycle))
            .unwrap();
        // A timeout at a fence changes nothing: the next call continues the fence.
        match job.fence(cycle, Deadline::Now) {
            Ok(()) => {}
            Err(Error::Timeout) => job.fence(cycle, deadline).unwrap(),
            Err(error) => panic!("{error}"),
        }
        for rank in 0..job.size() {
            let found = job.fetch(rank, "value", cycle, deadline).unwrap();
            assert_eq!(found, value_of(rank, cycle), "of rank {rank} in {cycle}");
        }
        assert_eq!(
            job.fetch(job.size() - 1, "nothing", cycle, Deadline::Now),
            Err(Error::Timeout)
        );
    }
    // The line begins with output of the test harness.
    println!(
        "rank {} of {} with {} here, {:?} on each host\n",
        job.rank(),
        job.size(),
        job.neighbours(),
        job.each_host()
    );
    // No rank leaves while others still read its data.
    job.fence(4, deadline).unwrap();
    job.bootstrap().leave().unwrap();
}

#[test]
fn what_is_published_reaches_other_hosts() {
    if std::env::var_os(PART).is_some() {
        return rank();
    }
    let mut launch = Command::new("mpiexec.mpich");
    launch
        .args(["-launcher", "fork", "-hosts", "localhost,127.0.0.1"])
        .args(["-n", "4"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "what_is_published_reaches_other_hosts"])
        .arg("--nocapture")
        .env(PART, "rank")
        .env_remove("UNIPGAS_JOB");
    let said = match launch.output() {
        Ok(said) => said,
        Err(error) => {
            eprintln!("left out: mpiexec.mpich (Debian: mpich): {error}");
            return;
        }
    };
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{text}{errors}");
    for rank in 0..4 {
        let line = format!("rank {rank} of 4 with 2 here, Some(2) on each host");
        assert!(text.contains(&line), "{text}{errors}");
    }
}
