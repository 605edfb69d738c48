//! Requests to agents by callers with a timeout. A stopped process executes no request, so the request may end after the call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_core::driver::give_way;
use unipgas_core::op::{Completion, Outcome, Remote, ReplyBuffer};
use unipgas_core::transport::{Life, Peer};
use unipgas_core::{Error, Result};

use super::{
    GIVEN_UP, Place, Value, answer, check_handled, claim, place, post, serve, store, take_reply,
};
use crate::control::{Control, DONE, MESSAGE, POSTED, REQUESTS};
use crate::peer::{PeerProcess, ShmPeer};
use crate::registration::RegistrationState;

/// The caller first polls for this time; most requests end within it.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Polls between two liveness checks of a peer.
const OFTEN: u32 = 64;

/// The action of a request.
enum What {
    Message(Box<[u8]>, ReplyBuffer),
    /// An atomic operation on one element. `result`: the buffer for the previous value, or null.
    Change {
        operand: Value,
        compare: Value,
        result: *mut u8,
        size: usize,
    },
}

// SAFETY:
// - the pointers are valid on any thread until the operation is complete, by the contract of the operation.
unsafe impl Send for What {}

struct Asked {
    peer: Arc<PeerProcess>,
    place: Place,
    code: u64,
    what: What,
    context: u64,
    /// Index of the request at the peer, once it is posted.
    nth: Option<usize>,
}

/// The requests of one channel, in the order of their calls.
#[derive(Default)]
pub(crate) struct Late {
    asked: Mutex<VecDeque<Asked>>,
    count: AtomicUsize,
    polls: Mutex<u32>,
}

impl Late {
    /// Sends `message` to the handler by `peer`'s agent. The completion may be reported later. Errors: as for [`send`](super::send).
    pub fn send(
        &self,
        home: &RegistrationState,
        peer: &Arc<PeerProcess>,
        to: Remote<'_>,
        (message, reply): (&[u8], ReplyBuffer),
        context: u64,
    ) -> Result<Outcome> {
        check_handled(peer, to)?;
        self.ask(
            home,
            Asked {
                peer: peer.clone(),
                place: place(to, 0),
                code: MESSAGE | message.len() as u64,
                what: What::Message(message.into(), reply),
                context,
                nth: None,
            },
        )
    }

    /// Changes one element of `size` bytes by `peer`'s agent. Errors: as for [`perform`](super::perform).
    ///
    /// # Safety
    /// `result` is null, or valid for writes of `size` bytes until the operation is complete.
    pub unsafe fn change(
        &self,
        home: &RegistrationState,
        peer: &Arc<PeerProcess>,
        dst: Remote<'_>,
        (code, operand, compare): (u64, Value, Value),
        (result, size): (*mut u8, usize),
        context: u64,
    ) -> Result<Outcome> {
        self.ask(
            home,
            Asked {
                peer: peer.clone(),
                place: place(dst, 0),
                code,
                what: What::Change {
                    operand,
                    compare,
                    result,
                    size,
                },
                context,
                nth: None,
            },
        )
    }

    fn ask(&self, home: &RegistrationState, mut new: Asked) -> Result<Outcome> {
        let mut asked = self.asked.lock();
        let is_first = !asked.iter().any(|known| known.is_to(&new.peer));
        if is_first && new.post() {
            let began = Instant::now();
            while began.elapsed() < AT_ONCE {
                if let Some(result) = new.result() {
                    return result.map(|()| Outcome::Complete);
                }
                serve(home);
                give_way();
            }
        }
        asked.push_back(new);
        self.count.store(asked.len(), Ordering::Release);
        Ok(Outcome::Pending)
    }

    /// Number of open requests.
    pub fn pending(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Reports the ended requests.
    pub fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        if self.pending() == 0 {
            return;
        }
        let looks = {
            let mut polls = self.polls.lock();
            *polls = polls.wrapping_add(1);
            polls.is_multiple_of(OFTEN)
        };
        let mut ended = Vec::new();
        let mut asked = self.asked.lock();
        let mut at = 0;
        while at < asked.len() {
            let is_first = !asked.range(..at).any(|known| known.is_to(&asked[at].peer));
            let one = &mut asked[at];
            if one.nth.is_none() && is_first {
                one.post();
            }
            let gone = looks && one.is_gone();
            let lost = gone.then_some(Err(Error::PeerDead));
            match one.result().or(lost) {
                Some(result) => {
                    let context = one.context;
                    ended.push(Completion { context, result });
                    asked.remove(at);
                }
                None => at += 1,
            }
        }
        drop(asked);
        if !ended.is_empty() {
            ended.into_iter().for_each(&mut *sink);
            // After the reports: a caller that reads 0 has received all completions.
            self.count.store(self.asked.lock().len(), Ordering::Release);
        }
    }
}

impl Asked {
    fn control(&self) -> &Control {
        self.peer.control()
    }

    fn is_to(&self, peer: &Arc<PeerProcess>) -> bool {
        Arc::ptr_eq(&self.peer, peer)
    }

    fn is_gone(&self) -> bool {
        let process = self.peer.clone();
        ShmPeer { process }.life() != Life::Alive
    }

    /// Posts the request. False: the peer has no room for it now.
    fn post(&mut self) -> bool {
        let control = self.peer.control();
        self.nth = (0..REQUESTS).find_map(|turn| claim(control, turn));
        let Some(nth) = self.nth else {
            return false;
        };
        post(
            control,
            nth,
            self.place,
            self.code,
            |request, words| match &self.what {
                What::Message(bytes, _) => words.write(bytes),
                What::Change {
                    operand, compare, ..
                } => {
                    store(&request.operand, *operand);
                    store(&request.compare, *compare);
                }
            },
        );
        true
    }

    /// The result; `None` if the peer has not executed the request yet.
    fn result(&mut self) -> Option<Result<()>> {
        let nth = self.nth?;
        let control = self.peer.control();
        if control.requests[nth].state.load(Ordering::Acquire) != DONE {
            return None;
        }
        self.nth = None;
        Some(answer(control, nth, |value, words| match &self.what {
            What::Message(_, reply) => take_reply(*reply, value[0], words),
            What::Change { result, size, .. } if !result.is_null() => {
                // SAFETY:
                // - contract of `change`: `result` is valid for `size` bytes until the operation is complete; a value has at least `size` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(value.as_ptr().cast(), *result, *size);
                }
            }
            What::Change { .. } => {}
        }))
    }
}

impl Drop for Asked {
    /// Frees the request. The peer frees a request that it executes at the moment.
    fn drop(&mut self) {
        let Some(nth) = self.nth else {
            return;
        };
        let request = &self.control().requests[nth];
        request.requester.store(GIVEN_UP, Ordering::Relaxed);
        for state in [POSTED, DONE] {
            let (set, found) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = request.state.compare_exchange(state, 0, set, found);
        }
    }
}
