//! Return codes (guide §3.1.2), and the one mapping of the engine's errors and faults to them.

use unipgas_core::port::Fault;
use unipgas_core::refused::{POINTERS, Reason};
use unipgas_core::{Error, tell_refusal};

pub use unipgas_utofu_sys::UTOFU_SUCCESS as SUCCESS;

macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $c_name:ident,)*) => {
        /// `enum utofu_return_code` without its success.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum ReturnCode { $(#[doc = $meaning] $name = unipgas_utofu_sys::$c_name,)* }

        impl ReturnCode {
            /// Every code.
            pub const ALL: &'static [ReturnCode] = &[$(ReturnCode::$name),*];

            /// Its meaning, in a few words.
            pub fn meaning(self) -> &'static str {
                match self { $(ReturnCode::$name => $meaning.trim(),)* }
            }

            /// Its name in C.
            pub fn c_name(self) -> &'static str {
                match self { $(ReturnCode::$name => stringify!($c_name),)* }
            }
        }
    };
}

codes! {
    /// No new entry in the queue.
    NotFound = UTOFU_ERR_NOT_FOUND,
    /// The barrier communication is in progress.
    NotCompleted = UTOFU_ERR_NOT_COMPLETED,
    /// The operation has not been processed.
    NotProcessed = UTOFU_ERR_NOT_PROCESSED,
    /// The queue is full, or the circuit is in use: try again later.
    Busy = UTOFU_ERR_BUSY,
    /// Another user holds the resource.
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

impl ReturnCode {
    /// Whether the caller should retry: no result yet, or no room yet.
    #[inline]
    pub fn asks_for_patience(self) -> bool {
        self as i32 >= ReturnCode::Busy as i32
    }
}

impl ReturnCode {
    /// Likely causes of the code, and a remedy.
    pub(crate) fn reason(self) -> Reason {
        #[rustfmt::skip]
        let (suspects, remedy): (&[&str], _) = match self {
            ReturnCode::NotFound | ReturnCode::NotCompleted | ReturnCode::NotProcessed | ReturnCode::Busy => (&[], "poll the TCQ and the MRQ, and call it again"),
            ReturnCode::Used => (&["stag", "cmp_id"], "take another number, or free the resource that has this one"),
            ReturnCode::Full => (&["num", "tni_id"], "free what is not used any more, or take another TNI"),
            ReturnCode::NotAvailable => (&["flags", "tni_id"], "ask for less by flags; the child of a fork starts uTofu in a new program"),
            ReturnCode::NotSupported => (&["flags", "op"], "ask utofu_query_onesided_caps or utofu_query_barrier_caps for what there is"),
            ReturnCode::TcqOther | ReturnCode::TcqDesc => (&["desc"], "post descriptors as utofu_prepare_* have written them, with this VCQ"),
            ReturnCode::TcqMemory | ReturnCode::MrqLclMemory => (&["lcl_stadd"], "keep the memory mapped, and writable for a get, until the operation is over"),
            ReturnCode::TcqStadd | ReturnCode::MrqLclStadd => (&["lcl_stadd"], "register the local memory with the same VCQ, and deregister it after the operation"),
            ReturnCode::TcqLength | ReturnCode::MrqLclLength => (&["lcl_stadd", "length"], "stay within the local registration"),
            ReturnCode::MrqOther => (&[], "the network has failed: UNIPGAS_LOG=info says more"),
            ReturnCode::MrqPeer => (&["rmt_vcq_id"], "let the peer create the VCQ before, and free it after the operation"),
            ReturnCode::MrqRmtMemory => (&["rmt_stadd"], "register the remote memory without READ_ONLY, and keep it mapped"),
            ReturnCode::MrqRmtStadd => (&["rmt_stadd"], "let the peer register the memory with that VCQ before, and deregister it after the operation"),
            ReturnCode::MrqRmtLength => (&["rmt_stadd", "length"], "stay within the remote registration"),
            ReturnCode::BarrierOther => (&["vbg_id"], "set the circuit again by utofu_set_vbg: a gate of it has failed, or a participant has ended"),
            ReturnCode::BarrierMismatch => (&["op", "num_data", "data"], "let all participants start the same operation with as many elements"),
            ReturnCode::InvalidArg => (&[], "compare the arguments with the section of the guide on this function"),
            ReturnCode::InvalidPointer => (&[POINTERS], "give the address of a variable; descriptors are aligned to 8 bytes"),
            ReturnCode::InvalidFlags => (&["flags"], "give 0, or the flags that the section on this function names"),
            ReturnCode::InvalidCoords => (&["coords"], "give six coordinates within the shape of the network (UNIPGAS_TOFU_SHAPE)"),
            ReturnCode::InvalidPath => (&["path_coords", "settings"], "give three path coordinates of the shape, or UTOFU_PATH_COORD_NULL"),
            ReturnCode::InvalidTniId => (&["tni_id"], "take a TNI that utofu_get_onesided_tnis or utofu_get_barrier_tnis names"),
            ReturnCode::InvalidCqId => (&["cq_id"], "take a CQ id that utofu_query_vcq_info gives"),
            ReturnCode::InvalidBgId => (&["bg_id", "vbg_id"], "take a VBG id that utofu_alloc_vbg gives"),
            ReturnCode::InvalidCmpId => (&["cmp_id"], "take a component id below that of the caps (num_cmp_ids)"),
            ReturnCode::InvalidVcqHdl => (&["vcq_hdl"], "take a handle that utofu_create_vcq has given and utofu_free_vcq has not freed"),
            ReturnCode::InvalidVcqId => (&["vcq_id"], "take an id from utofu_query_vcq_id or utofu_construct_vcq_id, of a node of the shape"),
            ReturnCode::InvalidVbgId => (&["vbg_id", "settings"], "take ids from utofu_alloc_vbg, the first of them to start and to poll"),
            ReturnCode::InvalidPathId => (&["path_id", "flags"], "take a path id that utofu_get_path_id gives for this VCQ id"),
            ReturnCode::InvalidStadd => (&["stadd"], "take a STADD from utofu_reg_mem, or from utofu_query_stadd for a STag"),
            ReturnCode::InvalidAddress => (&["addr", "stadd", "desc"], "give mapped memory; a STag wants multiples of 256, an atomic operation an aligned address"),
            ReturnCode::InvalidSize => (&["size", "length", "mtu"], "give more than 0 and no more than the caps allow; a STag wants multiples of 256"),
            ReturnCode::InvalidStag => (&["stag"], "take a STag below that of the caps (num_reserved_stags)"),
            ReturnCode::InvalidEdata => (&["edata"], "take an edata that fits into edata_size bytes of the caps"),
            ReturnCode::InvalidNumber => (&["num", "blocks", "stride"], "give more than 0 and no more than the caps allow"),
            ReturnCode::InvalidOp => (&["op"], "take an UTOFU_ARMW_OP_* or UTOFU_REDUCE_OP_* that this function knows"),
            ReturnCode::InvalidDesc => (&["desc"], "post what utofu_prepare_* have written, with the sum of their sizes"),
            ReturnCode::InvalidData => (&["data", "settings", "gap"], "give values that the section on this function allows"),
            ReturnCode::OutOfResource => (&[], "raise the limit of open files or of locked memory (ulimit -n, ulimit -l)"),
            ReturnCode::OutOfMemory => (&[], "free memory"),
            ReturnCode::Fatal => (&[], "UNIPGAS_LOG=info says what has failed"),
        };
        Reason { suspects, remedy }
    }
}

/// Success, or a code.
pub type Result<T> = std::result::Result<T, ReturnCode>;

/// The code of an engine error, unless the function has a more exact one. A refusal of the system also prints a line.
#[cold]
pub fn from_engine(error: Error) -> ReturnCode {
    tell_refusal(&error);
    match error {
        Error::QueueFull | Error::NotNow | Error::Busy => ReturnCode::Busy,
        Error::Taken(_) => ReturnCode::Used,
        Error::Exhausted(_) => ReturnCode::Full,
        Error::StaleRegion => ReturnCode::InvalidStadd,
        Error::OutOfBounds { .. } => ReturnCode::InvalidSize,
        Error::Misaligned(_) => ReturnCode::InvalidAddress,
        Error::Unsupported => ReturnCode::NotSupported,
        Error::InvalidArgument(_) => ReturnCode::InvalidArg,
        Error::AccessDenied
        | Error::PeerDead
        | Error::RankDead(_)
        | Error::Unreachable(_)
        | Error::Timeout
        | Error::InboxFull
        | Error::Refused(_)
        | Error::NotRegistered
        | Error::Ended
        | Error::Os(_) => ReturnCode::Fatal,
    }
}

/// The code of a command's fault.
#[cold]
#[inline(never)]
pub fn from_fault(fault: Fault) -> ReturnCode {
    match fault {
        Fault::SendMemory => ReturnCode::TcqMemory,
        Fault::SendKey => ReturnCode::TcqStadd,
        Fault::SendLength => ReturnCode::TcqLength,
        Fault::Peer => ReturnCode::MrqPeer,
        Fault::LocalMemory => ReturnCode::MrqLclMemory,
        Fault::LocalKey => ReturnCode::MrqLclStadd,
        Fault::LocalLength => ReturnCode::MrqLclLength,
        Fault::RemoteMemory => ReturnCode::MrqRmtMemory,
        Fault::RemoteKey => ReturnCode::MrqRmtStadd,
        Fault::RemoteLength => ReturnCode::MrqRmtLength,
        Fault::Other => ReturnCode::MrqOther,
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
            let code = ReturnCode::ALL.iter().find(|code| code.c_name() == name);
            let code = code.unwrap_or_else(|| panic!("{name} is not there"));
            assert_eq!(*code as i32 as i128, value, "{name}");
            assert!(code.meaning().ends_with('.'), "{code:?}");
            named += 1;
        }
        assert_eq!(named, ReturnCode::ALL.len());
    }

    /// Each suspect of a reason is part of an argument's name in the header.
    #[test]
    fn reasons_name_arguments_of_the_header() {
        let header = include_str!("../include/utofu.h");
        let prototypes: String = header
            .split("\nint utofu_")
            .skip(1)
            .filter_map(|rest| rest.split(';').next())
            .collect();
        for code in ReturnCode::ALL {
            let reason = code.reason();
            assert!(!reason.remedy.is_empty(), "{code:?}");
            for suspect in reason
                .suspects
                .iter()
                .filter(|suspect| **suspect != POINTERS)
            {
                assert!(
                    prototypes.contains(suspect),
                    "{code:?}: no function has {suspect}"
                );
            }
            if code.c_name().starts_with("UTOFU_ERR_INVALID_") && *code != ReturnCode::InvalidArg {
                assert!(!reason.suspects.is_empty(), "{code:?}");
            }
        }
    }

    #[test]
    fn four_codes_ask_for_patience() {
        let patient: Vec<_> = ReturnCode::ALL
            .iter()
            .filter(|code| code.asks_for_patience())
            .collect();
        assert_eq!(
            patient,
            [
                &ReturnCode::NotFound,
                &ReturnCode::NotCompleted,
                &ReturnCode::NotProcessed,
                &ReturnCode::Busy
            ]
        );
    }
}
