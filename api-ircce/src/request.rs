//! Requests (manual §3.4, §4.2, §6.2). Sends run one after the other. Receives match by source.
//!
//! The program owns the C structure of a request. An open request has an entry here, and the structure has the entry's id. When the request ends, its status
//! is in the structure.

mod ending;
mod structure;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use slab::Slab;
use unipgas_core::message::{Envelope, Mailbox, Mode, Needs, Pattern, ReceiveTicket, SendTicket};

use crate::message::{Buffer, MessageSource, POINT_TO_POINT};
use crate::process::Ue;
use crate::status::{ErrorCode, Failure, Result, SUCCESS};

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

struct PendingSend {
    request: *mut SendRequest,
    serial: u32,
    dest: u32,
    data: *const u8,
    len: usize,
    /// `None`: not started, or ended at once.
    ticket: Option<SendTicket>,
    ended: Option<Result<()>>,
}

struct PendingReceive {
    request: *mut RecvRequest,
    serial: u32,
    source: MessageSource,
    capacity: usize,
    ticket: ReceiveTicket,
}

// SAFETY:
// - contract of `isend`: the pointers are valid on each thread until the request has ended.
unsafe impl Send for PendingSend {}
// SAFETY:
// - contract of `irecv`: the pointers are valid on each thread until the request has ended.
unsafe impl Send for PendingReceive {}

/// The open requests.
#[derive(Default)]
pub(crate) struct Pending {
    sends: Slab<PendingSend>,
    receives: Slab<PendingReceive>,
    /// Keys of `sends`, in posting order.
    send_order: VecDeque<u32>,
    receive_order: VecDeque<u32>,
    serials: u32,
}

fn id(key: usize, serial: u32) -> u64 {
    key as u64 | u64::from(serial) << 32
}

impl Pending {
    fn serial(&mut self) -> u32 {
        // Never 0, so a structure of zeroes matches no entry.
        self.serials = self.serials.wrapping_add(1).max(1);
        self.serials
    }

    /// Keys of the open sends (`sends` is true) or receives, in posting order.
    fn order(&self, sends: bool) -> &VecDeque<u32> {
        match sends {
            true => &self.send_order,
            false => &self.receive_order,
        }
    }

    /// Removes an open request.
    fn remove(&mut self, ue: &Ue, handle: Handle, key: usize) {
        let order = match handle {
            Handle::Send(_) => {
                self.sends.remove(key);
                &mut self.send_order
            }
            Handle::Receive(_) => {
                self.receives.remove(key);
                &mut self.receive_order
            }
        };
        order.retain(|known| *known as usize != key);
        ue.messages.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn find_send(&self, id: u64) -> Option<usize> {
        let found = self.sends.get(id as u32 as usize)?;
        (found.serial == (id >> 32) as u32).then_some(id as u32 as usize)
    }

    fn find_receive(&self, id: u64) -> Option<usize> {
        let found = self.receives.get(id as u32 as usize)?;
        (found.serial == (id >> 32) as u32).then_some(id as u32 as usize)
    }

    /// Makes progress on the first send, and on later sends while each ends at once. Ends the completed receives. Errors: the first failure.
    pub fn push(&mut self, ue: &Ue, mailbox: &mut Mailbox) -> Result<()> {
        self.push_sends(ue, mailbox)?;
        self.push_receives(ue, mailbox)
    }

    fn push_sends(&mut self, ue: &Ue, mailbox: &mut Mailbox) -> Result<()> {
        while let Some(&key) = self.send_order.front() {
            let key = key as usize;
            self.begin(ue, mailbox, key)?;
            if !self.look_at_send(ue, mailbox, key)? {
                break;
            }
        }
        Ok(())
    }

    fn push_receives(&mut self, ue: &Ue, mailbox: &mut Mailbox) -> Result<()> {
        let mut nth = 0;
        while let Some(&key) = self.receive_order.get(nth) {
            if !self.look_at_receive(ue, mailbox, key as usize)? {
                nth += 1;
            }
        }
        Ok(())
    }

    /// Starts all waiting sends to `dest`, since a blocking send must follow them.
    pub fn begin_all(&mut self, ue: &Ue, mailbox: &mut Mailbox, dest: u32) -> Result<()> {
        for nth in 0..self.send_order.len() {
            let key = self.send_order[nth] as usize;
            if self.sends[key].dest == dest {
                self.begin(ue, mailbox, key)?;
            }
        }
        Ok(())
    }

    /// The known peers of the open requests.
    pub fn peers(&self) -> Vec<u32> {
        let sends = self.sends.iter().map(|(_, send)| send.dest);
        let receives = self
            .receives
            .iter()
            .filter_map(|(_, receive)| receive.source);
        let mut peers: Vec<u32> = sends.chain(receives).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// The receivers of open sends, without `known`.
    pub fn receivers_beside(&self, known: &[u32]) -> Vec<u32> {
        let receivers = self.sends.iter().map(|(_, send)| send.dest);
        receivers.filter(|dest| !known.contains(dest)).collect()
    }

    fn begin(&mut self, ue: &Ue, mailbox: &mut Mailbox, key: usize) -> Result<()> {
        let send = &mut self.sends[key];
        if send.ticket.is_some() || send.ended.is_some() {
            return Ok(());
        }
        let bytes = (send.data, send.len);
        let (envelope, mode) = (Envelope::default(), Mode::Synchronous);
        // SAFETY:
        // - contract of `isend`: the bytes are valid and unchanged until the request has ended.
        let sent =
            unsafe { mailbox.send(ue.world().engine(), send.dest, envelope, bytes, mode, false) };
        match sent {
            Ok(Some(ticket)) => send.ticket = Some(ticket),
            Ok(None) => send.ended = Some(Ok(())),
            Err(error) => return Err(ue.blame(send.dest, error)),
        }
        Ok(())
    }

    /// Ends and removes the request if it is complete. True: removed.
    fn look_at_send(&mut self, ue: &Ue, mailbox: &mut Mailbox, key: usize) -> Result<bool> {
        let send = &mut self.sends[key];
        if let Some(ticket) = send.ticket
            && let Some(result) = mailbox.test_send(ticket)
        {
            send.ended = Some(result.map_err(|error| ue.blame(send.dest, error)));
        }
        if send.ended.is_none() {
            return Ok(false);
        }
        let send = self.sends.remove(key);
        self.send_order.retain(|known| *known as usize != key);
        ue.messages.open.fetch_sub(1, Ordering::Relaxed);
        let ended = send.ended.unwrap_or(Ok(()));
        if !send.request.is_null() {
            // SAFETY:
            // - the structure is valid until the request has ended. The request ends now.
            unsafe {
                (*send.request)
                    .common
                    .end(ended.as_ref().map_or(FAILED, |()| SUCCESS))
            };
        }
        ended.map(|()| true)
    }

    /// Ends and removes the request if it is complete. True: removed.
    fn look_at_receive(&mut self, ue: &Ue, mailbox: &mut Mailbox, key: usize) -> Result<bool> {
        let receive = &self.receives[key];
        let Some(result) = mailbox.test_receive(receive.ticket) else {
            return Ok(false);
        };
        let receive = self.receives.remove(key);
        self.receive_order.retain(|known| *known as usize != key);
        ue.messages.open.fetch_sub(1, Ordering::Relaxed);
        let (received, status) = match result {
            Ok(received) => {
                let noted = ue.messages.note(&received, receive.capacity);
                let status = noted.map_or(ErrorCode::MessageLength as i32, |()| SUCCESS);
                (Ok(received), status)
            }
            Err(error) => (Err(error), FAILED),
        };
        if !receive.request.is_null() {
            // SAFETY:
            // - the structure is valid until the request has ended. The request ends now.
            unsafe {
                let common = &mut (*receive.request).common;
                if let Ok(received) = &received {
                    common.received(received.source as i32, received.len as i64);
                }
                common.end(status);
            }
        }
        received.map_err(|error| match receive.source {
            Some(source) => ue.blame(source, error),
            None => Failure::Engine(error),
        })?;
        Ok(true)
    }

    /// Makes progress on this request. True: it is still open.
    fn look_at(&mut self, ue: &Ue, mailbox: &mut Mailbox, handle: Handle, id: u64) -> Result<bool> {
        match handle {
            Handle::Send(_) => {
                let Some(key) = self.find_send(id) else {
                    return Ok(false);
                };
                if self.send_order.front() == Some(&(key as u32)) {
                    self.begin(ue, mailbox, key)?;
                }
                self.look_at_send(ue, mailbox, key).map(|ended| !ended)
            }
            Handle::Receive(_) => {
                let Some(key) = self.find_receive(id) else {
                    return Ok(false);
                };
                self.look_at_receive(ue, mailbox, key).map(|ended| !ended)
            }
        }
    }

    /// The status of an open request. `None`: the request has ended, or never existed.
    fn state(&self, mailbox: &Mailbox, handle: Handle, id: u64) -> Option<i32> {
        let begun = match handle {
            Handle::Send(_) => {
                let key = self.find_send(id)?;
                self.send_order.front() == Some(&(key as u32)) || self.sends[key].ticket.is_some()
            }
            Handle::Receive(_) => {
                let key = self.find_receive(id)?;
                self.is_first(key) || mailbox.is_matched(self.receives[key].ticket)
            }
        };
        Some(if begun { PENDING } else { RESERVED })
    }

    /// Whether it is the first receive from its source. A receive from any source is never first.
    fn is_first(&self, key: usize) -> bool {
        let source = self.receives[key].source;
        let same = |other: &&u32| self.receives[**other as usize].source == source;
        source.is_some() && self.receive_order.iter().find(same) == Some(&(key as u32))
    }
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
        let serial = pending.serial();
        let key = pending.sends.insert(PendingSend {
            request,
            serial,
            dest,
            data,
            len,
            ticket: None,
            ended: None,
        });
        pending.send_order.push_back(key as u32);
        self.messages.open.fetch_add(1, Ordering::Relaxed);
        // SAFETY:
        // - contract of this call: `request` is valid.
        unsafe {
            let id = id(key, serial);
            let common = Common::begun(id, data.cast_mut(), len as i64, dest as i32);
            request.write(SendRequest::new(common));
        }
        pending.push(self, &mut mailbox)?;
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
        let pattern = Pattern::from(source, POINT_TO_POINT);
        // SAFETY:
        // - contract of this call: the buffer is valid until the request has ended.
        let ticket = unsafe { mailbox.receive(pattern, buffer.ptr, buffer.capacity) };
        let serial = pending.serial();
        let key = pending.receives.insert(PendingReceive {
            request,
            serial,
            source,
            capacity: buffer.capacity,
            ticket,
        });
        pending.receive_order.push_back(key as u32);
        self.messages.open.fetch_add(1, Ordering::Relaxed);
        // SAFETY:
        // - contract of this call: `request` is valid.
        unsafe {
            let id = id(key, serial);
            let size = buffer.capacity.min(i64::MAX as usize) as i64;
            let from = source.map_or(-1, |source| source as i32);
            request.write(RecvRequest::new(Common::begun(id, buffer.ptr, size, from)));
        }
        pending.push(self, &mut mailbox)?;
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
        match pending.state(mailbox, handle, id) {
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
                pending.look_at(self, &mut mailbox, handle, (*handle.common()).id)?;
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
            pending.push(self, &mut mailbox)?;
            !pending.order(sends).is_empty()
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
            pending.order(sends).is_empty().then_some(())
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
        match handle {
            // A send that has not started also waits for the receivers of earlier sends.
            Handle::Send(_) => pending
                .find_send(id)
                .map(|key| &pending.sends[key])
                .filter(|send| send.ticket.is_some())
                .map(|send| send.dest),
            Handle::Receive(_) => pending
                .find_receive(id)
                .and_then(|key| pending.receives[key].source),
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
