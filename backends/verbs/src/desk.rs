//! Where connections begin: a port of TCP, by which both sides tell each other their queue pairs. The kernel of a process's host answers there also for one that has
//! stopped, and refuses who connects where it has ended. The socket stays while the connection does: when a process ends, however that is, its kernel says so. Where descriptors are few
//! it goes before, and the device finds out.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, accept_with, bind, connect, getsockname, listen, send, sockopt};
use rustix::process::{Resource, getrlimit};
use slab::Slab;
use unipgas_core::descriptor::{SOCKET, above, tcp_socket};
use unipgas_core::held::Held;
use unipgas_core::streams::Accepted;
use unipgas_core::streams::greeting::padded;
use unipgas_core::{Error, Result};

use crate::address::Address;
use crate::connection::Connection;
use crate::net::Net;
use crate::wire::{self, Answer, MAGIC, Opening, PROTOCOL};

/// The kernel cuts it to what it allows.
const BACKLOG: i32 = 4096;
/// Those who have connected and said nothing; whoever comes after so many takes the place of the first.
const STRANGERS: usize = 512;
/// Sockets of open connections that go together where there is no descriptor left.
const TOGETHER: usize = 16;
/// What is read at once.
const READ: usize = 256;
const LISTENER: u64 = u64::MAX;
/// In the parameters of events: where a contact is, and above it a number of its own.
const PLACES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This process has knocked, and the other's kernel has not answered.
    Knocking,
    /// This process has said its opening.
    Asking,
    /// Somebody has come, and has not said his opening.
    Hearing,
    /// He has been answered.
    Answered,
    /// The connection is open.
    Open,
}

struct Contact {
    socket: Held,
    connection: Option<Arc<Connection>>,
    state: State,
    said: Vec<u8>,
    own: u32,
}

#[derive(Default)]
struct Contacts {
    all: Slab<Contact>,
    count: u32,
}

/// The port, and whoever is there.
pub struct Desk {
    listener: Held,
    events: OwnedFd,
    contacts: Mutex<Contacts>,
    /// Those that are not open yet.
    busy: AtomicUsize,
    /// Somebody has come for whom there is no descriptor.
    full: AtomicBool,
    /// Where peers connect.
    pub address: SocketAddr,
}

/// A contact is over.
enum Over {
    /// The other side is not there any more, or not any longer.
    Gone,
    /// The connection does not come about.
    Refused(Error),
    /// The connection needs it no more.
    Stays,
}

/// Whether so many descriptors are open that the program might miss those that are left.
fn is_one_of_many(socket: &Held) -> bool {
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

impl Desk {
    /// At any port of this address of the host. Errors: [`Error::Os`].
    pub fn open(ip: IpAddr) -> Result<Self> {
        let any = SocketAddr::new(ip, 0);
        let socket = tcp_socket(&any).map_err(os("socket"))?;
        bind(&socket, &any).map_err(os("bind"))?;
        listen(&socket, BACKLOG).map_err(os("listen"))?;
        let bound = getsockname(&socket).map_err(os("getsockname"))?;
        let address = SocketAddr::try_from(bound).map_err(os("getsockname"))?;
        let events = above(|| epoll::create(epoll::CreateFlags::CLOEXEC));
        let events = events.map_err(os("epoll_create"))?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&events, &socket, data, epoll::EventFlags::IN).map_err(os("epoll_ctl"))?;
        Ok(Desk {
            listener: Held::new(socket),
            events,
            contacts: Mutex::default(),
            busy: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            address,
        })
    }

    /// Whether any connection is beginning.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Begins to connect. Errors: [`Error::PeerDead`], [`Error::Unreachable`], [`Error::Os`].
    pub fn knock(&self, new: &Arc<Connection>) -> Result<()> {
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
        self.meet(socket, Some(new.clone()), State::Knocking, flags)
    }

    fn meet(
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
            socket: Held::new(socket),
            connection,
            state,
            said: Vec::new(),
            own,
        });
        self.busy.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// That of the connection with this number goes.
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

    /// Connections that are open can do without their sockets. Whether there were any.
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

    /// Whether a turn is to begin when somebody comes.
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

    /// Errors: [`Error::Exhausted`]: there is no descriptor for somebody who has come.
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
            // The child of a fork may have it still.
            let _ = epoll::delete(&self.events, socket);
        }
    }

    /// Does what there is to do, without waiting. Gives the connections whose other side is not there any more.
    pub fn attend(&self, net: &Net) -> Vec<Arc<Connection>> {
        let mut lost = Vec::new();
        let mut events = Vec::with_capacity(64);
        let now = Some(&Timespec::default());
        let room = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.events, room, now).is_err() {
            return lost;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.admit(),
                data => self.go_on(net, data, &mut lost),
            }
        }
        lost
    }

    /// Takes those who have connected.
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
            if let Err(error) = self.meet(socket, None, State::Hearing, flags) {
                tracing::warn!("verbs: a process that has connected is let go: {error}");
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

    fn go_on(&self, net: &Net, data: u64, lost: &mut Vec<Arc<Connection>>) {
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
                // Who has come may have gone for another reason.
                if before != State::Open && connection.begun_here {
                    (net.departed).add(connection.with.secret, false, Error::PeerDead);
                }
            }
            Over::Refused(why) => connection.is_refused(why),
            Over::Stays => return,
        }
        lost.push(connection);
    }
}

impl AsFd for Desk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Why the kernel does not connect.
fn no_way(to: &Connection, error: Errno) -> Error {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => Error::PeerDead,
        error => Error::Unreachable(format!("no way leads to {}: {error}", to.with.door)),
    }
}

impl Contact {
    fn go_on(&mut self, net: &Net, events: &OwnedFd, data: u64) -> Result<(), Over> {
        if self.state == State::Knocking {
            return self.begin(net, events, data);
        }
        let over = self.read();
        let before = self.state;
        match self.state {
            State::Asking => self.hear_answer(net)?,
            State::Hearing => self.hear_opening(net)?,
            State::Answered if self.said.first() == Some(&wire::READY) => {
                self.said.remove(0);
                self.opens(net);
            }
            State::Answered => self.said.clear(),
            State::Knocking | State::Open => {}
        }
        if self.state == State::Open {
            if self.said.contains(&wire::STAYS) {
                return Err(Over::Stays);
            }
            self.said.clear();
            if before != State::Open && over.is_ok() && is_one_of_many(&self.socket) {
                self.say(&[wire::STAYS])?;
                return Err(Over::Stays);
            }
        }
        over
    }

    fn read(&mut self) -> Result<(), Over> {
        let mut bytes = [0; READ];
        loop {
            let socket = self.socket.get().ok_or(Over::Gone)?;
            match rustix::io::read(socket, &mut bytes) {
                Ok(0) => return Err(Over::Gone),
                Ok(count) => self.said.extend_from_slice(&bytes[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over::Gone),
            }
            if self.said.len() > READ {
                return Err(Over::Gone);
            }
        }
    }

    fn say(&self, bytes: &[u8]) -> Result<(), Over> {
        let socket = self.socket.get().ok_or(Over::Gone)?;
        // A few bytes, to a socket that has never had any.
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(Over::Gone),
        }
    }

    /// Takes what has come whole.
    fn said<T: Pod>(&mut self) -> Option<T> {
        let whole = self.said.get(..size_of::<T>())?;
        let said = pod_read_unaligned(whole);
        self.said.drain(..size_of::<T>());
        Some(said)
    }

    /// The other's kernel has answered.
    fn begin(&mut self, net: &Net, events: &OwnedFd, data: u64) -> Result<(), Over> {
        let connection = self.connection.clone().ok_or(Over::Gone)?;
        let socket = self.socket.get().ok_or(Over::Gone)?;
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(match no_way(&connection, error) {
                    Error::PeerDead => Over::Gone,
                    why => Over::Refused(why),
                });
            }
            Err(_) => return Err(Over::Gone),
        }
        connection.answers();
        let mut opening = Opening {
            magic: MAGIC,
            protocol: PROTOCOL,
            len: net.address.len() as u16,
            ends: net.own_end(&connection),
            secret: connection.with.secret,
            ..Opening::zeroed()
        };
        opening.address[..net.address.len()].copy_from_slice(&net.address);
        self.say(bytes_of(&opening))?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let data = epoll::EventData::new_u64(data);
        epoll::modify(events, socket, data, flags).map_err(|_| Over::Gone)?;
        self.state = State::Asking;
        Ok(())
    }

    fn hear_answer(&mut self, net: &Net) -> Result<(), Over> {
        let Some(answer) = self.said::<Answer>() else {
            return Ok(());
        };
        let connection = self.connection.clone().ok_or(Over::Gone)?;
        let door = connection.with.door;
        let refuse = |why: String| Err(Over::Refused(Error::Unreachable(why)));
        if answer.magic != MAGIC {
            return refuse(format!("what listens at {door} is not unipgas"));
        }
        match answer.verdict {
            wire::ACCEPTED => {}
            wire::STRANGER => {
                return refuse(format!(
                    "the process at {door} does not know the peer's secret: it is of another job"
                ));
            }
            wire::OTHER_LINK => {
                return refuse(format!(
                    "the process at {door} uses a port of another kind (InfiniBand or Ethernet): set UNIPGAS_VERBS_DEVICE"
                ));
            }
            wire::FULL => {
                return refuse(format!(
                    "the process at {door} has no room for another connection: a limit of its device is reached, or of memory that may be locked (ulimit -l)"
                ));
            }
            _ => {
                return refuse(format!(
                    "the process at {door} has another release of unipgas: install one release on all hosts"
                ));
            }
        }
        let own = net.own_end(&connection);
        (connection.pair)
            .connect(&net.port, &own, &answer.ends)
            .map_err(Over::Refused)?;
        connection.expects(answer.ends.credits);
        connection.is_ready();
        self.say(&[wire::READY])?;
        self.state = State::Open;
        net.call(&connection);
        Ok(())
    }

    fn hear_opening(&mut self, net: &Net) -> Result<(), Over> {
        let Some(opening) = self.said::<Opening>() else {
            return Ok(());
        };
        if opening.magic != MAGIC {
            return Err(Over::Gone);
        }
        let refuse = |verdict: u16| {
            let answer = Answer {
                magic: MAGIC,
                protocol: PROTOCOL,
                verdict,
                ..Answer::zeroed()
            };
            let _ = self.say(bytes_of(&answer));
            Err(Over::Gone)
        };
        if opening.protocol != PROTOCOL {
            return refuse(wire::OTHER_VERSION);
        }
        if opening.secret != net.secret {
            tracing::warn!("verbs: a process that does not know this one's secret is refused");
            return refuse(wire::STRANGER);
        }
        if opening.ends.ethernet != u8::from(net.port.ethernet) {
            return refuse(wire::OTHER_LINK);
        }
        let address = opening.address.get(..usize::from(opening.len));
        let Some(with) = address.and_then(Address::decode) else {
            return refuse(wire::OTHER_VERSION);
        };
        let begun = net.begin(with, false).and_then(|new| {
            let own = net.own_end(&new);
            match new.pair.connect(&net.port, &own, &opening.ends) {
                Ok(()) => Ok((new, own)),
                Err(error) => {
                    net.remove(&new);
                    Err(error)
                }
            }
        });
        let (new, ends) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tracing::warn!("verbs: a process that connects is refused: {error}");
                return refuse(wire::FULL);
            }
        };
        let answer = Answer {
            magic: MAGIC,
            protocol: PROTOCOL,
            verdict: wire::ACCEPTED,
            ends,
        };
        self.connection = Some(new.clone());
        new.expects(opening.ends.credits);
        self.say(bytes_of(&answer))?;
        self.state = State::Answered;
        Ok(())
    }

    /// Both sides are connected: what the other one began.
    fn opens(&mut self, net: &Net) {
        self.state = State::Open;
        if let Some(connection) = &self.connection {
            connection.is_ready();
            // What has come before.
            connection.has_read(net, 0, 0);
            let address = connection.with.encode();
            net.is_accepted(Accepted {
                stream: connection.clone(),
                known: Some(padded(&address)),
            });
        }
    }
}
