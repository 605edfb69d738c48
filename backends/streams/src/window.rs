//! Received requests of a peer that are not yet carried out. Their order is drawn from a seed.

use unipgas_core::agent::{RegisteredPlace, Request};
use unipgas_core::streams::Order;
use unipgas_core::streams::envelope::RequestHeader;

/// Maximum number of the agent's turns that a request is held back.
const MOST_TURNS: u64 = 4;

struct Held {
    envelope: RequestHeader,
    /// The inbox of a delivery: records of one channel to one inbox stay in order.
    inbox: Option<RegisteredPlace>,
    message: Vec<u8>,
    turns: u64,
}

/// The requests of one peer, in order of arrival.
pub(crate) struct RequestWindow {
    held: Vec<Held>,
    random: u64,
}

impl RequestWindow {
    pub fn new(seed: u64) -> Self {
        RequestWindow {
            held: Vec::new(),
            random: seed,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn may_go(&self, at: usize) -> bool {
        let one = &self.held[at];
        !self.held[..at].iter().any(|earlier| {
            earlier.envelope.channel == one.envelope.channel
                && (one.envelope.ordered == 1 || one.inbox.is_some() && one.inbox == earlier.inbox)
        })
    }
}

impl Order for RequestWindow {
    fn hold(&mut self, envelope: RequestHeader, request: &Request<'_>, message: &[u8]) {
        let turns = self.draw(MOST_TURNS + 1);
        self.held.push(Held {
            envelope,
            inbox: match request {
                Request::Deliver { first, .. } => Some(*first),
                _ => None,
            },
            message: message.to_vec(),
            turns,
        });
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn turn(&mut self) {
        for held in &mut self.held {
            held.turns = held.turns.saturating_sub(1);
        }
    }

    fn take(&mut self, all: bool) -> Option<(RequestHeader, Vec<u8>)> {
        let ready: Vec<usize> = (0..self.held.len())
            .filter(|at| (all || self.held[*at].turns == 0) && self.may_go(*at))
            .collect();
        if ready.is_empty() {
            return None;
        }
        let drawn = self.draw(ready.len() as u64) as usize;
        let held = self.held.remove(ready[drawn]);
        Some((held.envelope, held.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_core::inbox::Record;

    fn hold(window: &mut RequestWindow, number: u64, channel: u32, ordered: bool, inbox: bool) {
        let place = RegisteredPlace {
            slot: 0,
            generation: 1,
            offset: 0,
        };
        let envelope = RequestHeader {
            number,
            channel,
            ordered: ordered.into(),
        };
        let request = match inbox {
            true => Request::Deliver {
                put: None,
                first: place,
                second: None,
                overflow: None,
                record: Record::default(),
                chained: false,
            },
            false => Request::Notify {
                slot: place,
                value: 1,
            },
        };
        window.hold(envelope, &request, &[]);
    }

    fn order(window: &mut RequestWindow) -> Vec<u64> {
        let mut order = Vec::new();
        while !window.is_empty() {
            while let Some((envelope, _)) = window.take(false) {
                order.push(envelope.number);
            }
            window.turn();
        }
        order
    }

    #[test]
    fn what_may_overtake_does_and_nothing_else() {
        let mut overtaken = [false; 2];
        for seed in 0..200 {
            let mut window = RequestWindow::new(seed);
            // Channel 1: 0 and 1 in any order, 2 after both, 3 at any time. Channel 2: records 10 and 11 in order.
            for number in 0..4 {
                hold(&mut window, number, 1, number == 2, false);
            }
            hold(&mut window, 10, 2, false, true);
            hold(&mut window, 11, 2, false, true);
            let order = order(&mut window);
            let at = |number: u64| order.iter().position(|n| *n == number).expect("once");
            assert_eq!(order.len(), 6);
            assert!(
                at(2) > at(0) && at(2) > at(1) && at(10) < at(11),
                "{order:?}"
            );
            overtaken[0] |= at(1) < at(0);
            overtaken[1] |= at(3) < at(2);
        }
        assert_eq!(overtaken, [true; 2]);
    }

    #[test]
    fn at_the_end_all_go_in_an_order_that_is_allowed() {
        let mut window = RequestWindow::new(1);
        for number in 0..100 {
            hold(&mut window, number, 1, true, false);
        }
        let all: Vec<u64> = std::iter::from_fn(|| window.take(true))
            .map(|(envelope, _)| envelope.number)
            .collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
