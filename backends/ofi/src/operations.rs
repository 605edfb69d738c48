//! Operations in flight, by their contexts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam::queue::SegQueue;
use parking_lot::Mutex;
use unipgas_core::streams::Ticket;

use crate::names::AvEntry;

/// Memory that the provider may use while an operation is in flight: fi_context2.
type Scratch = [u64; 8];

/// The sender of a message.
pub(crate) struct MessageSender {
    /// The conversation.
    pub number: u32,
    /// Number of its messages in flight.
    pub under_way: Arc<AtomicUsize>,
    /// The endpoint stays in the address vector until the completion.
    pub _to: Arc<AvEntry>,
}

/// The kind of an operation.
pub(crate) enum What {
    /// A receive into the buffer with this number.
    Receive(usize),
    /// A message from the buffer with this number.
    Send(usize, MessageSender),
    /// A read or a write. The ticket reports its end.
    Access(Ticket),
    /// Unused.
    Free,
}

#[repr(C)]
struct Operation {
    scratch: Scratch,
    what: Mutex<What>,
}

/// The operations of a process. The provider may use an operation until its completion.
#[derive(Default)]
pub(crate) struct Operations {
    all: Mutex<Vec<Box<[Operation]>>>,
    free: SegQueue<usize>,
}

/// Operations per allocation.
const BLOCK: usize = 256;

impl Operations {
    /// Takes an operation before it is posted; returns its context.
    pub fn begin(&self, what: What) -> usize {
        let context = loop {
            match self.free.pop() {
                Some(context) => break context,
                None => self.grow(),
            }
        };
        *self.of(context).what.lock() = what;
        context
    }

    fn grow(&self) {
        let operation = || Operation {
            scratch: [0; 8],
            what: Mutex::new(What::Free),
        };
        let block: Box<[Operation]> = std::iter::repeat_with(operation).take(BLOCK).collect();
        let first = block.as_ptr();
        self.all.lock().push(block);
        for nth in 0..BLOCK {
            self.free.push(first.wrapping_add(nth).expose_provenance());
        }
    }

    fn of(&self, context: usize) -> &Operation {
        let operation = std::ptr::with_exposed_provenance::<Operation>(context);
        // SAFETY:
        // - contexts come from `grow`: addresses in blocks that live as long as `self`.
        unsafe { &*operation }
    }

    /// Frees the operation with this context, after its completion or if it was not posted.
    pub fn end(&self, context: usize) -> What {
        let what = std::mem::replace(&mut *self.of(context).what.lock(), What::Free);
        self.free.push(context);
        what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let operations = Operations::default();
        let mut contexts = Vec::new();
        for _ in 0..3 {
            contexts.extend((0..2 * BLOCK).map(|nth| operations.begin(What::Receive(nth))));
            for (nth, context) in contexts.drain(..).enumerate() {
                assert!(matches!(operations.end(context), What::Receive(number) if number == nth));
            }
        }
        assert_eq!(operations.all.lock().len(), 2);
    }
}
