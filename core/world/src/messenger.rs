//! Messages among the ranks of a world: the mailbox and the waits.

use std::cell::Cell;
use std::sync::Arc;

use crate::world::World;
use unipgas_base::biased::{Biased, BiasedGuard};
use unipgas_base::wait::WaitProgress;
use unipgas_base::{Deadline, Result, driver};
use unipgas_engine::transport::Life;
use unipgas_message::{
    Envelope, Mailbox, Mode, Multicast, Pattern, PeerMailbox, Peers, Precedence, ReceiveTicket,
    Received, SendTicket, Shape, Window,
};

/// A rank's lane in a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Messages that may be in flight from it ([`Shape::lines`]).
    pub lines: usize,
    /// Bytes for payloads that do not fit in lines (the field `data` of [`Shape`]).
    pub data: usize,
}

/// Ranks that can end a wait by their death.
#[derive(Debug, Clone, Copy)]
pub enum Needs<'a> {
    /// Any rank. The wait also ends when all other ranks have left.
    Anyone,
    /// Any of these.
    Ranks(&'a [u32]),
}

/// The messages of a rank. Any thread may call.
pub struct Messenger {
    // Dropped in this order: registrations end before their network.
    /// The mailbox's window. A look for news needs no lock.
    window: Arc<Window>,
    mailbox: Biased<Mailbox>,
    world: Arc<World>,
}

/// The ranks of a world publish their mailboxes under one name.
struct Ranks {
    world: Arc<World>,
    name: &'static str,
    patience: Deadline,
}

impl Peers for Ranks {
    fn find(&self, peer: u32) -> Result<PeerMailbox> {
        let (world, patience) = (&self.world, self.patience);
        Ok(PeerMailbox {
            connection: world.connect_within(peer, patience)?,
            region: world.published_region_within(peer, self.name, patience)?,
            lane: world.rank(),
            first: None,
        })
    }

    fn patience(&self) -> Deadline {
        self.patience
    }
}

impl Messenger {
    /// A mailbox that the other ranks find under `name`. It has a `lane` for each of them, with the same shape at all ranks. All ranks make their mailboxes
    /// before [`World::meet`]. `patience`: the longest time that a call holds the mailbox while a rank answers, at the first contact or before a fetch.
    /// Progress sends and fetches the rest.
    pub fn new(
        world: &Arc<World>,
        name: &'static str,
        precedence: Precedence,
        lane: Lane,
        patience: Deadline,
    ) -> Result<Self> {
        let shape = Shape {
            peers: world.size() as usize,
            more: 0,
            lines: lane.lines,
            data: lane.data,
        };
        let ranks = Arc::new(Ranks {
            world: world.clone(),
            name,
            patience,
        });
        let mailbox = Mailbox::new(world.engine(), shape, precedence, ranks)?;
        world.publish_region(name, &mailbox.key())?;
        Ok(Messenger {
            world: world.clone(),
            window: mailbox.window().clone(),
            mailbox: Biased::new(mailbox),
        })
    }

    /// The world of the ranks.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The mailbox itself, for calls that do not wait. While a caller holds it, the waits of other threads stand still.
    #[inline(always)]
    pub fn mailbox(&self) -> BiasedGuard<'_, Mailbox> {
        self.mailbox.lock()
    }

    /// Whether an operation needs progress of this process, even without a waiter.
    #[inline(always)]
    pub fn is_restless(&self) -> bool {
        self.window
            .restless
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The mailbox after some progress.
    #[inline]
    pub fn advanced(&self) -> BiasedGuard<'_, Mailbox> {
        let mut mailbox = self.mailbox();
        mailbox.progress(self.world.engine());
        mailbox
    }

    /// Waits until all live ranks have the multicasts of this process. A multicast returns before that.
    pub fn see_multicasts_through(&self) {
        let lives = |peer: u32| self.world.life(peer) == Life::Alive;
        let _ = self.wait(Deadline::Never, Needs::Ranks(&[]), |mailbox| {
            (!mailbox.readers().any(lives)).then_some(())
        });
    }

    /// Makes progress until `poll` gives a value. `poll` runs when there is news. Errors: [`Error::Timeout`](unipgas_base::Error::Timeout);
    /// [`Error::RankDead`](unipgas_base::Error::RankDead) if a rank in `needs` has died.
    #[inline]
    pub fn wait<T>(
        &self,
        deadline: Deadline,
        needs: Needs<'_>,
        poll: impl FnMut(&mut Mailbox) -> Option<T>,
    ) -> Result<T> {
        self.wait_beside(deadline, needs, || None, poll)
    }

    /// As [`Messenger::wait`], also for events other than messages: `ask` runs at each poll.
    #[inline]
    pub fn wait_beside<T>(
        &self,
        deadline: Deadline,
        needs: Needs<'_>,
        ask: impl FnMut() -> Option<T>,
        mut poll: impl FnMut(&mut Mailbox) -> Option<T>,
    ) -> Result<T> {
        let engine = self.world.engine();
        self.wait_with(deadline, needs, ask, |mailbox| {
            mailbox.progress_a_little(engine);
            poll(mailbox)
        })
    }

    /// As [`Messenger::wait_beside`]. Here `poll` makes the progress itself.
    #[inline(always)]
    fn wait_with<T>(
        &self,
        deadline: Deadline,
        needs: Needs<'_>,
        mut ask: impl FnMut() -> Option<T>,
        mut poll: impl FnMut(&mut Mailbox) -> Option<T>,
    ) -> Result<T> {
        let (mut since, mut steps) = (None, WaitProgress::default());
        let mut check = || {
            steps.note(self.window.lines_taken());
            match needs {
                Needs::Anyone => self.world.check_company(&mut since),
                Needs::Ranks(ranks) => self.world.check_ranks(ranks, &mut since),
            }
        };
        let engine = self.world.engine();
        let mut seen = None;
        // Parts of all streams of this process count: any thread may wait for their ends.
        let parts = Cell::new(self.window.parts());
        let moved = || {
            let now = self.window.parts();
            parts.replace(now) != now
        };
        engine.wait_in_steps(deadline, &mut check, moved, || {
            if let Some(value) = ask() {
                return Some(value);
            }
            // Another thread may have taken the awaited line.
            let look = seen != Some(self.window.lines_taken())
                || engine.is_driven()
                || self.window.has_news();
            if !look {
                return None;
            }
            let mut mailbox = self.mailbox();
            loop {
                let before = self.window.lines_taken();
                let value = poll(&mut mailbox);
                let taken = self.window.lines_taken();
                seen = Some(taken);
                // A line that is left wakes no thread: only the next line does.
                if value.is_some() || taken == before || !self.window.has_lines() {
                    return value;
                }
            }
        })
    }

    /// Sends, and waits until the send has ended. Errors: as [`Mailbox::send`] and [`Messenger::wait`].
    ///
    /// # Safety
    /// The bytes are readable, and unchanged, during the call.
    #[inline]
    pub unsafe fn send(
        &self,
        to: u32,
        envelope: Envelope,
        bytes: (*const u8, usize),
        mode: Mode,
        deadline: Deadline,
    ) -> Result<()> {
        let engine = self.world.engine();
        if mode == Mode::Synchronous {
            // SAFETY:
            // - contract of this call: the buffer stays valid until the call returns.
            let sent = unsafe { self.mailbox().send_waited(engine, to, envelope, bytes) }?;
            if let Some(serial) = sent {
                return self.wait_receipt(to, serial, deadline);
            }
        }
        let ticket = {
            let mut mailbox = self.mailbox();
            // SAFETY:
            // - contract of this call: the buffer stays valid until the call returns. An operation that has not ended is abandoned before that.
            unsafe { mailbox.send(engine, to, envelope, bytes, mode, true) }?
        };
        match ticket {
            None => Ok(()),
            Some(ticket) => self
                .wait(deadline, Needs::Ranks(&[to]), |mailbox| {
                    mailbox.test_send(ticket)
                })
                .inspect_err(|_| self.abandon_send(ticket))?,
        }
    }

    #[inline(always)]
    fn wait_receipt(&self, to: u32, serial: u32, deadline: Deadline) -> Result<()> {
        let received = self.wait(deadline, Needs::Ranks(&[to]), |mailbox| {
            mailbox.is_received(serial).then_some(())
        });
        if received.is_err() {
            self.mailbox().stop_waiting(serial);
        }
        received
    }

    /// Receives a message into `capacity` bytes at `buffer`. Errors: as for [`Messenger::send`].
    ///
    /// # Safety
    /// The bytes are valid for writes during the call.
    #[inline]
    pub unsafe fn receive(
        &self,
        pattern: Pattern,
        (buffer, capacity): (*mut u8, usize),
        deadline: Deadline,
    ) -> Result<Received> {
        let needs = pattern.source.as_ref().map(std::slice::from_ref);
        let needs = needs.map_or(Needs::Anyone, Needs::Ranks);
        let engine = self.world.engine();
        let mut ticket: Option<ReceiveTicket> = None;
        let is_near =
            |mailbox: &mut Mailbox| pattern.source.is_some_and(|peer| mailbox.is_near(peer));
        let received = self.wait_with(
            deadline,
            needs,
            || None,
            |mailbox| {
                if ticket.is_none() && (!engine.is_driven() || is_near(mailbox)) {
                    // SAFETY:
                    // - contract of this call: the buffer stays valid until the call returns.
                    let received = unsafe { mailbox.receive_next(&pattern, buffer, capacity) };
                    if let Some(received) = received {
                        return Some(Ok(received));
                    }
                }
                mailbox.progress_a_little(engine);
                if ticket.is_none() && !mailbox.must_be_posted(&pattern, engine) {
                    return None;
                }
                let ticket = *ticket.get_or_insert_with(|| {
                    // SAFETY:
                    // - contract of this call: the buffer stays valid until the call returns. An operation that has not ended is abandoned before that.
                    unsafe { mailbox.receive(pattern, buffer, capacity) }
                });
                mailbox.test_receive(ticket)
            },
        );
        match (received, ticket) {
            (Err(error), Some(ticket)) => {
                self.abandon_receive(ticket);
                Err(error)
            }
            (received, _) => received?,
        }
    }

    /// Sends the same bytes to several ranks, and waits until the caller may use the buffer again.
    ///
    /// # Safety
    /// As for [`Messenger::send`].
    pub unsafe fn send_to_all(
        &self,
        to: &[u32],
        envelope: Envelope,
        bytes: (*const u8, usize),
        deadline: Deadline,
    ) -> Result<()> {
        let engine = self.world.engine();
        let sent = self.wait(deadline, Needs::Ranks(to), |mailbox| {
            // SAFETY:
            // - contract of this call: the buffer stays valid until the call returns.
            let sent = unsafe { mailbox.send_to_all(engine, to.iter().copied(), envelope, bytes) };
            (sent != Ok(Multicast::NoRoom)).then_some(sent)
        })??;
        let Multicast::Exposed(tickets) = sent else {
            return Ok(());
        };
        let mut tickets = tickets.into_iter();
        let mut next = tickets.next();
        let sent = self.wait(deadline, Needs::Ranks(to), |mailbox| {
            while let Some(ticket) = next {
                let ended = mailbox.test_send(ticket)?;
                next = tickets.next();
                if ended.is_err() {
                    return Some(ended);
                }
            }
            Some(Ok(()))
        });
        for ticket in next.into_iter().chain(tickets) {
            self.abandon_send(ticket);
        }
        sent?
    }
}

impl Messenger {
    /// Ends a send after its wait has failed. The receiver may lose the message. Then the ticket is invalid, and the bytes are the caller's again.
    #[cold]
    pub fn abandon_send(&self, ticket: SendTicket) {
        self.mailbox().let_go_of_send(ticket);
    }

    /// Ends a receive. Waits for a fetch that writes to its buffer.
    #[cold]
    pub fn abandon_receive(&self, ticket: ReceiveTicket) {
        let engine = self.world().engine();
        // A fetch ends also if the peer has died.
        let mut let_go = || self.advanced().let_go_of_receive(ticket).then_some(());
        while engine
            .wait_for(Deadline::Never, &mut || Ok(()), &mut let_go)
            .is_err()
        {
            driver::give_way();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use unipgas_base::wait::Watch;
    use unipgas_engine::loopback::LoopbackNet;

    #[test]
    fn a_wait_that_takes_messages_counts_as_progress() {
        const MOST: u32 = 100;
        let watch: &'static Watch = Box::leak(Box::default());
        Watch::begin(watch);
        let worlds = crate::fuzz::worlds(LoopbackNet::default()).unwrap();
        let lane = Lane {
            lines: 4,
            data: 4096,
        };
        let messenger = |world| {
            Messenger::new(world, "test", Precedence::Posted, lane, Deadline::Never).unwrap()
        };
        let [here, there] = worlds.each_ref().map(messenger);
        let sent = Cell::new(0);
        let mut slept = Duration::ZERO;
        let send_after_a_sleep = || {
            let now = Watch::in_vain_so_far();
            if std::mem::replace(&mut slept, now) != now {
                sent.set(sent.get() + 1);
                let (envelope, none) = (Envelope::default(), (std::ptr::null(), 0));
                // SAFETY:
                // - no bytes.
                unsafe { there.send(0, envelope, none, Mode::Buffered, Deadline::Now) }.unwrap();
            }
            None
        };
        let moves = || watch.ended.load(Ordering::Relaxed);
        let waited = here.wait_beside(
            Deadline::Never,
            Needs::Ranks(&[]),
            send_after_a_sleep,
            |_| (moves() > 0 || sent.get() == MOST).then_some(()),
        );
        assert_eq!(waited, Ok(()));
        assert_ne!(moves(), 0, "after {} messages", sent.get());
    }
}
