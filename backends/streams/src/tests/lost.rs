//! The loss of a peer: both sides learn of it, every operation between them ends, and everybody else goes on.

use std::sync::Arc;

use unipgas_core::op::PutRequest;
use unipgas_core::region::Memory;
use unipgas_core::streams::StreamTransport;
use unipgas_core::transport::{Channel, Life, Peer, Transport};
use unipgas_core::{Deadline, Error, Flags, Local, Outcome, Remote, RemoteRegion, Result, Rights};
use unipgas_streams_backend::{SocketStreams, StreamsOptions};

struct Node {
    channel: Box<dyn Channel>,
    memory: Box<dyn Memory>,
    transport: StreamTransport<SocketStreams>,
}

struct Link {
    peer: Arc<dyn Peer>,
    region: RemoteRegion,
}

impl Node {
    fn open(options: StreamsOptions) -> Node {
        let transport = SocketStreams::open(options, None).unwrap();
        Node {
            channel: transport.open_channel().unwrap(),
            memory: transport.allocate(4096, Rights::FULL).unwrap(),
            transport,
        }
    }

    fn know(&self, other: &Node) -> Link {
        let peer = self.transport.connect(&other.transport.address()).unwrap();
        let region = peer.import(&other.memory.key(), Deadline::Never).unwrap();
        Link { peer, region }
    }

    fn post(&self, to: &Link) -> Result<Outcome> {
        let (src, dst) = (
            Local {
                ptr: self.memory.base(),
                desc: 0,
            },
            Remote {
                region: &to.region,
                offset: 64,
            },
        );
        // SAFETY:
        // - the source is longer, and outlives the end of the operation.
        unsafe {
            self.channel
                .put(&PutRequest::new(src, dst, 64), Flags::empty(), 1)
        }
    }

    /// What became of everything posted.
    fn ends(&self) -> Vec<Result<()>> {
        let mut ends = Vec::new();
        while self.channel.pending() > 0 {
            self.channel.poll(&mut |end| ends.push(end.result));
            std::thread::yield_now();
        }
        ends
    }

    fn put(&self, to: &Link) -> Result<()> {
        self.post(to)?;
        self.ends().remove(0)
    }
}

fn lost(options: StreamsOptions) {
    let loses = Node::open(StreamsOptions {
        lose_at: Some(4),
        ..options
    });
    let (lost, other) = (Node::open(options), Node::open(options));
    let (to_lost, to_other) = (loses.know(&lost), loses.know(&other));
    let (back, aside) = (lost.know(&loses), lost.know(&other));
    let (from_other, across) = (other.know(&loses), other.know(&lost));
    loses.put(&to_lost).unwrap();
    loses.put(&to_other).unwrap();
    // The second of these.
    let posted: Vec<Result<Outcome>> = (0..3).map(|_| loses.post(&to_lost)).collect();
    let ends = loses.ends();
    // Whoever is fast enough refuses it at once.
    let refused = posted.contains(&Err(Error::PeerDead));
    let ended = ends.last() == Some(&Err(Error::PeerDead));
    assert!(refused || ended, "{posted:?} {ends:?}");
    assert_eq!(to_lost.peer.life(), Life::Dead);
    assert!(!to_lost.region.is_current());
    assert!(loses.put(&to_lost).is_err());
    let again = loses.transport.connect(&lost.transport.address());
    assert!(matches!(again, Err(Error::PeerDead)));
    // The other side.
    while back.peer.life() == Life::Alive {
        let _ = lost.put(&back);
    }
    assert_eq!(back.peer.life(), Life::Dead);
    assert!(lost.put(&back).is_err());
    let again = lost.transport.connect(&loses.transport.address());
    let import = again.and_then(|peer| peer.import(&loses.memory.key(), Deadline::Never).map(drop));
    assert_eq!(import, Err(Error::PeerDead));
    // Everybody else.
    for (node, link) in [
        (&loses, &to_other),
        (&other, &from_other),
        (&lost, &aside),
        (&other, &across),
    ] {
        node.put(link).unwrap();
        assert_eq!(link.peer.life(), Life::Alive);
    }
}

#[test]
fn both_sides_learn_of_a_loss() {
    lost(StreamsOptions::default());
}

#[test]
fn also_over_tcp_and_in_no_order() {
    lost(StreamsOptions {
        tcp: true,
        unordered: true,
        ..StreamsOptions::default()
    });
}
