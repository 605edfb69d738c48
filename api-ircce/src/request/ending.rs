//! Ends of requests that nobody waits for.

use std::sync::atomic::Ordering;

use unipgas_core::message::{Mailbox, ReceiveTicket, SendTicket};

use super::{Handle, NOT_ENQUEUED, PENDING, RESERVED};
use crate::process::Ue;
use crate::status::SUCCESS;

/// What the mailbox knows a request by.
#[derive(Debug, Clone, Copy)]
enum Ticket {
    Send(SendTicket),
    Receive(ReceiveTicket),
}

impl Ue {
    /// Takes a request back that is not the first of its queue (`iRCCE_isend_cancel`, `iRCCE_irecv_cancel`); gives the code, and whether
    /// it is gone.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn cancel(&self, handle: Handle) -> (i32, bool) {
        let mut mailbox = self.messages.messenger.mailbox();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - the caller's word.
        let common = unsafe { handle.common() };
        // SAFETY:
        // - as above.
        let id = unsafe { (*common).id };
        match pending.state(&mailbox, handle, id) {
            None => return (NOT_ENQUEUED, false),
            Some(RESERVED) => {}
            Some(status) => return (status, false),
        }
        let key = id as u32 as usize;
        match handle {
            Handle::Send(_) => {
                pending.sends.remove(key);
                pending.send_order.retain(|known| *known as usize != key);
            }
            Handle::Receive(_) => {
                if !mailbox.cancel_receive(pending.receives[key].ticket) {
                    return (PENDING, false);
                }
                pending.receives.remove(key);
                pending.receive_order.retain(|known| *known as usize != key);
            }
        }
        self.messages.open.fetch_sub(1, Ordering::Relaxed);
        // SAFETY:
        // - as above.
        unsafe { (*common).end(SUCCESS) };
        (SUCCESS, true)
    }

    /// Ends a request at once, if that is possible without harm to the other side: one that has not begun, a send whose bytes have gone,
    /// a receive that no message has been found for. Then nothing here leads to it, or to its bytes, any more.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn withdraw(&self, handle: Handle) -> bool {
        // SAFETY:
        // - the caller's word.
        unsafe {
            self.end_now(handle, |mailbox, ticket| match ticket {
                Ticket::Send(ticket) => mailbox.withdraw_send(ticket),
                Ticket::Receive(ticket) => mailbox.cancel_receive(ticket),
            })
        }
        .0
    }

    /// Ends a request at once, as it is. For when the engine has failed.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn abandon(&self, handle: Handle) {
        // SAFETY:
        // - the caller's word.
        let (_, ticket) = unsafe { self.end_now(handle, |_, _| true) };
        match ticket {
            None => {}
            Some(Ticket::Send(ticket)) => self.messages.messenger.abandon_send(ticket),
            Some(Ticket::Receive(ticket)) => self.messages.messenger.abandon_receive(ticket),
        }
    }

    /// Forgets a request, if `let_go` says so of its ticket, where it has one. True: there is none here any more.
    ///
    /// # Safety
    /// The request is valid; what has been forgotten must be let go of in the mailbox, too.
    unsafe fn end_now(
        &self,
        handle: Handle,
        let_go: impl FnOnce(&mut Mailbox, Ticket) -> bool,
    ) -> (bool, Option<Ticket>) {
        let mut mailbox = self.messages.messenger.mailbox();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - the caller's word; others change it under the lock only.
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
        let key = id as u32 as usize;
        match handle {
            Handle::Send(_) => {
                pending.sends.remove(key);
                pending.send_order.retain(|known| *known as usize != key);
            }
            Handle::Receive(_) => {
                pending.receives.remove(key);
                pending.receive_order.retain(|known| *known as usize != key);
            }
        }
        self.messages.open.fetch_sub(1, Ordering::Relaxed);
        (true, ticket)
    }
}
