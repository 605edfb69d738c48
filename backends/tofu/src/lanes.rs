//! The VCQs of this process. Each VCQ is a lane: its operations to one peer complete in order, by local notices in its MRQ.

use std::ffi::c_ulong;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use unipgas_core::streams::Ticket;
use unipgas_core::{Deadline, Error, Result};
use unipgas_utofu_sys::*;

use crate::blocks::Block;
use crate::edata::NoticeOwner;
use crate::greeting::Fetched;
use crate::library::UtofuLibrary;
use crate::net::PeerVcq;
use crate::queue::{FlightQueue, QueueEvent, is_local};
use crate::unsignaled::OFTEN;
use crate::vcq::{RawVcq, is_told};

/// Maximum number of VCQs in a process.
pub const LANES: usize = 6;
/// Maximum number of expected local notices in a VCQ: a quarter of the smallest MRQ (guide §4.3.2.3).
const NOTICES: usize = 512;
/// Maximum wait for late operations before a deregistration.
const FAREWELL: Duration = Duration::from_secs(1);
/// Flag for a descriptor with a local notice.
const NOTICED: c_ulong = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

/// Work that a local notice completes.
pub(crate) enum PendingWork {
    /// No work: it only covers earlier descriptors.
    Nothing,
    /// An operation.
    Access(Ticket),
    /// An operation with a result, and the place for it.
    Value(Ticket, ResultSlot),
    /// A probe of the stream with this number. The block receives the identity of the VCQ's owner.
    Probe(u32, Block),
    /// A greeting for the stream with this number.
    Greeted(u32),
    /// A fetch of a greeting.
    Fetched(Fetched),
    /// An answer to a greeting.
    Answered(#[expect(dead_code, reason = "dropped when it has been read")] Option<Fetched>),
}

/// Place for a result.
#[derive(Clone, Copy)]
pub(crate) struct ResultSlot {
    /// First byte.
    pub at: *mut u8,
    /// Bytes, at most 8.
    pub len: usize,
}

// SAFETY:
// - contract of `Channel::atomic`: the result is valid on any thread until completion.
unsafe impl Send for ResultSlot {}

impl PendingWork {
    /// Whether it belongs to a greeting, or to an answer.
    pub fn is_of_greeting(&self) -> bool {
        matches!(self, PendingWork::Greeted(_) | PendingWork::Answered(_))
    }

    /// Whether it owns memory that the network may use until completion.
    pub fn has_memory(&self) -> bool {
        matches!(
            self,
            PendingWork::Fetched(_) | PendingWork::Answered(_) | PendingWork::Probe(..)
        )
    }
}

impl ResultSlot {
    /// Writes the result. Only once, before completion.
    pub fn set(self, value: u64) {
        let bytes = value.to_ne_bytes();
        debug_assert!(self.len <= bytes.len() && cfg!(target_endian = "little"));
        // SAFETY:
        // - contract of `Channel::atomic`: the result is valid until completion.
        unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), self.len) };
    }
}

/// A VCQ and its state.
pub(crate) struct VcqLane {
    /// Its number.
    pub number: usize,
    /// The VCQ.
    pub vcq: RawVcq,
    queue: Mutex<FlightQueue>,
    /// Local notices are due.
    expects: AtomicBool,
    /// A post failed, for lack of room or for good, and no poll has followed.
    was_full: AtomicBool,
    /// Targets of posts that failed for good, with the errors.
    refused: Mutex<Vec<(u32, Error)>>,
    /// Channels that use it.
    users: AtomicUsize,
}

/// Results of a poll of lanes.
#[derive(Default)]
pub(crate) struct Findings {
    /// Completed work, with the result of an atomic operation.
    pub ended: Vec<(PendingWork, u64)>,
    /// Notices of peers' operations.
    pub remote: Vec<utofu_mrq_notice>,
    /// Lost targets, with error codes.
    pub lost: Vec<(u32, i32)>,
    /// Data of descriptors: the TNI has read their source, or they failed with this code.
    pub read: Vec<(usize, Option<i32>)>,
    /// Work that is discarded with lost targets.
    pub over: Vec<PendingWork>,
    /// Targets that are lost because a post for them failed here.
    pub refused: Vec<(u32, Error)>,
    /// A VCQ of this process is unusable.
    pub broken: Option<Error>,
    /// A full lane may have room now.
    pub room: bool,
}

impl Findings {
    /// Whether it has no results.
    pub fn is_empty(&self) -> bool {
        let Findings {
            ended,
            remote,
            lost,
            read,
            over,
            refused,
            broken,
            room,
        } = self;
        let nothing = ended.is_empty() && remote.is_empty() && lost.is_empty() && read.is_empty();
        nothing && over.is_empty() && refused.is_empty() && broken.is_none() && !room
    }
}

impl VcqLane {
    fn new(number: usize, vcq: RawVcq) -> Self {
        VcqLane {
            number,
            vcq,
            queue: Mutex::default(),
            expects: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            refused: Mutex::default(),
            users: AtomicUsize::new(0),
        }
    }

    /// Locks its queue. Other threads cannot post meanwhile.
    pub fn queue(&self) -> MutexGuard<'_, FlightQueue> {
        self.queue.lock()
    }

    /// Posts to a target: `post` gets the flags for it. The local notice completes the result of `ends`. Errors: [`Error::NotNow`];
    /// [`Error::PeerDead`]; [`Error::Os`].
    pub fn post(
        &self,
        queue: &mut FlightQueue,
        to: &PeerVcq,
        post: impl FnOnce(&RawVcq, c_ulong) -> Result<()>,
        ends: impl FnOnce() -> PendingWork,
    ) -> Result<()> {
        if to.is_lost() {
            return Err(Error::PeerDead);
        }
        if queue.expects >= NOTICES {
            return Err(Error::NotNow);
        }
        self.try_post(to, |vcq| post(vcq, NOTICED))?;
        if queue.expects == 0 {
            self.expects.store(true, Ordering::Relaxed);
        }
        queue.expects += 1;
        let flow = queue.flow(to);
        flow.posted += 1;
        flow.ends.push_back((ends(), 0));
        Ok(())
    }

    /// As [`post`](VcqLane::post), for a strongly ordered write. Its completion covers all earlier descriptors to this target.
    pub fn post_covering(
        &self,
        queue: &mut FlightQueue,
        to: &PeerVcq,
        post: impl FnOnce(&RawVcq, c_ulong) -> Result<()>,
        ends: impl FnOnce() -> PendingWork,
    ) -> Result<()> {
        self.post(queue, to, post, ends)?;
        let flow = queue.flow(to);
        flow.told = flow.posted;
        if let Some((_, covers)) = flow.ends.back_mut() {
            *covers = flow.posted;
        }
        Ok(())
    }

    /// Posts a strongly ordered write, mostly without a notice, and returns its number. Errors: as [`post`](VcqLane::post).
    #[inline]
    pub fn post_quick(
        &self,
        queue: &mut FlightQueue,
        to: &PeerVcq,
        post: impl FnOnce(&RawVcq, c_ulong) -> Result<()>,
    ) -> Result<u64> {
        let flow = queue.flow(to);
        let number = flow.posted + 1;
        if number - flow.told >= OFTEN {
            self.post_covering(queue, to, post, || PendingWork::Nothing)?;
        } else {
            if to.is_lost() {
                return Err(Error::PeerDead);
            }
            self.try_post(to, |vcq| post(vcq, 0))?;
            flow.posted = number;
        }
        queue.flow(to).unsignaled = number;
        Ok(number)
    }

    /// Whether all unsignaled writes to this target have completed. Requests a notice if none is due.
    pub fn has_settled(&self, to: &PeerVcq) -> bool {
        let last = {
            let mut queue = self.queue.lock();
            queue.known(to.number).map_or(0, |flow| flow.unsignaled)
        };
        self.has_ended(to, last) != Ok(false)
    }

    /// Posts without a local notice. Errors: as [`post`](VcqLane::post).
    pub fn post_untold(
        &self,
        to: &PeerVcq,
        post: impl FnOnce(&RawVcq) -> Result<()>,
    ) -> Result<()> {
        let _queue = self.queue.lock();
        match to.is_lost() {
            true => Err(Error::PeerDead),
            false => self.try_post(to, post),
        }
    }

    /// Posts, and notes a lack of room. No notice reports new room: the caller retries after a poll.
    #[inline]
    fn try_post(&self, to: &PeerVcq, post: impl FnOnce(&RawVcq) -> Result<()>) -> Result<()> {
        post(&self.vcq).inspect_err(|error| self.on_post_failed(to, error))
    }

    /// The peer may wait for a write that failed for good, without a waiter here. So the peer is lost.
    #[cold]
    fn on_post_failed(&self, to: &PeerVcq, error: &Error) {
        if *error != Error::NotNow {
            self.refused.lock().push((to.number, error.clone()));
        }
        self.was_full.store(true, Ordering::Release);
    }

    /// See [`RawVcq::register`].
    ///
    /// # Safety
    /// As for [`RawVcq::register`].
    pub unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        read_only: bool,
        tag: Option<u32>,
    ) -> Result<u64> {
        let _queue = self.queue.lock();
        // SAFETY:
        // - contract of this call, which is the same.
        unsafe { self.vcq.register(base, len, read_only, tag) }
    }

    /// See [`RawVcq::deregister`]. First waits for operations to lost targets, which may still use the memory, and starts a delayed descriptor.
    pub fn deregister(&self, stadd: u64) {
        let soon = Deadline::after(FAREWELL);
        loop {
            let mut queue = self.queue.lock();
            if queue.is_haunted() || !self.vcq.start() {
                queue.collect(&self.vcq);
            }
            if !queue.is_haunted() && self.vcq.start() || soon.expired() {
                self.vcq.deregister(stadd);
                return;
            }
            drop(queue);
            std::thread::yield_now();
        }
    }

    /// Whether a local notice is due.
    pub fn expects(&self) -> bool {
        self.expects.load(Ordering::Relaxed)
    }

    /// Whether a caller waits for room. Polls make room.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// Polls. `target` gives the number of the target with a VCQ.
    pub fn look(&self, findings: &mut Findings, target: impl Fn(utofu_vcq_id_t) -> Option<u32>) {
        let mut queue = self.queue.lock();
        queue.collect(&self.vcq);
        if self.was_full.load(Ordering::Relaxed) && self.was_full.swap(false, Ordering::AcqRel) {
            findings.room = true;
            findings.refused.append(&mut self.refused.lock());
        }
        while let Some(told) = queue.next() {
            match told {
                QueueEvent::Over(ends) => findings.over.extend(ends),
                QueueEvent::Broken(why) => findings.broken = Some(why),
                QueueEvent::Read(data, failed) => {
                    if let Some(number) = is_told(data).filter(|_| failed.is_some()) {
                        queue.fail(number);
                    }
                    findings.read.push((data, failed));
                }
                QueueEvent::Notice(notice, failed) if is_local(&notice) => {
                    let number = target(notice.vcq_id);
                    match (number, failed) {
                        (None, _) => {}
                        (Some(number), None) if !notice.is_awaited(number) => {}
                        (Some(number), None) => {
                            let ends = queue.end(number);
                            let value = notice.rmt_value;
                            findings.ended.extend(ends.map(|ends| (ends, value)));
                        }
                        (Some(number), Some(_)) if notice.is_of_another(number) => {}
                        (Some(number), Some(code)) => {
                            if notice.is_awaited(number) {
                                queue.fail(number);
                            }
                            findings.lost.push((number, code));
                        }
                    }
                }
                QueueEvent::Notice(notice, None) => findings.remote.push(notice),
                QueueEvent::Notice(notice, Some(code)) => {
                    let number = target(notice.vcq_id);
                    findings.lost.extend(number.map(|number| (number, code)));
                }
            }
        }
        if queue.expects == 0 {
            self.expects.store(false, Ordering::Relaxed);
        }
    }

    /// Discards the operations in flight to this target.
    pub fn forget(&self, target: &PeerVcq) -> Vec<PendingWork> {
        self.queue.lock().lose(target)
    }

    /// Whether operations to this target are in flight.
    pub fn is_under_way(&self, target: u32) -> bool {
        let mut queue = self.queue.lock();
        let flow = queue.known(target);
        flow.is_some_and(|flow| !flow.ends.is_empty())
    }
}

/// The lanes of a process. The first one carries the streams and owns the memory that peers access. Channels open the others.
pub(crate) struct Lanes {
    library: &'static UtofuLibrary,
    incarnation: u32,
    tnis: Vec<utofu_tni_id_t>,
    /// Without gaps.
    all: [OnceLock<Arc<VcqLane>>; LANES],
    opening: Mutex<()>,
}

impl Lanes {
    /// Opens the first lane. `nth`: rank of this process, which selects its first TNI. `incarnation`: number of earlier processes of this rank. Errors:
    /// [`Error::Exhausted`], [`Error::Os`].
    pub fn open(
        library: &'static UtofuLibrary,
        mut tnis: Vec<utofu_tni_id_t>,
        (nth, incarnation): (usize, u32),
    ) -> Result<Self> {
        let first = nth % tnis.len();
        tnis.rotate_left(first);
        let mut none = Error::Exhausted("VCQs".into());
        let of = |tni: &utofu_tni_id_t| {
            RawVcq::new(library, *tni, incarnation).map_err(|error| none = error)
        };
        let found = tnis.iter().map(of).find_map(std::result::Result::ok);
        let vcq = found.ok_or(none)?;
        let lanes = Lanes {
            library,
            incarnation,
            tnis,
            all: std::array::from_fn(|_| OnceLock::new()),
            opening: Mutex::default(),
        };
        let _ = lanes.all[0].set(Arc::new(VcqLane::new(0, vcq)));
        Ok(lanes)
    }

    /// The lane with this number.
    pub fn get(&self, number: usize) -> Option<&Arc<VcqLane>> {
        self.all.get(number)?.get()
    }

    /// The first lane.
    pub fn first(&self) -> &Arc<VcqLane> {
        self.get(0).expect("made when this was")
    }

    /// All lanes.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VcqLane>> {
        self.all.iter().map_while(OnceLock::get)
    }

    /// A lane for another channel: an unused one, or else a new one on the next TNI, or else the one with the fewest users.
    pub fn share(&self) -> LaneUse {
        let _opening = self.opening.lock();
        let users = |lane: &&Arc<VcqLane>| lane.users.load(Ordering::Relaxed);
        let idle = |lane: &&Arc<VcqLane>| lane.number > 0 && users(lane) == 0;
        let found = self.iter().find(idle).or_else(|| self.another());
        let lane = found.or_else(|| self.iter().min_by_key(users));
        let lane = lane.unwrap_or_else(|| self.first()).clone();
        lane.users.fetch_add(1, Ordering::Relaxed);
        LaneUse(lane)
    }

    fn another(&self) -> Option<&Arc<VcqLane>> {
        let number = self.iter().count();
        let place = self.all.get(number)?;
        let tnis = (0..self.tnis.len()).map(|nth| self.tnis[(number + nth) % self.tnis.len()]);
        let vcq = tnis
            .into_iter()
            .find_map(|tni| RawVcq::new(self.library, tni, self.incarnation).ok())?;
        let _ = place.set(Arc::new(VcqLane::new(number, vcq)));
        place.get()
    }
}

/// A channel's use of a lane.
pub(crate) struct LaneUse(Arc<VcqLane>);

impl std::ops::Deref for LaneUse {
    type Target = Arc<VcqLane>;

    fn deref(&self) -> &Arc<VcqLane> {
        &self.0
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}
