//! Destinations of answers.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::stream_node::StreamNode;
use unipgas_base::Result;
use unipgas_engine::agent::{land, wire};
use unipgas_engine::op::ReplyBuffer;
use unipgas_engine::transport::LONGEST_MESSAGE;
use unipgas_engine::{Flags, Local};

/// The destination of an answer's bytes.
pub(super) enum Landing {
    /// `len` bytes in registered memory.
    Read {
        into: Local,
        len: usize,
        flags: Flags,
    },
    /// The reply to a message.
    Reply(ReplyBuffer),
    /// The answer to an import.
    Told(Arc<Mutex<Vec<u8>>>),
}

// SAFETY:
// - contract of the operation: the memory is valid on each thread until completion.
unsafe impl Send for Landing {}

impl Landing {
    /// Whether the answer's bytes go to the caller's memory.
    pub fn reads(&self) -> bool {
        match self {
            Landing::Read { .. } => true,
            Landing::Reply(reply) => reply.room() > 0,
            Landing::Told(_) => false,
        }
    }

    /// Takes the bytes of an answer. Returns the result of the operation. Errors: the request has no answer of this length.
    pub(crate) fn land(
        self,
        bytes: &[u8],
        node: &StreamNode,
    ) -> Result<Result<()>, wire::Malformed> {
        match self {
            Landing::Read { into, len, flags } if bytes.len() == len => {
                // The memory must still be registered.
                let checked = node.check_local(into, len);
                Ok(checked.map(|()| {
                    for part in parts(bytes.len(), node.writes_backwards()) {
                        // SAFETY:
                        // - contract of `Channel::get` and `Channel::atomic`: valid for `len` bytes until completion.
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

/// The parts of a write. `backwards`: several parts, the last one first, so that tests find code that relies on an order. A write of at most 8 bytes stays
/// whole, since it may be a word.
pub(super) fn parts(len: usize, backwards: bool) -> impl Iterator<Item = Range<usize>> {
    let part = match backwards && len > 8 {
        true => (len / 8).max(16),
        false => len.max(1),
    };
    let starts = (0..len.div_ceil(part).max(1)).rev();
    starts.map(move |nth| nth * part..len.min((nth + 1) * part))
}
