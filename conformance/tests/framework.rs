//! The framework on laws that lie, hang and crash, in processes and in threads.

use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

use unipgas_conformance::runner::{LawResult, Runner};
use unipgas_conformance::{laws, matrix};

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

/// Runs one law, checks its exit status and a part of its output, and returns the output.
fn says(id: &str, more: &[&str], part: &str, status: i32) -> String {
    let (text, code) = law(id, more);
    has(&text, part);
    assert_eq!(code, Some(status), "{text}");
    text
}

fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} in: {text}");
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
        let end = "\n1 passed, 0 failed, 0 skipped\n";
        says("selftest.holds", &["--backend", backend], end, 0);
    }
}

fn a_law_that_lies() {
    for backend in ["shm", "loopback"] {
        let text = says("selftest.lies", &["--backend", backend], "FAILS", 1);
        has(&text, "seen:   rank 1: rank: 1 instead of 0\n");
        let again = "repeat: unipgas conform --law selftest.lies";
        has(&text, &format!("{again} --backend {backend} --seed 1\n"));
        has(&text, "\n0 passed, 1 failed, 0 skipped\n");
        let panics = "rank 0: panicked: rank 0 panics";
        says("selftest.panics", &["--backend", backend], panics, 1);
    }
}

fn the_seed_is_the_one_that_failed() {
    let id = "selftest.lies-at-seed-3";
    says(id, &["--backend", "chaos"], "fails on chaos (seed 3)", 1);
    says(id, &["--backend", "chaos", "--seed", "3"], "FAILS", 1);
    says(id, &["--backend", "chaos", "--seed", "4"], "1 passed", 0);
}

fn a_law_that_hangs() {
    for backend in ["shm", "loopback"] {
        let text = says("selftest.hangs", &["--backend", backend], "HANGS", 1);
        has(&text, "seen:   rank 1: nothing moves");
    }
}

fn a_law_that_does_not_even_wait() {
    // The later limit counts.
    let more = ["--backend", "shm", "--limit", "1"];
    let text = says("selftest.sleeps", &more, "HANGS", 1);
    has(&text, "seen:   rank 1: nothing moves for 10s");
}

fn a_law_that_takes_its_time() {
    for backend in ["shm", "loopback"] {
        let id = "selftest.takes-its-time";
        says(id, &["--backend", backend], "1 passed", 0);
    }
}

fn a_law_that_crashes() {
    for (backend, who) in [("shm", "rank 1"), ("loopback", "the process of all ranks")] {
        let text = says("selftest.crashes", &["--backend", backend], "CRASHES", 1);
        has(&text, &format!("seen:   {who} was killed by signal 6"));
        says("selftest.exits", &["--backend", backend], "CRASHES", 1);
    }
}

fn a_law_that_crashes_in_the_place_of_another_process() {
    let seen = "seen:   rank 1 has had 3 processes, and 1 of them killed themselves";
    let id = "selftest.crashes-in-its-place";
    has(&says(id, &["--backend", "shm"], "CRASHES", 1), seen);
}

fn order_is_what_chaos_breaks() {
    let id = "selftest.notice-without-order";
    // Which seed breaks it depends on who runs when.
    let many = ["--backend", "chaos", "--seeds", "300"];
    has(&says(id, &many, "the notice of round", 1), "overtook put");
    says(id, &["--backend", "shm"], "pass x20", 0);
}

fn a_law_that_kills() {
    let shm = ["--backend", "shm"];
    says("selftest.kills", &shm, "1 passed", 0);
    let seen = "rank 0: the survivor has seen something";
    says("selftest.kills-and-lies", &shm, seen, 1);
    let text = says("selftest.dies-of-something-else", &shm, "CRASHES", 1);
    has(&text, "rank 1 was killed by signal 6");
    let text = nothing_applies("selftest.kills", &["--backend", "loopback"]);
    has(&text, "cannot be killed one by one");
}

fn what_is_not_offered() {
    let (id, why) = ("selftest.not-offered", "nobody has it");
    let text = says(id, &["--backend", "shm"], &format!("shm: {id}: {why}"), 0);
    has(&text, "\n0 passed, 0 failed, 1 skipped\n");
}

fn what_is_pinned() {
    let id = "selftest.holds-against-its-pin";
    let broken = format!("known to be broken (broken):\n  shm: {id}: for a test\n");
    says(id, &["--backend", "shm"], &broken, 0);
    let said = "an unexpected pass: it is pinned as broken (for a test)";
    says(id, &["--backend", "shm", "--pinned"], said, 1);
    let text = nothing_applies(id, &["--backend", "chaos", "--pinned"]);
    has(&text, "not applicable (n/a):\n  chaos: ");
    says(id, &["--backend", "loopback", "--pinned"], "1 passed", 0);
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
    let columns = matrix::columns().iter();
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
    let runner = Runner::new(Duration::from_secs(2), "".into());
    let mut runner = runner.expect("own path");
    runner.program = CONFORM.into();
    let ids = [
        "holds",
        "crashes",
        "not-offered",
        "hangs",
        "lies",
        "lies-at-seed-3",
    ];
    let find = |id: &&str| laws::find(&format!("selftest.{id}"));
    let laws: Vec<_> = ids.iter().filter_map(find).collect();
    let columns = matrix::columns().iter();
    let columns: Vec<_> = columns.filter(|column| column.name == "shm").collect();
    let seeds = matrix::SeedPlan {
        first: 1,
        count: 2,
        all: true,
        broken: false,
        cuts: false,
    };
    // One job after the other, and beside each other: the same, in the same order.
    for at_a_time in [1, 4] {
        let matrix = matrix::Matrix::new(&runner, &laws, &columns, &seeds);
        matrix.run(at_a_time, &|_, _| ()).expect("jobs start");
        let cells = matrix.cells();
        let seen: Vec<String> = cells
            .iter()
            .map(|cell| match &cell.ran.verdict {
                LawResult::NotOffered(_) => "-".into(),
                LawResult::Pass => format!("pass {}", cell.ran.seeds),
                LawResult::Fail(failure) => failure.kind.name().into(),
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
    let (lies, shown) = ("selftest.lies", "rank 1 was killed by signal 6");
    let again = format!("repeat: unipgas conform --law {lies} --hosts 2 --seed 1\n");
    let survivor = "rank 0: the survivor has seen something";
    for (id, word, part, status) in [
        ("selftest.holds", "pass", "1 passed", 0),
        (lies, "FAILS", &again, 1),
        ("selftest.hangs", "HANGS", "rank 1: nothing moves", 1),
        ("selftest.crashes", "CRASHES", shown, 1),
        ("selftest.exits", "CRASHES", "said nothing", 1),
        ("selftest.takes-its-time", "pass", "1 passed", 0),
        ("selftest.kills", "pass", "1 passed", 0),
        ("selftest.kills-and-lies", "FAILS", survivor, 1),
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

macro_rules! tests {
    ($($test:ident),*) => {
        [$((stringify!($test), $test as fn())),*]
    };
}

fn main() -> ExitCode {
    unipgas_backends::init();
    let mut args = std::env::args().skip(1);
    let tests = tests! {
        a_law_that_holds, a_law_that_lies, the_seed_is_the_one_that_failed, a_law_that_hangs, a_law_that_does_not_even_wait,
        a_law_that_takes_its_time, a_law_that_crashes, a_law_that_crashes_in_the_place_of_another_process, order_is_what_chaos_breaks,
        a_law_that_kills, what_is_not_offered, what_is_pinned, a_column_that_cannot_run_here, records, wrong_arguments,
        the_others_are_not_spoiled, several_hosts, lists_on_a_full_device_and_a_closed_pipe,
        no_descriptor_of_the_library_takes_the_number_of_a_standard_one
    };
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
