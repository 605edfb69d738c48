use std::time::{Duration, Instant};

use super::*;
use unipgas_core::job::{Job, RankState};

const PART: &str = "UNIPGAS_TEST_PART";

/// A job in which each rank runs the test `test` again, with [`is_rank`] true.
fn job_of(test: &str, size: u32) -> Launch {
    let mut launch = Launch::new(size, std::env::current_exe().unwrap());
    launch.args = ["--exact", &format!("tests::{test}"), "--nocapture"]
        .map(OsString::from)
        .into();
    launch.env = vec![(PART.into(), "rank".into())];
    launch.output = Output::Capture;
    launch.timeout = Some(Duration::from_secs(300));
    launch
}

fn is_rank() -> bool {
    std::env::var_os(PART).is_some()
}

fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300));
        std::thread::yield_now();
    }
}

#[test]
fn survivors_learn_of_a_death_at_once() {
    if is_rank() {
        let job = Job::from_env().unwrap();
        let own = job.bootstrap();
        match job.rank() {
            // Leaves properly, so it does not count as dead.
            0 => own.leave().unwrap(),
            1 => {
                rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                )
                .unwrap();
            }
            _ => {
                until(|| job.deaths() == 1 && own.state(1) == Ok(RankState::Dead));
                until(|| own.state(0) == Ok(RankState::Finalized));
                own.leave().unwrap();
            }
        }
        return;
    }
    let mut launch = job_of("survivors_learn_of_a_death_at_once", 3);
    launch.keep_going = true;
    let outcome = launch.run().unwrap();
    let exits: Vec<_> = outcome.ranks.iter().map(|rank| rank.exit).collect();
    assert_eq!(
        exits,
        [Exit::Code(0), Exit::Signal(libc::SIGKILL), Exit::Code(0)],
        "{outcome:?}"
    );
    assert_eq!(
        (outcome.first_failure, outcome.status(), outcome.timed_out),
        (Some(1), 137, false)
    );
}

#[test]
fn output_is_captured_by_rank_and_stream() {
    let mut launch = Launch::new(3, "sh");
    launch.args = ["-c", "seq 1 30000; echo $UNIPGAS_RANK $COLOUR >&2"]
        .map(OsString::from)
        .into();
    launch.env = vec![("COLOUR".into(), "green".into())];
    launch.output = Output::Capture;
    let outcome = launch.run().unwrap();
    assert!(outcome.success());
    let numbers: String = (1..=30_000).map(|n| format!("{n}\n")).collect();
    for (rank, one) in outcome.ranks.iter().enumerate() {
        assert!(
            one.stdout == numbers.as_bytes(),
            "rank {rank}: {} bytes",
            one.stdout.len()
        );
        assert_eq!(
            String::from_utf8_lossy(&one.stderr),
            format!("{rank} green\n")
        );
    }
}

#[test]
fn jobs_run_side_by_side_in_threads() {
    std::thread::scope(|scope| {
        for status in 0..6 {
            scope.spawn(move || {
                let mut launch = Launch::new(4, "sh");
                launch.args = vec!["-c".into(), format!("exit {status}").into()];
                let outcome = launch.run().unwrap();
                assert_eq!(outcome.status(), status);
                assert_eq!(outcome.success(), status == 0);
            });
        }
    });
}

#[test]
fn what_cannot_start_is_refused() {
    for (size, program) in [
        (0, "true"),
        (MAX_SIZE + 1, "true"),
        (1, "no-such-program"),
        (1, "/etc/passwd"),
    ] {
        let refused = Launch::new(size, program).run();
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{size} {program}: {refused:?}"
        );
    }
}

#[test]
fn time_limits_and_seeds() {
    let mut launch = Launch::new(2, "sleep");
    launch.args = vec!["60".into()];
    launch.timeout = Some(Duration::from_millis(100));
    launch.backend = Some("chaos".into());
    let outcome = launch.run().unwrap();
    assert_eq!((outcome.timed_out, outcome.status()), (true, 124));
    assert!(outcome.seed.is_some(), "one was drawn");
    assert!(
        outcome
            .ranks
            .iter()
            .all(|rank| rank.exit == Exit::Signal(libc::SIGTERM)),
        "{outcome:?}"
    );
}

#[test]
fn an_end_that_another_rank_wants_is_no_failure() {
    if is_rank() {
        let job = Job::from_env().unwrap();
        let own = job.bootstrap();
        match job.rank() {
            0 => {
                // Rank 1 may not have started yet.
                until(|| own.end(1).is_ok());
                until(|| own.state(1) == Ok(RankState::Dead));
                own.leave().unwrap();
            }
            1 => until(|| false),
            _ => until(|| own.state(0) == Ok(RankState::Finalized)),
        }
        return;
    }
    let launch = job_of("an_end_that_another_rank_wants_is_no_failure", 3);
    let outcome = launch.run().unwrap();
    assert_eq!(outcome.first_failure, None);
    assert_eq!(outcome.ranks[1].exit, Exit::Signal(libc::SIGINT));
    assert!(outcome.ranks[0].exit.success() && outcome.ranks[2].exit.success());
}
