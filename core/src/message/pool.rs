//! Receives that several mailboxes share: a message that comes to one of them takes the first that fits.
//!
//! A mailbox looks here when no receive of its own fits. What it finds nothing for it keeps, and the pool knows that it does: whoever
//! posts the next receive tells it to look again.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;

use super::layout::Head;
use super::mailbox::Mailbox;
use super::several::Room;
use super::state::{Pattern, ReceiveStage, ReceiveTicket, Receiving, Role};

/// Receives that several mailboxes share.
#[derive(Default)]
pub struct Pool {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    receives: Slab<Pooled>,
    posted: VecDeque<u32>,
    /// Mailboxes that keep messages which nothing here fitted.
    keeping: Vec<u32>,
    mailboxes: u32,
}

struct Pooled {
    wanted: Wanted,
    room: Room,
    /// For several messages: given up with less room than this.
    several: Option<usize>,
    /// Messages that have been found for it, and not been taken.
    open: u32,
}

// SAFETY:
// - the buffer is memory that the caller of `receive` keeps valid until the receive has ended, from whatever thread it is written.
unsafe impl Send for Pooled {}

/// Which messages a shared receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The sender as [`Peers::identity`](super::Peers::identity) has it, since every mailbox numbers its peers for itself; `None`: anyone.
    pub sender: Option<u64>,
    /// The rest; its source is that of no mailbox, and not looked at.
    pub pattern: Pattern,
}

/// A receive of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolTicket(u32);

impl PoolTicket {
    /// A small number that no other receive of the pool has at the same time.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a message goes that has taken a shared receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The receive.
    pub of: PoolTicket,
    /// Where the message is.
    pub buffer: *mut u8,
    /// The room there was for it.
    pub capacity: usize,
}

impl Pool {
    /// Takes the first message that fits into `capacity` bytes at `buffer`, whichever mailbox it comes to; with `several` all that fit, one
    /// behind the other, until less than so many bytes are left, or none. The mailboxes that are given are to be told to look
    /// ([`Mailbox::draw_kept`]).
    ///
    /// # Safety
    /// The bytes are valid for writes, and nobody else's, until the receive has ended.
    pub unsafe fn receive(
        &self,
        wanted: Wanted,
        buffer: *mut u8,
        capacity: usize,
        several: Option<usize>,
    ) -> (PoolTicket, Vec<u32>) {
        let mut inner = self.inner.lock();
        let key = inner.receives.insert(Pooled {
            wanted,
            room: Room {
                begin: buffer,
                len: capacity,
            },
            several,
            open: 0,
        });
        inner.posted.push_back(key as u32);
        (PoolTicket(key as u32), inner.keeping.clone())
    }

    /// Receives that have not ended, or whose ends have not been taken.
    pub fn receives(&self) -> usize {
        self.inner.lock().receives.len()
    }

    /// Takes a receive back, as far as no message has been found for it. True: its ticket means nothing any more; false: it does until the
    /// last of its messages has been taken. `None`: it is not posted.
    pub fn cancel(&self, ticket: PoolTicket) -> Option<bool> {
        let inner = &mut *self.inner.lock();
        let at = inner.posted.iter().position(|known| *known == ticket.0)?;
        inner.posted.remove(at);
        let none = inner.receives[ticket.index()].open == 0;
        if none {
            inner.receives.remove(ticket.index());
        }
        Some(none)
    }

    /// The end of a message of this receive has been taken. True: no other one takes part in it, and its ticket means nothing any more.
    pub fn taken(&self, ticket: PoolTicket) -> bool {
        let inner = &mut *self.inner.lock();
        let Some(pooled) = inner.receives.get_mut(ticket.index()) else {
            return false;
        };
        pooled.open -= 1;
        let last = pooled.open == 0 && !inner.posted.contains(&ticket.0);
        if last {
            inner.receives.remove(ticket.index());
        }
        last
    }

    fn join(&self) -> u32 {
        let mut inner = self.inner.lock();
        inner.mailboxes += 1;
        inner.mailboxes
    }

    fn leave(&self, mailbox: u32) {
        self.inner.lock().keeping.retain(|known| *known != mailbox);
    }

    /// What takes a message; `None`: nothing does, and the mailbox keeps it.
    fn take(&self, mailbox: u32, head: &Head, is_from: impl Fn(u64) -> bool) -> Option<Drawn> {
        let inner = &mut *self.inner.lock();
        let receives = &mut inner.receives;
        let found = inner.posted.iter().position(|key| {
            let wanted = &receives[*key as usize].wanted;
            // Its sender is compared apart.
            let pattern = Pattern {
                source: None,
                ..wanted.pattern
            };
            pattern.fits(0, head) && wanted.sender.is_none_or(&is_from)
        });
        let Some(at) = found else {
            if !inner.keeping.contains(&mailbox) {
                inner.keeping.push(mailbox);
            }
            return None;
        };
        let key = inner.posted[at];
        let pooled = &mut receives[key as usize];
        pooled.open += 1;
        let whole = pooled.room;
        let (part, over) = match pooled.several {
            Some(least) => pooled.room.part(head, least),
            None => (whole, true),
        };
        if over {
            inner.posted.remove(at);
        }
        Some(Drawn {
            of: PoolTicket(key),
            buffer: part.begin,
            capacity: part.len,
        })
    }
}

/// A mailbox's part in a pool.
pub(super) struct Share {
    pool: Arc<Pool>,
    name: u32,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.leave(self.name);
    }
}

impl Mailbox {
    /// From now on messages that no receive of this mailbox fits take those of the pool. Gives the mailbox's number there. What they take must
    /// be told to the pool by [`Pool::taken`], when it has ended; [`Mailbox::drawn`] knows which it was.
    pub fn draw_from(&mut self, pool: &Arc<Pool>) -> u32 {
        let name = pool.join();
        let pool = pool.clone();
        self.share = Some(Share { pool, name });
        name
    }

    /// Looks whether messages that were kept fit what has been posted in the pool meanwhile.
    pub fn draw_kept(&mut self) {
        let mut at = 0;
        while let Some(arrival) = self.arrivals.get(at) {
            let (source, head) = (arrival.source, arrival.head);
            match self.draw(source, &head) {
                Some(key) => {
                    if let Some(arrival) = self.arrivals.remove(at) {
                        self.hand_over(key, arrival);
                    }
                }
                None => at += 1,
            }
        }
        if let Some(share) = &self.share
            && self.arrivals.is_empty()
        {
            share.pool.leave(share.name);
        }
    }

    /// What a ticket has taken of the pool, if it has.
    pub fn drawn(&self, ticket: ReceiveTicket) -> Option<Drawn> {
        let receiving = self.receives.get(ticket.index())?;
        let Role::Drawn(of) = receiving.role else {
            return None;
        };
        Some(Drawn {
            of,
            buffer: receiving.buffer,
            capacity: receiving.capacity,
        })
    }

    /// What has been taken of the pool and has not ended.
    pub fn all_drawn(&self) -> impl Iterator<Item = PoolTicket> {
        let roles = self.receives.iter().map(|(_, receiving)| receiving.role);
        roles.filter_map(|role| match role {
            Role::Drawn(of) => Some(of),
            _ => None,
        })
    }

    /// A receive for a message, of those of the pool.
    #[cold]
    pub(super) fn draw(&mut self, source: u32, head: &Head) -> Option<usize> {
        let share = self.share.as_ref()?;
        let peers = &self.peers;
        let drawn = share.pool.take(share.name, head, |sender| {
            peers.identity(source) == Some(sender)
        })?;
        Some(self.receives.insert(Receiving {
            role: Role::Drawn(drawn.of),
            pattern: Pattern::from(Some(source), head.context),
            buffer: drawn.buffer,
            capacity: drawn.capacity,
            stage: ReceiveStage::Posted,
            apart: None,
        }))
    }
}
