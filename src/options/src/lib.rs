//! The options of a program as text. With them `unipgas` writes man pages and completions of programs that it does not link.
//!
//! ```
//! use clap::{Arg, Command};
//!
//! let program = Command::new("tool").arg(Arg::new("seed").long("seed").value_name("S").help("The first seed"));
//! let copy = unipgas_options::parse(&unipgas_options::describe(&program)).unwrap();
//! assert_eq!(copy.get_arguments().next().unwrap().get_long(), Some("seed"));
//! ```

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use serde::{Deserialize, Serialize};

/// The only argument of a program that prints its options instead of doing its work.
pub const DESCRIBE: &str = "--describe-options";

#[derive(Serialize, Deserialize)]
struct Program {
    name: String,
    about: Option<String>,
    long_about: Option<String>,
    after: Option<String>,
    arguments: Vec<Argument>,
}

#[derive(Serialize, Deserialize)]
struct Argument {
    id: String,
    short: Option<char>,
    long: Option<String>,
    help: Option<String>,
    long_help: Option<String>,
    /// Names of its values; none for a flag.
    values: Vec<String>,
    /// The allowed values, if it has a list of them.
    possible: Vec<String>,
    defaults: Vec<String>,
    is_required: bool,
}

/// The visible options of a program as one line of JSON, for [`parse`].
pub fn describe(command: &Command) -> String {
    let text = |styled: Option<&clap::builder::StyledStr>| styled.map(ToString::to_string);
    let argument = |arg: &Arg| Argument {
        id: arg.get_id().to_string(),
        short: arg.get_short(),
        long: arg.get_long().map(str::to_owned),
        help: text(arg.get_help()),
        long_help: text(arg.get_long_help()),
        values: match arg.get_action().takes_values() {
            true => arg.get_value_names().map_or_else(
                || vec![arg.get_id().as_str().to_uppercase()],
                |names| names.iter().map(ToString::to_string).collect(),
            ),
            false => Vec::new(),
        },
        possible: match arg.get_action().takes_values() {
            true => (arg.get_possible_values().iter())
                .map(|value| value.get_name().to_owned())
                .collect(),
            false => Vec::new(),
        },
        defaults: (arg.get_default_values().iter())
            .map(|value| value.to_string_lossy().into_owned())
            .collect(),
        is_required: arg.is_required_set(),
    };
    let program = Program {
        name: command.get_name().to_owned(),
        about: text(command.get_about()),
        long_about: text(command.get_long_about()),
        after: text(command.get_after_help()),
        arguments: (command.get_arguments())
            .filter(|arg| !arg.is_hide_set())
            .map(argument)
            .collect(),
    };
    serde_json::to_string(&program).expect("text and numbers become JSON")
}

/// The program that [`describe`] has described. It serves for pages and completions; it does not parse values.
///
/// # Errors
/// The text is not from [`describe`]; the error gives the reason.
pub fn parse(text: &str) -> Result<Command, String> {
    let program: Program = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut command = Command::new(program.name);
    if let Some(about) = program.about {
        command = command.about(about);
    }
    if let Some(about) = program.long_about {
        command = command.long_about(about);
    }
    if let Some(after) = program.after {
        command = command.after_help(after);
    }
    Ok(command.args(program.arguments.into_iter().map(argument)))
}

fn argument(described: Argument) -> Arg {
    let mut arg = Arg::new(described.id).required(described.is_required);
    if let Some(short) = described.short {
        arg = arg.short(short);
    }
    if let Some(long) = described.long {
        arg = arg.long(long);
    }
    if let Some(help) = described.help {
        arg = arg.help(help);
    }
    if let Some(help) = described.long_help {
        arg = arg.long_help(help);
    }
    if described.values.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    if !described.possible.is_empty() {
        arg = arg.value_parser(PossibleValuesParser::new(described.possible));
    }
    arg.action(ArgAction::Set)
        .value_names(described.values)
        .default_values(described.defaults)
}

/// Runs a program with the options `command`: prints them if [`DESCRIBE`] is the only argument, else calls `run` with all arguments.
/// A closed pipe ends the program by SIGPIPE, like other tools. Call it first in `main`.
pub fn run(
    command: impl FnOnce() -> Command,
    run: impl FnOnce(Vec<String>) -> ExitCode,
) -> ExitCode {
    // SAFETY:
    // - the default action is a valid disposition, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &args[..] {
        [only] if only == DESCRIBE => {
            println!("{}", describe(&command()));
            ExitCode::SUCCESS
        }
        _ => run((args.iter())
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pages_show_survives() {
        let program = Command::new("tool")
            .about("Measures")
            .after_help("Status 1: a target is missed")
            .args([
                Arg::new("quick")
                    .long("quick")
                    .short('q')
                    .action(ArgAction::SetTrue),
                Arg::new("model").long("model").value_parser(["tofud"]),
                Arg::new("backend")
                    .long("backend")
                    .value_name("NAMES")
                    .default_value("shm"),
                Arg::new("worker").long("worker").hide(true),
            ]);
        let copy = parse(&describe(&program)).unwrap();
        assert_eq!(
            copy.get_after_help().unwrap().to_string(),
            "Status 1: a target is missed"
        );
        let args: Vec<&Arg> = copy.get_arguments().collect();
        assert_eq!(args.len(), 3, "hidden options are left out");
        assert!(!args[0].get_action().takes_values() && args[0].get_short() == Some('q'));
        assert_eq!(args[1].get_possible_values()[0].get_name(), "tofud");
        assert_eq!(args[2].get_default_values(), ["shm"]);
        assert!(parse("no JSON").is_err());
    }
}
