//! Unsignaled writes. Writes between two VCQs are strongly ordered, so the last write of a channel to a peer completes all earlier ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use unipgas_core::op::{Notice, UnsignaledPut};
use unipgas_core::{Error, Result, Rights};
use unipgas_utofu_sys::*;

use crate::endpoint::PIGGYBACK;
use crate::lanes::{PendingWork, VcqLane};
use crate::net::{PeerVcq, acknowledge, data_of};
use crate::region::{conversation, far};
use crate::vcq::RawVcq;

/// Interval of writes with a notice.
pub const OFTEN: u64 = 32;

/// Targets of a channel with writes in flight, and the number of the last one to each.
#[derive(Default)]
pub(crate) struct UnsignaledPuts {
    busy: Mutex<Vec<(Arc<PeerVcq>, u64)>>,
    pending: AtomicUsize,
    failures: Mutex<Vec<Error>>,
}

impl UnsignaledPuts {
    /// See [`Channel::put_unsignaled`](unipgas_core::transport::Channel::put_unsignaled).
    ///
    /// # Safety
    /// The bytes are valid.
    #[inline]
    pub unsafe fn put(&self, lane: &VcqLane, put: &UnsignaledPut<'_>) -> bool {
        let UnsignaledPut {
            src,
            len,
            dst,
            notice,
        } = *put;
        if len > PIGGYBACK {
            return false;
        }
        let to = &conversation(dst.region).target;
        let mut queue = lane.queue();
        // Under the lock: a message to the peer about a released region is either sent already, or waits for this write.
        if !dst.region.allows(dst.offset, len, Rights::WRITE) {
            return false;
        }
        let word = match notice {
            None if len == 0 => return false,
            None => None,
            Some(Notice { slot, value }) => {
                let room = slot.offset.is_multiple_of(4)
                    && slot.region.allows(slot.offset, 4, Rights::WRITE);
                if !room {
                    return false;
                }
                Some((far(slot.region, slot.offset), value.to_ne_bytes()))
            }
        };
        let at = far(dst.region, dst.offset);
        let write = |vcq: &RawVcq, notice| {
            let order = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
            let (peer, data) = (to.route, data_of(to));
            let bytes = (src, len);
            match word {
                // SAFETY:
                // - contract of this call: the bytes are valid.
                None => unsafe { vcq.put_piggyback(peer, bytes, at, (0, order | notice), data) },
                Some((slot, word)) => {
                    if len > 0 {
                        let flags = (0, order | vcq.waiting());
                        // SAFETY:
                        // - as above.
                        unsafe { vcq.put_piggyback(peer, bytes, at, flags, data) }?;
                    }
                    let bytes = (word.as_ptr(), word.len());
                    // SAFETY:
                    // - `word` has `word.len()` bytes.
                    unsafe { vcq.put_piggyback(peer, bytes, slot, (0, order | notice), data) }
                }
            }
        };
        let Ok(last) = lane.post_quick(&mut queue, to, write) else {
            return false;
        };
        drop(queue);
        self.note(to, last);
        true
    }

    #[inline]
    fn note(&self, to: &Arc<PeerVcq>, last: u64) {
        let mut busy = self.busy.lock();
        match busy.iter_mut().find(|(known, _)| Arc::ptr_eq(known, to)) {
            Some((_, number)) => *number = last,
            None => {
                busy.push((to.clone(), last));
                self.pending.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Number of peers with writes in flight.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Checks for completions, and requests the missing ones.
    pub fn settle(&self, lane: &VcqLane) {
        let mut busy = self.busy.lock();
        busy.retain(|(to, last)| {
            let ended = lane.has_ended(to, *last);
            if ended.is_err() {
                self.failures.lock().push(Error::PeerDead);
            }
            let over = ended != Ok(false);
            if over {
                self.pending.fetch_sub(1, Ordering::AcqRel);
            }
            !over
        });
    }

    /// See [`Channel::quick_failure`](unipgas_core::transport::Channel::quick_failure).
    pub fn failure(&self) -> Option<Error> {
        self.failures.lock().pop()
    }
}

impl VcqLane {
    /// Whether all descriptors up to this number have completed at a target. Requests a notice if none is due. Errors: [`Error::PeerDead`].
    pub fn has_ended(&self, to: &PeerVcq, number: u64) -> Result<bool> {
        let mut queue = self.queue();
        if to.is_lost() {
            return Err(Error::PeerDead);
        }
        if queue.knows_of_end(to, number) {
            return Ok(queue.reached(to, number));
        }
        let ask = |vcq: &RawVcq, notice| acknowledge(vcq, to, notice);
        match self.post_covering(&mut queue, to, ask, || PendingWork::Nothing) {
            // The next call retries if there was no room.
            Err(Error::NotNow) | Ok(()) => Ok(false),
            Err(_) => Err(Error::PeerDead),
        }
    }
}
