//! Laws that are known not to hold in a column, with the reason. An unlisted law must hold: a law that itself reports "not
//! offered" fails without a pin. A listed law must not hold: a law that passes against its pin fails.

use crate::Law;
use crate::matrix::Column;

/// Treatment of a pinned law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The backend cannot offer its subject; the law itself reports this.
    Absent,
    /// It is currently broken there: it runs with `--pinned` only.
    Broken,
    /// It does not apply to such a column, and never runs in it.
    Inapplicable,
}

impl Why {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Why::Absent => "absent",
            Why::Broken => "broken",
            Why::Inapplicable => "not applicable",
        }
    }
}

/// A pin: a law, or all laws with the same start of the name, on a backend.
pub struct Pin {
    /// Value of UNIPGAS_BACKEND, or the name of a column.
    pub backend: &'static str,
    /// The law's name, or with a final * the start of names.
    pub law: &'static str,
    /// Treatment of the laws.
    pub why: Why,
    /// The reason: the missing property.
    pub reason: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $why:ident;)+) => {$(
        const fn $name(backend: &'static str, law: &'static str, reason: &'static str) -> Pin {
            Pin { backend, law, why: Why::$why, reason }
        }
    )+};
}

kinds! {
    absent = Absent;
    broken = Broken;
    inapplicable = Inapplicable;
}

const SEVERAL_HOSTS: &str =
    "RCCE_shmalloc gives addresses of memory that all UEs share, and hosts share none";

const DESCRIPTORS: &str =
    "the first operation to a peer takes a stream: without a free stream, that call fails";
const NO_ATOMICS: &str = "the network has no atomic operations: the engine asks the owner by active messages (core.atomic.*)";
const MACHINES: &str = "the environment is the machine's library's, and so is what is wrong in it";
const IN_PARTS: &str = "chaos splits transfers, and the network looks at each part by itself";
const ONE_TRANSPORT: &str = "a law of a single transport, with all peers on its host";

const UNDEFINED: &str = "it does what is undefined on the machine (uTofu User's Guide, §2.5, §2.6, §3.3, §3.6), at which the mock ends the program";
const AT_ONCE: &str = "descriptors hold their places until their VCQ is polled, and local memory is in use until then (uTofu User's Guide, §2.2.10)";
const ONE_TOQ: &str = "VCQs that share a CQ share its TOQ, and polls on any of them make room (uTofu User's Guide, §3.7.5.1)";

/// All of them.
pub const PINS: &[Pin] = &[
    absent("shm", "selftest.not-offered", "nobody has it"),
    absent("mixed", "rcce.shared.memory", SEVERAL_HOSTS),
    absent("poor", "core.transport.atomic.distinct", NO_ATOMICS),
    absent("ofi", "core.transport.atomic.distinct", NO_ATOMICS),
    inapplicable(
        "tofu",
        "core.transport.idle",
        "TNIs do not interrupt, so processes poll for arrivals at intervals",
    ),
    inapplicable("tofu", "utofu.resources.wrong-environment", MACHINES),
    inapplicable("tofu", "utofu.resources.other-backend", MACHINES),
    inapplicable(
        "tofu",
        "libfabric.lives.thread",
        "the library that stands for the machine's has a thread, too",
    ),
    inapplicable(
        "tofu",
        "gaspi.segment.bind.replaced",
        "memory that is registered again gets the same STADD (uTofu User's Guide, §2.6), so other pages in its place are not seen",
    ),
    inapplicable("mixed", "core.transport.*", ONE_TRANSPORT),
    inapplicable("verbs-chaos", "core.transport.registered", IN_PARTS),
    inapplicable("tofu-chaos", "core.transport.registered", IN_PARTS),
    inapplicable("tofu-mock", "utofu.vcq.foreign", UNDEFINED),
    inapplicable("tofu-mock", "utofu.put-stride.small-strides", UNDEFINED),
    inapplicable("tofu-mock", "utofu.tcq.errors", UNDEFINED),
    inapplicable("tofu-mock", "utofu.order.errors", UNDEFINED),
    inapplicable("tofu-mock", "utofu.session.afterwards", UNDEFINED),
    inapplicable("tofu-mock", "utofu.session.errors.local", UNDEFINED),
    inapplicable("tofu-mock", "utofu.growth.meanwhile", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.vcq", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.stadd", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.vbg", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.start", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.prepare", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.post_toq", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.poll", UNDEFINED),
    inapplicable("tofu-mock", "utofu.bad.random", UNDEFINED),
    inapplicable("tofu-mock", "utofu.errors.tcq", UNDEFINED),
    inapplicable("tofu-mock", "utofu.errors.mrq.local", UNDEFINED),
    inapplicable("tofu-mock", "utofu.errors.deregistered", UNDEFINED),
    inapplicable("tofu-mock", "utofu.errors.last", UNDEFINED),
    inapplicable("tofu-mock", "utofu.vcq.apart", ONE_TOQ),
    inapplicable("tofu-mock", "utofu.tcq.unread", ONE_TOQ),
    inapplicable(
        "tofu-mock",
        "utofu.resources.environment",
        "the double has its number of VCQs (TOFU_DOUBLE)",
    ),
    inapplicable("tofu-mock", "utofu.freed.*", UNDEFINED),
    inapplicable("tofu-mock", "utofu.memory.deregistered-in-use", UNDEFINED),
    inapplicable("tofu-mock", "utofu.exit.*", UNDEFINED),
    inapplicable("tofu-mock", "utofu.session.refused", UNDEFINED),
    inapplicable("tofu-mock", "utofu.vbg.foreign", UNDEFINED),
    inapplicable("tofu-mock", "utofu.vcq.freed", UNDEFINED),
    inapplicable("tofu-mock", "utofu.threads.counting", UNDEFINED),
    inapplicable("tofu-mock", "utofu.resources.vcqs", UNDEFINED),
    inapplicable("tofu-mock", "utofu.resources.vbgs", UNDEFINED),
    inapplicable("tofu-mock", "utofu.resources.stags", UNDEFINED),
    inapplicable("tofu-mock", "utofu.session.lacking", AT_ONCE),
    inapplicable("tofu-mock", "utofu.session.crowd", AT_ONCE),
    inapplicable("tofu-mock", "utofu.session.errors.chain", AT_ONCE),
    inapplicable(
        "verbs",
        "utofu.resources.no-locks",
        "a device reaches locked memory only",
    ),
    inapplicable(
        "verbs",
        "gaspi.atomic.cpu",
        "a device that is atomic with itself alone carries out the atomic operations (IBV_ATOMIC_HCA): instructions meanwhile are the program's concern (GASPI 17.1 §10.2.1)",
    ),
    broken("shm", "selftest.holds-against-its-pin", "for a test"),
    inapplicable("chaos", "selftest.holds-against-its-pin", "nobody asks it"),
    broken("streams", "utofu.memory.out-of-descriptors", DESCRIPTORS),
];

impl Pin {
    fn is_of(&self, column: &Column, law: &Law) -> bool {
        let named = match self.law.strip_suffix('*') {
            Some(beginning) => law.id.starts_with(beginning),
            None => law.id == self.law,
        };
        named && column.pins.contains(&self.backend)
    }
}

/// The pin of a law in a column.
pub fn find(column: &Column, law: &Law) -> Option<&'static Pin> {
    PINS.iter().find(|pin| pin.is_of(column, law))
}
