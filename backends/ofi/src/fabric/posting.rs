//! The calls that post operations.

use std::ffi::c_void;

use unipgas_core::{Error, Result};
use unipgas_libfabric_sys::*;

use super::{Fabric, call};

impl Fabric {
    /// Receives into the buffer. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `into` are valid, and nobody else's, until the end of the operation is told, or `self` is dropped.
    pub unsafe fn receive(
        &self,
        into: *mut u8,
        len: usize,
        desc: *mut c_void,
        context: usize,
    ) -> Result<()> {
        // SAFETY:
        // - the caller's word; contexts are addresses, which are not looked at.
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

    /// Sends. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `from` are valid, and stay as they are, until the end of the operation is told.
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

    /// Writes, and ends when the bytes are there. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `from` are valid, and stay as they are, until the end of the operation is told, or this returns if `inline`.
    pub unsafe fn write(&self, from: *const u8, len: usize, at: Far, how: How) -> Result<()> {
        let told = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        // SAFETY:
        // - the caller's word.
        unsafe { self.post_write(from, len, at, how, told) }
    }

    /// Writes; of the end nobody is told, but of a failure. Errors: as [`posted`].
    ///
    /// # Safety
    /// As for [`write`](Fabric::write).
    pub unsafe fn write_untold(
        &self,
        from: *const u8,
        len: usize,
        at: Far,
        how: How,
    ) -> Result<()> {
        // SAFETY:
        // - the caller's word.
        unsafe { self.post_write(from, len, at, how, 0) }
    }

    unsafe fn post_write(
        &self,
        from: *const u8,
        len: usize,
        at: Far,
        how: How,
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
        // - the message and what it leads to live through the call, the bytes by the caller's word.
        posted(unsafe { call!((*self.ep).rma, writemsg, self.ep, &raw const message, flags) })
    }

    /// Reads. Errors: as [`posted`].
    ///
    /// # Safety
    /// `len` bytes at `into` are valid, and nobody else's, until the end of the operation is told.
    pub unsafe fn read_from(&self, into: *mut u8, len: usize, at: Far, how: How) -> Result<()> {
        // SAFETY:
        // - the caller's word.
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
pub struct Far {
    /// The peer's number.
    pub peer: u64,
    /// There, or the offset.
    pub address: u64,
    /// Of the registration.
    pub key: u64,
}

/// How an access goes.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Of the local memory.
    pub desc: *mut c_void,
    /// Told at its end.
    pub context: usize,
    /// Goes to the target's completion queue.
    pub data: Option<u64>,
    /// The source is taken in the call.
    pub inline: bool,
}

/// What a call that posts an operation has said. Errors: [`Error::NotNow`], [`Error::PeerDead`], [`Error::Unsupported`], [`Error::Os`].
fn posted(status: isize) -> Result<()> {
    match -status as i32 {
        0 => Ok(()),
        libc::EAGAIN | libc::ENOMEM => Err(Error::NotNow),
        error => Err(failure(error)),
    }
}

/// Why an operation has failed, of which fi_errno(3) says this.
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
