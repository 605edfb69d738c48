//! Tests of the streams. Played processes send the messages of a test, or none.

mod hosts;
mod lost;
mod peers;
mod strangers;
mod waits;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unipgas_core::agent::{Answer, RegisteredPlace, Request};
use unipgas_core::op::{GetRequest, PutRequest};
use unipgas_core::region::Memory;
use unipgas_core::streams::StreamTransport;
use unipgas_core::streams::envelope::{self, RequestHeader};
use unipgas_core::streams::greeting::{HELLO, greeted, greeting};
use unipgas_core::transport::{Channel, Peer, Transport};
use unipgas_core::{Deadline, Flags, Local, Outcome, RemoteRegion, Result, Rights};

use crate::stream::{self, Listener};
use crate::{SocketStreams, StreamsOptions};

const LEN: usize = 4096;
/// Place of the only region of a played process.
const PLACE: RegisteredPlace = RegisteredPlace {
    slot: 3,
    generation: 5,
    offset: 0,
};
/// Limit for events that must happen. It only ends a test that hangs.
const LIMIT_SECONDS: i64 = 60;

/// Waits until `socket` is readable.
fn await_input(socket: impl AsFd) {
    let limit = Timespec {
        tv_sec: LIMIT_SECONDS,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(&socket, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "nothing comes");
}

/// A complete process.
struct Node {
    channel: Box<dyn Channel>,
    memory: Box<dyn Memory>,
    transport: StreamTransport<SocketStreams>,
}

impl Node {
    fn open(options: StreamsOptions) -> Node {
        let transport = SocketStreams::open(options, None).unwrap();
        Node {
            channel: transport.open_channel().unwrap(),
            memory: transport.allocate(LEN, Rights::FULL).unwrap(),
            transport,
        }
    }

    /// Two processes with the default options.
    fn two() -> (Node, Node) {
        let open = || Node::open(StreamsOptions::default());
        (open(), open())
    }

    fn connect(&self, address: &[u8]) -> Arc<dyn Peer> {
        self.transport.connect(address).unwrap()
    }

    fn import(&self, other: &Node) -> RemoteRegion {
        let peer = self.connect(&other.transport.address());
        peer.import(&other.memory.key(), Deadline::Never).unwrap()
    }

    fn local(&self) -> Local {
        Local::unregistered(self.memory.base())
    }

    fn try_put(
        &self,
        region: &RemoteRegion,
        len: usize,
        flags: Flags,
        context: u64,
    ) -> Result<Outcome> {
        assert!(len <= self.memory.len());
        let put = PutRequest::new(self.local(), region.at(0), len);
        // SAFETY:
        // - contract of `Channel::put`: the memory has `len` bytes, and stays mapped until the transport is dropped, which ends all operations.
        unsafe { self.channel.put(&put, flags, context) }
    }

    fn put(&self, region: &RemoteRegion, len: usize, flags: Flags, context: u64) {
        let posted = self.try_put(region, len, flags, context);
        assert_eq!(posted, Ok(Outcome::Pending));
    }

    fn get(&self, region: &RemoteRegion, len: usize, context: u64) {
        assert!(len <= self.memory.len());
        let from = region.at(0);
        // SAFETY:
        // - as for `put`.
        let posted = unsafe {
            self.channel.get(
                &GetRequest::new(self.local(), from, len),
                Flags::empty(),
                context,
            )
        };
        assert_eq!(posted, Ok(Outcome::Pending));
    }

    /// Context and result of the next completion.
    fn next_end(&self) -> (u64, Result<()>) {
        let mut next = None;
        let limit = Deadline::after(Duration::from_secs(LIMIT_SECONDS as u64));
        while next.is_none() {
            assert!(!limit.expired(), "nothing ends");
            self.channel.poll(&mut |end| {
                assert!(next.is_none(), "one at a time");
                next = Some((end.context, end.result));
            });
            std::thread::yield_now();
        }
        next.expect("there is one")
    }

    /// Checks that this process reaches the owner of `region`.
    fn reaches(&self, region: &RemoteRegion) {
        self.put(region, 8, Flags::ORDERED, 0);
        assert_eq!(self.next_end(), (0, Ok(())));
    }
}

/// The test's end of a stream.
struct End {
    socket: OwnedFd,
    incoming: Vec<u8>,
}

impl End {
    /// Connects to `node` without a greeting. Also returns the greeting that a peer would send.
    fn silent(node: &impl Listens) -> (End, [u8; HELLO]) {
        let own = Listener::open(false).unwrap().address;
        let (socket, secret) = stream::reach(&node.address()).unwrap();
        let incoming = Vec::new();
        (End { socket, incoming }, greeting(&secret, &own))
    }

    /// Connects to `node` with a greeting.
    fn greeted(node: &impl Listens) -> End {
        let (end, greeting) = End::silent(node);
        end.say(&greeting);
        end
    }

    fn say(&self, bytes: &[u8]) {
        assert_eq!(stream::push(&self.socket, bytes), Ok(bytes.len()));
    }

    fn ask(&self, number: u64, request: &Request<'_>) {
        let head = RequestHeader {
            number,
            channel: 1,
            ordered: 0,
        };
        let mut bytes = Vec::new();
        envelope::frame(&mut bytes, head, |into| request.encode(into)).unwrap();
        self.say(&bytes);
    }

    fn answer(&self, number: u64, answer: &Answer) {
        let mut bytes = Vec::new();
        envelope::frame(&mut bytes, number, |into| answer.encode(into)).unwrap();
        self.say(&bytes);
    }

    /// The next message and its head.
    fn next<H: bytemuck::Pod>(&mut self) -> (H, Vec<u8>) {
        let mut ended = Ok(());
        loop {
            let whole = envelope::first::<H>(&self.incoming).unwrap();
            if let Some((head, message, len)) = whole {
                let message = message.to_vec();
                self.incoming.drain(..len);
                return (head, message);
            }
            ended.expect("a whole message");
            await_input(&self.socket);
            ended = stream::pull(&self.socket, &mut self.incoming);
        }
    }

    /// The answer to the only request in progress, which has this number.
    fn next_answer(&mut self, number: u64) -> Answer {
        let (head, message) = self.next::<u64>();
        assert_eq!(head, number);
        Answer::decode(&message).unwrap().0
    }

    /// Waits until the other end is closed.
    fn await_end(mut self) {
        while stream::pull(&self.socket, &mut self.incoming).is_ok() {
            await_input(&self.socket);
        }
    }

    /// Checks that the node serves this peer.
    fn check_served(&mut self) {
        let place = RegisteredPlace { slot: 99, ..PLACE };
        self.ask(7, &Request::Import { place });
        assert!(matches!(self.next_answer(7), Answer::Failed(_)));
    }
}

/// A process that played peers can connect to.
trait Listens {
    fn address(&self) -> Vec<u8>;
}

impl Listens for Node {
    fn address(&self) -> Vec<u8> {
        self.transport.address()
    }
}

/// A played process that accepts connections.
struct Played(Listener);

impl Played {
    fn open(tcp: bool) -> Played {
        Played(Listener::open(tcp).unwrap())
    }

    /// Accepts the next connection, and checks its greeting.
    fn accept(&self) -> End {
        await_input(&self.0.socket);
        let mut end = End {
            socket: self.0.accept().unwrap().expect("somebody"),
            incoming: Vec::new(),
        };
        while end.incoming.len() < HELLO {
            await_input(&end.socket);
            stream::pull(&end.socket, &mut end.incoming).unwrap();
        }
        let said = end.incoming.first_chunk().expect("as long");
        assert!(greeted(said, &self.0.secret).is_some());
        end.incoming.drain(..HELLO);
        end
    }

    /// Key of its region.
    fn key() -> Vec<u8> {
        let mut key = Vec::new();
        key.extend(PLACE.slot.to_le_bytes());
        key.extend(PLACE.generation.to_le_bytes());
        key
    }

    /// Its answer to an import of the region.
    fn told(len: usize) -> Answer {
        let mut told = (len as u64).to_le_bytes().to_vec();
        told.extend(Rights::FULL.bits().to_le_bytes());
        Answer::Done(told)
    }

    /// Lets `node` import its region.
    fn known_to(&self, node: &Node, len: usize) -> (RemoteRegion, End) {
        let peer = node.connect(&self.0.address);
        std::thread::scope(|scope| {
            let import = scope.spawn(|| peer.import(&Played::key(), Deadline::Never));
            let mut end = self.accept();
            let number = end.next_import();
            end.answer(number, &Played::told(len));
            (import.join().unwrap().unwrap(), end)
        })
    }
}

impl End {
    /// The number of the next request, which must import the played region.
    fn next_import(&mut self) -> u64 {
        let (head, message) = self.next::<RequestHeader>();
        assert_eq!(
            Request::decode(&message),
            Ok(Request::Import { place: PLACE })
        );
        head.number
    }
}
