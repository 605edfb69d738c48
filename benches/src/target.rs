//! Targets for figures of unipgas.

use crate::case::{Case, Metric};

/// A bound on one figure of unipgas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FigureBound {
    /// Value at most this multiple of the limit.
    AtMostLimit(f64),
    /// Value at least this multiple of the limit.
    AtLeastLimit(f64),
    /// Value at most this multiple of the provider's value.
    AtMostProvider(f64),
    /// Value at least this multiple of the provider's value.
    AtLeastProvider(f64),
    /// Value at most this multiple of the value of this column.
    AtMostOf(&'static str, f64),
    /// Better than the best peer by at least this factor.
    AheadOfPeers(f64),
    /// Better than this peer by at least this factor.
    AheadOf(&'static str, f64),
    /// Value at most this.
    AtMost(f64),
    /// Value at least this.
    AtLeast(f64),
}

impl FigureBound {
    /// In words.
    pub fn words(self, case: Case) -> String {
        let (unit, limit) = (case.metric.unit(), limit_words(case));
        match self {
            FigureBound::AtMostLimit(f) => format!("at most {f:.2} x {limit}"),
            FigureBound::AtLeastLimit(f) => format!("at least {f:.2} x {limit}"),
            FigureBound::AtMostProvider(f) => format!("at most {f:.2} x the provider's own"),
            FigureBound::AtLeastProvider(f) => format!("at least {f:.2} x the provider's own"),
            FigureBound::AtMostOf(column, f) => format!("at most {f:.2} x {column}"),
            FigureBound::AheadOfPeers(1.0) => "ahead of every peer".into(),
            FigureBound::AheadOfPeers(f) => format!("at least {f:.1} x better than every peer"),
            FigureBound::AheadOf(peer, f) => format!("at least {f:.1} x better than {peer}"),
            FigureBound::AtMost(v) => format!("at most {v} {unit}"),
            FigureBound::AtLeast(v) => format!("at least {v} {unit}"),
        }
    }
}

fn limit_words(case: Case) -> &'static str {
    match case.metric {
        Metric::PutNotice | Metric::Message | Metric::Passive | Metric::Tagged => {
            "the bare two-line exchange"
        }
        Metric::Allreduce => "the best bare sum",
        Metric::MessageBandwidth => "the best copy",
        Metric::Multicast => "the loop of blocking sends",
        Metric::OneLine | Metric::Relay => "the bare one-line exchange",
        Metric::FetchAdd => "the bare locked add",
        Metric::Bandwidth => "plain memcpy",
        Metric::Barrier => "the best bare barrier",
        Metric::Wake => "a bare futex wake",
        Metric::Register => "a pwrite of it into a new memfd",
        _ => "the limit",
    }
}

/// The targets of a column, for processes that share no memory.
pub fn of_a_network(case: Case, api: &str) -> Vec<FigureBound> {
    use FigureBound::*;
    let is_ours = crate::record::is_ours(crate::samples::family(api));
    match (case.metric, case.bytes) {
        _ if !is_ours => Vec::new(),
        (Metric::PutNotice, 8) => vec![AtMostProvider(1.25), AheadOfPeers(1.0)],
        (Metric::FetchAdd, _) => vec![AtMostProvider(1.25), AheadOfPeers(1.0)],
        (Metric::Read, _) => vec![AtMostProvider(1.3)],
        (Metric::PutRate, _) => vec![AtLeastProvider(0.9), AheadOfPeers(1.0)],
        (Metric::Bandwidth, b) if b == 1 << 20 => vec![AtLeastProvider(0.95), AheadOfPeers(1.0)],
        (Metric::Message | Metric::FiTagged, _) => vec![AtMostProvider(1.2), AheadOfPeers(1.0)],
        (Metric::Barrier, _) => vec![AheadOfPeers(1.0)],
        _ => Vec::new(),
    }
}

/// The targets of a column.
pub fn of(case: Case, api: &str) -> Vec<FigureBound> {
    use FigureBound::*;
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match (case.metric, case.processes, case.bytes, api) {
        (Metric::PutNotice, _, 8, "core") => vec![AtMostLimit(1.10)],
        (Metric::PutNotice, _, 8, "gaspi") => vec![AtMostLimit(1.20)],
        (Metric::PutNotice, _, b, "core" | "gaspi") if b == 4 * KIB => vec![AtMostLimit(1.15)],
        (Metric::FetchAdd, _, _, "core") => vec![AtMostLimit(2.0)],
        (Metric::FetchAdd, _, _, "gaspi") => vec![AtMostLimit(4.0), AheadOfPeers(1.0)],
        (Metric::PutRate, _, 8, "core") => vec![AheadOfPeers(1.2)],
        (Metric::PutRate, _, 8, "gaspi") => vec![AtLeast(150.0)],
        (Metric::Passive, _, 8, "gaspi") => vec![AtMostOf("core", 1.3)],
        (Metric::Allreduce, _, 8, "gaspi") => vec![AtMostLimit(1.4)],
        (Metric::Bandwidth, _, b, "core" | "gaspi") if b == MIB => vec![AtLeastLimit(0.97)],
        (Metric::Bandwidth, _, b, "core" | "gaspi") if b == 64 * MIB => vec![AtLeastLimit(1.2)],
        (Metric::Barrier, 2, _, "core") => vec![AtMostLimit(1.2)],
        (Metric::Barrier, 2, _, "gaspi") => vec![AtMostLimit(1.3)],
        (Metric::Barrier, 8, _, "core" | "gaspi") => {
            vec![AtMostLimit(1.5), AheadOf("openmpi", 2.0)]
        }
        (Metric::Wake, _, _, "core" | "gaspi") => vec![AtMostLimit(1.5)],
        (Metric::Register, _, b, "core" | "gaspi") if b == 4 * KIB => vec![AtMost(40.0)],
        (Metric::Register, _, b, "core" | "gaspi") if b >= MIB => vec![AtMostLimit(1.5)],
        (Metric::PutNotice, _, 8, "utofu") => vec![AtMostLimit(1.5)],
        (Metric::OneLine, _, 8, "utofu") => vec![AtMostLimit(1.15)],
        (Metric::FetchAdd, _, _, "utofu") => vec![AtMost(40.0)],
        (Metric::PutRate, _, 8, "utofu") => vec![AtLeast(40.0)],
        // Stricter than a plain put: a hop is compared with the one-line exchange.
        (Metric::Relay, _, _, "utofu") => vec![AtMostLimit(1.3)],
        (Metric::Register, _, b, "utofu") if b == 4 * KIB => vec![AtMost(40.0)],
        (Metric::Register, _, b, "utofu") if b >= MIB => vec![AtMostLimit(1.5)],
        (Metric::Message, _, 1, "ircce") => vec![AtMostLimit(1.3), AheadOfPeers(1.0)],
        (Metric::MessageBandwidth, _, b, "ircce") if b == MIB => {
            vec![AtLeastLimit(0.9), AheadOfPeers(1.0)]
        }
        (Metric::MessageBandwidth, _, b, "ircce") if b > MIB => vec![AheadOfPeers(1.0)],
        (Metric::Tagged, _, _, "ircce") => vec![AtMostLimit(1.1)],
        (Metric::Multicast, _, _, "ircce/multicast") => vec![AtLeastLimit(24.0)],
        (
            Metric::FiFetchAdd | Metric::FiCompareSwap | Metric::FiInjectAtomic,
            _,
            _,
            "libfabric",
        ) => {
            vec![AheadOf("ofi_shm", 20.0)]
        }
        (Metric::FiSum, _, _, "libfabric") => vec![AheadOf("ofi_shm", 10.0)],
        (Metric::FiWrite, _, _, "libfabric") => vec![AheadOf("ofi_shm", 8.0)],
        (Metric::FiWriteBandwidth | Metric::FiReadBandwidth, _, _, "libfabric") => {
            vec![AheadOf("ofi_shm", 1.0)]
        }
        (Metric::FiMessage | Metric::FiTagged, _, _, "libfabric") => vec![AheadOf("ofi_shm", 2.0)],
        (Metric::Start, 48, _, "gaspi") => vec![AtMost(1000.0)],
        _ => Vec::new(),
    }
}
