//! Polls of VCQs: operations of peers, completions, and failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unipgas_core::streams::{ProgressEvents, taken};
use unipgas_utofu_sys::*;

use super::TofuNet;
use super::greetings::Mute;
use crate::conversation::TofuStream;
use crate::edata::NoticeType;
use crate::greeting::places;
use crate::lanes::{Findings, PendingWork};

impl TofuNet {
    /// Makes progress, unless another thread does. `turn`: the agent looks at all streams afterwards.
    pub fn progress(&self, turn: bool) -> ProgressEvents {
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
            // Writes of peers cause no notices.
            self.owner.written();
        }
        self.owner.take(turn)
    }

    /// Polls the lanes. True: there was an event.
    fn look(&self, findings: &mut Findings) -> bool {
        let known = |vcq| self.targets.read().numbers.get(&vcq).copied();
        // VCQs of a TNI may share a TOQ. A poll of each VCQ removes its own descriptors.
        let short = self.lanes.iter().any(|lane| lane.is_short());
        for lane in self.lanes.iter() {
            if lane.number == 0 || short || lane.expects() {
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
            self.on_source_read(data, failed);
        }
        findings.over.clear();
        for (number, code) in findings.lost.drain(..) {
            if let Some(target) = self.numbered(number) {
                self.lose(&target, code);
            }
        }
        for (number, why) in findings.refused.drain(..) {
            self.tell_of(&why);
            if let Some(target) = self.numbered(number) {
                self.give_up(&target);
            }
        }
        if let Some(why) = findings.broken.take() {
            self.breaks(why);
        }
        if std::mem::take(&mut findings.room) {
            // Callers that found no room retry, as after a completion.
            self.owner.on_operation();
        }
        true
    }

    /// Handles the completion of own work.
    fn end(&self, ends: PendingWork, value: u64) {
        match ends {
            PendingWork::Access(ticket) => {
                TofuStream::of(ticket.link()).state.hear();
                ticket.end(Ok(()));
                self.owner.on_operation();
            }
            PendingWork::Value(ticket, landing) => {
                TofuStream::of(ticket.link()).state.hear();
                // After the end of the stream, the place may have another use.
                ticket.end_with(|| landing.set(value));
                self.owner.on_operation();
            }
            PendingWork::Probe(number, found) => {
                if let Some(one) = self.find(number) {
                    self.on_probed(&one, &found);
                }
            }
            PendingWork::Greeted(number) => {
                if let Some(one) = self.find(number) {
                    one.state.mark_reachable();
                }
            }
            PendingWork::Fetched(fetched) => self.on_greeting(fetched),
            PendingWork::Nothing | PendingWork::Answered(_) => self.owner.on_operation(),
        }
    }

    /// Handles a notice of a peer's operation.
    fn hear(&self, notice: &utofu_mrq_notice) {
        let about = NoticeType::of(notice.edata);
        let known = match (notice.notice_type, about) {
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(NoticeType::Mail)) => self.has_come(notice.rmt_stadd),
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(NoticeType::Greeting)) => {
                let card = places::card_at_door(notice.rmt_stadd.wrapping_sub(self.desk_stadd));
                card.map(|card| self.try_again(Mute::Fetch(notice.vcq_id, card)))
            }
            (UTOFU_MRQ_TYPE_RMT_PUT, Some(NoticeType::Answer)) => {
                let card = places::answered(notice.rmt_stadd.wrapping_sub(self.desk_stadd));
                card.map(|card| self.on_answer(card))
            }
            _ => None,
        };
        if known.is_none() {
            tracing::debug!("tofu: a notice of no meaning is ignored: {notice:?}");
        }
    }

    /// Handles a message that ends at this STADD.
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

    /// Handles a descriptor: its source has been read, or it failed.
    fn on_source_read(&self, data: usize, failed: Option<i32>) {
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
        if let Some(target) = target.and_then(|number| self.numbered(number)) {
            self.lose(&target, code);
        }
    }

    /// Retries work that found no room.
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

    /// Peers do not report room: they write their read positions.
    fn look_for_room(&self) {
        let waiting = self.waiting.lock().clone();
        let there = |number: u32| self.find(number);
        let with_room: Vec<Arc<TofuStream>> = waiting
            .into_iter()
            .filter_map(there)
            .filter(|one| one.has_wanted_room())
            .collect();
        with_room.iter().for_each(|one| self.call(one));
    }
}
