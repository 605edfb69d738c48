//! The structures of the calls with a message: one local buffer, and one place at the peer.

use super::kit::*;

pub(crate) fn iovec<T>(base: *const T, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast_mut().cast(),
        iov_len: len,
    }
}

pub(crate) fn ioc<T>(first: *const T, count: usize) -> fi_ioc {
    let addr = first.cast_mut().cast();
    fi_ioc { addr, count }
}

pub(crate) fn rma_ioc(addr: u64, count: usize, key: u64) -> fi_rma_ioc {
    fi_rma_ioc { addr, count, key }
}

pub(crate) fn plain_msg(part: &libc::iovec, addr: u64, context: *mut c_void) -> fi_msg {
    fi_msg {
        msg_iov: part,
        desc: null_mut(),
        iov_count: 1,
        addr,
        context,
        data: 0,
    }
}

pub(crate) fn tagged_msg(
    part: &libc::iovec,
    addr: u64,
    tag: u64,
    context: *mut c_void,
) -> fi_msg_tagged {
    fi_msg_tagged {
        msg_iov: part,
        desc: null_mut(),
        iov_count: 1,
        addr,
        tag,
        ignore: 0,
        context,
        data: 0,
    }
}

pub(crate) fn rma_msg(
    part: &libc::iovec,
    addr: u64,
    remote: &fi_rma_iov,
    context: *mut c_void,
) -> fi_msg_rma {
    fi_msg_rma {
        msg_iov: part,
        desc: null_mut(),
        iov_count: 1,
        addr,
        rma_iov: remote,
        rma_iov_count: 1,
        context,
        data: 0,
    }
}

/// As [`atomic_msg`], with lists of any length.
pub(crate) fn atomic_list(
    operands: &[fi_ioc],
    addr: u64,
    remote: &[fi_rma_ioc],
    op: c_int,
    context: *mut c_void,
) -> fi_msg_atomic {
    fi_msg_atomic {
        iov_count: operands.len(),
        rma_iov_count: remote.len(),
        ..atomic_msg(&operands[0], addr, &remote[0], op, context)
    }
}

/// An operation on u64.
pub(crate) fn atomic_msg(
    operand: &fi_ioc,
    addr: u64,
    remote: &fi_rma_ioc,
    op: c_int,
    context: *mut c_void,
) -> fi_msg_atomic {
    fi_msg_atomic {
        msg_iov: operand,
        desc: null_mut(),
        iov_count: 1,
        addr,
        rma_iov: remote,
        rma_iov_count: 1,
        datatype: UINT64,
        op,
        context,
        data: 0,
    }
}

/// Posts a send, with a tag or without.
pub(crate) fn send_as(
    tag: Option<u64>,
    (ep, to): (*mut fid_ep, u64),
    bytes: &[u8],
    context: usize,
) -> isize {
    let (base, len, none) = (bytes.as_ptr().cast(), bytes.len(), null_mut());
    match tag {
        None => call!(msg ep, send(base, len, none, to, cx(context))),
        Some(tag) => call!(tagged ep, send(base, len, none, to, tag, cx(context))),
    }
}

/// Injects a message, with a tag or without.
pub(crate) fn inject_as(tag: Option<u64>, (ep, to): (*mut fid_ep, u64), bytes: &[u8]) -> isize {
    let (base, len) = (bytes.as_ptr().cast(), bytes.len());
    match tag {
        None => call!(msg ep, inject(base, len, to)),
        Some(tag) => call!(tagged ep, inject(base, len, to, tag)),
    }
}

/// Posts a receive from any sender, with a tag or without.
pub(crate) fn receive_as(
    tag: Option<u64>,
    ep: *mut fid_ep,
    buffer: *mut [u8],
    context: usize,
) -> isize {
    let (base, len, none) = (buffer.cast(), buffer.len(), null_mut());
    match tag {
        None => call!(msg ep, recv(base, len, none, FI_ADDR_UNSPEC, cx(context))),
        Some(tag) => call!(tagged ep, recv(base, len, none, FI_ADDR_UNSPEC, tag, 0, cx(context))),
    }
}

/// Posts a receive for each context: `len` bytes at `len` times the context.
pub(crate) fn receive_each(
    tag: Option<u64>,
    ep: *mut fid_ep,
    (room, len): (&Memory, usize),
    contexts: impl IntoIterator<Item = usize>,
) -> Verdict {
    for_all(contexts, |nth| {
        let place = std::ptr::slice_from_raw_parts_mut(room.at(len * nth), len);
        equal!(receive_as(tag, ep, place, nth), 0, "receive {nth}")
    })
}

/// Receives a message of `len` bytes at an endpoint with this queue.
pub(crate) fn received(
    tag: Option<u64>,
    (ep, rx): (*mut fid_ep, Queue),
    len: usize,
) -> Result<Vec<u8>, String> {
    let room = Buffer::new(len);
    receive_each(tag, ep, (&room, len), [0])?;
    ensure_eq!(rx.of(0)?.len, len, "the length of a message");
    Ok(room.load(0, len))
}
