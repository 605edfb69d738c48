//! What is known not to hold in a column, law by law, with the reason. What is not listed here has to hold: a law that says by itself that
//! something is not offered fails where nobody has pinned that.

use crate::Law;
use crate::matrix::Column;

/// What becomes of a pinned law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It looks for something that the backend cannot have, and says so itself.
    Absent,
    /// It is broken there for now: it runs with `--pinned` only.
    Broken,
}

/// A law, or all whose names begin alike, on a backend.
pub struct Pin {
    /// As in UNIPGAS_BACKEND.
    pub backend: &'static str,
    /// The law's name; with a * at its end the beginning of names.
    pub law: &'static str,
    /// What becomes of it.
    pub why: Why,
    /// What it lacks.
    pub reason: &'static str,
}

const fn absent(backend: &'static str, law: &'static str, reason: &'static str) -> Pin {
    Pin {
        backend,
        law,
        why: Why::Absent,
        reason,
    }
}

const fn broken(backend: &'static str, law: &'static str, reason: &'static str) -> Pin {
    Pin {
        backend,
        law,
        why: Why::Broken,
        reason,
    }
}

const NOT_MAPPED: &str =
    "RCCE_shmalloc gives addresses of memory that all UEs share, and there is none";

const GATES: &str = "a gate takes its inputs, and is executed, where its memory is mapped";
const TRIGGERS: &str = "a triggered command is started by whoever brings the arrival, where the port's memory is mapped";
const DESCRIPTORS: &str =
    "every peer costs a stream when it is talked to first: where none is left, that call fails";
const ACCESS: &str = "whether a program may write what it registers is not looked at";

/// All of them.
pub const PINS: &[Pin] = &[
    absent("shm", "selftest.not-offered", "nobody has it"),
    absent("opaque", "rcce.shared.*", NOT_MAPPED),
    broken("opaque", "utofu.bad.barrier", GATES),
    broken("opaque", "utofu.barrier.both-inputs", GATES),
    broken("opaque", "utofu.barrier.busy", GATES),
    broken("opaque", "utofu.barrier.circuits", GATES),
    broken("opaque", "utofu.barrier.elements", GATES),
    broken("opaque", "utofu.barrier.free", GATES),
    broken("opaque", "utofu.barrier.maxloc", GATES),
    broken("opaque", "utofu.barrier.mismatch", GATES),
    broken("opaque", "utofu.barrier.neighbours", GATES),
    broken("opaque", "utofu.barrier.not-before", GATES),
    broken("opaque", "utofu.barrier.not-before.reduce", GATES),
    broken("opaque", "utofu.barrier.one-node", GATES),
    broken("opaque", "utofu.barrier.overrun", GATES),
    broken("opaque", "utofu.barrier.overrun.relay", GATES),
    broken("opaque", "utofu.barrier.reduce_double", GATES),
    broken("opaque", "utofu.barrier.reduce_double.same-bits", GATES),
    broken("opaque", "utofu.barrier.reduce_double.special", GATES),
    broken("opaque", "utofu.barrier.reduce_uint64", GATES),
    broken("opaque", "utofu.barrier.relay-asleep", GATES),
    broken("opaque", "utofu.barrier.returns", GATES),
    broken("opaque", "utofu.barrier.rounds", GATES),
    broken("opaque", "utofu.barrier.set_again", GATES),
    broken("opaque", "utofu.barrier.several", GATES),
    broken("opaque", "utofu.barrier.wrong-source", GATES),
    broken("opaque", "utofu.failure.any-moment", GATES),
    broken("opaque", "utofu.failure.barrier", GATES),
    broken("opaque", "utofu.failure.barrier.far", GATES),
    broken("opaque", "utofu.failure.other-circuits", GATES),
    broken("opaque", "utofu.growth.own-gates", GATES),
    broken("opaque", "utofu.growth.peers-gates", GATES),
    broken("opaque", "utofu.threads.for-another", GATES),
    broken("opaque", "utofu.threads.one-vbg", GATES),
    broken("opaque", "utofu.threads.vbgs", GATES),
    broken("opaque", "utofu.vbg.bits", GATES),
    broken("opaque", "utofu.vbg.foreign", GATES),
    broken("opaque", "utofu.vbg.paths", GATES),
    broken("opaque", "utofu.vbg.threads", GATES),
    broken("opaque", "utofu.vbg.threads.kinds", GATES),
    broken("opaque", "utofu.vcq.foreign", GATES),
    broken("opaque", "utofu.failure.mrq-overflow.session", TRIGGERS),
    broken("opaque", "utofu.failure.session", TRIGGERS),
    broken("opaque", "utofu.order.lines.session", TRIGGERS),
    broken("opaque", "utofu.session.afterwards", TRIGGERS),
    broken("opaque", "utofu.session.both-modes", TRIGGERS),
    broken("opaque", "utofu.session.completions", TRIGGERS),
    broken("opaque", "utofu.session.crowd", TRIGGERS),
    broken("opaque", "utofu.session.errors", TRIGGERS),
    broken("opaque", "utofu.session.errors.chain", TRIGGERS),
    broken("opaque", "utofu.session.errors.local", TRIGGERS),
    broken("opaque", "utofu.session.every-put", TRIGGERS),
    broken("opaque", "utofu.session.fork", TRIGGERS),
    broken("opaque", "utofu.session.join", TRIGGERS),
    broken("opaque", "utofu.session.lacking", TRIGGERS),
    broken("opaque", "utofu.session.nop", TRIGGERS),
    broken("opaque", "utofu.session.only-puts", TRIGGERS),
    broken("opaque", "utofu.session.pipeline", TRIGGERS),
    broken("opaque", "utofu.session.prepared-steps", TRIGGERS),
    broken("opaque", "utofu.session.ring", TRIGGERS),
    broken("opaque", "utofu.session.steps", TRIGGERS),
    broken("opaque", "utofu.session.strong", TRIGGERS),
    broken("opaque", "utofu.session.waits", TRIGGERS),
    broken("opaque", "utofu.bad.memory", ACCESS),
    broken("opaque", "utofu.memory.out-of-descriptors", DESCRIPTORS),
    broken("opaque", "libfabric.mr.read-only", ACCESS),
];

impl Pin {
    fn is_of(&self, column: &Column, law: &Law) -> bool {
        let named = match self.law.strip_suffix('*') {
            Some(beginning) => law.id.starts_with(beginning),
            None => law.id == self.law,
        };
        named && self.backend == column.backend
    }
}

/// What is pinned of a law in a column.
pub fn find(column: &Column, law: &Law) -> Option<&'static Pin> {
    PINS.iter().find(|pin| pin.is_of(column, law))
}
