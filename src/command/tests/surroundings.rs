//! The environment of the command: variables, other launchers, closed and full files.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use unipgas::core::variables::{self, OF_TESTS, Variable};

mod common;

use common::{Folder, Said, has};

fn all() -> Vec<Variable> {
    unipgas::init();
    variables::all()
}

fn unipgas(args: &[&str]) -> Command {
    let mut command = common::unipgas(args);
    for variable in all().iter().chain(&OF_TESTS) {
        command.env_remove(variable.name);
    }
    command
}

/// The output of the command with these variables.
fn unipgas_with(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = unipgas(args);
    command.envs(variables.iter().copied()).output().unwrap()
}

/// The only line on standard error.
fn line(output: &Output) -> String {
    let text = output.err();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn the_readme_has_the_variables_that_there_are() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, section) = text.split_once("\n## Environment\n").unwrap();
    let (table, _) = section.split_once("\n## ").unwrap();
    let mut described: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .flat_map(|line| line.split_once(" | ").unwrap().0.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    described.sort_unstable();
    let mut known: Vec<&str> = all().iter().chain(&OF_TESTS).map(|v| v.name).collect();
    // Variables of all build tools.
    known.extend(["CC", "CXX"]);
    known.sort_unstable();
    assert_eq!(described, known);
}

#[test]
fn wrong_values_are_named_before_anything_starts() {
    for (name, value) in [
        ("UNIPGAS_SEED", "abc"),
        ("UNIPGAS_SEED", "-1"),
        ("UNIPGAS_BACKEND", "pigeon"),
        ("UNIPGAS_SHM_ADOPT", "no"),
        ("UNIPGAS_TOFU_PPN", "0"),
        ("UNIPGAS_TOFU_SHAPE", "2x2"),
        ("UNIPGAS_RCCE_MPB", "8k"),
        ("UNIPGAS_RCCE_CORES", "48"),
        ("UTOFU_NUM_MRQ_ENTRIES", "3Ki"),
        ("UTOFU_NUM_EXCLUSIVE_CQS", "x"),
        ("UTOFU_SWAP_PROTECT", "yes"),
    ] {
        let output = unipgas_with(&[(name, value)], &["run", "-n", "2", "echo", "started"]);
        has(&output.refuses(2, name), &[value]);
        assert!(output.stdout.is_empty());
    }
    let chaos = |value: &str| {
        let args = ["run", "-n", "2", "--backend", "chaos", "true"];
        unipgas_with(&[("UNIPGAS_CHAOS", value)], &args)
    };
    assert!(line(&chaos("frobnicate=1")).contains("UNIPGAS_CHAOS"));
    let pigeon = line(&chaos("over=pigeon"));
    assert!(pigeon.contains("UNIPGAS_CHAOS") && pigeon.contains("over=pigeon"));
    assert!(chaos("split=0,over=streams").status.success());
    assert!(chaos("split=0,over=opaque").status.success());
}

#[test]
fn old_names_equal_the_new() {
    let info = |name: &str, value: &str| {
        let output = unipgas_with(&[(name, value)], &["info", "--json"]);
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        let limits = &info["backends"]["streams"]["limits"];
        (info["networks"]["streams"].clone(), limits.clone())
    };
    for (old, new, [by_old, by_new]) in [
        ("UNIPGAS_BACKEND", "UNIPGAS_BACKEND", ["opaque", "streams"]),
        (
            "UNIPGAS_NETWORKS",
            "UNIPGAS_NETWORKS",
            ["opaque,ofi", "streams,ofi"],
        ),
        ("UNIPGAS_OPAQUE", "UNIPGAS_STREAMS", ["largest=4096"; 2]),
    ] {
        let found = info(new, by_new);
        assert_ne!(found, info("UNIPGAS_SEED", "1"), "{new}");
        assert_eq!(info(old, by_old), found, "{old}");
    }
    let mut run = unipgas(&["run", "--backend", "opaque", "-n", "1", "true"]);
    assert_eq!(run.output().unwrap().err(), "");
    let logged = line(&run.env("UNIPGAS_LOG", "info").output().unwrap());
    assert!(
        logged.contains("opaque is the old name of streams"),
        "{logged}"
    );
}

#[test]
fn values_that_are_no_text_are_named() {
    for variable in all() {
        let output = unipgas(&["run", "-n", "2", "echo", "started"])
            .env(variable.name, OsStr::from_bytes(b"1\xff"))
            .output()
            .unwrap();
        output.refuses(2, &format!("{}=1", variable.name));
        has(&output.err(), &["UTF-8"]);
    }
    let compiled = unipgas(&["cc", "--api", "gaspi", "-c", "a.c"])
        .env("UNIPGAS_CC", OsStr::from_bytes(b"\xff"))
        .output()
        .unwrap();
    assert!(line(&compiled).contains("UNIPGAS_CC"));
}

#[test]
fn unknown_variables_are_told_once_for_a_job() {
    let exe = env!("CARGO_BIN_EXE_unipgas");
    let wrong = ("UNIPGAS_SED", "7");
    let output = unipgas_with(
        &[wrong, ("UNIPGAS_TEST_ANYTHING", "1")],
        &["run", "-n", "3", exe, "info", "--measure"],
    );
    let text = line(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("UNIPGAS_SED is no variable") && !text.contains("ANYTHING"),
        "{text}"
    );
    // A program without a launcher prints the warning itself.
    let output = unipgas_with(&[wrong], &["info", "--measure"]);
    assert!(output.status.success());
    assert!(line(&output).contains("UNIPGAS_SED"));
}

#[test]
fn a_process_of_another_launcher_is_no_job_of_one() {
    let joined = |variables| unipgas_with(variables, &["info", "--measure"]);
    for variables in [
        &[("OMPI_COMM_WORLD_SIZE", "2")][..],
        &[("PMI_SIZE", "3"), ("PMI_RANK", "0")],
        &[
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
        ],
    ] {
        let output = joined(variables);
        let text = output.err();
        assert!(!output.status.success(), "{variables:?}");
        let (name, value) = variables[variables.len() - 1];
        let said = text.lines().next().unwrap_or_default();
        assert!(
            said.contains("unipgas run -n N")
                && (said.contains(&format!("{name}={value}")) || said.contains("PMI_SIZE=3")),
            "{text}"
        );
    }
    for variables in [
        &[("OMPI_COMM_WORLD_SIZE", "1")][..],
        &[("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "4")],
    ] {
        joined(variables).ok();
    }
}

fn compile(folder: &Folder, source: &str, options: &[&str], output: &str) {
    let file = folder.0.join(format!("{output}.c"));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(compiler)
        .arg(&file)
        .arg("-o")
        .arg(folder.0.join(output))
        .arg(format!("-L{}", folder.0.display()))
        .args(options)
        .status()
        .unwrap();
    assert!(status.success(), "{output}");
}

#[test]
fn programs_of_mpi_are_refused() {
    let folder = Folder::new("mpi");
    compile(
        &folder,
        "int MPI_Init(void *c, void *v) { return 0; }",
        &["-shared", "-fPIC", "-Wl,-soname,libmpi.so.40"],
        "libmpi.so.40",
    );
    std::fs::copy(folder.path("libmpi.so.40"), folder.path("libmpi.so")).unwrap();
    let run_path = format!("-Wl,-rpath,{}", folder.0.display());
    let program = |more: &str| {
        format!("int MPI_Init(void *, void *); {more} int main(void) {{ return MPI_Init(0, 0); }}")
    };
    compile(&folder, &program(""), &["-lmpi", &run_path], "alone");
    let mark = "const char *const mark = \"UNIPGAS_JOB\";";
    compile(&folder, &program(mark), &["-lmpi", &run_path], "both");
    let run = |args: &[&str]| unipgas(&[&["run", "-n"], args].concat()).output().unwrap();

    let alone = folder.path("alone");
    let output = run(&["3", &alone]);
    has(&output.refuses(2, "libmpi.so.40"), &["mpirun -n 3"]);
    // With one process, a job of one is right.
    let output = run(&["1", &alone]);
    assert_eq!(
        (output.status.code(), output.err()),
        (Some(0), String::new())
    );
    // Another program may start it in any way, so the command only warns.
    let output = run(&["2", "ls", &alone]);
    assert!(output.status.success() && line(&output).contains("program of MPI"));
    // A program that links both may use either.
    let output = run(&["2", &folder.path("both")]);
    let text = output.ends(1);
    assert_eq!(text.lines().count(), 2, "{text}");
    has(&text, &["no process has joined the job"]);
    let output = run(&["2", "true"]);
    assert_eq!(
        (output.status.code(), output.err()),
        (Some(0), String::new())
    );
}

#[test]
fn a_full_device_is_an_error() {
    for args in [
        &["info"][..],
        &["info", "--json"],
        &["--help"],
        &["cc", "--help"],
        &["run", "-n", "2", "--tag", "echo", "text"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = unipgas(args).stdout(full).output().unwrap();
        let text = output.err();
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| code > 0 && code < 100),
            "{args:?} {code:?}"
        );
        assert!(
            text.lines().count() == 1 && text.contains("No space left"),
            "{args:?} {text}"
        );
    }
    // The error cannot be written; the status is still right.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = unipgas(&["run", "-n", "0", "true"]).stderr(full).status();
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [
        &["info"][..],
        &["run", "-n", "2", "--tag", "seq", "1", "100000"],
    ] {
        let mut child = unipgas(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = output.err();
        let is_quiet = |line: &str| line.contains("SIGPIPE");
        assert!(text.lines().all(is_quiet), "{args:?} {text}");
    }
}
