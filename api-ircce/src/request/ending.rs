//! Ends of requests without a wait: cancel, withdraw, abandon.

use unipgas_core::message::{Mailbox, ReceiveTicket, SendTicket};

use super::{Handle, NOT_ENQUEUED, PENDING, RESERVED};
use crate::process::Ue;
use crate::status::SUCCESS;

/// The mailbox's ticket of a request.
#[derive(Debug, Clone, Copy)]
enum Ticket {
    Send(SendTicket),
    Receive(ReceiveTicket),
}

impl Ue {
    /// Cancels a reserved request: a send that waits for its turn, or a receive that has no message and is not the first from its source
    /// (`iRCCE_isend_cancel`, `iRCCE_irecv_cancel`). Returns the code, and whether the request is cancelled.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn cancel(&self, handle: Handle) -> (i32, bool) {
        let mut mailbox = self.messages.messenger.mailbox();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of this call: the request is valid.
        let common = unsafe { handle.common() };
        // SAFETY:
        // - contract of this call: the request is valid.
        let id = unsafe { (*common).id };
        match pending.state(&mailbox, handle, id) {
            None => return (NOT_ENQUEUED, false),
            Some(RESERVED) => {}
            Some(status) => return (status, false),
        }
        let key = id as u32 as usize;
        if matches!(handle, Handle::Receive(_))
            && !mailbox.cancel_receive(pending.receives[key].ticket)
        {
            return (PENDING, false);
        }
        pending.remove(self, handle, key);
        // SAFETY:
        // - contract of this call: the request is valid.
        unsafe { (*common).end(SUCCESS) };
        drop(pending);
        drop(mailbox);
        // Another thread may wait for the request.
        self.world().engine().ring();
        (SUCCESS, true)
    }

    /// Ends a request at once if the peer does not need it: a send that has not started or no longer needs its bytes, or a receive without a message. True:
    /// the library has no pointer to the request and its bytes.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn withdraw(&self, handle: Handle) -> bool {
        // SAFETY:
        // - contract of this call: the request is valid. After a true result the mailbox has no such ticket.
        unsafe {
            self.end_now(handle, |mailbox, ticket| match ticket {
                Ticket::Send(ticket) => mailbox.withdraw_send(ticket),
                Ticket::Receive(ticket) => mailbox.cancel_receive(ticket),
            })
        }
        .0
    }

    /// Ends a request at once in any state, after a failure of the engine.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn abandon(&self, handle: Handle) {
        // SAFETY:
        // - contract of this call: the request is valid. The mailbox abandons the ticket below.
        let (_, ticket) = unsafe { self.end_now(handle, |_, _| true) };
        match ticket {
            None => {}
            Some(Ticket::Send(ticket)) => self.messages.messenger.abandon_send(ticket),
            Some(Ticket::Receive(ticket)) => self.messages.messenger.abandon_receive(ticket),
        }
    }

    /// Removes the entry of a request, if it has no ticket or `let_go` accepts the ticket. True: the request has no entry. Also returns the ticket of a
    /// removed entry.
    ///
    /// # Safety
    /// The request is valid. The mailbox also ends the ticket of a removed entry.
    unsafe fn end_now(
        &self,
        handle: Handle,
        let_go: impl FnOnce(&mut Mailbox, Ticket) -> bool,
    ) -> (bool, Option<Ticket>) {
        let mut mailbox = self.messages.messenger.mailbox();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of this call: the request is valid. Other threads change it only under the lock of `pending`.
        let id = unsafe { (*handle.common()).id };
        let ticket = match handle {
            Handle::Send(_) => match pending.find_send(id) {
                Some(key) => pending.sends[key].ticket.map(Ticket::Send),
                None => return (true, None),
            },
            Handle::Receive(_) => match pending.find_receive(id) {
                Some(key) => Some(Ticket::Receive(pending.receives[key].ticket)),
                None => return (true, None),
            },
        };
        if let Some(ticket) = ticket
            && !let_go(&mut mailbox, ticket)
        {
            return (false, None);
        }
        pending.remove(self, handle, id as u32 as usize);
        (true, ticket)
    }
}
