//! Parts of a job, as in `unipgas run -n 2 ./a x : -n 3 ./b y`. Each part has its own program; ranks are numbered across all parts. Every launcher starts the
//! same program, `unipgas each`, with all parts as arguments. It executes the program of its rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use unipgas::core::job::board::MAX_SIZE;
use unipgas_launcher::{ProgramError, check_program, find_program};

use crate::{Ended, Failed, fail, failed, one_line, run};

/// Options of one part.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ProgramPart {
    /// Number of processes (also -np N); not needed if a host has a number
    #[arg(short = 'n', long = "np", value_name = "N", allow_hyphen_values = true, value_parser = processes)]
    pub processes: Option<u32>,
    /// Sets a variable in the environment of the processes; without a value, it keeps the value it has here (some launchers do not pass it on)
    #[arg(short = 'x', value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(|word| variable(&word)))]
    pub export: Vec<(String, OsString)>,
    /// The directory of the processes (also -wdir)
    #[arg(long, value_name = "DIRECTORY")]
    pub wdir: Option<PathBuf>,
    /// The program and its arguments. A separate ":" begins another part of the job, with the next ranks: again -n N and PROGRAM, and -x and --wdir, which
    /// hold for one part only. All other options hold for the whole job and come before the first PROGRAM. After "--" before PROGRAM, ":" is an ordinary
    /// argument
    #[arg(required = true, value_name = "PROGRAM", num_args = 1..)]
    pub program: Vec<OsString>,
}

/// A part after the first.
#[derive(Parser)]
#[command(
    no_binary_name = true,
    args_override_self = true,
    disable_help_flag = true
)]
struct Further {
    #[command(flatten)]
    part: ProgramPart,
}

fn processes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
        _ => Err(format!("a job has 1 to {MAX_SIZE} processes")),
    }
}

/// Errors: a line.
fn variable(word: &OsStr) -> Result<(String, OsString), String> {
    let bytes = word.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (
            &bytes[..at],
            Some(OsStr::from_bytes(&bytes[at + 1..]).into()),
        ),
        None => (bytes, std::env::var_os(word)),
    };
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty());
    let name = name.ok_or("want the name of a variable")?;
    let value = value.ok_or_else(|| format!("the environment has no {name}: -x {name}=VALUE"))?;
    Ok((name.into(), value))
}

/// Options that take the next word as their value.
const WITH_VALUE: [&str; 18] = [
    "--output",
    "--trace",
    "-n",
    "-x",
    "--wdir",
    "--np",
    "--backend",
    "--seed",
    "--bind",
    "--timeout",
    "--spares",
    "--status-of",
    "--rank",
    "--job",
    "--hosts",
    "--hostfile",
    "--launcher",
    "--launcher-args",
];

/// Inserts `--` before the first PROGRAM in `words`, from `at` on, so the program gets all later words. Replaces `-np` and `-wdir` by the long options.
/// Removes the words after the first `:` and returns them.
pub fn mark(words: &mut Vec<OsString>, mut at: usize) -> Option<Vec<OsString>> {
    while at < words.len() {
        if words[at] == "-np" || words[at] == "-wdir" {
            let mut long = OsString::from("-");
            long.push(&words[at]);
            words[at] = long;
        }
        match words[at].to_str() {
            Some("--") => return None,
            Some(":") => break,
            Some(option) if WITH_VALUE.contains(&option) => at += 2,
            Some(option) if option.starts_with('-') && option != "-" => at += 1,
            _ => {
                words.insert(at, "--".into());
                break;
            }
        }
    }
    let end = words.iter().skip(at).position(|word| word == ":")?;
    let rest = words.split_off(at + end + 1);
    words.pop();
    Some(rest)
}

/// The parts after the first `:`. Errors: a line.
pub fn further(rest: Option<Vec<OsString>>) -> Result<Vec<ProgramPart>, String> {
    from(2, rest)
}

/// The parts in `rest`; `first` is the number of the first of them. Errors: a line.
fn from(first: usize, mut rest: Option<Vec<OsString>>) -> Result<Vec<ProgramPart>, String> {
    let mut parts = Vec::new();
    while let Some(mut words) = rest {
        rest = mark(&mut words, 0);
        let number = parts.len() + first;
        let part = Further::try_parse_from(&words)
            .map_err(|error| format!("part {number} of the job: {}", wrong(&error)))?;
        parts.push(part.part);
    }
    Ok(parts)
}

fn wrong(error: &clap::Error) -> String {
    let named = error.get(clap::error::ContextKind::InvalidArg);
    match (error.kind(), named) {
        (ErrorKind::UnknownArgument, Some(name)) if run::knows(&name.to_string()) => {
            format!("{name} is for the whole job, and comes before the first program")
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            "there is no program; a part is -n N PROGRAM ARGUMENTS".into()
        }
        _ => one_line(error),
    }
}

/// The number of processes of all parts. Errors: a line.
pub fn count(parts: &[ProgramPart]) -> Result<u32, String> {
    let mut all = 0u32;
    for (number, part) in (1..).zip(parts) {
        let processes = part.processes.ok_or_else(|| {
            let program = part.program[0].display();
            format!("part {number} of the job ({program}) has no number of processes: -n N")
        })?;
        all = all.saturating_add(processes);
    }
    match all <= MAX_SIZE {
        true => Ok(all),
        false => Err(format!("a job has 1 to {MAX_SIZE} processes, not {all}")),
    }
}

/// Finds the program of each part, in the directory of the part, and calls `check` for it. With one part, this process changes to its directory. With several
/// parts, it stores names that [`each`] can find. `dry`: a missing program or directory is no error. Returns the file of the first part. Errors, also from
/// `check`: a status and a line.
pub fn find(
    parts: &mut [ProgramPart],
    dry: bool,
    mut check: impl FnMut(&Path, &[OsString]) -> Result<(), (u8, String)>,
) -> Result<PathBuf, (u8, String)> {
    let wrong = |directory: &Path, error| (2, format!("--wdir {}: {error}", directory.display()));
    let here = std::env::current_dir().unwrap_or_default();
    let several = parts.len() > 1;
    let mut first = None;
    for part in parts {
        if let Some(directory) = &mut part.wdir {
            let whole = here.join(&*directory);
            match std::env::set_current_dir(&whole) {
                Err(error) if !dry => return Err(wrong(directory, error)),
                Ok(()) | Err(_) => *directory = whole,
            }
        }
        let program = &mut part.program[0];
        let path = match find_program(program) {
            Err(error) if !dry => return Err((status(&error), error.to_string())),
            found => found.unwrap_or_else(|_| PathBuf::from(&*program)),
        };
        check(&path, &part.program)?;
        if several {
            if !part.program[0].as_encoded_bytes().contains(&b'/') {
                part.program[0] = path.clone().into();
            }
            if part.wdir.is_some() {
                std::env::set_current_dir(&here).map_err(|error| wrong(&here, error))?;
            }
        }
        first.get_or_insert(path);
    }
    Ok(first.unwrap_or_default())
}

/// The common program for all parts, and its arguments. Errors: a line.
pub fn as_one(parts: &[ProgramPart]) -> Result<Vec<OsString>, String> {
    let myself =
        std::env::current_exe().map_err(|e| format!("cannot find where unipgas is: {e}"))?;
    let mut words: Vec<OsString> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            words.push(":".into());
        }
        let processes = part.processes.unwrap_or_default();
        words.extend(["-n".into(), processes.to_string().into()]);
        for (name, value) in &part.export {
            let mut both = OsString::from(format!("{name}="));
            both.push(value);
            words.extend(["-x".into(), both]);
        }
        if let Some(directory) = &part.wdir {
            words.extend(["--wdir".into(), directory.into()]);
        }
        // Only the last part may have ":" among its arguments.
        if at + 1 == parts.len() {
            words.push("--".into());
        }
        words.extend(part.program.iter().cloned());
    }
    // An MPI launcher would interpret ":". So a word of colons gets one more colon here.
    for word in words.iter_mut().filter(|word| is_colons(word)) {
        word.push(":");
    }
    Ok([myself.into(), "each".into()]
        .into_iter()
        .chain(words)
        .collect())
}

fn is_colons(word: &OsStr) -> bool {
    !word.is_empty() && word.as_bytes().iter().all(|byte| *byte == b':')
}

/// Reads the arguments that [`as_one`] writes. Errors: a line.
fn again(words: &[OsString]) -> Result<Vec<ProgramPart>, String> {
    let plain = |word: &OsString| match is_colons(word) {
        true => OsStr::from_bytes(&word.as_bytes()[1..]).to_owned(),
        false => word.clone(),
    };
    from(1, Some(words.iter().map(plain).collect()))
}

/// Variables in which launchers pass the rank.
const RANKS: [&str; 5] = [
    "UNIPGAS_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
];

/// `unipgas each PARTS...`: executes the program of this process's rank.
pub fn each(parts: &[OsString]) -> Ended {
    let parts = again(parts).map_err(failed(2))?;
    let ranks = RANKS.iter().filter_map(std::env::var_os);
    let rank = ranks
        .filter_map(|rank| rank.to_str()?.parse::<u32>().ok())
        .next();
    let Some(mut left) = rank else {
        return fail(2, "this process has no rank: unipgas run starts it");
    };
    for part in parts {
        let processes = part.processes.unwrap_or_default();
        match left.checked_sub(processes) {
            Some(others) => left = others,
            None => return become_program(&part),
        }
    }
    fail(2, "this job has more ranks than its parts")
}

fn become_program(part: &ProgramPart) -> Ended {
    if let Some(directory) = &part.wdir
        && let Err(error) = std::env::set_current_dir(directory)
    {
        return fail(2, format!("--wdir {}: {error}", directory.display()));
    }
    let (program, args) = (&part.program[0], &part.program[1..]);
    let found = find_program(program).and_then(|path| check_program(&path).map(|()| path));
    let path = found.map_err(|error| Failed(status(&error), error.to_string()))?;
    let variables = part.export.iter().map(|(name, value)| (name, value));
    let mut command = Command::new(path);
    let error = command.arg0(program).args(args).envs(variables).exec();
    fail(126, format!("cannot run {}: {error}", program.display()))
}

/// The status that a shell returns.
pub fn status(error: &ProgramError) -> u8 {
    match error {
        ProgramError::NotFound(_) => 127,
        ProgramError::NotExecutable(_) => 126,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn marked(text: &str) -> (String, Option<String>) {
        let joined = |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().unwrap();
        let mut words = words(text);
        let rest = mark(&mut words, 0);
        (joined(words), rest.map(joined))
    }

    #[test]
    fn parts_end_with_a_colon() {
        for (text, first, rest) in [
            ("-n 2 ./a x", "-n 2 -- ./a x", None),
            ("-n 2 ./a x : -n 3 ./b", "-n 2 -- ./a x", Some("-n 3 ./b")),
            ("-x : ./a : : b", "-x : -- ./a", Some(": b")),
            ("-n 2 -- ./a : b", "-n 2 -- ./a : b", None),
            ("-n 2 : ./b", "-n 2", Some("./b")),
            ("-n 2 ./a :", "-n 2 -- ./a", Some("")),
            ("-np 2 a :b", "--np 2 -- a :b", None),
        ] {
            assert_eq!(
                marked(text),
                (first.into(), rest.map(str::to_owned)),
                "{text}"
            );
        }
    }

    #[test]
    fn parts_come_back_from_the_one_program() {
        let given = "-n 2 -x A=1 -x B= ./a -n x : -np 3 -wdir / b : -n 1 -- c : d";
        let parts = further(Some(words(given))).unwrap();
        assert_eq!((parts.len(), count(&parts)), (3, Ok(6)));
        let one = as_one(&parts).unwrap();
        assert_eq!(one[1], "each");
        assert!(!one.iter().any(|word| word == ":"));
        let again = again(&one[2..]).unwrap();
        assert_eq!(format!("{again:?}"), format!("{parts:?}"));
        assert_eq!(again[2].program, words("c : d"));
    }
}
