//! Open requests of a caller: synchronous sends that run one after the other, and receives.
//!
//! Calls that make progress pass the end of each request to the caller.

use std::collections::VecDeque;

use unipgas_base::{Error, Result};
use unipgas_engine::Engine;

use super::mailbox::Mailbox;
use super::state::{Envelope, Mode, Pattern, ReceiveTicket, Received, SendTicket};

/// The id before the first one. Small numbers, which uninitialised structures of programs may have, are not ids.
const NONE: u64 = 1 << 32;

/// The end of a request.
#[derive(Debug)]
pub struct RequestEnd<T> {
    /// The caller's value.
    pub tag: T,
    /// Size of the buffer in bytes.
    pub size: usize,
    /// The message of a receive. `None`: a send.
    pub result: Result<Option<Received>>,
}

/// Errors: the failure of a request, with its peer (`None`: a receive from any peer).
pub type OpenRequestResult<T = ()> = std::result::Result<T, (Option<u32>, Error)>;

/// The mailbox's ticket of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestTicket {
    /// A send that has started.
    Send(SendTicket),
    /// A receive.
    Receive(ReceiveTicket),
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Waiting,
    Begun(SendTicket),
    Ended,
}

struct OpenSend<T> {
    id: u64,
    tag: T,
    dest: u32,
    data: *const u8,
    len: usize,
    stage: Stage,
}

struct OpenReceive<T> {
    id: u64,
    tag: T,
    source: Option<u32>,
    capacity: usize,
    ticket: ReceiveTicket,
}

// SAFETY:
// - contract of `OpenRequests::send`: the bytes are valid on each thread until the request has ended.
unsafe impl<T: Send> Send for OpenSend<T> {}

/// The open requests, in the order of posting. An id is used once.
pub struct OpenRequests<T> {
    sends: VecDeque<OpenSend<T>>,
    receives: VecDeque<OpenReceive<T>>,
    last: u64,
}

impl<T> Default for OpenRequests<T> {
    fn default() -> Self {
        OpenRequests {
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            last: NONE,
        }
    }
}

impl<T: Copy> OpenRequests<T> {
    fn id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Posts a send of `len` bytes at `data`, and returns its id. It starts when the sends before it have ended, or by [`OpenRequests::begin_all`].
    ///
    /// # Safety
    /// The bytes are valid on each thread, and unchanged, until the request has ended.
    pub unsafe fn send(&mut self, dest: u32, (data, len): (*const u8, usize), tag: T) -> u64 {
        let id = self.id();
        self.sends.push_back(OpenSend {
            id,
            tag,
            dest,
            data,
            len,
            stage: Stage::Waiting,
        });
        id
    }

    /// Posts a receive of `context` from `source` (`None`: any peer) into `capacity` bytes at `buffer`, and returns its id.
    ///
    /// # Safety
    /// The bytes are valid for writes on each thread until the request has ended, and no other code uses them.
    pub unsafe fn receive(
        &mut self,
        mailbox: &mut Mailbox,
        (source, context): (Option<u32>, u8),
        (buffer, capacity): (*mut u8, usize),
        tag: T,
    ) -> u64 {
        // SAFETY:
        // - contract of this call: the bytes are valid until the request has ended.
        let ticket = unsafe { mailbox.receive(Pattern::from(source, context), buffer, capacity) };
        let id = self.id();
        self.receives.push_back(OpenReceive {
            id,
            tag,
            source,
            capacity,
            ticket,
        });
        id
    }

    fn find_send(&self, id: u64) -> Option<usize> {
        self.sends.binary_search_by_key(&id, |send| send.id).ok()
    }

    fn find_receive(&self, id: u64) -> Option<usize> {
        let receives = &self.receives;
        receives
            .binary_search_by_key(&id, |receive| receive.id)
            .ok()
    }

    /// Whether sends (`sends` is true) or receives are open.
    pub fn has(&self, sends: bool) -> bool {
        match sends {
            true => !self.sends.is_empty(),
            false => !self.receives.is_empty(),
        }
    }

    /// The known peers of the open requests.
    pub fn peers(&self) -> Vec<u32> {
        let sources = self.receives.iter().filter_map(|receive| receive.source);
        let mut peers: Vec<u32> = self.receivers().chain(sources).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// The peers of the open sends.
    pub fn receivers(&self) -> impl Iterator<Item = u32> {
        self.sends.iter().map(|send| send.dest)
    }

    /// Makes progress on the first send, and on later sends while each ends at once. Ends the completed receives. Errors: the first failure.
    pub fn push(
        &mut self,
        engine: &Engine,
        mailbox: &mut Mailbox,
        ended: impl Fn(&RequestEnd<T>),
    ) -> OpenRequestResult {
        while !self.sends.is_empty() {
            self.begin(engine, mailbox, 0)?;
            if !self.end_send(mailbox, 0, &ended)? {
                break;
            }
        }
        let mut at = 0;
        while at < self.receives.len() {
            if !self.end_receive(mailbox, at, &ended)? {
                at += 1;
            }
        }
        Ok(())
    }

    /// Makes progress on this request and on no other one. Errors: its failure.
    pub fn push_one(
        &mut self,
        engine: &Engine,
        mailbox: &mut Mailbox,
        id: u64,
        ended: impl Fn(&RequestEnd<T>),
    ) -> OpenRequestResult {
        if let Some(at) = self.find_send(id) {
            if at == 0 {
                self.begin(engine, mailbox, at)?;
            }
            self.end_send(mailbox, at, &ended)?;
        } else if let Some(at) = self.find_receive(id) {
            self.end_receive(mailbox, at, &ended)?;
        }
        Ok(())
    }

    /// Starts all waiting sends to `dest`. Then a send of the mailbox follows them.
    pub fn begin_all(
        &mut self,
        engine: &Engine,
        mailbox: &mut Mailbox,
        dest: u32,
    ) -> OpenRequestResult {
        for at in 0..self.sends.len() {
            if self.sends[at].dest == dest {
                self.begin(engine, mailbox, at)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, engine: &Engine, mailbox: &mut Mailbox, at: usize) -> OpenRequestResult {
        let send = &mut self.sends[at];
        if !matches!(send.stage, Stage::Waiting) {
            return Ok(());
        }
        let bytes = (send.data, send.len);
        let (envelope, mode) = (Envelope::default(), Mode::Synchronous);
        // SAFETY:
        // - contract of `send`: the bytes are valid and unchanged until the request has ended.
        let sent = unsafe { mailbox.send(engine, send.dest, envelope, bytes, mode, false) };
        send.stage = match sent {
            Ok(Some(ticket)) => Stage::Begun(ticket),
            Ok(None) => Stage::Ended,
            Err(error) => return Err((Some(send.dest), error)),
        };
        Ok(())
    }

    /// Ends and removes the send if it is complete. True: removed.
    fn end_send(
        &mut self,
        mailbox: &mut Mailbox,
        at: usize,
        ended: &impl Fn(&RequestEnd<T>),
    ) -> OpenRequestResult<bool> {
        let result = match self.sends[at].stage {
            Stage::Waiting => return Ok(false),
            Stage::Ended => Ok(()),
            Stage::Begun(ticket) => match mailbox.test_send(ticket) {
                Some(result) => result,
                None => return Ok(false),
            },
        };
        let Some(send) = self.sends.remove(at) else {
            return Ok(false);
        };
        let end = RequestEnd {
            tag: send.tag,
            size: send.len,
            result: result.map(|()| None),
        };
        ended(&end);
        end.result
            .map(|_| true)
            .map_err(|error| (Some(send.dest), error))
    }

    /// Ends and removes the receive if it is complete. True: removed.
    fn end_receive(
        &mut self,
        mailbox: &mut Mailbox,
        at: usize,
        ended: &impl Fn(&RequestEnd<T>),
    ) -> OpenRequestResult<bool> {
        let Some(result) = mailbox.test_receive(self.receives[at].ticket) else {
            return Ok(false);
        };
        let Some(receive) = self.receives.remove(at) else {
            return Ok(false);
        };
        let end = RequestEnd {
            tag: receive.tag,
            size: receive.capacity,
            result: result.map(Some),
        };
        ended(&end);
        end.result
            .map(|_| true)
            .map_err(|error| (receive.source, error))
    }

    /// Whether the open request has begun. A send has begun if it has started or is the first send. A receive has begun if it has a message or is the
    /// first receive from its source. `None`: the request is not open.
    pub fn has_begun(&self, mailbox: &Mailbox, id: u64) -> Option<bool> {
        if let Some(at) = self.find_send(id) {
            return Some(at == 0 || matches!(self.sends[at].stage, Stage::Begun(_)));
        }
        let at = self.find_receive(id)?;
        let source = self.receives[at].source;
        let earlier = || {
            self.receives
                .iter()
                .take(at)
                .all(|one| one.source != source)
        };
        Some(source.is_some() && earlier() || mailbox.is_matched(self.receives[at].ticket))
    }

    /// The peer that a wait for this request needs alive. `None`: any peer may be needed, since a send that waits needs the peers of the sends before it.
    pub fn needed(&self, id: u64) -> Option<u32> {
        if let Some(at) = self.find_send(id) {
            let begun = matches!(self.sends[at].stage, Stage::Begun(_));
            return begun.then_some(self.sends[at].dest);
        }
        self.receives[self.find_receive(id)?].source
    }

    /// Removes an open request if it has no ticket, or if `end` ends its ticket. `None`: the request is not open. True: removed.
    pub fn remove_if(&mut self, id: u64, end: impl FnOnce(RequestTicket) -> bool) -> Option<bool> {
        if let Some(at) = self.find_send(id) {
            let gone = match self.sends[at].stage {
                Stage::Begun(ticket) => end(RequestTicket::Send(ticket)),
                _ => true,
            };
            if gone {
                self.sends.remove(at);
            }
            return Some(gone);
        }
        let at = self.find_receive(id)?;
        let gone = end(RequestTicket::Receive(self.receives[at].ticket));
        if gone {
            self.receives.remove(at);
        }
        Some(gone)
    }
}
