//! `unipgas run`, used as on a command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use unipgas_launcher::topology::Topology;

mod common;

use common::{Said, has, sorted, terminal, with_pipes, words};

/// The command, with default actions for signals.
fn unipgas(args: &[&str]) -> Command {
    let mut command = common::unipgas(args);
    // SAFETY:
    // - signal() only sets dispositions, and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // A test in the background inherits ignored signals.
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

fn run(args: &[&str]) -> Output {
    unipgas(&[&["run"], args].concat()).output().unwrap()
}

fn shell(options: &str, script: &str) -> Output {
    run(&[&words(options)[..], &["sh", "-c", script]].concat())
}

fn kill(signal: Signal, pid: u32) {
    let pid = Pid::from_raw(pid as i32).expect("not 0");
    kill_process(pid, signal).expect("the process exists");
}

fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let parent = rest.split_ascii_whitespace().nth(1);
    parent.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "{what} did not happen"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a job and reads the first `lines` lines of its output.
fn started(
    args: &[&str],
    lines: usize,
) -> (Child, Vec<String>, BufReader<std::process::ChildStdout>) {
    let mut child = unipgas(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let read = (0..lines)
        .map(|_| {
            let mut line = String::new();
            assert_ne!(
                reader.read_line(&mut line).unwrap(),
                0,
                "the job ended early"
            );
            line.trim_end().to_owned()
        })
        .collect();
    (child, read, reader)
}

#[test]
fn every_process_knows_its_place() {
    let text = shell(
        "-n 3 --bind core",
        "echo $UNIPGAS_RANK/$UNIPGAS_SIZE $UNIPGAS_BIND ${UNIPGAS_JOB##*:}",
    )
    .ok();
    let lines = sorted(&text);
    assert_eq!(lines.len(), 3);
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{rank}/3 core ")), "{line}");
    }
}

#[test]
fn processes_know_the_shape_of_their_network() {
    let shapes = |size: &str, variables: &[(&str, &str)]| {
        let output = unipgas(&["run", "-n", size, "sh", "-c", "echo $UNIPGAS_TOFU_SHAPE"])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = output.ok();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), size.parse::<usize>().unwrap());
        lines.dedup();
        assert_eq!(lines.len(), 1, "{text}");
        lines.remove(0)
    };
    assert_eq!(shapes("12", &[]), "1x1x1x2x3x2");
    assert_eq!(shapes("13", &[]), "2x1x1x2x3x2");
    assert_eq!(shapes("13", &[("UNIPGAS_TOFU_PPN", "2")]), "1x1x1x2x3x2");
    let wish = [("UNIPGAS_TOFU_SHAPE", "3x1x1x1x1x1")];
    assert_eq!(shapes("2", &wish), "3x1x1x1x1x1");
    assert_eq!(shapes("2", &[("UNIPGAS_TOFU_SHAPE", "")]), "1x1x1x2x3x2");
    for (name, value) in [("UNIPGAS_TOFU_PPN", "0"), ("UNIPGAS_TOFU_SHAPE", "2x2")] {
        let output = unipgas(&["run", "-n", "1", "true"])
            .env(name, value)
            .output()
            .unwrap();
        output.refuses(2, name);
    }
}

#[test]
fn the_arguments_of_the_program_are_its_own() {
    for options in ["-n 1", "-np 1", "--np=1 --", "-n1"] {
        let arguments = ["echo", "-n", "3", "--tag", "--help", "--", "x y"];
        let output = run(&[&words(options)[..], &arguments].concat());
        assert_eq!(output.ok(), "3 --tag --help -- x y", "{options}");
    }
}

#[test]
fn the_first_failing_status_is_returned_and_told() {
    let script = "[ $UNIPGAS_RANK = 1 ] || exec sleep 60; exit 7";
    let text = shell("-n 3", script).refuses(7, ") exited with status 7; ending the others\n");
    assert!(text.starts_with("unipgas: rank 1 (pid "), "{text}");
}

#[test]
fn a_signal_is_named_and_becomes_128_and_its_number() {
    let output = shell("-n 2", "[ $UNIPGAS_RANK = 0 ] || exec sleep 60; kill -9 $$");
    has(
        &output.ends(137),
        &["was killed by signal 9 (SIGKILL); ending the others"],
    );
}

#[test]
fn processes_that_ignore_the_request_to_end_are_killed() {
    let output = shell(
        "-n 2",
        "trap '' TERM; [ $UNIPGAS_RANK = 1 ] && sleep 0.2 && exit 3; while :; do sleep 0.1; done",
    );
    output.ends(3);
}

#[test]
fn keep_going_lets_the_others_finish() {
    let output = shell(
        "-n 3 --keep-going",
        "[ $UNIPGAS_RANK = 1 ] && exit 5; sleep 0.5; echo done $UNIPGAS_RANK",
    );
    output.ends(5);
    assert_eq!(sorted(&output.out()), ["done 0", "done 2"]);
    has(&output.err(), &["exited with status 5; the others go on"]);
}

#[test]
fn failures_of_ranks_that_go_on_are_listed_by_kind() {
    let script = "case $UNIPGAS_RANK in 1) kill -9 $$ ;; 2 | 3 | 5) exit 7 ;; esac";
    for (option, status) in [
        ("", None),
        ("--status-of 0", Some(0)),
        ("--status-of=1", Some(137)),
    ] {
        let output = shell(&format!("-n 6 --keep-going {option}"), script);
        if status.is_some() {
            assert_eq!(output.status.code(), status, "{option}");
        }
        let lists = ["rank 1 SIGKILL", "ranks 2, 3, 5 status 7"];
        has(&output.err(), &["4 of 6 ranks failed: "]);
        has(&output.err(), &lists);
    }
}

#[test]
fn spares_take_the_places_of_those_that_fail() {
    // The failure that ends the job waits until rank 0 has written.
    let mark = std::env::temp_dir().join(format!("unipgas-spares-{}", std::process::id()));
    let script = &format!(
        "echo $UNIPGAS_RANK:$UNIPGAS_INCARNATION; [ $UNIPGAS_RANK = 1 ] || {{ : >'{0}'; exit 0; }}; \
         until [ -e '{0}' ]; do sleep 0.01; done; [ ${{UNIPGAS_INCARNATION:-0}} -ge 2 ] || exit 5",
        mark.display()
    );
    let output = shell("-n 2 --spares 2", script);
    let _ = std::fs::remove_file(&mark);
    output.ends(0);
    assert_eq!(sorted(&output.out()), ["0:", "1:", "1:1", "1:2"]);
    has(&output.err(), &["takes its place, spares left: 0"]);
    // With one spare too few, the last failure ends the job.
    let output = shell("-n 2 --spares=1", script);
    let _ = std::fs::remove_file(&mark);
    output.ends(5);
    assert_eq!(sorted(&output.out()), ["0:", "1:", "1:1"]);
}

#[test]
fn lines_come_when_they_are_written_where_there_is_a_terminal() {
    let Some((ours, its)) = terminal() else {
        return;
    };
    let script = "[ -t 1 ] && [ ! -t 2 ] && echo yes || echo no; read line";
    let mut job = unipgas(&["run", "-n", "1", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(its)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    // The script waits for input, so this line arrives while the job runs.
    BufReader::new(ours).read_line(&mut line).unwrap();
    drop(job.stdin.take());
    assert_eq!(line.trim_end(), "yes");
    job.wait().unwrap();
}

#[test]
fn a_process_that_is_started_by_hand_takes_the_place_of_a_dead_one() {
    let script = "[ $UNIPGAS_RANK = 1 ] && exit 5; read line; echo $UNIPGAS_RANK $line";
    let mut job = unipgas(&["run", "-n", "2", "--keep-going", "sh", "-c", script]);
    let mut job = with_pipes(job.stderr(Stdio::piped()));
    let mut told = String::new();
    let mut errors = BufReader::new(job.stderr.take().unwrap());
    errors.read_line(&mut told).unwrap();
    assert!(told.contains("status 5; the others go on"), "{told}");
    let pid = job.id().to_string();
    let as_rank =
        |rank: &str, script: &str| run(&["--rank", rank, "--job", &pid, "sh", "-c", script]);
    let script = "echo $UNIPGAS_RANK/$UNIPGAS_SIZE:$UNIPGAS_INCARNATION";
    for (again, status) in [(1, 6), (2, 0)] {
        let output = as_rank("1", &format!("{script}; exit {status}"));
        assert_eq!(output.out(), format!("1/2:{again}\n"), "{}", output.err());
        assert_eq!(output.status.code(), Some(status));
    }
    for (rank, why) in [("0", "has not died"), ("2", "not in a job of 2")] {
        let output = as_rank(rank, "echo wrong");
        assert_eq!(output.status.code(), Some(2), "{}", output.out());
        assert!(output.err().contains(why), "{}", output.err());
    }
    job.stdin.take().unwrap().write_all(b"on\n").unwrap();
    let output = job.wait_with_output().unwrap();
    assert_eq!(output.out(), "0 on\n");
    assert_eq!(
        output.status.code(),
        Some(5),
        "that of the process that failed"
    );
    let output = as_rank("1", "echo wrong");
    has(&output.err(), &["is no launcher of a job"]);
    let output = run(&["--rank", "1", "true"]);
    has(&output.err(), &["--rank and --job go together"]);
}

#[test]
fn tag_labels_whole_lines_of_both_streams() {
    let script = "printf 'a\\nb %s' $UNIPGAS_RANK; echo oops >&2";
    let output = shell("-n 2 --tag", script);
    assert!(output.status.success());
    assert_eq!(
        sorted(&output.out()),
        ["[0] a", "[0] b 0", "[1] a", "[1] b 1"]
    );
    assert_eq!(sorted(&output.err()), ["[0] oops", "[1] oops"]);
    // Nothing of a large output is lost, and no line is torn.
    let output = shell("-n 3 --tag", "seq 1 20000");
    let text = output.out();
    assert_eq!(text.lines().count(), 60_000);
    for rank in 0..3 {
        let label = format!("[{rank}] ");
        let numbers = text
            .lines()
            .filter_map(|line| line.strip_prefix(&label))
            .map(|n| n.parse::<u32>().unwrap());
        assert!(numbers.eq(1..=20_000), "rank {rank}");
    }
}

#[test]
fn statistics_of_all_ranks_are_told_at_the_end() {
    let script = r#"[ "$UNIPGAS_STATS" = 2 ] || exit 3
        echo "{\"interface\":\"gaspi\",\"rank\":$UNIPGAS_RANK,\"size\":3,\"calls\":{\"gaspi_wait\":1$UNIPGAS_RANK},\"bytes\":{},\"nanoseconds\":{}}" >>"$UNIPGAS_STATS_TO""#;
    let output = shell("-n 3 --stats", script);
    let told = output.ends(0);
    let row: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("gaspi_wait"))
        .flat_map(str::split_whitespace)
        .collect();
    assert_eq!(
        row,
        ["33", "10", "(0)", "12", "(2)", "10", "11", "12"],
        "{told}"
    );
    let output = shell("-n 2 --stats=json", script);
    let ranks: Vec<String> = output
        .err()
        .lines()
        .map(|line| line.split(',').nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(ranks, ["\"rank\":0", "\"rank\":1"]);
    // Ranks without statistics produce a warning.
    let output = shell("-n 2 --stats", "true");
    assert!(output.status.success());
    has(&output.err(), &["2 of 2 ranks have left no statistics"]);
    let output = shell("-n 1", "echo ${UNIPGAS_STATS:-nothing}");
    assert_eq!(output.out(), "nothing\n");
}

#[test]
fn standard_input_goes_to_rank_0() {
    let mut child = with_pipes(&mut unipgas(&["run", "-n", "3", "--tag", "cat"]));
    child.stdin.take().unwrap().write_all(b"x\ny\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.out(), "[0] x\n[0] y\n");
}

#[test]
fn bad_arguments_get_one_line_and_status_2() {
    for (args, part) in [
        ("-n 0 true", "1 to 65536"),
        ("-n 65537 true", "1 to 65536"),
        ("-n -3 true", "1 to 65536"),
        ("-n many true", "1 to 65536"),
        ("-n 2", "unipgas run -n 4 ./program"),
        ("true", "unipgas run -n 4 ./program"),
        ("-n 2 --backend pigeon true", "there are: shm"),
        ("-n 2 --bind chair true", "none, core, numa"),
        ("-n 2 --seed x true", "--seed"),
        ("-n 2 --timeout -1 true", "--timeout"),
        ("-n 2 --tagg true", "'--tag'"),
        ("-n 2 --oversubscribe true", "--oversubscribe"),
    ] {
        let output = run(&words(args));
        let text = output.refuses(2, part);
        assert!(text.starts_with("unipgas: "), "{args} {text}");
        assert_eq!(output.out(), "");
    }
}

#[test]
fn programs_that_cannot_be_started_get_the_status_of_a_shell() {
    for (program, status, part) in [
        (
            "no-such-program",
            127,
            "no program \"no-such-program\" in PATH",
        ),
        ("./no/such", 127, "there is no program ./no/such"),
        ("", 127, "no program"),
        ("/etc/passwd", 126, "/etc/passwd is not executable"),
        ("/etc", 126, "/etc is a directory"),
    ] {
        run(&["-n", "2", program]).refuses(status, part);
    }
}

#[test]
fn signals_reach_every_rank() {
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("QUIT", Signal::QUIT),
    ] {
        let script =
            format!("trap 'echo got; exit 0' {name}; echo ready; while :; do sleep 0.02; done");
        let (mut child, _, mut reader) = started(&["run", "-n", "3", "sh", "-c", &script], 3);
        kill(signal, child.id());
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "got\n".repeat(3), "{name}");
        assert!(child.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn ranks_heed_interrupts_though_the_launcher_was_told_to_ignore_them() {
    let mut command = unipgas(&["run", "-n", "2", "sh", "-c", "kill -INT $$; echo alive"]);
    // SAFETY:
    // - signal() only sets a disposition, and may be called between fork and exec. It runs after the closure of `unipgas`.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGINT));
    assert_eq!(output.out(), "");
}

#[test]
fn a_second_interrupt_kills() {
    let script = "trap 'echo interrupted' INT; echo ready; while :; do sleep 0.05; done";
    let (mut child, _, mut reader) = started(&["run", "-n", "2", "sh", "-c", script], 2);
    kill(Signal::INT, child.id());
    // This line proves that the launcher has read the first signal.
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "interrupted\n");
    assert!(child.try_wait().unwrap().is_none());
    // Two signals in a short time count as one.
    std::thread::sleep(Duration::from_millis(300));
    kill(Signal::INT, child.id());
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn nothing_survives_a_launcher_that_is_killed() {
    let (mut child, pids, _reader) = started(
        &["run", "-n", "4", "sh", "-c", "echo $$; exec sleep 300"],
        4,
    );
    kill(Signal::KILL, child.id());
    child.wait().unwrap();
    for pid in pids {
        let pid = pid.parse().unwrap();
        until("the end of a rank", || !exists(pid));
    }
}

/// A rank that is a script. It starts two programs: one in its session, one in a new session. It writes four pids: the script, the two programs, and its
/// parent, the launcher.
const WRAPPER: &str = "sleep 300 & beside=$!; setsid sleep 300 & echo $$ $beside $! $PPID; wait";

/// A job of two wrappers, and the pids that they have written.
fn job_of_wrappers() -> (Child, Vec<u32>, BufReader<std::process::ChildStdout>) {
    let (child, lines, reader) = started(&["run", "-n", "2", "sh", "-c", WRAPPER], 2);
    let words = lines.iter().flat_map(|line| line.split(' '));
    let pids: Vec<u32> = words.map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 8);
    assert!(pids.iter().all(|&pid| exists(pid)), "{pids:?}");
    (child, pids, reader)
}

/// Kills a process of a job of wrapper scripts, and waits until all others have ended. Returns the status of `unipgas run`.
fn killed_with_wrappers(victim: impl FnOnce(&Child, &[u32]) -> u32) -> (Option<i32>, String) {
    let (mut child, pids, _reader) = job_of_wrappers();
    kill(Signal::KILL, victim(&child, &pids));
    for pid in pids {
        until("the end of what a wrapper has started", || !exists(pid));
    }
    let status = child.wait().unwrap();
    let mut text = String::new();
    let mut said = child.stderr.take().unwrap();
    said.read_to_string(&mut text).unwrap();
    (status.code(), text)
}

#[test]
fn what_wrappers_have_started_does_not_survive_the_keeper() {
    let (status, _) = killed_with_wrappers(|child, _| child.id());
    assert_eq!(status, None, "it was killed");
}

#[test]
fn what_wrappers_have_started_does_not_survive_the_launcher() {
    let (status, text) = killed_with_wrappers(|child, pids| {
        // The keeper is a child of this test, the launcher a child of the keeper.
        assert_eq!(parent(pids[3]), child.id());
        pids[3]
    });
    assert_eq!(status, Some(137), "{text}");
    assert!(
        text.contains("the launcher of the job was killed by signal 9 (SIGKILL)"),
        "{text}"
    );
}

#[test]
fn a_stopped_job_ends_with_its_keeper() {
    let (mut child, pids, _reader) = job_of_wrappers();
    for &pid in &pids {
        kill(Signal::STOP, pid);
    }
    kill(Signal::KILL, child.id());
    for pid in pids {
        until("the end of a stopped process", || !exists(pid));
    }
    child.wait().unwrap();
}

#[test]
fn what_ranks_leave_behind_ends_with_the_job() {
    let output = shell("-n 2", "sleep 300 >&- 2>&- & echo $!");
    let text = output.ok();
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().all(|pid| !exists(pid.parse().unwrap())));
}

#[test]
fn a_job_that_takes_too_long_is_ended() {
    let output = run(&["-n", "2", "--timeout", "0.3", "sleep", "60"]);
    has(&output.ends(124), &["did not end within 0.3 s"]);
}

#[test]
fn ranks_are_bound_in_turn() {
    let cores = |bind: &str| {
        let output = shell(
            &format!("-n 2 --tag --bind {bind}"),
            "grep Cpus_allowed_list /proc/self/status",
        );
        let text = output.ok();
        sorted(&text)
            .into_iter()
            .map(|line| line.rsplit_once('\t').unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    let free = cores("none");
    assert_eq!(free[0], free[1]);
    let bound = cores("core");
    let usable = Topology::load().unwrap().usable_cores().len();
    assert_eq!(bound[0] == bound[1], usable == 1, "{bound:?}");
    assert_eq!(cores("numa").len(), 2);
}

#[test]
fn chaos_tells_the_seed_that_it_drew() {
    let output = shell(
        "-n 2 --backend chaos",
        "echo $UNIPGAS_BACKEND $UNIPGAS_SEED; exit 1",
    );
    let text = output.out();
    let seed = text.lines().next().unwrap().strip_prefix("chaos ").unwrap();
    has(&output.err(), &[&format!("--seed {seed} repeats this run")]);
    let output = shell("-n 2 --backend chaos --seed 42", "echo $UNIPGAS_SEED");
    assert_eq!(output.out(), "42\n42\n");
}

#[test]
fn many_processes_start_fast() {
    let start = Instant::now();
    assert!(run(&["-n", "48", "true"]).status.success());
    println!("48 processes: {:?}", start.elapsed());
    let output = shell("-n 1000 --tag", "echo $UNIPGAS_RANK");
    assert!(output.status.success(), "{}", output.err());
    assert_eq!(output.out().lines().count(), 1000);
    println!("1048 processes: {:?}", start.elapsed());
}

#[test]
fn variables_and_a_directory_are_given_to_the_processes() {
    let given = ["-n", "2", "-x", "GIVEN=a=b c"];
    let rest = words("-x PATH -wdir / sh -c");
    let output = run(&[&given, &rest[..], &["echo $GIVEN $PWD"]].concat());
    assert_eq!(output.ok(), "a=b c /\n".repeat(2));
    for (args, part) in [
        (["-x", "NOT_IN_ANY_ENVIRONMENT"], "the environment has no"),
        (["-x", "=1"], "the name of a variable"),
        (["--wdir", "/no/such"], "/no/such: No such file"),
    ] {
        run(&[&["-n", "1"], &args[..], &["true"]].concat()).refuses(2, part);
    }
}

#[test]
fn the_last_of_repeated_options_counts() {
    let output = shell("-n 5 -n 2 --tag --tag", "echo $UNIPGAS_SIZE");
    assert_eq!(output.ok().lines().count(), 2);
}

#[test]
fn bindings_are_reported() {
    let report = |args: &str| run(&words(&format!("{args} --report-bindings true"))).ends(0);
    has(&report("-n 1"), &["rank 0 on ", " is not bound"]);
    let text = report("-n 2 --bind numa");
    has(&text, &["rank 1 on ", " is bound to CPU"]);
    assert!(!text.contains("share"), "{text}");
    // More ranks than cores.
    let output = run(&["-n", "300", "--bind", "core", "true"]);
    let text = output.ends(0);
    assert!(
        text.contains("300 ranks share ") && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn what_there_is_not_is_suggested() {
    let said = |args: &[&str]| {
        let output = unipgas(args).output().unwrap();
        (output.status.code(), output.out(), output.err())
    };
    let (status, _, text) = said(&["confrom", "--list"]);
    assert_eq!(status, Some(2));
    assert!(
        text.contains("'conform'") && text.lines().count() == 1,
        "{text}"
    );
    let (status, text, _) = said(&["help", "run"]);
    assert_eq!(status, Some(0));
    assert!(text.contains("--report-bindings"), "{text}");
}

#[test]
fn output_goes_to_files() {
    let place = std::env::temp_dir().join(format!("unipgas-output-{}", std::process::id()));
    let place = place.to_str().unwrap();
    let text = |rank: u32, kind: &str| {
        std::fs::read_to_string(format!("{place}/sub/rank.{rank}.{kind}")).unwrap()
    };
    let script = "echo out $UNIPGAS_RANK; echo err $UNIPGAS_RANK >&2; [ -n \"$UNIPGAS_INCARNATION\" ] || [ $UNIPGAS_RANK != 1 ]";
    for _ in 0..2 {
        let to = format!("{place}/sub");
        let output = run(&[
            "-n", "2", "--output", &to, "--spares", "1", "sh", "-c", script,
        ]);
        assert_eq!(output.ok(), "");
        assert_eq!(
            (text(0, "out"), text(0, "err")),
            ("out 0\n".into(), "err 0\n".into())
        );
        assert_eq!(text(1, "out"), "out 1\n".repeat(2));
    }
    let output = run(&["-n", "2", "--output", "/proc/none", "true"]);
    let text = output.ends(2);
    assert!(
        text.contains("cannot write") && text.lines().count() == 1,
        "{text}"
    );
    std::fs::remove_dir_all(place).unwrap();
}
