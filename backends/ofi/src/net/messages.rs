//! Messages: sends, with held-back pieces before them, and receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unipgas_core::streams::Accepted;
use unipgas_core::streams::greeting::padded;
use unipgas_core::{Deadline, Error, Result};

use super::{Held, OfiNet, key};
use crate::address::OfiAddress;
use crate::buffers::MESSAGE;
use crate::conversation::{Conversation, First, Theirs, Whom};
use crate::names::AvEntry;
use crate::operations::{MessageSender, What};
use crate::piggyback::{self, PiggybackGuard, Rides};
use crate::wire::{self, Head, OpenRequest};

/// Maximum number of messages in flight per conversation. A peer that does not receive must not use up the send buffers.
const SENT_TO_ONE: usize = 32;

/// Refusals are not sent while this number of conversations waits for room for a first message.
const REFUSED: usize = 64;
/// Time in which a refusal may wait for room.
const REFUSAL: Duration = Duration::from_secs(5);

impl OfiNet {
    /// Maximum number of stream bytes in a message.
    pub fn body(&self) -> usize {
        MESSAGE.min(self.fabric.traits.longest) - size_of::<Head>()
    }

    /// Sends a message of conversation `of`. Errors: [`Error::NotNow`], and errors of the provider.
    pub fn send(&self, of: &Conversation, head: &Head, body: &[u8]) -> Result<()> {
        let (number, to) = (of.number, &of.with.name);
        let by = (number, &of.under_way, to);
        let head = bytemuck::bytes_of(head);
        let Some(waiting) = to.piggyback.board(self.turn()) else {
            return self.send_parts(by, [head, body, &[]]);
        };
        if waiting.bytes().len() + head.len() + body.len() > self.body() {
            // One message has no room for both: the held-back pieces leave first, in a message of their own.
            self.send_parts(by, [waiting.bytes(), &[], &[]])?;
            waiting.gone();
            return self.send_parts(by, [head, body, &[]]);
        }
        self.send_parts(by, [waiting.bytes(), head, body])?;
        waiting.gone();
        Ok(())
    }

    fn send_parts(
        &self,
        (number, under_way, to): (u32, &Arc<AtomicUsize>, &Arc<AvEntry>),
        parts: [&[u8]; 3],
    ) -> Result<()> {
        if under_way.load(Ordering::Acquire) >= SENT_TO_ONE {
            return Err(Error::NotNow);
        }
        let buffer = self.send.take().ok_or(Error::NotNow)?;
        let at = self.send.at(buffer);
        let sender = MessageSender {
            number,
            under_way: under_way.clone(),
            _to: to.clone(),
        };
        under_way.fetch_add(1, Ordering::AcqRel);
        let context = self.operations.begin(What::Send(buffer, sender));
        let mut len = 0;
        for part in parts {
            debug_assert!(len + part.len() <= MESSAGE);
            // SAFETY:
            // - this call has taken the buffer. The callers pass parts that fit into it.
            unsafe {
                at.wrapping_add(len)
                    .copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            len += part.len();
        }
        // SAFETY:
        // - the provider owns the buffer until the completion.
        let sent = unsafe {
            self.fabric
                .send(at, len, self.send.desc(), to.number, context)
        };
        if sent.is_err() {
            self.operations.end(context);
            self.send.give_back(buffer);
            under_way.fetch_sub(1, Ordering::AcqRel);
        }
        sent
    }

    /// Holds back a piece of a stream until the next message to the same process. False: the piece must leave now.
    pub fn hold(&self, of: &Conversation, head: Head, body: &[u8]) -> bool {
        if self.body() < piggyback::MOST {
            return false;
        }
        let to = &of.with.name;
        let rides = to.piggyback.wait(self.turn(), head, body);
        if rides == Rides::First {
            let mut held = self.held.lock();
            held.push(Held {
                number: of.number,
                under_way: of.under_way.clone(),
                to: to.clone(),
            });
            if !self.holds.swap(true, Ordering::AcqRel) {
                // The progress thread then looks within a beat, even if the program does not.
                self.driver.more_in_time();
            }
        }
        rides != Rides::No
    }

    /// Notes that a piece that was not held back has left.
    pub fn note_sent(&self, of: &Conversation) {
        of.with.name.piggyback.passed(self.turn());
    }

    /// Number of the current round of progress; never 0.
    fn turn(&self) -> u32 {
        self.turns.load(Ordering::Relaxed) | 1
    }

    /// Begins a round of progress. Pieces that were held back long enough leave. `late`: all pieces leave.
    pub(super) fn let_leave(&self, late: bool) {
        // Concurrent calls may count as one.
        let turns = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turns, Ordering::Relaxed);
        if !self.holds.load(Ordering::Acquire) {
            return;
        }
        let turn = self.turn();
        let Some(mut held) = self.held.try_lock() else {
            return;
        };
        held.retain(|one| {
            let Some(waiting) = one.to.piggyback.leave(turn, late) else {
                return one.to.piggyback.any();
            };
            self.leaves(one, waiting) == Err(Error::NotNow)
        });
        if held.is_empty() && self.holds.swap(false, Ordering::AcqRel) {
            self.driver.fewer(1);
        }
    }

    fn leaves(&self, one: &Held, waiting: PiggybackGuard<'_>) -> Result<()> {
        let by = (one.number, &one.under_way, &one.to);
        let sent = self.send_parts(by, [waiting.bytes(), &[], &[]]);
        if sent != Err(Error::NotNow) {
            waiting.gone();
        }
        if let Err(error) = &sent
            && *error != Error::NotNow
        {
            tracing::debug!("ofi: answers cannot be sent: {error}");
            self.lose(one.to.tag);
        }
        sent
    }

    pub(super) fn post(&self, buffer: usize) {
        let context = self.operations.begin(What::Receive(buffer));
        // SAFETY:
        // - the provider owns the buffer until the completion.
        let posted = unsafe {
            self.fabric.receive(
                self.receive.at(buffer),
                MESSAGE,
                self.receive.desc(),
                context,
            )
        };
        if posted.is_err() {
            self.operations.end(context);
            self.mark_unposted(buffer);
        }
    }

    pub(super) fn mark_unposted(&self, buffer: usize) {
        self.unposted.lock().push(buffer);
        self.waits.store(true, Ordering::Release);
    }

    pub(super) fn hear(&self, buffer: usize, len: usize) {
        // SAFETY:
        // - the completion has returned the buffer, with `len` bytes in it.
        let message =
            unsafe { std::slice::from_raw_parts(self.receive.at(buffer), len.min(MESSAGE)) };
        if self.understand(message).is_none() {
            tracing::debug!("ofi: a message that no peer sends is ignored");
        }
    }

    fn understand(&self, message: &[u8]) -> Option<()> {
        let (head, body) = wire::split::<Head>(message)?;
        if head.kind == wire::OPEN {
            return self.greet(body);
        }
        let one = {
            let conversations = self.conversations.read();
            conversations.get(head.conversation as usize)?.clone()
        };
        if one.cookie != head.cookie {
            return None;
        }
        one.state.hear();
        let mut next = &[][..];
        match head.kind {
            wire::ACCEPT => {
                let (accepted, _) = wire::split::<wire::Acceptance>(body)?;
                one.accept(Theirs {
                    conversation: accepted.conversation,
                    cookie: accepted.cookie,
                });
            }
            wire::BYTES => one.take(body),
            wire::ALONG => {
                let (piece, rest) = wire::ride(body)?;
                one.take(piece);
                next = rest;
            }
            wire::CLOSE => _ = one.state.end(),
            wire::ASK => return one.answer(self),
            wire::HERE => return Some(()),
            wire::REFUSE if one.is_begun_here() => one.on_refused(),
            _ => return None,
        }
        self.owner.on_stream(one.is_begun_here());
        match next.is_empty() {
            true => Some(()),
            false => self.understand(next),
        }
    }

    /// Sends a refusal to a peer with a wrong secret, unless too many first messages wait.
    fn refuse(&self, with: Whom, theirs: Theirs) -> Option<()> {
        if self.mute.lock().len() >= REFUSED {
            return None;
        }
        tracing::warn!("ofi: a process that does not know this one's secret is refused");
        let until = Deadline::after(REFUSAL);
        let nobody = (u32::MAX, key().ok()?);
        let me = self.me.clone();
        let new = Conversation::new(me, nobody, with, First::Refuse(until), Some(theirs));
        self.introduce(Arc::new(new));
        Some(())
    }

    /// Handles a request to begin a conversation.
    fn greet(&self, body: &[u8]) -> Option<()> {
        let (opening, _) = wire::split::<OpenRequest>(body)?;
        let address = opening.address.get(..opening.len as usize)?;
        let from = OfiAddress::decode(address)?;
        let with = Whom::of(self, &from).ok()?;
        let theirs = Theirs {
            conversation: opening.conversation,
            cookie: opening.cookie,
        };
        if opening.secret != self.secret {
            return self.refuse(with, theirs);
        }
        let new = self.begin(with, First::Accept, Some(theirs)).ok()?;
        self.introduce(new.clone());
        self.owner.on_accepted(Accepted {
            stream: new,
            known: Some(padded(address)),
        });
        Some(())
    }
}
