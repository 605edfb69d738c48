//! Limits of the interfaces.

use unipgas::core::job::board::MAX_SIZE;
use unipgas::core::port::{Command, DEPTH, KEYS};
use unipgas::gaspi::config;
use unipgas::ircce::{self, comm::MAX_UES, flag::MAX_TAGGED_LEN, launch::MPB_MAX, mpb};
use unipgas::libfabric::atomics::{self, Family, kinds};
use unipgas::libfabric::{collectives, domain, endpoint, memory, messages, rma, service};
use unipgas::utofu::caps;
use unipgas::utofu::environment::UtofuSettings;
use unipgas::utofu::shape::MAX_NODES;

/// Largest jobs in tests/run-examples, in processes: GASPI, uTofu.
const TRIED: [u64; 2] = [1000, 200];

/// A name and a number.
pub(super) type Limit = (&'static str, u64);

/// The limits of all interfaces. The environment can change some limits of uTofu and RCCE.
pub fn limits(wishes: &UtofuSettings, of_ircce: &ircce::launch::LaunchSettings) -> Vec<Limit> {
    let mut all = vec![
        ("processes", u64::from(MAX_SIZE)),
        ("processes that were tried", TRIED[0]),
        ("uTofu processes that were tried", TRIED[1]),
    ];
    all.extend(of_gaspi());
    all.extend(of_utofu(wishes));
    all.extend(of_rcce(of_ircce));
    all.extend(of_libfabric());
    all
}

fn of_gaspi() -> [Limit; 11] {
    let standard = config::Config::default();
    [
        ("GASPI segments per process", config::SEGMENT_MAX.into()),
        ("GASPI queues per process", config::QUEUE_MAX.into()),
        ("GASPI requests per queue", config::QUEUE_SIZE_MAX.into()),
        (
            "GASPI requests per queue where none are configured",
            standard.queue_size_max.into(),
        ),
        ("GASPI groups", config::GROUP_MAX.into()),
        (
            "GASPI notifications per segment",
            config::NOTIFICATION_MAX.into(),
        ),
        ("GASPI bytes of a transfer", config::TRANSFER_SIZE_MAX),
        (
            "GASPI bytes of a passive transfer",
            config::PASSIVE_TRANSFER_SIZE_MAX.into(),
        ),
        (
            "GASPI bytes of an all-reduce buffer",
            config::ALLREDUCE_BUF_MAX,
        ),
        (
            "GASPI elements of an all-reduce",
            standard.allreduce_elem_max.into(),
        ),
        (
            "GASPI transfers of a list operation",
            config::RW_LIST_ELEM_MAX.into(),
        ),
    ]
}

fn of_utofu(wishes: &UtofuSettings) -> [Limit; 20] {
    [
        ("uTofu nodes of a network", MAX_NODES.into()),
        ("uTofu TNIs per node", caps::TNIS.into()),
        ("uTofu CQs per TNI", caps::CQS.into()),
        ("uTofu VCQs per CQ", caps::CMP_IDS.into()),
        ("uTofu VBGs per TNI", caps::VBGS.into()),
        (
            "uTofu VBGs per TNI that start and end",
            caps::START_VBGS.into(),
        ),
        ("uTofu STags per VCQ", KEYS as u64),
        (
            "uTofu STags per VCQ that programs choose",
            caps::RESERVED_STAGS.into(),
        ),
        (
            "uTofu bytes that memory of a chosen STag is aligned to",
            caps::STAG_ALIGNMENT as u64,
        ),
        (
            "uTofu commands of a VCQ not polled in the TCQ",
            DEPTH as u64,
        ),
        (
            "uTofu bytes of a descriptor in the TOQ",
            Command::SIZE as u64,
        ),
        ("uTofu MRQ entries per VCQ", wishes.mrq_entries as u64),
        (
            "uTofu MRQ entries per session mode VCQ",
            wishes.mrq_entries_session as u64,
        ),
        ("uTofu bytes of a put or get", caps::MAX_PUTGET as u64),
        ("uTofu bytes of a piggyback", caps::MAX_PIGGYBACK as u64),
        ("uTofu bytes of edata", caps::ONESIDED.max_edata_size as u64),
        ("uTofu bytes of the MTU", caps::MAX_MTU as u64),
        ("uTofu transmission gap", caps::MAX_GAP as u64),
        ("uTofu integers of a reduction", caps::MAX_UINT64 as u64),
        (
            "uTofu floating-point numbers of a reduction",
            caps::MAX_DOUBLE as u64,
        ),
    ]
}

fn of_rcce(wishes: &ircce::launch::LaunchSettings) -> [Limit; 8] {
    [
        ("RCCE UEs", MAX_UES as u64),
        ("RCCE bytes of an MPB", wishes.mpb as u64),
        ("RCCE bytes of an MPB that can be wished", MPB_MAX as u64),
        ("RCCE bytes of a line of an MPB", mpb::LINE as u64),
        (
            "RCCE flags in an MPB that has nothing else",
            (wishes.mpb / mpb::LINE) as u64,
        ),
        ("RCCE bytes beside a tagged flag", MAX_TAGGED_LEN as u64),
        ("RCCE bytes of shared memory", ircce::SHARED_LEN as u64),
        ("iRCCE atomic registers", ircce::REGISTERS as u64),
    ]
}

fn of_libfabric() -> [Limit; 19] {
    [
        ("libfabric bytes of a message or RMA", rma::LONGEST as u64),
        (
            "libfabric bytes that are injected",
            endpoint::INJECT_SIZE as u64,
        ),
        ("libfabric parts of a list", endpoint::IOV_LIMIT as u64),
        (
            "libfabric operations that are open per endpoint",
            endpoint::DEPTH as u64,
        ),
        (
            "libfabric receives that are open per endpoint",
            endpoint::RECEIVES as u64,
        ),
        (
            "libfabric bytes of an atomic operation",
            atomics::MOST_BYTES as u64,
        ),
        (
            "libfabric bytes of an atomic operation on a tagged buffer",
            messages::MOST_TAGGED_BYTES as u64,
        ),
        (
            "libfabric kinds (type and operation) of fi_atomic",
            kinds(Family::Base) as u64,
        ),
        (
            "libfabric kinds (type and operation) of fi_fetch_atomic",
            kinds(Family::Fetch) as u64,
        ),
        (
            "libfabric kinds (type and operation) of fi_compare_atomic",
            kinds(Family::Compare) as u64,
        ),
        (
            "libfabric bytes that a collective operation counts",
            collectives::MOST_BYTES as u64,
        ),
        (
            "libfabric members of a group",
            collectives::MOST_MEMBERS as u64,
        ),
        ("libfabric bytes of a key", memory::KEY_SIZE as u64),
        (
            "libfabric bytes of a CQ's data",
            domain::CQ_DATA_SIZE as u64,
        ),
        (
            "libfabric memory regions per domain",
            domain::MOST_REGIONS as u64,
        ),
        (
            "libfabric endpoints per domain",
            domain::MOST_ENDPOINTS as u64,
        ),
        ("libfabric CQs per domain", domain::MOST as u64),
        ("libfabric counters per domain", domain::MOST as u64),
        (
            "libfabric bytes of a service's name",
            service::LONGEST_SERVICE as u64,
        ),
    ]
}
