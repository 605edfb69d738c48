//! Memory registered with the provider.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use unipgas_core::{Error, Result, Rights};
use unipgas_libfabric_sys::*;

use super::{Fabric, call, close};

impl Fabric {
    /// Registers memory. `key` applies if the provider does not choose keys. Errors: [`Error::Exhausted`]; [`Error::Unreachable`] if the endpoint
    /// refuses it.
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until the registration is dropped.
    pub unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
        key: u64,
    ) -> Result<OfiRegistration> {
        let iov = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        let mut access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        if rights.contains(Rights::READ) {
            access |= FI_REMOTE_READ;
        }
        if rights.contains(Rights::WRITE) {
            access |= FI_REMOTE_WRITE;
        }
        let attributes = fi_mr_attr {
            mr_iov: &raw const iov,
            iov_count: 1,
            access,
            offset: 0,
            requested_key: key,
            context: null_mut(),
            auth_key_size: 0,
            auth_key: null_mut(),
            iface: FI_HMEM_SYSTEM,
            device: 0,
        };
        let mut mr = null_mut();
        // SAFETY:
        // - the attributes live through the call. Contract of this function: the memory is valid.
        unsafe {
            let status = call!(
                (*self.domain).mr,
                regattr,
                self.domain.cast(),
                &raw const attributes,
                0,
                &raw mut mr
            );
            if status != 0 {
                let why = self.text(status as c_int);
                return Err(Error::Exhausted(format!(
                    "registrations with {}: {why}",
                    self.traits.provider
                )));
            }
            let registration = OfiRegistration { mr };
            if self.traits.by_endpoint {
                let of = mr.cast::<fid>();
                let status = call!((*of).ops, bind, of, self.ep.cast(), 0);
                self.check("fi_mr_bind", status)?;
                let status = call!((*of).ops, control, of, FI_ENABLE, null_mut());
                self.check("fi_mr_enable", status)?;
            }
            Ok(registration)
        }
    }
}

/// Memory registered with the provider.
pub(crate) struct OfiRegistration {
    mr: *mut fid_mr,
}

// SAFETY:
// - as for Fabric.
unsafe impl Send for OfiRegistration {}
// SAFETY:
// - as for Fabric.
unsafe impl Sync for OfiRegistration {}

impl OfiRegistration {
    /// Descriptor for operands.
    pub fn desc(&self) -> *mut c_void {
        // SAFETY:
        // - the registration is open.
        unsafe { (*self.mr).mem_desc }
    }

    /// Key for peers.
    pub fn key(&self) -> u64 {
        // SAFETY:
        // - the registration is open.
        unsafe { (*self.mr).key }
    }
}

impl Drop for OfiRegistration {
    fn drop(&mut self) {
        // SAFETY:
        // - the registration is open, and has no other owner.
        unsafe { close(self.mr.cast()) };
    }
}
