//! The fast path of blocking messages. Whoever waits for a message knows all about it, so that nothing needs to be kept: a send is one
//! word here until its receipt comes, and a receive takes its line straight from the window.

use std::sync::Arc;

use super::layout::{Head, INLINE, Kind};
use super::mailbox::Mailbox;
use super::outgoing::Bytes;
use super::state::{Envelope, Pattern, Received, received};
use crate::Result;
use crate::engine::Engine;

/// In tickets: the sender waits for the receipt, and has kept nothing.
pub(super) const WAITED: u32 = 1 << 31;

/// The one send that is under way like that.
#[derive(Debug, Default)]
pub(super) struct Waited {
    serial: u32,
    to: u32,
    open: bool,
}

impl Mailbox {
    /// Sends, if that takes a line and nothing else; gives the number that [`Mailbox::is_received`] wants. Errors: as for
    /// [`Mailbox::send`].
    ///
    /// # Safety
    /// The bytes are readable.
    #[inline(always)]
    pub(super) unsafe fn send_waited(
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
        // - the caller's word.
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
    pub(super) fn is_received(&self, serial: u32) -> bool {
        !(self.waited.open && self.waited.serial == serial)
    }

    /// Nobody waits for the receipt any more.
    #[cold]
    pub(super) fn stop_waiting(&mut self, serial: u32) {
        if self.waited.serial == serial {
            self.waited.open = false;
        }
    }

    /// A receipt for a send of this kind.
    #[inline(always)]
    pub(super) fn receipt(&mut self, peer: u32, ticket: u32) {
        let waited = &mut self.waited;
        if waited.serial == ticket & !WAITED && waited.to == peer {
            waited.open = false;
        }
    }

    /// Takes a message that fits straight from its sender's lane, if it is the next one there, and nobody else could want it.
    ///
    /// # Safety
    /// `capacity` bytes at `buffer` are valid for writes.
    #[inline(always)]
    pub(super) unsafe fn receive_next(
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
        // - the caller's word for the buffer; the line is a local, and the sender does not touch its data before it gets credit.
        unsafe {
            if head.len > INLINE {
                let bytes = window.data(source, &line, head.len);
                used = bytes.len;
                crate::copy(bytes.ptr, buffer, bytes.len.min(capacity));
            } else {
                crate::copy(line.carried().as_ptr(), buffer, head.len.min(capacity));
            }
        }
        if head.kind == Kind::Synchronous {
            self.answer(source, Kind::Done, head.ticket, 0);
        }
        self.took(window, source, used);
        Some(received(source, &head))
    }

    /// Whether a receive has to be posted, because its message has come another way, or could.
    #[inline(always)]
    pub(super) fn must_be_posted(&self, pattern: &Pattern, engine: &Engine) -> bool {
        pattern.source.is_none()
            || (engine.is_driven() && !pattern.source.is_some_and(|peer| self.is_near(peer)))
            || !(self.posted.is_empty() && self.arrivals.is_empty())
    }
}
