//! A device of this host: context, protection domain, events, and registered memory. This file and its neighbours are the boundary to C.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use unipgas_core::{Error, Result, Rights};
use unipgas_verbs_sys::*;

use crate::choice::name;
use crate::library::VerbsLibrary;

/// An open device.
pub(crate) struct Context {
    pub library: &'static VerbsLibrary,
    pub raw: NonNull<ibv_context>,
    /// Its name in /sys/class/infiniband.
    pub name: String,
    transport: i32,
}

// SAFETY:
// - contract of verbs: calls are valid on any thread.
unsafe impl Send for Context {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Context {}

/// Error of the last call.
pub fn errno(what: &str) -> Error {
    Error::os(what, std::io::Error::last_os_error())
}

/// Error of the last call, which creates `what`.
pub fn lacks(what: &str, call: &str) -> Error {
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOMEM) => Error::Exhausted(format!(
            "{what} of the device, or memory that may be locked ({call}): raise ulimit -l, or let fewer processes use the device"
        )),
        _ => Error::os(&format!("cannot make {what} ({call})"), error),
    }
}

impl Context {
    /// All devices that can be opened, in the library's order. Errors: [`Error::Unreachable`].
    pub fn open_all() -> Result<Vec<Context>> {
        let library = VerbsLibrary::get().map_err(Error::Unreachable)?;
        let mut count = 0;
        // SAFETY:
        // - the call returns an array of `count` devices, which is freed once. Open contexts stay valid.
        unsafe {
            let list = (library.get_device_list)(&raw mut count);
            if list.is_null() {
                return Err(Error::Unreachable(
                    errno("the kernel has no RDMA devices (ibv_get_device_list)").to_string(),
                ));
            }
            let devices = std::slice::from_raw_parts(list, count.max(0) as usize);
            let open = devices.iter().filter_map(|device| {
                let raw = NonNull::new((library.open_device)(*device))?;
                Some(Context {
                    library,
                    raw,
                    name: name(*device),
                    transport: (**device).transport_type,
                })
            });
            let open = open.collect();
            (library.free_device_list)(list);
            Ok(open)
        }
    }

    /// Whether it is an InfiniBand or RoCE device.
    pub fn speaks_ib(&self) -> bool {
        self.transport == IBV_TRANSPORT_IB as i32
    }

    /// Attributes of the device.
    pub fn limits(&self) -> ibv_device_attr {
        // SAFETY:
        // - zeros are valid attributes. The call fills them.
        unsafe {
            let mut attributes: ibv_device_attr = std::mem::zeroed();
            (self.library.query_device)(self.raw.as_ptr(), &raw mut attributes);
            attributes
        }
    }

    /// Whether reliable connections support memory with unlocked pages.
    fn pages_on_demand(&self) -> bool {
        const NEEDED: u32 = IBV_ODP_SUPPORT_SEND
            | IBV_ODP_SUPPORT_RECV
            | IBV_ODP_SUPPORT_WRITE
            | IBV_ODP_SUPPORT_READ
            | IBV_ODP_SUPPORT_SRQ_RECV;
        // SAFETY:
        // - with `abi_compat` set to all ones, the context is the end of a `verbs_context`, and `sz` gives the size of that structure.
        // - zeros are valid attributes. The call fills as many as fit.
        unsafe {
            let raw = self.raw.as_ptr();
            if (*raw).abi_compat.addr() != usize::MAX {
                return false;
            }
            let whole: *mut verbs_context = raw
                .byte_sub(std::mem::offset_of!(verbs_context, context))
                .cast();
            let there = (*whole).sz + std::mem::offset_of!(verbs_context, query_device_ex);
            if there < size_of::<verbs_context>() {
                return false;
            }
            let Some(query) = (*whole).query_device_ex else {
                return false;
            };
            let mut all: ibv_device_attr_ex = std::mem::zeroed();
            let failed = query(raw, std::ptr::null(), &raw mut all, size_of_val(&all));
            let caps = all.odp_caps;
            failed == 0
                && caps.general_caps & u64::from(IBV_ODP_SUPPORT) != 0
                && caps.per_transport_caps[0] & NEEDED == NEEDED
        }
    }

    /// Attributes of a port, from 1.
    pub fn port(&self, number: u8) -> Option<ibv_port_attr> {
        // SAFETY:
        // - zeros are valid attributes. The call fills them up to `flags`.
        unsafe {
            let mut port: ibv_port_attr = std::mem::zeroed();
            let failed = (self.library.query_port)(self.raw.as_ptr(), number, &raw mut port);
            (failed == 0).then_some(port)
        }
    }

    /// Addresses of all ports: `most` at most.
    pub fn gids(&self, most: usize) -> Vec<ibv_gid_entry> {
        let mut all = Vec::with_capacity(most);
        // SAFETY:
        // - `all` has room for `most` entries. The call returns the number of entries that it fills.
        unsafe {
            let size = size_of::<ibv_gid_entry>();
            let table = self.library.query_gid_table;
            let found = table(self.raw.as_ptr(), all.as_mut_ptr(), most, 0, size);
            all.set_len(usize::try_from(found).unwrap_or(0).min(most));
        }
        all
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY:
        // - opened once. All objects of the context keep it, so they are gone.
        unsafe { (self.library.close_device)(self.raw.as_ptr()) };
    }
}

/// Subject of an event.
pub(crate) enum EventSubject {
    /// The queue pair with this number.
    Pair(u32),
    /// A port of the device.
    Port(u8),
    /// The device, or an object without a handler.
    Other,
}

/// Makes reads of a descriptor nonblocking.
///
/// # Safety
/// `fd` is open for the lifetime of the result.
pub unsafe fn never_wait<'a>(fd: i32) -> Result<BorrowedFd<'a>> {
    // SAFETY:
    // - contract of this call: `fd` is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = fcntl_getfl(fd).map_err(|e| Error::os("fcntl", e))?;
    fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(|e| Error::os("fcntl", e))?;
    Ok(fd)
}

/// A device, with the protection domain of this process.
pub(crate) struct Device {
    pub pd: NonNull<ibv_pd>,
    pub context: Context,
    pub limits: ibv_device_attr,
    /// The device supports unlocked memory.
    on_demand: bool,
}

// SAFETY:
// - as for `Context`.
unsafe impl Send for Device {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Device {}

impl Device {
    /// Creates a protection domain. Errors: [`Error::Os`].
    pub fn open(context: Context) -> Result<Arc<Self>> {
        // SAFETY:
        // - the context is open, and its event descriptor lives as long.
        let pd = unsafe {
            never_wait((*context.raw.as_ptr()).async_fd)?;
            (context.library.alloc_pd)(context.raw.as_ptr())
        };
        let pd = NonNull::new(pd).ok_or_else(|| errno("ibv_alloc_pd"))?;
        let limits = context.limits();
        Ok(Arc::new(Device {
            pd,
            on_demand: context.pages_on_demand(),
            context,
            limits,
        }))
    }

    /// The library's functions.
    pub fn library(&self) -> &'static VerbsLibrary {
        self.context.library
    }

    /// The next asynchronous event: its type and subject. `None`: there is none.
    pub fn next_event(&self) -> Option<(u32, EventSubject)> {
        // SAFETY:
        // - zeros are a valid event. The subject of an event exists until the acknowledgement.
        // - only queue pair events are read as a pointer to a queue pair, and only port events as a port number.
        unsafe {
            let mut event: ibv_async_event = std::mem::zeroed();
            let library = self.library();
            if (library.get_async_event)(self.context.raw.as_ptr(), &raw mut event) != 0 {
                return None;
            }
            let about = match event.event_type {
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    EventSubject::Pair((*event.element.cast::<ibv_qp>()).qp_num)
                }
                IBV_EVENT_PORT_ACTIVE
                | IBV_EVENT_PORT_ERR
                | IBV_EVENT_LID_CHANGE
                | IBV_EVENT_PKEY_CHANGE
                | IBV_EVENT_SM_CHANGE
                | IBV_EVENT_CLIENT_REREGISTER
                | IBV_EVENT_GID_CHANGE => {
                    EventSubject::Port((&raw const event.element).cast::<c_int>().read() as u8)
                }
                _ => EventSubject::Other,
            };
            (library.ack_async_event)(&raw mut event);
            Some((event.event_type, about))
        }
    }

    /// Atomic operations that the device carries out on memory with these rights: [`Rights::ATOMIC`], or none.
    pub fn carries_out(&self, rights: Rights) -> Rights {
        let alone = self.is_alone() && rights.contains(Rights::DEVICE);
        match alone || self.limits.atomic_cap == IBV_ATOMIC_GLOB {
            true => rights & Rights::ATOMIC,
            false => Rights::empty(),
        }
    }

    /// Whether its atomic operations are atomic only with each other.
    pub fn is_alone(&self) -> bool {
        self.limits.atomic_cap == IBV_ATOMIC_HCA
    }

    /// Registers memory. Errors: [`Error::Exhausted`], [`Error::Os`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until the result is dropped.
    pub unsafe fn register(
        self: &Arc<Self>,
        base: *mut u8,
        len: usize,
        rights: Rights,
        write: bool,
    ) -> Result<Mr> {
        let mut access = 0;
        for (right, allows) in [
            (Rights::READ, IBV_ACCESS_REMOTE_READ),
            (Rights::WRITE, IBV_ACCESS_REMOTE_WRITE),
            (self.carries_out(rights), IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            if !right.is_empty() && rights.contains(right) {
                access |= allows;
            }
        }
        if write || rights.intersects(Rights::WRITE | Rights::ATOMIC) {
            access |= IBV_ACCESS_LOCAL_WRITE;
        }
        let register = |access: u32| {
            let register = self.library().reg_mr;
            // SAFETY:
            // - contract of this call: the bytes are valid.
            let mr = unsafe { register(self.pd.as_ptr(), base.cast(), len, access as i32) };
            NonNull::new(mr).ok_or_else(|| refused(len))
        };
        let raw = match register(access) {
            // The limit of locked memory is reached. With on-demand paging, no lock is needed.
            Err(Error::Exhausted(_)) if self.on_demand => register(access | IBV_ACCESS_ON_DEMAND),
            registered => registered,
        }?;
        Ok(Mr {
            raw,
            device: self.clone(),
        })
    }
}

/// Error of a registration, with the remedy.
fn refused(len: usize) -> Error {
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        // EPERM: this process may lock no memory at all.
        Some(libc::EPERM | libc::ENOMEM) => Error::Exhausted(format!(
            "memory that may be locked, to register {len} bytes: raise ulimit -l (in /etc/security/limits.conf, memlock unlimited)"
        )),
        _ => Error::os(&format!("cannot register {len} bytes (ibv_reg_mr)"), error),
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY:
        // - the descriptor belongs to the context, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.context.raw.as_ptr()).async_fd) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY:
        // - allocated once. All objects of the domain keep the device, so they are gone.
        let failed = unsafe { (self.library().dealloc_pd)(self.pd.as_ptr()) };
        debug_assert_eq!(failed, 0, "a protection domain is in use");
    }
}

/// Memory that is registered until the drop.
pub(crate) struct Mr {
    raw: NonNull<ibv_mr>,
    device: Arc<Device>,
}

// SAFETY:
// - the registration is immutable.
unsafe impl Send for Mr {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Mr {}

impl Mr {
    /// Key for operations of this process.
    pub fn lkey(&self) -> u32 {
        // SAFETY:
        // - valid until the drop.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    /// Key for operations of peers.
    pub fn rkey(&self) -> u32 {
        // SAFETY:
        // - valid until the drop.
        unsafe { (*self.raw.as_ptr()).rkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY:
        // - registered once.
        let failed = unsafe { (self.device.library().dereg_mr)(self.raw.as_ptr()) };
        if failed != 0 {
            tracing::debug!("verbs: ibv_dereg_mr: error {failed}");
        }
    }
}
