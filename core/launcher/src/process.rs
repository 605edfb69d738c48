//! Starts the processes of a job, and sends them signals.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use super::program::{ProgramError, check_program, find_program};
use super::signals::asks;
use super::{BindPolicy, Exit, Launch, Output};
use crate::job_snapshot::listed;
use crate::topology::{Binding, Topology, cpu_set};
use unipgas_core::job::Board;
use unipgas_core::{Error, Result, descriptor};

/// The process of a rank.
pub(super) struct Process {
    pub rank: u32,
    pub child: Child,
    pub pidfd: OwnedFd,
    pub exit: Option<Exit>,
    /// Read ends of its standard output and error, if the launcher passes these on.
    outputs: [Option<OwnedFd>; 2],
}

impl Process {
    /// Takes the read ends of its standard output and error.
    pub(crate) fn outputs(&mut self) -> [Option<OwnedFd>; 2] {
        std::mem::take(&mut self.outputs)
    }

    /// Sends a signal. Ignored after the process has been reaped, and for a signal that [asks the launcher](asks) unless the process handles it.
    pub fn signal(&self, signal: Signal) {
        let wanted = !asks(signal.as_raw()) || self.catches(signal);
        if self.exit.is_none() && wanted {
            // Fails only if the process has just ended.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Whether it has a handler for the signal, or blocks it, as for sigwait.
    fn catches(&self, signal: Signal) -> bool {
        let name = format!("/proc/{}/status", self.child.id());
        let Ok(Some(status)) = descriptor::proc_text(&name) else {
            return false;
        };
        let has = |field: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(field));
            let set = value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
            set.is_some_and(|set| set >> (signal.as_raw() - 1) & 1 != 0)
        };
        has("SigCgt:") || has("SigBlk:")
    }

    /// Reaps the process if it has ended.
    pub(crate) fn reap(&mut self) -> Option<Exit> {
        let status = self.child.try_wait().ok()??;
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        };
        self.exit = Some(exit);
        Some(exit)
    }
}

/// Data for the start of each rank.
pub(super) struct Starter<'a> {
    launch: &'a Launch,
    path: PathBuf,
    board: Arc<Board>,
    cpus: Vec<CpuSet>,
    mask: libc::sigset_t,
    open_files: Rlimit,
    launcher: Option<Pid>,
}

impl<'a> Starter<'a> {
    /// `mask` is the ranks' signal mask, and `open_files` their limit.
    pub(crate) fn new(
        launch: &'a Launch,
        board: &Arc<Board>,
        mask: libc::sigset_t,
        open_files: Rlimit,
    ) -> Result<Self> {
        let refused = |error: ProgramError| Error::InvalidArgument(error.to_string());
        let path = find_program(&launch.program).map_err(refused)?;
        check_program(&path).map_err(refused)?;
        Ok(Starter {
            launch,
            path,
            board: board.clone(),
            cpus: spread(launch.bind, launch.size)?,
            mask,
            open_files,
            launcher: Some(rustix::process::getpid()),
        })
    }

    /// Text: the processors of a rank.
    pub(crate) fn binding(&self, rank: u32) -> String {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let Some(cpus) = self.cpus.get(rank as usize) else {
            return format!("rank {rank} on {host} is not bound");
        };
        let all = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
        let all: Vec<u32> = all.map(|cpu| cpu as u32).collect();
        let word = if all.len() == 1 { "CPU" } else { "CPUs" };
        format!("rank {rank} on {host} is bound to {word} {}", listed(&all))
    }

    /// With [`BindPolicy::Core`] and shared cores: the number of ranks, and of their cores.
    pub(crate) fn crowding(&self, ranks: &[u32]) -> Option<(usize, usize)> {
        if self.launch.bind != BindPolicy::Core {
            return None;
        }
        let of = |rank: &u32| self.cpus.get(*rank as usize);
        let mut cores: Vec<&CpuSet> = Vec::new();
        for cpus in ranks.iter().filter_map(of) {
            if !cores.contains(&cpus) {
                cores.push(cpus);
            }
        }
        (cores.len() < ranks.len()).then_some((ranks.len(), cores.len()))
    }

    pub fn start(&self, rank: u32) -> Result<Process> {
        let mut command = self.command(rank);
        self.connect_input(&mut command, rank);
        let outputs = self.connect_outputs(&mut command, rank)?;
        // SAFETY:
        // - between fork and exec it makes system calls only: it takes no lock and allocates nothing.
        unsafe { command.pre_exec(self.before_exec(rank)) };
        let mut child = command.spawn().map_err(|e| self.cannot_start(rank, &e))?;
        match descriptor::process(Pid::from_child(&child)) {
            Ok(pidfd) => Ok(Process {
                rank,
                child,
                pidfd,
                exit: None,
                outputs,
            }),
            Err(e) => {
                // Fails only if it has ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::os("cannot watch a process (pidfd_open)", e))
            }
        }
    }

    /// The program of a rank, with its arguments and environment.
    fn command(&self, rank: u32) -> Command {
        let launch = self.launch;
        let mut command = Command::new(&self.path);
        command
            .arg0(&launch.program)
            .args(&launch.args)
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .env("UNIPGAS_JOB", self.board.token())
            .env("UNIPGAS_RANK", rank.to_string())
            .env("UNIPGAS_SIZE", launch.size.to_string())
            .env("UNIPGAS_BIND", launch.bind.name());
        match self.board.died(rank) {
            Ok(died @ 1..) => command.env("UNIPGAS_INCARNATION", died.to_string()),
            _ => command.env_remove("UNIPGAS_INCARNATION"),
        };
        if let Some(backend) = &launch.backend {
            command.env("UNIPGAS_BACKEND", backend);
        }
        if let Some(seed) = launch.seed {
            command.env("UNIPGAS_SEED", seed.to_string());
        }
        command
    }

    fn connect_input(&self, command: &mut Command, rank: u32) {
        let launch = self.launch;
        match (rank, &launch.part) {
            (0, Some(_)) if launch.output != Output::Capture => {
                command.stdin(Stdio::piped());
            }
            (rank, None) if launch.foreground && (rank == 0 || launch.joins.is_some()) => {}
            _ => {
                command.stdin(Stdio::null());
            }
        }
    }

    /// Returns the read ends of pipes.
    fn connect_outputs(&self, command: &mut Command, rank: u32) -> Result<[Option<OwnedFd>; 2]> {
        let launch = self.launch;
        if let Some(directory) = &launch.files {
            let again = self.board.died(rank) != Ok(0);
            command
                .stdout(output_file(directory, rank, "out", again)?)
                .stderr(output_file(directory, rank, "err", again)?);
            return Ok([None, None]);
        }
        if launch.output == Output::Inherit && launch.part.is_none() {
            return Ok([None, None]);
        }
        let [out, err] = launch.ends.terminals;
        let (ours, its) = output_end(out)?;
        let (errors, its_errors) = match launch.ends.one {
            true => {
                let copy = its.try_clone();
                (None, copy.map_err(|e| Error::os("cannot make a pipe", e))?)
            }
            false => {
                let (ours, its) = output_end(err)?;
                (Some(ours), its)
            }
        };
        command.stdout(its).stderr(its_errors);
        Ok([Some(ours), errors])
    }

    /// The steps of a process between fork and exec.
    fn before_exec(&self, rank: u32) -> impl Fn() -> std::io::Result<()> + use<> {
        let cpus = (!self.cpus.is_empty()).then(|| self.cpus[rank as usize % self.cpus.len()]);
        let (mask, open_files, launcher) = (self.mask, self.open_files, self.launcher);
        move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The launcher may have died before the call above took effect.
            if rustix::process::getppid() != launcher {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(cpus) = &cpus {
                rustix::thread::sched_setaffinity(None, cpus)?;
            }
            rustix::process::setrlimit(Resource::Nofile, open_files)?;
            // A shell ignores these signals in background jobs, and children inherit that. The ranks must take them: the launcher forwards both, and
            // gaspi_proc_kill sends SIGINT.
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                // SAFETY:
                // - `signal` only sets a disposition, and is allowed between fork and exec.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            // SAFETY:
            // - `mask` is an initialised set, and a null old set is allowed.
            match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }
    }
}

impl Starter<'_> {
    /// The error of a failed start. It names an exhausted limit and its remedy.
    fn cannot_start(&self, rank: u32, error: &std::io::Error) -> Error {
        let size = self.launch.size;
        let limit = match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                "processes (ulimit -u, or the limit of the container or service: pids.max)"
            }
            Some(libc::ENOMEM) => "memory",
            Some(libc::EMFILE | libc::ENFILE) => "file descriptors (ulimit -n)",
            _ => {
                return Error::os(
                    &format!("cannot start rank {rank} ({})", self.path.display()),
                    error,
                );
            }
        };
        Error::Exhausted(format!("{limit}: {rank} of {size} ranks could be started"))
    }
}

/// Both ends of a rank's standard output or error. A terminal if requested and available, else a pipe.
fn output_end(is_terminal: bool) -> Result<(OwnedFd, OwnedFd)> {
    if let (true, Ok(ends)) = (is_terminal, terminal()) {
        return Ok(ends);
    }
    let _reserved = descriptor::Reserved::take();
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| match e {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => {
            Error::Exhausted("file descriptors (ulimit -n)".into())
        }
        _ => Error::os("cannot make a pipe", e),
    })
}

/// Both ends of a raw terminal, which does not change the text: the launcher's end, and the process's end.
fn terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
    let _reserved = descriptor::Reserved::take();
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let its = rustix::fs::open(name, flags, Mode::empty())?;
    let mut modes = tcgetattr(&its)?;
    modes.make_raw();
    tcsetattr(&its, OptionalActions::Now, &modes)?;
    // Copies the size of the launcher's own terminal, if any.
    if let Ok(size) = tcgetwinsize(std::io::stdout()) {
        tcsetwinsize(&its, size)?;
    }
    Ok((ours, its))
}

/// Raises the limit of open files to the number that a job needs. Returns the old limit, for the ranks.
pub(super) fn raise_open_files(launch: &Launch) -> Result<Rlimit> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let each = match (&launch.output, &launch.part) {
        (Output::Inherit, None) => 1,
        _ if launch.files.is_some() => 1,
        _ => 3,
    };
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, |list| list.count() as u64);
    let processes = u64::from(launch.size) + u64::from(launch.spares);
    let needed = processes * each + open + 32;
    if before.current.is_none_or(|current| current >= needed) {
        return Ok(before);
    }
    if let Some(most) = before.maximum.filter(|&most| most < needed) {
        return Err(Error::Exhausted(format!(
            "file descriptors: {} processes take {needed}, the limit is {most} (ulimit -Hn)",
            launch.size
        )));
    }
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum: before.maximum,
        },
    )
    .map_err(|e| Error::os("cannot raise the limit of open files", e))?;
    Ok(before)
}

/// Opens a rank's output file. `again`: keeps the output of an earlier process. Errors: [`Error::InvalidArgument`].
fn output_file(directory: &Path, rank: u32, kind: &str, again: bool) -> Result<File> {
    let path = directory.join(format!("rank.{rank}.{kind}"));
    let cannot = |e| Error::InvalidArgument(format!("cannot write {}: {e}", path.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    if !again {
        File::create(&path).map_err(cannot)?;
    }
    // Append mode: output of the process's children does not overwrite its own.
    (OpenOptions::new().append(true).create(true))
        .open(&path)
        .map_err(cannot)
}

/// The processors of each rank. Empty: no rank is bound.
fn spread(policy: BindPolicy, size: u32) -> Result<Vec<CpuSet>> {
    if policy == BindPolicy::None {
        return Ok(Vec::new());
    }
    let topology = Topology::load()?;
    let (cores, nodes) = (topology.usable_cores().len(), topology.usable_nodes().len());
    (0..size as usize)
        .map(|rank| {
            let binding = match policy {
                BindPolicy::None => Binding::None,
                BindPolicy::Core => Binding::Core(rank % cores),
                BindPolicy::Numa => Binding::Numa(rank * nodes / size as usize),
            };
            cpu_set(&topology.cpus_of(binding)?.unwrap_or_default())
        })
        .collect()
}
