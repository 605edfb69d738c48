//! `unipgas run`: the options, and what is told about them. The work is done by [`Launch`].

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use unipgas::core::job::board::MAX_SIZE;
use unipgas::core::job::launch::{BindPolicy, Launch, Output, ProgramError, find_program, keep};
use unipgas::core::{Error, registry, tell, variables};
use unipgas::utofu::environment::Wishes;
use unipgas::utofu::shape::{MAX_NODES, Shape};

use crate::fail;
use crate::mpi::{self, Links, links};

/// Starts PROGRAM on N processes of this machine and returns when all have ended, with the first exit status that is not 0
/// (128 + n for signal n). When a process fails the others are ended. Standard input goes to rank 0.
#[derive(clap::Args)]
pub struct Args {
    /// Number of processes (also -np N)
    #[arg(short = 'n', long = "np", value_name = "N", allow_hyphen_values = true, value_parser = processes)]
    processes: u32,
    /// What carries the communication: shm (without this option), and for tests chaos, opaque
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Seed of the backend chaos, and of opaque in no order; for chaos one is drawn without it, and told when the run fails
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seed: Option<u64>,
    /// What each process is tied to
    #[arg(long, value_enum, default_value_t = Bind::None)]
    bind: Bind,
    /// Begins each line of output with the rank that wrote it
    #[arg(long)]
    tag: bool,
    /// Lets the others go on when a process fails
    #[arg(long)]
    keep_going: bool,
    /// Ends the job after this time, with status 124
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds)]
    timeout: Option<Duration>,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", num_args = 1..)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bind {
    /// Nothing
    None,
    /// One core, in turn
    Core,
    /// One NUMA node, neighbouring ranks together
    Numa,
}

fn processes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
        _ => Err(format!("a job has 1 to {MAX_SIZE} processes")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wish = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0);
    wish.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a number of seconds above 0".into())
}

/// Puts `--` before PROGRAM, so that whatever follows it is the program's alone, and makes `-np` what it stands for.
pub fn mark_program(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|arg| arg != "run") {
        return args;
    }
    let mut at = 2;
    while at < args.len() {
        if args[at] == "-np" {
            args[at] = "--np".into();
        }
        match args[at].to_str() {
            Some("--") => break,
            Some("-n" | "--np" | "--backend" | "--seed" | "--bind" | "--timeout") => at += 2,
            Some(option) if option.starts_with('-') && option != "-" => at += 1,
            _ => {
                args.insert(at, "--".into());
                break;
            }
        }
    }
    args
}

/// The shape of the virtual network for so many processes, where the environment names none: programs that compute coordinates
/// of other processes read it. `None`: it is set, or there is no network of that size.
fn tofu_shape(processes: u32, wishes: &Wishes) -> Option<Shape> {
    let nodes = processes.div_ceil(wishes.processes_per_node);
    let wanted = wishes.shape.is_none() && nodes <= MAX_NODES;
    wanted
        .then(|| Shape::for_nodes(nodes))
        .filter(|shape| shape.nodes() <= MAX_NODES)
}

/// What the environment says, looked at once for all processes.
struct Environment {
    backend: Option<String>,
    seed: Option<u64>,
    tofu: Wishes,
}

impl Environment {
    /// Errors: a line about a wrong variable.
    fn read() -> Result<Self, String> {
        variables::check().map_err(|e| e.to_string())?;
        variables::tell_of_unknown();
        unipgas::ircce::launch::Wishes::from_env()?;
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
            tofu: Wishes::from_env()?,
        })
    }
}

/// Refuses a backend that there is not. `from`: who names it.
fn check_backend(name: &str, from: &str) -> Result<(), String> {
    let names: Vec<_> = registry::backends()
        .iter()
        .map(|backend| backend.name)
        .collect();
    if names.contains(&name) {
        return Ok(());
    }
    let names = names.join(", ");
    Err(format!(
        "there is no backend {name:?}{from}; there are: {names}"
    ))
}

/// Whether a job of several may be made of the program; a program of MPI could not tell its processes apart.
fn check_mpi(program: &Path, args: &Args) -> Result<Links, String> {
    let found = links(program);
    let (processes, shown) = (args.processes, args.program[0].to_string_lossy());
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
            if let Some((word, library)) = mpi::among_arguments(&args.program[1..]) {
                tell(&format!(
                    "{word} is a program of MPI (it is linked with {library}): where {shown} starts it, each process is a job of one"
                ));
            }
            Ok(found)
        }
    }
}

pub fn run(args: Args) -> ExitCode {
    let environment = match Environment::read() {
        Ok(environment) => environment,
        Err(why) => return fail(2, &why),
    };
    let named = match (&args.backend, &environment.backend) {
        (Some(wish), _) => check_backend(wish, ""),
        (None, Some(wish)) => check_backend(wish, " (UNIPGAS_BACKEND)"),
        (None, None) => Ok(()),
    };
    if let Err(why) = named {
        return fail(2, &why);
    }
    let program = match find_program(&args.program[0]) {
        Ok(program) => program,
        Err(error @ ProgramError::NotFound(_)) => return fail(127, &error.to_string()),
        Err(error) => return fail(126, &error.to_string()),
    };
    let linked = if args.processes == 1 {
        Ok(Links::NoMpi)
    } else {
        check_mpi(&program, &args)
    };
    let linked = match linked {
        Ok(linked) => linked,
        Err(why) => return fail(2, &why),
    };
    let mut launch = launch(args, environment);
    if launch.backend.as_deref() == Some("chaos")
        && let Err(error) = unipgas::chaos_config()
    {
        return fail(2, &error.to_string());
    }
    let kept = keep(|keeper| {
        launch.keeper = Some(keeper);
        carry_out(launch, &linked)
    });
    // Processes that were killed had no time to.
    unipgas::core::rendezvous::sweep();
    match kept {
        Ok(status) => ExitCode::from(status),
        Err(error) => fail(1, &error.to_string()),
    }
}

fn launch(args: Args, environment: Environment) -> Launch {
    let shape = tofu_shape(args.processes, &environment.tofu);
    let mut words = args.program.into_iter();
    let mut launch = Launch::new(args.processes, words.next().unwrap_or_default());
    launch
        .env
        .extend(shape.map(|shape| ("UNIPGAS_TOFU_SHAPE".into(), shape.to_string().into())));
    launch.args = words.collect();
    launch.backend = args.backend.or(environment.backend);
    launch.seed = args.seed.or(environment.seed);
    launch.bind = match args.bind {
        Bind::None => BindPolicy::None,
        Bind::Core => BindPolicy::Core,
        Bind::Numa => BindPolicy::Numa,
    };
    launch.keep_going = args.keep_going;
    launch.output = if args.tag {
        Output::Tag
    } else {
        Output::Inherit
    };
    launch.timeout = args.timeout;
    launch.foreground = true;
    launch
}

/// The job itself, in the process that launches it; its exit status.
fn carry_out(launch: Launch, linked: &Links) -> u8 {
    let chaos = launch.backend.as_deref() == Some("chaos");
    let drawn = launch.seed.is_none();
    let told = |status: u8, text: &str| {
        tell(text);
        status
    };
    let outcome = match launch.run() {
        Ok(outcome) => outcome,
        Err(error @ Error::InvalidArgument(_)) => return told(2, &error.to_string()),
        Err(error) => return told(1, &error.to_string()),
    };
    let status = u8::try_from(outcome.status()).unwrap_or(1);
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
