//! The properties of the machine: `TOFU_DOUBLE`, a comma-separated list.
//!
//! | term | meaning | default |
//! |---|---|---|
//! | `tnis=N` | TNIs of the node | 6 |
//! | `vcqs=N` | limit of VCQs of this process on a TNI; beyond it `UTOFU_ERR_FULL` | ample |
//! | `regs=N` | limit of concurrent registrations of a VCQ; beyond it `UTOFU_ERR_FULL` | ample |
//! | `toq=N` | limit of descriptors of a CQ with unread TCQ descriptors, at most 4096; beyond it `UTOFU_ERR_BUSY` | 4096 |
//! | `mrq=N` | MRQ descriptors of a VCQ, at most 131072 | 131072 |
//! | `putget=N` | `max_putget_size`, at most 16777215 | 16777215 |
//! | `armw=0` | no ARMW: the capabilities have none, and calls return `UTOFU_ERR_NOT_SUPPORTED` | 1 |
//! | `session=0` | the same for session mode | 1 |
//! | `late=N` | a completion is returned by the N-th poll after the poll that found it; for the TCQ, polls on all VCQs of the CQ count | 0 |
//! | `stadds=tell` | the library reports an unregistered local range, by a code at a poll | `abort` |
//! | `yield=1` | calls on a VCQ yield the processor, so concurrent calls of other threads are detected sooner | 0 |
//! | `fail=CALL:WHEN:CODE` | calls of this name return the code and do nothing | |
//! | `tcq=WHEN:CODE` | descriptors, counted in posting order, that are not sent: a poll returns `UTOFU_ERR_TCQ_*` | |
//! | `mrq=WHEN:CODE` | the same, but the TCQ reports them as sent: a poll of the local MRQ returns `UTOFU_ERR_MRQ_*` | |
//!
//! WHEN is a number from 1, `everyN`, or `*`. CODE is the name of a code, with or without `UTOFU_`. A failing call without a return value stores nothing.
//! `mrq=` never selects a NOP.

use crate::faults::{self, FaultRule};

const NAME: &str = "TOFU_DOUBLE";

#[derive(Debug)]
pub(crate) struct Config {
    pub tnis: usize,
    pub vcqs: usize,
    pub regs: usize,
    pub toq: usize,
    pub mrq: usize,
    pub putget: usize,
    pub armw: bool,
    pub session: bool,
    pub late: u64,
    /// An unregistered local range ends the program.
    pub strict_stadds: bool,
    pub yields: bool,
    /// Rules for calls, with the index of the call.
    pub calls: Vec<(usize, FaultRule)>,
    pub tcq_faults: Vec<FaultRule>,
    pub mrq_faults: Vec<FaultRule>,
}

impl Config {
    /// Errors: one line with the wrong setting and the valid values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = Config {
            tnis: 6,
            vcqs: 72,
            regs: usize::MAX,
            toq: 4096,
            mrq: 131_072,
            putget: (1 << 24) - 1,
            armw: true,
            session: true,
            late: 0,
            strict_stadds: true,
            yields: false,
            calls: Vec::new(),
            tcq_faults: Vec::new(),
            mrq_faults: Vec::new(),
        };
        for term in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let wrong = |right: &str| format!("{NAME}: {term}: {right}");
            let (key, value) = term
                .split_once('=')
                .ok_or_else(|| wrong("give it as KEY=VALUE"))?;
            let number = |least: usize, most: usize| {
                let number = value.parse::<usize>().ok();
                number
                    .filter(|n| (least..=most).contains(n))
                    .ok_or_else(|| wrong(&format!("give a number from {least} to {most}")))
            };
            match key {
                "tnis" => config.tnis = number(0, 6)?,
                "vcqs" => config.vcqs = number(0, 72)?,
                "regs" => config.regs = number(0, usize::MAX)?,
                "toq" => config.toq = number(1, 4096)?,
                "mrq" if value.contains(':') => config.mrq_faults.push(
                    FaultRule::parse(value, "ERR_MRQ_")
                        .ok_or_else(|| wrong("give WHEN:ERR_MRQ_..., as in mrq=3:ERR_MRQ_PEER"))?,
                ),
                "mrq" => config.mrq = number(1, 131_072)?,
                "tcq" => {
                    config
                        .tcq_faults
                        .push(FaultRule::parse(value, "ERR_TCQ_").ok_or_else(|| {
                            wrong("give WHEN:ERR_TCQ_..., as in tcq=3:ERR_TCQ_MEMORY")
                        })?)
                }
                "putget" => config.putget = number(1, (1 << 24) - 1)?,
                "armw" => config.armw = number(0, 1)? == 1,
                "session" => config.session = number(0, 1)? == 1,
                "late" => config.late = number(0, 1 << 30)? as u64,
                "yield" => config.yields = number(0, 1)? == 1,
                "stadds" => {
                    config.strict_stadds = match value {
                        "abort" => true,
                        "tell" => false,
                        _ => return Err(wrong("give abort or tell")),
                    }
                }
                "fail" => config.calls.push(faults::of_call(value).ok_or_else(|| {
                    wrong("give CALL:WHEN:CODE, as in fail=utofu_put:3:ERR_BUSY")
                })?),
                _ => return Err(wrong("there is no such key")),
            }
        }
        Ok(config)
    }

    /// The configuration of this process. Errors: as [`Config::parse`].
    pub fn from_env() -> Result<Self, String> {
        Config::parse(&std::env::var(NAME).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_said() {
        let text = "tnis=2, vcqs=3,regs=4,toq=16,mrq=32,putget=64,armw=0,session=0,late=5,stadds=tell,yield=1,\
                    fail=utofu_put:3:ERR_BUSY,fail=utofu_reg_mem:*:ERR_OUT_OF_MEMORY,tcq=1:ERR_TCQ_DESC,mrq=every2:ERR_MRQ_PEER";
        let all = Config::parse(text).unwrap();
        assert_eq!((all.tnis, all.vcqs, all.regs), (2, 3, 4));
        assert_eq!((all.toq, all.mrq, all.putget, all.late), (16, 32, 64, 5));
        assert_eq!((all.armw, all.session), (false, false));
        assert_eq!((all.strict_stadds, all.yields), (false, true));
        assert_eq!(
            (all.calls.len(), all.tcq_faults.len(), all.mrq_faults.len()),
            (2, 1, 1)
        );
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for text in [
            "x",
            "x=1",
            "tnis=7",
            "tnis=",
            "toq=0",
            "toq=4097",
            "mrq=0",
            "mrq=1:ERR_TCQ_DESC",
            "tcq=1",
            "armw=2",
            "late=-1",
            "stadds=no",
            "fail=utofu_put",
            "fail=utofu_fly:1:ERR_BUSY",
            "putget=16777216",
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("TOFU_DOUBLE: {text}: ")),
                "{error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
