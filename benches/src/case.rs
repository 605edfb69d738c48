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

impl Metric {
    /// Every metric, in the order of the table.
    pub const ALL: [Metric; 31] = [
        Metric::PutNotice,
        Metric::OneLine,
        Metric::FetchAdd,
        Metric::Read,
        Metric::PutRate,
        Metric::PairRate,
        Metric::Bandwidth,
        Metric::CopyNt,
        Metric::Barrier,
        Metric::Allreduce,
        Metric::Wake,
        Metric::ProcessVm,
        Metric::Register,
        Metric::Relay,
        Metric::Passive,
        Metric::Message,
        Metric::MessageBandwidth,
        Metric::Tagged,
        Metric::Multicast,
        Metric::IdleCpu,
        Metric::FiFetchAdd,
        Metric::FiCompareSwap,
        Metric::FiInjectAtomic,
        Metric::FiSum,
        Metric::FiWrite,
        Metric::FiWriteBandwidth,
        Metric::FiReadBandwidth,
        Metric::FiMessage,
        Metric::FiTagged,
        Metric::Start,
        Metric::Memory,
    ];

    /// The name in records and in `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Metric::PutNotice => "put_notice",
            Metric::OneLine => "one_line",
            Metric::FetchAdd => "fetch_add",
            Metric::Read => "read",
            Metric::PutRate => "put_rate",
            Metric::PairRate => "pair_rate",
            Metric::Bandwidth => "bandwidth",
            Metric::CopyNt => "copy_nt",
            Metric::Barrier => "barrier",
            Metric::Allreduce => "allreduce",
            Metric::Wake => "wake",
            Metric::ProcessVm => "process_vm_writev",
            Metric::Register => "register",
            Metric::Relay => "relay",
            Metric::Passive => "passive",
            Metric::Message => "message",
            Metric::MessageBandwidth => "message_bandwidth",
            Metric::Tagged => "tagged",
            Metric::Multicast => "multicast",
            Metric::IdleCpu => "idle_cpu",
            Metric::FiFetchAdd => "fi_fetch_add",
            Metric::FiCompareSwap => "fi_compare_swap",
            Metric::FiInjectAtomic => "fi_inject_atomic",
            Metric::FiSum => "fi_sum",
            Metric::FiWrite => "fi_write",
            Metric::FiWriteBandwidth => "fi_write_bandwidth",
            Metric::FiReadBandwidth => "fi_read_bandwidth",
            Metric::FiMessage => "fi_message",
            Metric::FiTagged => "fi_tagged",
            Metric::Start => "start",
            Metric::Memory => "memory",
        }
    }

    /// The metric of this name.
    pub fn of(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::PutNotice
            | Metric::OneLine
            | Metric::FetchAdd
            | Metric::Read
            | Metric::ProcessVm
            | Metric::Relay
            | Metric::Passive
            | Metric::Message
            | Metric::Tagged
            | Metric::FiFetchAdd
            | Metric::FiCompareSwap
            | Metric::FiWrite
            | Metric::FiMessage
            | Metric::FiTagged => "ns",
            Metric::PutRate | Metric::PairRate | Metric::FiInjectAtomic => "M/s",
            Metric::Bandwidth
            | Metric::CopyNt
            | Metric::MessageBandwidth
            | Metric::FiSum
            | Metric::FiWriteBandwidth
            | Metric::FiReadBandwidth => "GB/s",
            Metric::Multicast => "MB/s",
            Metric::IdleCpu => "%",
            Metric::Barrier | Metric::Allreduce | Metric::Wake | Metric::Register => "us",
            Metric::Start => "ms",
            Metric::Memory => "KiB",
        }
    }

    /// Whether a larger value is the better one.
    pub fn more_is_better(self) -> bool {
        matches!(
            self,
            Metric::PutRate
                | Metric::PairRate
                | Metric::Bandwidth
                | Metric::CopyNt
                | Metric::MessageBandwidth
                | Metric::Multicast
                | Metric::FiInjectAtomic
                | Metric::FiSum
                | Metric::FiWriteBandwidth
                | Metric::FiReadBandwidth
        )
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
        match self {
            Metric::PutNotice => "put + notice, one way (limit: data and flag in two cache lines)",
            Metric::OneLine => "8 bytes and their flag in one cache line, one way",
            Metric::FetchAdd => "fetch-and-add on an idle remote word",
            Metric::Read => "get and its end",
            Metric::PutRate => "8-byte puts into a 4 KiB window",
            Metric::PairRate => "8-byte puts of every other process to the next one, all together",
            Metric::Bandwidth => "puts between two shared mappings (limit: plain memcpy)",
            Metric::CopyNt => "the same copy with non-temporal stores",
            Metric::Barrier => "barrier (limit: the best of the hand-written ones)",
            Metric::Allreduce => "sum of one double over all processes",
            Metric::Wake => "from the notice to the run of a parked waiter (limit: futex)",
            Metric::ProcessVm => "8 bytes by process_vm_writev",
            Metric::Register => {
                "registration of user memory (limit: pwrite of it into a new memfd)"
            }
            Metric::Relay => {
                "a hop of 8 bytes through session mode VCQs (limit: a put polled in memory)"
            }
            Metric::Passive => "passive message of 8 bytes, one way (core: the engine's message)",
            Metric::Message => {
                "message with its receipt, one way (limit: data and flag in two cache lines)"
            }
            Metric::MessageBandwidth => {
                "messages, one at a time (limit: the best way to copy what the sender has just written)"
            }
            Metric::Tagged => {
                "flag with 28 bytes, one way (limit: data and flag in two cache lines)"
            }
            Metric::Multicast => {
                "one process to all others (limit: a loop of blocking sends through a window of 8 KiB)"
            }
            Metric::IdleCpu => "CPU time of a process that waits in a barrier",
            Metric::FiFetchAdd => "fi_fetch_atomic of a u64",
            Metric::FiCompareSwap => "fi_compare_atomic of a u64",
            Metric::FiInjectAtomic => "fi_inject_atomic of a u64",
            Metric::FiSum => "fi_atomic, sums of doubles",
            Metric::FiWrite => "fi_write and its completion",
            Metric::FiWriteBandwidth => "fi_write",
            Metric::FiReadBandwidth => "fi_read, one after the other",
            Metric::FiMessage => "fi_send to fi_recv, one way",
            Metric::FiTagged => "fi_tsend to fi_trecv, one way",
            Metric::Start => "from launch to the first line of main work in every process",
            Metric::Memory => "memory that a process has more once it has joined its job",
        }
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
        Ok(Case {
            metric: Metric::of(name).ok_or_else(bad)?,
            processes: processes.parse().map_err(|_| bad())?,
            bytes: bytes.parse().map_err(|_| bad())?,
        })
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The cases of a run on shared memory. `quick` keeps fewer sizes and numbers of processes.
pub fn all(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |metric, processes, bytes: &[u64]| {
        cases.extend(bytes.iter().map(|&bytes| Case {
            metric,
            processes,
            bytes,
        }));
    };
    if quick {
        add(Metric::PutNotice, 2, &[8, 4 * KIB]);
    } else {
        add(
            Metric::PutNotice,
            2,
            &[8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB],
        );
    }
    add(Metric::OneLine, 2, &[8]);
    add(Metric::FetchAdd, 2, &[8]);
    add(Metric::Read, 2, &[2]);
    add(Metric::PutRate, 2, &[8]);
    for processes in over(quick, &[2, 4, 8, 16]) {
        add(Metric::PairRate, processes, &[8]);
    }
    let sizes: &[u64] = if quick {
        &[MIB, 64 * MIB]
    } else {
        &[64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
    };
    add(Metric::Bandwidth, 2, sizes);
    add(Metric::CopyNt, 2, sizes);
    add(Metric::Wake, 2, &[0]);
    add(Metric::ProcessVm, 2, &[8]);
    add(
        Metric::Register,
        2,
        &[4 * KIB, if quick { 64 * MIB } else { 1024 * MIB }],
    );
    add(Metric::Relay, 2, &[8]);
    add(Metric::Passive, 2, &[8]);
    for processes in [2, 4, 8, 16] {
        if quick && processes > 8 {
            continue;
        }
        add(Metric::Barrier, processes, &[0]);
        add(Metric::Allreduce, processes, &[8]);
    }
    add(
        Metric::Message,
        2,
        if quick { &[1] } else { &[1, 64, 4 * KIB] },
    );
    let sizes: &[u64] = if quick {
        &[MIB]
    } else {
        &[64 * KIB, MIB, 16 * MIB]
    };
    add(Metric::MessageBandwidth, 2, sizes);
    add(Metric::Tagged, 2, &[28]);
    add(Metric::Multicast, 48, &[64 * KIB]);
    add(Metric::IdleCpu, 48, &[0]);
    for metric in [
        Metric::FiFetchAdd,
        Metric::FiCompareSwap,
        Metric::FiInjectAtomic,
        Metric::FiWrite,
        Metric::FiMessage,
        Metric::FiTagged,
    ] {
        add(metric, 2, &[8]);
    }
    add(Metric::FiSum, 2, &[4 * KIB]);
    add(Metric::FiWriteBandwidth, 2, &[MIB]);
    add(Metric::FiReadBandwidth, 2, &[MIB]);
    for processes in over(quick, &[2, 4, 12, 48]) {
        add(Metric::Start, processes, &[0]);
        add(Metric::Memory, processes, &[0]);
    }
    cases.sort_unstable();
    cases
}

/// The numbers of processes of a plot. `quick` keeps only the first and the last.
fn over(quick: bool, all: &[u32]) -> impl Iterator<Item = u32> {
    let last = all.len() - 1;
    let kept = all.iter().enumerate();
    kept.filter(move |(nth, _)| !quick || *nth == 0 || *nth == last)
        .map(|(_, processes)| *processes)
}

/// Whether it is measured between processes that share no memory.
pub fn is_of_a_network(metric: Metric) -> bool {
    of_a_network(true).iter().any(|case| case.metric == metric)
}

/// The cases of a run between processes that share no memory.
pub fn of_a_network(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |metric, processes, bytes: &[u64]| {
        cases.extend(bytes.iter().map(|&bytes| Case {
            metric,
            processes,
            bytes,
        }));
    };
    let sizes: &[u64] = if quick {
        &[8]
    } else {
        &[8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB]
    };
    add(Metric::PutNotice, 2, sizes);
    add(Metric::FetchAdd, 2, &[8]);
    add(Metric::Read, 2, &[2]);
    add(Metric::PutRate, 2, &[8]);
    let sizes: &[u64] = if quick {
        &[64 * KIB, MIB]
    } else {
        &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
    };
    add(Metric::Bandwidth, 2, sizes);
    add(Metric::Barrier, 2, &[0]);
    add(Metric::Barrier, 4, &[0]);
    add(Metric::Message, 2, &[8]);
    add(Metric::FiTagged, 2, &[8]);
    cases.sort_unstable();
    cases
}
