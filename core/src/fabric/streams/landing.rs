//! Where the bytes of answers go.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::home::Home;
use crate::agent::{land, wire};
use crate::op::Reply;
use crate::transport::LONGEST_MESSAGE;
use crate::{Flags, Local, Result};

/// Where an answer's bytes go.
pub(super) enum Landing {
    /// So many, to registered memory.
    Read {
        into: Local,
        len: usize,
        flags: Flags,
    },
    /// Those that the answer to a message has.
    Reply(Reply),
    /// Those that the answer to an import has.
    Told(Arc<Mutex<Vec<u8>>>),
}

// SAFETY:
// - the memory is valid until the operation is complete, on any thread: the contract of the operation.
unsafe impl Send for Landing {}

impl Landing {
    /// Whether it writes what the operation's caller reads.
    pub fn reads(&self) -> bool {
        match self {
            Landing::Read { .. } => true,
            Landing::Reply(reply) => reply.room() > 0,
            Landing::Told(_) => false,
        }
    }

    /// The answer has these. Gives how the operation ends. Errors: nobody who has been asked that answers so.
    pub fn land(self, bytes: &[u8], home: &Home) -> Result<Result<()>, wire::Malformed> {
        match self {
            Landing::Read { into, len, flags } if bytes.len() == len => {
                // Registered until now, not only when it was asked for.
                let checked = home.check_local(into, len);
                Ok(checked.map(|()| {
                    for part in parts(bytes.len(), home.writes_backwards()) {
                        // SAFETY:
                        // - valid for `len` bytes until the operation is complete (contract of the operation).
                        unsafe {
                            let into = into.ptr.wrapping_add(part.start);
                            land(&bytes[part], into, flags);
                        }
                    }
                }))
            }
            Landing::Reply(reply) if bytes.len() <= LONGEST_MESSAGE => {
                reply.take(bytes);
                Ok(Ok(()))
            }
            Landing::Told(into) => {
                into.lock().extend_from_slice(bytes);
                Ok(Ok(()))
            }
            _ => Err(wire::Malformed),
        }
    }
}

/// How `len` bytes are written: whole, or in parts, the last one first, so that nobody relies on an order that is not promised. What may be
/// a word is not torn.
pub(super) fn parts(len: usize, backwards: bool) -> impl Iterator<Item = Range<usize>> {
    let part = match backwards && len > 8 {
        true => (len / 8).max(16),
        false => len.max(1),
    };
    let starts = (0..len.div_ceil(part).max(1)).rev();
    starts.map(move |nth| nth * part..len.min((nth + 1) * part))
}
