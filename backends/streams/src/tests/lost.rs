//! The loss of a peer: both sides detect it, all operations between them end, and other connections continue.

use unipgas_core::Error;
use unipgas_core::transport::Life;

use super::*;

struct Link {
    peer: Arc<dyn Peer>,
    region: RemoteRegion,
}

impl Node {
    fn know(&self, other: &Node) -> Link {
        let peer = self.connect(&other.address());
        let region = peer.import(&other.memory.key(), Deadline::Never).unwrap();
        Link { peer, region }
    }

    fn post(&self, to: &Link) -> Result<Outcome> {
        self.try_put(&to.region, 64, Flags::empty(), 1)
    }

    /// The results of all posted operations.
    fn ends(&self) -> Vec<Result<()>> {
        let mut ends = Vec::new();
        while self.channel.pending() > 0 {
            self.channel.poll(&mut |end| ends.push(end.result));
            std::thread::yield_now();
        }
        ends
    }

    fn writes(&self, to: &Link) -> Result<()> {
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
    loses.writes(&to_lost).unwrap();
    loses.writes(&to_other).unwrap();
    // The connection is lost at the second of these puts.
    let posted: Vec<Result<Outcome>> = (0..3).map(|_| loses.post(&to_lost)).collect();
    let ends = loses.ends();
    // If the loss is already known, the post itself fails.
    let refused = posted.contains(&Err(Error::PeerDead));
    let ended = ends.last() == Some(&Err(Error::PeerDead));
    assert!(refused || ended, "{posted:?} {ends:?}");
    assert_eq!(to_lost.peer.life(), Life::Dead);
    assert!(!to_lost.region.is_current());
    assert!(loses.writes(&to_lost).is_err());
    let again = loses.transport.connect(&lost.address());
    assert!(matches!(again, Err(Error::PeerDead)));
    // The other side.
    while back.peer.life() == Life::Alive {
        let _ = lost.writes(&back);
    }
    assert_eq!(back.peer.life(), Life::Dead);
    assert!(lost.writes(&back).is_err());
    let again = lost.transport.connect(&loses.address());
    let import = again.and_then(|peer| peer.import(&loses.memory.key(), Deadline::Never).map(drop));
    assert_eq!(import, Err(Error::PeerDead));
    // The other connections.
    for (node, link) in [
        (&loses, &to_other),
        (&other, &from_other),
        (&lost, &aside),
        (&other, &across),
    ] {
        node.writes(link).unwrap();
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
