//! Completions, and operations that wait for room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unipgas_core::streams::{ProgressEvents, Ticket, taken};
use unipgas_core::{Error, Result};

use super::OfiNet;
use crate::confirm_target;
use crate::fabric::{Event, failure};
use crate::operations::What;

impl OfiNet {
    /// Notes that a conversation waits for room, or no longer waits. No event reports room, so the progress thread polls from time to time.
    pub fn blocked(&self, more: bool) {
        match more {
            true => {
                self.blocked.fetch_add(1, Ordering::AcqRel);
                self.driver.more();
            }
            false => {
                self.blocked.fetch_sub(1, Ordering::AcqRel);
                self.driver.fewer(1);
            }
        }
    }

    /// Handles the result of posting an access.
    pub fn posted(&self, context: usize, result: Result<()>) -> Result<()> {
        self.note_room(result != Err(Error::NotNow));
        if result.is_err()
            && let What::Access(ticket) = self.operations.end(context)
            && ticket.link().stream().watch()
        {
            // If the peer is dead, there may never be room: look at it.
            self.owner.watch_silence();
        }
        result
    }

    /// Handles the result of posting an unsignaled write.
    pub fn written_untold(&self, result: Result<()>) -> Result<()> {
        self.note_room(result != Err(Error::NotNow));
        result
    }

    pub(super) fn note_room(&self, room: bool) {
        let full = !room;
        let change = self.full.load(Ordering::Relaxed) != full
            && self.full.swap(full, Ordering::AcqRel) != full;
        match (change, full) {
            (true, true) => self.driver.more(),
            (true, false) => self.driver.fewer(1),
            (false, _) => {}
        }
    }

    /// Whether work is due that no event reports.
    pub fn needs_beats(&self) -> bool {
        let waits = [&self.waits, &self.full, &self.holds];
        self.fabric.events().is_none()
            || self.is_blocked()
            || waits.iter().any(|waits| waits.load(Ordering::Acquire))
    }

    /// Whether any conversation waits for room.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire) > 0
    }

    /// Handles completions, unless another thread does. `turn`: the agent then looks at all conversations. `alone`: the program does not make
    /// progress, so held-back pieces leave.
    pub fn progress(&self, turn: bool, alone: bool) -> ProgressEvents {
        self.let_leave(alone);
        if let Some(_reading) = self.reading.try_lock() {
            while self.fabric.read(|event| self.take(event)) {}
            self.try_again();
        }
        let mut events = self.owner.take(turn);
        // Accesses without room are retried.
        events.ended |= self.full.load(Ordering::Relaxed);
        events
    }

    /// Retries receives and first messages that found no room.
    fn try_again(&self) {
        if !taken(&self.waits) {
            return;
        }
        let unposted = std::mem::take(&mut *self.unposted.lock());
        unposted.into_iter().for_each(|buffer| self.post(buffer));
        let mute = std::mem::take(&mut *self.mute.lock());
        for one in mute {
            match one.introduce(self) {
                true => self.blocked(false),
                false => {
                    self.mute.lock().push(one);
                    self.waits.store(true, Ordering::Release);
                }
            }
        }
    }

    fn take(&self, event: Event) {
        match event {
            Event::Written { data, context } => {
                if context != 0
                    && let What::Receive(buffer) = self.operations.end(context)
                {
                    self.post(buffer);
                }
                self.words.take(data);
                self.owner.written();
            }
            Event::Ended { context: 0, .. } | Event::Failed { context: 0, .. } => {}
            Event::Failed { context, .. } if let Some(tag) = confirm_target::owner(context) => {
                self.lose(tag);
            }
            Event::Ended { context, len } => match self.operations.end(context) {
                What::Receive(buffer) => {
                    self.hear(buffer, len);
                    self.post(buffer);
                }
                What::Send(buffer, sender) => {
                    self.send.give_back(buffer);
                    sender.under_way.fetch_sub(1, Ordering::AcqRel);
                    if self.is_blocked() {
                        self.owner.on_all_streams();
                    }
                }
                What::Access(ticket) => {
                    ticket.end(Ok(()));
                    self.owner.on_operation();
                }
                What::Free => {}
            },
            Event::Failed { context, error } => match self.operations.end(context) {
                // For example, the endpoint is being closed.
                What::Receive(buffer) => self.mark_unposted(buffer),
                What::Send(buffer, sender) => {
                    self.send.give_back(buffer);
                    sender.under_way.fetch_sub(1, Ordering::AcqRel);
                    let conversations = self.conversations.read();
                    let of = conversations.get(sender.number as usize);
                    let of = of.filter(|of| Arc::ptr_eq(&of.under_way, &sender.under_way));
                    let with = of.map(|of| of.with.name.tag);
                    drop(conversations);
                    if let Some(with) = with {
                        self.lose(with);
                    }
                }
                What::Access(ticket) => self.fail(ticket, failure(error)),
                What::Free => {}
            },
        }
    }

    fn fail(&self, ticket: Ticket, error: Error) {
        if error == Error::PeerDead {
            // The agent sees the end of the stream, and then ends all operations to the peer.
            ticket.link().stream().end();
            self.owner.on_all_streams();
        } else {
            ticket.end(Err(error));
            self.owner.on_operation();
        }
    }
}
