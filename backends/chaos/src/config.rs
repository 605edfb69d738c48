//! Configuration of the chaos, in code or in the environment.

use std::time::Duration;

use unipgas_core::{Error, Result};

const HELP: &str = "UNIPGAS_CHAOS is a list such as kill=RANK@OP,stall=RANK@OP:MS,delay=N,split=0|1,reorder=0|1,over=BACKEND";

/// Configuration of a [`Chaos`](crate::Chaos). In tests: [`ChaosConfig::seeded`], or
/// `ChaosConfig { split: false, ..ChaosConfig::seeded(7) }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaosConfig {
    /// Seed of all random decisions.
    pub seed: u64,
    /// The rank of this process. It is mixed into the seed, so the processes of a job differ.
    pub rank: u32,
    /// The operation at which the process kills itself by SIGKILL. Operations count from 0, over all channels of this process. The kill comes before
    /// the operation, or between two of its parts.
    pub kill_at: Option<u64>,
    /// The operation (counted as for `kill_at`) at which the communication of this process stops, and the duration of the stop.
    pub stall: Option<(u64, Duration)>,
    /// Maximum delay of an operation, or of a part of it, in polls.
    pub max_delay_polls: u32,
    /// Percentage of operations that complete in their call. An operation that must wait for earlier ones does not.
    pub at_once_percent: u32,
    /// Whether transfers and vectors of atomics are carried out in up to four parts.
    pub split: bool,
    /// Whether operations may overtake each other within the rules of the channel.
    pub reorder: bool,
    /// Maximum number of retries of a record for a full inbox. After them the operation ends with [`Error::InboxFull`].
    pub inbox_retries: u32,
    /// The backend to wrap, if the caller opens one by name. `None`: the default.
    pub over: Option<String>,
}

impl Default for ChaosConfig {
    fn default() -> Self {
        ChaosConfig {
            seed: 0,
            rank: 0,
            kill_at: None,
            stall: None,
            max_delay_polls: 16,
            at_once_percent: 10,
            split: true,
            reorder: true,
            inbox_retries: 32,
            over: None,
        }
    }
}

impl ChaosConfig {
    /// All kinds of disorder, without kill or stall.
    pub fn seeded(seed: u64) -> Self {
        ChaosConfig {
            seed,
            ..Self::default()
        }
    }

    /// Reads `UNIPGAS_SEED` (default 0), `UNIPGAS_RANK` (default 0) and `UNIPGAS_CHAOS` (default empty; see [`parse`](ChaosConfig::parse)). Errors:
    /// [`Error::InvalidArgument`] with the valid form.
    pub fn from_env() -> Result<Self> {
        let read = |name: &str| match std::env::var(name) {
            Ok(text) => Ok(text),
            Err(std::env::VarError::NotPresent) => Ok(String::new()),
            Err(error) => Err(Error::InvalidArgument(format!("{name}: {error}"))),
        };
        let number = |name: &str, most: u64| {
            let text = read(name)?;
            match parse_number(&text) {
                Some(value) if value <= most => Ok(value),
                None if text.trim().is_empty() => Ok(0),
                _ => Err(Error::InvalidArgument(format!(
                    "{name}={text}: must be a number from 0 to {most}"
                ))),
            }
        };
        let seed = number("UNIPGAS_SEED", u64::MAX)?;
        let rank = number("UNIPGAS_RANK", u64::from(u32::MAX))? as u32;
        Self::parse(seed, rank, &read("UNIPGAS_CHAOS")?)
    }

    /// Parses terms separated by commas: `kill=RANK@OP`, `stall=RANK@OP:MS` (milliseconds), `delay=N` (polls), `split=0|1`, `reorder=0|1`,
    /// `over=BACKEND`. Terms `kill` and `stall` of ranks other than `rank` are ignored. Errors: [`Error::InvalidArgument`] for any other text, and
    /// for a term given twice.
    pub fn parse(seed: u64, rank: u32, text: &str) -> Result<Self> {
        let mut config = ChaosConfig {
            rank,
            ..Self::seeded(seed)
        };
        let (mut delay, mut split, mut reorder) = (None, None, None);
        for term in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let wrong = || Error::InvalidArgument(format!("\"{term}\" is not understood: {HELP}"));
            let (name, value) = term.split_once('=').ok_or_else(wrong)?;
            let number = |text: &str| parse_number(text).ok_or_else(wrong);
            let switch = || match value {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(wrong()),
            };
            let twice = match name {
                "kill" => {
                    let (who, op) = value.split_once('@').ok_or_else(wrong)?;
                    let (who, op) = (number(who)?, number(op)?);
                    who == u64::from(rank) && config.kill_at.replace(op).is_some()
                }
                "stall" => {
                    let (who, when) = value.split_once('@').ok_or_else(wrong)?;
                    let (op, ms) = when.split_once(':').ok_or_else(wrong)?;
                    let (who, op) = (number(who)?, number(op)?);
                    let span = Duration::from_millis(number(ms)?);
                    who == u64::from(rank) && config.stall.replace((op, span)).is_some()
                }
                "delay" => {
                    let polls = u32::try_from(number(value)?).map_err(|_| wrong())?;
                    delay.replace(polls).is_some()
                }
                "over" => config.over.replace(value.trim().into()).is_some(),
                "split" => split.replace(switch()?).is_some(),
                "reorder" => reorder.replace(switch()?).is_some(),
                _ => return Err(wrong()),
            };
            if twice {
                return Err(Error::InvalidArgument(format!(
                    "\"{term}\": UNIPGAS_CHAOS says {name} twice"
                )));
            }
        }
        config.max_delay_polls = delay.unwrap_or(config.max_delay_polls);
        config.split = split.unwrap_or(config.split);
        config.reorder = reorder.unwrap_or(config.reorder);
        Ok(config)
    }
}

fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_it_all() {
        let text = "kill=3@100, stall=2@7:250,delay=5,split=0,reorder=1,stall=3@9:1,over=some";
        let config = ChaosConfig::parse(11, 3, text).unwrap();
        let expected = ChaosConfig {
            seed: 11,
            rank: 3,
            kill_at: Some(100),
            stall: Some((9, Duration::from_millis(1))),
            max_delay_polls: 5,
            split: false,
            over: Some("some".into()),
            ..ChaosConfig::default()
        };
        assert_eq!(config, expected);
        let elsewhere = ChaosConfig::parse(11, 2, text).unwrap();
        assert_eq!(elsewhere.kill_at, None);
        assert_eq!(elsewhere.stall, Some((7, Duration::from_millis(250))));
        assert_eq!(
            ChaosConfig::parse(4, 0, " ").unwrap(),
            ChaosConfig::seeded(4)
        );
    }

    #[test]
    fn wrong_texts_say_what_would_be_right() {
        for text in [
            "kill",
            "kill=1",
            "kill=a@1",
            "kill=0@",
            "stall=0@1",
            "stall=0@1:x",
            "delay=-1",
            "delay=4294967296",
            "split=2",
            "reorder=yes",
            "frobnicate=1",
            "=",
            "kill=0@1;split=0",
        ] {
            let error = ChaosConfig::parse(0, 0, text).unwrap_err().to_string();
            assert!(error.contains("kill=RANK@OP"), "{text}: {error}");
        }
        for text in [
            "over=a,over=a",
            "split=0,split=0",
            "kill=0@1,kill=0@2",
            "delay=1,delay=2",
        ] {
            let error = ChaosConfig::parse(0, 0, text).unwrap_err().to_string();
            assert!(error.contains("twice"), "{text}: {error}");
        }
        // Other ranks may have several disasters.
        assert!(ChaosConfig::parse(0, 9, "kill=0@1,kill=1@2").is_ok());
    }
}
