//! Shared contexts: fi_stx_context, fi_srx_context.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::domain::DomainObject;
use super::endpoint::{Poster, least_room, option_of};
use super::message::{SHARED, SHARED_TAGGED};
use super::{
    Object, check_free, code, fid_of, fid_ops, given, no, no_bind, no_control, number, posted, put,
};
use crate::endpoint::{DEPTH, PostOptions, SharedTransmits};
use crate::messages::{RECEIVE_OP_FLAGS, SharedReceives};
use crate::rma::TRANSMIT_FLAGS;
use crate::status::{Errno, Result};
use crate::sys::*;
use crate::trigger::{Call, Kind};

pub(super) type TransmitsObject = Object<fid_stx, Arc<SharedTransmits>>;

pub(super) struct ReceivesPart {
    pub shared: Arc<SharedReceives>,
    /// Default flags, for calls without a flags argument.
    flags: u64,
}

pub(super) type ReceivesObject = Object<fid_ep, ReceivesPart>;

static TRANSMITS: fi_ops = fid_ops(close_transmits, no_bind, no_control);

static TRANSMITS_OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: cancel_nothing,
    getopt: no_option,
    setopt: no_option_to_set,
    tx_ctx: no,
    rx_ctx: no,
    rx_size_left: none_left,
    tx_size_left: transmits_left,
};

static RECEIVES: fi_ops = fid_ops(close_receives, no_bind, control);

static RECEIVES_OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: no,
    rx_ctx: no,
    rx_size_left: receives_left,
    tx_size_left: none_left,
};

pub(super) unsafe extern "C" fn open_transmits(
    domain: *mut fid_domain,
    attr: *mut fi_tx_attr,
    context: *mut *mut fid_stx,
    of_user: *mut c_void,
) -> c_int {
    code(|| {
        given(context)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (&DomainObject::at(domain)?.inner.domain, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.op_flags & !TRANSMIT_FLAGS != 0) {
            return Err(Errno::INVAL);
        }
        let raw = fid_stx {
            fid: fid_of(FI_CLASS_STX_CTX, of_user, &TRANSMITS),
            ops: &TRANSMITS_OPS,
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(context, Object::create(raw, SharedTransmits::new(domain))) }
    })
}

pub(super) unsafe extern "C" fn open_receives(
    domain: *mut fid_domain,
    attr: *mut fi_rx_attr,
    context: *mut *mut fid_ep,
    of_user: *mut c_void,
) -> c_int {
    code(|| {
        given(context)?;
        // SAFETY:
        // - libfabric's contract: a domain of this provider, and attributes or null.
        let (domain, attr) = unsafe { (&DomainObject::at(domain)?.inner.domain, attr.as_ref()) };
        let (caps, flags) = attr.map_or((0, 0), |attr| (attr.caps, attr.op_flags));
        if flags & !RECEIVE_OP_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let caps = match caps & (FI_MSG | FI_TAGGED) {
            0 => caps | FI_MSG | FI_TAGGED | FI_MULTI_RECV,
            _ => caps,
        };
        let raw = fid_ep {
            fid: fid_of(FI_CLASS_SRX_CTX, of_user, &RECEIVES),
            ops: &RECEIVES_OPS,
            cm: std::ptr::null(),
            msg: &SHARED,
            rma: std::ptr::null(),
            tagged: &SHARED_TAGGED,
            atomic: std::ptr::null(),
            collective: std::ptr::null(),
        };
        let part = ReceivesPart {
            shared: SharedReceives::new(domain, caps),
            flags,
        };
        // SAFETY:
        // - libfabric's contract: the place is not null, so it is valid for a write.
        unsafe { put(context, Object::create(raw, part)) }
    })
}

entries! { code -> c_int;
    fn close_transmits(fid: *mut fid) = TransmitsObject::close(fid, check_free);
    fn close_receives(fid: *mut fid)
        = ReceivesObject::close_apart(fid, |part| part.shared.domain(), |part| check_free(&part.shared));
    fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize)
        = option_of((level, name), ReceivesObject::at(fid)?.inner.shared.least_room(), value, len);
    fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) = {
        let shared = &ReceivesObject::at(fid)?.inner.shared;
        shared.set_least_room(least_room((level, name), value, len)?);
        Ok(())
    };
}

entries! { posted -> isize;
    fn cancel(fid: *mut fid, context: *mut c_void) = ReceivesObject::at(fid)?.inner.shared.cancel(context.addr());
}

entries! { number -> isize;
    fn receives_left(context: *mut fid_ep) = Ok(ReceivesObject::at(context)?.inner.shared.room());
}

/// FI_ENABLE has no effect: the program enables the endpoints that share the context.
unsafe extern "C" fn control(_fid: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    match command {
        FI_ENABLE => 0,
        _ => -Errno::NOSYS.0,
    }
}

unsafe extern "C" fn cancel_nothing(_fid: *mut fid, _context: *mut c_void) -> isize {
    -(Errno::NOENT.0 as isize)
}

unsafe extern "C" fn no_option(
    _fid: *mut fid,
    _level: c_int,
    _name: c_int,
    _value: *mut c_void,
    _len: *mut usize,
) -> c_int {
    -Errno::NOPROTOOPT.0
}

unsafe extern "C" fn no_option_to_set(
    _fid: *mut fid,
    _level: c_int,
    _name: c_int,
    _value: *const c_void,
    _len: usize,
) -> c_int {
    -Errno::NOPROTOOPT.0
}

unsafe extern "C" fn none_left(_context: *mut fid_ep) -> isize {
    0
}

unsafe extern "C" fn transmits_left(_context: *mut fid_ep) -> isize {
    // The limit holds for each endpoint separately.
    DEPTH as isize
}

impl Poster for ReceivesPart {
    unsafe fn at<'a>(object: *mut fid_ep) -> Result<&'a Self> {
        // SAFETY:
        // - contract of `Poster::at`.
        Ok(&unsafe { ReceivesObject::at(object) }?.inner)
    }

    fn plain(&self, _sends: bool, context: *mut c_void) -> PostOptions {
        PostOptions {
            context: context.addr(),
            flags: self.flags,
            ..PostOptions::default()
        }
    }

    unsafe fn post(&self, call: &Call<'_>) -> Result<()> {
        let Kind::Receive(tag) = call.kind else {
            return Err(Errno::OPNOTSUPP);
        };
        let (local, from) = (call.memory.operand, call.peer);
        // SAFETY:
        // - contract of `Poster::post`.
        unsafe { self.shared.receive(tag, local, from, &call.posting) }
    }
}
