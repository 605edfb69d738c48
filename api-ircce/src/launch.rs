//! Start parameters: the words of RCCE's launcher, and the environment variables of this library.

use crate::comm::MAX_UES;
use crate::mpb::LINE;

/// `RCCE_BUFF_SIZE_MAX`: default size of an MPB in bytes.
pub const MPB_DEFAULT: usize = 8192;
/// Maximum of `UNIPGAS_RCCE_MPB` in bytes. Any length in the MPB fits in the int arguments of the calls.
pub const MPB_MAX: usize = 1 << 30;

/// Settings from the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSettings {
    /// `UNIPGAS_RCCE_MPB`: size of an MPB in bytes, rounded up to whole lines.
    pub mpb: usize,
    /// `UNIPGAS_RCCE_CORES`: the cores of the job, ascending. Empty: not set.
    pub cores: Vec<i32>,
    /// `UNIPGAS_RCCE_SHM_LOW`: shared memory is mapped below 4 GiB.
    pub low: bool,
}

impl LaunchSettings {
    /// Reads the environment. Errors: a line with the invalid variable and the valid values.
    pub fn from_env() -> Result<Self, String> {
        unipgas_core::variables::check().map_err(|e| e.to_string())?;
        LaunchSettings::read(|name| std::env::var(name).ok())
    }

    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| {
            get(name)
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let mpb = match get("UNIPGAS_RCCE_MPB") {
            None => MPB_DEFAULT,
            Some(text) => match text.parse() {
                Ok(bytes @ LINE..=MPB_MAX) => usize::next_multiple_of(bytes, LINE),
                _ => {
                    return Err(format!(
                        "UNIPGAS_RCCE_MPB must be a number of bytes from {LINE} to {MPB_MAX}, not {text:?}"
                    ));
                }
            },
        };
        let cores = match get("UNIPGAS_RCCE_CORES") {
            None => Vec::new(),
            Some(text) => cores(text.split(',')).ok_or_else(|| {
                format!("UNIPGAS_RCCE_CORES must be different numbers below {MAX_UES} with commas between them, not {text:?}")
            })?,
        };
        let low = match get("UNIPGAS_RCCE_SHM_LOW").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(text) => {
                return Err(format!("UNIPGAS_RCCE_SHM_LOW must be 0 or 1, not {text:?}"));
            }
        };
        Ok(LaunchSettings { mpb, cores, low })
    }
}

/// Parses core numbers and sorts them, since RCCE numbers the UEs in the order of their cores. `None` for an invalid or repeated number.
fn cores<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<i32>> {
    let mut cores: Vec<i32> = words
        .map(|word| {
            let number: u8 = word.trim().parse().ok()?;
            (usize::from(number) < MAX_UES).then_some(i32::from(number))
        })
        .collect::<Option<_>>()?;
    cores.sort_unstable();
    cores.is_sorted_by(|a, b| a < b).then_some(cores)
}

/// Words that RCCE's launcher inserts after the program's name: the number of UEs, the clock in GHz, and a core for each UE.
#[derive(Debug, Clone, PartialEq)]
pub struct LauncherWords {
    /// Number of words to remove after the program's name.
    pub words: usize,
    /// The cores, ascending.
    pub cores: Vec<i32>,
    /// The clock in GHz.
    pub clock: f64,
}

/// Finds the launcher's words in the arguments after the program's name. `job`: the size of the job, if this process is part of a job. The words must agree
/// with it.
pub fn launcher_words(args: &[&str], job: Option<u32>) -> Option<LauncherWords> {
    let [number, clock, rest @ ..] = args else {
        return None;
    };
    let number: usize = number.parse().ok()?;
    // The launcher writes the clock with a fraction. Other arguments may also begin with two numbers.
    let clock = clock.parse::<f64>().ok().filter(|_| clock.contains('.'))?;
    let possible = clock > 0.0
        && clock.is_finite()
        && (1..=MAX_UES).contains(&number)
        && job.is_none_or(|size| size as usize == number);
    if !possible {
        return None;
    }
    let cores = cores(rest.get(..number)?.iter().copied())?;
    Some(LauncherWords {
        words: 2 + number,
        cores,
        clock,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str, job: Option<u32>) -> Option<LauncherWords> {
        let args: Vec<_> = line.split_whitespace().collect();
        launcher_words(&args, job)
    }

    #[test]
    fn words_of_the_launcher_are_recognised() {
        let found = words("3 0.533 05 00 47 1000 x", Some(3)).unwrap();
        assert_eq!((found.words, found.cores), (5, vec![0, 5, 47]));
        assert_eq!(found.clock, 0.533);
        assert_eq!(words("1 0.8 3", None).unwrap().words, 3);
        for other in [
            "",
            "3",
            "3 0.5 1 2",
            "2 5 0 1",
            "2 x.5 0 1",
            "2 -0.5 0 1",
            "2 0.5 1 1",
            "2 0.5 1 48",
            "2 0.5 1 file",
            "0 0.5",
            "49 0.5 1",
        ] {
            assert_eq!(words(other, None), None, "{other}");
        }
        assert_eq!(words("2 0.5 0 1", Some(3)), None);
    }

    fn with(name: &'static str, value: &'static str) -> Result<LaunchSettings, String> {
        LaunchSettings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn wishes_are_checked() {
        assert_eq!(with("", "").unwrap().mpb, 8192);
        for (text, bytes) in [("32", 32), ("33", 64), ("16384", 16384)] {
            assert_eq!(with("UNIPGAS_RCCE_MPB", text).unwrap().mpb, bytes);
        }
        assert_eq!(with("UNIPGAS_RCCE_CORES", "07,00").unwrap().cores, [0, 7]);
        for (name, value) in [
            ("UNIPGAS_RCCE_MPB", "31"),
            ("UNIPGAS_RCCE_MPB", "-1"),
            ("UNIPGAS_RCCE_MPB", "8k"),
            ("UNIPGAS_RCCE_MPB", "1073741825"),
            ("UNIPGAS_RCCE_CORES", "1,1"),
            ("UNIPGAS_RCCE_CORES", "48"),
            ("UNIPGAS_RCCE_CORES", "0,,1"),
        ] {
            let why = with(name, value).unwrap_err();
            assert!(why.starts_with(name) && !why.contains('\n'), "{why}");
        }
    }
}
