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
