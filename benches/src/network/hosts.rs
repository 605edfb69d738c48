//! The places of processes that share no memory: this host, or several hosts.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use parking_lot::Mutex;
use unipgas_launcher::{
    Keeper, Launch, NodeEvent, NodeRanks, Output, Rules, ignore_broken_pipes, keep_part,
};

use crate::launch::{outcome_of, worker};
use crate::peers::tool;

/// Script that makes hosts from namespaces and runs a command that sees them.
const WITH_HOSTS: &str = include_str!("../../peers/with-hosts");
/// Variable with the names of the hosts, separated by blanks.
const NAMES: &str = "HOSTS";
/// Variable with a command that is called like ssh.
const SHELL: &str = "HOSTS_RSH";
/// Maximum number of such hosts.
const MOST: u32 = 48;
/// Kind of a part's last message: the failure, or empty.
const END: u8 = unipgas_launcher::OWN;

/// The place of the processes.
#[derive(Debug, Clone)]
pub(crate) enum Placement {
    /// All on this host.
    Here,
    /// The ranks are dealt to these hosts in turn.
    Hosts(BenchHosts),
}

/// Several hosts.
#[derive(Debug, Clone)]
pub(crate) struct BenchHosts {
    /// Their names.
    pub names: Vec<String>,
    /// Made from namespaces: they share the files and the cores of this machine.
    pub made: bool,
    by: By,
}

/// The means to start processes there.
#[derive(Debug, Clone)]
enum By {
    /// A remote shell starts this program there.
    Shell(OsString),
    /// `unipgas run`, with these further arguments. It uses the cluster's launcher.
    Launcher(Vec<String>),
}

/// The value of `--hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostsOption {
    /// A number of hosts, made from namespaces unless the environment names some.
    Number(u32),
    /// Names of hosts.
    Names(Vec<String>),
}

impl std::str::FromStr for HostsOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return match number {
                2..=MOST => Ok(HostsOption::Number(number)),
                _ => Err(format!("this number of hosts cannot be made: 2 to {MOST}")),
            };
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().into()).collect();
        let is_name = |name: &String| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(allowed)
        };
        match names.iter().all(is_name) {
            true => Ok(HostsOption::Names(names)),
            false => Err("names of hosts with commas between them, or their number".into()),
        }
    }
}

impl Placement {
    /// The requested place. If hosts must be made, a new run of this program replaces this process, so `Err(Ok)` does not occur.
    pub fn of(
        wish: &HostsOption,
        launcher: &[String],
        again: &[String],
    ) -> Result<Placement, Result<ExitCode, String>> {
        let number = match wish {
            HostsOption::Names(names) => {
                return Ok(Placement::Hosts(BenchHosts {
                    names: names.clone(),
                    made: false,
                    by: By::Launcher(launcher.to_vec()),
                }));
            }
            HostsOption::Number(number) => *number,
        };
        let Some(shell) = std::env::var_os(SHELL) else {
            return Err(make(number, again));
        };
        let names = std::env::var(NAMES).unwrap_or_default();
        let names: Vec<String> = names.split_whitespace().map(String::from).collect();
        if names.len() < number as usize {
            return Err(Err(format!(
                "{NAMES} names {} hosts, not {number}",
                names.len()
            )));
        }
        Ok(Placement::Hosts(BenchHosts {
            names: names[..number as usize].to_vec(),
            made: std::env::var_os("HOSTS_LINK").is_some(),
            by: By::Shell(shell),
        }))
    }

    /// The name in records.
    pub fn name(&self) -> String {
        match self {
            Placement::Here => "this one".into(),
            Placement::Hosts(hosts) if hosts.made => format!("{} of namespaces", hosts.names.len()),
            Placement::Hosts(hosts) => hosts.names.join(","),
        }
    }

    /// The address at which the processes reach this host.
    pub fn address(&self) -> Result<IpAddr, String> {
        let names = match self {
            Placement::Here => &[][..],
            Placement::Hosts(hosts) => &hosts.names,
        };
        let mut here = None;
        for name in names {
            let found = (name.as_str(), 9).to_socket_addrs();
            let found = found.map_err(|e| format!("{name}: {e}"))?;
            let own = found.filter_map(own_address).next();
            match own {
                Some(address) if !address.is_loopback() => return Ok(address),
                own => here = own,
            }
        }
        match (here, names) {
            (Some(address), _) => Ok(address),
            (None, []) => Ok(Ipv4Addr::LOCALHOST.into()),
            (None, _) => Err(format!("none of {} is reached from here", names.join(", "))),
        }
    }

    /// Runs `size` processes of this program as workers with these arguments, until they end. Processes of this host communicate by `backend`.
    pub fn run(
        &self,
        size: u32,
        args: Vec<OsString>,
        backend: &str,
        limit: Duration,
    ) -> Result<(), String> {
        match self {
            Placement::Here => {
                let mut launch = worker(size, args, limit)?;
                launch.backend = Some(backend.into());
                outcome_of(&launch.run().map_err(|e| e.to_string())?, limit)
            }
            Placement::Hosts(hosts) => match &hosts.by {
                By::Shell(shell) => hosts.by_shell(shell, size, &args, limit),
                By::Launcher(words) => hosts.by_launcher(words, size, &args, limit),
            },
        }
    }
}

/// The address of this host from which packets go to `to`. It sends nothing.
fn own_address(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

/// Replaces this process: runs this program with `args` on `number` hosts made from namespaces. It returns only on errors.
fn make(number: u32, args: &[String]) -> Result<ExitCode, String> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    command
        .args(["-c", WITH_HOSTS, "with-hosts", "-n", &number.to_string()])
        .arg(myself()?)
        .args(args);
    Err(format!("cannot start sh: {}", command.exec()))
}

fn myself() -> Result<OsString, String> {
    let path = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    Ok(path.into())
}

impl BenchHosts {
    /// The host of a rank.
    pub fn of(&self, rank: usize) -> &str {
        &self.names[rank % self.names.len()]
    }

    /// The command that runs another one on a host. It is called like ssh.
    pub fn shell(&self) -> OsString {
        match &self.by {
            By::Shell(shell) => shell.clone(),
            By::Launcher(_) => std::env::var_os(SHELL).unwrap_or("ssh".into()),
        }
    }

    /// The variables of this process that workers need, as arguments of `env`.
    pub fn variables(&self) -> Vec<OsString> {
        let is_passed = |name: &str| {
            ["UNIPGAS_", "FI_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
                || name == "LD_LIBRARY_PATH"
        };
        let mut all = vec![OsString::from(format!("UNIPGAS_NETWORKS={}", networks()))];
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if is_passed(&name) && name != "UNIPGAS_NETWORKS" {
                let mut word = OsString::from(format!("{name}="));
                word.push(value);
                all.push(word);
            }
        }
        all
    }

    fn by_shell(
        &self,
        shell: &OsStr,
        size: u32,
        args: &[OsString],
        limit: Duration,
    ) -> Result<(), String> {
        ignore_broken_pipes();
        let count = self.names.len().min(size as usize);
        let command = |number: usize| {
            let mut words = vec![OsString::from("env")];
            words.extend(self.variables());
            words.push(myself()?);
            words.extend_from_slice(args);
            words.push(format!("--part={number}/{count}/{}", limit.as_secs()).into());
            let name = self.names[number].clone();
            let shell = [shell.to_owned(), name.clone().into()];
            Ok((
                name,
                [&shell[..], &[unipgas_launcher::shell_line(&words)]].concat(),
            ))
        };
        let commands: Result<Vec<_>, String> = (0..count).map(command).collect();
        let parts = unipgas_launcher::Hosts::start(commands?).map_err(|e| e.to_string())?;
        let rules = Rules {
            homes: (0..size as usize).map(|rank| rank % count).collect(),
            ..Rules::default()
        };
        // The first failure is the cause of the later ones.
        let failure = Mutex::new(None);
        let fail = |why: String| {
            failure.lock().get_or_insert(why);
            parts.end();
        };
        let ended = parts.run(rules, |told| match told {
            NodeEvent::Own {
                kind: END, bytes, ..
            } if !bytes.is_empty() => fail(String::from_utf8_lossy(bytes).into_owned()),
            NodeEvent::Lost { host, status, .. } => {
                fail(format!("host {} is lost: {status}", parts.name(host)));
            }
            _ => {}
        });
        let failure = failure.into_inner();
        match failure {
            Some(why) => Err(why),
            None => ended.map(drop).map_err(|e| e.to_string()),
        }
    }

    fn by_launcher(
        &self,
        words: &[String],
        size: u32,
        args: &[OsString],
        limit: Duration,
    ) -> Result<(), String> {
        let ranks: Vec<&str> = (0..size as usize).map(|rank| self.of(rank)).collect();
        // All programs are installed in one folder.
        let myself = PathBuf::from(myself()?);
        let mut command = Command::new(myself.with_file_name("unipgas"));
        command.env("UNIPGAS_NETWORKS", networks());
        command.args(["run", "--hosts", &ranks.join(",")]);
        command.args(words);
        command.args(["-n", &size.to_string()]);
        command.arg(myself).args(args);
        let ended = tool::run(&mut command, limit)?;
        match ended.success() {
            true => Ok(()),
            false => Err(ended.why()),
        }
    }
}

/// The networks that unipgas may use between hosts.
pub fn networks() -> String {
    std::env::var("UNIPGAS_NETWORKS").unwrap_or("ofi".into())
}

/// The arguments of a worker, or of the process that starts workers on a host.
pub fn worker_args(order: &str, library: Option<&Path>) -> Vec<OsString> {
    let mut args = vec![OsString::from(format!("--worker={order}"))];
    if let Some(path) = library {
        let mut word = OsString::from("--library=");
        word.push(path);
        args.push(word);
    }
    args
}

/// `NUMBER/COUNT/LIMIT`: starts the workers of one host. Their ranks are NUMBER modulo COUNT. LIMIT is a timeout in seconds.
pub fn run_part(part: &str, order: &str, library: Option<&Path>) -> ExitCode {
    // If the launcher is killed, descendants of the workers end, too.
    keep_part(|keeper| run_kept(part, order, library, keeper))
}

fn run_kept(part: &str, order: &str, library: Option<&Path>, keeper: Keeper) -> Result<(), String> {
    let numbers: Option<Vec<u32>> = part.split('/').map(|number| number.parse().ok()).collect();
    let numbers: Option<[u32; 3]> = numbers.and_then(|all| all.try_into().ok());
    let [number, count, limit] =
        numbers.ok_or_else(|| format!("'{part}' is not NUMBER/COUNT/LIMIT"))?;
    let size = order.parse::<crate::worker::WorkOrder>()?.size;
    let limit = Duration::from_secs(limit.into());
    let here = (number..size).step_by(count.max(1) as usize);
    let part = NodeRanks::new(count, here.collect()).map_err(|e| e.to_string())?;
    let mut launch: Launch = worker(size, worker_args(order, library), limit)?;
    launch.output = Output::Capture;
    launch.part = Some(part.clone());
    launch.keeper = Some(keeper);
    let outcome = launch.run().map_err(|e| e.to_string())?;
    let failure = outcome_of(&outcome, limit).err().unwrap_or_default();
    part.send(END, failure.as_bytes())
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_a_number_or_names() {
        let names =
            |names: &[&str]| HostsOption::Names(names.iter().map(|n| (*n).into()).collect());
        assert_eq!("2".parse(), Ok(HostsOption::Number(2)));
        assert_eq!("a,b".parse(), Ok(names(&["a", "b"])));
        assert_eq!("node-1.in, n_2".parse(), Ok(names(&["node-1.in", "n_2"])));
        for wrong in ["1", "1000", "", "a,,b", "-oProxyCommand=x,b", "a b"] {
            assert!(wrong.parse::<HostsOption>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_own_address_is_that_from_which_packets_go() {
        let loopback: SocketAddr = ([127, 0, 0, 1], 9).into();
        assert_eq!(own_address(loopback), Some(loopback.ip()));
        assert_eq!(
            Placement::Here.address(),
            Ok(IpAddr::from(Ipv4Addr::LOCALHOST))
        );
    }
}
