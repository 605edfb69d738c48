//! The environment variables: their table, and functions that read them.
//!
//! All interfaces share one table, so the library finds misspelt names, and `unipgas info` lists the actual variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use parking_lot::{Mutex, Once};

use crate::{Error, Result, tell};

/// A variable that users may set or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// A short description.
    pub meaning: &'static str,
}

const fn variable(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning }
}

/// The variables of a job, for the library, `unipgas run` and `unipgas cc`.
pub const VARIABLES: [Variable; 39] = [
    variable("UNIPGAS_JOB", "the job, set by unipgas run"),
    variable(
        "UNIPGAS_RANK",
        "the rank of this process, set by unipgas run",
    ),
    variable("UNIPGAS_SIZE", "number of processes, set by unipgas run"),
    variable(
        "UNIPGAS_INCARNATION",
        "number of earlier processes of this rank, set by unipgas run --spares for replacements",
    ),
    variable("UNIPGAS_BIND", "binding of processes, set by unipgas run"),
    variable("UNIPGAS_BACKEND", "the backend: --backend"),
    variable(
        "UNIPGAS_LAUNCHER",
        "the launcher, or remote shell, of unipgas run for other hosts: --launcher",
    ),
    variable(
        "UNIPGAS_NETWORKS",
        "networks to other hosts, separated by commas, in order of preference; none: no network (the first usable one)",
    ),
    variable(
        "UNIPGAS_SEED",
        "the seed of the backend chaos, and of opaque with unordered: --seed",
    ),
    variable(
        "UNIPGAS_SHM_ADOPT",
        "0: memory that programs register is copied, not shared in place (1)",
    ),
    variable(
        "UNIPGAS_MR_ALLOCATED",
        "libfabric: 1: registered memory stays in place, as with FI_MR_ALLOCATED (0)",
    ),
    variable(
        "UNIPGAS_CHAOS",
        "faults that the backend chaos injects: kill=RANK@OP,stall=RANK@OP:MS,delay=N,split=0,reorder=0,over=BACKEND",
    ),
    variable(
        "UNIPGAS_OPAQUE",
        "properties of the backend opaque: tcp,unordered,no-lines,no-atomics,registered,inline=N,largest=N,depth=N,lose=RANK@OP",
    ),
    variable(
        "UNIPGAS_VERBS_DEVICE",
        "the RDMA device that verbs uses, or device:port, as ibv_devices lists them (one near the process with an active port)",
    ),
    variable(
        "UNIPGAS_VERBS_GID",
        "the index in the port's table of the GID that verbs uses (the best one: RoCE v2, IPv4)",
    ),
    variable(
        "UNIPGAS_VERBS_TIMEOUT",
        "verbs: a peer is dead that has not answered for 7 times 4.096 us times 2 to this power, 8 to 31 (17: four seconds)",
    ),
    variable(
        "UNIPGAS_OFI_PROVIDER",
        "libfabric's provider for the backend ofi, named as in fi_info -l (the first suitable provider)",
    ),
    variable(
        "UNIPGAS_OFI_INTERFACE",
        "the interface that ofi uses: a domain as fi_info prints them, like eth0, or an address of this host",
    ),
    variable(
        "UNIPGAS_LOG",
        "log of choices and events on standard error: error, warn, info, debug, trace, or targets with levels, such as unipgas::route=debug",
    ),
    variable(
        "UNIPGAS_LOG_FILE",
        "the file to which each process appends the lines of UNIPGAS_LOG, with the time in UTC (standard error)",
    ),
    variable(
        "UNIPGAS_NAP",
        "the thread that initialises the library sleeps a moment at this interval, in microseconds: for programs that poll memory with more processes than cores (0)",
    ),
    variable(
        "UNIPGAS_TRACE",
        "the file to which each process appends its timeline, in the Trace Event Format: --trace",
    ),
    variable(
        "UNIPGAS_CHECK",
        "1: a line for each call that is refused, with argument, reason and remedy (0)",
    ),
    variable(
        "UNIPGAS_STATS",
        "1: each rank prints its counters at its end; the level of GASPI's statistics at the start: --stats (0)",
    ),
    variable(
        "UNIPGAS_STATS_TO",
        "the file to which each rank appends them, a record of JSON; without it they are printed; set by unipgas run",
    ),
    variable(
        "UNIPGAS_TOFU_LIBRARY",
        "the machine's libtofucom.so, by which tofu reaches other nodes (the one in the loader's path)",
    ),
    variable("UNIPGAS_CC", "the compiler that unipgas cc runs"),
    variable("UNIPGAS_CXX", "the compiler that unipgas c++ runs"),
    variable(
        "UNIPGAS_TOFU_SHAPE",
        "uTofu: lengths of the axes X, Y, Z, A, B, C like 2x1x1x2x3x2; without it unipgas run sets one for its processes",
    ),
    variable(
        "UNIPGAS_TOFU_PPN",
        "uTofu: processes that share a virtual node, 1 to 48 (1)",
    ),
    variable(
        "UNIPGAS_JOB_NAME",
        "uTofu: name of a job of processes that are started by hand; processes of one user with the same name find each other",
    ),
    variable(
        "UTOFU_NUM_EXCLUSIVE_CQS",
        "CQs of each TNI kept for exclusive VCQs (0)",
    ),
    variable(
        "UTOFU_NUM_SESSION_MODE_CQS",
        "CQs of each TNI kept for session mode VCQs (3)",
    ),
    variable(
        "UTOFU_NUM_MRQ_ENTRIES",
        "entries of the MRQ of a free mode VCQ: 2Ki, 8Ki, 32Ki, 128Ki, 512Ki, 2Mi (128Ki)",
    ),
    variable(
        "UTOFU_NUM_MRQ_ENTRIES_SESSION",
        "the same of a session mode VCQ (128Ki)",
    ),
    variable(
        "UTOFU_SWAP_PROTECT",
        "1: registered memory is locked, so that it is not swapped out (0)",
    ),
    variable(
        "UNIPGAS_RCCE_MPB",
        "RCCE: bytes of each message-passing buffer (8192)",
    ),
    variable(
        "UNIPGAS_RCCE_SHM_LOW",
        "RCCE: 1: the memory of RCCE_shmalloc has addresses of 32 bits (0)",
    ),
    variable(
        "UNIPGAS_RCCE_CORES",
        "RCCE: the cores that the UEs stand for, with commas between them",
    ),
];

/// Variables for builds and tests of the library itself.
pub const OF_TESTS: [Variable; 2] = [
    variable(
        "UNIPGAS_LIB",
        "library that unipgas conform and unipgas bench call; tests compare its symbols with the headers",
    ),
    variable(
        "UNIPGAS_NO_INSTALL",
        "forbids make and the tests to install packages",
    ),
];

const PREFIX: &str = "UNIPGAS_";
/// Prefix of variables that the library's tests pass to their processes.
const TEST_PREFIX: &str = "UNIPGAS_TEST_";
/// An alternative spelling in the uTofu User's Guide.
const ALIAS: &str = "UTOFU_NUM_MRQ_ENTRIES_ENTRIES";

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
    VARIABLES
        .iter()
        .map(|variable| variable.name)
        .chain([ALIAS])
        .try_for_each(|name| get(name).map(drop))
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
    let known = VARIABLES.iter().chain(&OF_TESTS).any(|v| v.name == name);
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
