//! The environment variables: their table, and functions that read them.
//!
//! All crates share one table, so the library finds misspelt names, and `unipgas info` lists the actual variables. Backends and interfaces
//! [contribute] theirs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use parking_lot::{Mutex, Once};

use crate::{Error, Result, log, tell};

/// A variable that users may set or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// A short description.
    pub meaning: &'static str,
}

impl Variable {
    /// A variable.
    pub const fn new(name: &'static str, meaning: &'static str) -> Variable {
        Variable { name, meaning }
    }
}

/// The variables of the engine, for the library, `unipgas run` and `unipgas cc`.
const OF_THE_ENGINE: [Variable; 18] = [
    Variable::new("UNIPGAS_JOB", "the job, set by unipgas run"),
    Variable::new(
        "UNIPGAS_RANK",
        "the rank of this process, set by unipgas run",
    ),
    Variable::new("UNIPGAS_SIZE", "number of processes, set by unipgas run"),
    Variable::new(
        "UNIPGAS_INCARNATION",
        "number of earlier processes of this rank, set by unipgas run --spares for replacements",
    ),
    Variable::new("UNIPGAS_BIND", "binding of processes, set by unipgas run"),
    Variable::new("UNIPGAS_BACKEND", "the backend: --backend"),
    Variable::new(
        "UNIPGAS_LAUNCHER",
        "the launcher, or remote shell, of unipgas run for other hosts: --launcher",
    ),
    Variable::new(
        "UNIPGAS_NETWORKS",
        "networks to other hosts, separated by commas, in order of preference; none: no network (the first usable one)",
    ),
    Variable::new(
        "UNIPGAS_SEED",
        "the seed of backends that draw faults: --seed",
    ),
    Variable::new(
        "UNIPGAS_LOG",
        "log of choices and events on standard error: error, warn, info, debug, trace, or targets with levels, such as unipgas::route=debug",
    ),
    Variable::new(
        "UNIPGAS_LOG_FILE",
        "the file to which each process appends the lines of UNIPGAS_LOG, with the time in UTC (standard error)",
    ),
    Variable::new(
        "UNIPGAS_NAP",
        "the thread that initialises the library sleeps a moment at this interval, in microseconds: for programs that poll memory with more processes than cores (0)",
    ),
    Variable::new(
        "UNIPGAS_TRACE",
        "the file to which each process appends its timeline, in the Trace Event Format: --trace",
    ),
    Variable::new(
        "UNIPGAS_CHECK",
        "1: a line for each call that is refused, with argument, reason and remedy (0)",
    ),
    Variable::new(
        "UNIPGAS_STATS",
        "1: each rank prints its counters at its end; also the level of statistics at the start: --stats (0)",
    ),
    Variable::new(
        "UNIPGAS_STATS_TO",
        "the file to which each rank appends them, a record of JSON; without it they are printed; set by unipgas run",
    ),
    Variable::new("UNIPGAS_CC", "the compiler that unipgas cc runs"),
    Variable::new("UNIPGAS_CXX", "the compiler that unipgas c++ runs"),
];

/// Variables for builds and tests of the library itself.
pub const OF_TESTS: [Variable; 2] = [
    Variable::new(
        "UNIPGAS_LIB",
        "library that unipgas conform and unipgas bench call; tests compare its symbols with the headers",
    ),
    Variable::new(
        "UNIPGAS_NO_INSTALL",
        "forbids make and the tests to install packages",
    ),
];

const PREFIX: &str = "UNIPGAS_";
/// Prefix of variables that the library's tests pass to their processes.
const TEST_PREFIX: &str = "UNIPGAS_TEST_";

static CONTRIBUTED: Mutex<Vec<Variable>> = Mutex::new(Vec::new());

/// Adds the variables of a backend or an interface.
pub fn contribute(variables: &[Variable]) {
    let mut known = CONTRIBUTED.lock();
    for variable in variables {
        if !known.contains(variable) {
            known.push(*variable);
        }
    }
}

/// The variables of the engine, and of the program's backends and interfaces.
pub fn all() -> Vec<Variable> {
    let mut all = OF_THE_ENGINE.to_vec();
    all.extend(CONTRIBUTED.lock().iter());
    all
}

static OTHERWISE: Mutex<BTreeMap<&'static str, String>> = Mutex::new(BTreeMap::new());

/// Sets the value of a variable that is missing in the environment, for callers with other means of configuration.
pub fn set_otherwise(name: &'static str, value: &str) {
    OTHERWISE.lock().insert(name, value.to_owned());
}

/// The value of a variable without surrounding blanks; `None` if it is unset or empty.
///
/// # Errors
/// [`Error::InvalidArgument`] if the value is not UTF-8.
pub fn get(name: &str) -> Result<Option<String>> {
    let otherwise = || OTHERWISE.lock().get(name).map(OsString::from);
    let value = std::env::var_os(name).or_else(otherwise);
    text(name, value.as_deref())
}

/// The value of `name`, or of `old_name` if `name` is unset. An old name is logged with the new one. Errors: as [`get`].
pub fn get_renamed(name: &str, old_name: &str) -> Result<Option<String>> {
    if std::env::var_os(name).is_some() {
        return get(name);
    }
    let value = get(old_name)?;
    if value.is_some() {
        tracing::info!(target: log::BACKEND, "{old_name} is the old name of {name}; use the new one");
    }
    Ok(value)
}

fn text(name: &str, value: Option<&OsStr>) -> Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Some("") => Ok(None),
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(wrong(
            name,
            &String::from_utf8_lossy(value.as_bytes()),
            "must be text in UTF-8",
        )),
    }
}

/// An error of one line with the variable, its value, and in `must` the valid values.
#[cold]
pub fn wrong(name: &str, value: &str, must: &str) -> Error {
    Error::InvalidArgument(format!("{name}={}: {must}", value.escape_debug()))
}

/// Reads a switch: 1 is on, 0 is off, `default` if unset. Errors: as [`get`], or another value.
pub fn switch(name: &str, default: bool) -> Result<bool> {
    match get(name)?.as_deref() {
        None => Ok(default),
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(wrong(name, other, "must be 0 or 1")),
    }
}

/// Reads an unsigned number, decimal or hexadecimal after `0x`. Errors: as [`get`], or not such a number.
pub fn number(name: &str) -> Result<Option<u64>> {
    get(name)?
        .map(|value| {
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            number.map_err(|_| wrong(name, &value, "must be a number from 0 to 2^64 - 1"))
        })
        .transpose()
}

/// Reads all variables, so that a value that is not UTF-8 is found before any work starts. Errors: as [`get`].
pub fn check() -> Result<()> {
    all()
        .iter()
        .try_for_each(|variable| get(variable.name).map(drop))
}

/// Warns in one line about unknown variables with the library's prefix: they are misspelt, or from another version. Once per process;
/// for all processes of a job their launcher does it.
pub fn tell_of_unknown() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let names: Vec<String> = std::env::vars_os()
            .filter_map(|(name, _)| unknown(&name))
            .collect();
        if !names.is_empty() {
            let (are, they) = if names.len() == 1 {
                ("is no variable", "it")
            } else {
                ("are no variables", "they")
            };
            tell(&format!(
                "{} {are} of this version, and {they} change nothing (unipgas info lists what there is)",
                names.join(", ")
            )
            .replace("it change ", "it changes "));
        }
    });
}

fn unknown(name: &OsStr) -> Option<String> {
    if !name.as_bytes().starts_with(PREFIX.as_bytes()) {
        return None;
    }
    let name = name.to_string_lossy();
    let known = all().iter().chain(&OF_TESTS).any(|v| v.name == name);
    (!known && !name.starts_with(TEST_PREFIX)).then(|| name.escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_named() {
        let error = text("UNIPGAS_SEED", Some(OsStr::from_bytes(b"a\xff\n"))).unwrap_err();
        let line = error.to_string();
        assert!(
            line.starts_with("UNIPGAS_SEED=a") && line.lines().count() == 1,
            "{line}"
        );
        let good = |value: &str| text("X", Some(OsStr::new(value))).unwrap();
        assert_eq!(good(" 7 ").as_deref(), Some("7"));
        assert_eq!(good(" "), None);
        assert_eq!(text("X", None), Ok(None));
    }

    #[test]
    fn an_old_name_counts_where_the_new_one_is_unset() {
        let (new, old) = ("UNIPGAS_TEST_NEW_NAME", "UNIPGAS_TEST_OLD_NAME");
        assert_eq!(get_renamed(new, old), Ok(None));
        set_otherwise(old, "7");
        assert_eq!(get_renamed(new, old), Ok(Some("7".into())));
        assert_eq!(get_renamed("PATH", old), get("PATH"));
    }

    #[test]
    fn misspelt_names_are_found() {
        let found = |name: &[u8]| unknown(OsStr::from_bytes(name));
        assert_eq!(found(b"UNIPGAS_SED").as_deref(), Some("UNIPGAS_SED"));
        assert!(found(b"UNIPGAS_\xff").is_some());
        for name in [
            "UNIPGAS_SEED",
            "UNIPGAS_LIB",
            "UNIPGAS_NO_INSTALL",
            "UNIPGAS_TEST_PART",
            "PATH",
            "UNIPGAS",
        ] {
            assert_eq!(found(name.as_bytes()), None, "{name}");
        }
    }
}
