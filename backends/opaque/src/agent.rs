//! The thread that serves peers, and takes what they answer.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use unipgas_core::agent::{Answer, Place, Request, wire};
use unipgas_core::panics::keep_going;
use unipgas_core::{Error, Result, process};

use crate::link::{Link, Outgoing};
use crate::stream::{self, HELLO};
use crate::transport::Home;

/// The running agent; dropping it ends the thread, after the last answer has left.
pub struct Agent {
    home: Arc<Home>,
    process: u32,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub fn start(home: &Arc<Home>) -> Result<Self> {
        let serving = home.clone();
        let thread = std::thread::Builder::new()
            .name("unipgas-agent".into())
            .spawn(move || {
                let mut server = Server::new(&serving);
                keep_going(|| server.run());
            })
            .map_err(|error| Error::os("starting the agent's thread", error))?;
        Ok(Agent {
            home: home.clone(),
            process: process::id(),
            thread: Some(thread),
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The child of a fork has no such thread.
            return;
        }
        self.home.stop.store(true, Ordering::Release);
        self.home.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Somebody who has connected to this process.
struct Guest {
    socket: OwnedFd,
    /// He has said the secret.
    known: bool,
    told_of_leave: bool,
    /// What he has imported, and has not been told the end of.
    imported: HashSet<Place>,
    /// What he has been told the end of, and may use still.
    released: HashSet<Place>,
    incoming: Vec<u8>,
    outgoing: Outgoing,
}

/// A stream to a peer, and what has come from there in part.
struct Host {
    link: Arc<Link>,
    incoming: Vec<u8>,
}

struct Server<'a> {
    home: &'a Home,
    guests: Vec<Guest>,
    hosts: Vec<Host>,
}

impl<'a> Server<'a> {
    fn new(home: &'a Home) -> Self {
        Server {
            home,
            guests: Vec::new(),
            hosts: Vec::new(),
        }
    }

    fn run(&mut self) {
        loop {
            self.meet_new_hosts();
            let leaving = self.home.leaving.load(Ordering::Acquire);
            if leaving {
                self.tell_of_leave();
                self.home.releases.left();
            }
            if self.home.stop.load(Ordering::Acquire)
                && self.guests.iter().all(|guest| guest.outgoing.is_empty())
            {
                self.home.releases.close();
                return;
            }
            self.tell_of_releases();
            self.sleep();
            self.greet();
            self.serve();
            self.take_answers();
        }
    }

    fn meet_new_hosts(&mut self) {
        let mut new = self.home.new_links.lock();
        self.hosts.extend(new.drain(..).map(|link| Host {
            link,
            incoming: Vec::new(),
        }));
    }

    /// Until there is something to do.
    fn sleep(&self) {
        fn of(socket: BorrowedFd<'_>, more_to_send: bool) -> PollFd<'_> {
            let wanted = match more_to_send {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(socket, wanted)
        }
        let mut all = vec![
            of(self.home.alarm.as_fd(), false),
            of(self.home.listener.socket.as_fd(), false),
        ];
        let guests = self.guests.iter();
        all.extend(guests.map(|guest| of(guest.socket.as_fd(), !guest.outgoing.is_empty())));
        let hosts = self.hosts.iter();
        all.extend(hosts.map(|host| of(host.link.socket(), host.link.has_more_to_send())));
        // Interrupted or not: what there is to do is seen below.
        let _ = poll(&mut all, None);
        let _ = rustix::io::read(&self.home.alarm, &mut [0u8; 8]);
    }

    fn greet(&mut self) {
        while let Some(socket) = self.home.listener.accept() {
            self.guests.push(Guest {
                socket,
                known: false,
                told_of_leave: false,
                imported: HashSet::new(),
                released: HashSet::new(),
                incoming: Vec::new(),
                outgoing: Outgoing::default(),
            });
        }
    }

    fn tell_of_leave(&mut self) {
        for guest in self.guests.iter_mut().filter(|guest| guest.known) {
            if !guest.told_of_leave {
                guest.told_of_leave = true;
                Answer::Leaving.encode(guest.outgoing.bytes());
                let _ = guest.outgoing.push(&guest.socket);
            }
        }
    }

    fn tell_of_releases(&mut self) {
        let guests = &mut self.guests;
        self.home.releases.tell(|place| {
            let mut told = 0;
            for guest in guests.iter_mut() {
                if guest.imported.remove(&place) {
                    guest.released.insert(place);
                    Answer::Released(place).encode(guest.outgoing.bytes());
                    let _ = guest.outgoing.push(&guest.socket);
                    told += 1;
                }
            }
            told
        });
    }

    fn serve(&mut self) {
        let home = self.home;
        self.guests.retain_mut(|guest| {
            let ended = stream::pull(&guest.socket, &mut guest.incoming).is_err();
            // What came before the end counts.
            let sense = guest.serve(home);
            if sense.is_err() {
                tracing::warn!("a process has sent what no peer sends: its stream is closed");
            }
            let stays = sense.is_ok() && !ended && guest.outgoing.push(&guest.socket).is_ok();
            if !stays {
                for place in guest.released.drain() {
                    home.releases.forgotten(place);
                }
            }
            stays
        });
    }

    fn take_answers(&mut self) {
        let home = self.home;
        self.hosts.retain_mut(|host| {
            host.link.push();
            let ended = stream::pull(host.link.socket(), &mut host.incoming).is_err();
            let taken = host.link.take(&mut host.incoming);
            let lost = ended || taken.is_err();
            if lost {
                host.link.bury();
            }
            if lost || taken.is_ok_and(|news| news) {
                home.registered.bell().ring_if_heard();
            }
            !lost
        });
    }
}

impl Guest {
    /// Carries out what has come whole. Errors: he makes no sense, or does not know the secret.
    fn serve(&mut self, home: &Home) -> Result<(), wire::Malformed> {
        let mut at = 0;
        if !self.known {
            let Some(said) = self.incoming.first_chunk::<HELLO>() else {
                return Ok(());
            };
            if *said != stream::hello(&home.listener.secret) {
                return Err(wire::Malformed);
            }
            self.known = true;
            at = HELLO;
        }
        while let Some((message, len)) = wire::first_message(&self.incoming[at..])? {
            let request = Request::decode(message)?;
            at += len;
            if let Request::Forgotten { place } = request {
                if self.released.remove(&place) {
                    home.releases.forgotten(place);
                }
                continue;
            }
            let answer = home.registered.serve(&request);
            answer.encode(self.outgoing.bytes());
            if let (Request::Import { place }, Answer::Done(_)) = (request, answer) {
                self.imported.insert(place);
            }
        }
        self.incoming.drain(..at);
        Ok(())
    }
}
