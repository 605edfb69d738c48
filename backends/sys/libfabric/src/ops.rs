//! The tables of functions that a provider fills. A function that unipgas does not offer is [`No`], which ignores its arguments.

use std::ffi::{c_char, c_int, c_void};

use super::structures::*;

/// A function that is not offered; it returns -FI_ENOSYS. The caller removes the arguments, so the function need not know them.
pub type No = unsafe extern "C" fn() -> isize;

macro_rules! slot {
    (no) => { No };
    (($($arg:ty),*) -> $result:ty) => { unsafe extern "C" fn($($arg),*) -> $result };
}

macro_rules! tables {
    ($($name:ident { $($field:ident: $kind:tt $(-> $result:ty)?;)* })*) => {$(
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { pub size: usize, $(pub $field: slot!($kind $(-> $result)?),)* }

        impl $name {
            /// Name, size, and each field with its offset, for the comparison with the headers.
            pub const LAYOUT: (&'static str, usize, &'static [(&'static str, usize)]) = (
                stringify!($name),
                size_of::<$name>(),
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            );
        }
    )*
        /// The layouts of all tables.
        pub const TABLES: &[(&str, usize, &[(&str, usize)])] = &[$($name::LAYOUT,)*];
    };
}

tables! {
    fi_ops {
        close: (*mut fid) -> c_int;
        bind: (*mut fid, *mut fid, u64) -> c_int;
        control: (*mut fid, c_int, *mut c_void) -> c_int;
        ops_open: no;
        tostr: no;
        ops_set: no;
    }
    fi_ops_fabric {
        domain: (*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int;
        passive_ep: no;
        eq_open: (*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int;
        wait_open: (*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
        trywait: (*mut fid_fabric, *mut *mut fid, c_int) -> c_int;
        domain2: (*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int;
    }
    fi_ops_domain {
        av_open: (*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int;
        cq_open: (*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int;
        endpoint: (*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
        scalable_ep: no;
        cntr_open: (*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int;
        poll_open: (*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int;
        stx_ctx: (*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
        srx_ctx: (*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
        query_atomic: (*mut fid_domain, c_int, c_int, *mut fi_atomic_attr, u64) -> c_int;
        query_collective: (*mut fid_domain, c_int, *mut fi_collective_attr, u64) -> c_int;
        endpoint2: (*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int;
    }
    fi_ops_mr {
        reg: (*mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regv: (*mut fid, *const libc::iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int;
        regattr: (*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int;
    }
    fi_ops_av {
        insert: (*mut fid_av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int;
        insertsvc: (*mut fid_av, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int;
        insertsym: (*mut fid_av, *const c_char, usize, *const c_char, usize, *mut u64, u64, *mut c_void) -> c_int;
        remove: (*mut fid_av, *mut u64, usize, u64) -> c_int;
        lookup: (*mut fid_av, u64, *mut c_void, *mut usize) -> c_int;
        straddr: (*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char;
        av_set: (*mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void) -> c_int;
    }
    fi_ops_av_set {
        set_union: (*mut fid_av_set, *const fid_av_set) -> c_int;
        intersect: (*mut fid_av_set, *const fid_av_set) -> c_int;
        diff: (*mut fid_av_set, *const fid_av_set) -> c_int;
        insert: (*mut fid_av_set, u64) -> c_int;
        remove: (*mut fid_av_set, u64) -> c_int;
        addr: (*mut fid_av_set, *mut u64) -> c_int;
    }
    fi_ops_collective {
        barrier: (*mut fid_ep, u64, *mut c_void) -> isize;
        broadcast: (*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize;
        alltoall: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64, *mut c_void) -> isize;
        allreduce: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64, *mut c_void) -> isize;
        allgather: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, u64, *mut c_void) -> isize;
        reduce_scatter: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, c_int, c_int, u64, *mut c_void) -> isize;
        reduce: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, c_int, u64, *mut c_void) -> isize;
        scatter: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize;
        gather: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, c_int, u64, *mut c_void) -> isize;
        msg: no;
        barrier2: (*mut fid_ep, u64, u64, *mut c_void) -> isize;
    }
    fi_ops_eq {
        read: (*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> isize;
        readerr: (*mut fid_eq, *mut fi_eq_err_entry, u64) -> isize;
        write: (*mut fid_eq, u32, *const c_void, usize, u64) -> isize;
        sread: (*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> isize;
        strerror: (*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }
    fi_ops_wait {
        wait: (*mut fid_wait, c_int) -> c_int;
    }
    fi_ops_poll {
        poll: (*mut fid_poll, *mut *mut c_void, c_int) -> c_int;
        poll_add: (*mut fid_poll, *mut fid, u64) -> c_int;
        poll_del: (*mut fid_poll, *mut fid, u64) -> c_int;
    }
    fi_ops_cq {
        read: (*mut fid_cq, *mut c_void, usize) -> isize;
        readfrom: (*mut fid_cq, *mut c_void, usize, *mut u64) -> isize;
        readerr: (*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize;
        sread: (*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize;
        sreadfrom: (*mut fid_cq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize;
        signal: (*mut fid_cq) -> c_int;
        strerror: (*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
    }
    fi_ops_cntr {
        read: (*mut fid_cntr) -> u64;
        readerr: (*mut fid_cntr) -> u64;
        add: (*mut fid_cntr, u64) -> c_int;
        set: (*mut fid_cntr, u64) -> c_int;
        wait: (*mut fid_cntr, u64, c_int) -> c_int;
        adderr: (*mut fid_cntr, u64) -> c_int;
        seterr: (*mut fid_cntr, u64) -> c_int;
    }
    fi_ops_ep {
        cancel: (*mut fid, *mut c_void) -> isize;
        getopt: (*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int;
        setopt: (*mut fid, c_int, c_int, *const c_void, usize) -> c_int;
        tx_ctx: no;
        rx_ctx: no;
        rx_size_left: (*mut fid_ep) -> isize;
        tx_size_left: (*mut fid_ep) -> isize;
    }
    fi_ops_cm {
        setname: no;
        getname: (*mut fid, *mut c_void, *mut usize) -> c_int;
        getpeer: no;
        connect: no;
        listen: no;
        accept: no;
        reject: no;
        shutdown: no;
        join: (*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
    }
    fi_ops_msg {
        recv: (*mut fid_ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize;
        recvv: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize;
        recvmsg: (*mut fid_ep, *const fi_msg, u64) -> isize;
        send: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize;
        sendv: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize;
        sendmsg: (*mut fid_ep, *const fi_msg, u64) -> isize;
        inject: (*mut fid_ep, *const c_void, usize, u64) -> isize;
        senddata: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize;
        injectdata: (*mut fid_ep, *const c_void, usize, u64, u64) -> isize;
    }
    fi_ops_tagged {
        recv: (*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
        recvv: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize;
        recvmsg: (*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
        send: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize;
        sendv: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, u64, *mut c_void) -> isize;
        sendmsg: (*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
        inject: (*mut fid_ep, *const c_void, usize, u64, u64) -> isize;
        senddata: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
        injectdata: (*mut fid_ep, *const c_void, usize, u64, u64, u64) -> isize;
    }
    fi_ops_rma {
        read: (*mut fid_ep, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
        readv: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize;
        readmsg: (*mut fid_ep, *const fi_msg_rma, u64) -> isize;
        write: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize;
        writev: (*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize;
        writemsg: (*mut fid_ep, *const fi_msg_rma, u64) -> isize;
        inject: (*mut fid_ep, *const c_void, usize, u64, u64, u64) -> isize;
        writedata: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, u64, *mut c_void) -> isize;
        injectdata: (*mut fid_ep, *const c_void, usize, u64, u64, u64, u64) -> isize;
    }
    fi_ops_atomic {
        write: (*mut fid_ep, *const c_void, usize, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        writev: (*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        writemsg: (*mut fid_ep, *const fi_msg_atomic, u64) -> isize;
        inject: (*mut fid_ep, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize;
        readwrite: (*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        readwritev: (*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        readwritemsg: (*mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
        compwrite: (*mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        compwritev: (*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, u64, u64, u64, c_int, c_int, *mut c_void) -> isize;
        compwritemsg: (*mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
        writevalid: (*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
        readwritevalid: (*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
        compwritevalid: (*mut fid_ep, c_int, c_int, *mut usize) -> c_int;
    }
}
