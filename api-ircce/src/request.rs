//! Requests (manual §3.4, §4.2, §6.2). Sends run one after the other. Receives match by source.
//!
//! The program owns the C structure of a request. An open request has an entry in [`OpenRequests`], and the structure has the entry's id. When the request ends, its status
//! is in the structure.

mod ending;
mod structure;

use std::sync::atomic::Ordering;

use unipgas_core::message::{Mailbox, Needs, OpenRequests, RequestEnd};

use crate::message::{Buffer, MessageSource, POINT_TO_POINT};
use crate::process::Ue;
use crate::status::{ErrorCode, Result, SUCCESS};

pub(crate) use structure::Common;
pub use structure::{RecvRequest, SendRequest};

/// `iRCCE_PENDING`: in progress.
pub const PENDING: i32 = -2;
/// `iRCCE_RESERVED`: waits for earlier requests.
pub const RESERVED: i32 = -3;
/// `iRCCE_NOT_ENQUEUED`: the request is not open, so it cannot be cancelled.
pub const NOT_ENQUEUED: i32 = -4;

/// Status of a request that ended by a failure of the engine.
const FAILED: i32 = ErrorCode::General as i32;

/// The address of the program's structure of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handle {
    Send(*mut SendRequest),
    Receive(*mut RecvRequest),
}

// SAFETY:
// - contract of `isend` and `irecv`: the structure is valid on each thread until the request has ended.
unsafe impl Send for Handle {}

/// The open requests.
pub(crate) type Pending = OpenRequests<Handle>;

/// The status of an open request. `None`: the request has ended, or never existed.
fn open_status(pending: &Pending, mailbox: &Mailbox, id: u64) -> Option<i32> {
    let begun = pending.has_begun(mailbox, id)?;
    Some(if begun { PENDING } else { RESERVED })
}

/// The state of a request, with its status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ended(i32),
    Open(i32),
}

impl State {
    /// The return code of a nonblocking call, and whether the request has ended.
    pub fn answer(self) -> (i32, bool) {
        match self {
            State::Ended(status) => (status, true),
            State::Open(status) => (status, false),
        }
    }
}

impl Ue {
    /// `iRCCE_isend`. Errors: [`ErrorCode::Id`]; [`Failure::Engine`].
    ///
    /// # Safety
    /// `request` and the bytes are valid on each thread, and the bytes unchanged, until the request has ended.
    pub(crate) unsafe fn isend(
        &self,
        (data, len): (*const u8, usize),
        dest: i32,
        request: *mut SendRequest,
    ) -> Result<State> {
        let dest = self.check_id(dest)?;
        let mut mailbox = self.messages.messenger.advanced();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of this call: `request` is valid, and the bytes are valid and unchanged until the request has ended.
        unsafe {
            let id = pending.send(dest, (data, len), Handle::Send(request));
            let common = Common::begun(id, data.cast_mut(), len as i64, dest as i32);
            request.write(SendRequest::new(common));
        }
        self.messages.open.fetch_add(1, Ordering::Relaxed);
        self.push_requests(&mut pending, &mut mailbox)?;
        // SAFETY:
        // - contract of this call: `request` is valid.
        Ok(unsafe { self.state_of(&pending, &mailbox, Handle::Send(request)) })
    }

    /// `iRCCE_irecv`. Errors: as for [`Ue::isend`].
    ///
    /// # Safety
    /// `request` and the buffer are valid on each thread until the request has ended. Until then, the library has exclusive access to the buffer.
    pub(crate) unsafe fn irecv(
        &self,
        buffer: Buffer,
        source: MessageSource,
        request: *mut RecvRequest,
    ) -> Result<State> {
        if source.is_some_and(|source| source >= self.num()) {
            return Err(ErrorCode::Id.into());
        }
        let mut mailbox = self.messages.messenger.advanced();
        let mut pending = self.messages.pending.lock();
        let (from, room) = ((source, POINT_TO_POINT), (buffer.ptr, buffer.capacity));
        // SAFETY:
        // - contract of this call: `request` and the buffer are valid until the request has ended.
        unsafe {
            let id = pending.receive(&mut mailbox, from, room, Handle::Receive(request));
            let size = buffer.capacity.min(i64::MAX as usize) as i64;
            let from = source.map_or(-1, |source| source as i32);
            request.write(RecvRequest::new(Common::begun(id, buffer.ptr, size, from)));
        }
        self.messages.open.fetch_add(1, Ordering::Relaxed);
        self.push_requests(&mut pending, &mut mailbox)?;
        // SAFETY:
        // - contract of this call: `request` is valid.
        Ok(unsafe { self.state_of(&pending, &mailbox, Handle::Receive(request)) })
    }

    /// # Safety
    /// The request is valid.
    unsafe fn state_of(&self, pending: &Pending, mailbox: &Mailbox, handle: Handle) -> State {
        // SAFETY:
        // - contract of this call: the request is valid.
        let (id, status) = unsafe {
            let common = handle.common();
            ((*common).id, (*common).status)
        };
        match open_status(pending, mailbox, id) {
            Some(status) => State::Open(status),
            // A request that never existed has nothing to do.
            None => State::Ended(match status {
                PENDING | RESERVED => SUCCESS,
                status => status,
            }),
        }
    }

    /// The state, without progress (`iRCCE_get_status`).
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn status(&self, handle: Handle) -> State {
        let mailbox = self.messages.messenger.mailbox();
        let pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of this call: the request is valid.
        unsafe { self.state_of(&pending, &mailbox, handle) }
    }

    /// Makes progress on this request and on no other one (`iRCCE_isend_test`, `iRCCE_irecv_test`). Errors: [`Failure::Engine`].
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn test(&self, handle: Handle) -> Result<State> {
        let state = {
            let mut mailbox = self.messages.messenger.advanced();
            let mut pending = self.messages.pending.lock();
            // SAFETY:
            // - contract of this call: the request is valid.
            unsafe {
                let id = (*handle.common()).id;
                let engine = self.world().engine();
                pending
                    .push_one(engine, &mut mailbox, id, |end| self.ended(end))
                    .map_err(|(peer, error)| self.blame_any(peer, error))?;
                self.state_of(&pending, &mailbox, handle)
            }
        };
        if matches!(state, State::Open(_)) {
            self.looked()?;
        }
        Ok(state)
    }

    /// Makes progress on all requests (`iRCCE_isend_push`, `iRCCE_irecv_push`). Returns whether sends (`sends` is true) or receives are open.
    pub(crate) fn push_all(&self, sends: bool) -> Result<State> {
        let left = {
            let mut mailbox = self.messages.messenger.advanced();
            let mut pending = self.messages.pending.lock();
            self.push_requests(&mut pending, &mut mailbox)?;
            pending.has(sends)
        };
        if left {
            self.looked()?;
            return Ok(State::Open(PENDING));
        }
        Ok(State::Ended(SUCCESS))
    }

    /// Waits until all sends (`sends` is true) or receives have ended.
    pub(crate) fn wait_all(&self, sends: bool) -> Result<()> {
        self.wait_pushing(Needs::Anyone, |_| {
            let pending = self.messages.pending.lock();
            (!pending.has(sends)).then_some(())
        })
    }

    /// Waits until the request has ended, and returns its status. Errors: [`Failure::Engine`].
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn wait_for(&self, handle: Handle) -> Result<i32> {
        let needed = self.needed(handle);
        let needs = needed.as_ref().map(std::slice::from_ref);
        self.wait_pushing(needs.map_or(Needs::Anyone, Needs::Ranks), |mailbox| {
            let pending = self.messages.pending.lock();
            // SAFETY:
            // - contract of this call: the request is valid.
            match unsafe { self.state_of(&pending, mailbox, handle) } {
                State::Ended(status) => Some(status),
                State::Open(_) => None,
            }
        })
    }

    /// Waits until `choose` returns a value. Its argument is a function that returns the state of a request.
    ///
    /// # Safety
    /// Each request that `choose` passes to its argument is valid.
    pub(crate) unsafe fn wait_any<T>(
        &self,
        mut choose: impl FnMut(&mut dyn FnMut(Handle) -> State) -> Option<T>,
    ) -> Result<T> {
        self.wait_pushing(Needs::Anyone, |mailbox| {
            let pending = self.messages.pending.lock();
            // SAFETY:
            // - contract of this call: the requests are valid.
            choose(&mut |handle| unsafe { self.state_of(&pending, mailbox, handle) })
        })
    }

    /// The peer that a wait for this request needs alive. `None`: any peer may be needed.
    fn needed(&self, handle: Handle) -> Option<u32> {
        let pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of `wait_for`, the only caller: the request is valid.
        let id = unsafe { (*handle.common()).id };
        pending.needed(id)
    }

    /// Makes progress on all open requests. Errors: the first failure.
    pub(crate) fn push_requests(&self, pending: &mut Pending, mailbox: &mut Mailbox) -> Result<()> {
        let engine = self.world().engine();
        pending
            .push(engine, mailbox, |end| self.ended(end))
            .map_err(|(peer, error)| self.blame_any(peer, error))
    }

    /// Stores the end of a request in its structure.
    fn ended(&self, end: &RequestEnd<Handle>) {
        self.messages.open.fetch_sub(1, Ordering::Relaxed);
        let status = match &end.result {
            Ok(None) => SUCCESS,
            Ok(Some(received)) => match self.messages.note(received, end.size) {
                Ok(()) => SUCCESS,
                Err(_) => ErrorCode::MessageLength as i32,
            },
            Err(_) => FAILED,
        };
        // SAFETY:
        // - the structure is valid until the request has ended. The request ends now.
        unsafe {
            let common = &mut *end.tag.common();
            if let Ok(Some(received)) = &end.result {
                common.received(received.source as i32, received.len as i64);
            }
            common.end(status);
        }
    }
}

/// The size of a request in bytes: the requested size, then the size of the received message.
///
/// # Safety
/// The request is valid.
pub(crate) unsafe fn size(handle: Handle) -> i64 {
    // SAFETY:
    // - contract of this call: the request is valid.
    unsafe { (*handle.common()).size }
}
