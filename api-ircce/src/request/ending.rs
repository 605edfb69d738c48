//! Ends of requests without a wait: cancel, withdraw, abandon.

use std::sync::atomic::Ordering;

use unipgas_core::message::{Mailbox, RequestTicket};

use super::{Handle, NOT_ENQUEUED, PENDING, RESERVED, open_status};
use crate::process::Ue;
use crate::status::SUCCESS;

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
        let id = unsafe { (*handle.common()).id };
        match open_status(&pending, &mailbox, id) {
            None => return (NOT_ENQUEUED, false),
            Some(RESERVED) => {}
            Some(status) => return (status, false),
        }
        // A reserved send has no ticket.
        let cancelled = pending.remove_if(id, |ticket| match ticket {
            RequestTicket::Send(_) => false,
            RequestTicket::Receive(ticket) => mailbox.cancel_receive(ticket),
        });
        if cancelled != Some(true) {
            return (PENDING, false);
        }
        self.messages.open.fetch_sub(1, Ordering::Relaxed);
        // SAFETY:
        // - contract of this call: the request is valid.
        unsafe { (*handle.common()).end(SUCCESS) };
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
        // - contract of this call: the request is valid.
        let removed = unsafe {
            self.remove_if(handle, |mailbox, ticket| match ticket {
                RequestTicket::Send(ticket) => mailbox.withdraw_send(ticket),
                RequestTicket::Receive(ticket) => mailbox.cancel_receive(ticket),
            })
        };
        removed != Some(false)
    }

    /// Ends a request at once in any state, after a failure of the engine.
    ///
    /// # Safety
    /// The request is valid.
    pub(crate) unsafe fn abandon(&self, handle: Handle) {
        let mut begun = None;
        // SAFETY:
        // - contract of this call: the request is valid.
        unsafe {
            self.remove_if(handle, |_, ticket| {
                begun = Some(ticket);
                true
            })
        };
        match begun {
            None => {}
            Some(RequestTicket::Send(ticket)) => self.messages.messenger.abandon_send(ticket),
            Some(RequestTicket::Receive(ticket)) => self.messages.messenger.abandon_receive(ticket),
        }
    }

    /// Removes the entry of a request if it has no ticket, or if `end` accepts the ticket. `None`: the request has no entry. True: removed.
    ///
    /// # Safety
    /// The request is valid.
    unsafe fn remove_if(
        &self,
        handle: Handle,
        end: impl FnOnce(&mut Mailbox, RequestTicket) -> bool,
    ) -> Option<bool> {
        let mut mailbox = self.messages.messenger.mailbox();
        let mut pending = self.messages.pending.lock();
        // SAFETY:
        // - contract of this call: the request is valid. Other threads change it only under the lock of `pending`.
        let id = unsafe { (*handle.common()).id };
        let removed = pending.remove_if(id, |ticket| end(&mut mailbox, ticket));
        if removed == Some(true) {
            self.messages.open.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }
}
