//! The send queue of a connection: what has been posted, in order, and what ends with it.

use std::ptr::null_mut;

use unipgas_core::streams::Ticket;
use unipgas_core::{Error, Result};
use unipgas_verbs_sys::*;

use crate::buffers::Buffer;
use crate::counts::Counts;
use crate::queues::Pair;
use crate::quick::{Chain, Lane};
use crate::staged::{Staged, Staging};

/// What a work request does beside moving bytes.
#[derive(Default)]
pub enum Ends {
    /// Nothing.
    #[default]
    Nothing,
    /// Somebody is told of the end.
    Access(Ticket),
    /// The buffer is not read any more.
    Message(#[expect(dead_code, reason = "dropped when it has ended")] Buffer),
    /// The peer is there.
    Probe,
    /// The stream has ended, and the peer knows.
    Close,
}

impl Ends {
    /// Whether its end has to be known soon.
    fn is_awaited(&self) -> bool {
        !matches!(self, Ends::Nothing)
    }
}

/// Whether a message takes a buffer of the peer's, of those that it has promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// It writes or reads memory only.
    Nothing,
    /// One that is promised.
    Credit,
    /// One that is kept for this.
    Reserve,
}

/// The queue of one connection.
pub struct SendQueue {
    /// By the number of the work request, modulo the depth.
    ends: Box<[Ends]>,
    /// Work requests that there ever were.
    posted: u32,
    /// Of these the ones that have ended.
    ended: u32,
    /// Up to here ends are told.
    told: u32,
    /// The last one that reads memory of the peer's.
    read: u32,
    /// Messages that the peer takes.
    pub credits: u32,
    /// Messages of the peer's that have been read since it was told so.
    pub owed: u32,
    /// The connection works.
    pub open: bool,
    /// What it has done; of its requests those that have ended.
    pub counts: Counts,
    /// Those of channels, for what they post quickly.
    pub lanes: Vec<Lane>,
    /// What is posted like that.
    pub chain: Box<Chain>,
    /// What waits for others.
    pub staged: Staged,
}

impl SendQueue {
    /// Of a connection that is not open yet.
    pub fn new(depth: u32, staging: Staging) -> Self {
        SendQueue {
            ends: (0..depth.next_power_of_two())
                .map(|_| Ends::Nothing)
                .collect(),
            posted: 0,
            ended: 0,
            told: 0,
            read: 0,
            credits: 0,
            owed: 0,
            open: false,
            counts: Counts::default(),
            lanes: Vec::new(),
            chain: Chain::new(),
            staged: Staged::new(staging),
        }
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.ends.len() - 1)
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.has_ended(self.posted)
    }

    /// Whether the end of anything that is under way will be told.
    pub fn is_watched(&self) -> bool {
        self.told.wrapping_sub(self.ended) as i32 > 0
    }

    /// Whether a message can go now.
    pub fn has_room(&self) -> bool {
        self.open && self.credits > 0 && self.has_places(1)
    }

    /// Whether so many work requests can be posted.
    #[inline(always)]
    pub fn has_places(&self, count: u32) -> bool {
        self.ends.len() as u32 - self.posted.wrapping_sub(self.ended) >= count
    }

    /// The number of the last one of so many more.
    #[inline(always)]
    pub fn next(&self, count: u32) -> u32 {
        self.posted.wrapping_add(count)
    }

    /// Whether nobody would know for long of the end of the one with this number.
    #[inline(always)]
    pub fn is_long_untold(&self, number: u32) -> bool {
        number.wrapping_sub(self.told) as usize >= self.ends.len() / 4
    }

    /// All up to this number have been posted, the last ones by one call; of the last one's end the device `tells`.
    #[inline(always)]
    pub fn has_posted(&mut self, number: u32, tells: bool) {
        self.posted = number;
        if tells {
            self.told = number;
            self.counts.told += 1;
        }
    }

    /// What has been done until now.
    pub fn counts(&self) -> Counts {
        let under_way = self.posted.wrapping_sub(self.ended);
        Counts {
            requests: self.counts.requests + u64::from(under_way),
            ..self.counts
        }
    }

    /// What keeps a write from being carried out while something is read that was asked for before.
    #[inline(always)]
    pub fn fence(&self) -> u32 {
        match self.has_ended(self.read) {
            true => 0,
            false => IBV_SEND_FENCE,
        }
    }

    /// The last one that was posted reads.
    pub fn reads(&mut self) {
        self.read = self.posted;
    }

    /// Whether the one with this number has ended.
    #[inline(always)]
    pub fn has_ended(&self, number: u32) -> bool {
        self.ended.wrapping_sub(number) as i32 >= 0
    }

    /// Whether the device will tell of its end.
    pub fn will_tell(&self, number: u32) -> bool {
        self.told.wrapping_sub(number) as i32 >= 0
    }

    fn under_way(&self) -> impl Iterator<Item = &Ends> {
        let count = self.posted.wrapping_sub(self.ended);
        (0..count).map(|nth| &self.ends[self.place(self.ended.wrapping_add(nth))])
    }

    /// Whether the peer is being told that it is over.
    pub fn has_farewell(&self) -> bool {
        self.under_way().any(|ends| matches!(ends, Ends::Close))
    }

    /// Whether the peer's memory, or this process's, may be read or written still.
    pub fn has_accesses(&self) -> bool {
        self.under_way().any(|ends| matches!(ends, Ends::Access(_)))
    }

    /// Posts the chain of `N` requests, of which the last one does what `ends` says. Errors: [`Error::NotNow`]; [`Error::PeerDead`].
    ///
    /// # Safety
    /// As [`Pair::post`].
    #[inline]
    pub unsafe fn post<const N: usize>(
        &mut self,
        pair: &Pair,
        (id, requests): (u32, &mut [ibv_send_wr; N]),
        takes: Takes,
        ends: Ends,
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
                // - the caller's word.
                unsafe { self.staged.keep(request) };
            }
        } else {
            for nth in 1..N {
                requests[nth - 1].next = &raw mut requests[nth];
            }
            // SAFETY:
            // - the caller's word; the chain lives as long as the array.
            if !unsafe { pair.post(&mut requests[0]) } {
                // A queue in the state of error takes nothing, and says so of what it has.
                return Err(Error::NotNow);
            }
            self.counts.doorbells += 1;
        }
        let place = self.place(number.wrapping_sub(1));
        self.ends[place] = ends;
        if takes == Takes::Credit {
            self.credits -= 1;
        }
        self.has_posted(number, tells);
        if self.staged.is_due() {
            self.ring(pair);
        }
        Ok(())
    }

    /// What waits for others leaves. It fails where the queue is in the state of error, as what was posted before: its peer is lost, which is told.
    pub fn ring(&mut self, pair: &Pair) {
        self.counts.doorbells += 1;
        if !self.staged.ring(pair) {
            tracing::debug!("verbs: a queue pair takes nothing any more");
            pair.stop();
            self.open = false;
        }
    }

    /// All up to this one have ended.
    pub fn end(&mut self, number: u32, mut tell: impl FnMut(Ends)) {
        // What a device says wrongly is ignored.
        if number.wrapping_sub(self.ended) > self.posted.wrapping_sub(self.ended) {
            return;
        }
        self.counts.requests += u64::from(number.wrapping_sub(self.ended));
        while self.ended != number {
            let place = self.place(self.ended);
            self.ended = self.ended.wrapping_add(1);
            match std::mem::take(&mut self.ends[place]) {
                Ends::Nothing => {}
                ends => tell(ends),
            }
        }
    }
}

/// A write of `place` to an address of the peer's.
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

/// An address of the peer's, and its key.
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
