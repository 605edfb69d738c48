//! Tries each backend with two processes. They communicate, and share memory in place where possible.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unipgas::core::job::Job;
use unipgas::core::registry::{self, Opening, open_from_env};
use unipgas::core::transport::Limits;
use unipgas::core::world::World;
use unipgas::core::{AtomicOp, Deadline, Engine, Error, Region, Remote, Result, Rights};
use unipgas_launcher::{JobOutcome, Launch, Output};

use crate::{Ended, failed, shown};

/// The user `nobody`: every system has it, and it owns no files.
const NOBODY: u32 = 65534;
/// A trial that takes longer counts as hung.
const LIMIT: Duration = Duration::from_secs(20);
/// This program. The path also works for a user who may not read the folder of the program.
const MYSELF: &str = "/proc/self/exe";

/// How peers reach memory that the program has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReachMethod {
    /// Peers map it.
    InPlace,
    /// The kernel copies data, and the owner's helper thread executes atomics.
    Copied,
}

/// Limits of a backend. `None`: no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confined {
    /// Largest transfer, in bytes.
    pub largest: Option<usize>,
    /// Largest inline transfer, in bytes: the call copies it.
    pub inline: Option<usize>,
    /// Most operations in progress to one peer.
    pub depth: Option<usize>,
    /// Lines of 64 bytes arrive in one piece.
    pub lines: bool,
}

impl From<Limits> for Confined {
    fn from(limits: Limits) -> Self {
        let limit = |limit| (limit != usize::MAX).then_some(limit);
        Confined {
            largest: limit(limits.largest),
            inline: limit(limits.inline),
            depth: limit(limits.depth),
            lines: limits.lines,
        }
    }
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.largest.map(|bytes| format!("{bytes} bytes at once")),
            self.inline.map(|bytes| format!("{bytes} bytes inline")),
            self.depth
                .map(|depth| format!("{depth} operations under way")),
            (!self.lines).then(|| "no lines".to_owned()),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        match said.is_empty() {
            true => f.write_str("no limits"),
            false => write!(f, "limits: {}", said.join(", ")),
        }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TrialResult {
    /// Peers map what the library allocates.
    pub mapped: bool,
    /// Limits of the backend. The engine compensates for them.
    pub limits: Confined,
    /// Access to the program's memory, in a process with one thread.
    pub one_thread: ReachMethod,
    /// The same, beside another thread.
    pub several_threads: ReachMethod,
    /// How peers share it, or the reason why they cannot.
    pub how: std::result::Result<String, String>,
}

/// Backends and the results of their trials.
pub(super) type Trials = Vec<(String, std::result::Result<TrialResult, String>)>;

/// Tries all backends as the user of this process.
pub fn all() -> Trials {
    registry::backends()
        .iter()
        .map(|backend| (backend.name.to_owned(), pair(backend.name)))
        .collect()
}

/// The same as an ordinary user. `None`: this process is not root, so [`all`] did that. Errors: why the trial is not possible.
pub fn as_nobody() -> Option<std::result::Result<Trials, String>> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    if !Path::new(MYSELF).exists() {
        return Some(Err("/proc is not there: mount it".into()));
    }
    let output = Command::new(MYSELF)
        .args(["info", "--trials"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    Some(output.map_err(|e| e.to_string()).and_then(|output| {
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let text = String::from_utf8_lossy(&output.stderr);
            text.lines()
                .next_back()
                .unwrap_or("it says nothing")
                .to_owned()
        })
    }))
}

/// Runs in the process that [`as_nobody`] starts.
pub fn tell_all() -> Ended {
    let text = serde_json::to_string(&all()).unwrap_or_default();
    shown(&text)
}

/// Runs a trial with two processes on a backend.
fn pair(backend: &str) -> std::result::Result<TrialResult, String> {
    let outcome = of_this_program(2, "--trial", Some(backend))?;
    let said = &outcome.ranks[0].stdout;
    serde_json::from_slice(said).map_err(|_| "its processes do not tell".to_owned())
}

/// Runs a job of this command. Errors: the last line on standard error of the first process that failed.
pub fn of_this_program(
    size: u32,
    option: &str,
    backend: Option<&str>,
) -> std::result::Result<JobOutcome, String> {
    let mut launch = Launch::new(size, MYSELF);
    launch.args = vec!["info".into(), option.into()];
    launch.output = Output::Capture;
    launch.timeout = Some(LIMIT);
    launch.backend = backend.map(str::to_owned);
    let outcome = launch.run().map_err(|e| e.to_string())?;
    if outcome.success() {
        return Ok(outcome);
    }
    if outcome.timed_out {
        let seconds = LIMIT.as_secs();
        return Err(format!("processes do not come to an end in {seconds} s"));
    }
    let first = outcome.first_failure.unwrap_or(0) as usize;
    let rank = &outcome.ranks[first];
    let text = String::from_utf8_lossy(&rank.stderr);
    Err(text.lines().next_back().map_or_else(
        || format!("a process {}", rank.exit),
        |line| line.trim_start_matches("unipgas: ").to_owned(),
    ))
}

/// Runs in the two processes of a trial.
pub fn rank() -> Ended {
    let found = meet().map_err(failed(1))?;
    let text = serde_json::to_string(&found).unwrap_or_default();
    shown(&text)
}

/// Memory that this program has allocated, in whole pages, and its registration.
struct Own {
    region: Region,
    _memory: Box<[Page]>,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u64; 512]);

fn own(engine: &Engine) -> Result<Own> {
    // The block is large, so the allocator does not put it beside its own pages.
    let mut memory = vec![Page([0; 512]); 64].into_boxed_slice();
    let len = std::mem::size_of_val(&*memory);
    // SAFETY:
    // - the memory is dropped after the region, by the order of the fields.
    let region = unsafe { engine.register(memory.as_mut_ptr().cast(), len, Rights::FULL) }?;
    Ok(Own {
        region,
        _memory: memory,
    })
}

fn meet() -> Result<TrialResult> {
    let deadline = Deadline::after(LIMIT);
    let job = Job::from_env()?;
    let transports = open_from_env(&Opening::of(&job))?;
    let limits = transports[0].capabilities().limits.into();
    let world = World::join(Engine::new(transports)?, job)?;
    let engine = world.engine();
    let alone = own(engine)?;
    let _thread = another_thread();
    let beside = own(engine)?;
    let pool = engine.allocate(4096, Rights::FULL)?;
    let all = [
        ("pool", &pool),
        ("alone", &alone.region),
        ("beside", &beside.region),
    ];
    for (name, region) in all {
        world.publish_region(name, &region.key())?;
    }
    world.meet(deadline)?;
    let endpoint = engine.endpoint(16)?;
    let peer = world.rank() ^ 1;
    let mut mapped = [false; 3];
    for (nth, (name, _)) in all.into_iter().enumerate() {
        let region = world.published_region(peer, name)?;
        let at = Remote {
            region: &region,
            offset: 8,
        };
        endpoint
            .change(at, AtomicOp::Sum, u64::from(peer) + 7, 0)?
            .value(&endpoint, engine, deadline, &mut || Ok(()))?;
        mapped[nth] = !region.parts().base.is_null();
    }
    world.job().fence(2, deadline)?;
    for (name, region) in all {
        let seen = region.word(8)?.load(Ordering::Acquire);
        if seen != world.rank() + 7 {
            return Err(Error::Os(format!(
                "a peer's atomic operation on memory {name:?} gave {seen}"
            )));
        }
    }
    // A process must not unmap memory that its peer still uses.
    world.job().fence(3, deadline)?;
    world.leave()?;
    let way = |mapped: bool| {
        if mapped {
            ReachMethod::InPlace
        } else {
            ReachMethod::Copied
        }
    };
    Ok(TrialResult {
        mapped: mapped[0],
        limits,
        one_thread: way(mapped[1]),
        several_threads: way(mapped[2]),
        how: match mapped[0] {
            true => unipgas::shm::adoption().map(str::to_owned),
            false => Err("peers map nothing".into()),
        },
    })
}

/// Starts a thread. It runs until the returned sender is dropped.
fn another_thread() -> Sender<()> {
    let (stop, stopped) = channel::<()>();
    let (started, running) = channel::<()>();
    std::thread::spawn(move || {
        let _ = started.send(());
        let _ = stopped.recv();
    });
    let _ = running.recv();
    stop
}
