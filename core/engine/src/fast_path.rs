//! The fast path of an operation: loads and stores in the call, or an unsignaled operation of a network.

use std::sync::atomic::AtomicU64;

use crate::Result;
use crate::endpoint::Endpoint;
use crate::mapped;
use crate::op::{AtomicRequest, Local, Notice, Remote, UnsignaledPut};

/// Operations by loads and stores, which are complete when they return. Operations that a [`Posting`] counts may also be
/// [unsignaled](crate::transport::Channel::put_unsignaled). False: nothing has been done; the operations of [`Endpoint`] give the reason.
#[derive(Clone, Copy)]
pub struct FastPath<'a>(Option<&'a Endpoint>);

impl FastPath<'_> {
    /// Without unsignaled operations.
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
        // - contract of this call: `len` bytes at `src` are valid.
        unsafe {
            mapped::put_notify_fast(src, dst, len, notice)
                || self.put_unsignaled(UnsignaledPut {
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
        // - contract of this call: `len` bytes at `src` are valid.
        unsafe {
            mapped::put_fast(src, dst, len)
                || self.put_unsignaled(UnsignaledPut {
                    src: src.ptr,
                    len,
                    dst,
                    notice: None,
                })
        }
    }

    /// As [`put`](Self::put), but no byte becomes visible before earlier puts of this thread, as with [`Flags::ORDERED`](crate::Flags::ORDERED).
    ///
    /// # Safety
    /// As [`put`](Self::put).
    #[inline(always)]
    pub unsafe fn put_in_order(self, src: Local, dst: Remote<'_>, len: usize) -> bool {
        mapped::after_earlier_puts();
        // SAFETY:
        // - contract of this call: `len` bytes at `src` are valid.
        unsafe { self.put(src, dst, len) }
    }

    /// See [`Endpoint::get`].
    ///
    /// # Safety
    /// `len` bytes at `dst` are valid for writes.
    #[inline(always)]
    pub unsafe fn get(self, dst: Local, src: Remote<'_>, len: usize) -> bool {
        // SAFETY:
        // - contract of this call: `len` bytes at `dst` are valid for writes.
        unsafe { mapped::get_fast(dst, src, len) }
    }

    /// See [`Endpoint::notify`].
    #[inline(always)]
    pub fn notify(self, notice: Notice<'_>) -> bool {
        let put = UnsignaledPut {
            src: std::ptr::null(),
            len: 0,
            dst: notice.slot,
            notice: Some(notice),
        };
        // SAFETY:
        // - the put has no bytes.
        mapped::notify_fast(notice) || unsafe { self.put_unsignaled(put) }
    }

    /// # Safety
    /// `put.len` bytes at `put.src` are valid.
    #[inline(always)]
    unsafe fn put_unsignaled(self, put: UnsignaledPut<'_>) -> bool {
        // SAFETY:
        // - contract of this call: the bytes are valid.
        self.0
            .is_some_and(|endpoint| unsafe { endpoint.put_unsignaled(&put) })
    }

    /// Writes a line of 64 bytes. Its last 8 bytes become visible after the others. `dst` must be 64-byte aligned.
    #[inline(always)]
    pub fn put_line(self, line: &[u64; 8], dst: Remote<'_>) -> bool {
        mapped::put_line_fast(line, dst)
    }

    /// The u64 at `dst`, if CPU atomics may change it. It must be 8-byte aligned.
    #[inline(always)]
    pub fn value(self, dst: Remote<'_>) -> Option<&AtomicU64> {
        mapped::value_fast(dst)
    }

    /// See [`Endpoint::atomic`], which has the same errors. `None`: nothing has been done; [`Endpoint::atomic`] gives the reason, or takes longer.
    ///
    /// # Safety
    /// As [`Channel::atomic`](crate::transport::Channel::atomic).
    #[inline(always)]
    pub unsafe fn atomic(self, dst: Remote<'_>, request: &AtomicRequest) -> Option<Result<()>> {
        // SAFETY:
        // - contract of `Channel::atomic`: the pointers of the request are valid.
        unsafe { mapped::atomic_fast(dst, request) }
    }
}

/// An operation while this thread posts it.
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

    /// The operations to post.
    #[inline(always)]
    pub fn fast_path(&self) -> FastPath<'a> {
        FastPath(Some(self.endpoint))
    }

    /// Ends the posting. `done`: the operation is complete or in flight, with `bytes` bytes. Returns `done`.
    #[inline(always)]
    pub fn end(self, done: bool, bytes: usize) -> bool {
        if done {
            self.endpoint.posted.end(self.begun);
            self.endpoint.posted.moved(bytes);
        }
        done
    }

    /// As [`end`](Posting::end), for an operation without bytes.
    #[inline(always)]
    pub fn end_empty(self, done: bool) -> bool {
        if done {
            self.endpoint.posted.end(self.begun);
        }
        done
    }
}
