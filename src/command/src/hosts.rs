//! A job on several hosts. This process becomes the cluster's launcher, or starts a unipgas launcher on each host.

mod ask;
mod launcher;
pub mod list;
mod shell;

use std::ffi::{OsStr, OsString};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unipgas::core::variables;
use unipgas_launcher::find_program;

use crate::run::{Bind, KeepGoing};
use crate::{Ended, fail, failed, shown};
pub(crate) use ask::{Asked, Asking};
pub(crate) use launcher::HostLauncher;
use launcher::{InstalledPrograms, LaunchPlan, LauncherKind};
pub(crate) use list::HostShare;
use list::NamedHost;
pub(crate) use shell::{Shell, part, run, shown as lines};

const HEADING: &str = "On several hosts";

/// The hosts of the job, and the launcher.
#[derive(clap::Args)]
pub(crate) struct HostOptions {
    /// Hosts, as a,b (equal shares), a:4,b:2 (4 and 2 processes) or n[01-04]
    #[arg(long, help_heading = HEADING, value_name = "LIST", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// A file with a host on each line, also as host:4 or host slots=4; hosts without a number share the rest of -n, or get one process if -n is missing
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// The launcher, a name or path; default: UNIPGAS_LAUNCHER, else srun in a Slurm allocation, else prterun, mpirun or mpiexec. With a remote shell, ssh or
    /// rsh, this command starts the processes itself; this is also the default without a launcher, and with --spares
    #[arg(long, help_heading = HEADING, value_name = "NAME")]
    launcher: Option<OsString>,
    /// Arguments for the launcher, as "--mca plm_rsh_agent rsh"
    #[arg(long, help_heading = HEADING, value_name = "WORDS", allow_hyphen_values = true)]
    launcher_args: Option<String>,
    /// Shows the command line of the launcher and starts nothing
    #[arg(long, help_heading = HEADING)]
    dry_run: bool,
}

/// How the processes are started.
pub(crate) enum StartMethod {
    /// The launcher of the cluster.
    Launcher(HostLauncher),
    /// A unipgas launcher on each host, through a remote shell.
    Shell(Shell),
}

/// The program to start on the hosts.
pub(crate) struct ProgramSpec<'a> {
    pub bind: Bind,
    pub tag: bool,
    pub keep_going: KeepGoing,
    /// Variables to set on all hosts.
    pub variables: Vec<(String, OsString)>,
    /// The program's file, and its arguments.
    pub path: &'a Path,
    pub args: &'a [OsString],
}

/// Variables to pass to other hosts: variables of the library and of libfabric, and the library path.
const PREFIXES: [&str; 3] = ["UNIPGAS_", "UTOFU_", "FI_"];
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Variables of the job around this command. They are not passed to the new job.
const OF_A_JOB: [&str; 4] = [
    "UNIPGAS_JOB",
    "UNIPGAS_RANK",
    "UNIPGAS_SIZE",
    "UNIPGAS_INCARNATION",
];

impl HostOptions {
    /// The shares of the hosts, if any are named.
    ///
    /// Errors: one line.
    pub fn shares(&self, processes: Option<u32>) -> Result<Option<Vec<HostShare>>, String> {
        let Some(named) = named(&self.hosts, &self.hostfile)? else {
            let given = [
                (self.launcher.is_some(), "--launcher"),
                (self.launcher_args.is_some(), "--launcher-args"),
                (self.dry_run, "--dry-run"),
            ];
            return match given.iter().find(|(given, _)| *given) {
                Some((_, option)) => Err(format!("{option} needs --hosts or --hostfile")),
                None => Ok(None),
            };
        };
        list::share(&named, processes).map(Some)
    }

    /// Whether all processes run on this host and no launcher is requested.
    pub fn stays_here(&self, shares: &[HostShare]) -> bool {
        self.launcher.is_none()
            && self.launcher_args.is_none()
            && shares.iter().all(|share| is_here(&share.host))
    }

    /// With `--dry-run`: reports that the job needs no other launcher. Otherwise returns none.
    pub fn show_stay(&self, processes: u32) -> Option<Ended> {
        let text = format!("this host only: {processes} processes, by no other launcher\n");
        self.dry_run.then(|| shown(&text))
    }

    /// The start method. `spares`: spare processes replace failed ones. Launchers of clusters cannot do this.
    ///
    /// Errors: one line.
    pub fn way(&self, spares: bool) -> Result<StartMethod, String> {
        let named = match &self.launcher {
            Some(name) => Some(name.clone()),
            None => variables::get("UNIPGAS_LAUNCHER")
                .map_err(|e| e.to_string())?
                .map(OsString::from),
        };
        let wish = named.as_deref();
        if let Some(shell) = wish.and_then(Shell::named) {
            return Ok(StartMethod::Shell(shell));
        }
        let machine = InstalledPrograms {
            find: &|name| find_program(name).map_err(|e| e.to_string()),
            version: &|path| said(path, &["--version"]),
            allocation: std::env::var_os("SLURM_JOB_ID").is_some_and(|id| !id.is_empty()),
        };
        let found = launcher::choose(wish, &machine);
        let ssh = || find_program("ssh".as_ref()).is_ok();
        match found {
            Ok(HostLauncher {
                kind: LauncherKind::Srun,
                name,
                ..
            }) if spares => Ok(StartMethod::Shell(Shell::Srun(name))),
            Ok(launcher) if spares && wish.is_some() => Err(format!(
                "--spares: {} starts no process in the place of another one; --launcher ssh does",
                launcher.name.display()
            )),
            Ok(launcher) if !spares => Ok(StartMethod::Launcher(launcher)),
            Err(why) if wish.is_some() => Err(why),
            Ok(_) | Err(_) if ssh() => Ok(StartMethod::Shell(Shell::Remote("ssh".into()))),
            Ok(_) => Err("--spares on several hosts needs ssh".into()),
            Err(why) => Err(why),
        }
    }

    /// How each host is reached.
    ///
    /// Errors: one line.
    pub fn places(
        &self,
        shares: &[HostShare],
        shell: &Shell,
    ) -> Result<Vec<unipgas_launcher::NodePlacement>, String> {
        shell::places(shares, shell, &words(&self.launcher_args)?, is_here)
    }

    /// Whether `--dry-run` is set.
    pub fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// Becomes the launcher. The launcher then gets all signals, and its status is the status of the job. Returns only after an error, or with `--dry-run`.
    pub fn hand_over(
        &self,
        launcher: &HostLauncher,
        shares: &[HostShare],
        program: &ProgramSpec<'_>,
    ) -> Ended {
        let words = self.command(launcher, shares, program).map_err(failed(2))?;
        if self.dry_run {
            return shown(&line(program, launcher, &words));
        }
        let mut command = Command::new(&launcher.path);
        command.arg0(&launcher.name).args(words);
        command.envs(program.variables.iter().map(|(name, value)| (name, value)));
        OF_A_JOB.iter().for_each(|name| {
            command.env_remove(name);
        });
        let why = command.exec();
        fail(
            1,
            format!("cannot start {}: {why}", launcher.path.display()),
        )
    }

    fn command(
        &self,
        launcher: &HostLauncher,
        shares: &[HostShare],
        program: &ProgramSpec<'_>,
    ) -> Result<Vec<OsString>, String> {
        let more = words(&self.launcher_args)?;
        let protocol = match launcher.kind {
            LauncherKind::Srun if std::env::var_os("SLURM_MPI_TYPE").is_none() => {
                launcher::slurm_protocol(&said(&launcher.path, &["--mpi=list"]))
            }
            _ => None,
        };
        let mut words = vec![program.path.as_os_str().to_owned()];
        words.extend(program.args.iter().cloned());
        let job = LaunchPlan {
            shares,
            bind: program.bind,
            tag: program.tag,
            keep_going: program.keep_going,
            variables: &environment(&program.variables),
            protocol,
            more: &more,
            program: &words,
        };
        launcher::arguments(launcher.kind, &job)
    }
}

/// The hosts that a list or a file names. Errors: one line.
fn named(hosts: &Option<String>, file: &Option<PathBuf>) -> Result<Option<Vec<NamedHost>>, String> {
    match (hosts, file) {
        (Some(text), _) => list::from_list(text).map(Some),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|e| format!("cannot read the host file {name}: {e}"))?;
            list::from_file(&name, &text).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// The user's arguments for the launcher or the remote shell.
fn words(more: &Option<String>) -> Result<Vec<String>, String> {
    let more = more.as_deref().unwrap_or_default();
    shlex::split(more)
        .ok_or_else(|| format!("--launcher-args: a quotation mark is missing: {more}"))
}

/// The variables for other hosts: this process's own variables that are passed, and `set`.
fn environment(set: &[(String, OsString)]) -> Vec<(String, OsString)> {
    let is_passed = |name: &str| {
        name == LIBRARY_PATH
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !OF_A_JOB.contains(&name)
    };
    let inherited = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| is_passed(name))?;
        Some((name, value))
    });
    let mut all: Vec<(String, OsString)> = inherited
        .filter(|(name, _)| set.iter().all(|(known, _)| known != name))
        .chain(set.iter().cloned())
        .collect();
    all.sort();
    all
}

/// Standard output and error of a program; empty if it does not start.
fn said(path: &Path, args: &[&str]) -> String {
    let output = Command::new(path).args(args).stdin(Stdio::null()).output();
    output.map_or_else(
        |_| String::new(),
        |output| {
            let both = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&both).into_owned()
        },
    )
}

/// The command line as a user would type it in a shell.
fn line(program: &ProgramSpec<'_>, launcher: &HostLauncher, words: &[OsString]) -> String {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy().into_owned();
        shlex::try_quote(&word).map_or(word.clone(), |quoted| quoted.into_owned())
    };
    let set = program.variables.iter();
    let set = set.map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = std::iter::once(&launcher.name).chain(words);
    let words = words.map(|word| quoted(word));
    set.chain(words).collect::<Vec<_>>().join(" ") + "\n"
}

/// Whether a name means this host: the host's own name, with or without the domain, or a name that resolves to one of its addresses.
fn is_here(host: &str) -> bool {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if host == own || host == short(&own) || short(host) == own || host == "localhost" {
        return true;
    }
    let found = (host, 0).to_socket_addrs();
    found.is_ok_and(|mut addresses| addresses.any(is_own))
}

/// Whether an address belongs to this host: the kernel then chooses it as the source address too.
fn is_own(address: SocketAddr) -> bool {
    if address.ip().is_loopback() {
        return true;
    }
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    // `connect` of a UDP socket sends nothing. Any port will do.
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address.ip(), 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_host_are_known() {
        let own = rustix::system::uname();
        let own = own.nodename().to_str().unwrap();
        for host in [own, "localhost", "127.0.0.1"] {
            assert!(is_here(host), "{host}");
        }
        // An address and a name that are reserved for documentation.
        for host in ["192.0.2.1", "no-such-host.invalid"] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn words_of_a_shell_come_back() {
        let program = ProgramSpec {
            bind: Bind::None,
            tag: false,
            keep_going: KeepGoing::Never,
            variables: vec![("UNIPGAS_BACKEND".into(), "a b".into())],
            path: Path::new("./p"),
            args: &[],
        };
        let launcher = HostLauncher {
            kind: LauncherKind::OpenMpi,
            name: "mpirun".into(),
            path: "/usr/bin/mpirun".into(),
        };
        let words = ["--host", "a:1", "it's", ""].map(OsString::from);
        let shown = line(&program, &launcher, &words);
        let back = shlex::split(&shown).unwrap();
        assert_eq!(
            back,
            ["UNIPGAS_BACKEND=a b", "mpirun", "--host", "a:1", "it's", ""]
        );
        assert!(
            shown.starts_with("UNIPGAS_BACKEND='a b' mpirun "),
            "{shown}"
        );
    }
}
