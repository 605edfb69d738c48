//! The shared receive queue and its buffers: as many as the credits of all peers.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use unipgas_core::{Error, Result};
use unipgas_verbs_sys::*;

use crate::buffers::{BufferPool, MESSAGE};
use crate::device::{Device, lacks};
use crate::queues::AT_ONCE;

/// Number of buffers in a registration.
const TOGETHER: u32 = 256;

/// The shared receive queue.
pub(crate) struct SharedQueue {
    pub raw: NonNull<ibv_srq>,
    post: post_srq_recv,
    device: Arc<Device>,
}

// SAFETY:
// - contract of verbs: calls are valid on any thread.
unsafe impl Send for SharedQueue {}
// SAFETY:
// - as for Send.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// Creates a queue with `depth` places. Errors: [`Error::Exhausted`], [`Error::Os`].
    pub fn open(device: &Arc<Device>, depth: u32) -> Result<Arc<Self>> {
        let mut attributes = ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ibv_srq_attr {
                max_wr: depth,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY:
        // - the domain is open, and the attributes live through the call. A context holds its device's function table.
        unsafe {
            let raw = (device.library().create_srq)(device.pd.as_ptr(), &raw mut attributes);
            let raw = NonNull::new(raw)
                .ok_or_else(|| lacks("shared receive queues", "ibv_create_srq"))?;
            let post = (*device.context.raw.as_ptr()).ops.post_srq_recv;
            Ok(Arc::new(SharedQueue {
                raw,
                post: post.expect("a device that makes shared receive queues fills them"),
                device: device.clone(),
            }))
        }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY:
        // - created once. Its queue pairs keep the queue, so they are gone.
        let failed = unsafe { (self.device.library().destroy_srq)(self.raw.as_ptr()) };
        debug_assert_eq!(failed, 0, "a shared receive queue is in use");
    }
}

/// The buffers of the queue. The device writes to them until the last queue pair is stopped.
pub(crate) struct Receives {
    shared: Arc<SharedQueue>,
    pool: BufferPool,
    free: Vec<u32>,
    posted: u32,
    wanted: u32,
    depth: u32,
}

impl Receives {
    /// No buffers yet.
    pub fn new(shared: Arc<SharedQueue>, depth: u32) -> Self {
        Receives {
            pool: BufferPool::new(&shared.device, TOGETHER, true),
            shared,
            free: Vec::new(),
            posted: 0,
            wanted: 0,
            depth,
        }
    }

    /// Adds `count` buffers for a peer. Errors: [`Error::Exhausted`], [`Error::Os`].
    pub fn more(&mut self, count: u32) -> Result<()> {
        if self.wanted + count > self.depth {
            return Err(Error::Exhausted(format!(
                "places in the shared receive queue: the device has {}",
                self.depth
            )));
        }
        while self.pool.len() < self.wanted + count {
            self.free.extend(self.pool.grow()?);
        }
        self.wanted += count;
        self.fill();
        Ok(())
    }

    /// Removes `count` buffers of a peer.
    pub fn fewer(&mut self, count: u32) {
        self.wanted = self.wanted.saturating_sub(count);
    }

    /// Frees all buffers. Only after all queue pairs have stopped.
    pub fn give_back(&mut self) {
        let device = self.shared.device.clone();
        self.pool = BufferPool::new(&device, TOGETHER, true);
        self.free.clear();
        (self.posted, self.wanted, self.depth) = (0, 0, 0);
    }

    /// Content of a buffer with a received message.
    pub fn bytes(&self, number: u64, len: usize) -> &[u8] {
        let Some(at) = self.pool.at(number as u32) else {
            return &[];
        };
        // SAFETY:
        // - the queue has returned the buffer. A new post needs exclusive access to `self`, so the device does not write meanwhile.
        unsafe { std::slice::from_raw_parts(at.0, len.min(MESSAGE)) }
    }

    /// Takes a buffer back from the queue, after its message is read.
    pub fn take_back(&mut self, number: u64) {
        // After `give_back`, no buffers exist.
        if self.posted > 0 {
            self.posted -= 1;
            self.free.push(number as u32);
        }
    }

    /// Posts buffers up to the wanted number.
    pub fn fill(&mut self) {
        while self.posted < self.wanted {
            let want = ((self.wanted - self.posted) as usize)
                .min(AT_ONCE)
                .min(self.free.len());
            if want == 0 || !self.post(want) {
                return;
            }
        }
    }

    /// Posts `count` free buffers by one call. False: the queue has not accepted all.
    fn post(&mut self, count: usize) -> bool {
        // SAFETY:
        // - zeros are valid structures.
        let (mut places, mut requests): ([ibv_sge; AT_ONCE], [ibv_recv_wr; AT_ONCE]) =
            unsafe { std::mem::zeroed() };
        let first = self.free.len() - count;
        for nth in 0..count {
            let number = self.free[first + nth];
            let Some((at, key)) = self.pool.at(number) else {
                return false;
            };
            places[nth] = ibv_sge {
                addr: at.expose_provenance() as u64,
                length: MESSAGE as u32,
                lkey: key,
            };
            requests[nth] = ibv_recv_wr {
                wr_id: number.into(),
                next: null_mut(),
                sg_list: &raw mut places[nth],
                num_sge: 1,
            };
        }
        for nth in 1..count {
            requests[nth - 1].next = &raw mut requests[nth];
        }
        let mut bad = null_mut();
        // SAFETY:
        // - the requests live through the call. The buffers belong to the queue now, and live as long.
        let failed = unsafe {
            (self.shared.post)(
                self.shared.raw.as_ptr(),
                requests.as_mut_ptr(),
                &raw mut bad,
            )
        };
        let taken = match failed {
            0 => count,
            _ => requests[..count]
                .iter()
                .position(|one| std::ptr::eq(one, bad))
                .unwrap_or(0),
        };
        self.free.drain(first..first + taken);
        self.posted += taken as u32;
        taken == count
    }
}
