//! The sending state of one peer: its mailbox, the free room there, and the messages that wait for room.

use std::collections::VecDeque;

use super::layout::{Head, INLINE, LINE, Line, Shape};
use super::mailbox::PeerMailbox;
use unipgas_base::{Deadline, Error, Result, prefetch};
use unipgas_engine::Endpoint;
use unipgas_engine::bundle::{BUNDLE_LEN, RegionKey};
use unipgas_engine::op::{Flags, Local, Notice, Remote};
use unipgas_engine::region::RemoteRegion;

/// An entry that waits for room in a lane.
pub(super) enum Waiting {
    /// The send with this ticket.
    Send(u32),
    /// An answer.
    Answer(Head),
}

/// A peer that receives messages of this process.
pub(super) struct Outgoing {
    /// Its mailbox. `None`: not found yet; then there is no room.
    way: Option<PeerMailbox>,
    /// Credit for it that waits until its mailbox is found.
    owed: Option<u64>,
    shape: Shape,
    /// Lines written.
    sent: u64,
    /// Lines that the peer has taken, as far as known here.
    freed: u64,
    /// Bytes of the data ring used.
    data_end: u64,
    /// Bytes of the data ring that are free again, as far as known here.
    data_free: u64,
    /// Value of `data_end` after each line.
    ends: Box<[u64]>,
    greeted: bool,
    pub waiting: VecDeque<Waiting>,
    /// The region of the last fetch.
    imported: Option<([u8; BUNDLE_LEN], RemoteRegion)>,
}

/// A payload.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub ptr: *const u8,
    pub len: usize,
}

impl Bytes {
    pub(crate) const NONE: Bytes = Bytes {
        ptr: std::ptr::null(),
        len: 0,
    };
}

impl Outgoing {
    pub(crate) fn new(shape: Shape) -> Self {
        Outgoing {
            way: None,
            owed: None,
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

    /// Whether the way to the peer has been found.
    #[inline(always)]
    pub(crate) fn is_found(&self) -> bool {
        self.way.is_some()
    }

    pub fn found(&mut self, way: PeerMailbox) {
        self.way = Some(way);
    }

    /// Notes the peer's credit: the number of lines that it has taken.
    fn credit(&mut self, told: u32) {
        let news = told.wrapping_sub(self.freed as u32);
        // A credit for more lines than were sent is wrong, and is ignored.
        if news != 0 && u64::from(news) <= self.sent - self.freed {
            self.freed += u64::from(news);
            self.data_free = self.ends[(self.freed - 1) as usize & (self.shape.lines - 1)];
        }
    }

    /// Writes a line with its payload. False: there is no room. `told`: the peer's credit word.
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
        let Some(way) = &self.way else {
            return Ok(false);
        };
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
            let lane = way.lane as usize;
            let to = Remote {
                region: &way.region,
                offset: self.shape.data(lane, begin),
            };
            // The line follows the data at once.
            let base = way.region.parts().base;
            if !base.is_null() {
                prefetch::for_stores(base.wrapping_add(to.offset), payload.len);
                prefetch::for_store(base.wrapping_add(self.shape.line(lane, self.sent)));
            }
            let from = Local {
                ptr: payload.ptr.cast_mut(),
                desc: 0,
            };
            // SAFETY:
            // - contract of this call: the payload is readable. INLINE: the network copies it before the call returns.
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
            // - contract of this call: the payload is readable.
            line.carry(unsafe { std::slice::from_raw_parts(payload.ptr, payload.len) });
        }
        self.write(endpoint, way, &line, mark, context)?;
        self.ends[self.sent as usize & (self.shape.lines - 1)] = end;
        self.data_end = end;
        self.sent += 1;
        self.prefetch_next(way);
        if !self.greeted {
            self.greet(endpoint, way, context)?;
            self.greeted = true;
        }
        Ok(true)
    }

    /// See [`Mailbox::is_near`](super::Mailbox::is_near).
    #[inline(always)]
    pub(super) fn is_near(&self) -> bool {
        self.way
            .as_ref()
            .is_some_and(|way| !way.region.is_asynchronous())
    }

    /// Prefetches the next line, if stores reach it.
    #[inline(always)]
    fn prefetch_next(&self, way: &PeerMailbox) {
        let base = way.region.parts().base;
        if !base.is_null() {
            prefetch::for_store(base.wrapping_add(self.shape.line(way.lane as usize, self.sent)));
        }
    }

    #[inline(always)]
    fn write(
        &self,
        endpoint: &Endpoint,
        way: &PeerMailbox,
        line: &Line,
        mark: u32,
        context: u64,
    ) -> Result<()> {
        let offset = self.shape.line(way.lane as usize, self.sent);
        let at = |offset| Remote {
            region: &way.region,
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
        // - the local line is readable, and the network copies it before the call returns.
        unsafe { endpoint.put_notify(from, at(offset), LINE - 4, notice, flags, context) }?;
        Ok(())
    }

    /// The peer polls only lanes with a greeting.
    #[cold]
    fn greet(&self, endpoint: &Endpoint, way: &PeerMailbox, context: u64) -> Result<()> {
        let lane = way.lane as usize;
        let hello = self.shape.hello_of(lane);
        notify(endpoint, &way.region, hello, 1, context)?;
        let first = way.first.as_ref().unwrap_or(&way.region);
        notify(endpoint, first, self.shape.news(), 1, context)
    }

    /// Writes the number of lines taken here to the peer. False: its mailbox is not found yet, and the credit waits.
    pub(crate) fn give_credit(
        &mut self,
        endpoint: &Endpoint,
        taken: u64,
        context: u64,
    ) -> Result<bool> {
        let Some(way) = &self.way else {
            self.owed = Some(taken);
            return Ok(false);
        };
        let offset = self.shape.credit_of(way.lane as usize);
        notify(endpoint, &way.region, offset, taken as u32, context).map(|()| true)
    }

    /// Takes the credit that waits.
    pub(crate) fn take_owed(&mut self) -> Option<u64> {
        self.owed.take()
    }

    /// Imports the peer's region of an offer. Errors: [`Error::Timeout`]: the peer has not answered yet, and the caller asks again.
    pub(crate) fn import(
        &mut self,
        key: &[u8; BUNDLE_LEN],
        within: Deadline,
    ) -> Result<RemoteRegion> {
        if let Some((known, region)) = &self.imported
            && known == key
            && region.is_current()
        {
            return Ok(region.clone());
        }
        let way = self.way.as_ref().ok_or(Error::Timeout)?;
        let key_there = RegionKey::from_bytes(key)?;
        let region = way.connection.import_within(&key_there, within)?;
        self.imported = Some((*key, region.clone()));
        Ok(region)
    }
}

fn notify(
    endpoint: &Endpoint,
    region: &RemoteRegion,
    offset: usize,
    value: u32,
    context: u64,
) -> Result<()> {
    let slot = Remote { region, offset };
    let flags = Flags::ORDERED | Flags::GATHERED;
    endpoint.notify(Notice { slot, value }, flags, context)?;
    Ok(())
}
