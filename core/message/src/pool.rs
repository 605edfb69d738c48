//! Receives that several mailboxes share: a message to one of them takes the first receive that fits.
//!
//! A mailbox looks here when none of its receives fits. If no receive of the pool fits either, the mailbox keeps the message, and the pool notes the
//! mailbox. The caller that posts the next receive makes the noted mailboxes look again.

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
    /// Mailboxes with messages that fit no receive of the pool.
    keeping: Vec<u32>,
    mailboxes: u32,
}

struct Pooled {
    wanted: Wanted,
    room: Room,
    /// For several messages: the receive ends with less room than this.
    several: Option<usize>,
    /// Its messages that have not been taken.
    open: u32,
}

// SAFETY:
// - contract of `receive`: the buffer is valid on each thread until the receive has ended.
unsafe impl Send for Pooled {}

/// The messages that a shared receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The sender's [`Peers::identity`](super::Peers::identity), since each mailbox has its own numbers of peers. `None`: any sender.
    pub sender: Option<u64>,
    /// The rest. Its source is ignored.
    pub pattern: Pattern,
}

/// A receive of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolTicket(u32);

impl PoolTicket {
    /// A small number, unique among the receives of the pool.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Buffer of a message that has taken a shared receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The receive.
    pub of: PoolTicket,
    /// Address of the message.
    pub buffer: *mut u8,
    /// Room that the message had, in bytes.
    pub capacity: usize,
}

impl Pool {
    /// Takes the first message that fits, from any of the mailboxes, into `capacity` bytes at `buffer`. With `several`: takes all messages that fit, one
    /// behind the other, until fewer bytes are left than that, or none. The caller makes the returned mailboxes look again
    /// ([`Mailbox::draw_kept`]).
    ///
    /// # Safety
    /// Until the receive has ended, the bytes are valid for writes and no other code uses them.
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

    /// Number of receives that have not ended, or have an end that was not taken.
    pub fn receives(&self) -> usize {
        self.inner.lock().receives.len()
    }

    /// Cancels a receive: it takes no further message. True: the ticket is invalid. False: it is valid until the last message of the receive has been
    /// taken. `None`: the receive is not posted.
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

    /// Notes that the end of a message has been taken. True: it was the last one of the receive, and the ticket is invalid.
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

    /// The receive for a message. `None`: no receive fits, and the mailbox keeps the message.
    fn take(&self, mailbox: u32, head: &Head, is_from: impl Fn(u64) -> bool) -> Option<Drawn> {
        let inner = &mut *self.inner.lock();
        let receives = &mut inner.receives;
        let found = inner.posted.iter().position(|key| {
            let wanted = &receives[*key as usize].wanted;
            // The sender is compared by its identity.
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
    /// Lets messages without a receive of this mailbox take receives of the pool. Returns the mailbox's number there. The caller reports each end to the pool
    /// by [`Pool::taken`]; [`Mailbox::drawn`] names the receive.
    pub fn draw_from(&mut self, pool: &Arc<Pool>) -> u32 {
        let name = pool.join();
        let pool = pool.clone();
        self.share = Some(Share { pool, name });
        name
    }

    /// Gives kept messages to receives that were posted in the pool meanwhile.
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

    /// The pool's receive of a ticket, if it has one.
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

    /// The pool's receives that messages here have taken and that have not ended.
    pub fn all_drawn(&self) -> impl Iterator<Item = PoolTicket> {
        let roles = self.receives.iter().map(|(_, receiving)| receiving.role);
        roles.filter_map(|role| match role {
            Role::Drawn(of) => Some(of),
            _ => None,
        })
    }

    /// Takes a receive of the pool for a message.
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
