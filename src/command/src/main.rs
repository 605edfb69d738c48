//! The command `unipgas`.

mod cc;
mod counts;
#[cfg(test)]
mod fuzz;
mod hosts;
mod info;
mod join;
mod mpi;
mod pages;
mod parts;
mod ps;
mod records;
mod run;
mod stats;
mod topo;
mod trace;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;
use clap::error::ErrorKind;

/// One-sided communication for parallel programs
#[derive(Parser)]
#[command(name = "unipgas", version)]
enum Cli {
    /// Starts N processes of a program and waits for their end
    ///
    /// Returns when all processes have ended, with the first exit status that is not 0 (128 + n for signal n; 124 for --timeout). When a process fails, the
    /// command ends the others. Standard input goes to rank 0. A line of output comes from one process; an incomplete line appears after a short pause. With
    /// --hosts or --hostfile, the launcher of the cluster starts the processes on these hosts, or this command does so itself, by ssh.
    Run(run::Args),
    /// Compiles and links a program: a wrapper like mpicc
    #[command(disable_help_flag = true)]
    Cc(Passed),
    /// As cc, for C++
    #[command(name = "c++", disable_help_flag = true)]
    Cxx(Passed),
    /// Shows the machine, the backends and the limits
    Info(info::Args),
    /// Checks that every interface keeps its laws on every backend
    #[command(disable_help_flag = true)]
    Conform(Passed),
    /// Measures latency, rates, bandwidth and collectives beside the limits of the machine
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Lists the jobs of this user on this host, or shows the state of each rank of one job
    Ps(ps::Args),
    /// Shows the state of each rank of a job, repeatedly
    Top(ps::TopArgs),
    /// Draws a job on the network of A64FX machines, and predicts the time of patterns of puts there
    Topo(topo::Args),
    /// Writes man pages and completions for shells
    #[command(hide = true)]
    Pages(pages::Args),
    /// Starts the ranks of a host, as the job's launcher requests on standard input
    #[command(hide = true)]
    Part,
}

/// Arguments that this command passes on without reading them.
#[derive(clap::Args)]
struct Passed {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    unipgas::init();
    command().unwrap_or_else(|Failed(status, text)| {
        unipgas::core::tell(&text);
        ExitCode::from(status)
    })
}

fn command() -> Ended {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some((language, api)) = args.first().and_then(|name| cc::named(name)) {
        restore_pipe_signal();
        return cc::run(language, Some(api), args.into_iter().skip(1).collect());
    }
    let mut args = args;
    if let [_, name, parts @ ..] = &args[..]
        && name == "each"
    {
        return parts::each(parts);
    }
    let further = match args.get(1).and_then(|word| word.to_str()) {
        Some("run") => parts::mark(&mut args, 2),
        // clap knows no options of commands that read their arguments themselves. So `help NAME` becomes `NAME --help`.
        Some("help") if args.get(2).is_some_and(|name| reads_itself(name)) => {
            args.remove(1);
            args.push("--help".into());
            None
        }
        _ => None,
    };
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            return shown(&error.to_string());
        }
        Err(error) => return fail(2, one_line(&error)),
    };
    if !matches!(cli, Cli::Run(_) | Cli::Part) {
        restore_pipe_signal();
    }
    match cli {
        Cli::Run(args) => run::run(args, further),
        Cli::Part => hosts::part(),
        Cli::Pages(args) => pages::run(&args),
        Cli::Cc(passed) => cc::run(cc::Language::C, None, passed.args),
        Cli::Cxx(passed) => cc::run(cc::Language::Cxx, None, passed.args),
        Cli::Info(args) => info::run(&args),
        Cli::Topo(args) => topo::run(&args),
        Cli::Ps(args) => ps::run(&args),
        Cli::Top(args) => ps::top(&args),
        Cli::Conform(passed) => execute("unipgas-conform", &passed.args),
        Cli::Bench(passed) => execute("unipgas-bench", &passed.args),
    }
}

fn reads_itself(command: &OsStr) -> bool {
    ["cc", "c++", "conform", "bench"]
        .iter()
        .any(|name| command == *name)
}

/// A closed pipe ends the command silently, like other tools. Not for `run`: it must still wait for its processes.
fn restore_pipe_signal() {
    // SAFETY:
    // - the default action is a valid disposition, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Replaces this process by a program that is installed beside this one, or in PATH.
fn execute(program: &str, args: &[OsString]) -> Ended {
    let beside = std::env::current_exe().map(|path| path.with_file_name(program));
    let found = beside.ok().filter(|path| path.is_file());
    let error = Command::new(found.unwrap_or_else(|| program.into()))
        .args(args)
        .exec();
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "; make install and the package unipgas install it",
        _ => "",
    };
    fail(1, format!("cannot start {program}: {error}{remedy}"))
}

/// The exit status of the command, or an error.
type Ended = Result<ExitCode, Failed>;

/// An error: the exit status, and one line for the user.
struct Failed(u8, String);

fn fail(status: u8, text: impl Into<String>) -> Ended {
    Err(Failed(status, text.into()))
}

/// Converts an error into a [`Failed`] with this status.
fn failed<E: ToString>(status: u8) -> impl Fn(E) -> Failed {
    move |error| Failed(status, error.to_string())
}

/// Prints a text on standard output. Errors: a write fails, for example because the device is full.
fn shown(text: &str) -> Ended {
    unipgas::core::print(text).map_err(failed(1))?;
    Ok(ExitCode::SUCCESS)
}

/// clap's error in one line: the mistake and a suggestion.
fn one_line(error: &clap::Error) -> String {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return "say what to do: run, ps, top, cc, c++, info, conform, bench or topo; unipgas --help tells more"
            .into();
    }
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return run::NO_NUMBER.into();
    }
    let mut parts = Vec::new();
    for line in error.to_string().lines() {
        let line = line.trim();
        if line.starts_with("Usage:") {
            break;
        }
        // This tip tells how to pass the argument to the program. A user with a misspelt option does not need it.
        let beside = line.starts_with("For more information") || line.starts_with("tip: to pass");
        if !line.is_empty() && !beside {
            parts.push(
                line.trim_start_matches("error: ")
                    .replacen("tip: ", "; ", 1),
            );
        }
    }
    let mut text = parts.join(" ").replace(" ; ", "; ");
    if error.kind() == ErrorKind::UnknownArgument {
        text.push_str("; --help lists what there is");
    }
    text
}
