//! What the machine is like: `TOFU_DOUBLE`, a list with commas.
//!
//! | term | what | by itself |
//! |---|---|---|
//! | `tnis=N` | TNIs of the node | 6 |
//! | `vcqs=N` | VCQs of a TNI that this process can have; then `UTOFU_ERR_FULL` | ample |
//! | `regs=N` | registrations of a VCQ at a time; then `UTOFU_ERR_FULL` | ample |
//! | `toq=N` | descriptors of a CQ whose TCQ descriptors have not been read, at most 4096; then `UTOFU_ERR_BUSY` | 4096 |
//! | `mrq=N` | MRQ descriptors of a VCQ, at most 131072 | 131072 |
//! | `putget=N` | `max_putget_size`, at most 16777215 | 16777215 |
//! | `armw=0` | there is no ARMW: capabilities say so, calls answer `UTOFU_ERR_NOT_SUPPORTED` | 1 |
//! | `session=0` | the same for session mode | 1 |
//! | `late=N` | a completion is handed out by the N-th poll after the one that has found it; of the TCQ, polls on all VCQs of the CQ count | 0 |
//! | `stadds=tell` | a local range that is not registered is the library's to answer: by a code at a poll | `abort` |
//! | `yield=1` | calls on a VCQ give the processor away: those of other threads at the same time are found sooner | 0 |
//! | `fail=CALL:WHEN:CODE` | calls of this name that answer the code and do nothing | |
//! | `tcq=WHEN:CODE` | descriptors, counted as they are posted, that are not sent: `UTOFU_ERR_TCQ_*` at a poll | |
//! | `mrq=WHEN:CODE` | the same, but the TCQ says that they are sent: a local `UTOFU_ERR_MRQ_*` at a poll | |
//!
//! WHEN is a number from 1, `everyN`, or `*`. CODE is the name of a code, with `UTOFU_` or without. A call that returns nothing has no place for a code:
//! it stores nothing. Of NOPs, no descriptor fails by `mrq=`.

use crate::faults::{self, FaultRule};

const NAME: &str = "TOFU_DOUBLE";

/// All that can be chosen.
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
    /// A local range that is not registered ends the program.
    pub strict_stadds: bool,
    pub yields: bool,
    /// By the index of the call.
    pub calls: Vec<(usize, FaultRule)>,
    pub tcq_faults: Vec<FaultRule>,
    pub mrq_faults: Vec<FaultRule>,
}

impl Config {
    /// Errors: one line that says what is wrong and what would be right.
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

    /// That of this process. Errors: as [`Config::parse`].
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
