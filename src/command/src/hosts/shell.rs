//! A job on several hosts without a cluster's launcher. This process launches it, and reaches the hosts through a remote shell.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use unipgas::core::{Error, tell};
use unipgas_launcher::Launch;
use unipgas_launcher::{
    BindPolicy, Keeper, NodePlacement, NodeRanks, OWN, Output, OutputProperties, keep, shell_line,
};

use super::list::HostShare;
use crate::records::{Records, pieces};
use crate::run::ReportOptions;
use crate::{Ended, Failed, failed, stats, trace};

/// The first message to the launcher of a host: the plan for its ranks.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    size: u32,
    directory: PathBuf,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    backend: Option<String>,
    seed: Option<u64>,
    bind: String,
    reports_bindings: bool,
    files: Option<PathBuf>,
    ends: OutputProperties,
    stats: bool,
    trace: bool,
}

/// Counters of the ranks of a host.
const STATISTICS: u8 = OWN;
/// Trace events of the ranks.
const TIMELINE: u8 = OWN + 1;

/// How the hosts are reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// A program with the arguments of ssh: `ssh WORDS HOST LINE`.
    Remote(OsString),
    /// In an allocation of Slurm.
    Srun(OsString),
}

impl Shell {
    /// The shell of this name. `None`: no remote shell has the name.
    pub fn named(name: &OsStr) -> Option<Shell> {
        let file = Path::new(name).file_name();
        let is_shell = file.is_some_and(|file| file == "ssh" || file == "rsh");
        is_shell.then(|| Shell::Remote(name.to_owned()))
    }

    /// The command that runs `line` on `host`.
    pub(super) fn command(&self, host: &str, more: &[String], line: OsString) -> Vec<OsString> {
        let (program, own): (_, &[&str]) = match self {
            Shell::Remote(name) if Path::new(name).file_name() == Some(OsStr::new("ssh")) => {
                // After this time without an answer, a host is lost.
                let alive = ["ServerAliveInterval=10", "ServerAliveCountMax=3"];
                (name, &["-o", alive[0], "-o", alive[1]])
            }
            Shell::Remote(name) => (name, &[]),
            // Unbuffered, because the frames have no lines.
            Shell::Srun(name) => (
                name,
                &[
                    "--overlap",
                    "-N1",
                    "-n1",
                    "--mpi=none",
                    "--unbuffered",
                    "--export=ALL",
                ],
            ),
        };
        let mut words = vec![program.clone()];
        words.extend(own.iter().map(OsString::from));
        words.extend(more.iter().map(OsString::from));
        match self {
            Shell::Remote(_) => words.push(host.into()),
            Shell::Srun(_) => words.extend(["-w", host, "sh", "-c"].map(OsString::from)),
        }
        words.push(line);
        words
    }
}

/// The ranks of each host, and the way to the host. Each host occurs once, in any order of the shares. Errors: a line.
pub fn places(
    shares: &[HostShare],
    shell: &Shell,
    more: &[String],
    is_here: impl Fn(&str) -> bool,
) -> Result<Vec<NodePlacement>, String> {
    let myself =
        std::env::current_exe().map_err(|e| format!("cannot find where unipgas is: {e}"))?;
    let line = || shell_line(&[myself.clone().into(), "part".into()]);
    let mut places: Vec<NodePlacement> = Vec::new();
    let mut rank = 0;
    for share in shares {
        let here = rank..rank + share.processes;
        rank = here.end;
        match places.iter_mut().find(|place| place.host == share.host) {
            Some(place) => place.here.extend(here),
            None => places.push(NodePlacement {
                host: share.host.clone(),
                here: here.collect(),
                command: match is_here(&share.host) {
                    true => vec!["sh".into(), "-c".into(), line()],
                    false => shell.command(&share.host, more, line()),
                },
            }),
        }
    }
    Ok(places)
}

/// The commands that would start, a line for each host.
pub fn shown(places: &[NodePlacement]) -> String {
    let line = |place: &NodePlacement| {
        let words = place.command.iter().map(|word| word.to_string_lossy());
        let quoted = words.map(|word| {
            shlex::try_quote(&word).map_or_else(|_| word.to_string(), |word| word.into_owned())
        });
        quoted.collect::<Vec<_>>().join(" ") + "\n"
    };
    places.iter().map(line).collect()
}

/// Names of variables that belong to a host, a session, or another job.
const OF_A_HOST: [&str; 14] = [
    "_",
    "DISPLAY",
    "HOME",
    "HOST",
    "HOSTNAME",
    "LOGNAME",
    "MAIL",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM",
    "USER",
    "XAUTHORITY",
];
const OF_A_SESSION: [&str; 8] = [
    "DBUS_",
    "PMI_",
    "PMIX_",
    "SLURM_",
    "SSH_",
    "TMUX",
    "XDG_",
    "OMPI_COMM_",
];

/// The environment for the hosts: nearly all variables, as with other launchers.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    let goes = |name: &str| {
        !OF_A_HOST.contains(&name)
            && !OF_A_SESSION.iter().any(|prefix| name.starts_with(prefix))
            && !super::OF_A_JOB.contains(&name)
    };
    std::env::vars_os().filter(move |(name, _)| name.to_str().is_none_or(goes))
}

/// Runs the job on these hosts until its end.
pub fn run(
    mut launch: Launch,
    places: &[NodePlacement],
    path: &Path,
    wishes: ReportOptions,
) -> Ended {
    let directory = std::env::current_dir()
        .map_err(|error| Failed(2, format!("cannot tell the directory: {error}")))?;
    let plan = Plan {
        size: launch.size,
        directory,
        program: path.into(),
        args: launch.args.clone(),
        env: environment().chain(launch.env.clone()).collect(),
        backend: launch.backend.clone(),
        seed: launch.seed,
        bind: launch.bind.name().into(),
        reports_bindings: launch.reports_bindings,
        files: launch.files.clone(),
        ends: launch.ends,
        stats: wishes.stats.is_some(),
        trace: wishes.trace.is_some(),
    };
    let plan = serde_json::to_vec(&plan)
        .map_err(|error| Failed(2, format!("the plan of the job cannot be encoded: {error}")))?;
    wishes.begin().map_err(failed(2))?;
    let kept = keep(|keeper| {
        launch.keeper = Some(keeper);
        let (mut records, mut timeline) = (String::new(), String::new());
        let outcome = launch.run_on(places, &plan, |_, kind, bytes| match kind {
            STATISTICS => records += &String::from_utf8_lossy(bytes),
            TIMELINE => timeline += &String::from_utf8_lossy(bytes),
            _ => {}
        });
        match outcome {
            Ok(outcome) => {
                if let Some(form) = wishes.stats {
                    form.tell(&records, launch.size);
                }
                let traced = (wishes.trace.as_deref())
                    .is_none_or(|file| trace::end(file, &timeline, launch.size));
                wishes.status(&outcome, launch.size, traced)
            }
            Err(error) => {
                tell(&error.to_string());
                1
            }
        }
    });
    kept.map(ExitCode::from).map_err(failed(1))
}

/// `unipgas part`: the launcher of one host. Its standard input and output lead to the launcher of the whole job.
pub fn part() -> Ended {
    // The launcher of the whole job gets the terminal's signals, and forwards them to all hosts.
    let _ = rustix::process::setpgid(None, None);
    let kept = keep(|keeper| {
        let seen = begin().and_then(|(part, plan)| see(part, plan, keeper));
        seen.unwrap_or_else(|error| {
            let host = rustix::system::uname();
            tell(&format!("{}: {error}", host.nodename().to_string_lossy()));
            2
        })
    });
    unipgas::core::rendezvous::sweep();
    kept.map(ExitCode::from).map_err(failed(1))
}

fn begin() -> Result<(NodeRanks, Plan), Error> {
    let (part, plan) = NodeRanks::open()?;
    let plan = serde_json::from_slice(&plan);
    let plan = plan.map_err(|error| {
        Error::InvalidArgument(format!(
            "the unipgas of the launcher is another version: {error}"
        ))
    })?;
    Ok((part, plan))
}

fn see(part: NodeRanks, plan: Plan, keeper: Keeper) -> Result<u8, Error> {
    std::env::set_current_dir(&plan.directory)
        .map_err(|e| Error::os(&format!("no directory {}", plan.directory.display()), e))?;
    let collect = |wanted: bool| wanted.then(Records::new).transpose().map_err(Error::Os);
    let records = collect(plan.stats)?;
    let timeline = collect(plan.trace)?;
    let mut launch = Launch::new(plan.size, plan.program);
    launch.args = plan.args;
    launch.env = plan.env;
    launch.env.extend(records.iter().flat_map(stats::collected));
    launch
        .env
        .extend(timeline.iter().flat_map(trace::variables));
    launch.backend = plan.backend;
    launch.seed = plan.seed;
    launch.reports_bindings = plan.reports_bindings;
    launch.files = plan.files;
    launch.bind = BindPolicy::named(&plan.bind).unwrap_or_default();
    launch.output = Output::Lines;
    launch.ends = plan.ends;
    launch.keeper = Some(keeper);
    launch.part = Some(part.clone());
    launch.foreground = true;
    launch.run()?;
    if let Some(records) = records {
        part.send(STATISTICS, records.text().map_err(Error::Os)?.as_bytes())?;
    }
    if let Some(timeline) = timeline {
        for piece in pieces(&timeline.text().map_err(Error::Os)?) {
            part.send(TIMELINE, piece.as_bytes())?;
        }
    }
    // Frames have carried all output of the ranks, so no buffer holds any of it.
    let _ = std::io::stdout().flush();
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(host: &str, processes: u32) -> HostShare {
        HostShare {
            host: host.into(),
            processes,
        }
    }

    #[test]
    fn a_host_has_one_launcher_for_all_its_ranks() {
        let shares = [share("a", 2), share("b", 1), share("a", 1)];
        let shell = Shell::named(OsStr::new("/x/ssh")).unwrap();
        let more = ["-p".to_owned(), "22".to_owned()];
        let found = places(&shares, &shell, &more, |host| host == "b").unwrap();
        assert_eq!((&found[0].here, &found[1].here), (&vec![0, 1, 3], &vec![2]));
        let words: Vec<_> = found[0]
            .command
            .iter()
            .map(|w| w.to_str().unwrap())
            .collect();
        assert_eq!(words[0], "/x/ssh");
        assert_eq!(words[5..8], ["-p", "22", "a"]);
        assert!(words[8].ends_with(" 'part'"), "{words:?}");
        assert_eq!(found[1].command[..2], ["sh", "-c"]);
        assert_eq!(shown(&found).lines().count(), 2);
    }

    #[test]
    fn remote_shells_are_known_by_their_names() {
        for (name, known) in [
            ("ssh", true),
            ("/opt/rsh", true),
            ("mpirun", false),
            ("", false),
        ] {
            assert_eq!(Shell::named(OsStr::new(name)).is_some(), known, "{name}");
        }
    }
}
