//! Metrics, and the cases (metric x processes x bytes) of a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A quantity that the benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Metric {
    /// One-way latency of a put with a notice, in ns: half a ping-pong.
    PutNotice,
    /// One-way latency of 8 bytes, in ns. The receiver polls the bytes themselves.
    OneLine,
    /// Latency of a fetch-and-add on a word that its owner does not access, in ns.
    FetchAdd,
    /// Latency of a get of bytes that their owner does not access, in ns.
    Read,
    /// 8-byte puts per second, in millions.
    PutRate,
    /// 8-byte puts per second of all pairs of processes together, in millions.
    PairRate,
    /// Bytes per ns of puts into the memory of another process.
    Bandwidth,
    /// The same with stores that bypass the cache.
    CopyNt,
    /// Barrier of all processes, in us.
    Barrier,
    /// Sum of one double over all processes, in us.
    Allreduce,
    /// Time from the notice until a parked waiter runs, in us.
    Wake,
    /// Write of 8 bytes by process_vm_writev, in ns.
    ProcessVm,
    /// Registration of user memory, in us.
    Register,
    /// One hop of a chain of puts that trigger each other, in ns.
    Relay,
    /// One-way latency of a passive message of GASPI, in ns: half a ping-pong. The sender learns of the receipt.
    Passive,
    /// One-way latency of a message, in ns: half a ping-pong. The sender learns of the receipt.
    Message,
    /// Bytes per ns of such messages, one at a time.
    MessageBandwidth,
    /// One-way latency of a flag that carries 28 bytes, in ns.
    Tagged,
    /// Throughput of messages from one process to all others, in MB/s: bytes of one message over the time until all have received it.
    Multicast,
    /// CPU time that each process burns while it waits in a barrier, in % of a core.
    IdleCpu,
    /// Through libfabric: fi_fetch_atomic of a u64, in ns.
    FiFetchAdd,
    /// Through libfabric: fi_compare_atomic of a u64, in ns.
    FiCompareSwap,
    /// Through libfabric: fi_inject_atomic of a u64, in M/s.
    FiInjectAtomic,
    /// Through libfabric: fi_atomic, sums of doubles, in GB/s.
    FiSum,
    /// Through libfabric: fi_write and its completion, in ns.
    FiWrite,
    /// Through libfabric: fi_write, in GB/s.
    FiWriteBandwidth,
    /// Through libfabric: fi_read, one after the other, in GB/s.
    FiReadBandwidth,
    /// Through libfabric: fi_send to fi_recv, one way, in ns.
    FiMessage,
    /// Through libfabric: fi_tsend to fi_trecv, one way, in ns.
    FiTagged,
    /// Time from the launch of a job until main work starts in all processes, in ms.
    Start,
    /// Memory that the initialisation of communication adds to a process, in KiB: mean over all processes.
    Memory,
}

/// Each metric with its name, its unit and one line for the table, in the order of the table.
#[rustfmt::skip]
const TABLE: [(Metric, &str, &str, &str); 31] = {
    use Metric::*;
    [
        (PutNotice, "put_notice", "ns", "put + notice, one way (limit: data and flag in two cache lines)"),
        (OneLine, "one_line", "ns", "8 bytes and their flag in one cache line, one way"),
        (FetchAdd, "fetch_add", "ns", "fetch-and-add on an idle remote word"),
        (Read, "read", "ns", "get and its end"),
        (PutRate, "put_rate", "M/s", "8-byte puts into a 4 KiB window"),
        (PairRate, "pair_rate", "M/s", "8-byte puts of every other process to the next one, all together"),
        (Bandwidth, "bandwidth", "GB/s", "puts between two shared mappings (limit: plain memcpy)"),
        (CopyNt, "copy_nt", "GB/s", "the same copy with non-temporal stores"),
        (Barrier, "barrier", "us", "barrier (limit: the best of the hand-written ones)"),
        (Allreduce, "allreduce", "us", "sum of one double over all processes"),
        (Wake, "wake", "us", "time between the notice and the run of a parked waiter (limit: futex)"),
        (ProcessVm, "process_vm_writev", "ns", "8 bytes by process_vm_writev"),
        (Register, "register", "us", "registration of user memory (limit: pwrite of it into a new memfd)"),
        (Relay, "relay", "ns", "a hop of 8 bytes through session mode VCQs (limit: a put polled in memory)"),
        (Passive, "passive", "ns", "passive message of 8 bytes, one way (core: the engine's message)"),
        (Message, "message", "ns", "message with its receipt, one way (limit: data and flag in two cache lines)"),
        (MessageBandwidth, "message_bandwidth", "GB/s", "messages, one at a time (limit: the best way to copy what the sender has just written)"),
        (Tagged, "tagged", "ns", "flag with 28 bytes, one way (limit: data and flag in two cache lines)"),
        (Multicast, "multicast", "MB/s", "one process to all others (limit: a loop of blocking sends through a window of 8 KiB)"),
        (IdleCpu, "idle_cpu", "%", "CPU time of a process that waits in a barrier"),
        (FiFetchAdd, "fi_fetch_add", "ns", "fi_fetch_atomic of a u64"),
        (FiCompareSwap, "fi_compare_swap", "ns", "fi_compare_atomic of a u64"),
        (FiInjectAtomic, "fi_inject_atomic", "M/s", "fi_inject_atomic of a u64"),
        (FiSum, "fi_sum", "GB/s", "fi_atomic, sums of doubles"),
        (FiWrite, "fi_write", "ns", "fi_write and its completion"),
        (FiWriteBandwidth, "fi_write_bandwidth", "GB/s", "fi_write"),
        (FiReadBandwidth, "fi_read_bandwidth", "GB/s", "fi_read, one after the other"),
        (FiMessage, "fi_message", "ns", "fi_send to fi_recv, one way"),
        (FiTagged, "fi_tagged", "ns", "fi_tsend to fi_trecv, one way"),
        (Start, "start", "ms", "time between launch and the first line of main work in every process"),
        (Memory, "memory", "KiB", "memory that a process has more once it has joined its job"),
    ]
};

impl Metric {
    /// Every metric, in the order of the table.
    pub fn all() -> impl Iterator<Item = Metric> {
        TABLE.iter().map(|row| row.0)
    }

    /// The name in records and in `--only`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The metric of this name.
    pub fn of(name: &str) -> Option<Metric> {
        Metric::all().find(|metric| metric.name() == name)
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// Whether a larger value is the better one.
    pub fn more_is_better(self) -> bool {
        self.unit().ends_with("/s")
    }

    /// Whether RCCE measures it. RCCE has its own set of processes.
    pub fn is_of_messages(self) -> bool {
        matches!(
            self,
            Metric::Message
                | Metric::MessageBandwidth
                | Metric::Tagged
                | Metric::Multicast
                | Metric::IdleCpu
        )
    }

    /// One line for the table, for processes that share no memory.
    pub fn about_on_a_network(self) -> &'static str {
        match self {
            Metric::PutNotice => {
                "put + notice, one way (kernel: ping-pong; provider: fi_writedata)"
            }
            Metric::FetchAdd => {
                "fetch-and-add (kernel: question and answer; provider: fi_fetch_atomic, else provider/ask)"
            }
            Metric::Read => "get and its end (kernel: question and answer; provider: fi_read)",
            Metric::PutRate => "8-byte puts (kernel: a call each; provider: fi_inject_write)",
            Metric::Bandwidth => "puts (kernel: a stream; provider: fi_write)",
            Metric::Barrier => "barrier (both: a butterfly of short messages)",
            Metric::Message => {
                "message with its receipt, one way (kernel: ping-pong; provider: fi_tsend)"
            }
            Metric::FiTagged => "fi_tsend to fi_trecv, one way (kernel: ping-pong)",
            _ => self.about(),
        }
    }

    /// One line for the table.
    pub fn about(self) -> &'static str {
        TABLE[self as usize].3
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> String {
        metric.name().into()
    }
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(name: String) -> Result<Metric, String> {
        Metric::of(&name).ok_or_else(|| format!("'{name}' is no metric"))
    }
}

/// One metric at one size and number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Case {
    /// The metric.
    pub metric: Metric,
    /// Number of processes.
    pub processes: u32,
    /// Size of the payload, 0 if there is none.
    pub bytes: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}",
            self.metric.name(),
            self.processes,
            self.bytes
        )
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not METRIC:PROCESSES:BYTES");
        let mut parts = text.split(':');
        let (name, processes, bytes) = (
            parts.next().ok_or_else(bad)?,
            parts.next().ok_or_else(bad)?,
            parts.next().ok_or_else(bad)?,
        );
        Ok(Case::new(
            Metric::of(name).ok_or_else(bad)?,
            processes.parse().map_err(|_| bad())?,
            bytes.parse().map_err(|_| bad())?,
        ))
    }
}

impl Case {
    /// A case.
    pub const fn new(metric: Metric, processes: u32, bytes: u64) -> Case {
        Case {
            metric,
            processes,
            bytes,
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The cases of these metrics, with each number of processes and each size.
fn cases(rows: &[(Metric, &[u32], &[u64])]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (metric, processes, bytes) in rows {
        for processes in *processes {
            cases.extend(
                bytes
                    .iter()
                    .map(|bytes| Case::new(*metric, *processes, *bytes)),
            );
        }
    }
    cases.sort_unstable();
    cases
}

/// The sizes or numbers of processes of a run.
fn either<T>(quick: bool, few: &'static [T], all: &'static [T]) -> &'static [T] {
    if quick { few } else { all }
}

/// The cases of a run on shared memory. `quick` keeps fewer sizes and numbers of processes.
#[rustfmt::skip]
pub fn all(quick: bool) -> Vec<Case> {
    use Metric::*;
    let long = either(quick, &[MIB, 64 * MIB], &[64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]);
    let groups = either(quick, &[2, 4, 8], &[2, 4, 8, 16]);
    let jobs = either(quick, &[2, 48], &[2, 4, 12, 48]);
    cases(&[
        (PutNotice, &[2], either(quick, &[8, 4 * KIB], &[8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB])),
        (OneLine, &[2], &[8]),
        (FetchAdd, &[2], &[8]),
        (Read, &[2], &[2]),
        (PutRate, &[2], &[8]),
        (PairRate, either(quick, &[2, 16], &[2, 4, 8, 16]), &[8]),
        (Bandwidth, &[2], long),
        (CopyNt, &[2], long),
        (Barrier, groups, &[0]),
        (Allreduce, groups, &[8]),
        (Wake, &[2], &[0]),
        (ProcessVm, &[2], &[8]),
        (Register, &[2], either(quick, &[4 * KIB, 64 * MIB], &[4 * KIB, 1024 * MIB])),
        (Relay, &[2], &[8]),
        (Passive, &[2], &[8]),
        (Message, &[2], either(quick, &[1], &[1, 64, 4 * KIB])),
        (MessageBandwidth, &[2], either(quick, &[MIB], &[64 * KIB, MIB, 16 * MIB])),
        (Tagged, &[2], &[28]),
        (Multicast, &[48], &[64 * KIB]),
        (IdleCpu, &[48], &[0]),
        (FiFetchAdd, &[2], &[8]),
        (FiCompareSwap, &[2], &[8]),
        (FiInjectAtomic, &[2], &[8]),
        (FiSum, &[2], &[4 * KIB]),
        (FiWrite, &[2], &[8]),
        (FiWriteBandwidth, &[2], &[MIB]),
        (FiReadBandwidth, &[2], &[MIB]),
        (FiMessage, &[2], &[8]),
        (FiTagged, &[2], &[8]),
        (Start, jobs, &[0]),
        (Memory, jobs, &[0]),
    ])
}

/// Whether it is measured between processes that share no memory.
pub fn is_of_a_network(metric: Metric) -> bool {
    of_a_network(true).iter().any(|case| case.metric == metric)
}

/// The cases of a run between processes that share no memory.
#[rustfmt::skip]
pub fn of_a_network(quick: bool) -> Vec<Case> {
    use Metric::*;
    cases(&[
        (PutNotice, &[2], either(quick, &[8], &[8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB])),
        (FetchAdd, &[2], &[8]),
        (Read, &[2], &[2]),
        (PutRate, &[2], &[8]),
        (Bandwidth, &[2], either(quick, &[64 * KIB, MIB], &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB])),
        (Barrier, &[2, 4], &[0]),
        (Message, &[2], &[8]),
        (FiTagged, &[2], &[8]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_metrics() {
        for (nth, metric) in Metric::all().enumerate() {
            assert_eq!(metric as usize, nth, "{}", metric.name());
        }
    }
}
