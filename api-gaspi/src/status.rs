//! Return codes (GASPI 17.1 §3.11, §4.2.2), and the table that maps errors of the engine to them. Release 1.6 defines the specific codes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unipgas_core::{Error, tell_refusal};
use unipgas_gaspi_sys as sys;

/// All return codes except success. The discriminants are the C values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Status {
    Error = sys::GASPI_ERROR,
    Timeout = sys::GASPI_TIMEOUT,
    ErrEmfile = sys::GASPI_ERR_EMFILE,
    ErrEnv = sys::GASPI_ERR_ENV,
    ErrSnPort = sys::GASPI_ERR_SN_PORT,
    ErrConfig = sys::GASPI_ERR_CONFIG,
    ErrNoinit = sys::GASPI_ERR_NOINIT,
    ErrInited = sys::GASPI_ERR_INITED,
    ErrNullptr = sys::GASPI_ERR_NULLPTR,
    ErrInvSegsize = sys::GASPI_ERR_INV_SEGSIZE,
    ErrInvSeg = sys::GASPI_ERR_INV_SEG,
    ErrInvGroup = sys::GASPI_ERR_INV_GROUP,
    ErrInvRank = sys::GASPI_ERR_INV_RANK,
    ErrInvQueue = sys::GASPI_ERR_INV_QUEUE,
    ErrInvLocOff = sys::GASPI_ERR_INV_LOC_OFF,
    ErrInvRemOff = sys::GASPI_ERR_INV_REM_OFF,
    ErrInvCommsize = sys::GASPI_ERR_INV_COMMSIZE,
    ErrInvNotifVal = sys::GASPI_ERR_INV_NOTIF_VAL,
    ErrInvNotifId = sys::GASPI_ERR_INV_NOTIF_ID,
    ErrInvNum = sys::GASPI_ERR_INV_NUM,
    ErrInvSize = sys::GASPI_ERR_INV_SIZE,
    ErrManySeg = sys::GASPI_ERR_MANY_SEG,
    ErrManyGrp = sys::GASPI_ERR_MANY_GRP,
    QueueFull = sys::GASPI_QUEUE_FULL,
    ErrUnalignOff = sys::GASPI_ERR_UNALIGN_OFF,
    ErrActiveColl = sys::GASPI_ERR_ACTIVE_COLL,
    ErrDevice = sys::GASPI_ERR_DEVICE,
    ErrSn = sys::GASPI_ERR_SN,
    ErrMemalloc = sys::GASPI_ERR_MEMALLOC,
}

/// The result of a procedure.
pub type Result<T> = std::result::Result<T, Status>;

pub use unipgas_gaspi_sys::GASPI_SUCCESS as SUCCESS;

const TEXTS: [(i32, &std::ffi::CStr); 30] = [
    (-1, c"general error"),
    (0, c"success"),
    (
        1,
        c"timeout: the operation is not complete; call again to continue it",
    ),
    (2, c"too many open files"),
    (
        3,
        c"the job's environment is missing or wrong: start the program by unipgas run",
    ),
    (4, c"the port of the configuration is not usable"),
    (5, c"a value of the configuration is not possible"),
    (6, c"gaspi_proc_init has not been called"),
    (7, c"gaspi_proc_init has been called already"),
    (8, c"null pointer"),
    (
        9,
        c"a segment must have at least 1 byte, and fit into memory",
    ),
    (
        10,
        c"no such segment, or it is not registered with this rank",
    ),
    (11, c"no such group, or it is not committed"),
    (12, c"no such rank"),
    (13, c"no such queue"),
    (14, c"the local offset and size leave the segment"),
    (15, c"the remote offset and size leave the segment"),
    (16, c"the transfer is larger than gaspi_transfer_size_max"),
    (17, c"a notification must not be zero"),
    (
        18,
        c"the notification id is not below gaspi_notification_num",
    ),
    (19, c"invalid number of elements"),
    (20, c"invalid size"),
    (21, c"no further segment: see gaspi_segment_max"),
    (22, c"no further group: see gaspi_group_max"),
    (23, c"the queue is full: call gaspi_wait"),
    (24, c"the offset must be a multiple of 8"),
    (25, c"a collective operation is active on this group"),
    (26, c"the network device failed"),
    (27, c"a process of the job could not be reached"),
    (28, c"out of memory"),
];

/// The text of a code. `None` for another number.
pub fn text(code: i32) -> Option<&'static std::ffi::CStr> {
    TEXTS
        .iter()
        .find(|(known, _)| *known == code)
        .map(|(_, text)| *text)
}

/// The code for an error of the engine. A refusal of the system also prints a line.
#[cold]
pub fn from_engine(error: Error) -> Status {
    tell_refusal(&error);
    let status = code_of(&error);
    if status == Status::Error {
        // Many errors have this code. The log has the cause.
        tracing::debug!("{status}: {error}");
    }
    status
}

/// The mapping of the engine's errors. A procedure that knows the cause better, as which of two offsets is wrong, returns its own code.
pub(crate) fn code_of(error: &Error) -> Status {
    match error {
        Error::Timeout => Status::Timeout,
        Error::QueueFull | Error::NotNow => Status::QueueFull,
        Error::OutOfBounds { .. } => Status::ErrInvRemOff,
        Error::Misaligned(_) => Status::ErrUnalignOff,
        Error::StaleRegion | Error::AccessDenied => Status::ErrInvSeg,
        Error::Busy => Status::ErrActiveColl,
        Error::Unreachable(_) => Status::ErrSn,
        Error::Exhausted(_) | Error::Taken(_) => Status::ErrMemalloc,
        Error::PeerDead
        | Error::RankDead(_)
        | Error::InboxFull
        | Error::Refused(_)
        | Error::Unsupported
        | Error::InvalidArgument(_)
        | Error::NotRegistered
        | Error::Ended
        | Error::Os(_) => Status::Error,
    }
}

/// Runs a procedure. A panic is a defect of the library, and becomes `GASPI_ERROR`.
#[inline(always)]
pub(crate) fn code(procedure: impl FnOnce() -> Result<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(procedure)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status as i32,
        Err(_) => Status::Error as i32,
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = text(*self as i32).unwrap_or(c"unknown");
        f.write_str(&text.to_string_lossy())
    }
}

impl std::error::Error for Status {}
