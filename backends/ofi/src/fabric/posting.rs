//! The calls that post operations.

use std::ffi::c_void;

use unipgas_core::{Error, Result};
use unipgas_libfabric_sys::*;

use super::{Fabric, call};

impl Fabric {
    /// Posts a receive into the buffer. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `into` are valid, and used by no other code, until the completion, or until `self` is dropped.
    pub unsafe fn receive(
        &self,
        into: *mut u8,
        len: usize,
        desc: *mut c_void,
        context: usize,
    ) -> Result<()> {
        // SAFETY:
        // - contract of this function. The provider does not access memory at a context.
        posted(unsafe {
            call!(
                (*self.ep).msg,
                recv,
                self.ep,
                into.cast(),
                len,
                desc,
                FI_ADDR_UNSPEC,
                context as *mut c_void
            )
        })
    }

    /// Posts a send. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `from` are valid and unchanged until the completion.
    pub unsafe fn send(
        &self,
        from: *const u8,
        len: usize,
        desc: *mut c_void,
        to: u64,
        context: usize,
    ) -> Result<()> {
        // SAFETY:
        // - as for `receive`.
        posted(unsafe {
            call!(
                (*self.ep).msg,
                send,
                self.ep,
                from.cast(),
                len,
                desc,
                to,
                context as *mut c_void
            )
        })
    }

    /// Posts a signaled write, which completes when the bytes are at the target. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `from` are valid and unchanged until the completion. With `inline`: until this returns.
    pub unsafe fn write(
        &self,
        from: *const u8,
        len: usize,
        at: RemoteLocation,
        how: AccessParameters,
    ) -> Result<()> {
        let told = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        // SAFETY:
        // - contract of this function.
        unsafe { self.post_write(from, len, at, how, told) }
    }

    /// Posts an unsignaled write: only a failure produces an event. Errors: as [`posted`].
    ///
    /// # Safety
    /// As for [`write`](Fabric::write).
    pub unsafe fn write_untold(
        &self,
        from: *const u8,
        len: usize,
        at: RemoteLocation,
        how: AccessParameters,
    ) -> Result<()> {
        // SAFETY:
        // - contract of this function.
        unsafe { self.post_write(from, len, at, how, 0) }
    }

    unsafe fn post_write(
        &self,
        from: *const u8,
        len: usize,
        at: RemoteLocation,
        how: AccessParameters,
        mut flags: u64,
    ) -> Result<()> {
        let iov = libc::iovec {
            iov_base: from.cast_mut().cast(),
            iov_len: len,
        };
        let far = fi_rma_iov {
            addr: at.address,
            len,
            key: at.key,
        };
        let mut desc = how.desc;
        let message = fi_msg_rma {
            msg_iov: &raw const iov,
            desc: &raw mut desc,
            iov_count: 1,
            addr: at.peer,
            rma_iov: &raw const far,
            rma_iov_count: 1,
            context: how.context as *mut c_void,
            data: how.data.unwrap_or(0),
        };
        if how.inline {
            flags |= FI_INJECT;
        }
        if how.data.is_some() {
            flags |= FI_REMOTE_CQ_DATA;
        }
        // SAFETY:
        // - the message and its parts live through the call. Contract of the callers: the bytes are valid.
        posted(unsafe { call!((*self.ep).rma, writemsg, self.ep, &raw const message, flags) })
    }

    /// Posts a read. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `into` are valid, and used by no other code, until the completion.
    pub unsafe fn read_from(
        &self,
        into: *mut u8,
        len: usize,
        at: RemoteLocation,
        how: AccessParameters,
    ) -> Result<()> {
        // SAFETY:
        // - contract of this function.
        posted(unsafe {
            call!(
                (*self.ep).rma,
                read,
                self.ep,
                into.cast(),
                len,
                how.desc,
                at.peer,
                at.address,
                at.key,
                how.context as *mut c_void
            )
        })
    }
}

/// A place in a peer's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteLocation {
    /// Number of the peer in the address vector.
    pub peer: u64,
    /// Address at the peer, or offset in the registration.
    pub address: u64,
    /// Key of the registration.
    pub key: u64,
}

/// Parameters of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessParameters {
    /// Descriptor of the local memory.
    pub desc: *mut c_void,
    /// Context of the completion.
    pub context: usize,
    /// Data for the target's completion queue.
    pub data: Option<u64>,
    /// The call copies the source.
    pub inline: bool,
}

/// Result of a call that posts an operation. Errors: [`Error::NotNow`], and all errors of [`failure`].
fn posted(status: isize) -> Result<()> {
    match -status as i32 {
        0 => Ok(()),
        libc::EAGAIN | libc::ENOMEM => Err(Error::NotNow),
        error => Err(failure(error)),
    }
}

/// The error for a number of fi_errno(3).
pub fn failure(error: i32) -> Error {
    match error {
        libc::ECONNREFUSED
        | libc::ECONNRESET
        | libc::ECONNABORTED
        | libc::ENOTCONN
        | libc::ESHUTDOWN
        | libc::EPIPE
        | libc::ETIMEDOUT
        | libc::EHOSTUNREACH
        | libc::EHOSTDOWN
        | libc::ENETUNREACH
        | libc::ECANCELED
        | libc::EIO => Error::PeerDead,
        // FI_ENOKEY
        266 | libc::EACCES | libc::EPERM | libc::EINVAL => Error::StaleRegion,
        libc::ENOSYS | libc::EOPNOTSUPP => Error::Unsupported,
        _ => Error::Os(format!("libfabric: error {error}")),
    }
}
