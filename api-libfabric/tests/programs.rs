//! C programs with the installed libfabric and this provider. Each test starts two separate processes.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod common;
use common::c::{self, demand, scratch};
use common::{compiler, end, providers, under};

const LIMIT: Duration = Duration::from_secs(600);
/// Modes of memory registration: 0; FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY; and the old FI_MR_BASIC and FI_MR_SCALABLE.
const MODES: [&str; 4] = ["0", "112", "1", "2"];

fn compiled(name: &str) -> Option<PathBuf> {
    let source = c::crate_dir("api-libfabric").join(format!("tests/programs/{name}.c"));
    let program = scratch(name);
    demand(
        compiler()?
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .arg("-lfabric"),
    );
    Some(program)
}

/// Runs server and client; `fatal`: the server ends by its own SIGKILL.
fn pair(program: &Path, mode: &str, environment: &[(&str, &str)], fatal: bool) {
    let providers = providers();
    let name = program.file_name().expect("a file").to_string_lossy();
    let label = environment
        .iter()
        .map(|(_, value)| *value)
        .collect::<Vec<_>>();
    let meeting = scratch(&format!("{name}-{mode}-{}", label.join("-")));
    let _ = std::fs::remove_dir_all(&meeting);
    std::fs::create_dir_all(&meeting).expect("scratch directory is writable");
    let [mut server, mut client] = ["server", "client"].map(|role| {
        under(&providers, program)
            .arg(&meeting)
            .args([role, mode])
            .envs(environment.iter().copied())
            .spawn()
            .expect("the program starts")
    });
    let client = end(&mut client, LIMIT);
    let ended = if client.success() {
        end(&mut server, LIMIT)
    } else {
        client
    };
    let _ = server.kill();
    let _ = server.wait();
    assert!(
        client.success(),
        "{name} {mode} {environment:?}: the client: {client}"
    );
    let as_expected = if fatal {
        ended.signal() == Some(9)
    } else {
        ended.success()
    };
    assert!(
        as_expected,
        "{name} {mode} {environment:?}: the server: {ended}"
    );
}

type Environment = &'static [(&'static str, &'static str)];

const BACKENDS: [Environment; 3] = [
    &[],
    // No adoption: atomics on memory of the user go to its owner's agent.
    &[("UNIPGAS_SHM_ADOPT", "0")],
    &[("UNIPGAS_BACKEND", "chaos")],
];

/// Runs server and client of a program in each mode on each backend.
fn pairs(name: &str, runs: &[(&[&str], &[Environment])], fatal: bool) {
    let Some(program) = compiled(name) else {
        return;
    };
    for (modes, backends) in runs {
        for mode in *modes {
            for backend in *backends {
                pair(&program, mode, backend, fatal);
            }
        }
    }
}

#[test]
fn every_atomic_operation() {
    let runs: [(&[&str], _); 2] = [(&MODES, &BACKENDS[..1]), (&["0"], &BACKENDS[1..])];
    pairs("atomics", &runs, false);
}

#[test]
fn remote_memory_access() {
    let runs: [(&[&str], _); 2] = [(&MODES, &BACKENDS[..1]), (&["112"], &BACKENDS[1..])];
    pairs("rma", &runs, true);
}

#[test]
fn messages() {
    pairs("messages", &[(&["0", "1"], &BACKENDS)], true);
}

#[test]
fn atomics_on_tagged_buffers() {
    pairs("tagged_atomics", &[(&["0", "1"], &BACKENDS)], true);
}

/// libfabric's own test, if it is installed (Debian: libfabric-bin).
#[test]
fn fi_pingpong() {
    let found = std::process::Command::new("fi_pingpong").arg("-h").output();
    if found.is_err() {
        eprintln!("skipped: fi_pingpong is not installed (Debian: libfabric-bin)");
        return;
    }
    // Below the kernel's ephemeral ports.
    let first = 20_000 + std::process::id() % 10_000;
    let mut ports = (first..).map(|port| port.to_string());
    for backend in BACKENDS {
        for mode in ["msg", "tagged"] {
            let start = |extra: &[&str]| {
                under(&providers(), "fi_pingpong")
                    .args(["-p", "unipgas", "-e", "rdm", "-I", "5", "-c", "-m", mode])
                    .args(extra)
                    .envs(backend.iter().copied())
                    .stdout(std::process::Stdio::null())
                    .spawn()
            };
            // Another process may use the port, so the test tries several.
            let tried = ports.by_ref().take(5).find_map(|port| {
                let mut server = start(&["-B", &port]).expect("it is there");
                let mut done = false;
                // A client fails if the server does not listen yet, so the test starts several.
                while !done && server.try_wait().expect("a child").is_none() {
                    std::thread::sleep(Duration::from_millis(100));
                    let mut client = start(&["-P", &port, "127.0.0.1"]).expect("it is there");
                    done = end(&mut client, LIMIT).success();
                }
                let server = end(&mut server, LIMIT);
                done.then_some(server)
            });
            assert!(
                tried.is_some_and(|server| server.success()),
                "fi_pingpong -m {mode} {backend:?}: {tried:?}"
            );
        }
    }
}

/// An MPI library with messages and one-sided communication over libfabric.
#[test]
fn open_mpi() {
    let program = scratch("mpi");
    let source = c::crate_dir("api-libfabric").join("tests/programs/mpi.c");
    let compiled = std::process::Command::new("mpicc.openmpi")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("skipped: Open MPI is not installed (Debian: libopenmpi-dev)");
        return;
    }
    for processes in ["2", "3"] {
        let mut run = under(&providers(), "mpirun.openmpi");
        // A program that requires peers of other hosts gets the provider only if the user names it.
        run.env("FI_PROVIDER", "unipgas");
        for (name, value) in [
            ("ALLOW_RUN_AS_ROOT", "1"),
            ("ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("MCA_pml", "cm"),
            ("MCA_mtl", "ofi"),
            ("MCA_mtl_ofi_provider_include", "unipgas"),
            ("MCA_osc", "rdma"),
            ("MCA_btl", "ofi,self"),
        ] {
            run.env(format!("OMPI_{name}"), value);
        }
        run.args(["--oversubscribe", "-n", processes]).arg(&program);
        demand(&mut run);
    }
}

/// The library exports one symbol for libfabric, and does not depend on libfabric.
#[test]
fn the_library_exports_one_function() {
    let library = c::library();
    let symbols = demand(
        std::process::Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let ours: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter(|name| name.starts_with("fi_"))
        .collect();
    assert_eq!(ours, ["fi_prov_ini"]);
    let needs = demand(
        std::process::Command::new("readelf")
            .arg("-d")
            .arg(&library),
    );
    assert!(!needs.contains("libfabric"), "{needs}");
    assert!(needs.contains("NODELETE"), "{needs}");
}

#[test]
fn threads_share_an_endpoint() {
    pairs("threads", &[(&["0"], &BACKENDS)], false);
}

#[test]
fn first_calls_take_little_stack() {
    let Some(program) = compiled("stack") else {
        return;
    };
    // Unoptimised code keeps each temporary value in a separate stack slot.
    let own = cfg!(debug_assertions) && std::env::var_os("UNIPGAS_LIB").is_none();
    let limit = if own { "32768" } else { "8192" };
    for backend in BACKENDS {
        let mut program = under(&providers(), &program);
        demand(program.arg(limit).envs(backend.iter().copied()));
    }
}

#[test]
fn many_hands_on_one_element() {
    let Some(program) = compiled("contend") else {
        return;
    };
    for backend in BACKENDS {
        let meeting = scratch(&format!("contend-{}", backend.len()));
        let _ = std::fs::remove_dir_all(&meeting);
        std::fs::create_dir_all(&meeting).expect("scratch directory is writable");
        let start = |role| {
            let mut command = under(&providers(), &program);
            command.arg(&meeting).args([role, "3"]);
            command.envs(backend.iter().copied());
            command.spawn().expect("the program starts")
        };
        let mut hands = ["0", "1", "2"].map(start);
        // The test kills other processes at any point, some with the lock of an element. No process waits for a dead holder.
        for nth in 0..15 {
            let mut doomed = start("doomed");
            std::thread::sleep(Duration::from_millis(60 + nth));
            doomed.kill().expect("a child");
            doomed.wait().expect("a child");
        }
        for hand in &mut hands {
            let ended = end(hand, LIMIT);
            assert!(ended.success(), "{backend:?}: {ended}");
        }
    }
}

#[test]
fn the_provider_is_listed_once_and_keeps_to_hints() {
    let Some(program) = compiled("hints") else {
        return;
    };
    demand(&mut under(&providers(), &program));
}
