//! `unipgas run`: its options and messages. [`Launch`] executes it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use unipgas::core::{Error, log, registry, rendezvous, tell, variables};
use unipgas::utofu::environment::UtofuSettings;
use unipgas::utofu::shape::{MAX_NODES, NetworkShape};
use unipgas_launcher::{
    BindPolicy, JobOutcome, Launch, Output, OutputProperties, check_program, find_program, keep,
};

use crate::hosts::{HostLauncher, HostShare, Shell, StartMethod};
use crate::mpi::{self, Links, links};
use crate::parts::{self, ProgramPart};
use crate::records::Records;
use crate::stats::{self, Form};
use crate::{Ended, Failed, fail, failed, hosts, join, shown, trace};

/// Options of `unipgas run`.
#[derive(clap::Args)]
#[command(override_usage = "unipgas run [OPTIONS] -n <N> <PROGRAM>...", after_help = EXAMPLES, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    own: ProgramPart,
    /// The backend: shm (the default), streams, or chaos for tests
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Seed of the backend chaos, and of streams with `unordered`. Without it, chaos draws a seed, and a failed run prints it
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seed: Option<u64>,
    /// Binds each process to CPUs
    #[arg(long, value_enum, default_value_t = Bind::None)]
    bind: Bind,
    /// Prints the binding of each process
    #[arg(long)]
    report_bindings: bool,
    /// Writes the output of each rank into files in this directory, rank.N.out and rank.N.err; on several hosts with --launcher ssh
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "tag")]
    output: Option<PathBuf>,
    /// Starts each line of output with its rank
    #[arg(long)]
    tag: bool,
    /// Does not end the other processes when one fails; "where-possible": ends them if the launcher of the hosts lacks this option
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value_t = KeepGoing::Never,
          default_missing_value = "always", hide_default_value = true)]
    keep_going: KeepGoing,
    /// Returns the status of this rank, not of the first rank that fails; not with the launcher of a cluster
    #[arg(long, value_name = "R")]
    status_of: Option<u32>,
    /// Replaces a failed process by a new one, up to K times; the new process joins with the same rank (GASPI)
    #[arg(long, value_name = "K", default_value_t = 0, hide_default_value = true)]
    spares: u32,
    /// Starts PROGRAM as this rank of a --job, to replace a process that has died; the job runs on this host with --keep-going (GASPI)
    #[arg(long, value_name = "R", conflicts_with_all = ["processes", "spares", "hosts", "hostfile", "backend", "seed"])]
    rank: Option<u32>,
    /// The job of --rank: the process id of its launcher or of one of its processes
    #[arg(long, value_name = "PID", conflicts_with_all = ["processes", "spares", "hosts", "hostfile"])]
    job: Option<u32>,
    /// Prints operations, bytes and waits of each rank at the end; for GASPI also the number and time of each call
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    stats: Option<Form>,
    /// Writes a timeline of the job into FILE: waits, large transfers, messages, deaths; Perfetto, Chrome and speedscope show it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Ends the job after this time, with status 124; on several hosts with --launcher ssh
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    place: hosts::HostOptions,
}

const EXAMPLES: &str = "\
Examples:
  unipgas run -n 8 ./program
  unipgas run -n 2 ./program x : -n 6 -x NAME=VALUE ./other y
  unipgas run --hosts a,b -n 8 ./program
  unipgas run --hostfile FILE -n 8 --launcher-args \"--mca plm_rsh_agent rsh\" ./program
  unipgas run --hosts \"$SLURM_JOB_NODELIST\" -n 8 --dry-run ./program";

/// Whether the other processes continue when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepGoing {
    #[value(hide = true)]
    Never,
    WherePossible,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bind {
    /// Nothing
    None,
    /// One core, in turn
    Core,
    /// One NUMA node, neighbouring ranks together
    Numa,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wish = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    wish.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a number of seconds above 0".into())
}

/// Whether `run` has this option.
pub fn knows(option: &str) -> bool {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("run"));
    let name = option.split('=').next().unwrap_or(option);
    let mut known = command.get_arguments().filter_map(|arg| arg.get_long());
    known.any(|known| name.strip_prefix("--") == Some(known))
}

/// A virtual network for this number of processes, if the environment sets none. Programs that compute coordinates of other processes read its shape.
/// `None`: the environment sets it, or there is no network of that size.
fn tofu_shape(processes: u32, wishes: &UtofuSettings) -> Option<NetworkShape> {
    let nodes = processes.div_ceil(wishes.processes_per_node);
    let wanted = wishes.shape.is_none() && nodes <= MAX_NODES;
    wanted
        .then(|| NetworkShape::for_nodes(nodes))
        .filter(|shape| shape.nodes() <= MAX_NODES)
}

/// Settings from the environment, read once for all processes.
struct Environment {
    backend: Option<String>,
    seed: Option<u64>,
    tofu: UtofuSettings,
}

impl Environment {
    /// Errors: a line that names an invalid variable.
    fn read() -> Result<Self, String> {
        variables::check()
            .and_then(|()| log::begin(rendezvous::JobName::rank_from_env))
            .map_err(|e| e.to_string())?;
        variables::tell_of_unknown();
        unipgas::ircce::launch::LaunchSettings::from_env()?;
        let read = || -> unipgas::core::Result<_> {
            variables::switch("UNIPGAS_SHM_ADOPT", true)?;
            Ok((
                variables::get("UNIPGAS_BACKEND")?,
                variables::number("UNIPGAS_SEED")?,
            ))
        };
        let (backend, seed) = read().map_err(|e| e.to_string())?;
        Ok(Environment {
            backend,
            seed,
            tofu: UtofuSettings::from_env()?,
        })
    }
}

/// Rejects an MPI program in a job of several processes: each process would be a job of one. Warns if MPI may play a part.
fn check_mpi(path: &Path, processes: u32, program: &[OsString]) -> Result<Links, String> {
    let found = links(path);
    let shown = program[0].to_string_lossy();
    match &found {
        Links::MpiAlone(library) => Err(format!(
            "{shown} is a program of MPI (it is linked with {library}) and not of unipgas: {processes} jobs of one would come of it; \
             start it by mpirun -n {processes}"
        )),
        Links::Both(library) => {
            tell(&format!(
                "{shown} is linked with {library}, too: to MPI, each process is a job of one; a program that needs both is started by mpirun"
            ));
            Ok(found)
        }
        Links::NoMpi => {
            if let Some((word, library)) = mpi::among_arguments(&program[1..]) {
                tell(&format!(
                    "{word} is a program of MPI (it is linked with {library}): where {shown} starts it, each process is a job of one"
                ));
            }
            Ok(found)
        }
    }
}

/// The error for a missing number of processes or program.
pub const NO_NUMBER: &str =
    "run needs a number of processes and a program: unipgas run -n 4 ./program";

/// Runs the command. `rest`: the words after the first `:`.
pub fn run(mut args: Args, rest: Option<Vec<OsString>>) -> Ended {
    match (args.rank, args.job) {
        (Some(_), Some(_)) if rest.is_some() => {
            return fail(
                2,
                "--rank starts one process, of one program: there is no other part",
            );
        }
        (Some(rank), Some(pid)) => return take_place(args, rank, pid),
        (None, None) => {}
        _ => {
            return fail(
                2,
                "--rank and --job go together: unipgas run --rank R --job PID ./program",
            );
        }
    }
    let own = std::mem::take(&mut args.own);
    let parts = parts::further(rest).and_then(|further| {
        let all: Vec<ProgramPart> = std::iter::once(own).chain(further).collect();
        let processes = match all.len() {
            1 => all[0].processes,
            _ => Some(parts::count(&all)?),
        };
        let shares = args.place.shares(processes)?;
        Ok((all, processes, shares))
    });
    let (mut parts, processes, shares) = parts.map_err(failed(2))?;
    let of_hosts = |shares: &Vec<HostShare>| shares.iter().map(|share| share.processes).sum();
    let Some(processes) = processes.or_else(|| shares.as_ref().map(of_hosts)) else {
        return fail(2, NO_NUMBER);
    };
    let environment = Environment::read().map_err(failed(2))?;
    let wish = match (&args.backend, &environment.backend) {
        (Some(wish), _) => Some((wish, "")),
        (None, wish) => wish.as_ref().map(|wish| (wish, " (UNIPGAS_BACKEND)")),
    };
    if let Some((wish, place)) = wish {
        registry::check(wish, place).map_err(failed(2))?;
    }
    // Relative file names in options refer to the current folder, also after --wdir.
    for named in [&mut args.output, &mut args.trace].into_iter().flatten() {
        if let Ok(whole) = std::path::absolute(&*named) {
            *named = whole;
        }
    }
    let afar = shares
        .as_ref()
        .filter(|shares| !args.place.stays_here(shares));
    let way = afar
        .map(|_| args.place.way(args.spares > 0))
        .transpose()
        .map_err(failed(2))?;
    // A cluster's launcher reports its own errors, and gives MPI programs their ranks.
    let checked =
        processes > 1 && !args.place.is_dry() && !matches!(way, Some(StartMethod::Launcher(_)));
    let mut linked = Links::NoMpi;
    let starts_here = way.is_none() && !args.place.is_dry();
    let paths = parts::find(&mut parts, args.place.is_dry(), |path, program| {
        if starts_here {
            check_program(path).map_err(|error| (parts::status(&error), error.to_string()))?;
        }
        if !checked {
            return Ok(());
        }
        let found = check_mpi(path, processes, program).map_err(|why| (2, why))?;
        if let Links::Both(_) = found {
            linked = found;
        }
        Ok(())
    });
    let mut program = paths.map_err(|(status, why)| Failed(status, why))?;
    if parts.len() > 1 {
        let words = parts::as_one(&parts).map_err(failed(2))?;
        program = PathBuf::from(&words[0]);
        args.own.program = words;
    } else {
        args.own = parts.remove(0);
    }
    match (way, &shares) {
        (Some(StartMethod::Launcher(launcher)), Some(shares)) => {
            return elsewhere(&args, &environment, processes, &program, shares, &launcher);
        }
        (Some(StartMethod::Shell(shell)), Some(shares)) => {
            return by_shell(args, environment, processes, &program, shares, &shell);
        }
        _ => {}
    }
    if let Some(shown) = args.place.show_stay(processes) {
        return shown;
    }
    let wishes = ReportOptions::of(&args);
    let launch = launch(args, processes, environment);
    check_chaos(launch.backend.as_deref()).map_err(failed(2))?;
    see_through(launch, &linked, wishes)
}

/// Messages at the end of the job.
pub(crate) struct ReportOptions {
    /// Statistics, in this form.
    pub stats: Option<Form>,
    /// A timeline, in this file.
    pub trace: Option<PathBuf>,
    /// Ranks continue when others fail, so the end lists all failures.
    lists_failures: bool,
    status_of: Option<u32>,
}

impl ReportOptions {
    fn of(args: &Args) -> Self {
        ReportOptions {
            stats: args.stats,
            trace: args.trace.clone(),
            lists_failures: args.keep_going != KeepGoing::Never,
            status_of: args.status_of,
        }
    }

    /// The exit status for a finished job. `traced`: its timeline is written.
    pub fn status(&self, outcome: &JobOutcome, processes: u32, traced: bool) -> u8 {
        let failures = outcome.failures(processes);
        if let Some(failures) = failures.filter(|_| self.lists_failures && processes > 1) {
            tell(&failures);
        }
        let status = match self.status_of {
            Some(rank) => outcome.status_of(rank),
            None => outcome.status(),
        };
        match u8::try_from(status).unwrap_or(1) {
            0 if !traced => 1,
            status => status,
        }
    }

    /// To be called before the job begins. Errors: a line, if a file cannot be written.
    pub fn begin(&self) -> Result<(), String> {
        self.trace.as_deref().map_or(Ok(()), trace::begin)
    }
}

fn see_through(mut launch: Launch, linked: &Links, wishes: ReportOptions) -> Ended {
    wishes.begin().map_err(failed(2))?;
    let kept = keep(|keeper| {
        launch.keeper = Some(keeper);
        carry_out(launch, linked, wishes)
    });
    // Killed processes leave their files behind.
    unipgas::core::rendezvous::sweep();
    kept.map(ExitCode::from).map_err(failed(1))
}

/// Starts one process that replaces a dead one in a running job.
fn take_place(args: Args, rank: u32, pid: u32) -> Ended {
    let (join, variables) = join::find(pid, rank).map_err(failed(2))?;
    let found = find_program(&args.own.program[0]);
    found
        .and_then(|path| check_program(&path))
        .map_err(|error| Failed(parts::status(&error), error.to_string()))?;
    let wishes = ReportOptions::of(&args);
    let mut words = args.own.program.into_iter();
    let mut launch = Launch::new(1, words.next().unwrap_or_default());
    launch.args = words.collect();
    launch.env = variables;
    launch.bind = policy(args.bind);
    launch.timeout = args.timeout;
    launch.output = output(args.tag);
    launch.ends = OutputProperties::own();
    launch.joins = Some(join);
    launch.foreground = true;
    see_through(launch, &Links::NoMpi, wishes)
}

fn output(tag: bool) -> Output {
    match tag {
        true => Output::Tag,
        false => Output::Lines,
    }
}

/// Runs the job on other hosts, with the launcher of the cluster.
fn elsewhere(
    args: &Args,
    environment: &Environment,
    processes: u32,
    program: &Path,
    shares: &[HostShare],
    launcher: &HostLauncher,
) -> Ended {
    let program = hosts::ProgramSpec {
        bind: args.bind,
        tag: args.tag,
        keep_going: args.keep_going,
        variables: variables_of(args, environment, processes).map_err(failed(2))?,
        path: program,
        args: &args.own.program[1..],
    };
    args.place.hand_over(launcher, shares, &program)
}

/// Runs the job on other hosts, with a unipgas launcher on each of them.
fn by_shell(
    args: Args,
    environment: Environment,
    processes: u32,
    program: &Path,
    shares: &[HostShare],
    shell: &Shell,
) -> Ended {
    let places = args.place.places(shares, shell).map_err(failed(2))?;
    if args.place.is_dry() {
        return shown(&hosts::lines(&places));
    }
    let backend = args.backend.as_ref().or(environment.backend.as_ref());
    let seed = args.seed.or(environment.seed);
    check_chaos_afar(backend.map(String::as_str), seed).map_err(failed(2))?;
    let wishes = ReportOptions::of(&args);
    let launch = launch(args, processes, environment);
    hosts::run(launch, &places, program, wishes)
}

fn check_chaos_afar(backend: Option<&str>, seed: Option<u64>) -> Result<(), String> {
    check_chaos(backend)?;
    if backend == Some("chaos") && seed.is_none() {
        return Err("on several hosts --backend chaos needs a --seed, the same for all".into());
    }
    Ok(())
}

/// Options as variables for processes on other hosts. Errors: a line that names an option without effect there.
fn variables_of(
    args: &Args,
    environment: &Environment,
    processes: u32,
) -> Result<Vec<(String, OsString)>, String> {
    if args.timeout.is_some() {
        return Err(
            "--timeout: put timeout(1) before unipgas run --hosts, where another launcher starts the processes"
                .into(),
        );
    }
    if args.report_bindings {
        return Err(
            "--report-bindings: the launcher of the hosts has an option for that (--launcher-args)"
                .into(),
        );
    }
    if args.trace.is_some() {
        return Err("--trace: another launcher starts the processes; with -x UNIPGAS_TRACE=FILE the processes of each host append to a file there".into());
    }
    if args.output.is_some() {
        return Err("--output: the launcher of the hosts has the output; use its options for that (--launcher-args)".into());
    }
    let backend = args.backend.as_ref().or(environment.backend.as_ref());
    let seed = args.seed.or(environment.seed);
    check_chaos_afar(backend.map(String::as_str), seed)?;
    let bind = policy(args.bind).name();
    let shape = tofu_shape(processes, &environment.tofu);
    let set = [
        ("UNIPGAS_BACKEND", backend.cloned()),
        ("UNIPGAS_BIND", Some(bind.to_owned())),
        ("UNIPGAS_SEED", seed.map(|seed| seed.to_string())),
        ("UNIPGAS_TOFU_SHAPE", shape.map(|shape| shape.to_string())),
    ];
    let set = set
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    let counted = args.stats.map(|_| stats::variables()).into_iter().flatten();
    let exported = args.own.export.iter().cloned();
    Ok(set.chain(counted).chain(exported).collect())
}

fn check_chaos(backend: Option<&str>) -> Result<(), String> {
    match backend {
        Some("chaos") => unipgas::chaos::check().map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

fn policy(bind: Bind) -> BindPolicy {
    match bind {
        Bind::None => BindPolicy::None,
        Bind::Core => BindPolicy::Core,
        Bind::Numa => BindPolicy::Numa,
    }
}

fn launch(args: Args, processes: u32, environment: Environment) -> Launch {
    let shape = tofu_shape(processes, &environment.tofu);
    let mut words = args.own.program.into_iter();
    let mut launch = Launch::new(processes, words.next().unwrap_or_default());
    launch
        .env
        .extend(shape.map(|shape| ("UNIPGAS_TOFU_SHAPE".into(), shape.to_string().into())));
    let exported = args.own.export.into_iter();
    launch
        .env
        .extend(exported.map(|(name, value)| (name.into(), value)));
    launch.reports_bindings = args.report_bindings;
    launch.files = args.output;
    launch.args = words.collect();
    launch.backend = args.backend.or(environment.backend);
    launch.seed = args.seed.or(environment.seed);
    launch.bind = policy(args.bind);
    launch.spares = args.spares;
    launch.keep_going = args.keep_going != KeepGoing::Never;
    launch.output = output(args.tag);
    launch.ends = OutputProperties::own();
    launch.timeout = args.timeout;
    launch.foreground = true;
    launch
}

/// Runs the job, in the process that launches it. Returns its exit status.
fn carry_out(mut launch: Launch, linked: &Links, wishes: ReportOptions) -> u8 {
    let chaos = launch.backend.as_deref() == Some("chaos");
    let drawn = launch.seed.is_none();
    let told = |status: u8, text: &str| {
        tell(text);
        status
    };
    let collect = |wanted: bool| wanted.then(Records::new).transpose();
    let (counted, timeline) = match (
        collect(wishes.stats.is_some()),
        collect(wishes.trace.is_some()),
    ) {
        (Ok(counted), Ok(timeline)) => (counted, timeline),
        (Err(why), _) | (_, Err(why)) => return told(1, &why),
    };
    launch.env.extend(counted.iter().flat_map(stats::collected));
    launch
        .env
        .extend(timeline.iter().flat_map(trace::variables));
    let processes = launch.size;
    let outcome = match launch.run() {
        Ok(outcome) => outcome,
        Err(error @ Error::InvalidArgument(_)) => return told(2, &error.to_string()),
        Err(error) => return told(1, &error.to_string()),
    };
    if let Some((records, form)) = counted.zip(wishes.stats) {
        match records.text() {
            Ok(text) => form.tell(&text, processes),
            Err(why) => tell(&why),
        }
    }
    let traced =
        (timeline.zip(wishes.trace.as_deref())).is_none_or(|(records, file)| {
            match records.text() {
                Ok(text) => trace::end(file, &text, processes),
                Err(why) => {
                    tell(&why);
                    false
                }
            }
        });
    let status = wishes.status(&outcome, processes, traced);
    match outcome.seed {
        Some(seed) if chaos && drawn && status != 0 => told(
            status,
            &format!("the seed of the chaos backend was {seed}: --seed {seed} repeats this run"),
        ),
        _ if status == 0 && !outcome.joined && matches!(linked, Links::Both(_)) => told(
            1,
            "no process has joined the job, and the program is linked with MPI: if it used MPI, each process was a job of one; \
             start it by mpirun",
        ),
        _ => status,
    }
}
