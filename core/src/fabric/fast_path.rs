//! The short way of an operation: what loads and stores carry out in the call, or a network with the least that is needed.

use std::sync::atomic::AtomicU64;

use crate::Result;
use crate::endpoint::Endpoint;
use crate::mapped;
use crate::op::{AtomicRequest, Local, Notice, QuickPut, Remote};

/// Operations that need loads and stores only, and are over when they return; those that a [`Posting`] counts may also be
/// [quick](crate::transport::Channel::put_quick). False: nothing has been done, for whatever reason; [`Endpoint`]'s operations tell it.
#[derive(Clone, Copy)]
pub enum FastPath<'a> {
    /// Nothing is quick, and nothing is [listed](Endpoint::named).
    Uncounted,
    /// Nothing is quick.
    Listed(&'a Endpoint),
    /// Of a posting of this thread.
    Posted(&'a Endpoint),
}

impl FastPath<'_> {
    /// Counts what has been done.
    #[inline(always)]
    fn counted(self, bytes: usize, done: bool) -> bool {
        if done {
            match self {
                FastPath::Uncounted => {}
                FastPath::Listed(endpoint) => endpoint.count(bytes),
                FastPath::Posted(endpoint) => endpoint.count_own(bytes),
            }
        }
        done
    }

    /// See [`Endpoint::put_notify`].
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    #[inline(always)]
    pub unsafe fn put_notify(
        self,
        src: Local,
        dst: Remote<'_>,
        len: usize,
        notice: Notice<'_>,
    ) -> bool {
        // SAFETY:
        // - the caller's word.
        let done = unsafe {
            mapped::put_notify_fast(src, dst, len, notice)
                || self.quick(QuickPut {
                    src: src.ptr,
                    len,
                    dst,
                    notice: Some(notice),
                })
        };
        self.counted(len, done)
    }

    /// See [`Endpoint::put`].
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    #[inline(always)]
    pub unsafe fn put(self, src: Local, dst: Remote<'_>, len: usize) -> bool {
        // SAFETY:
        // - the caller's word.
        let done = unsafe {
            mapped::put_fast(src, dst, len)
                || self.quick(QuickPut {
                    src: src.ptr,
                    len,
                    dst,
                    notice: None,
                })
        };
        self.counted(len, done)
    }

    /// A [`put`](Self::put) of which nothing becomes visible before what this thread has put earlier, as [`Flags::ORDERED`](crate::Flags::ORDERED) says.
    ///
    /// # Safety
    /// As [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn put_in_order(self, src: Local, dst: Remote<'_>, len: usize) -> bool {
        mapped::after_earlier_puts();
        // SAFETY:
        // - the caller's word.
        unsafe { self.put(src, dst, len) }
    }

    /// See [`Endpoint::get`].
    ///
    /// # Safety
    /// `len` bytes at `dst` are valid.
    #[inline(always)]
    pub unsafe fn get(self, dst: Local, src: Remote<'_>, len: usize) -> bool {
        // SAFETY:
        // - the caller's word.
        let done = unsafe { mapped::get_fast(dst, src, len) };
        self.counted(len, done)
    }

    /// See [`Endpoint::notify`].
    #[inline(always)]
    pub fn notify(self, notice: Notice<'_>) -> bool {
        let put = QuickPut {
            src: std::ptr::null(),
            len: 0,
            dst: notice.slot,
            notice: Some(notice),
        };
        // SAFETY:
        // - no bytes.
        let done = mapped::notify_fast(notice) || unsafe { self.quick(put) };
        self.counted(0, done)
    }

    /// # Safety
    /// The bytes are valid.
    #[inline(always)]
    unsafe fn quick(self, put: QuickPut<'_>) -> bool {
        match self {
            // SAFETY:
            // - the caller's word.
            FastPath::Posted(endpoint) => unsafe { endpoint.put_quick(&put) },
            FastPath::Listed(_) | FastPath::Uncounted => false,
        }
    }

    /// Writes a line of 64 bytes, the last 8 of which become visible after the others. It must be 64-byte aligned.
    #[inline(always)]
    pub fn put_line(self, line: &[u64; 8], dst: Remote<'_>) -> bool {
        let done = mapped::put_line_fast(line, dst);
        self.counted(size_of_val(line), done)
    }

    /// A u64 that the CPU's atomics may change. It must be 8-byte aligned.
    #[inline(always)]
    pub fn value(self, dst: Remote<'_>) -> Option<&AtomicU64> {
        let value = mapped::value_fast(dst);
        self.counted(8, value.is_some());
        value
    }

    /// See [`Endpoint::atomic`], whose errors this has; `None`: nothing has happened, and [`Endpoint::atomic`] says why or takes longer.
    ///
    /// # Safety
    /// As [`Channel::atomic`](crate::transport::Channel::atomic).
    #[inline(always)]
    pub unsafe fn atomic(self, dst: Remote<'_>, request: &AtomicRequest) -> Option<Result<()>> {
        // SAFETY:
        // - the caller's word.
        let done = unsafe { mapped::atomic_fast(dst, request) };
        self.counted(
            request.count.wrapping_mul(request.ty.size()),
            matches!(done, Some(Ok(()))),
        );
        done
    }
}

/// An operation that this thread posts. Until its end stays what a [`Limbo`](crate::limbo::Limbo) would free that knows the endpoint.
#[must_use = "it is posted when `end` says so"]
pub struct Posting<'a> {
    endpoint: &'a Endpoint,
    begun: u64,
}

impl<'a> Posting<'a> {
    #[inline(always)]
    pub(super) fn new(endpoint: &'a Endpoint, begun: u64) -> Self {
        Posting { endpoint, begun }
    }

    /// What may be posted.
    #[inline(always)]
    pub fn fast_path(&self) -> FastPath<'a> {
        FastPath::Posted(self.endpoint)
    }

    /// It is over; `done`: it has been carried out, or is under way, which is given back.
    #[inline(always)]
    pub fn end(self, done: bool) -> bool {
        self.endpoint.posted.end(self.begun, done);
        done
    }
}
