//! Serves peers and takes their answers, in turns that never wait. The driver does both. Waiting threads take answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::inbound_peer::{By, InboundPeer, is_silent};
use super::link::Link;
use super::stream_node::StreamNode;
use unipgas_base::driver::Driven;

/// Maximum of guests that have not sent a greeting.
const STRANGERS: usize = 512;

/// A stream to a peer, and the received bytes of its next answer.
struct Host {
    link: Arc<Link>,
    incoming: Vec<u8>,
    blocked: bool,
}

/// State of the turns.
#[derive(Default)]
pub(super) struct Agent {
    /// In order of arrival.
    guests: Vec<InboundPeer>,
    hosts: Vec<Host>,
    /// There is no room for another guest: a peer that begins a stream waits.
    full: bool,
}

impl Agent {
    /// Takes answers, and serves the requests that any thread may serve. It runs no code of the user, so the caller may hold any lock.
    pub(crate) fn take_answers(&mut self, node: &StreamNode) {
        self.meet_new_hosts(node);
        let news = node.network().progress(false, false);
        if news.ended {
            node.tell_of_news();
            self.forget(node);
        }
        if news.guests {
            self.guests
                .retain_mut(|guest| guest.turn(node, false, By::Waiter));
            if node.releases.have_changed() {
                node.registered().bell().ring_if_heard();
            }
        }
        if news.streams || node.has_unsent.load(Ordering::Acquire) {
            self.hear_hosts(node, false);
        }
    }

    fn forget(&mut self, node: &StreamNode) {
        if node.forgets() {
            self.hosts.iter().for_each(|host| host.link.forget(node));
        }
    }

    /// Does all work that is due. `looks`: also looks whether the peers are alive.
    pub fn turn(&mut self, node: &StreamNode, looks: bool) {
        let alone = !node.is_left_to_others();
        if node.network().progress(true, alone).ended {
            node.tell_of_news();
            self.forget(node);
        }
        self.meet_new_hosts(node);
        if node.is_leaving() {
            self.guests
                .iter_mut()
                .for_each(|guest| guest.tell_of_leave(node));
            node.releases.left();
        }
        self.tell_of_releases(node);
        if !self.full || looks {
            self.greet(node);
        }
        self.guests
            .retain_mut(|guest| guest.turn(node, looks, By::Driver));
        self.dismiss_strangers();
        self.hear_hosts(node, looks);
        let held_back = !self.guests.iter().all(InboundPeer::is_served);
        if held_back || alone && !node.network().may_rest() {
            // No event reports this work.
            node.wake();
        }
        // A waiting thread may wait for the change. It can also serve the next requests, without another wake.
        if node.releases.have_changed() || node.is_serving() {
            node.registered().bell().ring_if_heard();
        }
    }

    /// Whether all bytes to guests have left.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.guests.iter().all(InboundPeer::has_all)
    }

    pub(crate) fn part(&mut self, node: &StreamNode) {
        self.meet_new_hosts(node);
        self.guests.drain(..).for_each(|guest| guest.part());
        self.hosts.drain(..).for_each(|host| host.link.close());
    }

    fn meet_new_hosts(&mut self, node: &StreamNode) {
        if !node.has_new_links.load(Ordering::Acquire) {
            return;
        }
        node.has_new_links.store(false, Ordering::Relaxed);
        let links = std::mem::take(&mut *node.new_links.lock());
        self.hosts.extend(links.into_iter().map(|link| Host {
            link,
            incoming: Vec::new(),
            blocked: false,
        }));
    }

    fn greet(&mut self, node: &StreamNode) {
        let full = loop {
            match node.network().accept() {
                Ok(None) => break false,
                Ok(Some(accepted)) => self.guests.push(InboundPeer::new(accepted, node)),
                Err(error) => {
                    if !self.full {
                        tracing::warn!("a process that has connected has to wait: {error}");
                    }
                    break true;
                }
            }
        };
        if full {
            // A later look accepts again. Until then a waiting peer would cause turn after turn.
            node.watch_silence();
        }
        if self.full != full {
            self.full = full;
            node.network().want_guests(!full);
        }
    }

    /// Silent peers must not keep others out. The oldest go; if there is no room, all go.
    fn dismiss_strangers(&mut self) {
        let there = self
            .guests
            .iter()
            .filter(|guest| guest.is_stranger())
            .count();
        let most = if self.full { 0 } else { STRANGERS };
        let mut many = there.saturating_sub(most);
        if many == 0 {
            return;
        }
        tracing::warn!(
            "{many} processes have connected and said nothing: their streams are closed"
        );
        self.guests.retain(|guest| {
            let goes = many > 0 && guest.is_stranger();
            if goes {
                many -= 1;
                guest.part();
            }
            !goes
        });
    }

    fn tell_of_releases(&mut self, node: &StreamNode) {
        let guests = &mut self.guests;
        node.releases.tell(|place| {
            let told = guests
                .iter_mut()
                .filter_map(|guest| guest.tell_of_release(node, place).then_some(()));
            told.count()
        });
    }

    fn hear_hosts(&mut self, node: &StreamNode, looks: bool) {
        // Below, full streams ask for an event when they have room.
        if node.has_unsent.load(Ordering::Relaxed) {
            node.has_unsent.store(false, Ordering::SeqCst);
        }
        self.hosts.retain_mut(|host| {
            let Host {
                link,
                incoming,
                blocked,
            } = host;
            let stream = &**link.stream();
            let was_reached = link.is_reached();
            let had_unsent = link.has_unsent();
            let is_blocked = link.push();
            let reached = !was_reached && link.is_reached();
            let ended = stream.pull(incoming).is_err();
            let taken = link.take(incoming, node);
            let silent = looks && is_silent(stream, link.has_waiting(), node);
            let lost = ended || silent || taken.is_err();
            if lost {
                link.close();
            } else if *blocked != is_blocked {
                *blocked = is_blocked;
                stream.want_room(is_blocked);
            }
            let sent = had_unsent && !link.has_unsent();
            if lost || reached || sent || taken.is_ok_and(|news| news) {
                node.tell_of_news();
            }
            !lost
        });
    }
}
