//! The begin of connections: a TCP port, over which both sides exchange their queue pair data. The kernel of the host answers at the port also for a stopped
//! process, and refuses connections after the process has ended. The socket stays open with the connection: the kernel closes it at any end of the
//! process. If descriptors are scarce, the socket is closed early, and the device detects the end.

pub(crate) mod contact;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{accept_with, connect, sockopt};
use rustix::process::{Resource, getrlimit};
use slab::Slab;
use unipgas_core::descriptor::{SOCKET, above, ready, tcp_listener, tcp_socket};
use unipgas_core::fork_closed_fd::ForkClosedFd;
use unipgas_core::{Error, Result};

use crate::connection::Connection;
use crate::net::VerbsNet;
use crate::wire;
use contact::{Contact, Over, State, no_way};

/// The kernel reduces it to its limit.
const BACKLOG: i32 = 4096;
/// Maximum peers that have connected without an opening. One more replaces the oldest.
const STRANGERS: usize = 512;
/// Sockets of open connections to close at once if no descriptor is left.
const TOGETHER: usize = 16;
/// Events that are handled at once.
const AT_ONCE: usize = 64;
const LISTENER: u64 = u64::MAX;
/// Shift in the data of events: the contact's number is above its place in the table.
const PLACES: u64 = 32;

#[derive(Default)]
struct Contacts {
    all: Slab<Contact>,
    count: u32,
}

/// The port and its contacts.
pub(crate) struct Acceptor {
    listener: ForkClosedFd,
    events: OwnedFd,
    contacts: Mutex<Contacts>,
    /// Contacts that are not open yet.
    busy: AtomicUsize,
    /// A peer waits in the backlog, because no descriptor is free.
    full: AtomicBool,
    /// Address for peers.
    pub address: SocketAddr,
}

/// Whether the socket's descriptor is so high that the program may soon lack descriptors.
fn is_one_of_many(socket: &ForkClosedFd) -> bool {
    let most = getrlimit(Resource::Nofile).current;
    let number = socket.get().map_or(0, |fd| fd.as_raw_fd() as u64);
    most.is_some_and(|most| number >= most / 2)
}

fn is_want_of_descriptors(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}

fn os(what: &str) -> impl Fn(Errno) -> Error {
    move |error| Error::os(what, error)
}

impl Acceptor {
    /// Listens on any port of this host address. Errors: [`Error::Os`].
    pub fn open(ip: IpAddr) -> Result<Self> {
        let (socket, address) = tcp_listener(ip, BACKLOG)?;
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let events = events.map_err(os("epoll_create"))?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&events, &socket, data, epoll::EventFlags::IN).map_err(os("epoll_ctl"))?;
        Ok(Acceptor {
            listener: ForkClosedFd::new(socket),
            events,
            contacts: Mutex::default(),
            busy: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            address,
        })
    }

    /// Whether connections are beginning.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Begins to connect. Errors: [`Error::PeerDead`], [`Error::Unreachable`], [`Error::Os`].
    pub fn connect(&self, new: &Arc<Connection>) -> Result<()> {
        let mut socket = tcp_socket(&new.with.door);
        if socket
            .as_ref()
            .is_err_and(|error| is_want_of_descriptors(*error))
            && self.let_some_go()
        {
            socket = tcp_socket(&new.with.door);
        }
        let socket = socket.map_err(os("socket"))?;
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match connect(&socket, &new.with.door) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(no_way(new, error)),
        }
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
        self.add(socket, Some(new.clone()), State::Knocking, flags)
    }

    fn add(
        &self,
        socket: OwnedFd,
        connection: Option<Arc<Connection>>,
        state: State,
        flags: epoll::EventFlags,
    ) -> Result<()> {
        let contacts = &mut *self.contacts.lock();
        contacts.count = contacts.count.wrapping_add(1);
        let own = contacts.count;
        let entry = contacts.all.vacant_entry();
        let data = u64::from(own) << PLACES | entry.key() as u64;
        let data = epoll::EventData::new_u64(data);
        epoll::add(&self.events, &socket, data, flags).map_err(os("epoll_ctl"))?;
        entry.insert(Contact {
            socket: ForkClosedFd::new(socket),
            connection,
            state,
            said: Vec::new(),
            own,
        });
        self.busy.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Closes the contact of the connection with this number.
    pub fn forget(&self, number: u32) {
        let contacts = &mut *self.contacts.lock();
        let of_it = |contact: &Contact| {
            let connection = contact.connection.as_ref();
            connection.is_some_and(|one| one.number == number)
        };
        let found = contacts.all.iter().find(|(_, contact)| of_it(contact));
        if let Some(place) = found.map(|(place, _)| place) {
            self.dismiss(contacts, place);
        }
    }

    /// Closes sockets of open connections, which can do without. False: there were none.
    fn let_some_go(&self) -> bool {
        let contacts = &mut *self.contacts.lock();
        let open = contacts
            .all
            .iter()
            .filter(|(_, contact)| contact.state == State::Open);
        let some: Vec<usize> = open.map(|(place, _)| place).take(TOGETHER).collect();
        for place in &some {
            let _ = contacts.all[*place].say(&[wire::STAYS]);
            self.dismiss(contacts, *place);
        }
        !some.is_empty()
    }

    /// Whether a new contact causes a turn.
    pub fn want_strangers(&self, wanted: bool) {
        let flags = match wanted {
            true => epoll::EventFlags::IN,
            false => epoll::EventFlags::empty(),
        };
        if let Some(listener) = self.listener.get() {
            let data = epoll::EventData::new_u64(LISTENER);
            let _ = epoll::modify(&self.events, listener, data, flags);
        }
    }

    /// Errors: [`Error::Exhausted`]: no descriptor is free for a waiting peer.
    pub fn has_room(&self) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            self.admit();
        }
        match self.full.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Exhausted("descriptors: raise ulimit -n".into())),
        }
    }

    fn dismiss(&self, contacts: &mut Contacts, place: usize) {
        let contact = contacts.all.remove(place);
        if contact.state != State::Open {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(socket) = contact.socket.get() {
            // The child of a fork may still have the socket.
            let _ = epoll::delete(&self.events, socket);
        }
    }

    /// Handles all events, without a wait. Returns connections with a lost peer.
    pub fn attend(&self, net: &VerbsNet) -> Vec<Arc<Connection>> {
        let mut lost = Vec::new();
        let mut room = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        for data in ready(&self.events, &mut room) {
            match data {
                LISTENER => self.admit(),
                data => self.go_on(net, data, &mut lost),
            }
        }
        lost
    }

    /// Accepts waiting peers.
    fn admit(&self) {
        self.full.store(false, Ordering::Relaxed);
        while let Some(listener) = self.listener.get() {
            let socket = match above(|| accept_with(listener, SOCKET)) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) if is_want_of_descriptors(error) => {
                    if self.let_some_go() {
                        continue;
                    }
                    self.full.store(true, Ordering::Relaxed);
                    return;
                }
                Err(_) => return,
            };
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if let Err(error) = self.add(socket, None, State::Hearing, flags) {
                tracing::warn!("verbs: a connection is closed: {error}");
            }
            self.dismiss_strangers();
        }
    }

    fn dismiss_strangers(&self) {
        let contacts = &mut *self.contacts.lock();
        let silent = |contact: &&Contact| contact.state == State::Hearing;
        let all = contacts.all.iter().filter(|(_, contact)| silent(contact));
        if all.clone().count() > STRANGERS
            && let Some((place, _)) = all.min_by_key(|(_, contact)| contact.own)
        {
            self.dismiss(contacts, place);
        }
    }

    fn go_on(&self, net: &VerbsNet, data: u64, lost: &mut Vec<Arc<Connection>>) {
        let place = (data & ((1 << PLACES) - 1)) as usize;
        let contacts = &mut *self.contacts.lock();
        let Some(contact) = contacts.all.get_mut(place) else {
            return;
        };
        if u64::from(contact.own) != data >> PLACES {
            return;
        }
        let before = contact.state;
        let over = contact.go_on(net, &self.events, data).err();
        if before != State::Open && contact.state == State::Open {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
        let Some(over) = over else {
            return;
        };
        let connection = contact.connection.clone();
        self.dismiss(contacts, place);
        let Some(connection) = connection else {
            return;
        };
        match over {
            Over::Gone => {
                // An inbound peer may have closed the socket for another reason.
                if before != State::Open && connection.begun_here {
                    (net.departed).add(connection.with.secret, false, Error::PeerDead);
                }
            }
            Over::Refused(why) => connection.on_refused(why),
            Over::Stays => return,
        }
        lost.push(connection);
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
