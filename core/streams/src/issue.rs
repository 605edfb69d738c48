//! The issue of operations. Most become requests, and end with the answers.

use std::ops::Deref;
use std::sync::Arc;

use super::completion::{Completions, Kind};
use super::landing::Landing;
use super::link::{Current, Ends, Link, Waiting};
use super::network::After;
use super::own::{NetworkOp, Ticket};
use super::postponed::{PostponedOp, Queue, WaitingLink, What};
use super::registration::{imported, link_of};
use super::stream_node::StreamNode;
use unipgas_base::{Error, Result};
use unipgas_engine::agent::{RegisteredPlace, Request};
use unipgas_engine::op::{Flags, Local, Outcome};
use unipgas_engine::region::RemoteRegion;

/// Maximum of gathered operations of a channel to a peer before it asks for their completion.
const GATHERED: usize = 64;

/// A channel that turns operations into requests. A stream keeps its order, so all operations are ordered at the target, unless a test changes the order
/// ([`Faults::order`](super::Faults::order)). An operation that is ordered after a read waits here for its data. Later operations to that peer wait behind it.
pub struct Requests(Arc<Issue>);

/// State of a channel, shared with the agent.
pub struct Issue {
    pub(super) node: Arc<StreamNode>,
    /// The channel's number at targets.
    id: u32,
    completions: Arc<Completions>,
    late: Queue,
    /// Number of gathered operations at which the channel asks for their completion.
    pub(super) most_gathered: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Put {
    pub src: Local,
    pub len: usize,
    pub to: RegisteredPlace,
    pub notice: Option<(RegisteredPlace, u32)>,
    pub flags: Flags,
}

// SAFETY:
// - contract of `Channel::put`: `src` is valid on each thread until completion.
unsafe impl Send for Put {}

impl Put {
    pub(crate) fn request(&self) -> Request<'_> {
        Request::Put {
            to: self.to,
            // SAFETY:
            // - contract of `Channel::put`: `src` is valid until completion.
            bytes: unsafe { bytes(self.src.ptr, self.len) },
            flags: self.flags,
            notice: self.notice,
        }
    }
}

impl Requests {
    /// A channel with at most `depth` pending operations to a peer.
    pub fn new(node: &Arc<StreamNode>, depth: usize) -> Self {
        let issue = Arc::new(Issue {
            node: node.clone(),
            id: node.next_channel(),
            completions: Arc::new(Completions::new(depth)),
            late: Queue::new(node.channels_with_late()),
            most_gathered: (depth / 4).clamp(1, GATHERED) as u32,
        });
        node.serve_late(&issue);
        Requests(issue)
    }
}

impl Deref for Requests {
    type Target = Issue;

    fn deref(&self) -> &Issue {
        &self.0
    }
}

/// An operation that leaves now or later.
trait Posting {
    /// Sends it.
    fn leave(&mut self, issue: &Issue, link: &Arc<Link>, peer: u32, context: u64) -> Result<()>;
    /// Makes it independent of the call.
    fn keep(self) -> Result<What>;
}

/// A request with bytes that are only valid in the call.
struct Asking<'a> {
    request: &'a Request<'a>,
    flags: Flags,
    landing: Option<Landing>,
}

impl Posting for Asking<'_> {
    fn leave(&mut self, issue: &Issue, link: &Arc<Link>, peer: u32, context: u64) -> Result<()> {
        let encode = |into: &mut Vec<u8>| self.request.encode(into);
        issue.ask(link, peer, encode, self.landing.take(), self.flags, context)
    }

    fn keep(self) -> Result<What> {
        let mut frame = Vec::new();
        self.request.encode(&mut frame)?;
        Ok(What::Frame(frame, self.flags, self.landing))
    }
}

impl Posting for Put {
    fn leave(&mut self, issue: &Issue, link: &Arc<Link>, peer: u32, context: u64) -> Result<()> {
        let encode = |into: &mut Vec<u8>| self.request().encode(into);
        issue.ask(link, peer, encode, None, self.flags, context)
    }

    fn keep(self) -> Result<What> {
        Ok(What::Put(self))
    }
}

struct Posted<'a, O> {
    own: O,
    reads: bool,
    current: &'a Current,
}

impl<O: NetworkOp + 'static> Posting for Posted<'_, O> {
    fn leave(&mut self, issue: &Issue, link: &Arc<Link>, peer: u32, context: u64) -> Result<()> {
        issue.hand_over(
            link,
            peer,
            &mut self.own,
            (self.reads, self.current),
            context,
        )
    }

    fn keep(self) -> Result<What> {
        Ok(What::Own(
            Box::new(self.own),
            self.reads,
            self.current.clone(),
        ))
    }
}

impl Issue {
    /// The channel's completions.
    pub(crate) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// Posts an operation of the network's own to the owner of `region`. The caller has checked the region. The operation leaves at once, without an
    /// allocation, unless it has to wait. It waits for earlier operations of this channel to that peer (`after`), behind operations that wait, and for room.
    /// `reads`: it writes to the caller's memory. Errors: as [`NetworkOp::post`]; [`Error::PeerDead`]; [`Error::StaleRegion`], also after a wait; [`Error::NotNow`]
    /// beyond the channel's depth.
    pub fn post_own<O: NetworkOp + 'static>(
        &self,
        region: &RemoteRegion,
        own: O,
        reads: bool,
        after: After,
        context: u64,
    ) -> Result<Outcome> {
        let current = &imported(region).ok_or(Error::PeerDead)?.current;
        let posted = Posted {
            own,
            reads,
            current,
        };
        self.post_or_keep(region, after, posted, context)
    }

    pub(super) fn post(
        &self,
        region: &RemoteRegion,
        request: &Request<'_>,
        landing: Option<Landing>,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        let asking = Asking {
            request,
            flags,
            landing,
        };
        self.post_or_keep(region, self.waits_for(flags), asking, context)
    }

    pub(super) fn post_put(
        &self,
        region: &RemoteRegion,
        put: Put,
        context: u64,
    ) -> Result<Outcome> {
        match put.flags.contains(Flags::INLINE) {
            true => self.post(region, &put.request(), None, put.flags, context),
            false => self.post_or_keep(region, self.waits_for(put.flags), put, context),
        }
    }

    /// The condition on earlier operations for a request with these flags.
    fn waits_for(&self, flags: Flags) -> After {
        match flags.contains(Flags::ORDERED) {
            true => self.node.requests_wait_for(),
            false => After::empty(),
        }
    }

    fn post_or_keep(
        &self,
        region: &RemoteRegion,
        after: After,
        mut posting: impl Posting,
        context: u64,
    ) -> Result<Outcome> {
        let link = link_of(region).ok_or(Error::PeerDead)?;
        let peer = region.parts().peer;
        let held_up = || self.is_held_up(link, peer, after);
        self.completions.begin(peer)?;
        let left = match self.late.is_empty() && !held_up() {
            true => Some(posting.leave(self, link, peer, context)),
            false => None,
        };
        let posted = match left {
            Some(Err(Error::NotNow)) => {
                self.keep_or_post(link, peer, after, posting, true, context)
            }
            None => self.keep_or_post(link, peer, after, posting, false, context),
            Some(left) => left,
        };
        match posted {
            Ok(()) => Ok(Outcome::Pending),
            Err(error) => {
                // A refused operation is not pending.
                self.completions.take_back(peer);
                Err(error)
            }
        }
    }

    /// `full`: the network has no room now.
    #[cold]
    fn keep_or_post(
        &self,
        link: &Arc<Link>,
        peer: u32,
        after: After,
        posting: impl Posting,
        full: bool,
        context: u64,
    ) -> Result<()> {
        let mut posting = Some(posting);
        for full in [full, true] {
            let waits = || full || self.is_held_up(link, peer, after);
            let kept = self.late.keep(peer, waits, || {
                let what = posting.take().map(Posting::keep);
                Ok(PostponedOp {
                    link: WaitingLink::new(link),
                    what: what.unwrap_or(Err(Error::Unsupported))?,
                    after,
                    context,
                })
            })?;
            match (kept, &mut posting) {
                (true, _) => {
                    // The peer may have to make room, and may be dead.
                    if link.stream().watch() {
                        self.node.watch_silence();
                    }
                    return Ok(());
                }
                (false, Some(posting)) => match posting.leave(self, link, peer, context) {
                    Err(Error::NotNow) => {}
                    left => return left,
                },
                (false, None) => return Ok(()),
            }
        }
        Err(Error::NotNow)
    }

    /// Whether an operation that the network executes itself has to wait: for earlier operations of this channel to that peer (`after`), or behind operations
    /// that wait here.
    pub fn is_behind(&self, region: &RemoteRegion, after: After) -> bool {
        self.has_late() || self.completions.hold_up(region.parts().peer, after)
    }

    /// Takes answers, for a thread that waits.
    pub fn look(&self) {
        self.node.take_answers();
    }

    /// Makes progress, for a thread that finds no room.
    pub fn make_room(&self) {
        self.node.take_answers_of_many();
    }

    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    pub(super) fn is_held_up(&self, link: &Link, peer: u32, after: After) -> bool {
        !after.is_empty() && (self.completions.hold_up(peer, after) || link.holds_up(after))
    }

    /// Sends late operations that no longer have to wait.
    pub(super) fn send_late(&self) {
        let held_up = |peer, late: &PostponedOp| self.is_held_up(&late.link, peer, late.after);
        self.late.send(|peer, late| self.send(peer, late), held_up);
    }

    /// Errors: the network has no room now.
    fn send(&self, peer: u32, late: PostponedOp) -> std::result::Result<(), PostponedOp> {
        let PostponedOp {
            link,
            what,
            after,
            context,
        } = late;
        let sent = match what {
            What::Frame(frame, flags, landing) => {
                let encode = |into: &mut Vec<u8>| {
                    into.extend_from_slice(&frame);
                    Ok(())
                };
                self.ask(&link, peer, encode, landing, flags, context)
            }
            What::Put(mut put) => self
                .check_source(put.src, put.len, put.flags)
                .and_then(|()| put.leave(self, &link, peer, context)),
            What::Own(mut own, reads, current) => {
                match self.hand_over(&link, peer, &mut *own, (reads, &current), context) {
                    Err(Error::NotNow) => {
                        let what = What::Own(own, reads, current);
                        return Err(PostponedOp {
                            link,
                            what,
                            after,
                            context,
                        });
                    }
                    other => other,
                }
            }
        };
        if let Err(error) = sent {
            self.completions.end(peer, context, Err(error));
        }
        Ok(())
    }

    fn hand_over(
        &self,
        link: &Arc<Link>,
        peer: u32,
        own: &mut (impl NetworkOp + ?Sized),
        (reads, current): (bool, &Current),
        context: u64,
    ) -> Result<()> {
        self.node.count(link);
        let kind = Kind { own: true, reads };
        self.completions.leaves(peer, kind);
        let waiting = self.waiting(peer, context, kind, None);
        let number = link
            .begin_own(waiting, current)
            .inspect_err(|_| self.completions.mark_done(peer, kind))?;
        let ticket = Ticket {
            link: link.clone(),
            number,
        };
        match own.post(ticket) {
            // An operation that has ended meanwhile is reported.
            Err(error) if link.forget_own(number) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends the request of an operation that is already counted as pending.
    fn ask(
        &self,
        link: &Link,
        peer: u32,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        landing: Option<Landing>,
        flags: Flags,
        context: u64,
    ) -> Result<()> {
        self.node.count(link);
        let reads = landing.as_ref().is_some_and(Landing::reads);
        let kind = Kind { own: false, reads };
        self.completions.leaves(peer, kind);
        let waiting = self.waiting(peer, context, kind, landing);
        let ordered = flags.contains(Flags::ORDERED);
        let asked = self.node.ask(link, (self.id, ordered), encode, waiting);
        asked.inspect_err(|_| self.completions.mark_done(peer, kind))
    }

    #[inline(always)]
    fn waiting(&self, peer: u32, context: u64, kind: Kind, landing: Option<Landing>) -> Waiting {
        Waiting {
            completions: self.completions.clone(),
            peer,
            context,
            kind,
            landing,
            ends: Ends::One,
        }
    }

    pub(super) fn check_source(&self, src: Local, len: usize, flags: Flags) -> Result<()> {
        match flags.contains(Flags::INLINE) {
            true => Ok(()),
            false => self.node.check_local(src, len),
        }
    }

    /// Whether the network supports this length with these flags. Errors: [`Error::Unsupported`].
    pub(super) fn check_limits(&self, len: usize, flags: Flags) -> Result<()> {
        let limits = self.node.limits();
        let inline = flags.contains(Flags::INLINE) && len > limits.inline;
        let lines = flags.contains(Flags::LINES) && !limits.lines;
        match inline || lines || len > limits.largest {
            true => Err(Error::Unsupported),
            false => Ok(()),
        }
    }
}

/// # Safety
/// `len` is 0, or `len` bytes at `ptr` are valid and unchanged for `'a`.
pub(super) unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY:
    // - contract of this call: `len` bytes are valid and unchanged for `'a`.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}
