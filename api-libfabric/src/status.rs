//! Error numbers (fi_errno(3)), and the mapping of the engine's errors to them.

use unipgas_core::{Error, tell_refusal};
use unipgas_libfabric_sys::*;

/// A positive number of `rdma/fi_errno.h`. C functions return its negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// A result with a libfabric error.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:ident, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are those of the header")]
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($value);)*

            /// Its meaning, for fi_cq_strerror(3).
            pub fn text(self) -> &'static std::ffi::CStr {
                match self.0 {
                    $(value if value == $value => $text,)*
                    _ => c"unknown error",
                }
            }

            /// Its name in C.
            pub(crate) fn name(self) -> &'static str {
                match self.0 {
                    $(value if value == $value => stringify!($value),)*
                    _ => "unknown error",
                }
            }
        }
    };
}

numbers! {
    NOENT = FI_ENOENT, c"no such entry";
    IO = FI_EIO, c"input or output error";
    AGAIN = FI_EAGAIN, c"try again";
    NOMEM = FI_ENOMEM, c"out of a resource";
    ACCES = FI_EACCES, c"the memory does not allow this access, ends before it, or is not mapped there";
    BUSY = FI_EBUSY, c"in use";
    INVAL = FI_EINVAL, c"invalid argument";
    NOSPC = FI_ENOSPC, c"all are in use";
    NOSYS = FI_ENOSYS, c"not implemented";
    NOMSG = FI_ENOMSG, c"no message";
    NODATA = FI_ENODATA, c"no data";
    MSGSIZE = FI_EMSGSIZE, c"too long";
    NOPROTOOPT = FI_ENOPROTOOPT, c"no such option";
    OPNOTSUPP = FI_EOPNOTSUPP, c"operation not supported";
    ADDRINUSE = FI_EADDRINUSE, c"another endpoint is this service";
    ADDRNOTAVAIL = FI_EADDRNOTAVAIL, c"a name that an endpoint cannot choose";
    CONNRESET = FI_ECONNRESET, c"the peer process has died or closed its endpoint";
    TIMEDOUT = FI_ETIMEDOUT, c"timed out";
    HOSTUNREACH = FI_EHOSTUNREACH, c"the peer cannot be reached";
    CANCELED = FI_ECANCELED, c"cancelled";
    OTHER = FI_EOTHER, c"other error";
    TOOSMALL = FI_ETOOSMALL, c"the buffer is too small";
    OPBADSTATE = FI_EOPBADSTATE, c"not in this state";
    AVAIL = FI_EAVAIL, c"an error is available";
    BADFLAGS = FI_EBADFLAGS, c"flags not supported";
    NOEQ = FI_ENOEQ, c"no event queue";
    DOMAIN = FI_EDOMAIN, c"another domain";
    NOCQ = FI_ENOCQ, c"no completion queue";
    TRUNC = FI_ETRUNC, c"the message was longer than the buffer";
    NOKEY = FI_ENOKEY, c"the key is unknown, or already in use";
    NOAV = FI_ENOAV, c"no address vector";
}

impl From<Error> for Errno {
    #[cold]
    fn from(error: Error) -> Errno {
        // The number lacks the system's reason.
        tell_refusal(&error);
        match error {
            Error::OutOfBounds { .. } | Error::AccessDenied => Errno::ACCES,
            Error::StaleRegion => Errno::NOKEY,
            Error::Misaligned(_) | Error::InvalidArgument(_) => Errno::INVAL,
            Error::PeerDead | Error::RankDead(_) => Errno::CONNRESET,
            Error::Unreachable(_) => Errno::HOSTUNREACH,
            Error::Timeout => Errno::TIMEDOUT,
            Error::QueueFull | Error::NotNow | Error::InboxFull | Error::Busy => Errno::AGAIN,
            Error::Unsupported => Errno::OPNOTSUPP,
            Error::Exhausted(_) => Errno::NOMEM,
            Error::Taken(_) => Errno::NOKEY,
            Error::Refused(_) | Error::NotRegistered | Error::Os(_) => Errno::IO,
            Error::Ended => Errno::CANCELED,
        }
    }
}
