//! Ends of abandoned sends and receives. After them the mailbox does not use the caller's memory.

use super::layout::{Head, Kind};
use super::mailbox::Mailbox;
use super::state::{Envelope, Letter, ReceiveStage, ReceiveTicket, SendStage, SendTicket, Sending};
use unipgas_base::Error;

impl Mailbox {
    /// Ends a send that no longer needs its bytes, or has not been announced. True: the ticket is invalid. False: the peer knows the location of the
    /// bytes.
    pub fn withdraw_send(&mut self, ticket: SendTicket) -> bool {
        if self.cancel_send(ticket) {
            return true;
        }
        let key = ticket.0 as usize;
        let Some(sending) = self.sends.get_mut(key) else {
            return true;
        };
        if matches!(sending.stage, SendStage::Ended(_)) {
            self.sends.remove(key);
        } else if is_offered(sending) {
            return false;
        } else {
            // The receipt removes it.
            let head = Head::of(Kind::Synchronous, Envelope::default(), 0, ticket.0);
            sending.letter = Some(Box::new(Letter {
                detached: true,
                ..Letter::new(head, std::ptr::null())
            }));
        }
        true
    }

    /// Ends a send at once. The peer gets the message only if all bytes have been sent.
    pub fn let_go_of_send(&mut self, ticket: SendTicket) {
        if !self.withdraw_send(ticket)
            && let Some(sending) = self.sends.get_mut(ticket.0 as usize)
        {
            let (to, len) = (
                sending.to,
                sending.letter.as_ref().map(|letter| letter.head.len),
            );
            if let SendStage::Streaming { done, receive } = sending.stage
                && len.is_some_and(|len| done < len)
            {
                // The receive waits for the rest.
                self.take_away(ticket.0 as usize);
                self.answer(to, Kind::Gone, receive, 0);
                return;
            }
            // The entry stays: the peer may still ask for the payload by this number, and no other send may have it.
            sending.end(Err(Error::Timeout));
            sending.letter = None;
            sending.given_up = true;
        }
    }

    /// Ends a receive at once. False: a fetch still writes to its buffer, and ends later.
    pub fn let_go_of_receive(&mut self, ticket: ReceiveTicket) -> bool {
        if self.cancel_receive(ticket) {
            return true;
        }
        let key = ticket.0 as usize;
        let Some(receiving) = self.receives.get_mut(key) else {
            return true;
        };
        match &receiving.stage {
            ReceiveStage::Coming(coming) if coming.from.is_some() => return false,
            // The entry stays for the parts that still come, and discards them.
            ReceiveStage::Coming(_) => receiving.capacity = 0,
            ReceiveStage::Posted | ReceiveStage::Ended(_) => {
                self.receives.remove(key);
            }
        }
        true
    }
}

fn is_offered(sending: &Sending) -> bool {
    let letter = sending.letter.as_ref();
    letter.is_some_and(|letter| letter.head.kind == Kind::Offer)
}
