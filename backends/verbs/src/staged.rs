//! Work requests that wait for a common doorbell.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unipgas_verbs_sys::*;

use crate::connection::INLINE;
use crate::queues::Pair;

/// Number of waiting work requests that rings the doorbell.
const MOST: usize = 32;

struct One {
    request: ibv_send_wr,
    place: ibv_sge,
    /// Copy of the inline bytes.
    inline: [u8; INLINE],
}

/// Number of connections in the process with staged work requests.
pub(crate) type Staging = Arc<AtomicUsize>;

/// Staged work requests of one connection, in order.
pub(crate) struct Staged {
    all: Vec<One>,
    /// Number of callers that will post more.
    held: u32,
    staging: Staging,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.are_none();
    }
}

// SAFETY:
// - its pointers lead into itself, or to memory that is valid until completion.
unsafe impl Send for Staged {}

impl Staged {
    /// An empty list. `staging` counts the connections with staged work requests.
    pub fn new(staging: Staging) -> Self {
        Staged {
            all: Vec::new(),
            held: 0,
            staging,
        }
    }

    /// Empties the list.
    fn are_none(&mut self) {
        if !self.all.is_empty() {
            self.all.clear();
            self.staging.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether new work requests must be staged.
    #[inline(always)]
    pub fn takes_all(&self) -> bool {
        self.held > 0 || self.has_some()
    }

    /// Whether work requests are staged.
    pub fn has_some(&self) -> bool {
        !self.all.is_empty()
    }

    /// A caller will post more.
    pub fn begin_batch(&mut self) {
        self.held += 1;
    }

    /// A caller has posted all. Others may still post.
    pub fn end_batch(&mut self) {
        self.held -= 1;
    }

    /// Whether the doorbell is due.
    pub fn is_due(&self) -> bool {
        self.all.len() >= MOST || self.held == 0 && self.has_some()
    }

    /// Stages a work request.
    ///
    /// # Safety
    /// All that the request points to is valid, and remains so until completion. Inline bytes need to be valid only in the call.
    pub unsafe fn keep(&mut self, request: &ibv_send_wr) {
        let mut place = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        if request.num_sge > 0 {
            // SAFETY:
            // - contract of this call: `sg_list` has one element.
            place = unsafe { *request.sg_list };
        }
        let mut inline = [0; INLINE];
        if request.send_flags & IBV_SEND_INLINE != 0 {
            let from: *const u8 = std::ptr::with_exposed_provenance(place.addr as usize);
            let len = (place.length as usize).min(INLINE);
            // SAFETY:
            // - contract of this call: the inline bytes are valid. The array has room for `len`.
            unsafe { inline.as_mut_ptr().copy_from_nonoverlapping(from, len) };
        }
        if self.all.is_empty() {
            self.staging.fetch_add(1, Ordering::AcqRel);
        }
        self.all.push(One {
            request: *request,
            place,
            inline,
        });
    }

    /// Posts all staged work requests. False: the queue pair accepts none.
    pub fn ring(&mut self, pair: &Pair) -> bool {
        let mut next: *mut ibv_send_wr = null_mut();
        for one in self.all.iter_mut().rev() {
            if one.request.send_flags & IBV_SEND_INLINE != 0 {
                one.place.addr = one.inline.as_ptr().expose_provenance() as u64;
            }
            one.request.sg_list = &raw mut one.place;
            one.request.next = next;
            next = &raw mut one.request;
        }
        let Some(first) = self.all.first_mut() else {
            return true;
        };
        // SAFETY:
        // - the chain lives through the call. Contract of `keep`: the memory is valid until completion.
        let posted = unsafe { pair.post(&mut first.request) };
        self.are_none();
        posted
    }
}
