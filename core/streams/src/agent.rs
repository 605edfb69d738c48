//! Serves peers and takes their answers, in turns that never wait. The driver does both. Waiting threads take answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::guest::{By, Guest, is_silent};
use super::home::Home;
use super::link::Link;
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
    guests: Vec<Guest>,
    hosts: Vec<Host>,
    /// There is no room for another guest: a peer that begins a stream waits.
    full: bool,
}

impl Agent {
    /// Takes answers, and serves the requests that any thread may serve. It runs no code of the user, so the caller may hold any lock.
    pub(crate) fn take_answers(&mut self, home: &Home) {
        self.meet_new_hosts(home);
        let news = home.network().progress(false, false);
        if news.ended {
            home.tell_of_news();
            self.forget(home);
        }
        if news.guests {
            self.guests
                .retain_mut(|guest| guest.turn(home, false, By::Waiter));
            if home.releases.have_changed() {
                home.registered().bell().ring_if_heard();
            }
        }
        if news.streams || home.has_unsent.load(Ordering::Acquire) {
            self.hear_hosts(home, false);
        }
    }

    fn forget(&mut self, home: &Home) {
        if home.forgets() {
            self.hosts.iter().for_each(|host| host.link.forget(home));
        }
    }

    /// Does all work that is due. `looks`: also looks whether the peers are alive.
    pub fn turn(&mut self, home: &Home, looks: bool) {
        let alone = !home.is_left_to_others();
        if home.network().progress(true, alone).ended {
            home.tell_of_news();
            self.forget(home);
        }
        self.meet_new_hosts(home);
        if home.is_leaving() {
            self.guests
                .iter_mut()
                .for_each(|guest| guest.tell_of_leave(home));
            home.releases.left();
        }
        self.tell_of_releases(home);
        if !self.full || looks {
            self.greet(home);
        }
        self.guests
            .retain_mut(|guest| guest.turn(home, looks, By::Driver));
        self.dismiss_strangers();
        self.hear_hosts(home, looks);
        let held_back = !self.guests.iter().all(Guest::is_served);
        if held_back || alone && !home.network().may_rest() {
            // No event reports this work.
            home.wake();
        }
        // A waiting thread may wait for the change. It can also serve the next requests, without another wake.
        if home.releases.have_changed() || home.is_serving() {
            home.registered().bell().ring_if_heard();
        }
    }

    /// Whether all bytes to guests have left.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.guests.iter().all(Guest::has_all)
    }

    pub(crate) fn part(&mut self, home: &Home) {
        self.meet_new_hosts(home);
        self.guests.drain(..).for_each(|guest| guest.part());
        self.hosts.drain(..).for_each(|host| host.link.close());
    }

    fn meet_new_hosts(&mut self, home: &Home) {
        if !home.has_new_links.load(Ordering::Acquire) {
            return;
        }
        home.has_new_links.store(false, Ordering::Relaxed);
        let links = std::mem::take(&mut *home.new_links.lock());
        self.hosts.extend(links.into_iter().map(|link| Host {
            link,
            incoming: Vec::new(),
            blocked: false,
        }));
    }

    fn greet(&mut self, home: &Home) {
        let full = loop {
            match home.network().accept() {
                Ok(None) => break false,
                Ok(Some(accepted)) => self.guests.push(Guest::new(accepted, home)),
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
            home.watch_silence();
        }
        if self.full != full {
            self.full = full;
            home.network().want_guests(!full);
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

    fn tell_of_releases(&mut self, home: &Home) {
        let guests = &mut self.guests;
        home.releases.tell(|place| {
            let told = guests
                .iter_mut()
                .filter_map(|guest| guest.tell_of_release(home, place).then_some(()));
            told.count()
        });
    }

    fn hear_hosts(&mut self, home: &Home, looks: bool) {
        // Below, full streams ask for an event when they have room.
        if home.has_unsent.load(Ordering::Relaxed) {
            home.has_unsent.store(false, Ordering::SeqCst);
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
            let taken = link.take(incoming, home);
            let silent = looks && is_silent(stream, link.has_waiting(), home);
            let lost = ended || silent || taken.is_err();
            if lost {
                link.close();
            } else if *blocked != is_blocked {
                *blocked = is_blocked;
                stream.want_room(is_blocked);
            }
            let sent = had_unsent && !link.has_unsent();
            if lost || reached || sent || taken.is_ok_and(|news| news) {
                home.tell_of_news();
            }
            !lost
        });
    }
}
