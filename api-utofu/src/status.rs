//! Return codes (guide §3.1.2), and the one mapping of the engine's errors and faults to them.

use unipgas_core::port::Fault;
use unipgas_core::{Error, tell_refusal};

pub use unipgas_utofu_sys::UTOFU_SUCCESS as SUCCESS;

macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $c_name:ident,)*) => {
        /// `enum utofu_return_code` without its success.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code { $(#[doc = $meaning] $name = unipgas_utofu_sys::$c_name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// What it means, in a few words.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => $meaning.trim(),)* }
            }

            /// Its name in C.
            pub fn c_name(self) -> &'static str {
                match self { $(Code::$name => stringify!($c_name),)* }
            }
        }
    };
}

codes! {
    /// No new entry in the queue.
    NotFound = UTOFU_ERR_NOT_FOUND,
    /// The barrier communication is under way.
    NotCompleted = UTOFU_ERR_NOT_COMPLETED,
    /// The operation has not been processed.
    NotProcessed = UTOFU_ERR_NOT_PROCESSED,
    /// The queue is full, or the circuit is in use: try again later.
    Busy = UTOFU_ERR_BUSY,
    /// Somebody else has the resource.
    Used = UTOFU_ERR_USED,
    /// No more of the resource.
    Full = UTOFU_ERR_FULL,
    /// Nothing of the kind that the flags ask for.
    NotAvailable = UTOFU_ERR_NOT_AVAILABLE,
    /// Not supported.
    NotSupported = UTOFU_ERR_NOT_SUPPORTED,
    /// Another error, when sending.
    TcqOther = UTOFU_ERR_TCQ_OTHER,
    /// The descriptor is wrong.
    TcqDesc = UTOFU_ERR_TCQ_DESC,
    /// The local memory cannot be read.
    TcqMemory = UTOFU_ERR_TCQ_MEMORY,
    /// The local STADD is outside of registered memory.
    TcqStadd = UTOFU_ERR_TCQ_STADD,
    /// The end of the local range is outside of registered memory.
    TcqLength = UTOFU_ERR_TCQ_LENGTH,
    /// Another error, after sending.
    MrqOther = UTOFU_ERR_MRQ_OTHER,
    /// The peer process has gone, or has no such VCQ.
    MrqPeer = UTOFU_ERR_MRQ_PEER,
    /// The local memory cannot be written.
    MrqLclMemory = UTOFU_ERR_MRQ_LCL_MEMORY,
    /// The remote memory cannot be accessed so.
    MrqRmtMemory = UTOFU_ERR_MRQ_RMT_MEMORY,
    /// The local STADD is outside of registered memory.
    MrqLclStadd = UTOFU_ERR_MRQ_LCL_STADD,
    /// The remote STADD is outside of registered memory.
    MrqRmtStadd = UTOFU_ERR_MRQ_RMT_STADD,
    /// The end of the local range is outside of registered memory.
    MrqLclLength = UTOFU_ERR_MRQ_LCL_LENGTH,
    /// The end of the remote range is outside of registered memory.
    MrqRmtLength = UTOFU_ERR_MRQ_RMT_LENGTH,
    /// Another error of barrier communication.
    BarrierOther = UTOFU_ERR_BARRIER_OTHER,
    /// The participants do not agree on the operation.
    BarrierMismatch = UTOFU_ERR_BARRIER_MISMATCH,
    /// An argument is wrong.
    InvalidArg = UTOFU_ERR_INVALID_ARG,
    /// A pointer is wrong.
    InvalidPointer = UTOFU_ERR_INVALID_POINTER,
    /// Flags are wrong.
    InvalidFlags = UTOFU_ERR_INVALID_FLAGS,
    /// Compute node coordinates are wrong.
    InvalidCoords = UTOFU_ERR_INVALID_COORDS,
    /// Communication path coordinates are wrong.
    InvalidPath = UTOFU_ERR_INVALID_PATH,
    /// A TNI id is wrong.
    InvalidTniId = UTOFU_ERR_INVALID_TNI_ID,
    /// A CQ id is wrong.
    InvalidCqId = UTOFU_ERR_INVALID_CQ_ID,
    /// A BG id is wrong.
    InvalidBgId = UTOFU_ERR_INVALID_BG_ID,
    /// A component id is wrong.
    InvalidCmpId = UTOFU_ERR_INVALID_CMP_ID,
    /// A VCQ handle is wrong.
    InvalidVcqHdl = UTOFU_ERR_INVALID_VCQ_HDL,
    /// A VCQ id is wrong.
    InvalidVcqId = UTOFU_ERR_INVALID_VCQ_ID,
    /// A VBG id is wrong.
    InvalidVbgId = UTOFU_ERR_INVALID_VBG_ID,
    /// A communication path id is wrong.
    InvalidPathId = UTOFU_ERR_INVALID_PATH_ID,
    /// A STADD is wrong.
    InvalidStadd = UTOFU_ERR_INVALID_STADD,
    /// A memory address is wrong.
    InvalidAddress = UTOFU_ERR_INVALID_ADDRESS,
    /// A size or length is wrong.
    InvalidSize = UTOFU_ERR_INVALID_SIZE,
    /// A STag is wrong.
    InvalidStag = UTOFU_ERR_INVALID_STAG,
    /// EDATA is wrong.
    InvalidEdata = UTOFU_ERR_INVALID_EDATA,
    /// A number of things is wrong.
    InvalidNumber = UTOFU_ERR_INVALID_NUMBER,
    /// An operation is wrong.
    InvalidOp = UTOFU_ERR_INVALID_OP,
    /// A descriptor is wrong.
    InvalidDesc = UTOFU_ERR_INVALID_DESC,
    /// Data of a structure is wrong.
    InvalidData = UTOFU_ERR_INVALID_DATA,
    /// A resource other than memory is exhausted.
    OutOfResource = UTOFU_ERR_OUT_OF_RESOURCE,
    /// Memory is exhausted.
    OutOfMemory = UTOFU_ERR_OUT_OF_MEMORY,
    /// Fatal.
    Fatal = UTOFU_ERR_FATAL,
}

impl Code {
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
        | Error::Ended
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
    fn every_code_of_the_header_has_a_meaning() {
        let mut named = 0;
        for (name, value) in unipgas_utofu_sys::constants() {
            if !name.starts_with("UTOFU_ERR_") {
                continue;
            }
            let code = Code::ALL.iter().find(|code| code.c_name() == name);
            let code = code.unwrap_or_else(|| panic!("{name} is not there"));
            assert_eq!(*code as i32 as i128, value, "{name}");
            assert!(code.meaning().ends_with('.'), "{code:?}");
            named += 1;
        }
        assert_eq!(named, Code::ALL.len());
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
