//! The short way of an operation: what loads and stores carry out in the call, or a network with the least that is needed.

use std::sync::atomic::AtomicU64;

use crate::Result;
use crate::endpoint::Endpoint;
use crate::mapped;
use crate::op::{AtomicRequest, Local, Notice, QuickPut, Remote};

/// Operations that need loads and stores only, and are over when they return; those that a [`Posting`] counts may also be
/// [quick](crate::transport::Channel::put_quick). False: nothing has been done, for whatever reason; [`Endpoint`]'s operations tell it.
#[derive(Clone, Copy)]
pub struct FastPath<'a>(Option<&'a Endpoint>);

impl FastPath<'_> {
    /// Nothing is quick.
    #[inline(always)]
    pub(super) fn alone() -> Self {
        FastPath(None)
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
        unsafe {
            mapped::put_notify_fast(src, dst, len, notice)
                || self.quick(QuickPut {
                    src: src.ptr,
                    len,
                    dst,
                    notice: Some(notice),
                })
        }
    }

    /// See [`Endpoint::put`].
    ///
    /// # Safety
    /// `len` bytes at `src` are valid.
    #[inline(always)]
    pub unsafe fn put(self, src: Local, dst: Remote<'_>, len: usize) -> bool {
        // SAFETY:
        // - the caller's word.
        unsafe {
            mapped::put_fast(src, dst, len)
                || self.quick(QuickPut {
                    src: src.ptr,
                    len,
                    dst,
                    notice: None,
                })
        }
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
        unsafe { mapped::get_fast(dst, src, len) }
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
        mapped::notify_fast(notice) || unsafe { self.quick(put) }
    }

    /// # Safety
    /// The bytes are valid.
    #[inline(always)]
    unsafe fn quick(self, put: QuickPut<'_>) -> bool {
        // SAFETY:
        // - the caller's word.
        self.0
            .is_some_and(|endpoint| unsafe { endpoint.put_quick(&put) })
    }

    /// Writes a line of 64 bytes, the last 8 of which become visible after the others. It must be 64-byte aligned.
    #[inline(always)]
    pub fn put_line(self, line: &[u64; 8], dst: Remote<'_>) -> bool {
        mapped::put_line_fast(line, dst)
    }

    /// A u64 that the CPU's atomics may change. It must be 8-byte aligned.
    #[inline(always)]
    pub fn value(self, dst: Remote<'_>) -> Option<&AtomicU64> {
        mapped::value_fast(dst)
    }

    /// See [`Endpoint::atomic`], whose errors this has; `None`: nothing has happened, and [`Endpoint::atomic`] says why or takes longer.
    ///
    /// # Safety
    /// As [`Channel::atomic`](crate::transport::Channel::atomic).
    #[inline(always)]
    pub unsafe fn atomic(self, dst: Remote<'_>, request: &AtomicRequest) -> Option<Result<()>> {
        // SAFETY:
        // - the caller's word.
        unsafe { mapped::atomic_fast(dst, request) }
    }
}

/// An operation that this thread posts.
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
        FastPath(Some(self.endpoint))
    }

    /// It is over; `done`: it has been carried out, or is under way, with so many bytes, which is given back.
    #[inline(always)]
    pub fn end(self, done: bool, bytes: usize) -> bool {
        if done {
            self.endpoint.posted.end(self.begun);
            self.endpoint.posted.moved(bytes);
        }
        done
    }

    /// As [`end`](Posting::end), of an operation without bytes.
    #[inline(always)]
    pub fn end_empty(self, done: bool) -> bool {
        if done {
            self.endpoint.posted.end(self.begun);
        }
        done
    }
}
