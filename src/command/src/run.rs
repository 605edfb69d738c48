//! `unipgas run`: the options, and what is told about them. The work is done by [`Launch`].

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use unipgas::core::Error;
use unipgas::core::job::board::MAX_SIZE;
use unipgas::core::job::launch::{BindPolicy, Launch, Output, ProgramError, find_program};
use unipgas::core::registry;
use unipgas::utofu::environment::Wishes;
use unipgas::utofu::shape::{MAX_NODES, Shape};

use crate::fail;

/// Starts PROGRAM on N processes of this machine and returns when all have ended, with the first exit status that is not 0
/// (128 + n for signal n). When a process fails the others are ended. Standard input goes to rank 0.
#[derive(clap::Args)]
pub struct Args {
    /// Number of processes (also -np N)
    #[arg(short = 'n', long = "np", value_name = "N", allow_hyphen_values = true, value_parser = processes)]
    processes: u32,
    /// What carries the communication: shm, chaos
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Seed of the chaos backend; without it one is drawn, and told when the run fails
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
/// of other processes read it. `None`: it is set, or there is no network of that size. Errors: a line about a wrong variable.
fn tofu_shape(processes: u32) -> Result<Option<Shape>, String> {
    let wishes = Wishes::from_env()?;
    let nodes = processes.div_ceil(wishes.processes_per_node);
    let wanted = wishes.shape.is_none() && nodes <= MAX_NODES;
    Ok(wanted
        .then(|| Shape::for_nodes(nodes))
        .filter(|shape| shape.nodes() <= MAX_NODES))
}

pub fn run(args: Args) -> ExitCode {
    if let Some(wish) = &args.backend {
        let names: Vec<_> = registry::backends()
            .iter()
            .map(|backend| backend.name)
            .collect();
        if !names.contains(&wish.as_str()) {
            return fail(
                2,
                &format!(
                    "there is no backend {wish:?}; there are: {}",
                    names.join(", ")
                ),
            );
        }
    }
    let mut words = args.program.into_iter();
    let program = words.next().unwrap_or_default();
    if let Err(error) = find_program(&program) {
        let status = if matches!(error, ProgramError::NotFound(_)) {
            127
        } else {
            126
        };
        return fail(status, &error.to_string());
    }
    let shape = match tofu_shape(args.processes) {
        Ok(shape) => shape,
        Err(why) => return fail(2, &why),
    };
    let mut launch = Launch::new(args.processes, program);
    launch
        .env
        .extend(shape.map(|shape| ("UNIPGAS_TOFU_SHAPE".into(), shape.to_string().into())));
    launch.args = words.collect();
    launch.backend = args
        .backend
        .or_else(|| std::env::var("UNIPGAS_BACKEND").ok());
    launch.seed = args
        .seed
        .or_else(|| std::env::var("UNIPGAS_SEED").ok()?.parse().ok());
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
    let chaos = launch.backend.as_deref() == Some("chaos");
    let drawn = launch.seed.is_none();
    let outcome = launch.run();
    // Processes that were killed had no time to.
    unipgas::core::rendezvous::sweep();
    match outcome {
        Ok(outcome) => {
            let status = u8::try_from(outcome.status()).unwrap_or(1);
            if let Some(seed) = outcome.seed.filter(|_| chaos && drawn && status != 0) {
                return fail(
                    status,
                    &format!(
                        "the seed of the chaos backend was {seed}: --seed {seed} repeats this run"
                    ),
                );
            }
            ExitCode::from(status)
        }
        Err(error @ Error::InvalidArgument(_)) => fail(2, &error.to_string()),
        Err(error) => fail(1, &error.to_string()),
    }
}
