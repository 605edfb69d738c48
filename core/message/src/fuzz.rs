//! Lines and payloads that a peer has put into a mailbox.

use std::sync::Arc;

use super::layout::{Head, INLINE, Kind, LINE, Line};
use super::state::Offer;
use super::{Envelope, Mailbox, Mode, Pattern, PeerMailbox, Peers, Precedence, Shape};
use unipgas_base::fenced::Fenced;
use unipgas_base::{Result, Rights};
use unipgas_engine::bundle::BUNDLE_LEN;
use unipgas_engine::loopback::{Loopback, LoopbackNet};
use unipgas_engine::{Address, Engine, Region, RegionKey};

const SHAPE: Shape = Shape {
    peers: 2,
    more: 0,
    lines: 8,
    data: 4096,
};

/// A reader: its name, the function, and valid inputs.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[("lines", lines, all_lines)];

/// Bytes of the data ring that are given ahead of the lines.
const AHEAD: usize = 256;
const CAPACITY: usize = 100;

/// The other one.
struct Other {
    engine: Arc<Engine>,
    at: (Address, RegionKey),
}

impl Peers for Other {
    fn find(&self, _: u32) -> Result<PeerMailbox> {
        let connection = self.engine.connect(&self.at.0)?;
        Ok(PeerMailbox {
            region: connection.import(&self.at.1)?,
            connection,
            lane: 0,
            first: None,
        })
    }
}

/// A mailbox, its engine, and the region and engine in place of the peer.
fn mailbox() -> (Mailbox, Arc<Engine>, (Region, Arc<Engine>)) {
    let net = Arc::new(LoopbackNet::default());
    let engine = || Arc::new(Engine::new(vec![Arc::new(Loopback::join(&net))]).expect("a place"));
    let (here, there) = (engine(), engine());
    let memory = there.allocate(SHAPE.size(), Rights::FULL).expect("memory");
    let peers = Arc::new(Other {
        engine: here.clone(),
        at: (there.address().expect("an address"), memory.key()),
    });
    let mailbox = Mailbox::new(&here, SHAPE, Precedence::Posted, peers).expect("a shape");
    (mailbox, here, (memory, there))
}

/// The beginning of a data ring, then lines.
pub(crate) fn lines(bytes: &[u8]) {
    let (mut mailbox, here, _there) = mailbox();
    let mut buffers = [CAPACITY, CAPACITY, 0].map(Fenced::new);
    let patterns = [
        Pattern::from(None, 1),
        Pattern::from(Some(1), 2),
        Pattern::from(None, 3),
    ];
    let mut receives = Vec::new();
    for (buffer, pattern) in buffers.iter_mut().zip(patterns) {
        // SAFETY:
        // - the buffers outlive the mailbox.
        receives.push(unsafe { mailbox.receive(pattern, buffer.base(), buffer.len()) });
    }
    static PAYLOAD: [u8; 3000] = [3; 3000];
    let mut sends = Vec::new();
    for (len, mode) in [(8, Mode::Synchronous), (3000, Mode::Buffered)] {
        let about = Envelope {
            context: 1,
            ..Envelope::default()
        };
        // SAFETY:
        // - the payload stays.
        let sent = unsafe { mailbox.send(&here, 1, about, (PAYLOAD.as_ptr(), len), mode, true) };
        sends.extend(sent.expect("the peer is there"));
    }
    let window = mailbox.window.clone();
    let (ahead, lines) = bytes.split_at(bytes.len().min(AHEAD));
    let ring = window.data(1, &Line([0; LINE / 8]), ahead.len());
    // SAFETY:
    // - bytes within the ring, which no other code uses.
    unsafe {
        ring.ptr
            .cast_mut()
            .copy_from_nonoverlapping(ahead.as_ptr(), ring.len)
    };
    for line in lines.chunks(LINE) {
        let mut words = [0u64; LINE / 8];
        bytemuck::bytes_of_mut(&mut words)[..line.len()].copy_from_slice(line);
        mailbox.take(&window, 1, &Line(words));
        mailbox.push_on();
        receives.retain(|ticket| mailbox.test_receive(*ticket).is_none());
    }
    mailbox.bury(1);
    drop(mailbox);
    buffers.iter_mut().for_each(Fenced::check);
}

pub(crate) fn all_lines() -> Vec<Vec<u8>> {
    let offer = Offer {
        key: [0; BUNDLE_LEN],
        offset: 8,
        attentive: 1,
    };
    let mut ahead = bytemuck::bytes_of(&offer).to_vec();
    ahead.resize(AHEAD, 7);
    let line = |kind, context, len: usize, ticket: u32, tag: u64| {
        let head = Head {
            kind,
            context,
            len,
            tag,
            extra: u64::from(ticket),
            ticket,
        };
        let mut line = Line::new(&head, 1);
        if len <= INLINE {
            line.carry(&[4; INLINE][..len]);
        } else {
            line.point(64);
        }
        bytemuck::bytes_of(&line.0).to_vec()
    };
    let offered = || {
        let mut line = line(Kind::Offer, 2, 80, 3, 0);
        line[..8].fill(0);
        line
    };
    let all: [&[Vec<u8>]; 5] = [
        &[
            line(Kind::Eager, 1, 20, 0, 5),
            line(Kind::Synchronous, 2, 90, 1, 0),
        ],
        &[
            line(Kind::Eager, 3, 200, 0, 5),
            line(Kind::Eager, 9, 100, 1, 0),
        ],
        &[
            offered(),
            line(Kind::Part, 0, 60, 1, 0),
            line(Kind::Part, 0, 20, 1, 60),
        ],
        &[
            offered(),
            line(Kind::Gone, 0, 0, 1, 0),
            line(Kind::Done, 0, 0, 0, 0),
        ],
        &[
            line(Kind::Stream, 0, 0, 1, 0),
            line(Kind::Stream, 0, 0, 0, 0),
            line(Kind::Done, 0, 0, 1, 0),
        ],
    ];
    all.map(|lines| [ahead.clone(), lines.concat()].concat())
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::state::{Coming, ReceiveStage, received};
    use super::*;

    /// The network writes to its buffer until it says that it has ended. A sender that closes its memory before may have changed it.
    #[test]
    fn a_fetch_ends_by_its_network_and_fails_without_the_senders_region() {
        for closes in [false, true] {
            let (mut mailbox, here, (memory, there)) = mailbox();
            let peer = here.connect(&there.address().unwrap()).unwrap();
            let mut buffer = Fenced::new(CAPACITY);
            let pattern = Pattern::from(Some(1), 1);
            // SAFETY:
            // - the buffer outlives the mailbox.
            let ticket = unsafe { mailbox.receive(pattern, buffer.base(), CAPACITY) };
            let head = |kind, len| Head {
                kind,
                context: 1,
                len,
                tag: 0,
                extra: 0,
                ticket: 0,
            };
            mailbox.receives[0].stage = ReceiveStage::Coming(Box::new(Coming {
                received: received(1, &head(Kind::Offer, 8)),
                ticket: 0,
                done: 0,
                from: Some(peer.import(&memory.key()).unwrap()),
            }));
            let window = mailbox.window.clone();
            for said in [head(Kind::Gone, 0), head(Kind::Part, 8)] {
                mailbox.take(&window, 1, &Line::new(&said, 1));
                assert_eq!(mailbox.test_receive(ticket), None, "{said:?}");
            }
            let memory = (!closes).then_some(memory);
            mailbox.fetched(0, Ok(()));
            let ended = mailbox.test_receive(ticket);
            let expected = match closes {
                true => matches!(ended, Some(Err(unipgas_base::Error::StaleRegion))),
                false => matches!(ended, Some(Ok(_))),
            };
            assert!(expected, "{closes}: {ended:?}");
            drop((mailbox, memory));
        }
    }
}

#[cfg(test)]
mod readers {
    #[test]
    #[cfg_attr(miri, ignore = "as often as it takes")]
    fn malformed_bytes_are_read() {
        unipgas_fuzz::run(super::READERS);
    }
}
