//! Return codes (RCCE.h), and what else can end a call.

use unipgas_core::Error;
use unipgas_ircce_sys as sys;

pub use unipgas_ircce_sys::{
    RCCE_ERROR_BASE as ERROR_BASE, RCCE_MAX_ERROR_STRING as MAX_ERROR_STRING,
    RCCE_SUCCESS as SUCCESS,
};

/// What a call can return beside success. The discriminants are the C values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    General = sys::iRCCE_ERROR,
    Target = sys::RCCE_ERROR_TARGET,
    Source = sys::RCCE_ERROR_SOURCE,
    Id = sys::RCCE_ERROR_ID,
    MessageLength = sys::RCCE_ERROR_MESSAGE_LENGTH,
    FlagUndefined = sys::RCCE_ERROR_FLAG_UNDEFINED,
    NumUes = sys::RCCE_ERROR_NUM_UES,
    DataOverlap = sys::RCCE_ERROR_DATA_OVERLAP,
    Alignment = sys::RCCE_ERROR_ALIGNMENT,
    DebugFlag = sys::RCCE_ERROR_DEBUG_FLAG,
    FlagNotInCommBuffer = sys::RCCE_ERROR_FLAG_NOT_IN_COMM_BUFFER,
    FlagStatusUndefined = sys::RCCE_ERROR_FLAG_STATUS_UNDEFINED,
    FlagNotAllocated = sys::RCCE_ERROR_FLAG_NOT_ALLOCATED,
    ValUndefined = sys::RCCE_ERROR_VAL_UNDEFINED,
    InvalidErrorCode = sys::RCCE_ERROR_INVALID_ERROR_CODE,
    RpcNotAllocated = sys::RCCE_ERROR_RPC_NOT_ALLOCATED,
    RpcInternal = sys::RCCE_ERROR_RPC_INTERNAL,
    MultipleRpcRequests = sys::RCCE_ERROR_MULTIPLE_RPC_REQUESTS,
    Fdivider = sys::RCCE_ERROR_FDIVIDER,
    FrequencyExceeded = sys::RCCE_ERROR_FREQUENCY_EXCEEDED,
    NoActiveRpcRequest = sys::RCCE_ERROR_NO_ACTIVE_RPC_REQUEST,
    StaleRpcRequest = sys::RCCE_ERROR_STALE_RPC_REQUEST,
    CommUndefined = sys::RCCE_ERROR_COMM_UNDEFINED,
    IllegalOp = sys::RCCE_ERROR_ILLEGAL_OP,
    IllegalType = sys::RCCE_ERROR_ILLEGAL_TYPE,
    Malloc = sys::RCCE_ERROR_MALLOC,
    CommInitialized = sys::RCCE_ERROR_COMM_INITIALIZED,
    CoreNotInHostfile = sys::RCCE_ERROR_CORE_NOT_IN_HOSTFILE,
}

/// Why a call did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A wrong argument, or nothing left of what was asked for.
    Code(Code),
    /// Another UE has died, or the engine failed. RCCE has no code for that: C programs end
    /// ([`environment::give_up`](crate::environment::give_up)).
    Engine(Error),
    /// Outside `RCCE_init` and `RCCE_finalize`.
    NotRunning,
}

/// The result of a call.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Failure::Code(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

/// By number from [`ERROR_BASE`]; `RCCE_ERROR_CORE_NOT_IN_HOSTFILE` has none, as in V1.0.13.
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

/// The text of a code; `None` for what is no code, or has no text.
pub fn text(code: i32) -> Option<&'static std::ffi::CStr> {
    let number = match code {
        SUCCESS => 0,
        _ => usize::try_from(code.checked_sub(ERROR_BASE)?)
            .ok()
            .filter(|number| *number > 0)?,
    };
    TEXTS.get(number).copied()
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Code::General => c"Not possible",
            Code::CoreNotInHostfile => c"Process is not part of the job",
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
            (Code::Id, 1_234_324),
            (Code::Alignment, 1_234_329),
            (Code::FlagNotAllocated, 1_234_333),
            (Code::InvalidErrorCode, 1_234_335),
            (Code::Fdivider, 1_234_339),
            (Code::CommUndefined, 1_234_343),
            (Code::CoreNotInHostfile, 1_234_348),
        ] {
            assert_eq!(code as i32, value);
        }
    }

    #[test]
    fn texts_are_short_and_differ() {
        let mut texts: Vec<_> = std::iter::once(SUCCESS)
            .chain(ERROR_BASE + 1..=Code::CommInitialized as i32)
            .map(|code| text(code).unwrap())
            .collect();
        assert!(
            texts
                .iter()
                .all(|text| text.to_bytes_with_nul().len() <= MAX_ERROR_STRING)
        );
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 27);
        for none in [
            1,
            -1,
            i32::MIN,
            i32::MAX,
            ERROR_BASE,
            Code::CoreNotInHostfile as i32,
        ] {
            assert_eq!(text(none), None, "{none}");
        }
    }
}
