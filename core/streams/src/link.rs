//! The stream to a peer, and the operations there that have not ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use bytemuck::Zeroable;
use parking_lot::Mutex;

use super::completion::{Completions, Kind};
use super::envelope::{self, Answered, RequestHeader};
use super::landing::Landing;
use super::network::{After, Stream};
use super::numbered::Numbered;
use super::outgoing::Outgoing;
use super::registration::Question;
use super::stream_node::StreamNode;
use unipgas_base::{Error, Result, process};
use unipgas_engine::agent::{Answer, RegisteredPlace, Request, wire};
use unipgas_engine::transport::Life;

/// An operation that has not ended.
pub(super) struct Waiting {
    pub completions: Arc<Completions>,
    pub peer: u32,
    pub context: u64,
    pub kind: Kind,
    /// Destination of the answer's bytes, if a request has some.
    pub landing: Option<Landing>,
    pub ends: Ends,
}

/// The operations that end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// This operation.
    One,
    /// This number of operations, which were gathered before it.
    Gathered(u32),
    /// The gathered operations, for which no completion has been requested.
    Gathering,
}

impl Waiting {
    fn end(self, result: Result<()>) {
        let count = match self.ends {
            Ends::One => None,
            Ends::Gathered(count) => Some(count),
            Ends::Gathering => {
                let mut gathered = self.completions.gathered(self.peer);
                Some(std::mem::take(&mut *gathered).count)
            }
        };
        if let Some(count) = count {
            return (self.completions).end_gathered(self.peer, count, self.context, result);
        }
        self.completions.mark_done(self.peer, self.kind);
        self.completions.end(self.peer, self.context, result);
    }
}

#[derive(Default)]
struct Asked {
    outgoing: Outgoing,
    waiting: Numbered<Waiting>,
}

/// Whether a region of the peer is still registered there. 0: no.
pub(super) type Current = Arc<AtomicU32>;

/// The stream to a peer.
pub struct Link {
    stream: Arc<dyn Stream>,
    address: Box<[u8]>,
    process: u32,
    /// The stream has no greeting: the peer is reached when the stream is open.
    no_greeting: bool,
    asked: Mutex<Asked>,
    /// The stream has not taken all bytes.
    unsent: AtomicBool,
    /// Operations of the network's own.
    own: Mutex<Numbered<Waiting>>,
    imported: Mutex<HashMap<RegisteredPlace, Current>>,
    /// Imports that have timed out. Their answers may come later.
    questions: Mutex<HashMap<RegisteredPlace, Question>>,
    /// Regions that the peer has released, and the network's own operations that may still use them.
    released: Mutex<Vec<(RegisteredPlace, Vec<u64>)>>,
    /// The peer has been reached: bytes have left, or a stream without a greeting is open.
    reached: AtomicBool,
    gone: AtomicBool,
    /// Another source has reported the peer's death.
    dead: AtomicBool,
    left: AtomicBool,
    /// Number of operations to this peer that wait.
    pub(super) late: AtomicUsize,
}

impl Link {
    /// `greeting` precedes all other bytes. It may be empty.
    pub(super) fn new(stream: Arc<dyn Stream>, address: &[u8], greeting: &[u8]) -> Self {
        let mut asked = Asked::default();
        asked.outgoing.bytes().extend_from_slice(greeting);
        Link {
            stream,
            address: address.into(),
            process: process::id(),
            no_greeting: greeting.is_empty(),
            asked: Mutex::new(asked),
            unsent: AtomicBool::new(!greeting.is_empty()),
            own: Mutex::default(),
            imported: Mutex::default(),
            questions: Mutex::default(),
            released: Mutex::default(),
            reached: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            left: AtomicBool::new(false),
            late: AtomicUsize::new(0),
        }
    }

    /// The network's stream.
    pub fn stream(&self) -> &Arc<dyn Stream> {
        &self.stream
    }

    /// The peer's address.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Whether the peer has been reached.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    /// Whether the stream has ended, or the peer was never reached.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the peer gets no more requests.
    fn is_dead(&self) -> bool {
        self.is_gone() || self.dead.load(Ordering::Acquire)
    }

    /// Whether the stream has not taken all bytes.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::SeqCst)
    }

    /// Whether this stream holds up an operation with this `after`.
    pub(super) fn holds_up(&self, after: After) -> bool {
        after.contains(After::SENT) && self.has_unsent()
    }

    /// The validity word of a region that the caller imports next. It exists before the answer, so no release is missed.
    pub(super) fn watch(&self, place: RegisteredPlace) -> Current {
        let mut imported = self.imported.lock();
        let current = imported
            .entry(place)
            .or_insert_with(|| Arc::new(AtomicU32::new(1)));
        if self.is_gone() {
            current.store(0, Ordering::Release);
        }
        current.clone()
    }

    /// The import of this region that timed out before, if any.
    pub(super) fn take_question(&self, place: RegisteredPlace) -> Option<Question> {
        self.questions.lock().remove(&place)
    }

    /// Keeps an import that timed out, for the next try.
    pub(super) fn keep_question(&self, place: RegisteredPlace, question: Question) {
        self.questions.lock().insert(place, question);
    }

    /// The peer has refused the region: it is not registered any more. Earlier imports become invalid too.
    pub(super) fn refused(&self, place: RegisteredPlace) {
        if let Some(current) = self.imported.lock().remove(&place) {
            current.store(0, Ordering::Release);
        }
    }

    /// Removes the validity word after an error, unless earlier imports use it.
    pub(super) fn unwatch(&self, place: RegisteredPlace, current: Current) {
        let mut imported = self.imported.lock();
        let shared = Arc::strong_count(&current) > 2;
        if !shared {
            imported.remove(&place);
        }
    }

    /// The known state of the peer.
    pub(crate) fn life(&self) -> Life {
        match (self.left.load(Ordering::Acquire), self.is_dead()) {
            (true, _) => Life::Left,
            (false, true) => Life::Dead,
            (false, false) => Life::Alive,
        }
    }

    /// Sends the request that `encode` appends. `channel`: the operation's channel. `ordered`: its order there. True: the agent has to send the rest. Errors:
    /// as `encode`; [`Error::PeerDead`], also in the child of a fork.
    pub(super) fn ask(
        &self,
        (channel, ordered): (u32, bool),
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        waiting: Waiting,
    ) -> Result<bool> {
        if self.process != process::id() {
            return Err(Error::PeerDead);
        }
        let mut asked = self.asked.lock();
        if self.is_dead() {
            return Err(Error::PeerDead);
        }
        let Asked {
            outgoing,
            waiting: all,
        } = &mut *asked;
        let was_empty = outgoing.is_empty();
        let number = all.insert(waiting);
        let head = RequestHeader {
            number,
            channel,
            ordered: ordered.into(),
        };
        if let Err(error) = envelope::frame(outgoing.bytes(), head, encode) {
            all.remove(number);
            return Err(error);
        }
        if !was_empty {
            // The agent sends it after the bytes before it.
            return Ok(false);
        }
        // The agent handles the end of the stream. It sees the end too.
        self.push_out(outgoing);
        Ok(!outgoing.is_empty())
    }

    fn push_out(&self, outgoing: &mut Outgoing) {
        let _ = outgoing.push(&*self.stream);
        self.unsent.store(!outgoing.is_empty(), Ordering::SeqCst);
    }

    /// Sends the bytes that there is room for. True: the agent has to send the rest.
    pub(super) fn push(&self) -> bool {
        let sent = self.has_unsent() && {
            let outgoing = &mut self.asked.lock().outgoing;
            let before = outgoing.left();
            self.push_out(outgoing);
            outgoing.left() < before
        };
        if !self.is_reached() && (sent || self.no_greeting && self.stream.is_open()) {
            self.reached.store(true, Ordering::Release);
        }
        self.has_unsent()
    }

    /// Whether operations have not ended. Gathered ones count once their completion is requested.
    pub(super) fn has_waiting(&self) -> bool {
        let asked_for = |waiting: &Waiting| waiting.ends != Ends::Gathering;
        self.late.load(Ordering::Relaxed) > 0
            || !self.asked.lock().waiting.is_empty()
            || self.own.lock().any(asked_for)
    }

    /// Whether operations may begin. Errors: [`Error::PeerDead`], also in the child of a fork.
    pub(super) fn check(&self) -> Result<()> {
        match self.process != process::id() || self.is_dead() {
            true => Err(Error::PeerDead),
            false => Ok(()),
        }
    }

    /// Begins an operation of the network's own on a region, and returns its number. Errors: [`Error::PeerDead`]; [`Error::StaleRegion`].
    pub(super) fn begin_own(&self, waiting: Waiting, current: &AtomicU32) -> Result<u64> {
        if self.process != process::id() {
            return Err(Error::PeerDead);
        }
        let mut own = self.own.lock();
        if self.is_dead() {
            return Err(Error::PeerDead);
        }
        // The thread that clears the word lists the operations in progress afterwards, under this lock. So this check or that list sees the other thread.
        if current.load(Ordering::Acquire) == 0 {
            return Err(Error::StaleRegion);
        }
        Ok(own.insert(waiting))
    }

    /// Removes an operation that was not posted. False: it has ended.
    pub(super) fn forget_own(&self, number: u64) -> bool {
        let waiting = self.own.lock().remove(number);
        if let Some(waiting) = &waiting
            && waiting.ends == Ends::One
        {
            waiting.completions.mark_done(waiting.peer, waiting.kind);
        }
        waiting.is_some()
    }

    /// Sets the operations that end with this one. False: it has ended.
    pub(super) fn ends_with(&self, number: u64, ends: Ends) -> bool {
        let mut own = self.own.lock();
        let waiting = own.get_mut(number);
        waiting.map(|waiting| waiting.ends = ends).is_some()
    }

    /// Ends an operation. False: it had ended before.
    pub(super) fn end_own(&self, number: u64, result: Result<()>) -> bool {
        let waiting = self.own.lock().remove(number);
        waiting.map(|waiting| waiting.end(result)).is_some()
    }

    /// See [`Ticket::end_with`](super::Ticket::end_with).
    pub(super) fn end_own_with(&self, number: u64, land: impl FnOnce()) -> bool {
        let waiting = self.own.lock().remove(number);
        let Some(waiting) = waiting else {
            return false;
        };
        land();
        waiting.end(Ok(()));
        true
    }

    /// For the agent: takes the complete answers off `bytes`. True: there was one. Errors: the bytes are malformed.
    pub(super) fn take(
        &self,
        bytes: &mut Vec<u8>,
        node: &StreamNode,
    ) -> Result<bool, wire::Malformed> {
        let (mut at, mut news) = (0, false);
        while let Some((number, message, len)) = envelope::first::<Answered>(&bytes[at..])? {
            self.answered(number, message, node)?;
            news = true;
            at += len;
        }
        bytes.drain(..at);
        Ok(news)
    }

    fn answered(
        &self,
        number: Answered,
        message: &[u8],
        node: &StreamNode,
    ) -> Result<(), wire::Malformed> {
        let (answer, bytes) = Answer::decode(message)?;
        match answer {
            Answer::Leaving => {
                self.left.store(true, Ordering::Release);
                return Ok(());
            }
            Answer::Released(place) => {
                // An operation that begins later finds the region stale.
                self.refused(place);
                let under_way = self.under_way();
                self.released.lock().push((place, under_way));
                self.forget(node);
                return Ok(());
            }
            Answer::Done(_) | Answer::Failed(_) => {}
        }
        let waiting = self.asked.lock().waiting.remove(number);
        let mut waiting = waiting.ok_or(wire::Malformed)?;
        let result = match (answer, waiting.landing.take()) {
            (Answer::Failed(failure), _) => Ok(Err(Error::from(failure))),
            (_, None) if bytes.is_empty() => Ok(Ok(())),
            (_, None) => Err(wire::Malformed),
            (_, Some(landing)) => landing.land(bytes, node),
        };
        match result {
            Ok(result) => {
                waiting.end(result);
                Ok(())
            }
            Err(malformed) => {
                waiting.end(Err(Error::PeerDead));
                Err(malformed)
            }
        }
    }

    /// The network's own operations that may use memory that the peer has released. Gathered operations have left when this returns. The network orders them
    /// before later bytes of the stream.
    fn under_way(&self) -> Vec<u64> {
        let mut gathering = Vec::new();
        let mut own = self.own.lock();
        let mut numbers = own.numbers();
        numbers.retain(|number| match own.get_mut(*number) {
            Some(waiting) if waiting.ends == Ends::Gathering => {
                gathering.push((waiting.completions.clone(), waiting.peer));
                false
            }
            _ => true,
        });
        drop(own);
        for (completions, peer) in gathering {
            drop(completions.gathered(peer));
        }
        numbers
    }

    /// For the agent: reports to the peer each released region that this process no longer uses.
    pub(super) fn forget(&self, node: &StreamNode) {
        let mut released = self.released.lock();
        if !released.is_empty() && !node.network().has_settled(self) {
            return node.forget_later();
        }
        released.retain_mut(|(place, under_way)| {
            let own = self.own.lock();
            under_way.retain(|number| own.has(*number));
            drop(own);
            if !under_way.is_empty() {
                return true;
            }
            let forgotten = Request::Forgotten { place: *place };
            let outgoing = &mut self.asked.lock().outgoing;
            let _ = envelope::frame(outgoing.bytes(), RequestHeader::zeroed(), |into| {
                forgotten.encode(into)
            });
            self.push_out(outgoing);
            node.watch_silence();
            false
        });
        if !released.is_empty() {
            node.forget_later();
        }
    }

    /// Ends the stream. The agent notices the end.
    pub(super) fn cut(&self) {
        self.stream.end();
    }

    /// Another source has reported the peer's death. The peer gets no more requests. The agent notices the end of the stream.
    pub(super) fn declare_dead(&self) {
        self.dead.store(true, Ordering::Release);
        self.stream.declare_dead();
    }

    /// For the agent: ends the stream and all operations.
    pub(super) fn close(&self) {
        // Imported regions keep the stream alive, so it is ended here.
        self.stream.end();
        self.released.lock().clear();
        let mut asked = self.asked.lock();
        self.gone.store(true, Ordering::Release);
        for current in self.imported.lock().values() {
            current.store(0, Ordering::Release);
        }
        asked.outgoing = Outgoing::default();
        self.unsent.store(false, Ordering::SeqCst);
        let waiting = asked.waiting.remove_all();
        let own = self.own.lock().remove_all();
        for waiting in waiting.into_iter().chain(own) {
            waiting.end(Err(Error::PeerDead));
        }
    }
}
