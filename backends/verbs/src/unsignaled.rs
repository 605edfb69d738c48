//! Unsignaled writes. A connection carries them out in order, so the last write of a channel to a peer completes all earlier ones. The state of each
//! channel on a connection is one number, in its lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use unipgas_core::op::{Notice, Remote, UnsignaledPut};
use unipgas_core::{Error, Rights};
use unipgas_verbs_sys::*;

use crate::connection::Connection;
use crate::net::VerbsNet;
use crate::posting::{SendQueue, write};
use crate::region::{connection, far};
use crate::wire::{self, ImmediateKind};

/// Unsignaled writes of a channel.
pub(crate) struct UnsignaledWrites {
    /// Index of its lane in all connections.
    lane: u32,
    used: Mutex<Used>,
    /// Number of connections with writes in flight.
    pending: AtomicUsize,
    failures: Mutex<Vec<Error>>,
}

#[derive(Default)]
struct Used {
    /// Connections with a lane of this channel.
    all: Vec<Option<Arc<Connection>>>,
    /// Indices in `all` of connections with writes in flight.
    busy: Vec<u32>,
}

/// State of a channel on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChannelLane {
    /// Number of its last work request.
    last: u32,
    /// Index of the connection in the channel's list, plus one. 0: the channel does not use the connection.
    place: u32,
    /// The channel has the connection in its busy list.
    busy: bool,
}

/// Reusable work requests of a write and its word.
pub(crate) struct Chain {
    places: [ibv_sge; 2],
    requests: [ibv_send_wr; 2],
    value: u32,
}

// SAFETY:
// - its pointers lead into itself, or to memory that is valid in a call.
unsafe impl Send for Chain {}

impl Chain {
    /// A new chain, at a stable address.
    pub fn new() -> Box<Self> {
        let none = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        let mut places = [none; 2];
        let requests = [0, 1].map(|nth: usize| write(&mut places[nth], (0, 0)));
        let mut chain = Box::new(Chain {
            places,
            requests,
            value: 0,
        });
        let at = &mut *chain;
        for nth in 0..2 {
            at.requests[nth].sg_list = &raw mut at.places[nth];
            at.requests[nth].num_sge = 1;
        }
        at.requests[1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        at.places[1].addr = (&raw const at.value).expose_provenance() as u64;
        at.places[1].length = size_of::<u32>() as u32;
        chain
    }
}

/// Result of a post.
enum Posted {
    /// The write is in flight.
    Yes,
    /// As `Yes`, and the channel must mark its connection with this index as busy.
    First(u32),
    /// No room; nothing is posted.
    No,
    /// The channel has no lane; nothing is posted.
    Never,
}

impl SendQueue {
    /// Posts a write: with data if `DATA`, with a word if `WORD`.
    ///
    /// # Safety
    /// The bytes are valid.
    #[inline(always)]
    unsafe fn post_quick<const DATA: bool, const WORD: bool>(
        &mut self,
        connection: &Connection,
        lane: u32,
        put: &UnsignaledPut<'_>,
    ) -> Posted {
        let Some(ChannelLane { place: 1.., .. }) = self.lanes.get(lane as usize) else {
            return Posted::Never;
        };
        let (count, takes) = (u32::from(DATA) + u32::from(WORD), u32::from(WORD));
        let room = self.open && self.credits >= takes && self.has_places(count);
        if !room || self.staged.takes_all() {
            return Posted::No;
        }
        let number = self.next(count);
        let tells = self.is_long_untold(number);
        let flags = IBV_SEND_INLINE | self.fence();
        let name = u64::from(connection.number) << 32 | u64::from(number);
        let chain = &mut *self.chain;
        let [data, word] = &mut chain.requests;
        if DATA {
            chain.places[0].addr = put.src.expose_provenance() as u64;
            chain.places[0].length = put.len as u32;
            aim(data, &put.dst);
            data.send_flags = flags;
            data.next = std::ptr::null_mut();
        }
        if WORD && let Some(Notice { slot, value }) = &put.notice {
            chain.value = *value;
            aim(word, slot);
            word.imm_data = wire::word(ImmediateKind::Written, self.owed);
            data.next = word;
        }
        let last = if WORD { &mut *word } else { &mut *data };
        last.send_flags = flags | if tells { IBV_SEND_SIGNALED } else { 0 };
        last.wr_id = name;
        let first = if DATA { data } else { word };
        // SAFETY:
        // - contract of this call: the bytes are valid. They and the value are inline, so they are copied in the call. The chain is in a box.
        if !unsafe { connection.pair.post(first) } {
            return Posted::No;
        }
        if WORD {
            self.credits -= 1;
            self.owed = 0;
        }
        self.mark_posted(number, tells);
        self.counts.doorbells += 1;
        let lane = &mut self.lanes[lane as usize];
        lane.last = number;
        match std::mem::replace(&mut lane.busy, true) {
            true => Posted::Yes,
            false => Posted::First(lane.place - 1),
        }
    }
}

/// Sets the destination of a request.
#[inline(always)]
fn aim(request: &mut ibv_send_wr, to: &Remote<'_>) {
    let (address, key) = far(to.region, to.offset);
    request.wr.remote_addr = address;
    request.wr.rkey_or_compare_add = key.into();
}

impl UnsignaledWrites {
    /// Unsignaled writes of a channel with this lane index.
    pub fn new(lane: u32) -> Self {
        UnsignaledWrites {
            lane,
            used: Mutex::default(),
            pending: AtomicUsize::new(0),
            failures: Mutex::default(),
        }
    }

    /// Index of its lane.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    /// See [`Channel::put_unsignaled`](unipgas_core::transport::Channel::put_unsignaled).
    ///
    /// # Safety
    /// The bytes are valid.
    #[inline]
    pub unsafe fn put(&self, net: &VerbsNet, put: &UnsignaledPut<'_>) -> bool {
        let UnsignaledPut { len, dst, .. } = *put;
        let connection = connection(dst.region);
        let mut queue = connection.queue();
        // Under the lock: a message to the peer about a released region is either sent already, or follows this write.
        if !dst.region.allows(dst.offset, len, Rights::WRITE) {
            return false;
        }
        let lane = self.lane;
        // SAFETY:
        // - contract of this call: the bytes are valid.
        let posted = unsafe {
            match &put.notice {
                None if len == 0 => return false,
                None => queue.post_quick::<true, false>(connection, lane, put),
                Some(Notice { slot, .. })
                    if !slot.offset.is_multiple_of(4)
                        || !slot.region.allows(slot.offset, 4, Rights::WRITE) =>
                {
                    return false;
                }
                Some(_) if len == 0 => queue.post_quick::<false, true>(connection, lane, put),
                Some(_) => queue.post_quick::<true, true>(connection, lane, put),
            }
        };
        drop(queue);
        match posted {
            Posted::Yes => true,
            Posted::First(place) => {
                self.pending.fetch_add(1, Ordering::AcqRel);
                self.used.lock().busy.push(place);
                true
            }
            Posted::No => false,
            Posted::Never => {
                self.begin(net, connection.number);
                false
            }
        }
    }

    /// Adds a lane on the connection with this number.
    #[cold]
    fn begin(&self, net: &VerbsNet, number: u32) {
        let Some(connection) = net.find(number) else {
            return;
        };
        let all = &mut self.used.lock().all;
        let at = self.lane as usize;
        // Releases ended connections, so that their device objects are destroyed.
        for place in all.iter_mut() {
            if place.as_ref().is_some_and(|one| leave(one, at)) {
                *place = None;
            }
        }
        let mut queue = connection.queue();
        if queue.lanes.len() <= at {
            queue.lanes.resize(at + 1, ChannelLane::default());
        }
        if queue.lanes[at].place != 0 || connection.state.has_ended() {
            return;
        }
        let free = all.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        queue.lanes[at].place = place as u32 + 1;
        drop(queue);
        all[place] = Some(connection);
    }

    /// Number of peers with writes in flight.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Checks for completions, and requests the missing ones.
    pub fn settle(&self) {
        let Used { all, busy } = &mut *self.used.lock();
        busy.retain(|place| {
            let Some(connection) = &all[*place as usize] else {
                return false;
            };
            let mut queue = connection.queue();
            let at = self.lane as usize;
            let last = queue.lanes[at].last;
            let ended = queue.has_ended(last);
            if ended || !queue.open {
                queue.lanes[at].busy = false;
                drop(queue);
                if !ended {
                    self.failures.lock().push(Error::PeerDead);
                }
                self.pending.fetch_sub(1, Ordering::AcqRel);
                return false;
            }
            if !queue.will_tell(last) {
                // If the queue is full, it contains signaled work requests anyway.
                let _ = connection.acknowledge(&mut queue);
            }
            true
        });
    }

    /// See [`Channel::quick_failure`](unipgas_core::transport::Channel::quick_failure).
    pub fn failure(&self) -> Option<Error> {
        self.failures.lock().pop()
    }

    /// Removes the lanes of the channel, which is closed.
    pub fn end(&self) {
        for connection in self.used.lock().all.iter().flatten() {
            connection.queue().lanes[self.lane as usize] = ChannelLane::default();
        }
    }
}

/// Removes the lane on an ended connection, unless the channel has yet to handle its writes there. True: removed.
fn leave(connection: &Connection, lane: usize) -> bool {
    let mut queue = connection.queue();
    let leaves = connection.state.has_ended() && !queue.lanes[lane].busy;
    if leaves {
        queue.lanes[lane] = ChannelLane::default();
    }
    leaves
}
