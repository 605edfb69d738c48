//! Receives for several messages, one behind the other in one buffer. Such a receive keeps its place among the posted receives until too little room is
//! left. Each message gets its own receive for its part of the buffer.

use super::layout::Head;
use super::mailbox::Mailbox;
use super::state::{APART, Pattern, ReceiveStage, ReceiveTicket, Receiving, Role, Share};

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub begin: *mut u8,
    pub len: usize,
}

impl Room {
    /// Takes the room of the next message from the beginning. True: the receive ends, since the message was too long or too little room is left.
    pub(crate) fn part(&mut self, head: &Head, least: usize) -> (Room, bool) {
        let part = Room {
            begin: self.begin,
            len: head.len.min(self.len),
        };
        if head.context & APART != 0 {
            return (part, false);
        }
        let over = head.len > self.len;
        self.begin = self.begin.wrapping_add(part.len);
        self.len -= part.len;
        (part, over || self.len < least.max(1))
    }
}

impl Mailbox {
    /// Takes messages that fit, one after the other, into `capacity` bytes at `buffer`, until fewer than `least` bytes are left, or none. Each message has a
    /// ticket: [`Mailbox::take_ended`] returns it and [`Mailbox::share`] describes it. After the last of them the ticket of this receive is invalid. An
    /// [`APART`] message uses no bytes of the buffer.
    ///
    /// # Safety
    /// Until the last share has been taken or the receive is cancelled, the bytes are valid for writes and no other code uses them.
    pub unsafe fn receive_several(
        &mut self,
        pattern: Pattern,
        buffer: *mut u8,
        capacity: usize,
        least: usize,
    ) -> ReceiveTicket {
        let key = self.receives.insert(Receiving {
            role: Role::Several { least, open: 0 },
            pattern,
            buffer,
            capacity,
            stage: ReceiveStage::Posted,
            apart: None,
        });
        self.posted.push_back(key as u32);
        while self.posted.back() == Some(&(key as u32)) {
            let fits =
                |arrival: &super::state::Arrival| pattern.fits(arrival.source, &arrival.head);
            let found = self.arrivals.iter().position(fits);
            let Some(arrival) = found.and_then(|at| self.arrivals.remove(at)) else {
                break;
            };
            let part = self.take_part(key, &arrival.head);
            self.hand_over(part, arrival);
        }
        ReceiveTicket(key as u32)
    }

    /// The share that a ticket has in a receive for several messages, if it has one.
    pub fn share(&self, ticket: ReceiveTicket) -> Option<Share> {
        let receiving = self.receives.get(ticket.0 as usize)?;
        let Role::Part(of) = receiving.role else {
            return None;
        };
        let whole = self.receives.get(of as usize)?;
        let open = matches!(whole.role, Role::Several { open: 2.., .. });
        Some(Share {
            of: ReceiveTicket(of),
            buffer: receiving.buffer,
            capacity: receiving.capacity,
            last: !open && !self.posted.contains(&of),
        })
    }

    /// Cancels a receive for several messages: it takes no further message. True: the ticket is invalid. False: it is valid until the last share has been
    /// taken. `None`: the receive is not posted.
    pub fn cancel_several(&mut self, ticket: ReceiveTicket) -> Option<bool> {
        let at = self.posted.iter().position(|known| *known == ticket.0)?;
        self.posted.remove(at);
        let key = ticket.0 as usize;
        let none = matches!(self.receives[key].role, Role::Several { open: 0, .. });
        if none {
            self.receives.remove(key);
        }
        Some(none)
    }

    /// A receive for the next message of a receive for several messages.
    pub(super) fn take_part(&mut self, key: usize, head: &Head) -> usize {
        let Receiving {
            role,
            pattern,
            buffer,
            capacity,
            ..
        } = &mut self.receives[key];
        let pattern = *pattern;
        let mut room = Room {
            begin: *buffer,
            len: *capacity,
        };
        let (mut part, mut over) = (room, false);
        if let Role::Several { least, open } = role {
            *open += 1;
            (part, over) = room.part(head, *least);
            (*buffer, *capacity) = (room.begin, room.len);
        }
        if over {
            self.posted.retain(|known| *known != key as u32);
        }
        self.receives.insert(Receiving {
            role: Role::Part(key as u32),
            pattern,
            buffer: part.begin,
            capacity: part.len,
            stage: ReceiveStage::Posted,
            apart: None,
        })
    }

    /// Notes that the result of a share has been taken.
    pub(super) fn part_taken(&mut self, of: u32) {
        let key = of as usize;
        let posted = self.posted.contains(&of);
        let Some(whole) = self.receives.get_mut(key) else {
            return;
        };
        if let Role::Several { open, .. } = &mut whole.role {
            *open -= 1;
            let ended = matches!(whole.stage, ReceiveStage::Ended(_));
            if *open == 0 && !posted && !ended {
                self.receives.remove(key);
            }
        }
    }
}
