//! The begin of streams, here and at peers: greetings and their answers.

use std::sync::Arc;

use unipgas_core::streams::{Accepted, Stream};
use unipgas_core::{Error, Result};

use super::targets::data_of;
use super::{NOTICE, PeerVcq, TofuNet};
use crate::conversation::TofuStream;
use crate::edata::NoticeType;
use crate::greeting::{Fetched, Greeted, GreetingReply, Stranger, places};
use crate::lanes::PendingWork;
use crate::vcq::RawVcq;

/// Work of a greeting that found no room.
pub(super) enum Mute {
    /// Greet the peer of the stream with this number. Needs a card and a place in the TOQ.
    Greet(u32),
    /// Fetch a card: VCQ of the peer, and number of the card.
    Fetch(u64, u32),
    /// Answer a card.
    Answer(Fetched, Option<Arc<TofuStream>>),
}

impl TofuNet {
    /// Does work of a greeting; retries later if there is no room.
    pub(super) fn try_again(&self, what: Mute) {
        if let Some(later) = self.speak(what) {
            self.mute.lock().push(later);
            self.wait();
        }
    }

    /// Does the work. Returns it if there is no room.
    pub(super) fn speak(&self, what: Mute) -> Option<Mute> {
        match what {
            Mute::Greet(number) => self.greet(number),
            Mute::Fetch(from, card) => self.fetch(from, card),
            Mute::Answer(fetched, begun) => self.answer(fetched, begun),
        }
    }

    pub(super) fn greet(&self, number: u32) -> Option<Mute> {
        let one = self.find(number)?;
        let mut cards = self.cards.lock();
        let Some(card) = cards.iter().position(Option::is_none) else {
            return Some(Mute::Greet(number));
        };
        self.desk
            .write(card as u32, &one.with, self.address, one.own_end());
        match self.post_greeting(&one, card as u32) {
            Ok(()) => cards[card] = Some(number),
            Err(Error::NotNow) => return Some(Mute::Greet(number)),
            Err(error) => {
                drop(cards);
                one.on_refused(error);
                self.call(&one);
            }
        }
        None
    }

    /// Puts a word at the peer's door for this card.
    pub(super) fn post_greeting(&self, one: &TofuStream, card: u32) -> Result<()> {
        let (target, nothing) = (&one.target, [0u8; 8]);
        let door = target.desk + places::door(card);
        let knock = |vcq: &RawVcq, flags| {
            let about = (NoticeType::Greeting.to(target.number), flags | NOTICE);
            let bytes = (nothing.as_ptr(), nothing.len());
            // SAFETY:
            // - `nothing` has `nothing.len()` bytes.
            unsafe { vcq.put_piggyback(target.route, bytes, door, about, data_of(target)) }
        };
        self.post(target, knock, || PendingWork::Greeted(one.number))
    }

    /// Repeats an unanswered greeting.
    pub fn greet_again(&self, number: u32) {
        let card = self
            .cards
            .lock()
            .iter()
            .position(|card| *card == Some(number));
        if let (Some(card), Some(one)) = (card, self.find(number)) {
            let _ = self.post_greeting(&one, card as u32);
        }
    }

    pub(super) fn fetch(&self, from: u64, card: u32) -> Option<Mute> {
        let target = self.target(from).ok()?;
        let Some(block) = self.fetches.take() else {
            return Some(Mute::Fetch(from, card));
        };
        let fetched = Fetched::new(block, target.clone(), card);
        let (into, len) = fetched.place();
        let at = target.desk + places::card(card);
        let get = |vcq: &RawVcq, flags| {
            // SAFETY:
            // - the block lives until completion.
            unsafe { vcq.get(target.route, (into, at), len, flags, data_of(&target)) }
        };
        match self.post(&target, get, || PendingWork::Fetched(fetched)) {
            Ok(()) => None,
            Err(Error::NotNow) => Some(Mute::Fetch(from, card)),
            Err(error) => {
                // The peer repeats its greeting.
                self.tell_of(&error);
                None
            }
        }
    }

    pub(super) fn answer(&self, fetched: Fetched, begun: Option<Arc<TofuStream>>) -> Option<Mute> {
        let target = fetched.from.clone();
        let (answer, len) = fetched.answered();
        let at = target.desk + places::answer(fetched.card);
        let put = |vcq: &RawVcq, flags| {
            let about = (NoticeType::Answer.to(target.number), flags | NOTICE);
            // SAFETY:
            // - the block lives until completion.
            unsafe { vcq.put(target.route, (answer, at), len, about, data_of(&target)) }
        };
        let mut kept = Some(fetched);
        let answered = self.post(&target, put, || PendingWork::Answered(kept.take()));
        match (answered, kept) {
            (Err(Error::NotNow), Some(fetched)) => return Some(Mute::Answer(fetched, begun)),
            (Ok(()), _) => {
                if let Some(one) = begun {
                    self.on_accepted(one);
                }
            }
            (Err(error), _) => {
                self.tell_of(&error);
                if let Some(one) = begun {
                    one.fail();
                    one.end();
                }
            }
        }
        None
    }

    pub(super) fn on_accepted(&self, one: Arc<TofuStream>) {
        self.owner.on_accepted(Accepted {
            known: Some(unipgas_core::streams::greeting::padded(bytemuck::bytes_of(
                &one.with,
            ))),
            stream: one,
        });
    }

    /// Handles a fetched greeting.
    pub(super) fn on_greeting(&self, mut fetched: Fetched) {
        let (verdict, begun) = match fetched.read(self.address.vcq) {
            Greeted::Nobody => {
                tracing::debug!("tofu: a greeting that is over is not answered");
                return;
            }
            Greeted::Refused(verdict) => (verdict, None),
            Greeted::By(stranger) if stranger.secret != self.secret => {
                tracing::warn!("tofu: a process that does not know this one's secret is refused");
                (GreetingReply::Stranger, None)
            }
            Greeted::By(stranger) if self.departed.has_ended(&stranger.address.secret) => {
                tracing::debug!("tofu: a greeting of a process that has died is not answered");
                return;
            }
            Greeted::By(stranger) => {
                let Some(target) = self.whose(&fetched, &stranger) else {
                    return self.try_again(Mute::Fetch(fetched.from.vcq, fetched.card));
                };
                fetched.from = target.clone();
                match self.begun_with(&stranger) {
                    // The answer is lost, or still in flight.
                    Some(known) => (GreetingReply::Accepted(known.own_end()), None),
                    None => self.welcome(&stranger, target),
                }
            }
        };
        fetched.answer(verdict);
        self.try_again(Mute::Answer(fetched, begun));
    }

    /// The target of the initiator. `None`: the card may be older than a change of the VCQ's owner. The caller fetches it again.
    fn whose(&self, fetched: &Fetched, stranger: &Stranger) -> Option<Arc<PeerVcq>> {
        let target = &fetched.from;
        if target.is_lost() {
            return None;
        }
        match (target.is_of(stranger.address.secret), fetched.knew) {
            (true, _) => Some(target.clone()),
            (false, true) => {
                self.declare_dead(target);
                self.target_of(&stranger.address).ok()
            }
            (false, false) => None,
        }
    }

    /// Begins a stream with this initiator.
    fn welcome(
        &self,
        stranger: &Stranger,
        target: Arc<PeerVcq>,
    ) -> (GreetingReply, Option<Arc<TofuStream>>) {
        match self.begin(stranger.address, target, false) {
            Ok(begun) => {
                begun.mark_ready(stranger.end);
                (GreetingReply::Accepted(begun.own_end()), Some(begun))
            }
            Err(error) => {
                tracing::warn!("tofu: a process that begins a stream is refused: {error}");
                (GreetingReply::Full, None)
            }
        }
    }

    /// The stream that this greeting has begun before.
    pub(super) fn begun_with(&self, stranger: &Stranger) -> Option<Arc<TofuStream>> {
        let begun = |one: &Arc<TofuStream>| {
            let is_his = one.with == stranger.address && one.is_to(stranger.end);
            !one.begun_here && is_his && !one.state.has_ended()
        };
        self.all().into_iter().find(begun)
    }

    /// Handles the answer on this card.
    pub(super) fn on_answer(&self, card: u32) {
        let number = self.cards.lock()[card as usize];
        let Some(one) = number.and_then(|number| self.find(number)) else {
            return;
        };
        let answer = self.desk.read(card, &one.own_end());
        if answer == Ok(None) {
            return;
        }
        self.cards.lock()[card as usize] = None;
        let refused = |why: &str| {
            Error::Unreachable(format!("the peer at {} {why}", self.place(one.with.vcq)))
        };
        match answer {
            Ok(None) => {}
            Ok(Some(GreetingReply::Accepted(end))) => one.mark_ready(end),
            Ok(Some(GreetingReply::Stranger)) => {
                // Another process has its VCQ.
                self.departed.add(one.with.secret, false, Error::PeerDead);
                one.on_refused(Error::PeerDead);
            }
            Ok(Some(GreetingReply::OtherVersion)) => one.on_refused(refused(
                "has another release of unipgas: install one release on all nodes",
            )),
            Ok(Some(GreetingReply::Full)) => {
                one.on_refused(refused("has no room for another stream"))
            }
            Err(error) => one.on_refused(error),
        }
        self.call(&one);
    }
}
