//! Requests and reductions, as laws call them.

use super::kit::*;

/// A call without its queue and timeout. Each method posts it once.
pub(crate) struct Request<F> {
    name: &'static str,
    call: F,
}

impl<F: Fn(u8, u64) -> i32> Request<F> {
    /// Gives the code of the call.
    pub(crate) fn code(&self, queue: u8, timeout: u64) -> i32 {
        (self.call)(queue, timeout)
    }

    /// Fails unless the call succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, queue: u8, timeout: u64) -> Verdict {
        self.gives(SUCCESS, queue, timeout)
    }

    /// Fails unless the call gives this code.
    #[track_caller]
    pub(crate) fn gives(&self, code: i32, queue: u8, timeout: u64) -> Verdict {
        let seen = self.code(queue, timeout);
        crate::kit::gives(self.name, (seen, code), code_name)
    }
}

macro_rules! requests {
    ($($short:ident: $name:ident($($parameter:ident: $ty:ty),*);)*) => {$(
        // The procedure has this number of parameters.
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $short($($parameter: $ty),*) -> Request<impl Fn(u8, u64) -> i32> {
            let call = move |queue, timeout| c!($name($($parameter,)* queue, timeout));
            Request { name: stringify!($name), call }
        }
    )*};
}

requests! {
    write: gaspi_write(segment: u8, at: u64, rank: u16, remote: u8, to: u64, size: u64);
    read: gaspi_read(segment: u8, at: u64, rank: u16, remote: u8, from: u64, size: u64);
    write_notify: gaspi_write_notify(segment: u8, at: u64, rank: u16, remote: u8, to: u64, size: u64, id: u32, value: u32);
    read_notify: gaspi_read_notify(segment: u8, at: u64, rank: u16, remote: u8, from: u64, size: u64, id: u32);
    notify: gaspi_notify(remote: u8, rank: u16, id: u32, value: u32);
    write_list: gaspi_write_list(
        num: u32, segments: *const u8, at: *const u64, rank: u16, remotes: *const u8, to: *const u64, sizes: *const u64);
    read_list: gaspi_read_list(
        num: u32, segments: *const u8, at: *const u64, rank: u16, remotes: *const u8, from: *const u64, sizes: *const u64);
    write_list_notify: gaspi_write_list_notify(
        num: u32, segments: *const u8, at: *const u64, rank: u16, remotes: *const u8, to: *const u64, sizes: *const u64,
        segment: u8, id: u32, value: u32);
    read_list_notify: gaspi_read_list_notify(
        num: u32, segments: *const u8, at: *const u64, rank: u16, remotes: *const u8, from: *const u64, sizes: *const u64,
        segment: u8, id: u32);
}

/// The parts of a list.
#[derive(Default)]
pub(crate) struct Parts {
    segments: Vec<u8>,
    at: Vec<u64>,
    remotes: Vec<u8>,
    to: Vec<u64>,
    sizes: Vec<u64>,
}

impl Parts {
    /// Parts between two segments: local offset, remote offset, size.
    pub(crate) fn new(segment: u8, remote: u8, parts: &[(u64, u64, u64)]) -> Parts {
        let mut list = Parts::default();
        for (at, to, size) in parts {
            list.push((segment, *at), (remote, *to), *size);
        }
        list
    }

    pub(crate) fn push(&mut self, (segment, at): (u8, u64), (remote, to): (u8, u64), size: u64) {
        self.segments.push(segment);
        self.at.push(at);
        self.remotes.push(remote);
        self.to.push(to);
        self.sizes.push(size);
    }

    pub(crate) fn num(&self) -> u32 {
        self.sizes.len() as u32
    }
}

macro_rules! of_parts {
    ($($method:ident: $list:ident($($parameter:ident: $ty:ty),*);)*) => {
        impl Parts {$(
            pub(crate) fn $method(&self, rank: u16 $(, $parameter: $ty)*) -> Request<impl Fn(u8, u64) -> i32> {
                let (segments, at) = (self.segments.as_ptr(), self.at.as_ptr());
                let (remotes, to, sizes) = (self.remotes.as_ptr(), self.to.as_ptr(), self.sizes.as_ptr());
                $list(self.num(), segments, at, rank, remotes, to, sizes $(, $parameter)*)
            }
        )*}
    };
}

of_parts! {
    write: write_list();
    read: read_list();
    write_notify: write_list_notify(segment: u8, id: u32, value: u32);
    read_notify: read_list_notify(segment: u8, id: u32);
}

/// A reduction. Its group takes the place of the queue.
pub(crate) fn allreduce<T>(
    send: *const T,
    receive: *mut T,
    num: u32,
    operation: u32,
    datatype: u32,
) -> Request<impl Fn(u8, u64) -> i32> {
    let (send, receive) = (send.cast(), receive.cast());
    let call = move |group, timeout| {
        c!(gaspi_allreduce(
            send, receive, num, operation, datatype, group, timeout
        ))
    };
    Request {
        name: "gaspi_allreduce",
        call,
    }
}

/// A reduction with an operation of the user, which gets `state`.
pub(crate) fn allreduce_user<T>(
    send: *const T,
    receive: *mut T,
    num: u32,
    size: u64,
    operation: Option<gaspi_reduce_operation_t>,
    state: *mut c_void,
) -> Request<impl Fn(u8, u64) -> i32> {
    let (send, receive) = (send.cast(), receive.cast());
    let call = move |group, timeout| {
        c!(gaspi_allreduce_user(
            send, receive, num, size, operation, state, group, timeout
        ))
    };
    Request {
        name: "gaspi_allreduce_user",
        call,
    }
}
