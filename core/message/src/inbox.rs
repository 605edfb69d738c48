//! Receives of all messages of a context, for several calls: each call takes the first complete message.

use unipgas_base::{Error, Result};

use super::mailbox::Mailbox;
use super::state::{Pattern, ReceiveTicket, Received};

/// A received message.
#[derive(Debug)]
pub struct InboxMessage {
    /// Its source and length.
    pub received: Received,
    /// A buffer of the inbox, with the message. Bytes beyond its end are lost.
    pub bytes: Box<[u8]>,
}

enum Stage {
    /// The sender is known after the receive has matched a message.
    Posted(ReceiveTicket, Option<u32>),
    Complete(Received),
}

struct Incoming {
    stage: Stage,
    bytes: Box<[u8]>,
}

impl Incoming {
    fn source(&self) -> Option<u32> {
        match self.stage {
            Stage::Posted(_, source) => source,
            Stage::Complete(received) => Some(received.source),
        }
    }
}

/// Posted receives, for all calls.
pub struct MessageInbox {
    context: u8,
    size: usize,
    /// In the order of posting. A message that is put back comes first.
    incoming: Vec<Incoming>,
    /// Number of calls that wait for a message.
    calls: usize,
    spare: Vec<Box<[u8]>>,
}

impl MessageInbox {
    /// An inbox for messages of `context`, with buffers of `size` bytes.
    ///
    /// # Safety
    /// All calls have the same mailbox. The mailbox is dropped before the inbox.
    pub unsafe fn new(context: u8, size: usize) -> Self {
        MessageInbox {
            context,
            size,
            incoming: Vec::new(),
            calls: 0,
            spare: Vec::new(),
        }
    }

    /// A call starts to wait for a message. [`MessageInbox::leave`] ends its wait.
    pub fn enter(&mut self) {
        self.calls += 1;
    }

    /// A call stops waiting: its unmatched receive is cancelled.
    pub fn leave(&mut self, mailbox: &mut Mailbox) {
        self.calls -= 1;
        let cancels = |one: &Incoming| matches!(one.stage, Stage::Posted(ticket, _) if mailbox.cancel_receive(ticket));
        if self.unmatched() > self.calls
            && let Some(at) = self.incoming.iter().rposition(cancels)
        {
            self.drop_at(at);
        }
    }

    fn unmatched(&self) -> usize {
        let incoming = self.incoming.iter();
        incoming.filter(|one| one.source().is_none()).count()
    }

    /// The next complete message. Messages of one sender keep their order. Each waiting call has an unmatched receive.
    pub fn next(&mut self, mailbox: &mut Mailbox) -> Option<Result<InboxMessage>> {
        loop {
            for _ in self.unmatched()..self.calls {
                self.post(mailbox);
            }
            let mut lost = None;
            for (at, one) in self.incoming.iter_mut().enumerate() {
                let Stage::Posted(ticket, source) = &mut one.stage else {
                    continue;
                };
                *source = source.or_else(|| mailbox.comes_from(*ticket));
                match mailbox.test_receive(*ticket) {
                    None => {}
                    Some(Ok(received)) => one.stage = Stage::Complete(received),
                    Some(Err(error)) => {
                        lost = Some((at, error));
                        break;
                    }
                }
            }
            let Some((at, error)) = lost else { break };
            self.drop_at(at);
            // The sender has abandoned the message, or has died.
            if !matches!(
                error,
                Error::StaleRegion | Error::AccessDenied | Error::PeerDead
            ) {
                return Some(Err(error));
            }
        }
        let overtakes = |at: usize| {
            let mut earlier = self.incoming[..at].iter();
            earlier.any(|one| one.source() == self.incoming[at].source())
        };
        let (at, received) =
            (0..self.incoming.len()).find_map(|at| match self.incoming[at].stage {
                Stage::Complete(received) if !overtakes(at) => Some((at, received)),
                _ => None,
            })?;
        let bytes = self.incoming.remove(at).bytes;
        Some(Ok(InboxMessage { received, bytes }))
    }

    fn post(&mut self, mailbox: &mut Mailbox) {
        let spare = self.spare.pop();
        let mut bytes = spare.unwrap_or_else(|| vec![0; self.size].into());
        let pattern = Pattern::from(None, self.context);
        // SAFETY:
        // - contract of `new`: `incoming` keeps the bytes until the receive has ended, or until the mailbox is dropped.
        let ticket = unsafe { mailbox.receive(pattern, bytes.as_mut_ptr(), bytes.len()) };
        let stage = Stage::Posted(ticket, None);
        self.incoming.push(Incoming { stage, bytes });
    }

    /// Drops a receive that has ended, and reuses its buffer.
    fn drop_at(&mut self, at: usize) {
        let one = self.incoming.remove(at);
        self.spare.push(one.bytes);
    }

    /// Leaves the message to the next call.
    pub fn put_back(&mut self, message: InboxMessage) {
        let InboxMessage { received, bytes } = message;
        let stage = Stage::Complete(received);
        self.incoming.insert(0, Incoming { stage, bytes });
    }

    /// Takes back the buffer of a message.
    pub fn reuse(&mut self, bytes: Box<[u8]>) {
        self.spare.push(bytes);
    }

    /// The senders of the matched messages.
    pub fn sources(&self) -> Vec<u32> {
        self.incoming.iter().filter_map(Incoming::source).collect()
    }

    /// Drops the complete messages from `source`.
    pub fn forget(&mut self, source: u32) {
        let from = |one: &Incoming| matches!(one.stage, Stage::Complete(received) if received.source == source);
        self.incoming.retain(|one| !from(one));
    }
}
