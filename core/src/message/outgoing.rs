//! The way to one peer: its mailbox, what is free there, and what waits for room.

use std::collections::VecDeque;

use super::layout::{Head, INLINE, LINE, Line, Shape};
use super::mailbox::PeerMailbox;
use crate::bundle::{BUNDLE_LEN, RegionKey};
use crate::engine::Connection;
use crate::op::{Flags, Local, Notice, Remote};
use crate::region::RemoteRegion;
use crate::{Endpoint, Result, prefetch};

/// What waits for room in a lane.
pub(super) enum Waiting {
    /// The send with this ticket.
    Send(u32),
    /// An answer.
    Answer(Head),
}

/// A peer that this process sends to.
pub(super) struct Outgoing {
    mailbox: RemoteRegion,
    connection: Connection,
    /// Which of its lanes is ours.
    lane: usize,
    shape: Shape,
    /// Lines written, and lines known to be taken.
    sent: u64,
    freed: u64,
    /// Bytes of the data ring used, and known to be free again.
    data_end: u64,
    data_free: u64,
    /// What `data_end` was after each line.
    ends: Box<[u64]>,
    greeted: bool,
    pub waiting: VecDeque<Waiting>,
    /// The region that was fetched from last.
    imported: Option<([u8; BUNDLE_LEN], RemoteRegion)>,
}

/// Bytes to be sent.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub ptr: *const u8,
    pub len: usize,
}

impl Bytes {
    pub const NONE: Bytes = Bytes {
        ptr: std::ptr::null(),
        len: 0,
    };
}

impl Outgoing {
    pub fn new(peer: PeerMailbox, shape: Shape) -> Self {
        Outgoing {
            mailbox: peer.region,
            connection: peer.connection,
            lane: peer.lane as usize,
            shape,
            sent: 0,
            freed: 0,
            data_end: 0,
            data_free: 0,
            ends: vec![0; shape.lines].into(),
            greeted: false,
            waiting: VecDeque::new(),
            imported: None,
        }
    }

    /// Takes note of how many lines the peer says that it has taken.
    fn credit(&mut self, told: u32) {
        let news = told.wrapping_sub(self.freed as u32);
        // More than has been sent: nobody wrote that who keeps to the rules.
        if news != 0 && u64::from(news) <= self.sent - self.freed {
            self.freed += u64::from(news);
            self.data_free = self.ends[(self.freed - 1) as usize & (self.shape.lines - 1)];
        }
    }

    /// Writes a line with its payload. False: there is no room. `told` is what the peer has written into our word for it.
    ///
    /// # Safety
    /// The payload is readable.
    #[inline]
    pub unsafe fn push(
        &mut self,
        endpoint: &Endpoint,
        told: u32,
        head: &Head,
        payload: Bytes,
        context: u64,
    ) -> Result<bool> {
        self.credit(told);
        if self.sent - self.freed >= self.shape.lines as u64 {
            return Ok(false);
        }
        let mark = self.shape.mark(self.sent);
        let mut line = Line::new(head, mark);
        let mut end = self.data_end;
        if payload.len > INLINE {
            let Some((begin, next)) = self.shape.place(end, self.data_free, payload.len) else {
                return Ok(false);
            };
            let to = Remote {
                region: &self.mailbox,
                offset: self.shape.data(self.lane, begin),
            };
            // The line comes together with the data.
            let base = self.mailbox.parts().base;
            if !base.is_null() {
                prefetch::for_stores(base.wrapping_add(to.offset), payload.len);
                prefetch::for_store(base.wrapping_add(self.shape.line(self.lane, self.sent)));
            }
            let from = Local {
                ptr: payload.ptr.cast_mut(),
                desc: 0,
            };
            // SAFETY:
            // - readable by the caller's word; the bytes are taken before the call returns.
            unsafe {
                endpoint.put(
                    from,
                    to,
                    payload.len,
                    Flags::INLINE | Flags::GATHERED,
                    context,
                )
            }?;
            line.point(begin);
            end = next;
        } else if payload.len > 0 {
            // SAFETY:
            // - readable by the caller's word.
            line.carry(unsafe { std::slice::from_raw_parts(payload.ptr, payload.len) });
        }
        self.write(endpoint, &line, mark, context)?;
        self.ends[self.sent as usize & (self.shape.lines - 1)] = end;
        self.data_end = end;
        self.sent += 1;
        self.prefetch_next();
        if !self.greeted {
            self.greet(endpoint, context)?;
        }
        Ok(true)
    }

    /// See [`Mailbox::is_near`](super::Mailbox::is_near).
    #[inline(always)]
    pub(super) fn is_near(&self) -> bool {
        !self.mailbox.is_asynchronous()
    }

    /// Asks for the line that comes next, where it can be written by stores.
    #[inline(always)]
    fn prefetch_next(&self) {
        let base = self.mailbox.parts().base;
        if !base.is_null() {
            prefetch::for_store(base.wrapping_add(self.shape.line(self.lane, self.sent)));
        }
    }

    #[inline(always)]
    fn write(&self, endpoint: &Endpoint, line: &Line, mark: u32, context: u64) -> Result<()> {
        let offset = self.shape.line(self.lane, self.sent);
        let at = |offset| Remote {
            region: &self.mailbox,
            offset,
        };
        if endpoint.fast_path().put_line(&line.0, at(offset)) {
            return Ok(());
        }
        let from = Local {
            ptr: line.0.as_ptr().cast::<u8>().cast_mut(),
            desc: 0,
        };
        let notice = Notice {
            slot: at(offset + LINE - 4),
            value: mark,
        };
        let flags = Flags::INLINE | Flags::ORDERED | Flags::GATHERED;
        // SAFETY:
        // - a local, whose bytes are taken before the call returns.
        unsafe { endpoint.put_notify(from, at(offset), LINE - 4, notice, flags, context) }?;
        Ok(())
    }

    /// The peer does not look at lanes that nobody has used.
    #[cold]
    fn greet(&mut self, endpoint: &Endpoint, context: u64) -> Result<()> {
        self.greeted = true;
        self.notify(endpoint, self.shape.hello_of(self.lane), 1, context)?;
        self.notify(endpoint, self.shape.news(), 1, context)
    }

    /// Tells the peer how many of its lines have been taken here.
    pub fn give_credit(&self, endpoint: &Endpoint, taken: u64, context: u64) -> Result<()> {
        let offset = self.shape.credit_of(self.lane);
        self.notify(endpoint, offset, taken as u32, context)
    }

    fn notify(&self, endpoint: &Endpoint, offset: usize, value: u32, context: u64) -> Result<()> {
        let slot = Remote {
            region: &self.mailbox,
            offset,
        };
        let flags = Flags::ORDERED | Flags::GATHERED;
        endpoint.notify(Notice { slot, value }, flags, context)?;
        Ok(())
    }

    /// A region of the peer's that it has named in an offer.
    pub fn import(&mut self, key: &[u8; BUNDLE_LEN]) -> Result<RemoteRegion> {
        if let Some((known, region)) = &self.imported
            && known == key
            && region.is_current()
        {
            return Ok(region.clone());
        }
        let region = self.connection.import(&RegionKey::from_bytes(key)?)?;
        self.imported = Some((*key, region.clone()));
        Ok(region)
    }
}
