//! The description of the device: `VERBS_DOUBLE`, a comma-separated list of `key=value`. An unknown key or value means no devices.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `fabric` | a name; processes with the same name reach each other | the user's number |
//! | `devices`, `ports`, `gids` | numbers of devices (`double0`, `double1`, ...), of ports of each device, and of GIDs of each port | 1, 1, 4 |
//! | `link` | `ib`, or `eth`: ports have no LIDs, and addresses need a GID | `ib` |
//! | `atomics` | `none`, `hca` (not atomic with respect to the CPU) or `glob` | `hca` |
//! | `max_qp`, `max_qp_wr`, `max_cqe`, `max_sge`, `max_mr`, `max_msg_sz` | limits of a device | ample |
//! | `max_srq`, `max_srq_wr` | limits of shared receive queues; `max_srq=0` disables them | ample |
//! | `inline` | the largest `max_inline_data` | 956 |
//! | `rd_atom` | the limit of outstanding reads and atomic operations | 16 |
//! | `mtu` | in bytes | 4096 |
//! | `odp` | `1`: on-demand paging, as `ibv_query_device_ex` reports it | `0` |
//! | `retry_ms` | the longest time that a queue pair tries to reach a peer, even if its timeout is longer | 200 |
//! | `fork` | `keeps`: after `ibv_fork_init`, child processes do not get the pages of registered memory; `copies`: they get copies | `keeps` |
//! | `late` | a seed: reads are delayed, and later requests overtake them unless a fence forbids it | |

use std::sync::OnceLock;
use std::time::Duration;

use unipgas_verbs_sys as sys;

const NAME: &str = "VERBS_DOUBLE";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Processes with the same name reach each other.
    pub fabric: String,
    pub devices: usize,
    pub ports: u8,
    pub ethernet: bool,
    /// IBV_ATOMIC_...
    pub atomics: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_cqe: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_sge: u32,
    pub max_mr: u32,
    /// Largest max_inline_data.
    pub inline: u32,
    pub rd_atom: u32,
    /// IBV_MTU_...
    pub mtu: u32,
    pub max_msg_sz: u32,
    pub gids: u32,
    pub odp: bool,
    /// Children get copies of registered memory.
    pub copies_at_fork: bool,
    /// Upper limit of the time that a queue pair retries.
    pub retry: Duration,
    /// The seed of the random delays of reads.
    pub late: Option<u64>,
}

impl Config {
    fn plain() -> Self {
        Config {
            fabric: rustix::process::getuid().as_raw().to_string(),
            devices: 1,
            ports: 1,
            ethernet: false,
            atomics: sys::IBV_ATOMIC_HCA,
            max_qp: 4000,
            max_qp_wr: 16384,
            max_cqe: 1 << 20,
            max_srq: 1000,
            max_srq_wr: 16384,
            max_sge: 30,
            max_mr: 1 << 20,
            inline: 956,
            rd_atom: 16,
            mtu: sys::IBV_MTU_4096,
            max_msg_sz: 1 << 30,
            gids: 4,
            odp: false,
            copies_at_fork: false,
            retry: Duration::from_millis(200),
            late: None,
        }
    }

    /// Errors: a description of the invalid entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = Config::plain();
        for term in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let wrong = || format!("{NAME}: {term}: unknown");
            let (key, value) = term.split_once('=').ok_or_else(wrong)?;
            let number = |least: u32, most: u32| {
                let number = value.parse::<u32>().ok();
                number
                    .filter(|n| (least..=most).contains(n))
                    .ok_or_else(wrong)
            };
            match key {
                "fabric" if !value.is_empty() && value.len() <= 64 => config.fabric = value.into(),
                "devices" => config.devices = number(0, 64)? as usize,
                "ports" => config.ports = number(1, 2)? as u8,
                "link" => config.ethernet = one_of(value, &["ib", "eth"]).ok_or_else(wrong)? == 1,
                "atomics" => {
                    config.atomics = one_of(value, &["none", "hca", "glob"]).ok_or_else(wrong)?
                }
                "max_qp" => config.max_qp = number(1, 4000)?,
                "max_qp_wr" => config.max_qp_wr = number(1, 1 << 20)?,
                "max_cqe" => config.max_cqe = number(1, 1 << 24)?,
                "max_srq" => config.max_srq = number(0, 1 << 20)?,
                "max_srq_wr" => config.max_srq_wr = number(1, 1 << 20)?,
                "max_sge" => config.max_sge = number(1, 256)?,
                "max_mr" => config.max_mr = number(1, 1 << 30)?,
                "inline" => config.inline = number(0, 4096)?,
                "rd_atom" => config.rd_atom = number(1, 255)?,
                "mtu" => {
                    let all = ["", "256", "512", "1024", "2048", "4096"];
                    config.mtu = one_of(value, &all).filter(|n| *n > 0).ok_or_else(wrong)?;
                }
                "max_msg_sz" => config.max_msg_sz = number(64, 1 << 31)?,
                "gids" => config.gids = number(1, 255)?,
                "odp" => config.odp = number(0, 1)? == 1,
                "retry_ms" => config.retry = Duration::from_millis(number(1, 1 << 30)?.into()),
                "fork" => {
                    config.copies_at_fork =
                        one_of(value, &["keeps", "copies"]).ok_or_else(wrong)? == 1
                }
                "late" => config.late = Some(value.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        Ok(config)
    }
}

fn one_of(value: &str, all: &[&str]) -> Option<u32> {
    all.iter()
        .position(|name| *name == value)
        .map(|at| at as u32)
}

/// The configuration of this process. If it is invalid, a line on stderr gives the reason, and this returns `None`.
pub fn config() -> Option<&'static Config> {
    static CONFIG: OnceLock<Option<Config>> = OnceLock::new();
    let read = || {
        let text = std::env::var(NAME).unwrap_or_default();
        Config::parse(&text)
            .inspect_err(|why| eprintln!("{why}"))
            .ok()
    };
    CONFIG.get_or_init(read).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_said() {
        let text = "fabric=x,devices=2, ports=2,link=eth,atomics=glob,max_qp=3,max_qp_wr=4,max_cqe=5,max_srq_wr=6,max_srq=0,max_sge=7,max_mr=8,inline=9,\
                    rd_atom=10,mtu=1024,max_msg_sz=65536,gids=11,odp=1,retry_ms=12,fork=copies,late=13";
        let all = Config::parse(text).unwrap();
        assert_eq!((all.fabric.as_str(), all.devices, all.ports), ("x", 2, 2));
        assert_eq!((all.ethernet, all.atomics), (true, sys::IBV_ATOMIC_GLOB));
        assert_eq!((all.max_qp, all.max_srq, all.inline), (3, 0, 9));
        assert!(all.copies_at_fork);
        assert_eq!(
            (all.mtu, all.odp, all.late),
            (sys::IBV_MTU_1024, true, Some(13))
        );
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in [
            "x",
            "x=1",
            "ports=3",
            "mtu=",
            "mtu=77",
            "atomics=some",
            "late=",
            "fabric=",
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("VERBS_DOUBLE: {text}: ")),
                "{error}"
            );
        }
    }
}
