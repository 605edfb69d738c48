//! Return codes (RCCE.h), and other failures of a call.

use unipgas_core::Error;
use unipgas_core::refused::{POINTERS, Reason};
use unipgas_ircce_sys as sys;

pub use unipgas_ircce_sys::{
    RCCE_ERROR_BASE as ERROR_BASE, RCCE_MAX_ERROR_STRING as MAX_ERROR_STRING,
    RCCE_SUCCESS as SUCCESS,
};

macro_rules! codes {
    ($($name:ident = $c_name:ident,)*) => {
        /// Error codes of calls. The discriminants are the C values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(missing_docs)]
        pub enum ErrorCode { $($name = sys::$c_name,)* }

        impl ErrorCode {
            /// All codes.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            /// Its name in C.
            pub fn c_name(self) -> &'static str {
                match self { $(ErrorCode::$name => stringify!($c_name),)* }
            }
        }
    };
}

codes! {
    General = iRCCE_ERROR,
    Target = RCCE_ERROR_TARGET,
    Source = RCCE_ERROR_SOURCE,
    Id = RCCE_ERROR_ID,
    MessageLength = RCCE_ERROR_MESSAGE_LENGTH,
    FlagUndefined = RCCE_ERROR_FLAG_UNDEFINED,
    NumUes = RCCE_ERROR_NUM_UES,
    DataOverlap = RCCE_ERROR_DATA_OVERLAP,
    Alignment = RCCE_ERROR_ALIGNMENT,
    DebugFlag = RCCE_ERROR_DEBUG_FLAG,
    FlagNotInCommBuffer = RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER,
    FlagStatusUndefined = RCCE_ERROR_FLAG_STATUS_UNDEFINED,
    FlagNotAllocated = RCCE_ERROR_FLAG_NOT_ALLOCATED,
    ValUndefined = RCCE_ERROR_VAL_UNDEFINED,
    InvalidErrorCode = RCCE_ERROR_INVALID_ERROR_CODE,
    RpcNotAllocated = RCCE_ERROR_RPC_NOT_ALLOCATED,
    RpcInternal = RCCE_ERROR_RPC_INTERNAL,
    MultipleRpcRequests = RCCE_ERROR_MULTIPLE_RPC_REQUESTS,
    Fdivider = RCCE_ERROR_FDIVIDER,
    FrequencyExceeded = RCCE_ERROR_FREQUENCY_EXCEEDED,
    NoActiveRpcRequest = RCCE_ERROR_NO_ACTIVE_RPC_REQUEST,
    StaleRpcRequest = RCCE_ERROR_STALE_RPC_REQUEST,
    CommUndefined = RCCE_ERROR_COMM_UNDEFINED,
    IllegalOp = RCCE_ERROR_ILLEGAL_OP,
    IllegalType = RCCE_ERROR_ILLEGAL_TYPE,
    Malloc = RCCE_ERROR_MALLOC,
    CommInitialized = RCCE_ERROR_COMM_INITIALIZED,
    CoreNotInHostfile = RCCE_ERROR_CORE_NOT_IN_HOSTFILE,
}

impl ErrorCode {
    /// The suspect arguments of a call that returns this code, and a remedy.
    pub(crate) fn reason(self) -> Reason {
        #[rustfmt::skip]
        let (suspects, remedy): (&[&str], _) = match self {
            ErrorCode::General => (&["request", "list", "index"], "give a request or list that iRCCE has filled, and that has not ended"),
            ErrorCode::Target => (&["target"], "give memory of the MPB, from RCCE_malloc, with room for all bytes"),
            ErrorCode::Source => (&["source"], "give memory of the MPB, from RCCE_malloc, with all bytes"),
            ErrorCode::Id => (&["id", "ue", "dest", "source", "root"], "UEs go from 0 to RCCE_num_ues() - 1; RCCE_init comes first"),
            ErrorCode::MessageLength => (&["size", "num", "len", "bytes"], "give no negative length; RCCE_put and RCCE_get want multiples of 32 bytes"),
            ErrorCode::FlagUndefined => (&["flag"], "give a flag that RCCE_flag_alloc has filled; free MPB memory if none is left"),
            ErrorCode::NumUes => (&["argc", "argv", "num"], "start at most 48 UEs"),
            ErrorCode::DataOverlap => (&["source", "target"], "let source and target have no byte in common"),
            ErrorCode::Alignment => (&["source", "target", "size", "num"], "begin at a multiple of 32 bytes, and move whole lines"),
            ErrorCode::DebugFlag => (&["flag"], "take an RCCE_DEBUG_* flag"),
            ErrorCode::FlagNotInCommBuffer => (&["flag"], "give a flag of the MPB, from RCCE_flag_alloc"),
            ErrorCode::FlagStatusUndefined => (&["val"], "take RCCE_FLAG_SET or RCCE_FLAG_UNSET"),
            ErrorCode::FlagNotAllocated => (&["flag"], "call RCCE_flag_alloc first"),
            ErrorCode::ValUndefined => (&[POINTERS], "give the address of a variable"),
            ErrorCode::InvalidErrorCode => (&["error", "code"], "give a code that a function has returned"),
            ErrorCode::RpcNotAllocated => (&[], "call RCCE_init first"),
            ErrorCode::RpcInternal => (&[], "UNIPGAS_LOG=info says what has failed"),
            ErrorCode::MultipleRpcRequests => (&[], "call RCCE_wait_power before the next request"),
            ErrorCode::Fdivider => (&["divider"], "take a divider from 2 to 16"),
            ErrorCode::FrequencyExceeded => (&["divider"], "take a larger divider, or raise the voltage first by RCCE_iset_power"),
            ErrorCode::NoActiveRpcRequest | ErrorCode::StaleRpcRequest => (&["request"], "call RCCE_iset_power first, and wait once"),
            ErrorCode::CommUndefined => (&["comm"], "give the address of a communicator"),
            ErrorCode::IllegalOp => (&["op"], "take RCCE_SUM, RCCE_MAX, RCCE_MIN or RCCE_PROD"),
            ErrorCode::IllegalType => (&["type"], "take RCCE_INT, RCCE_LONG, RCCE_FLOAT or RCCE_DOUBLE"),
            ErrorCode::Malloc => (&[], "free memory of the MPB by RCCE_free"),
            ErrorCode::CommInitialized => (&["comm"], "make the communicator by RCCE_comm_split first"),
            ErrorCode::CoreNotInHostfile => (&["argc", "argv"], "start the program by unipgas run, with numbers that are in the host file"),
        };
        Reason { suspects, remedy }
    }
}

/// The reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An invalid argument, or an exhausted resource.
    Code(ErrorCode),
    /// Another UE has died, or the engine failed. RCCE has no code for it, so C programs end ([`environment::give_up`](crate::environment::give_up)).
    Engine(Error),
    /// The call came before `RCCE_init` or after `RCCE_finalize`.
    NotRunning,
}

/// The result of a call.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Failure::Code(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

/// The texts of the codes, in order from [`ERROR_BASE`]. `RCCE_ERROR_CORE_NOT_IN_HOSTFILE` has no text, as in V1.0.13.
const TEXTS: [&std::ffi::CStr; 27] = [
    c"Success",
    c"Target is not in the MPB",
    c"Source is not in the MPB",
    c"There is no UE of this number",
    c"Wrong length of data",
    c"Flag is not defined",
    c"Wrong number of UEs",
    c"Source and target overlap",
    c"Address is not a multiple of the line size",
    c"There is no such debug flag",
    c"Flag is not in this UE's MPB",
    c"A flag is set or unset, nothing else",
    c"Flag is not allocated",
    c"No place for the value",
    c"There is no such error code",
    c"Power regulator is not allocated",
    c"Power regulator failed",
    c"A power request is under way already",
    c"No voltage allows this frequency",
    c"Frequency is too high for the voltage",
    c"No power request is under way",
    c"Power request has ended already",
    c"Communicator is not defined",
    c"There is no such reduction",
    c"There is no such data type",
    c"Out of memory",
    c"Communicator is not initialized",
];

/// The text of a code. `None`: the number is not a code, or the code has no text.
pub fn text(code: i32) -> Option<&'static std::ffi::CStr> {
    let number = match code {
        SUCCESS => 0,
        _ => usize::try_from(code.checked_sub(ERROR_BASE)?)
            .ok()
            .filter(|number| *number > 0)?,
    };
    TEXTS.get(number).copied()
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            ErrorCode::General => c"Not possible",
            ErrorCode::CoreNotInHostfile => c"Process is not part of the job",
            code => text(*code as i32).unwrap_or_default(),
        };
        f.write_str(&text.to_string_lossy())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Code(code) => code.fmt(f),
            Failure::Engine(error) => error.fmt(f),
            Failure::NotRunning => f.write_str("call RCCE_init first"),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_header() {
        for (code, value) in [
            (ErrorCode::Id, 1_234_324),
            (ErrorCode::Alignment, 1_234_329),
            (ErrorCode::FlagNotAllocated, 1_234_333),
            (ErrorCode::InvalidErrorCode, 1_234_335),
            (ErrorCode::Fdivider, 1_234_339),
            (ErrorCode::CommUndefined, 1_234_343),
            (ErrorCode::CoreNotInHostfile, 1_234_348),
        ] {
            assert_eq!(code as i32, value);
        }
    }
}
