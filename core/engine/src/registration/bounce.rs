//! Bounce buffers: registered memory for short or borrowed bytes on their way to and from a network.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::op::Local;
use crate::region::Memory;
use crate::transport::Transport;
use crate::{Error, Result, Rights};

/// The shortest block, and the size of a registration for blocks of that length. In bytes.
const SHORTEST: usize = 4096;
const CHUNK: usize = 64 * SHORTEST;
/// Longer blocks have a registration each. The most bytes of unused long blocks that stay registered.
const KEPT: usize = 16 << 20;

/// The bounce buffers of one network.
pub(super) struct Bounces {
    /// Unused blocks. The index is the binary logarithm of length / [`SHORTEST`].
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    blocks: Vec<Vec<Piece>>,
    /// Bytes of the unused blocks with a registration of their own.
    kept: usize,
}

/// Memory and its registration.
struct Piece {
    at: Local,
    _of: Arc<dyn Memory>,
}

// SAFETY:
// - the address lies in the memory of `_of`, which is Send.
unsafe impl Send for Piece {}

/// A buffer. Its drop frees it for reuse.
pub(crate) struct Block {
    piece: Option<Piece>,
    class: usize,
    home: Weak<Bounces>,
}

impl Bounces {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Bounces {
            free: Mutex::default(),
        })
    }

    /// A buffer for `len` bytes. Errors: as [`Transport::allocate`].
    pub fn block(self: &Arc<Self>, transport: &dyn Transport, len: usize) -> Result<Block> {
        let too_long = || Error::Exhausted(format!("memory for {len} bytes"));
        let whole = len.max(SHORTEST).checked_next_power_of_two();
        let whole = whole.ok_or_else(too_long)?;
        let class = (whole / SHORTEST).ilog2() as usize;
        let mut free = self.free.lock();
        let free = &mut *free;
        if free.blocks.len() <= class {
            free.blocks.resize_with(class + 1, Vec::new);
        }
        let found = free.blocks[class].pop();
        let piece = match found {
            Some(piece) => {
                free.kept -= if class > 0 { whole } else { 0 };
                piece
            }
            None => {
                let size = if class == 0 { CHUNK } else { whole };
                let of: Arc<dyn Memory> = transport.allocate(size, Rights::empty())?.into();
                let piece = |nth: usize| Piece {
                    at: Local {
                        ptr: of.base().wrapping_add(nth * whole),
                        desc: of.desc(),
                    },
                    _of: of.clone(),
                };
                free.blocks[class].extend((1..size / whole).map(piece));
                piece(0)
            }
        };
        Ok(Block {
            piece: Some(piece),
            class,
            home: Arc::downgrade(self),
        })
    }
}

impl Block {
    /// The first byte of the buffer.
    pub(crate) fn local(&self) -> Local {
        self.piece.as_ref().expect("until it is dropped").at
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (Some(piece), Some(home)) = (self.piece.take(), self.home.upgrade()) else {
            return;
        };
        let mut free = home.free.lock();
        let size = SHORTEST << self.class;
        if self.class > 0 {
            if free.kept + size > KEPT {
                drop(free);
                // Outside of the lock: the drop may call the network.
                drop(piece);
                return;
            }
            free.kept += size;
        }
        free.blocks[self.class].push(piece);
    }
}
