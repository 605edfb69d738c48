//! Operations under way: what the provider gives back at their ends, and who is told then.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam::queue::SegQueue;
use parking_lot::Mutex;
use unipgas_core::streams::Ticket;

use crate::names::Name;

/// Words that the provider may use while an operation is under way: those of fi_context2.
type Scratch = [u64; 8];

/// Whose message it is.
pub struct Sender {
    /// The conversation.
    pub number: u32,
    /// How many of its messages are under way.
    pub under_way: Arc<AtomicUsize>,
    /// Whom it goes to: in the address vector until it is there.
    pub _to: Arc<Name>,
}

/// What an operation is.
pub enum What {
    /// A receive into the buffer with this number.
    Receive(usize),
    /// A message from the buffer with this number.
    Send(usize, Sender),
    /// A read or a write, and who is told of its end.
    Access(Ticket),
    /// Nothing.
    Free,
}

#[repr(C)]
struct Operation {
    scratch: Scratch,
    what: Mutex<What>,
}

/// All of a process. An operation stays the provider's until that tells of its end.
#[derive(Default)]
pub struct Operations {
    all: Mutex<Vec<Box<[Operation]>>>,
    free: SegQueue<usize>,
}

/// Made at once.
const BLOCK: usize = 256;

impl Operations {
    /// Notes an operation that is going to be posted; its context.
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
        // - contexts come from `grow`: places in blocks that stay as long as `self`.
        unsafe { &*operation }
    }

    /// The operation with this context is over, or was not posted after all.
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
