//! The objects of libfabric that one process has: a domain, an endpoint, a completion queue, an address vector. Here C ends.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use unipgas_core::region::Rights;
use unipgas_core::{Error, Result};
use unipgas_libfabric_sys::*;

use crate::choice::Info;
use crate::library::Library;

/// fi_errno(3): there is an error to be read.
const FI_EAVAIL: isize = 259;
/// The longest name of an endpoint.
const NAME: usize = 64;
/// Operations that may be under way, of each kind. Some providers keep memory for the most that they can have: tens of megabytes.
const QUEUE: usize = 256;
/// Completions that are read at once.
pub const AT_ONCE: usize = 64;

/// A call through a table of functions, all of which a provider fills: what it does not have gives -FI_ENOSYS.
macro_rules! call {
    ($table:expr, $function:ident $(, $argument:expr)*) => {
        ((*$table).$function)($($argument),*) as isize
    };
}

/// What is different from provider to provider.
#[derive(Debug, Clone)]
pub struct Traits {
    /// The provider's name.
    pub provider: String,
    /// The most bytes that it takes in the call.
    pub inject: usize,
    /// The longest transfer.
    pub longest: usize,
    /// Operations that may be under way.
    pub depth: usize,
    /// Bytes of the data that goes with a write.
    pub data: usize,
    /// Operands need a registration.
    pub local: bool,
    /// Remote memory is named by its address there, not by an offset.
    pub addresses: bool,
    /// Bits of a key that this process chooses.
    pub key_bits: u32,
    /// The provider chooses keys.
    pub own_keys: bool,
    /// Registrations belong to an endpoint.
    pub by_endpoint: bool,
    /// What is sent comes after what was written before, and is seen there.
    pub send_after_write: bool,
    /// So many bytes of a write come after what was written before.
    pub write_after_write: usize,
    /// So many bytes of a read see what was written before.
    pub read_after_write: usize,
    /// Writes that carry data use up a receive buffer.
    pub data_takes_buffer: bool,
}

impl Traits {
    fn of(info: &Info) -> Self {
        let (tx, rx) = (info.tx_attr(), info.rx_attr());
        let (ep, domain) = (info.ep_attr(), info.domain_attr());
        let order = tx.msg_order & rx.msg_order;
        let mode = |bit: i32| domain.mr_mode & bit != 0 || domain.mr_mode == FI_MR_BASIC;
        Traits {
            provider: info.provider(),
            inject: tx.inject_size,
            longest: ep.max_msg_size,
            depth: tx.size.max(1),
            data: domain.cq_data_size,
            local: domain.mr_mode & FI_MR_LOCAL != 0,
            addresses: mode(FI_MR_VIRT_ADDR),
            key_bits: 8 * domain.mr_key_size.clamp(1, 8) as u32,
            own_keys: mode(FI_MR_PROV_KEY),
            by_endpoint: domain.mr_mode & FI_MR_ENDPOINT != 0,
            send_after_write: order & FI_ORDER_SAW != 0,
            write_after_write: match order & FI_ORDER_WAW != 0 {
                true => ep.max_order_waw_size,
                false => 0,
            },
            read_after_write: match order & FI_ORDER_RAW != 0 {
                true => ep.max_order_raw_size,
                false => 0,
            },
            data_takes_buffer: (info.raw().mode | rx.mode) & FI_RX_CQ_DATA != 0,
        }
    }
}

/// What the completion queue tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The operation with this context has ended well; so many bytes, if it has received.
    Ended {
        /// As it was posted.
        context: usize,
        /// Bytes.
        len: usize,
    },
    /// Somebody has written here, with this data; a receive buffer has been used up for it where there is a context.
    Written {
        /// The data.
        data: u64,
        /// Of the buffer, or 0.
        context: usize,
    },
    /// The operation with this context has ended badly.
    Failed {
        /// As it was posted; 0 if the provider does not know.
        context: usize,
        /// Of fi_errno(3).
        error: i32,
    },
}

/// fi_cq_data_entry.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    context: *mut c_void,
    flags: u64,
    len: usize,
    buffer: *mut c_void,
    data: u64,
}

/// The objects.
pub struct Fabric {
    library: &'static Library,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    ep: *mut fid_ep,
    /// What it is like.
    pub traits: Traits,
    /// As peers put it into their address vectors.
    pub name: Vec<u8>,
    events: Option<RawFd>,
    info: Info,
}

// SAFETY:
// - the objects were asked for with FI_THREAD_SAFE: any thread may call any function.
unsafe impl Send for Fabric {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Fabric {}

impl Fabric {
    /// Opens what `info` describes. Errors: [`Error::Unreachable`]: which call has failed, and why.
    pub fn open(info: Info) -> Result<Self> {
        let library = Library::get().map_err(Error::Unreachable)?;
        let mut info = info;
        info.be_modest(QUEUE);
        let mut fabric = Fabric {
            library,
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            cq: null_mut(),
            ep: null_mut(),
            traits: Traits::of(&info),
            name: Vec::new(),
            events: None,
            info,
        };
        // What has been opened is closed when `fabric` is dropped.
        fabric.open_all()?;
        Ok(fabric)
    }

    fn open_all(&mut self) -> Result<()> {
        let info = self.info.as_ptr();
        // SAFETY:
        // - the info is complete, and outlives the objects; each object is used once it is there, which a status of 0 says.
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
            av.r#type = FI_AV_UNSPEC;
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
            let status = call!((*ep).ops, bind, ep, self.cq.cast(), FI_TRANSMIT | FI_RECV);
            self.check("fi_ep_bind", status)?;
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

    /// With a descriptor to sleep on, if the provider has that.
    unsafe fn open_queue(&mut self) -> Result<()> {
        // SAFETY:
        // - as in `open_all`.
        unsafe {
            let mut attributes: fi_cq_attr = std::mem::zeroed();
            attributes.format = FI_CQ_FORMAT_DATA;
            attributes.wait_obj = FI_WAIT_FD;
            // Some count one for each operation that may be under way.
            attributes.size = self.info.tx_attr().size + self.info.rx_attr().size;
            let domain = (*self.domain).ops;
            let status = call!(
                domain,
                cq_open,
                self.domain,
                &raw mut attributes,
                &raw mut self.cq,
                null_mut()
            );
            if status == 0 {
                let (cq, mut fd) = (self.cq.cast::<fid>(), -1 as c_int);
                let status = call!((*cq).ops, control, cq, FI_GETWAIT, (&raw mut fd).cast());
                if status == 0 && fd >= 0 {
                    self.events = Some(fd);
                }
                return Ok(());
            }
            attributes.wait_obj = FI_WAIT_NONE;
            let status = call!(
                domain,
                cq_open,
                self.domain,
                &raw mut attributes,
                &raw mut self.cq,
                null_mut()
            );
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

    /// What an error number means.
    pub fn text(&self, error: i32) -> String {
        self.library.text(error)
    }

    /// Where the domain is.
    pub fn interface(&self) -> String {
        self.info.interface()
    }

    /// Can be read when the queue has something to tell, if [`may_sleep`](Fabric::may_sleep) has said so before. `None`: the provider has no such
    /// thing, and must be asked from time to time.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY:
        // - the queue's, which lives as long as `self`.
        self.events.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether nothing is left to be read, so that whoever sleeps on the descriptor is woken by what comes.
    pub fn may_sleep(&self) -> bool {
        let mut queues = [self.cq.cast::<fid>()];
        // SAFETY:
        // - an array of one object, which is open.
        let status = unsafe {
            call!(
                (*self.fabric).ops,
                trywait,
                self.fabric,
                queues.as_mut_ptr(),
                1
            )
        };
        status != -(libc::EAGAIN as isize)
    }

    /// Another endpoint's number. Errors: [`Error::Unreachable`] for what is no name of this kind of fabric.
    pub fn insert(&self, name: &[u8]) -> Result<u64> {
        if name.len() != self.name.len() {
            return Err(Error::Unreachable(
                "the peer's address is one of another fabric".into(),
            ));
        }
        let mut number = FI_ADDR_NOTAVAIL;
        // SAFETY:
        // - as many bytes as the names of this fabric have; the number is written in the call.
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

    /// The provider uses nobody's memory any more. Nothing can be posted after that.
    pub fn stop(&mut self) {
        // SAFETY:
        // - open or null, and null from now on.
        unsafe { close(std::mem::replace(&mut self.ep, null_mut()).cast()) };
    }

    /// What has happened since, in order; whether there may be more.
    pub fn read(&self, mut tell: impl FnMut(Event)) -> bool {
        let empty = Entry {
            context: null_mut(),
            flags: 0,
            len: 0,
            buffer: null_mut(),
            data: 0,
        };
        let mut entries = [empty; AT_ONCE];
        // SAFETY:
        // - room for so many entries of the queue's format.
        let read = unsafe {
            call!(
                (*self.cq).ops,
                read,
                self.cq,
                entries.as_mut_ptr().cast(),
                AT_ONCE
            )
        };
        if read == -FI_EAVAIL {
            return self.read_error(tell);
        }
        let read = usize::try_from(read).unwrap_or(0);
        for entry in &entries[..read] {
            let context = entry.context.addr();
            // Some say at both ends that there was data.
            let with_data = entry.flags & FI_REMOTE_CQ_DATA != 0;
            let by_peer = entry.flags & FI_RMA != 0 && entry.flags & FI_WRITE == 0;
            tell(
                match with_data && (by_peer || entry.flags & FI_REMOTE_WRITE != 0) {
                    true => Event::Written {
                        data: entry.data,
                        context: if self.traits.data_takes_buffer {
                            context
                        } else {
                            0
                        },
                    },
                    false => Event::Ended {
                        context,
                        len: entry.len,
                    },
                },
            );
        }
        read == AT_ONCE
    }

    #[cold]
    fn read_error(&self, mut tell: impl FnMut(Event)) -> bool {
        // SAFETY:
        // - an entry of zeros is one: no room for more to be told.
        let mut entry: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY:
        // - the entry lives through the call.
        let read = unsafe { call!((*self.cq).ops, readerr, self.cq, &raw mut entry, 0) };
        if read != 1 {
            return false;
        }
        tracing::debug!(
            "ofi: an operation has failed: {} (the provider's own number: {})",
            self.text(entry.err),
            entry.prov_errno
        );
        tell(Event::Failed {
            context: entry.op_context.addr(),
            error: entry.err,
        });
        true
    }

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
        let mut flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
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

    /// Registers memory under `key`, where the provider has no keys of its own. Errors: [`Error::Exhausted`].
    ///
    /// # Safety
    /// `len` bytes at `base` are valid until the registration is dropped.
    pub unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
        key: u64,
    ) -> Result<Registration> {
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
        // - the attributes live through the call; the memory by the caller's word.
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
            let registration = Registration { mr };
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

/// Memory that the provider knows.
pub struct Registration {
    mr: *mut fid_mr,
}

// SAFETY:
// - as for Fabric.
unsafe impl Send for Registration {}
// SAFETY:
// - as for Fabric.
unsafe impl Sync for Registration {}

impl Registration {
    /// As an operand.
    pub fn desc(&self) -> *mut c_void {
        // SAFETY:
        // - open.
        unsafe { (*self.mr).mem_desc }
    }

    /// As peers name it.
    pub fn key(&self) -> u64 {
        // SAFETY:
        // - open.
        unsafe { (*self.mr).key }
    }
}

/// # Safety
/// Null, or an open object that nobody uses any more.
unsafe fn close(object: *mut fid) {
    if !object.is_null() {
        // SAFETY:
        // - the caller's word.
        let status = unsafe { call!((*object).ops, close, object) };
        if status != 0 {
            tracing::debug!("ofi: an object of libfabric's is not closed: {status}");
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY:
        // - open, and this one's.
        unsafe { close(self.mr.cast()) };
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let objects: [*mut fid; 5] = [
            self.ep.cast(),
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for object in objects {
            // SAFETY:
            // - each is open or null; what depends on one is closed before.
            unsafe { close(object) };
        }
    }
}
