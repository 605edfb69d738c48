//! What ranks write at the same time, as `unipgas run` passes it on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A job that is ended if it hangs.
fn job(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unipgas"));
    command.args(["run", "--timeout", "200"]).args(options);
    command.args(["sh", "-c", script]).stdin(Stdio::null());
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    for name in ["UNIPGAS_BACKEND", "UNIPGAS_SEED", "UNIPGAS_LAUNCHER"] {
        command.env_remove(name);
    }
    command
}

fn run(options: &[&str], script: &str) -> Output {
    job(options, script).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// What comes where standard output and error are one file, and the status.
fn at_one_file(options: &[&str], script: &str) -> (String, Option<i32>) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut command = job(options, script);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // Its own ends of the pipe.
    drop(command);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    (text, child.wait().unwrap().code())
}

/// A directory with a remote shell whose hosts are all this one.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let place = format!("output-{name}-{}", std::process::id());
        let place = Place(Path::new(env!("CARGO_TARGET_TMPDIR")).join(place));
        std::fs::create_dir_all(&place.0).unwrap();
        std::fs::write(place.0.join("rsh"), "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.0.join("rsh"), mode).unwrap();
        place
    }

    fn rsh(&self) -> String {
        self.0.join("rsh").to_str().unwrap().into()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Options for a job of four on this host, and on two that are this one.
fn places(place: &Place) -> [Vec<String>; 2] {
    let rsh = place.rsh();
    [
        vec!["-n", "4"],
        vec!["--launcher", &rsh, "--hosts", "a.invalid:2,b.invalid:2"],
    ]
    .map(|words| words.into_iter().map(str::to_owned).collect())
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

#[test]
fn lines_that_are_written_in_parts_stay_whole() {
    let place = Place::new("parts");
    let script = "r=$UNIPGAS_RANK; for i in $(seq 100); do printf '<%s' $r; printf ':%s>\\n' $r; printf '(%s' $r >&2; echo :$r')' >&2; done";
    let whole = [
        "<0:0>", "<1:1>", "<2:2>", "<3:3>", "(0:0)", "(1:1)", "(2:2)", "(3:3)",
    ];
    for options in places(&place) {
        let (text, status) = at_one_file(&words(&options), script);
        assert_eq!(status, Some(0), "{text}");
        for line in whole {
            let count = text.lines().filter(|other| *other == line).count();
            assert_eq!(count, 100, "{line} {options:?}");
        }
        assert_eq!(text.lines().count(), 800);
    }
}

#[test]
fn very_long_lines_stay_whole_and_are_not_kept() {
    let place = Place::new("long");
    let script = "head -c 1000000 /dev/zero | tr '\\0' $UNIPGAS_RANK; echo";
    for options in places(&place) {
        let output = run(&words(&options), script);
        assert!(output.status.success(), "{}", err(&output));
        let text = out(&output);
        let lines: Vec<(usize, &str)> = sorted(&text)
            .iter()
            .map(|line| (line.len(), &line[..1]))
            .collect();
        assert_eq!(lines, ["0", "1", "2", "3"].map(|rank| (1_000_000, rank)));
        let ranks = sorted(&text).into_iter().zip('0'..);
        for (line, rank) in ranks {
            assert!(line.chars().all(|letter| letter == rank), "{options:?}");
        }
    }
    // The launcher's memory at its largest, in KiB.
    let script = "head -c 100000000 /dev/zero; grep VmHWM /proc/$PPID/status >&2";
    let output = run(&["-n", "2"], script);
    assert!(output.stdout.len() >= 200_000_000);
    let told = err(&output);
    let rest_of = |line: &str| Some(line.strip_prefix("VmHWM:")?.trim().to_owned());
    let most = told.lines().filter_map(rest_of);
    let kibibytes = |rest: String| rest.strip_suffix(" kB")?.parse::<u64>().ok();
    let most: Vec<u64> = most.filter_map(kibibytes).collect();
    assert!(
        most.len() == 2 && most.iter().all(|most| *most < 60_000),
        "{told}"
    );
}

#[test]
fn a_question_without_an_end_of_line_is_seen() {
    let place = Place::new("question");
    let script = "[ $UNIPGAS_RANK = 0 ] || exit 0; printf 'name? '; read name; echo hello $name";
    for options in places(&place) {
        let mut child = job(&words(&options), script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut question = [0; 6];
        output.read_exact(&mut question).unwrap();
        assert_eq!(&question, b"name? ");
        child.stdin.take().unwrap().write_all(b"you\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "hello you\n");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn what_is_said_of_a_rank_begins_a_line() {
    let place = Place::new("died");
    let script = "[ $UNIPGAS_RANK = 1 ] || exec sleep 300; printf 'last words'; kill -9 $$";
    for options in places(&place) {
        let (text, status) = at_one_file(&words(&options), script);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(status, Some(137), "{text}");
        assert!(
            lines.len() == 2
                && lines[0] == "last words"
                && lines[1].starts_with("unipgas: rank 1 (pid "),
            "{text}"
        );
    }
    // What is told when all is over, too.
    let (text, _) = at_one_file(&["-n", "2", "--stats"], "printf half$UNIPGAS_RANK");
    let lines = sorted(&text);
    assert!(
        lines[..2] == ["half0", "half1"] && lines[2].starts_with("unipgas: 2 of 2 ranks"),
        "{text}"
    );
}

#[test]
fn the_order_of_a_rank_that_writes_to_one_file_stays() {
    let script =
        "[ $UNIPGAS_RANK = 0 ] || exit 0; for i in $(seq 300); do echo $i; echo $i >&2; done";
    let (text, _) = at_one_file(&["-n", "2"], script);
    let expected: String = (1..=300).map(|i| format!("{i}\n{i}\n")).collect();
    assert!(text == expected, "{text}");
}

#[test]
fn bytes_of_one_rank_stay_as_they_are() {
    let place = Place::new("bytes");
    let bytes: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(place.0.join("bytes"), &bytes).unwrap();
    let script = "[ $UNIPGAS_RANK != 1 ] || cat \"$FILE\"";
    for options in places(&place) {
        let mut command = job(&words(&options), script);
        let output = command.env("FILE", place.0.join("bytes")).output().unwrap();
        assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
    }
}

#[test]
fn labels_have_colours_on_terminals_only() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let text = out(&run(&["-n", "1", "--tag"], "echo x"));
    assert_eq!(text, "[0] x\n");
    let Ok(ours) = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY) else {
        return eprintln!("left out: this machine has no terminals (/dev/ptmx)");
    };
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let its: OwnedFd = File::options()
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap()
        .into();
    let mut ours = File::from(ours);
    let mut seen = |variables: &[(&str, &str)]| {
        let status = job(&["-n", "1", "--tag"], "[ -t 1 ] && [ -t 2 ] && echo x")
            .envs(variables.iter().copied())
            .stdout(its.try_clone().unwrap())
            .stderr(its.try_clone().unwrap())
            .status()
            .unwrap();
        assert!(status.success());
        let mut block = [0; 100];
        let count = ours.read(&mut block).unwrap();
        String::from_utf8_lossy(&block[..count]).into_owned()
    };
    assert_eq!(seen(&[]), "\x1b[31m[0]\x1b[0m x\r\n");
    assert_eq!(seen(&[("NO_COLOR", "1")]), "[0] x\r\n");
    assert_eq!(seen(&[("TERM", "dumb")]), "[0] x\r\n");
}

#[test]
fn who_reads_no_more_ends_the_writers() {
    let place = Place::new("closed");
    for options in places(&place) {
        let mut child = job(&words(&options), "exec yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut block = [0; 2];
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut block).unwrap();
        drop(output);
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGPIPE));
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = job(&["-n", "2"], "echo x").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert!(
        said.contains("cannot pass on the output of the job: No space left")
            && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_reader_that_has_stopped_does_not_keep_the_job() {
    let place = Place::new("stopped");
    for options in places(&place) {
        let options = [&["--timeout", "0.3"], &words(&options)[..]].concat();
        let mut child = job(&options, "exec yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(124));
    }
}

#[test]
fn files_of_ranks_are_those_of_all_hosts() {
    let place = Place::new("files");
    for options in places(&place) {
        let said = place.0.join("said");
        let options = [&["--output", said.to_str().unwrap()], &words(&options)[..]].concat();
        let output = run(
            &options,
            "printf out$UNIPGAS_RANK; echo err$UNIPGAS_RANK >&2",
        );
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(out(&output) + &err(&output), "");
        for rank in 0..4 {
            let read = |end| std::fs::read_to_string(said.join(format!("rank.{rank}.{end}")));
            assert_eq!(read("out").unwrap(), format!("out{rank}"));
            assert_eq!(read("err").unwrap(), format!("err{rank}\n"));
        }
        std::fs::remove_dir_all(&said).unwrap();
    }
}
