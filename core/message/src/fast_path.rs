//! The fast path of blocking messages. A caller that waits has all data of its message, so the mailbox keeps none: a send is one word until its receipt
//! comes, and a receive takes its line from the window.

use std::sync::Arc;

use super::layout::{Head, INLINE, Kind};
use super::mailbox::Mailbox;
use super::outgoing::Bytes;
use super::state::{Envelope, Pattern, Received, received};
use unipgas_base::Result;
use unipgas_engine::engine::Engine;

/// Bit of tickets: the sender waits for the receipt, and the mailbox keeps no state of the send.
pub(super) const WAITED: u32 = 1 << 31;

/// The only send of this kind.
#[derive(Debug, Default)]
pub(super) struct Waited {
    serial: u32,
    to: u32,
    open: bool,
}

impl Mailbox {
    /// Sends, if one line and its data suffice. Returns the number for [`Mailbox::is_received`]. Errors: as [`Mailbox::send`].
    ///
    /// # Safety
    /// The bytes are readable.
    #[inline(always)]
    pub unsafe fn send_waited(
        &mut self,
        engine: &Engine,
        to: u32,
        envelope: Envelope,
        (data, len): (*const u8, usize),
    ) -> Result<Option<u32>> {
        if self.waited.open || len > self.shape.eager() || !self.outgoing(to)?.waiting.is_empty() {
            return Ok(None);
        }
        if engine.is_driven() && !self.is_near(to) {
            return Ok(None);
        }
        let serial = self.waited.serial.wrapping_add(1) & (WAITED - 1);
        let head = Head::of(Kind::Synchronous, envelope, len, WAITED | serial);
        let bytes = Bytes { ptr: data, len };
        // SAFETY:
        // - contract of this call: the bytes are readable.
        if !unsafe { self.push(to, &head, bytes) }? {
            return Ok(None);
        }
        self.endpoint.count(len);
        self.waited = Waited {
            serial,
            to,
            open: true,
        };
        Ok(Some(serial))
    }

    /// Whether the send with this number has been received.
    #[inline(always)]
    pub fn is_received(&self, serial: u32) -> bool {
        !(self.waited.open && self.waited.serial == serial)
    }

    /// Ends the wait for the receipt.
    #[cold]
    pub fn stop_waiting(&mut self, serial: u32) {
        if self.waited.serial == serial {
            self.waited.open = false;
        }
    }

    /// Takes the receipt of a send of this kind.
    #[inline(always)]
    pub(super) fn receipt(&mut self, peer: u32, ticket: u32) {
        let waited = &mut self.waited;
        if waited.serial == ticket & !WAITED && waited.to == peer {
            waited.open = false;
        }
    }

    /// Takes the next message from its sender's lane, if it fits and no other receive is open.
    ///
    /// # Safety
    /// `capacity` bytes at `buffer` are valid for writes.
    #[inline(always)]
    pub unsafe fn receive_next(
        &mut self,
        pattern: &Pattern,
        buffer: *mut u8,
        capacity: usize,
    ) -> Option<Received> {
        let source = pattern.source?;
        if !(self.posted.is_empty() && self.arrivals.is_empty()) {
            return None;
        }
        // SAFETY:
        // - as in `progress`.
        let window = unsafe { &*Arc::as_ptr(&self.window) };
        if !window.is_active(source) {
            return None;
        }
        let line = window.next_line(source)?;
        let head = line.head()?;
        let short = head.kind == Kind::Synchronous || head.kind == Kind::Eager;
        if !(short && pattern.fits(source, &head)) {
            return None;
        }
        window.prefetch_second(source);
        let mut used = 0;
        // SAFETY:
        // - contract of this call: `capacity` bytes at `buffer` are writable, and no copy is longer.
        // - the line is a local, and the sender does not write to its data before it gets credit.
        unsafe {
            if head.len > INLINE {
                let bytes = window.data(source, &line, head.len);
                used = bytes.len;
                unipgas_base::copy::copy(bytes.ptr, buffer, bytes.len.min(capacity));
            } else {
                unipgas_base::copy::copy(line.carried().as_ptr(), buffer, head.len.min(capacity));
            }
        }
        if head.kind == Kind::Synchronous {
            self.answer(source, Kind::Done, head.ticket, 0);
        }
        self.took(window, source, used);
        Some(received(source, &head))
    }

    /// Whether a receive has to be posted: its message has come another way, or may come so.
    #[inline(always)]
    pub fn must_be_posted(&self, pattern: &Pattern, engine: &Engine) -> bool {
        pattern.source.is_none()
            || (engine.is_driven() && !pattern.source.is_some_and(|peer| self.is_near(peer)))
            || !(self.posted.is_empty() && self.arrivals.is_empty())
    }
}
