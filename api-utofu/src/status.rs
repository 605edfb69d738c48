//! Return codes (guide §3.1.2), and the one mapping of the engine's errors and faults to them.

use unipgas_core::port::Fault;
use unipgas_core::{Error, tell_refusal};

/// `UTOFU_SUCCESS`.
pub const SUCCESS: i32 = 0;

macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $value:literal,)*) => {
        /// `enum utofu_return_code` without its success.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code { $(#[doc = $meaning] $name = $value,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// What it means, in a few words.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => $meaning.trim(),)* }
            }
        }
    };
}

codes! {
    /// No new entry in the queue.
    NotFound = -1,
    /// The barrier communication is under way.
    NotCompleted = -2,
    /// The operation has not been processed.
    NotProcessed = -3,
    /// The queue is full, or the circuit is in use: try again later.
    Busy = -4,
    /// Somebody else has the resource.
    Used = -5,
    /// No more of the resource.
    Full = -6,
    /// Nothing of the kind that the flags ask for.
    NotAvailable = -7,
    /// Not supported.
    NotSupported = -8,
    /// Another error, when sending.
    TcqOther = -128,
    /// The descriptor is wrong.
    TcqDesc = -129,
    /// The local memory cannot be read.
    TcqMemory = -130,
    /// The local STADD is outside of registered memory.
    TcqStadd = -131,
    /// The end of the local range is outside of registered memory.
    TcqLength = -132,
    /// Another error, after sending.
    MrqOther = -192,
    /// The peer process has gone, or has no such VCQ.
    MrqPeer = -193,
    /// The local memory cannot be written.
    MrqLclMemory = -194,
    /// The remote memory cannot be accessed so.
    MrqRmtMemory = -195,
    /// The local STADD is outside of registered memory.
    MrqLclStadd = -196,
    /// The remote STADD is outside of registered memory.
    MrqRmtStadd = -197,
    /// The end of the local range is outside of registered memory.
    MrqLclLength = -198,
    /// The end of the remote range is outside of registered memory.
    MrqRmtLength = -199,
    /// Another error of barrier communication.
    BarrierOther = -256,
    /// The participants do not agree on the operation.
    BarrierMismatch = -257,
    /// An argument is wrong.
    InvalidArg = -512,
    /// A pointer is wrong.
    InvalidPointer = -513,
    /// Flags are wrong.
    InvalidFlags = -514,
    /// Compute node coordinates are wrong.
    InvalidCoords = -515,
    /// Communication path coordinates are wrong.
    InvalidPath = -516,
    /// A TNI id is wrong.
    InvalidTniId = -517,
    /// A CQ id is wrong.
    InvalidCqId = -518,
    /// A BG id is wrong.
    InvalidBgId = -519,
    /// A component id is wrong.
    InvalidCmpId = -520,
    /// A VCQ handle is wrong.
    InvalidVcqHdl = -521,
    /// A VCQ id is wrong.
    InvalidVcqId = -522,
    /// A VBG id is wrong.
    InvalidVbgId = -523,
    /// A communication path id is wrong.
    InvalidPathId = -524,
    /// A STADD is wrong.
    InvalidStadd = -525,
    /// A memory address is wrong.
    InvalidAddress = -526,
    /// A size or length is wrong.
    InvalidSize = -527,
    /// A STag is wrong.
    InvalidStag = -528,
    /// EDATA is wrong.
    InvalidEdata = -529,
    /// A number of things is wrong.
    InvalidNumber = -530,
    /// An operation is wrong.
    InvalidOp = -531,
    /// A descriptor is wrong.
    InvalidDesc = -532,
    /// Data of a structure is wrong.
    InvalidData = -533,
    /// A resource other than memory is exhausted.
    OutOfResource = -640,
    /// Memory is exhausted.
    OutOfMemory = -641,
    /// Fatal.
    Fatal = -768,
}

impl Code {
    /// Its name in C.
    pub fn c_name(self) -> String {
        let mut name = "UTOFU_ERR".to_owned();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        name
    }

    /// Whether it says no more than that there is nothing yet, or no room yet.
    #[inline]
    pub fn asks_for_patience(self) -> bool {
        self as i32 >= Code::Busy as i32
    }
}

/// Success, or a code.
pub type Result<T> = std::result::Result<T, Code>;

/// The engine's errors, where no function knows better. What the system has refused is told in a line, too.
#[cold]
pub fn from_engine(error: Error) -> Code {
    tell_refusal(&error);
    match error {
        Error::QueueFull | Error::NotNow | Error::Busy => Code::Busy,
        Error::Taken(_) => Code::Used,
        Error::Exhausted(_) => Code::Full,
        Error::StaleRegion => Code::InvalidStadd,
        Error::OutOfBounds { .. } => Code::InvalidSize,
        Error::Misaligned(_) => Code::InvalidAddress,
        Error::Unsupported => Code::NotSupported,
        Error::InvalidArgument(_) => Code::InvalidArg,
        Error::AccessDenied
        | Error::PeerDead
        | Error::RankDead(_)
        | Error::Unreachable(_)
        | Error::Timeout
        | Error::InboxFull
        | Error::Refused(_)
        | Error::NotRegistered
        | Error::Os(_) => Code::Fatal,
    }
}

/// What became of a command.
#[cold]
#[inline(never)]
pub fn from_fault(fault: Fault) -> Code {
    match fault {
        Fault::SendMemory => Code::TcqMemory,
        Fault::SendKey => Code::TcqStadd,
        Fault::SendLength => Code::TcqLength,
        Fault::Peer => Code::MrqPeer,
        Fault::LocalMemory => Code::MrqLclMemory,
        Fault::LocalKey => Code::MrqLclStadd,
        Fault::LocalLength => Code::MrqLclLength,
        Fault::RemoteMemory => Code::MrqRmtMemory,
        Fault::RemoteKey => Code::MrqRmtStadd,
        Fault::RemoteLength => Code::MrqRmtLength,
        Fault::Other => Code::MrqOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_header() {
        let header = include_str!("../include/utofu.h");
        for code in Code::ALL {
            let line = format!("{} = {}", code.c_name(), *code as i32);
            assert!(header.contains(&line), "{line}");
            assert!(code.meaning().ends_with('.'), "{code:?}");
        }
    }

    #[test]
    fn four_codes_ask_for_patience() {
        let patient: Vec<_> = Code::ALL
            .iter()
            .filter(|code| code.asks_for_patience())
            .collect();
        assert_eq!(
            patient,
            [
                &Code::NotFound,
                &Code::NotCompleted,
                &Code::NotProcessed,
                &Code::Busy
            ]
        );
    }
}
