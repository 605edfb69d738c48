//! Error numbers (fi_errno(3)), and the one mapping of the engine's errors to them.

use unipgas_core::{Error, tell_refusal};

/// A positive number of `rdma/fi_errno.h`; functions of C return its negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// The interface's result.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are those of the header")]
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($value);)*

            /// What it means, for fi_cq_strerror(3).
            pub fn text(self) -> &'static std::ffi::CStr {
                match self.0 {
                    $(value if value == $value => $text,)*
                    _ => c"unknown error",
                }
            }
        }
    };
}

numbers! {
    NOENT = libc::ENOENT, c"no such entry";
    IO = libc::EIO, c"input or output error";
    AGAIN = libc::EAGAIN, c"try again";
    NOMEM = libc::ENOMEM, c"out of a resource";
    ACCES = libc::EACCES, c"the memory does not allow this access, or ends before it";
    BUSY = libc::EBUSY, c"in use";
    INVAL = libc::EINVAL, c"invalid argument";
    NOSPC = libc::ENOSPC, c"all are in use";
    NOSYS = libc::ENOSYS, c"not implemented";
    NOMSG = libc::ENOMSG, c"no message";
    NODATA = libc::ENODATA, c"no data";
    MSGSIZE = libc::EMSGSIZE, c"too long";
    NOPROTOOPT = libc::ENOPROTOOPT, c"no such option";
    OPNOTSUPP = libc::EOPNOTSUPP, c"operation not supported";
    ADDRINUSE = libc::EADDRINUSE, c"another endpoint is this service";
    ADDRNOTAVAIL = libc::EADDRNOTAVAIL, c"a name that an endpoint cannot choose";
    CONNRESET = libc::ECONNRESET, c"the peer process has died or closed its endpoint";
    TIMEDOUT = libc::ETIMEDOUT, c"timed out";
    HOSTUNREACH = libc::EHOSTUNREACH, c"the peer cannot be reached";
    CANCELED = libc::ECANCELED, c"cancelled";
    OTHER = 256, c"other error";
    TOOSMALL = 257, c"the buffer is too small";
    OPBADSTATE = 258, c"not in this state";
    AVAIL = 259, c"an error is available";
    BADFLAGS = 260, c"flags not supported";
    NOEQ = 261, c"no event queue";
    DOMAIN = 262, c"another domain";
    NOCQ = 263, c"no completion queue";
    TRUNC = 265, c"the message was longer than the buffer";
    NOKEY = 266, c"the key is not, or no longer, in use";
    NOAV = 267, c"no address vector";
}

impl From<Error> for Errno {
    #[cold]
    fn from(error: Error) -> Errno {
        // The numbers cannot say what the system has refused.
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
        }
    }
}
