//! The framework on laws that lie, hang and crash, in processes and in threads.

use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

const CONFORM: &str = env!("CARGO_BIN_EXE_unipgas-conform");

fn conform(args: &[&str]) -> Output {
    Command::new(CONFORM).args(args).output().expect("starts")
}

/// Output and exit status of one law.
fn law(id: &str, more: &[&str]) -> (String, Option<i32>) {
    let mut args = vec!["--law", id, "--limit", "2"];
    args.extend(more);
    let output = conform(&args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{id}: {errors}");
    (text, output.status.code())
}

/// Output of one law that is not tried: where nothing is, nothing is right.
fn nothing_applies(id: &str, more: &[&str]) -> String {
    let output = conform(&[&["--law", id], more].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = "unipgas: no law has been tried: none of those chosen applies here\n";
    assert_eq!(errors, said);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn a_law_that_holds() {
    for backend in ["shm", "loopback", "chaos"] {
        let (text, code) = law("selftest.holds", &["--backend", backend]);
        assert!(
            text.ends_with("\n1 passed, 0 failed, 0 skipped\n"),
            "{text}"
        );
        assert_eq!(code, Some(0), "{text}");
    }
}

fn a_law_that_lies() {
    for backend in ["shm", "loopback"] {
        let (text, code) = law("selftest.lies", &["--backend", backend]);
        assert!(text.contains("FAILS"), "{text}");
        assert!(
            text.contains("seen:   rank 1: rank: 1 instead of 0\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "repeat: unipgas conform --law selftest.lies --backend {backend} --seed 1\n"
            )),
            "{text}"
        );
        assert!(
            text.ends_with("\n0 passed, 1 failed, 0 skipped\n"),
            "{text}"
        );
        assert_eq!(code, Some(1));
        let (text, _) = law("selftest.panics", &["--backend", backend]);
        assert!(text.contains("rank 0: panicked: rank 0 panics"), "{text}");
    }
}

fn the_seed_is_the_one_that_failed() {
    let (text, code) = law("selftest.lies-at-seed-3", &["--backend", "chaos"]);
    assert!(text.contains("fails on chaos (seed 3)"), "{text}");
    assert_eq!(code, Some(1));
    let one = ["--backend", "chaos", "--seed", "3"];
    assert!(law("selftest.lies-at-seed-3", &one).0.contains("FAILS"));
    let other = ["--backend", "chaos", "--seed", "4"];
    assert!(
        law("selftest.lies-at-seed-3", &other)
            .0
            .contains("1 passed")
    );
}

fn a_law_that_hangs() {
    for backend in ["shm", "loopback"] {
        let (text, code) = law("selftest.hangs", &["--backend", backend]);
        assert!(text.contains("HANGS"), "{text}");
        assert!(text.contains("seen:   rank 1: nothing moves"), "{text}");
        assert_eq!(code, Some(1));
    }
}

fn a_law_that_does_not_even_wait() {
    let args = [
        "--law",
        "selftest.sleeps",
        "--backend",
        "shm",
        "--limit",
        "1",
    ];
    let output = conform(&args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("HANGS"), "{text}");
    assert!(
        text.contains("seen:   rank 1: nothing moves for 10s"),
        "{text}"
    );
}

fn a_law_that_takes_its_time() {
    for backend in ["shm", "loopback"] {
        let (text, code) = law("selftest.takes-its-time", &["--backend", backend]);
        assert!(text.contains("1 passed"), "{text}");
        assert_eq!(code, Some(0));
    }
}

fn a_law_that_crashes() {
    for (backend, who) in [("shm", "rank 1"), ("loopback", "the process of all ranks")] {
        let (text, code) = law("selftest.crashes", &["--backend", backend]);
        assert!(text.contains("CRASHES"), "{text}");
        assert!(
            text.contains(&format!("seen:   {who} was killed by signal 6")),
            "{text}"
        );
        assert_eq!(code, Some(1));
        let (text, code) = law("selftest.exits", &["--backend", backend]);
        assert!(text.contains("CRASHES"), "{text}");
        assert_eq!(code, Some(1));
    }
}

fn a_law_that_crashes_in_the_place_of_another_process() {
    let (text, code) = law("selftest.crashes-in-its-place", &["--backend", "shm"]);
    assert!(text.contains("CRASHES"), "{text}");
    let seen = "seen:   rank 1 has had 3 processes, and 1 of them killed themselves";
    assert!(text.contains(seen), "{text}");
    assert_eq!(code, Some(1));
}

fn order_is_what_chaos_breaks() {
    let id = "selftest.notice-without-order";
    // Which seed breaks it depends on who runs when.
    let (text, code) = law(id, &["--backend", "chaos", "--seeds", "300"]);
    assert!(text.contains("the notice of round"), "{text}");
    assert!(text.contains("overtook put"), "{text}");
    assert_eq!(code, Some(1));
    let (text, code) = law(id, &["--backend", "shm"]);
    assert!(text.contains("pass x20"), "{text}");
    assert_eq!(code, Some(0));
}

fn a_law_that_kills() {
    let shm = ["--backend", "shm"];
    let (text, code) = law("selftest.kills", &shm);
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(code, Some(0));
    let (text, code) = law("selftest.kills-and-lies", &shm);
    assert!(
        text.contains("rank 0: the survivor has seen something"),
        "{text}"
    );
    assert_eq!(code, Some(1));
    let (text, code) = law("selftest.dies-of-something-else", &shm);
    assert!(
        text.contains("CRASHES") && text.contains("rank 1 was killed by signal 6"),
        "{text}"
    );
    assert_eq!(code, Some(1));
    let text = nothing_applies("selftest.kills", &["--backend", "loopback"]);
    assert!(text.contains("cannot be killed one by one"), "{text}");
}

fn what_is_not_offered() {
    let (text, code) = law("selftest.not-offered", &["--backend", "shm"]);
    assert!(
        text.contains("shm: selftest.not-offered: nobody has it"),
        "{text}"
    );
    assert!(
        text.ends_with("\n0 passed, 0 failed, 1 skipped\n"),
        "{text}"
    );
    assert_eq!(code, Some(0));
}

fn what_is_pinned() {
    let id = "selftest.holds-against-its-pin";
    let (text, code) = law(id, &["--backend", "shm"]);
    let broken =
        "known to be broken (broken):\n  shm: selftest.holds-against-its-pin: so somebody said\n";
    assert!(text.contains(broken), "{text}");
    assert_eq!(code, Some(0));
    let (text, code) = law(id, &["--backend", "shm", "--pinned"]);
    let said = "an unexpected pass: it is pinned as broken (so somebody said)";
    assert!(text.contains(said), "{text}");
    assert_eq!(code, Some(1), "{text}");
    let text = nothing_applies(id, &["--backend", "chaos", "--pinned"]);
    assert!(text.contains("not applicable (n/a):\n  chaos: "), "{text}");
    let (text, code) = law(id, &["--backend", "loopback", "--pinned"]);
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(code, Some(0), "{text}");
}

/// Where files may not grow, nothing can be shared.
fn a_column_that_cannot_run_here() {
    for column in ["shm", "chaos", "mixed"] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -f 8; exec \"$@\"", "sh"])
            .arg(CONFORM)
            .args(["--law", "selftest.holds", "--backend", column])
            .output()
            .expect("starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        let said = format!("unipgas: nothing can run on {column} here: ");
        assert!(errors.starts_with(&said), "{errors}");
    }
}

fn records() {
    let output = conform(&["--law", "selftest.lies", "--json", "-"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let columns = unipgas_conformance::matrix::columns().iter();
    let columns: Vec<_> = columns.filter(|column| !column.hosts).collect();
    assert_eq!(text.lines().count(), columns.len(), "{text}");
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let column = columns
            .iter()
            .find(|column| record["backend"] == column.name);
        if column.is_some_and(|column| column.missing().is_some()) {
            assert_eq!(record["verdict"], "not offered", "{line}");
            continue;
        }
        assert_eq!(record["verdict"], "fails", "{line}");
        assert_eq!(record["seed"], 1, "{line}");
        assert_eq!(record["law"], "selftest.lies", "{line}");
    }
}

fn wrong_arguments() {
    for (args, part) in [
        (["--law", "nothing-like-this"], "--list"),
        (["--backend", "carrier-pigeon"], "loopback"),
        (["--seeds", "none"], "invalid digit"),
    ] {
        let output = conform(&args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
}

/// A failure in a job of several laws: the others are run in another job.
fn the_others_are_not_spoiled() {
    // Laws of the engine need no library.
    let runner = unipgas_conformance::runner::Runner::new(Duration::from_secs(2), "".into());
    let mut runner = runner.expect("own path");
    runner.program = CONFORM.into();
    let ids = [
        "selftest.holds",
        "selftest.crashes",
        "selftest.not-offered",
        "selftest.hangs",
        "selftest.lies",
        "selftest.lies-at-seed-3",
    ];
    let laws: Vec<_> = ids
        .iter()
        .filter_map(|id| unipgas_conformance::laws::find(id))
        .collect();
    let columns: Vec<_> = unipgas_conformance::matrix::columns()
        .iter()
        .filter(|column| column.name == "shm")
        .collect();
    let seeds = unipgas_conformance::matrix::SeedPlan {
        first: 1,
        count: 2,
        all: true,
        broken: false,
        cuts: false,
    };
    // One job after the other, and beside each other: the same, in the same order.
    for at_a_time in [1, 4] {
        let matrix = unipgas_conformance::matrix::Matrix::new(&runner, &laws, &columns, &seeds);
        matrix.run(at_a_time, &|_, _| ()).expect("jobs start");
        let cells = matrix.cells();
        let seen: Vec<String> = cells
            .iter()
            .map(|cell| match &cell.ran.verdict {
                unipgas_conformance::runner::LawResult::NotOffered(_) => "-".into(),
                unipgas_conformance::runner::LawResult::Pass => format!("pass {}", cell.ran.seeds),
                unipgas_conformance::runner::LawResult::Fail(failure) => failure.kind.name().into(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, ["pass 2", "crashes", "-", "hangs", "fails", "pass 2"]);
    }
}

/// What a law on two hosts says; nothing where hosts cannot be made, which is told in a line.
fn on_two_hosts(id: &str) -> Option<(String, Option<i32>)> {
    let output = conform(&["--law", id, "--limit", "2", "--hosts", "2"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        assert!(
            errors.starts_with("with-hosts: ") && errors.lines().count() == 1,
            "{errors}"
        );
        println!("(left out: {})", errors.trim());
        return None;
    }
    assert!(errors.is_empty(), "{id}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((text, output.status.code()))
}

fn several_hosts() {
    for (id, word, part, status) in [
        ("selftest.holds", "pass", "1 passed", 0),
        (
            "selftest.lies",
            "FAILS",
            "repeat: unipgas conform --law selftest.lies --hosts 2 --seed 1\n",
            1,
        ),
        (
            "selftest.hangs",
            "HANGS",
            "seen:   rank 1: nothing moves",
            1,
        ),
        (
            "selftest.crashes",
            "CRASHES",
            "seen:   rank 1 was killed by signal 6",
            1,
        ),
        ("selftest.exits", "CRASHES", "said nothing", 1),
        ("selftest.takes-its-time", "pass", "1 passed", 0),
        ("selftest.kills", "pass", "1 passed", 0),
        (
            "selftest.kills-and-lies",
            "FAILS",
            "rank 0: the survivor has seen something",
            1,
        ),
        ("selftest.dies-of-something-else", "CRASHES", "signal 6", 1),
        ("selftest.two-hosts", "pass", "1 passed", 0),
    ] {
        let Some((text, code)) = on_two_hosts(id) else {
            return;
        };
        assert!(text.contains(word) && text.contains(part), "{id}: {text}");
        assert_eq!(code, Some(status), "{id}: {text}");
    }
}

fn lists_on_a_full_device_and_a_closed_pipe() {
    for what in ["--list", "--coverage", "--sentences", "--help"] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = Command::new(CONFORM);
        let output = command.arg(what).stdout(full.unwrap()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code > 0), "{what}");
        assert!(
            text.lines().count() == 1 && text.contains("No space left"),
            "{what} {text}"
        );
    }
    let mut command = Command::new(CONFORM);
    let (out, err) = (Stdio::piped(), Stdio::piped());
    let mut child = command
        .arg("--list")
        .stdout(out)
        .stderr(err)
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Of input, output and error each subset is closed; with 8 a thread prints meanwhile.
fn no_descriptor_of_the_library_takes_the_number_of_a_standard_one() {
    const LAWS: &str = "gaspi.atomic.bound-memory,rcce.blocking.ring,utofu.mrq.fields,libfabric.msg.order,libfabric.cq.fd";
    for closed in [1, 2, 3, 4, 5, 6, 7, 8 + 7] {
        let mut command = Command::new(CONFORM);
        command.args(["--backend", "shm", "--seeds", "1", "--law", LAWS]);
        let output = command
            .env("UNIPGAS_TEST_CLOSED", closed.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.ends_with("\n5 passed, 0 failed, 0 skipped\n"),
            "{closed}: {text}"
        );
    }
}

fn main() -> ExitCode {
    unipgas_backends::init();
    let mut args = std::env::args().skip(1);
    let tests: &[(&str, fn())] = &[
        ("a_law_that_holds", a_law_that_holds),
        ("a_law_that_lies", a_law_that_lies),
        (
            "the_seed_is_the_one_that_failed",
            the_seed_is_the_one_that_failed,
        ),
        ("a_law_that_hangs", a_law_that_hangs),
        (
            "a_law_that_does_not_even_wait",
            a_law_that_does_not_even_wait,
        ),
        ("a_law_that_takes_its_time", a_law_that_takes_its_time),
        ("a_law_that_crashes", a_law_that_crashes),
        (
            "a_law_that_crashes_in_the_place_of_another_process",
            a_law_that_crashes_in_the_place_of_another_process,
        ),
        ("order_is_what_chaos_breaks", order_is_what_chaos_breaks),
        ("a_law_that_kills", a_law_that_kills),
        ("what_is_not_offered", what_is_not_offered),
        ("what_is_pinned", what_is_pinned),
        (
            "a_column_that_cannot_run_here",
            a_column_that_cannot_run_here,
        ),
        ("records", records),
        ("wrong_arguments", wrong_arguments),
        ("the_others_are_not_spoiled", the_others_are_not_spoiled),
        ("several_hosts", several_hosts),
        (
            "lists_on_a_full_device_and_a_closed_pipe",
            lists_on_a_full_device_and_a_closed_pipe,
        ),
        (
            "no_descriptor_of_the_library_takes_the_number_of_a_standard_one",
            no_descriptor_of_the_library_takes_the_number_of_a_standard_one,
        ),
    ];
    let wish = args.find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let wanted = tests.iter().filter(|(name, _)| name.contains(&wish));
    // Beside each other: most of them wait.
    let failed = std::thread::scope(|scope| {
        let running: Vec<_> = wanted
            .map(|(name, test)| (name, scope.spawn(test)))
            .collect();
        let ended = running.into_iter().map(|(name, test)| {
            let passed = test.join().is_ok();
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
            usize::from(!passed)
        });
        ended.sum::<usize>()
    });
    println!("\ntest result: {} failed", failed);
    ExitCode::from(u8::from(failed > 0))
}
