//! The libfabric objects of a process: a domain, an endpoint, a completion queue, an address vector. Only this module calls their C functions.
//!
//! `traits`: properties of the provider; `completion`: events of the queue; `posting`: the calls that post operations; `registration`: registered
//! memory.

mod completion;
mod posting;
mod registration;
mod traits;

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::null_mut;

use unipgas_core::{Error, Result};
use unipgas_libfabric_sys::*;

pub(crate) use completion::Event;
pub(crate) use posting::{AccessParameters, RemoteLocation, failure};
pub(crate) use registration::OfiRegistration;
pub(crate) use traits::Traits;

use crate::choice::ProviderInfo;
use crate::library::LibfabricLibrary;

/// Maximum length of an endpoint's name.
const NAME: usize = 64;
/// Operations in flight, of each kind. Some providers allocate memory for their maximum: tens of megabytes.
const QUEUE: usize = 256;

/// Calls a function of a table. Providers fill in all entries: unsupported functions return -FI_ENOSYS.
macro_rules! call {
    ($table:expr, $function:ident $(, $argument:expr)*) => {{
        crate::library::enter();
        ((*$table).$function)($($argument),*) as isize
    }};
}
use call;

/// The objects.
pub(crate) struct Fabric {
    library: &'static LibfabricLibrary,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    ep: *mut fid_ep,
    /// Counts completed writes.
    written: *mut fid_cntr,
    /// Properties of the provider.
    pub traits: Traits,
    /// Name of the endpoint, for the address vectors of peers.
    pub name: Vec<u8>,
    events: Option<RawFd>,
    info: ProviderInfo,
}

// SAFETY:
// - the objects are opened with FI_THREAD_SAFE: any thread may call any function.
unsafe impl Send for Fabric {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Fabric {}

impl Fabric {
    /// Opens the objects for `info`. Errors: [`Error::Unreachable`] with the failed call and its error.
    pub fn open(info: ProviderInfo) -> Result<Self> {
        let library = LibfabricLibrary::get().map_err(Error::Unreachable)?;
        let mut info = info;
        info.be_modest(QUEUE);
        info.tell_all_ends();
        let mut fabric = Fabric {
            library,
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            cq: null_mut(),
            ep: null_mut(),
            written: null_mut(),
            traits: Traits::of(&info),
            name: Vec::new(),
            events: None,
            info,
        };
        // Drop of `fabric` closes the open objects also after an error.
        library.with_defaults(|| fabric.open_all())?;
        Ok(fabric)
    }

    fn open_all(&mut self) -> Result<()> {
        let info = self.info.as_ptr();
        // SAFETY:
        // - the info is complete and outlives the objects. Each object is used only after a status of 0, when it exists.
        // - attributes live through the call.
        unsafe {
            let status =
                (self.library.fabric)((*info).fabric_attr, &raw mut self.fabric, null_mut());
            self.check("fi_fabric", status as isize)?;
            let status = call!(
                (*self.fabric).ops,
                domain,
                self.fabric,
                info,
                &raw mut self.domain,
                null_mut()
            );
            self.check("fi_domain", status)?;
            self.open_queue()?;
            let mut av: fi_av_attr = std::mem::zeroed();
            av.r#type = FI_AV_TABLE;
            let status = call!(
                (*self.domain).ops,
                av_open,
                self.domain,
                &raw mut av,
                &raw mut self.av,
                null_mut()
            );
            self.check("fi_av_open", status)?;
            let status = call!(
                (*self.domain).ops,
                endpoint,
                self.domain,
                info,
                &raw mut self.ep,
                null_mut()
            );
            self.check("fi_endpoint", status)?;
            let ep = self.ep.cast::<fid>();
            let status = call!((*ep).ops, bind, ep, self.av.cast(), 0);
            self.check("fi_ep_bind", status)?;
            let what = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
            let status = call!((*ep).ops, bind, ep, self.cq.cast(), what);
            self.check("fi_ep_bind", status)?;
            self.count_writes();
            let status = call!((*ep).ops, control, ep, FI_ENABLE, null_mut());
            self.check("fi_enable", status)?;
            let (mut name, mut len) = ([0u8; NAME], NAME);
            let status = call!(
                (*self.ep).cm,
                getname,
                ep,
                name.as_mut_ptr().cast(),
                &raw mut len
            );
            self.check("fi_getname", status)?;
            self.name = name[..len.min(NAME)].to_vec();
        }
        Ok(())
    }

    /// The counter is never read. With it, rxm names the right operation when a write fails. Without it, a failed unsignaled inline write reports the
    /// context of another operation (tcp, 1.17).
    unsafe fn count_writes(&mut self) {
        // SAFETY:
        // - as in `open_all`.
        unsafe {
            let mut attributes: fi_cntr_attr = std::mem::zeroed();
            attributes.wait_obj = FI_WAIT_NONE;
            let status = call!(
                (*self.domain).ops,
                cntr_open,
                self.domain,
                &raw mut attributes,
                &raw mut self.written,
                null_mut()
            );
            let ep = self.ep.cast::<fid>();
            if status != 0 || call!((*ep).ops, bind, ep, self.written.cast(), FI_WRITE) != 0 {
                self.traits.gathers = false;
            }
        }
    }

    /// Opens the queue, with a descriptor to sleep on if the provider has one.
    unsafe fn open_queue(&mut self) -> Result<()> {
        // SAFETY:
        // - as in `open_all`.
        unsafe {
            let mut attributes: fi_cq_attr = std::mem::zeroed();
            attributes.format = FI_CQ_FORMAT_DATA;
            attributes.wait_obj = FI_WAIT_FD;
            // Some providers need one entry for each operation in flight.
            attributes.size = self.info.tx_attr().size + self.info.rx_attr().size;
            let domain = (*self.domain).ops;
            let mut open = |attributes: &mut fi_cq_attr| {
                call!(
                    domain,
                    cq_open,
                    self.domain,
                    attributes,
                    &raw mut self.cq,
                    null_mut()
                )
            };
            if open(&mut attributes) == 0 {
                let (cq, mut fd) = (self.cq.cast::<fid>(), -1 as c_int);
                let status = call!((*cq).ops, control, cq, FI_GETWAIT, (&raw mut fd).cast());
                if status == 0 && fd >= 0 {
                    self.events = Some(fd);
                }
                return Ok(());
            }
            attributes.wait_obj = FI_WAIT_NONE;
            let status = open(&mut attributes);
            self.check("fi_cq_open", status)
        }
    }

    fn check(&self, what: &str, status: isize) -> Result<()> {
        match status {
            0 => Ok(()),
            _ => Err(Error::Unreachable(format!(
                "{what} of libfabric's provider {}: {}",
                self.traits.provider,
                self.library.text(status as c_int)
            ))),
        }
    }

    /// Tests replace its table of functions.
    #[cfg(test)]
    pub fn endpoint(&self) -> *mut fid_ep {
        self.ep
    }

    /// Text of an error number.
    pub fn text(&self, error: i32) -> String {
        self.library.text(error)
    }

    /// Release of libfabric.
    pub fn release(&self) -> (u32, u32) {
        self.library.release()
    }

    /// Interface of the domain.
    pub fn interface(&self) -> String {
        self.info.interface()
    }

    /// Inserts an endpoint into the address vector; returns its number. Errors: [`Error::Unreachable`] if the provider refuses the name.
    pub fn insert(&self, name: &[u8]) -> Result<u64> {
        if name.len() != self.name.len() {
            return Err(Error::Unreachable(
                "the peer's address is one of another fabric".into(),
            ));
        }
        let mut number = FI_ADDR_NOTAVAIL;
        // SAFETY:
        // - `name` has the length of names of this fabric. The call writes the number.
        let inserted = unsafe {
            call!(
                (*self.av).ops,
                insert,
                self.av,
                name.as_ptr().cast(),
                1,
                &raw mut number,
                0,
                null_mut()
            )
        };
        match inserted == 1 && number != FI_ADDR_NOTAVAIL {
            true => Ok(number),
            false => Err(Error::Unreachable(
                "the provider refuses the peer's address".into(),
            )),
        }
    }

    /// Removes the endpoint with this number, which is no longer used.
    pub fn remove(&self, mut number: u64) {
        // SAFETY:
        // - a number from `insert`. Only the call reads it.
        let removed = unsafe { call!((*self.av).ops, remove, self.av, &raw mut number, 1, 0) };
        if removed != 0 {
            let why = self.text(removed as i32);
            tracing::debug!("ofi: an address stays in the address vector: {why}");
        }
    }

    /// Closes the endpoint: the provider no longer uses memory of operations. Nothing can be posted afterwards.
    pub fn stop(&mut self) {
        // SAFETY:
        // - open or null, and null afterwards.
        unsafe { close(std::mem::replace(&mut self.ep, null_mut()).cast()) };
    }
}

/// # Safety
/// `object` is null, or an open object that is no longer used.
unsafe fn close(object: *mut fid) {
    if !object.is_null() {
        // SAFETY:
        // - contract of this function.
        let status = unsafe { call!((*object).ops, close, object) };
        if status != 0 {
            tracing::debug!("ofi: an object of libfabric's is not closed: {status}");
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let objects: [*mut fid; 6] = [
            self.ep.cast(),
            self.written.cast(),
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for object in objects {
            // SAFETY:
            // - each is open or null. Dependent objects are closed first.
            unsafe { close(object) };
        }
    }
}
