//! `unipgas info`: what this machine offers and what the library can do on it.

use std::process::ExitCode;

use serde_json::{Value, json};
use unipgas::core::inbox::InboxLayout;
use unipgas::core::job::board::MAX_SIZE;
use unipgas::core::job::launch::{Launch, Output};
use unipgas::core::port::{DEPTH, KEYS};
use unipgas::core::registry;
use unipgas::core::topology::Topology;
use unipgas::gaspi;
use unipgas::utofu::caps;
use unipgas::utofu::environment::Wishes;
use unipgas::utofu::shape::MAX_NODES;
use unipgas::utofu::vcq::VcqFlags;

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

const ENVIRONMENT: [(&str, &str); 20] = [
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
    (
        "UNIPGAS_TOFU_SHAPE",
        "uTofu: lengths of the axes X, Y, Z, A, B, C like 2x1x1x2x3x2; without it unipgas run sets one for its processes",
    ),
    (
        "UNIPGAS_TOFU_PPN",
        "uTofu: processes that share a virtual node, 1 to 48 (1)",
    ),
    (
        "UNIPGAS_JOB_NAME",
        "uTofu: the job of processes that are started by hand; those of a user with the same name find each other",
    ),
    (
        "UTOFU_NUM_EXCLUSIVE_CQS",
        "CQs of each TNI kept for exclusive VCQs (0)",
    ),
    (
        "UTOFU_NUM_SESSION_MODE_CQS",
        "CQs of each TNI kept for session mode VCQs (3)",
    ),
    (
        "UTOFU_NUM_MRQ_ENTRIES",
        "entries of the MRQ of a free mode VCQ: 2Ki, 8Ki, 32Ki, 128Ki, 512Ki, 2Mi (128Ki)",
    ),
    (
        "UTOFU_NUM_MRQ_ENTRIES_SESSION",
        "the same of a session mode VCQ (128Ki)",
    ),
    (
        "UTOFU_SWAP_PROTECT",
        "1: registered memory is locked, so that it is not swapped out (0)",
    ),
    (
        "UNIPGAS_RCCE_MPB",
        "RCCE: bytes of each message-passing buffer (8192)",
    ),
    (
        "UNIPGAS_RCCE_CORES",
        "RCCE: the cores that the UEs stand for, with commas between them",
    ),
];

type Probe = Result<(), String>;

/// Bytes that things take, measured in a job of one.
struct Memory {
    process: u64,
    /// Of a VCQ that nothing has happened to.
    vcq: u64,
}

pub fn run(args: &Args) -> ExitCode {
    if args.measure {
        return measure();
    }
    let topology = match Topology::load() {
        Ok(topology) => topology,
        Err(error) => return fail(1, &error.to_string()),
    };
    let wishes = match Wishes::from_env() {
        Ok(wishes) => wishes,
        Err(why) => return fail(1, &why),
    };
    let backends: Vec<(&str, Probe)> = registry::backends()
        .iter()
        .map(|b| (b.name, (b.probe)()))
        .collect();
    let features = features();
    let memory = memory();
    let limits = limits(&wishes);
    if args.json {
        println!(
            "{}",
            as_json(&topology, &backends, &features, &limits, &memory)
        );
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
    for (name, value) in limits {
        println!("limit      {name}: {value}");
    }
    match &memory {
        Ok(Memory { process, vcq }) => {
            println!(
                "memory     {} KiB per process, measured in a job of one",
                process / 1024
            );
            println!(
                "memory     {} KiB per uTofu VCQ, measured; {} KiB more when all entries of its MRQ have been used",
                vcq / 1024,
                inbox_bytes(&wishes) / 1024
            );
        }
        Err(why) => println!("memory     per process and VCQ not measured: {why}"),
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
    limits: &[(&str, u64)],
    memory: &Result<Memory, String>,
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
        "limits": limits.iter().map(|(name, value)| (name.to_string(), (*value).into())).collect::<serde_json::Map<_, _>>(),
        "memory_per_process_bytes": memory.as_ref().ok().map(|memory| memory.process),
        "memory_per_vcq_bytes": memory.as_ref().ok().map(|memory| memory.vcq),
        "environment": ENVIRONMENT.iter().map(|(name, _)| (name.to_string(), json!(std::env::var(name).ok()))).collect::<serde_json::Map<_, _>>(),
    })
}

/// Of the MRQ of a free mode VCQ.
fn inbox_bytes(wishes: &Wishes) -> usize {
    InboxLayout::new(wishes.mrq_entries).map_or(0, InboxLayout::size)
}

fn limits(wishes: &Wishes) -> [(&'static str, u64); 17] {
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
        ("uTofu nodes of a network", MAX_NODES.into()),
        ("uTofu TNIs per node", caps::TNIS.into()),
        ("uTofu CQs per TNI", caps::CQS.into()),
        ("uTofu VCQs per CQ", caps::CMP_IDS.into()),
        ("uTofu VBGs per TNI", caps::VBGS.into()),
        (
            "uTofu VBGs per TNI that start and end",
            caps::START_VBGS.into(),
        ),
        ("uTofu STags per VCQ", KEYS as u64),
        (
            "uTofu STags per VCQ that programs choose",
            caps::RESERVED_STAGS.into(),
        ),
        (
            "uTofu commands of a VCQ not polled in the TCQ",
            DEPTH as u64,
        ),
        ("uTofu MRQ entries per VCQ", wishes.mrq_entries as u64),
        (
            "uTofu MRQ entries per session mode VCQ",
            wishes.mrq_entries_session as u64,
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
fn memory() -> Result<Memory, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut launch = Launch::new(1, exe);
    launch.args = vec!["info".into(), "--measure".into()];
    launch.output = Output::Capture;
    launch.timeout = Some(std::time::Duration::from_secs(10));
    let outcome = launch.run().map_err(|e| e.to_string())?;
    let rank = &outcome.ranks[0];
    let said = String::from_utf8_lossy(&rank.stdout);
    let mut bytes = said.split_whitespace().map(str::parse);
    if let (Some(Ok(process)), Some(Ok(vcq))) = (bytes.next(), bytes.next()) {
        return Ok(Memory { process, vcq });
    }
    Err({
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

/// Memory of this process that is there, shared memory included.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Bytes that a VCQ adds to this process.
fn measure_vcq() -> Option<u64> {
    const VCQS: u64 = 8;
    let process = unipgas::utofu::current().ok()?;
    // What is set up once.
    process.create_vcq(0, None, VcqFlags::empty()).ok()?;
    let before = resident()?;
    for _ in 0..VCQS {
        process.create_vcq(0, None, VcqFlags::empty()).ok()?;
    }
    Some(resident()?.saturating_sub(before) / VCQS)
}

/// In the job of one: prints the bytes that joining it added to this process, and those that a VCQ adds.
fn measure() -> ExitCode {
    let before = resident();
    let joined = gaspi::process::Initialising::begin(&gaspi::Config::default())
        .and_then(|mut joining| joining.advance(u64::MAX));
    let (Ok(process), Some(before), Some(after)) = (joined, before, resident()) else {
        return fail(1, "cannot join a job of one");
    };
    let Some(vcq) = measure_vcq() else {
        return fail(1, "cannot create a VCQ");
    };
    println!("{} {vcq}", after.saturating_sub(before));
    match process.term(u64::MAX) {
        Ok(()) => ExitCode::SUCCESS,
        Err((_, status)) => fail(1, &format!("cannot leave the job: {status:?}")),
    }
}
