//! Ends that nobody waits for: after them nothing here leads to the caller's memory any more.

use super::layout::{Head, Kind};
use super::mailbox::Mailbox;
use super::messenger::Messenger;
use super::state::{Envelope, Letter, ReceiveStage, ReceiveTicket, SendStage, SendTicket, Sending};
use crate::{Deadline, Error, driver};

impl Mailbox {
    /// Ends a send that does not need its bytes any more, or has not been announced; then the ticket means nothing. False: the other side
    /// has been told where the bytes are.
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
            // The receipt takes it away.
            let head = Head::of(Kind::Synchronous, Envelope::default(), 0, ticket.0);
            sending.letter = Some(Box::new(Letter {
                detached: true,
                ..Letter::new(head, std::ptr::null())
            }));
        }
        true
    }

    /// Ends a send where it is: the other side gets the message only if its bytes have gone already.
    pub(super) fn let_go_of_send(&mut self, ticket: SendTicket) {
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
                // The receive has not ended, and waits for the rest.
                self.take_away(ticket.0 as usize);
                self.answer(to, Kind::Gone, receive, 0);
                return;
            }
            // The entry stays: the other side may still ask for the payload by this number, which must lead to no other send.
            sending.end(Err(Error::Timeout));
            sending.letter = None;
            sending.given_up = true;
        }
    }

    /// Ends a receive where it is. False: its bytes are being written, by an operation that ends by itself.
    fn let_go_of_receive(&mut self, ticket: ReceiveTicket) -> bool {
        if self.cancel_receive(ticket) {
            return true;
        }
        let key = ticket.0 as usize;
        let Some(receiving) = self.receives.get_mut(key) else {
            return true;
        };
        match &receiving.stage {
            ReceiveStage::Coming(coming) if coming.from.is_some() => return false,
            // The entry stays for the parts that are still to come, and takes nothing of them.
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

impl Messenger {
    /// Ends a send without waiting for its receiver, who may lose the message: for when the wait has failed. Then the ticket means nothing,
    /// and the bytes are the caller's again.
    #[cold]
    pub fn abandon_send(&self, ticket: SendTicket) {
        self.mailbox().let_go_of_send(ticket);
    }

    /// Ends a receive, if nothing is being written to its buffer; then the ticket means nothing.
    #[cold]
    pub fn try_abandon_receive(&self, ticket: ReceiveTicket) -> bool {
        self.advanced().let_go_of_receive(ticket)
    }

    /// Ends a receive likewise.
    #[cold]
    pub fn abandon_receive(&self, ticket: ReceiveTicket) {
        let engine = self.world().engine();
        // What is being copied here ends also if the other side has died.
        let mut let_go = || self.advanced().let_go_of_receive(ticket).then_some(());
        while engine
            .wait_for(Deadline::Never, &mut || Ok(()), &mut let_go)
            .is_err()
        {
            driver::give_way();
        }
    }
}
