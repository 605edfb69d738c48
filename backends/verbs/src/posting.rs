//! The send queue of a connection: posted work requests in order, and the work that they complete.

use std::ptr::null_mut;

use unipgas_core::streams::Ticket;
use unipgas_core::{Error, Result};
use unipgas_verbs_sys::*;

use crate::buffers::SendBuffer;
use crate::counts::ConnectionCounters;
use crate::queues::Pair;
use crate::staged::{Staged, Staging};
use crate::unsignaled::{Chain, ChannelLane};

/// Work that a work request completes.
#[derive(Default)]
pub(crate) enum PostedWork {
    /// No work.
    #[default]
    Nothing,
    /// An operation.
    Access(Ticket),
    /// A message; its buffer becomes free.
    Message(#[expect(dead_code, reason = "dropped when it has ended")] SendBuffer),
    /// A probe of the peer.
    Probe,
    /// The close message.
    Close,
}

impl PostedWork {
    /// Whether its completion must be signaled.
    fn is_awaited(&self) -> bool {
        !matches!(self, PostedWork::Nothing)
    }
}

/// Use of the peer's receive buffers by a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// None: it only writes or reads memory.
    Nothing,
    /// A buffer that the peer has promised.
    Credit,
    /// A buffer that is reserved for credit and close messages.
    Reserve,
}

/// The send queue of a connection.
pub(crate) struct SendQueue {
    /// Indexed by the number of the work request, modulo the length.
    ends: Box<[PostedWork]>,
    /// Number of posted work requests.
    posted: u32,
    /// Number of completed work requests.
    ended: u32,
    /// Number of the last signaled work request.
    told: u32,
    /// Number of the last read of the peer's memory.
    read: u32,
    /// Messages that the peer has buffers for.
    pub credits: u32,
    /// Messages of the peer that were read since the last return of credits.
    pub owed: u32,
    /// The connection works.
    pub open: bool,
    /// Counters. `requests` counts only completed work requests.
    pub counts: ConnectionCounters,
    /// State of the channels' unsignaled writes, indexed by lane.
    pub lanes: Vec<ChannelLane>,
    /// Work requests for unsignaled writes.
    pub chain: Box<Chain>,
    /// Work requests that wait for a common doorbell.
    pub staged: Staged,
}

impl SendQueue {
    /// The queue of a connection that is not open yet, for `depth` work requests, a power of two.
    pub fn new(depth: u32, staging: Staging) -> Self {
        debug_assert!(depth.is_power_of_two());
        SendQueue {
            ends: (0..depth).map(|_| PostedWork::Nothing).collect(),
            posted: 0,
            ended: 0,
            told: 0,
            read: 0,
            credits: 0,
            owed: 0,
            open: false,
            counts: ConnectionCounters::default(),
            lanes: Vec::new(),
            chain: Chain::new(),
            staged: Staged::new(staging),
        }
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.ends.len() - 1)
    }

    /// Whether nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.has_ended(self.posted)
    }

    /// Whether a signaled work request is in flight.
    pub fn is_watched(&self) -> bool {
        self.told.wrapping_sub(self.ended) as i32 > 0
    }

    /// Whether a message can leave now.
    pub fn has_room(&self) -> bool {
        self.open && self.credits > 0 && self.has_places(1)
    }

    /// Whether `count` work requests can be posted.
    #[inline(always)]
    pub fn has_places(&self, count: u32) -> bool {
        self.ends.len() as u32 - self.posted.wrapping_sub(self.ended) >= count
    }

    /// Number of the last one of `count` more work requests.
    #[inline(always)]
    pub fn next(&self, count: u32) -> u32 {
        self.posted.wrapping_add(count)
    }

    /// Whether the work request with this number must be signaled, because too many before it are unsignaled.
    #[inline(always)]
    pub fn is_long_untold(&self, number: u32) -> bool {
        number.wrapping_sub(self.told) as usize >= self.ends.len() / 4
    }

    /// Notes that all work requests up to this number are posted. `tells`: the last one is signaled.
    #[inline(always)]
    pub fn mark_posted(&mut self, number: u32, tells: bool) {
        self.posted = number;
        if tells {
            self.told = number;
            self.counts.told += 1;
        }
    }

    /// Counters so far.
    pub fn counts(&self) -> ConnectionCounters {
        let under_way = self.posted.wrapping_sub(self.ended);
        ConnectionCounters {
            requests: self.counts.requests + u64::from(under_way),
            ..self.counts
        }
    }

    /// Flag for a write. It makes the write wait if earlier reads are in flight.
    #[inline(always)]
    pub fn fence(&self) -> u32 {
        match self.has_ended(self.read) {
            true => 0,
            false => IBV_SEND_FENCE,
        }
    }

    /// Notes that the last posted work request is a read.
    pub fn reads(&mut self) {
        self.read = self.posted;
    }

    /// Whether the work request with this number has completed.
    #[inline(always)]
    pub fn has_ended(&self, number: u32) -> bool {
        self.ended.wrapping_sub(number) as i32 >= 0
    }

    /// Whether a completion is due for it.
    pub fn will_tell(&self, number: u32) -> bool {
        self.told.wrapping_sub(number) as i32 >= 0
    }

    fn under_way(&self) -> impl Iterator<Item = &PostedWork> {
        let count = self.posted.wrapping_sub(self.ended);
        (0..count).map(|nth| &self.ends[self.place(self.ended.wrapping_add(nth))])
    }

    /// Whether a close message is in flight.
    pub fn has_farewell(&self) -> bool {
        self.under_way()
            .any(|ends| matches!(ends, PostedWork::Close))
    }

    /// Whether accesses to memory of this process, or of the peer, are in flight.
    pub fn has_accesses(&self) -> bool {
        self.under_way()
            .any(|ends| matches!(ends, PostedWork::Access(_)))
    }

    /// Posts a chain of `N` requests. The last one completes `ends`. Errors: [`Error::NotNow`]; [`Error::PeerDead`].
    ///
    /// # Safety
    /// As for [`Pair::post`].
    #[inline]
    pub unsafe fn post<const N: usize>(
        &mut self,
        pair: &Pair,
        (id, requests): (u32, &mut [ibv_send_wr; N]),
        takes: Takes,
        ends: PostedWork,
    ) -> Result<()> {
        if !self.open {
            return Err(Error::PeerDead);
        }
        let count = N as u32;
        if !self.has_places(count) || takes == Takes::Credit && self.credits == 0 {
            return Err(Error::NotNow);
        }
        let number = self.next(count);
        let tells = ends.is_awaited() || self.is_long_untold(number);
        let last = &mut requests[N - 1];
        if tells {
            last.send_flags |= IBV_SEND_SIGNALED;
            last.wr_id = u64::from(id) << 32 | u64::from(number);
        }
        if self.staged.takes_all() {
            for request in requests.iter() {
                // SAFETY:
                // - contract of this call: the requests and their memory are valid.
                unsafe { self.staged.keep(request) };
            }
        } else {
            for nth in 1..N {
                requests[nth - 1].next = &raw mut requests[nth];
            }
            // SAFETY:
            // - contract of this call, and the chain lives as long as the array.
            if !unsafe { pair.post(&mut requests[0]) } {
                // A failed queue accepts no requests, and reports errors for the earlier ones.
                return Err(Error::NotNow);
            }
            self.counts.doorbells += 1;
        }
        let place = self.place(number.wrapping_sub(1));
        self.ends[place] = ends;
        if takes == Takes::Credit {
            self.credits -= 1;
        }
        self.mark_posted(number, tells);
        if self.staged.is_due() {
            self.ring(pair);
        }
        Ok(())
    }

    /// Posts the staged work requests. In a failed queue, earlier work requests report errors, so that the peer is lost.
    pub fn ring(&mut self, pair: &Pair) {
        self.counts.doorbells += 1;
        if !self.staged.ring(pair) {
            tracing::debug!("verbs: a queue pair takes nothing any more");
            pair.stop();
            self.open = false;
        }
    }

    /// Completes all work requests up to this number.
    pub fn end(&mut self, number: u32, mut tell: impl FnMut(PostedWork)) {
        // Impossible numbers are ignored.
        if number.wrapping_sub(self.ended) > self.posted.wrapping_sub(self.ended) {
            return;
        }
        self.counts.requests += u64::from(number.wrapping_sub(self.ended));
        while self.ended != number {
            let place = self.place(self.ended);
            self.ended = self.ended.wrapping_add(1);
            match std::mem::take(&mut self.ends[place]) {
                PostedWork::Nothing => {}
                ends => tell(ends),
            }
        }
    }
}

/// A write of `place` to an address of the peer.
pub fn write(place: &mut ibv_sge, to: (u64, u32)) -> ibv_send_wr {
    let none = place.length == 0;
    ibv_send_wr {
        wr_id: 0,
        next: null_mut(),
        sg_list: place,
        num_sge: i32::from(!none),
        opcode: IBV_WR_RDMA_WRITE,
        send_flags: 0,
        imm_data: 0,
        wr: far(to),
        qp_type: 0,
        bind_mw: [0; 6],
    }
}

/// An address of the peer, and its key.
pub fn far((address, key): (u64, u32)) -> wr_union {
    wr_union {
        remote_addr: address,
        rkey_or_compare_add: u64::from_ne_bytes({
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&key.to_ne_bytes());
            bytes
        }),
        swap: 0,
        atomic_rkey: 0,
    }
}
