//! Messages over the loopback, plain and with chaos around it: several mailboxes that one thread moves on in turn.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use unipgas_chaos::{Chaos, ChaosConfig};
use unipgas_core::Service;
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::message::{
    Envelope, Mailbox, Mode, Pattern, PeerMailbox, Peers, Precedence, ReceiveTicket, Received,
    SendTicket, Shape,
};
use unipgas_core::transport::Transport;
use unipgas_core::{Address, Engine, Error, RegionKey, Result};

/// Addresses, indexed by number.
type Book = Arc<Mutex<Vec<(Address, RegionKey)>>>;

struct Known {
    engine: Arc<Engine>,
    me: u32,
    book: Book,
}

impl Peers for Known {
    fn find(&self, peer: u32) -> Result<PeerMailbox> {
        let (address, key) = self.book.lock()[peer as usize];
        let connection = self.engine.connect(&address)?;
        Ok(PeerMailbox {
            region: connection.import(&key)?,
            connection,
            lane: self.me,
            first: None,
        })
    }
}

struct Node {
    engine: Arc<Engine>,
    mailbox: RefCell<Mailbox>,
}

struct Office(Vec<Node>);

const SMALL: Shape = Shape {
    peers: 4,
    more: 0,
    lines: 4,
    data: 4096,
};

fn shape(peers: usize) -> Shape {
    Shape {
        peers,
        lines: 32,
        data: 256 << 10,
        ..SMALL
    }
}

impl Office {
    fn open(shape: Shape, seed: Option<u64>) -> Self {
        let net = Arc::new(LoopbackNet::default());
        let book = Book::default();
        let nodes = (0..shape.peers as u32).map(|me| {
            let mut transport: Arc<dyn Transport> = Arc::new(Loopback::join(&net));
            if let Some(seed) = seed {
                let config = ChaosConfig::seeded(seed.wrapping_mul(31) + u64::from(me));
                transport = Arc::new(Chaos::wrap(transport, config));
            }
            let engine = Arc::new(Engine::new(vec![transport]).unwrap());
            let known = Arc::new(Known {
                engine: engine.clone(),
                me,
                book: book.clone(),
            });
            let mailbox = Mailbox::new(&engine, shape, Precedence::Posted, known).unwrap();
            let entry = (engine.address().unwrap(), mailbox.key());
            book.lock().push(entry);
            Node {
                engine,
                mailbox: RefCell::new(mailbox),
            }
        });
        Office(nodes.collect())
    }

    fn progress(&self) {
        for node in &self.0 {
            node.mailbox.borrow_mut().progress(&node.engine);
        }
    }

    fn until<T>(&self, mut poll: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(value) = poll() {
                return value;
            }
            assert!(begin.elapsed() < Duration::from_secs(600), "stuck");
            self.progress();
        }
    }

    fn send(&self, from: u32, to: u32, tag: u64, bytes: &[u8], mode: Mode) -> Option<SendTicket> {
        let node = &self.0[from as usize];
        // SAFETY:
        // - the tests keep their bytes until they have seen the end.
        unsafe {
            node.mailbox.borrow_mut().send(
                &node.engine,
                to,
                about(tag),
                (bytes.as_ptr(), bytes.len()),
                mode,
                tag % 2 == 1,
            )
        }
        .unwrap()
    }

    fn sent(&self, from: u32, ticket: Option<SendTicket>) {
        if let Some(ticket) = ticket {
            let mailbox = &self.0[from as usize].mailbox;
            self.until(|| mailbox.borrow_mut().test_send(ticket))
                .unwrap();
        }
    }

    /// Receives into a buffer with a margin that must stay as it is.
    fn receive(&self, at: u32, pattern: Pattern, capacity: usize) -> (Received, Vec<u8>) {
        let mut buffer = vec![0xee; capacity + 64];
        let mailbox = &self.0[at as usize].mailbox;
        // SAFETY:
        // - kept until the receive has ended, just below.
        let ticket = unsafe {
            mailbox
                .borrow_mut()
                .receive(pattern, buffer.as_mut_ptr(), capacity)
        };
        let received = self
            .until(|| mailbox.borrow_mut().test_receive(ticket))
            .unwrap();
        assert!(buffer[capacity..].iter().all(|byte| *byte == 0xee));
        buffer.truncate(received.len.min(capacity));
        (received, buffer)
    }
}

fn about(tag: u64) -> Envelope {
    Envelope {
        context: 3,
        tag,
        extra: tag ^ 0x55,
    }
}

fn from(source: impl Into<Option<u32>>) -> Pattern {
    Pattern::from(source.into(), 3)
}

fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ salt.wrapping_mul(151)) as u8)
        .collect()
}

/// Without chaos, and under some seeds.
fn everywhere(test: impl Fn(Option<u64>)) {
    test(None);
    for seed in 1..=8 {
        test(Some(seed));
    }
}

#[test]
fn small_lanes_hold_back_what_has_no_room_and_lose_nothing() {
    everywhere(|seed| {
        let office = Office::open(SMALL, seed);
        let messages: Vec<_> = (0..300u64)
            .map(|tag| bytes((tag as usize * 97) % 3000, tag))
            .collect();
        let tickets: Vec<_> = messages
            .iter()
            .zip(0..)
            .map(|(message, tag)| office.send(2, 1, tag, message, Mode::Buffered))
            .collect();
        for (message, tag) in messages.iter().zip(0..) {
            let (received, got) = office.receive(1, from(None), 3000);
            assert_eq!(received.envelope, about(tag), "seed {seed:?}");
            assert!(got == *message);
        }
        for ticket in tickets {
            office.sent(2, ticket);
        }
    });
}

#[test]
fn what_needs_a_lost_peer_ends() {
    let office = Office::open(shape(3), None);
    let message = bytes(100_000, 1);
    let long = office.send(0, 1, 0, &message, Mode::Buffered).unwrap();
    let other = office.send(0, 2, 0, &message, Mode::Buffered).unwrap();
    let mut buffer = [0u8; 8];
    let mailbox = &office.0[0].mailbox;
    // SAFETY:
    // - the buffer outlives the office's use of it: both end below.
    let [gone, open] = [Some(1), None].map(|source| unsafe {
        mailbox
            .borrow_mut()
            .receive(from(source), buffer.as_mut_ptr(), 8)
    });
    mailbox.borrow_mut().bury(1);
    let mut mine = mailbox.borrow_mut();
    assert_eq!(mine.test_send(long), Some(Err(Error::PeerDead)));
    assert_eq!(mine.test_receive(gone), Some(Err(Error::PeerDead)));
    assert_eq!(mine.test_send(other), None);
    assert_eq!(mine.test_receive(open), None);
    assert!(mine.cancel_receive(open));
}

/// A small generator, so that seeds repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn traffic_at_random_arrives_once_whole_and_in_order() {
    for seed in 0..40u64 {
        let chaos = (seed % 2 == 1).then_some(seed);
        let shape = if seed % 3 == 0 { SMALL } else { shape(4) };
        let office = Office::open(shape, chaos);
        let mut dice = Dice(seed + 1);
        let mut sends = Vec::new();
        let mut receives: Vec<(usize, ReceiveTicket, u64, Vec<u8>, u64)> = Vec::new();
        // Numbers of sent and received messages for each source, target and tag.
        let mut counts: HashMap<(u32, u32, u64), (u64, u64)> = HashMap::new();
        let mut pending = [0u64; 4];
        let mut to_go = 400;
        // The message of each receive, in posting order.
        let mut posted = 0u64;
        let mut got: HashMap<(u32, u32, u64), BTreeMap<u64, u64>> = HashMap::new();
        let begin = Instant::now();
        while to_go + pending.iter().sum::<u64>() > 0 || !sends.is_empty() || !receives.is_empty() {
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "stuck, seed {seed}"
            );
            if to_go > 0 && dice.below(3) > 0 {
                to_go -= 1;
                let (source, target) = (dice.below(4) as u32, dice.below(4) as u32);
                let tag = dice.below(3);
                let count = &mut counts.entry((source, target, tag)).or_default().0;
                let len = match dice.below(5) {
                    0 => dice.below(33),
                    1..=3 => dice.below(3000),
                    _ => dice.below(150_000),
                };
                let mut message = bytes(len as usize + 16, seed);
                message[..8].copy_from_slice(&count.to_ne_bytes());
                *count += 1;
                let mode = [Mode::Buffered, Mode::Synchronous][dice.below(2) as usize];
                let ticket = office.send(source, target, tag, &message, mode);
                pending[target as usize] += 1;
                if let Some(ticket) = ticket {
                    sends.push((source, ticket, message));
                }
            }
            let at = dice.below(4) as usize;
            if pending[at] > 0 {
                // One tag at a time, so that each receive will find its message.
                let open = |tag| {
                    let sent: u64 = (0..4)
                        .filter_map(|source| counts.get(&(source, at as u32, tag)))
                        .map(|(sent, got)| sent - got)
                        .sum();
                    let asked = receives
                        .iter()
                        .filter(|(node, _, of, ..)| (*node, *of) == (at, tag))
                        .count();
                    sent > asked as u64
                };
                if let Some(tag) = (0..3).find(|tag| open(*tag)) {
                    pending[at] -= 1;
                    let mut buffer = vec![0u8; 150_016];
                    let pattern = Pattern {
                        tag,
                        ignore: 0,
                        ..from(None)
                    };
                    // SAFETY:
                    // - the buffer is kept beside the ticket.
                    let ticket = unsafe {
                        let mut mailbox = office.0[at].mailbox.borrow_mut();
                        mailbox.receive(pattern, buffer.as_mut_ptr(), buffer.len())
                    };
                    receives.push((at, ticket, tag, buffer, posted));
                    posted += 1;
                }
            }
            office.progress();
            sends.retain(|(node, ticket, _)| {
                let mut mailbox = office.0[*node as usize].mailbox.borrow_mut();
                mailbox.test_send(*ticket).map(Result::unwrap).is_none()
            });
            receives.retain(|(node, ticket, tag, buffer, nth)| {
                let mut mailbox = office.0[*node].mailbox.borrow_mut();
                let Some(received) = mailbox.test_receive(*ticket) else {
                    return true;
                };
                let received = received.unwrap();
                let number = u64::from_ne_bytes(buffer[..8].try_into().unwrap());
                let key = (received.source, *node as u32, *tag);
                let known = counts.get_mut(&key).expect("somebody sent it");
                assert!(number < known.0, "seed {seed}");
                assert_eq!(received.envelope.tag, *tag);
                let wanted = bytes(received.len, seed);
                assert!(buffer[8..received.len] == wanted[8..], "seed {seed}");
                known.1 += 1;
                got.entry(key).or_default().insert(*nth, number);
                false
            });
        }
        for (key, (sent, _)) in counts {
            let numbers: Vec<_> = got.remove(&key).unwrap_or_default().into_values().collect();
            let wanted: Vec<_> = (0..sent).collect();
            assert_eq!(numbers, wanted, "seed {seed}, from, to, tag: {key:?}");
        }
    }
}

#[test]
fn bad_arguments_are_refused() {
    let office = Office::open(shape(2), None);
    let node = &office.0[0];
    // SAFETY:
    // - nothing is sent.
    let sent = unsafe {
        let mut mailbox = node.mailbox.borrow_mut();
        mailbox.send(
            &node.engine,
            2,
            about(0),
            (b"x".as_ptr(), 1),
            Mode::Buffered,
            false,
        )
    };
    assert!(matches!(sent, Err(Error::InvalidArgument(_))));
    let book = Book::default();
    for shape in [
        Shape { peers: 0, ..SMALL },
        Shape { lines: 3, ..SMALL },
        Shape {
            data: 2048,
            ..SMALL
        },
    ] {
        let known = Arc::new(Known {
            engine: node.engine.clone(),
            me: 0,
            book: book.clone(),
        });
        assert!(Mailbox::new(&node.engine, shape, Precedence::Posted, known).is_err());
    }
}

const LANES: Shape = Shape {
    peers: 64,
    more: 63,
    lines: 2,
    data: 4096,
};

/// Every peer is the same mailbox, by another lane.
struct Lanes {
    engine: Arc<Engine>,
    service: Service,
    at: Mutex<Option<(Address, RegionKey)>>,
}

impl Peers for Lanes {
    fn find(&self, peer: u32) -> Result<PeerMailbox> {
        let (address, key) = self.at.lock().expect("set before the first message");
        let connection = self.engine.connect(&address)?;
        let first = connection.import(&key)?;
        PeerMailbox::at(
            connection,
            first,
            LANES,
            peer,
            (&self.engine, &self.service),
        )
    }
}

#[test]
fn lanes_are_made_when_peers_come() {
    let net = Arc::new(LoopbackNet::default());
    let open = || {
        let engine = Arc::new(Engine::new(vec![Arc::new(Loopback::join(&net))]).unwrap());
        let peers = Arc::new(Lanes {
            service: Service::new(&engine).unwrap(),
            engine: engine.clone(),
            at: Mutex::default(),
        });
        let mailbox = Mailbox::new(&engine, LANES, Precedence::Posted, peers.clone()).unwrap();
        (engine, mailbox, peers)
    };
    let ((engine, mut sender, peers), (there, mut receiver, others)) = (open(), open());
    *peers.at.lock() = Some((there.address().unwrap(), receiver.key()));
    *others.at.lock() = Some((engine.address().unwrap(), sender.key()));
    let send = |sender: &mut Mailbox, to: u32, word: &u64| {
        let bytes = (std::ptr::from_ref(word).cast(), 8);
        // SAFETY:
        // - the word stays until the receive has ended.
        unsafe { sender.send(&engine, to, about(1), bytes, Mode::Buffered, false) }
    };
    assert!(
        send(&mut sender, 64, &0).is_err(),
        "there is no lane for the answer"
    );
    for peer in 0..LANES.numbers() as u32 {
        if sender.lanes() <= peer as usize {
            sender.grow(&engine).unwrap();
        }
        let word = u64::from(peer) * 7;
        let sent = send(&mut sender, peer, &word).unwrap();
        let greetings = receiver.greetings();
        receiver.progress(&there);
        // It waits for a lane, which the other one knows.
        assert_eq!(sent.is_some(), receiver.lanes() <= peer as usize);
        if sent.is_some() {
            assert_ne!(
                receiver.greetings(),
                greetings,
                "no report names peer {peer}"
            );
            receiver.grow(&there).unwrap();
            sender.progress(&engine);
        }
        let mut seen = 0u64;
        let place = std::ptr::from_mut(&mut seen).cast();
        // SAFETY:
        // - kept until the receive has ended.
        let ticket = unsafe { receiver.receive(from(peer), place, 8) };
        receiver.progress(&there);
        let received = receiver.test_receive(ticket).expect("a message").unwrap();
        assert_eq!((received.source, seen), (peer, word));
    }
    assert_eq!(receiver.lanes(), 4096);
    assert!(matches!(receiver.grow(&there), Err(Error::Exhausted(_))));
    assert!(send(&mut sender, 4096, &0).is_err());
}
