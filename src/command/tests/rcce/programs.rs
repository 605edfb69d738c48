//! C programs on several processes, over shared memory and over a backend that delays and reorders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::UNIPGAS;
use crate::common::c::{built, demand, run, scratch};
use crate::common::{compiler, crate_dir};

/// Compiles a program of tests/programs against the shared library.
fn compile(source: &str, name: &str, options: &[&str]) -> PathBuf {
    // Programs look for the soname. The built file has another name.
    let directory = scratch(&format!("lib-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    let named = directory.join("libunipgas.so.0");
    let _ = std::fs::remove_file(&named);
    std::os::unix::fs::symlink(built("libunipgas_c.so"), &named).unwrap();
    let program = scratch(name);
    demand(
        compiler()
            .args(["-std=c99", "-D_DEFAULT_SOURCE", "-O1", "-pthread"])
            .args(["-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg(crate_dir().join("tests/programs").join(source))
            .arg(built("libunipgas_c.so"))
            .arg(format!("-Wl,-rpath,{}", directory.display()))
            .arg("-o")
            .arg(&program),
    );
    program
}

/// `unipgas run` with these options.
fn job(options: &str, program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(UNIPGAS);
    for name in [
        "UNIPGAS_BACKEND",
        "UNIPGAS_SEED",
        "UNIPGAS_RCCE_MPB",
        "UNIPGAS_RCCE_CORES",
    ] {
        command.env_remove(name);
    }
    command.args(["run", "--timeout", "120"]);
    command
        .args(options.split_whitespace())
        .arg(program)
        .args(arguments);
    run(&mut command)
}

fn succeeds(options: &str, program: &Path, arguments: &[&str]) -> String {
    let output = job(options, program, arguments);
    assert!(
        output.status.success(),
        "{} {options}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs with several numbers of processes over shared memory, and a few over chaos.
fn everywhere(program: &Path) {
    for options in ["-n 1", "-n 2", "-n 3", "-n 5"] {
        succeeds(options, program, &["60"]);
    }
    succeeds("-n 48", program, &["3"]);
    for seed in 1..=3 {
        for processes in [2, 3, 5] {
            let options = format!("--backend chaos --seed {seed} -n {processes}");
            succeeds(&options, program, &["12"]);
        }
    }
}

#[test]
fn buffers_and_flags_of_gory_programs() {
    everywhere(&compile("gory.c", "gory", &[]));
}

#[test]
fn everything_of_simple_programs() {
    everywhere(&compile("plain.c", "plain", &[]));
}

#[test]
fn open_sends_get_on_while_their_unit_waits_for_anything() {
    everywhere(&compile("open.c", "open", &[]));
}

#[test]
fn non_blocking_messages_of_rcce_2() {
    everywhere(&compile("rcce2.c", "rcce2", &[]));
}

#[test]
fn requests_of_an_own_header() {
    let program = compile("own.c", "own", &[]);
    for options in [
        "-n 1",
        "-n 2",
        "-n 5",
        "--backend chaos --seed 1 -n 2",
        "--backend chaos --seed 2 -n 3",
    ] {
        succeeds(options, &program, &[]);
    }
}

#[test]
fn tools_of_the_library() {
    for (name, options) in [
        ("tools", &[][..]),
        ("tools-no-pie", &["-fno-pie", "-no-pie"]),
    ] {
        let program = compile("tools.c", name, options);
        // They read RCCE_comm_buffer, which points to mapped memory.
        for options in ["-n 1", "-n 2", "-n 5", "-n 48"] {
            let said = succeeds(options, &program, &[]);
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines.len(), 24, "{said}");
            assert_eq!(lines[23], "Clock divider for tile 23 is 3");
        }
    }
}

/// Some executables have copies of the library's variables. Both kinds read the values that the library has written.
#[test]
fn variables_of_any_executable() {
    for (name, options) in [
        ("pie", &["-fPIE", "-pie"][..]),
        ("no-pie", &["-fno-pie", "-no-pie"]),
        ("openmp", &["-fopenmp"]),
    ] {
        let program = compile("plain.c", name, options);
        succeeds("-n 3", &program, &["2", "returns from main"]);
    }
}

#[test]
fn variables_of_a_static_program() {
    let program = scratch("static");
    demand(
        compiler()
            .args(["-std=c99", "-D_DEFAULT_SOURCE", "-O1", "-pthread"])
            .arg(crate_dir().join("tests/programs/plain.c"))
            .arg("-static")
            // Whole archive: the object that registers the backends has no symbol that another object uses. --gc-sections then removes hwloc, which only the
            // command needs.
            .arg("-Wl,--whole-archive")
            .arg(built("libunipgas_c.a"))
            .arg("-Wl,--no-whole-archive")
            .args(["-Wl,--gc-sections", "-lm", "-o"])
            .arg(&program),
    );
    succeeds("-n 3", &program, &["2"]);
}

/// Runs `run` on at most two processors, with all processes that it starts.
fn on_two_processors<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY:
            // - a set of zeroes is an empty set; the calls read and write that set, and get its size.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let size = size_of_val(&set);
                assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
                let mine =
                    (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set));
                for cpu in mine.skip(2).collect::<Vec<_>>() {
                    libc::CPU_CLR(cpu, &mut set);
                }
                assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
            }
            run()
        });
        thread.join().unwrap()
    })
}

/// A loop of calls that return at once must not keep the processor from the process that would end it. Otherwise each hop would take some 100,000 calls,
/// a whole time slice.
#[test]
fn loops_let_others_run() {
    let program = compile("token.c", "token", &[]);
    for (way, rounds) in [("g", 20), ("o", 20), ("f", 20), ("a", 20), ("r", 10)] {
        for processes in [4, 12, 48] {
            let rounds = (rounds * 4 / processes).max(2).to_string();
            let options = format!("-n {processes}");
            let mut said = String::new();
            let mut lets_run = || {
                said = on_two_processors(|| succeeds(&options, &program, &[way, &rounds]));
                let calls = said.split(' ').next().and_then(|word| word.parse().ok());
                let calls: u64 = calls.unwrap_or_else(|| panic!("{said}"));
                calls < 20_000
            };
            // Another program may delay the process that has the token, while the others have a processor for themselves.
            let mut tries = 0..5;
            assert!(tries.any(|_| lets_run()), "{way} {processes}: {said}");
        }
    }
    succeeds("--backend chaos --seed 4 -n 4", &program, &["g", "3"]);
}

#[test]
fn buffers_of_another_size() {
    let program = compile("before.c", "size", &[]);
    let sized = |size: &str| {
        let mut command = Command::new(UNIPGAS);
        command
            .args(["run", "--keep-going", "--timeout", "60", "-n", "2"])
            .arg(&program);
        run(command.env("UNIPGAS_RCCE_MPB", size))
    };
    assert!(sized("32").status.success());
    let output = sized("8k");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    let lines = text
        .lines()
        .filter(|line| line.contains("UNIPGAS_RCCE_MPB must be"));
    assert_eq!(lines.count(), 1, "{text}");
}

#[test]
fn calls_outside_init_and_finalize_fail() {
    let program = compile("before.c", "before", &[]);
    for processes in ["-n 1", "-n 3"] {
        let said = succeeds(processes, &program, &[]);
        assert!(said.starts_with("done"), "{said}");
    }
}

#[test]
fn the_launchers_words_are_removed() {
    let program = compile("arguments.c", "arguments", &[]);
    let words = ["2", "0.533", "07", "03", "x", "2"];
    assert_eq!(
        demand(Command::new(&program).args(words)),
        "x 2 / named 3\n"
    );
    assert_eq!(
        succeeds("-n 2", &program, &words),
        "x 2 / named 7\n".repeat(2)
    );
    let all = "2 0.533 07 03 x 2 / named 2\n";
    assert_eq!(succeeds("-n 3", &program, &words), all.repeat(3));
}

/// Each waiting process ends with a line that names a dead process: the first to die, or a process that ended because of it. All kinds of waits are tried.
#[test]
fn the_death_of_one_ends_the_waits_of_the_others() {
    let program = compile("death.c", "death", &[]);
    for backend in ["shm", "chaos"] {
        for way in ["b", "f", "l", "z", "p", "t", "s", "r"] {
            let options = format!("--backend {backend} --keep-going -n 3");
            let output = job(&options, &program, &[way]);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            for id in [0, 2] {
                let line = format!(" has died: UE {id} ends");
                assert!(text.contains(&line), "{backend} {way}: {text}");
            }
            assert!(
                !text.contains("nothing had happened"),
                "{backend} {way}: {text}"
            );
        }
    }
}

#[test]
fn one_that_ends_early_is_not_waited_for() {
    let program = compile("death.c", "early", &[]);
    let output = job("--keep-going -n 3", &program, &["e"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    // UEs 0 and 2 wait for UE 1. The first of them to end may also end the other.
    let line = |id| text.contains(&format!("UE 1 has ended, and UE {id} waits for it"));
    assert!(line(0) || line(2), "{text}");
}

#[test]
fn too_many_processes_are_refused() {
    let program = compile("arguments.c", "many", &[]);
    let output = job("-n 49 --keep-going", &program, &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("RCCE_init: a job has at most 48 UEs"),
        "{text}"
    );
}
