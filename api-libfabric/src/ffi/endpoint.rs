//! Endpoints: all but the data transfer.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::av::{AvObject, copy_out};
use super::counter::CounterObject;
use super::domain::DomainObject;
use super::event::{EventObject, EventQueue};
use super::naming::Format;
use super::queue::QueueObject;
use super::shared::{ReceivesObject, TransmitsObject};
use super::trigger::trigger;
use super::{Object, code, fid_of, fid_ops, given, no, number, posted, put};
use crate::endpoint::{Endpoint, EndpointOptions, PostOptions};
use crate::messages::RECEIVE_OP_FLAGS;
use crate::name::Called;
use crate::operation::CounterEvent;
use crate::rma::TRANSMIT_FLAGS;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::Call;

pub(super) struct EndpointPart {
    pub endpoint: Arc<Endpoint>,
    format: Format,
    /// Default flags, for calls without a flags argument.
    transmit: AtomicU64,
    receive: AtomicU64,
    /// An alias of an endpoint (fi_ep_alias). Its close does not close the endpoint.
    alias: bool,
    pub events: parking_lot::Mutex<Option<Arc<EventQueue>>>,
}

pub(super) type EndpointObject = Object<fid_ep, EndpointPart>;

static FID: fi_ops = fid_ops(close, bind, control);

static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: no,
    rx_ctx: no,
    rx_size_left: receives_left,
    tx_size_left: transmits_left,
};

static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: no,
    getname,
    getpeer: no,
    connect: no,
    listen: no,
    accept: no,
    reject: no,
    shutdown: no,
    join: super::collective::join,
};

fn object(part: EndpointPart, context: *mut c_void) -> *mut fid_ep {
    let raw = fid_ep {
        fid: fid_of(FI_CLASS_EP, context, &FID),
        ops: &OPS,
        cm: &CM,
        msg: &super::message::MESSAGES,
        rma: &super::rma::OPS,
        tagged: &super::message::TAGGED,
        atomic: &super::atomic::OPS,
        collective: &super::collective::OPS,
    };
    let flags = part.transmit.load(Ordering::Relaxed) | part.receive.load(Ordering::Relaxed);
    let raw = match flags & FI_TRIGGER {
        0 => raw,
        // Separate tables, so that the plain calls of other endpoints need no test for FI_TRIGGER.
        _ => fid_ep {
            msg: &super::message::TRIGGERING,
            rma: &super::rma::TRIGGERING,
            tagged: &super::message::TRIGGERING_TAGGED,
            atomic: &super::atomic::TRIGGERING,
            ..raw
        },
    };
    Object::create(raw, part)
}

pub(super) unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    code(|| {
        given(endpoint)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and an info from getinfo or null.
        let part = unsafe {
            let domain = &DomainObject::at(domain)?.inner;
            let info = info.as_ref().ok_or(Errno::INVAL)?;
            let wanted = info.ep_attr.as_ref().map_or(FI_EP_RDM, |attr| attr.r#type);
            if wanted != FI_EP_RDM && wanted != FI_EP_UNSPEC {
                return Err(Errno::INVAL);
            }
            let shares = |count: fn(&fi_ep_attr) -> usize| {
                info.ep_attr.as_ref().map(count) == Some(FI_SHARED_CONTEXT)
            };
            let (transmit, receive) = (info.tx_attr.as_ref(), info.rx_attr.as_ref());
            let order = transmit.map_or(0, |attr| attr.msg_order)
                | receive.map_or(0, |attr| attr.msg_order);
            let called = domain.format.read_sized(info.src_addr, info.src_addrlen);
            let service = match called.transpose()? {
                None => None,
                Some(Called::Service(service)) => Some(service),
                Some(Called::Name(_) | Called::Server(_)) => return Err(Errno::ADDRNOTAVAIL),
            };
            let options = EndpointOptions {
                caps: info.caps,
                order,
                service,
                shares_transmits: shares(|attr| attr.tx_ctx_cnt),
                shares_receives: shares(|attr| attr.rx_ctx_cnt),
            };
            EndpointPart {
                endpoint: Endpoint::new(&domain.domain, options)?,
                format: domain.format,
                transmit: AtomicU64::new(transmit.map_or(0, |attr| attr.op_flags)),
                receive: AtomicU64::new(receive.map_or(0, |attr| attr.op_flags)),
                alias: false,
                events: parking_lot::Mutex::new(None),
            }
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(endpoint, object(part, context)) }
    })
}

pub(super) unsafe extern "C" fn open_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -Errno::BADFLAGS.0;
    }
    // SAFETY:
    // - libfabric's contract: the arguments are valid.
    unsafe { open_endpoint(domain, info, endpoint, context) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    code(|| {
        // SAFETY:
        // - only endpoints have this table, and the caller gives the endpoint up.
        unsafe {
            let Some(object) = EndpointObject::to_close(fid)? else {
                return Ok(());
            };
            let part = &object.inner;
            if !part.alias {
                part.endpoint.settle();
                part.endpoint.detach();
                if let Some(events) = &*part.events.lock() {
                    events.detach(&part.endpoint);
                }
            }
            let domain = part.endpoint.domain().clone();
            domain.watcher().apart(|| EndpointObject::destroy(fid));
        }
        Ok(())
    })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    code(|| {
        // SAFETY:
        // - only endpoints have this table. libfabric's contract: `other` is null or an object of this provider, as its class says.
        unsafe {
            let part = &EndpointObject::at(fid)?.inner;
            let endpoint = &part.endpoint;
            match other.as_ref().ok_or(Errno::INVAL)?.fclass {
                FI_CLASS_AV if flags == 0 => endpoint.bind_av(&AvObject::at(other)?.inner.av),
                FI_CLASS_EQ if flags == 0 => {
                    let events = EventObject::at(other)?.inner.clone();
                    let before = part.events.lock().replace(events.clone());
                    if endpoint.options().caps & FI_COLLECTIVE != 0 {
                        before.inspect(|before| before.detach(endpoint));
                        events.attach(endpoint);
                        // A program that sleeps at the descriptor makes no calls that progress joins.
                        if events.has_descriptor() {
                            endpoint.watch()?;
                        }
                    }
                    Ok(())
                }
                FI_CLASS_CQ => {
                    let known = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
                    if flags & !known != 0 || flags & (FI_TRANSMIT | FI_RECV) == 0 {
                        return Err(Errno::BADFLAGS);
                    }
                    let queue = &QueueObject::at(other)?.inner.queue;
                    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
                    endpoint.bind_queue(
                        queue,
                        flags & FI_TRANSMIT != 0,
                        flags & FI_RECV != 0,
                        selective,
                    )
                }
                FI_CLASS_CNTR => {
                    bind_counter(endpoint, &CounterObject::at(other)?.inner.counter, flags)
                }
                FI_CLASS_STX_CTX if flags == 0 => {
                    endpoint.bind_transmits(&TransmitsObject::at(other)?.inner)
                }
                FI_CLASS_SRX_CTX if flags == 0 => {
                    endpoint.bind_receives(&ReceivesObject::at(other)?.inner.shared)
                }
                FI_CLASS_AV | FI_CLASS_EQ | FI_CLASS_STX_CTX | FI_CLASS_SRX_CTX => {
                    Err(Errno::BADFLAGS)
                }
                _ => Err(Errno::INVAL),
            }
        }
    })
}

fn bind_counter(endpoint: &Arc<Endpoint>, counter: &Arc<crate::Counter>, flags: u64) -> Result<()> {
    const KINDS: [(u64, CounterEvent); 6] = [
        (FI_SEND, CounterEvent::Send),
        (FI_RECV, CounterEvent::Receive),
        (FI_READ, CounterEvent::Read),
        (FI_WRITE, CounterEvent::Write),
        (FI_REMOTE_READ, CounterEvent::RemoteRead),
        (FI_REMOTE_WRITE, CounterEvent::RemoteWrite),
    ];
    let known = KINDS.iter().fold(0, |all, (flag, _)| all | flag);
    if flags & !known != 0 || flags == 0 {
        return Err(Errno::BADFLAGS);
    }
    for (flag, counted) in KINDS {
        if flags & flag != 0 {
            endpoint.bind_counter(counter, counted)?;
        }
    }
    Ok(())
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    code(|| {
        // SAFETY:
        // - only endpoints have this table. libfabric's contract: the argument fits the command.
        unsafe {
            let part = &EndpointObject::at(fid)?.inner;
            match command {
                FI_ENABLE => part.endpoint.enable(),
                FI_GETOPSFLAG | FI_SETOPSFLAG => {
                    let flags = arg.cast::<u64>().as_mut().ok_or(Errno::INVAL)?;
                    let side = *flags & (FI_TRANSMIT | FI_RECV);
                    let (kept, known) = match side {
                        FI_TRANSMIT => (&part.transmit, TRANSMIT_FLAGS & !FI_REMOTE_CQ_DATA),
                        FI_RECV => (&part.receive, RECEIVE_OP_FLAGS),
                        _ => return Err(Errno::INVAL),
                    };
                    if command == FI_GETOPSFLAG {
                        *flags = kept.load(Ordering::Relaxed);
                        return Ok(());
                    }
                    let new = *flags & !side;
                    if new & !known != 0 {
                        return Err(Errno::BADFLAGS);
                    }
                    kept.store(new, Ordering::Relaxed);
                    Ok(())
                }
                FI_ALIAS => {
                    let wanted = arg.cast::<fi_alias>().as_ref().ok_or(Errno::INVAL)?;
                    let flags = wanted.flags & !(FI_TRANSMIT | FI_RECV);
                    if flags & !(TRANSMIT_FLAGS | FI_TRIGGER) != 0 {
                        return Err(Errno::BADFLAGS);
                    }
                    given(wanted.fid)?;
                    let own = |side, kept: &AtomicU64| match wanted.flags & (FI_TRANSMIT | FI_RECV)
                    {
                        chosen if chosen & side != 0 => AtomicU64::new(flags),
                        _ => AtomicU64::new(kept.load(Ordering::Relaxed)),
                    };
                    let alias = EndpointPart {
                        endpoint: part.endpoint.clone(),
                        format: part.format,
                        transmit: own(FI_TRANSMIT, &part.transmit),
                        receive: own(FI_RECV, &part.receive),
                        alias: true,
                        events: parking_lot::Mutex::new(part.events.lock().clone()),
                    };
                    put(wanted.fid, object(alias, (*fid).context).cast())
                }
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

entries! { posted -> isize;
    fn cancel(fid: *mut fid, context: *mut c_void) = {
        let endpoint = &EndpointObject::at(fid)?.inner.endpoint;
        let deferred = endpoint.domain().deferred();
        match deferred.cancel_triggered(endpoint, context.addr()) {
            true => Ok(()),
            false => endpoint.cancel(context.addr()),
        }
    };
}

/// # Safety
/// The arguments are valid as in fi_getopt(3).
pub(super) unsafe fn option_of(
    (level, name): (c_int, c_int),
    least_room: usize,
    value: *mut c_void,
    len: *mut usize,
) -> Result<()> {
    let found = match (level, name) {
        (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => least_room,
        (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => 0,
        _ => return Err(Errno::NOPROTOOPT),
    };
    // SAFETY:
    // - contract of this call: a buffer of `len` bytes.
    unsafe { copy_whole(&found.to_ne_bytes(), value, len) }
}

/// As [`copy_out`]. Errors: [`Errno::TOOSMALL`] if not all bytes fit.
///
/// # Safety
/// As for [`copy_out`].
unsafe fn copy_whole(bytes: &[u8], buffer: *mut c_void, len: *mut usize) -> Result<()> {
    // SAFETY:
    // - contract of this call.
    match unsafe { copy_out(bytes, buffer, len) }? {
        true => Ok(()),
        false => Err(Errno::TOOSMALL),
    }
}

/// The value of FI_OPT_MIN_MULTI_RECV in a call of fi_setopt(3).
///
/// # Safety
/// The arguments are valid as in fi_setopt(3).
pub(super) unsafe fn least_room(
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: usize,
) -> Result<usize> {
    if level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV {
        return Err(Errno::NOPROTOOPT);
    }
    if len != size_of::<usize>() || value.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY:
    // - contract of this call: `len` bytes, which are a number.
    Ok(unsafe { value.cast::<usize>().read_unaligned() })
}

entries! { code -> c_int;
    fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize)
        = option_of((level, name), EndpointObject::at(fid)?.inner.endpoint.least_room(), value, len);
    fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) = {
        let endpoint = &EndpointObject::at(fid)?.inner.endpoint;
        endpoint.set_least_room(least_room((level, name), value, len)?);
        Ok(())
    };
    fn getname(fid: *mut fid, name: *mut c_void, len: *mut usize) = {
        let part = &EndpointObject::at(fid)?.inner;
        copy_whole(&part.format.write(&part.endpoint.called()), name, len)
    };
}

entries! { number -> isize;
    fn transmits_left(endpoint: *mut fid_ep) = Ok(part(endpoint)?.endpoint.rooms().0);
    fn receives_left(endpoint: *mut fid_ep) = Ok(part(endpoint)?.endpoint.rooms().1);
}

/// An object that takes the calls of a table: an endpoint, or a shared receive context.
pub(super) trait Poster: Sized {
    /// The object behind a pointer. Errors: [`Errno::INVAL`] for null.
    ///
    /// # Safety
    /// `object` is null or an object of this kind.
    unsafe fn at<'a>(object: *mut fid_ep) -> Result<&'a Self>;

    /// Options of a call without a flags argument. `sends`: it transmits.
    fn plain(&self, sends: bool, context: *mut c_void) -> PostOptions;

    /// Posts an operation.
    ///
    /// # Safety
    /// The memory is valid until the operation is complete. With FI_TRIGGER, the context is a `struct fi_triggered_context`.
    unsafe fn post(&self, call: &Call<'_>) -> Result<()>;
}

/// Options of a transmit call without a flags argument. `context`: `None` for inject calls.
#[inline(always)]
pub(super) fn transmits(
    poster: &impl Poster,
    data: Option<u64>,
    context: Option<*mut c_void>,
) -> PostOptions {
    PostOptions {
        data,
        quiet: context.is_none(),
        ..poster.plain(true, context.unwrap_or(std::ptr::null_mut()))
    }
}

/// Options of a call with flags.
#[inline(always)]
pub(super) fn flagged(context: *mut c_void, flags: u64, data: u64) -> PostOptions {
    PostOptions {
        context: context.addr(),
        flags,
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(data),
        quiet: false,
        work: 0,
    }
}

impl Poster for EndpointPart {
    #[inline(always)]
    unsafe fn at<'a>(object: *mut fid_ep) -> Result<&'a Self> {
        // SAFETY:
        // - contract of `Poster::at`.
        unsafe { part(object) }
    }

    #[inline(always)]
    fn plain(&self, sends: bool, context: *mut c_void) -> PostOptions {
        let flags = if sends { &self.transmit } else { &self.receive };
        PostOptions {
            context: context.addr(),
            flags: flags.load(Ordering::Relaxed),
            data: None,
            quiet: false,
            work: 0,
        }
    }

    #[inline(always)]
    unsafe fn post(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY:
        // - contract of `Poster::post`.
        unsafe { call.carry_out(&self.endpoint) }
    }
}

/// An endpoint with calls that accept FI_TRIGGER.
#[repr(transparent)]
pub(super) struct Triggering(EndpointPart);

impl Poster for Triggering {
    #[inline(always)]
    unsafe fn at<'a>(object: *mut fid_ep) -> Result<&'a Self> {
        // SAFETY:
        // - contract of `Poster::at`. The cast is valid, since `Triggering` is transparent.
        unsafe { Ok(&*std::ptr::from_ref(part(object)?).cast::<Triggering>()) }
    }

    #[inline(always)]
    fn plain(&self, sends: bool, context: *mut c_void) -> PostOptions {
        self.0.plain(sends, context)
    }

    #[inline(always)]
    unsafe fn post(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY:
        // - contract of `Poster::post`.
        unsafe {
            match self.0.post(call) {
                Err(Errno::BADFLAGS) => trigger(&self.0, call),
                done => done,
            }
        }
    }
}

/// The endpoint behind a pointer. Errors: [`Errno::INVAL`] for null.
///
/// # Safety
/// `endpoint` is null or an endpoint of this provider.
#[inline(always)]
pub(super) unsafe fn part<'a>(endpoint: *mut fid_ep) -> Result<&'a EndpointPart> {
    // SAFETY:
    // - contract of this call: an endpoint of this provider, or null.
    Ok(&unsafe { EndpointObject::at(endpoint) }?.inner)
}
