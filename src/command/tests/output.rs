//! Simultaneous output of several ranks, as `unipgas run` forwards it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

mod common;

use common::{Folder, RSH, Said, sorted, terminal, unipgas, with_pipes, words};

/// A job with a time limit.
fn job(options: &str, script: &str) -> Command {
    let mut command = unipgas(&["run", "--timeout", "200"]);
    command.args(words(options)).args(["sh", "-c", script]);
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    command
}

fn run(options: &str, script: &str) -> Output {
    job(options, script).output().unwrap()
}

/// The text and the status, with one file as standard output and error.
fn at_one_file(options: &str, script: &str) -> (String, Option<i32>) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut command = job(options, script);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // Closes the writing ends in this process.
    drop(command);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    (text, child.wait().unwrap().code())
}

/// Options for jobs of four processes: on this host, and on two names of this host.
fn places(folder: &Folder) -> [String; 2] {
    let rsh = folder.script("rsh", RSH);
    let hosts = format!("--launcher {rsh} --hosts a.invalid:2,b.invalid:2");
    ["-n 4".to_owned(), hosts]
}

#[test]
fn lines_that_are_written_in_parts_stay_whole() {
    let place = Folder::new("output-parts");
    let script = "r=$UNIPGAS_RANK; for i in $(seq 100); do printf '<%s' $r; printf ':%s>\\n' $r; printf '(%s' $r >&2; echo :$r')' >&2; done";
    let whole = [
        "<0:0>", "<1:1>", "<2:2>", "<3:3>", "(0:0)", "(1:1)", "(2:2)", "(3:3)",
    ];
    for options in places(&place) {
        let (text, status) = at_one_file(&options, script);
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
    let place = Folder::new("output-long");
    let script = "head -c 1000000 /dev/zero | tr '\\0' $UNIPGAS_RANK; echo";
    for options in places(&place) {
        let output = run(&options, script);
        let text = output.ok();
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
    // The launcher's peak memory, in KiB.
    let script = "head -c 100000000 /dev/zero; grep VmHWM /proc/$PPID/status >&2";
    let output = run("-n 2", script);
    assert!(output.stdout.len() >= 200_000_000);
    let told = output.err();
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
    let place = Folder::new("output-question");
    let script = "[ $UNIPGAS_RANK = 0 ] || exit 0; printf 'name? '; read name; echo hello $name";
    for options in places(&place) {
        let mut child = with_pipes(&mut job(&options, script));
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
    let place = Folder::new("output-died");
    let script = "[ $UNIPGAS_RANK = 1 ] || exec sleep 300; printf 'last words'; kill -9 $$";
    for options in places(&place) {
        let (text, status) = at_one_file(&options, script);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(status, Some(137), "{text}");
        assert!(
            lines.len() == 2
                && lines[0] == "last words"
                && lines[1].starts_with("unipgas: rank 1 (pid "),
            "{text}"
        );
    }
    // Statistics at the end also start on a new line.
    let (text, _) = at_one_file("-n 2 --stats", "printf half$UNIPGAS_RANK");
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
    let (text, _) = at_one_file("-n 2", script);
    let expected: String = (1..=300).map(|i| format!("{i}\n{i}\n")).collect();
    assert!(text == expected, "{text}");
}

#[test]
fn bytes_of_one_rank_stay_as_they_are() {
    let place = Folder::new("output-bytes");
    let bytes: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    std::fs::write(place.0.join("bytes"), &bytes).unwrap();
    let script = "[ $UNIPGAS_RANK != 1 ] || cat \"$FILE\"";
    for options in places(&place) {
        let mut command = job(&options, script);
        let output = command.env("FILE", place.0.join("bytes")).output().unwrap();
        assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
    }
}

#[test]
fn labels_have_colours_on_terminals_only() {
    let text = run("-n 1 --tag", "echo x").ok();
    assert_eq!(text, "[0] x\n");
    let Some((mut ours, its)) = terminal() else {
        return;
    };
    let mut seen = |variables: &[(&str, &str)]| {
        let status = job("-n 1 --tag", "[ -t 1 ] && [ -t 2 ] && echo x")
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
    let place = Folder::new("output-closed");
    for options in places(&place) {
        let mut child = job(&options, "exec yes")
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
    let output = job("-n 2", "echo x").stdout(full).output().unwrap();
    output.refuses(1, "cannot pass on the output of the job: No space left");
}

#[test]
fn a_reader_that_has_stopped_does_not_keep_the_job() {
    let place = Folder::new("output-stopped");
    for options in places(&place) {
        let mut child = job(&format!("--timeout 0.3 {options}"), "exec yes")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(124));
    }
}

#[test]
fn files_of_ranks_are_those_of_all_hosts() {
    let place = Folder::new("output-files");
    for options in places(&place) {
        let said = place.0.join("said");
        let options = format!("--output {} {options}", said.display());
        let output = run(
            &options,
            "printf out$UNIPGAS_RANK; echo err$UNIPGAS_RANK >&2",
        );
        assert_eq!(output.ok() + &output.err(), "");
        for rank in 0..4 {
            let read = |end| std::fs::read_to_string(said.join(format!("rank.{rank}.{end}")));
            assert_eq!(read("out").unwrap(), format!("out{rank}"));
            assert_eq!(read("err").unwrap(), format!("err{rank}\n"));
        }
        std::fs::remove_dir_all(&said).unwrap();
    }
}
