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
    /// Starts a program on N processes and sees it through
    ///
    /// Returns when all processes have ended, with the first exit status that is not 0 (128 + n for signal n; 124 for --timeout). When a process fails the others
    /// are ended. Standard input goes to rank 0. Lines of output are of one process each; what has no end of line is shown after a short pause. With --hosts or
    /// --hostfile the launcher of the cluster does so on the hosts that are named, or this command itself, by ssh.
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
    /// Lists the jobs of this user on this host, or what the ranks of one are doing
    Ps(ps::Args),
    /// Shows what the ranks of a job are doing, again and again
    Top(ps::TopArgs),
    /// Draws a job on the network of A64FX machines, and predicts what patterns of puts take there
    Topo(topo::Args),
    /// Writes man pages, and what shells complete by
    #[command(hide = true)]
    Pages(pages::Args),
    /// Starts the ranks of a host, as the launcher of the whole says on standard input
    #[command(hide = true)]
    Part,
}

/// Arguments that are somebody else's to read.
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
        // Of those who read their arguments themselves, `help` knows nothing.
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

/// As other tools do when `head` has read enough; run must go on and see its processes through.
fn restore_pipe_signal() {
    // SAFETY:
    // - the default action is a valid disposition, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Becomes a program that is installed beside this one, or is in PATH.
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

/// The end of the command.
type Ended = Result<ExitCode, Failed>;

/// Ends the command with this status, and one line about what is wrong.
struct Failed(u8, String);

fn fail(status: u8, text: impl Into<String>) -> Ended {
    Err(Failed(status, text.into()))
}

/// For errors that end the command with this status.
fn failed<E: ToString>(status: u8) -> impl Fn(E) -> Failed {
    move |error| Failed(status, error.to_string())
}

/// Shows a text on standard output, which may be a device that is full.
fn shown(text: &str) -> Ended {
    unipgas::core::print(text).map_err(failed(1))?;
    Ok(ExitCode::SUCCESS)
}

/// What clap says in a paragraph: what is wrong, and what would be right.
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
        // What would pass the argument on to the program does not help who mistyped an option.
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
