//! What VCQs tell: of what peers have done, of what has ended, and of what has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unipgas_core::Error;
use unipgas_core::streams::News;
use unipgas_utofu_sys::*;

use super::{Mute, Net};
use crate::conversation::Conversation;
use crate::greeting::{About, Fetched, Stranger, Verdict, places};
use crate::lanes::{Ends, Findings};

/// Whether it was set; it is not any more. Most are not, and are looked at often.
fn taken(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire) && flag.swap(false, Ordering::AcqRel)
}

impl Net {
    /// Takes what has happened, unless another thread does. `turn`: the agent looks at all streams afterwards.
    pub fn progress(&self, turn: bool) -> News {
        let mut something = false;
        if let Some(mut findings) = self.reader.try_lock() {
            something = self.look(&mut findings);
            if taken(&self.waits) {
                self.try_all_again();
                something = true;
            }
        }
        if self.are_waiting.load(Ordering::Acquire) > 0 {
            self.look_for_room();
            something = true;
        }
        if turn {
            self.clock.looked(something);
            // What peers have written comes with no notice.
            self.told.written();
        }
        if taken(&self.turn_calls) && !turn {
            self.told.wake();
        }
        News {
            guests: taken(&self.guests_call),
            streams: taken(&self.streams),
            ended: taken(&self.ended),
        }
    }

    /// Whether anything has come.
    fn look(&self, findings: &mut Findings) -> bool {
        let known = |vcq| self.targets.read().numbers.get(&vcq).copied();
        for lane in self.lanes.iter() {
            if lane.number == 0 || lane.expects() {
                lane.look(findings, known);
            }
        }
        if findings.is_empty() {
            return false;
        }
        for (ends, value) in findings.ended.drain(..) {
            self.end(ends, value);
        }
        for notice in findings.remote.drain(..) {
            self.hear(&notice);
        }
        for (data, failed) in findings.read.drain(..) {
            self.has_read(data, failed);
        }
        findings.over.clear();
        for (vcq, code) in findings.lost.drain(..) {
            if let Some(target) = self.known(vcq) {
                self.lose(&target, code);
            }
        }
        for (vcq, why) in findings.refused.drain(..) {
            self.tell_of(&why);
            if let Some(target) = self.known(vcq) {
                self.give_up(&target);
            }
        }
        if let Some(why) = findings.broken.take() {
            self.breaks(why);
        }
        if std::mem::take(&mut findings.room) {
            // As when something has ended: who has found no room tries again.
            self.ended.store(true, Ordering::Release);
        }
        true
    }

    /// Something that this process has posted is visible at the peer, or here.
    fn end(&self, ends: Ends, value: u64) {
        match ends {
            Ends::Access(ticket) => {
                Conversation::of(ticket.link()).hear();
                ticket.end(Ok(()));
                self.ended.store(true, Ordering::Release);
            }
            Ends::Value(ticket, landing) => {
                Conversation::of(ticket.link()).hear();
                // Where the stream has ended its place may be somebody else's.
                ticket.end_with(|| landing.set(value));
                self.ended.store(true, Ordering::Release);
            }
            Ends::Probe(number) => {
                if let Some(one) = self.find(number) {
                    one.hear();
                }
            }
            Ends::Greeted(number) => {
                if let Some(one) = self.find(number) {
                    one.answers();
                }
            }
            Ends::Fetched(fetched) => self.is_greeted(fetched),
            Ends::Nothing | Ends::Answered(_) => self.ended.store(true, Ordering::Release),
        }
    }

    /// A peer has done something.
    fn hear(&self, notice: &utofu_mrq_notice) {
        let about = About::of(notice.edata);
        let known = match (notice.notice_type, about) {
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(About::Mail)) => self.has_come(notice.rmt_stadd),
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(About::Greeting)) => {
                let card = places::card_at_door(notice.rmt_stadd.wrapping_sub(self.desk_stadd));
                card.map(|card| self.try_again(Mute::Fetch(notice.vcq_id, card)))
            }
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(About::Answer)) => {
                let card = places::answered(notice.rmt_stadd.wrapping_sub(self.desk_stadd));
                card.map(|card| self.is_answered(card))
            }
            _ => None,
        };
        if known.is_none() {
            tracing::debug!("tofu: a notice of no meaning is ignored: {notice:?}");
        }
    }

    /// A message that ends here.
    fn has_come(&self, end: u64) -> Option<()> {
        let (ring, end) = self.rings.find(end)?;
        let number = *self.conversations.read().rings.get(&ring)?;
        let one = self.find(number)?;
        if one.take(end).is_err() {
            tracing::debug!("tofu: a message that no peer sends");
            one.fail();
        }
        self.call(&one);
        Some(())
    }

    /// Who begins a stream has said so.
    fn is_greeted(&self, mut fetched: Fetched) {
        let (verdict, begun) = match fetched.read() {
            Err(verdict) => (verdict, None),
            Ok(stranger) if stranger.secret != self.secret => {
                tracing::warn!("tofu: a process that does not know this one's secret is refused");
                (Verdict::Stranger, None)
            }
            Ok(stranger) if let Some(known) = self.begun_with(&stranger) => {
                // He has not had the answer, or not yet.
                (Verdict::Accepted(known.own_end()), None)
            }
            Ok(stranger) => match self.begin(stranger.address, false) {
                Ok(begun) => {
                    begun.is_ready(stranger.end);
                    (Verdict::Accepted(begun.own_end()), Some(begun))
                }
                Err(error) => {
                    tracing::warn!("tofu: a process that begins a stream is refused: {error}");
                    (Verdict::Full, None)
                }
            },
        };
        fetched.answer(verdict);
        self.try_again(Mute::Answer(fetched, begun));
    }

    /// The stream that this stranger has begun before.
    fn begun_with(&self, stranger: &Stranger) -> Option<Arc<Conversation>> {
        let begun = |one: &Arc<Conversation>| {
            let is_his = one.with == stranger.address && one.is_to(stranger.end);
            !one.begun_here && is_his && !one.has_ended()
        };
        self.all().into_iter().find(begun)
    }

    /// The peer has answered the greeting on this card.
    fn is_answered(&self, card: u32) {
        let number = self.cards.lock()[card as usize];
        let Some(one) = number.and_then(|number| self.find(number)) else {
            return;
        };
        let answer = self.desk.read(card, one.own_end().ring);
        if answer == Ok(None) {
            return;
        }
        self.cards.lock()[card as usize] = None;
        let refused = |why: &str| {
            Error::Unreachable(format!("the peer at the VCQ {:#x} {why}", { one.with.vcq }))
        };
        match answer {
            Ok(None) => {}
            Ok(Some(Verdict::Accepted(end))) => one.is_ready(end),
            Ok(Some(Verdict::Stranger)) => {
                // Another process has its place.
                self.departed.add(one.with.secret, false, Error::PeerDead);
                one.is_refused(Error::PeerDead);
            }
            Ok(Some(Verdict::OtherVersion)) => one.is_refused(refused(
                "has another release of unipgas: install one release on all nodes",
            )),
            Ok(Some(Verdict::Full)) => one.is_refused(refused("has no room for another stream")),
            Err(error) => one.is_refused(error),
        }
        self.call(&one);
    }

    /// Bytes of a descriptor have been read, or it has failed.
    fn has_read(&self, data: usize, failed: Option<i32>) {
        let target = match data {
            data if data & 1 == 1 => Some((data >> 2) as u32),
            data => {
                let sent = self.sending.lock().try_remove((data >> 2).wrapping_sub(1));
                sent.map(|sent| sent.target)
            }
        };
        let Some(code) = failed else {
            return;
        };
        let target = target.and_then(|number| {
            let targets = self.targets.read();
            targets.all.get(number as usize).cloned()
        });
        if let Some(target) = target {
            self.lose(&target, code);
        }
    }

    /// What there was no room for.
    fn try_all_again(&self) {
        let mute = std::mem::take(&mut *self.mute.lock());
        mute.into_iter().for_each(|one| self.try_again(one));
        let owed = std::mem::take(&mut *self.owed.lock());
        for number in owed {
            if let Some(one) = self.find(number)
                && !one.tell_of_read()
            {
                self.owes(number);
            }
        }
        self.part();
    }

    /// Peers tell nobody that there is room, but write how much they have read.
    fn look_for_room(&self) {
        let waiting = self.waiting.lock().clone();
        let there = |number: u32| self.find(number);
        let with_room: Vec<Arc<Conversation>> = waiting
            .into_iter()
            .filter_map(there)
            .filter(|one| one.has_wanted_room())
            .collect();
        with_room.iter().for_each(|one| self.call(one));
    }
}
