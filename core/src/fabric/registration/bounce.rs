//! Bounce buffers: registered memory that short or borrowed bytes pass through on their way to and from a network.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::op::Local;
use crate::region::{Memory, Rights};
use crate::transport::Transport;
use crate::{Error, Result};

/// The shortest block, and how much memory of blocks of that length is registered at once.
const SHORTEST: usize = 4096;
const CHUNK: usize = 64 * SHORTEST;
/// Longer blocks are registered one by one; so many bytes of those that nobody uses are kept.
const KEPT: usize = 16 << 20;

/// The bounce buffers of one network.
pub(super) struct Bounces {
    /// Blocks that nobody uses, by the number of times that the shortest one has been doubled.
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    blocks: Vec<Vec<Piece>>,
    /// Bytes of those that have a registration of their own.
    kept: usize,
}

/// Memory, and what keeps it registered.
struct Piece {
    at: Local,
    _of: Arc<dyn Memory>,
}

// SAFETY:
// - the address is one in `of`, which is Send.
unsafe impl Send for Piece {}

/// A buffer, until it is dropped.
pub(crate) struct Block {
    piece: Option<Piece>,
    class: usize,
    home: Weak<Bounces>,
}

impl Bounces {
    pub fn new() -> Arc<Self> {
        Arc::new(Bounces {
            free: Mutex::default(),
        })
    }

    /// A buffer for `len` bytes. Errors: those of [`Transport::allocate`].
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
    /// Its first byte.
    pub fn local(&self) -> Local {
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
                // Outside of the lock: it may be a call of the network's.
                drop(piece);
                return;
            }
            free.kept += size;
        }
        free.blocks[self.class].push(piece);
    }
}
