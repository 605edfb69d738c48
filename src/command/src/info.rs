//! `unipgas info`: what this machine offers and what the library can do on it.

use std::process::ExitCode;

use serde_json::{Value, json};
use unipgas::core::job::board::MAX_SIZE;
use unipgas::core::job::launch::{Launch, Output};
use unipgas::core::registry;
use unipgas::core::topology::Topology;
use unipgas::gaspi;

use crate::fail;

/// Shows the machine, the backends and why each is or is not usable, the limits and the environment of a job.
#[derive(clap::Args)]
pub struct Args {
    /// As one JSON object
    #[arg(long)]
    json: bool,
    /// Joins a job as a program does, and tells what that took
    #[arg(long, hide = true)]
    measure: bool,
}

const ENVIRONMENT: [(&str, &str); 10] = [
    ("UNIPGAS_JOB", "the job, set by unipgas run"),
    (
        "UNIPGAS_RANK",
        "the rank of this process, set by unipgas run",
    ),
    ("UNIPGAS_SIZE", "number of processes, set by unipgas run"),
    (
        "UNIPGAS_BIND",
        "what processes are bound to, set by unipgas run",
    ),
    ("UNIPGAS_BACKEND", "the backend: --backend"),
    ("UNIPGAS_SEED", "the seed of the chaos backend: --seed"),
    (
        "UNIPGAS_SHM_ADOPT",
        "0: memory that programs register is copied, not shared in place",
    ),
    (
        "UNIPGAS_CHAOS",
        "what the chaos backend does: kill=RANK@OP,stall=RANK@OP:MS,delay=N,split=0,reorder=0",
    ),
    ("UNIPGAS_CC", "the compiler that unipgas cc runs"),
    ("UNIPGAS_CXX", "the compiler that unipgas c++ runs"),
];

type Probe = Result<(), String>;

pub fn run(args: &Args) -> ExitCode {
    if args.measure {
        return measure();
    }
    let topology = match Topology::load() {
        Ok(topology) => topology,
        Err(error) => return fail(1, &error.to_string()),
    };
    let backends: Vec<(&str, Probe)> = registry::backends()
        .iter()
        .map(|b| (b.name, (b.probe)()))
        .collect();
    let features = features();
    let memory = memory_per_process();
    if args.json {
        println!("{}", as_json(&topology, &backends, &features, &memory));
        return ExitCode::SUCCESS;
    }
    println!("unipgas {}", env!("CARGO_PKG_VERSION"));
    println!("machine    {topology}");
    let shown = |list: &[u32]| {
        list.iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    for node in &topology.nodes {
        println!(
            "           NUMA node {}: processing units {}",
            node.os_index,
            shown(&node.pus)
        );
    }
    for (name, probe) in &backends {
        println!("backend    {name}: {}", said(probe, "usable"));
    }
    for (name, what, probe) in &features {
        println!("system     {name} ({what}): {}", said(probe, "yes"));
    }
    for (name, value) in limits() {
        println!("limit      {name}: {value}");
    }
    match &memory {
        Ok(bytes) => println!(
            "memory     {} KiB per process, measured in a job of one",
            bytes / 1024
        ),
        Err(why) => println!("memory     per process not measured: {why}"),
    }
    for (name, what) in ENVIRONMENT {
        let value =
            std::env::var(name).map_or_else(|_| "not set".into(), |value| format!("= {value}"));
        println!("variable   {name} {value} ({what})");
    }
    ExitCode::SUCCESS
}

fn said(probe: &Probe, good: &str) -> String {
    probe
        .as_ref()
        .map_or_else(|why| format!("no: {why}"), |()| good.to_owned())
}

fn as_json(
    topology: &Topology,
    backends: &[(&str, Probe)],
    features: &[(&str, &str, Probe)],
    memory: &Result<u64, String>,
) -> Value {
    let outcome =
        |probe: &Probe| json!({ "usable": probe.is_ok(), "reason": probe.as_ref().err() });
    let nodes: Vec<Value> = topology
        .nodes
        .iter()
        .map(|node| json!({ "os_index": node.os_index, "pus": node.pus }))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {
            "packages": topology.packages,
            "cores": topology.cores,
            "pus": topology.pus,
            "numa_nodes": nodes,
            "l3_count": topology.l3_count,
            "l3_bytes": topology.l3_bytes,
        },
        "backends": backends.iter().map(|(name, probe)| (name.to_string(), outcome(probe))).collect::<serde_json::Map<_, _>>(),
        "system": features.iter().map(|(name, _, probe)| (name.to_string(), outcome(probe))).collect::<serde_json::Map<_, _>>(),
        "limits": limits().into_iter().map(|(name, value)| (name.to_string(), value.into())).collect::<serde_json::Map<_, _>>(),
        "memory_per_process_bytes": memory.as_ref().ok(),
        "environment": ENVIRONMENT.iter().map(|(name, _)| (name.to_string(), json!(std::env::var(name).ok()))).collect::<serde_json::Map<_, _>>(),
    })
}

fn limits() -> [(&'static str, u64); 6] {
    [
        ("processes", MAX_SIZE.into()),
        (
            "GASPI segments per process",
            gaspi::config::SEGMENT_MAX.into(),
        ),
        ("GASPI queues per process", gaspi::config::QUEUE_MAX.into()),
        (
            "GASPI requests per queue",
            gaspi::config::QUEUE_SIZE_MAX.into(),
        ),
        ("GASPI groups", gaspi::config::GROUP_MAX.into()),
        (
            "GASPI notifications per segment",
            gaspi::config::NOTIFICATION_MAX.into(),
        ),
    ]
}

/// What the kernel offers of what the library builds on.
fn features() -> Vec<(&'static str, &'static str, Probe)> {
    let os = |outcome: rustix::io::Result<()>| outcome.map_err(|e| e.to_string());
    let last = |failed: bool| {
        if failed {
            Err(std::io::Error::last_os_error().to_string())
        } else {
            Ok(())
        }
    };
    let memfd = rustix::fs::memfd_create("unipgas-info", rustix::fs::MemfdFlags::CLOEXEC);
    let reopen = memfd.as_ref().map_err(|e| e.to_string()).and_then(|fd| {
        use std::os::fd::AsRawFd;
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map(drop)
            .map_err(|e| e.to_string())
    });
    // SAFETY:
    // - the query command only returns a set of bits.
    let barriers = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    let barrier = match barriers {
        ..0 => last(true),
        bits if bits & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 => Ok(()),
        _ => Err("the kernel has no GLOBAL_EXPEDITED (Linux 4.16)".into()),
    };
    let word = std::sync::atomic::AtomicU32::new(0);
    let futex = rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::empty(), 1);
    let (from, mut to) = (7u8, 0u8);
    let local = libc::iovec {
        iov_base: (&raw mut to).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: (&raw const from).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY:
    // - both vectors name one byte of this frame; only `to` is written.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    // SAFETY:
    // - makes a descriptor, closed below, or fails.
    let fault = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    let fault_outcome = last(fault < 0);
    if let Ok(fd @ 0..) = i32::try_from(fault) {
        // SAFETY:
        // - just made, used nowhere else.
        unsafe { libc::close(fd) };
    }
    vec![
        ("memfd", "shared memory without names", os(memfd.map(drop))),
        ("/proc/self/fd", "opening a peer's memory", reopen),
        (
            "membarrier",
            "parking without a fence on fast paths",
            barrier,
        ),
        ("futex", "parking and waking", os(futex.map(drop))),
        (
            "process_vm_readv",
            "memory that cannot be shared in place",
            last(copied != 1),
        ),
        (
            "userfaultfd",
            "sharing a program's own memory in place",
            fault_outcome,
        ),
    ]
}

/// Starts a job of one and asks it.
fn memory_per_process() -> Result<u64, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut launch = Launch::new(1, exe);
    launch.args = vec!["info".into(), "--measure".into()];
    launch.output = Output::Capture;
    launch.timeout = Some(std::time::Duration::from_secs(10));
    let outcome = launch.run().map_err(|e| e.to_string())?;
    let rank = &outcome.ranks[0];
    let said = String::from_utf8_lossy(&rank.stdout);
    said.trim().parse().map_err(|_| {
        let words = String::from_utf8_lossy(&rank.stderr);
        format!(
            "the process {}{}",
            rank.exit,
            words
                .lines()
                .next_back()
                .map(|line| format!(": {line}"))
                .unwrap_or_default()
        )
    })
}

/// In the job of one: prints the bytes that joining it added to this process, shared memory included.
fn measure() -> ExitCode {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
        statm
            .split_ascii_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()
            .map(|pages| pages * rustix::param::page_size() as u64)
    };
    let before = resident();
    let joined = gaspi::process::Initialising::begin(&gaspi::Config::default(), 1)
        .and_then(|mut joining| joining.advance(u64::MAX));
    let (Ok(process), Some(before), Some(after)) = (joined, before, resident()) else {
        return fail(1, "cannot join a job of one");
    };
    println!("{}", after.saturating_sub(before));
    match process.term(u64::MAX) {
        Ok(()) => ExitCode::SUCCESS,
        Err((_, status)) => fail(1, &format!("cannot leave the job: {status:?}")),
    }
}
