//! Communication patterns: senders and receivers.

use std::fmt;
use std::str::FromStr;

use crate::job::JobLayout;
use crate::shape::{AXES, PORTS};
use crate::{Error, Result, wrong};

/// A pattern of messages of one size. All are sent at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficPattern {
    /// One rank sends to another; without ranks, rank 0 to the first rank of the next node.
    Pair(Option<(u32, u32)>),
    /// Each rank sends to the next one, the last one to rank 0.
    Ring,
    /// Each process sends to the process with the same place on another node: the node at this distance along this axis.
    Shift(usize, u32),
    /// Each process sends to the processes with the same place on all neighbours of its node.
    Halo,
    /// Each rank sends to all others.
    AllToAll,
    /// All ranks send to one.
    AllToOne(u32),
    /// Each rank sends to its image in a random permutation with this seed.
    Random(u64),
}

impl TrafficPattern {
    /// Checks the pattern for a job. Errors: a rank that the job does not have, or an axis without links.
    pub fn check(&self, job: &JobLayout) -> Result<()> {
        let rank = |rank: u32| match rank < job.processes {
            true => Ok(()),
            false => wrong(format!(
                "there is no rank {rank}: the job has {}",
                job.processes
            )),
        };
        match *self {
            TrafficPattern::Pair(Some((from, to))) if from == to => wrong("a pair has two ranks"),
            TrafficPattern::Pair(Some((from, to))) => rank(from).and(rank(to)),
            TrafficPattern::AllToOne(root) => rank(root),
            TrafficPattern::Shift(axis, by) => match by < job.shape.lengths()[axis] && by > 0 {
                true => Ok(()),
                false => wrong(format!(
                    "a shift along {} of {} is by 1 to {}",
                    AXES[axis],
                    job.shape,
                    job.shape.lengths()[axis] - 1
                )),
            },
            _ if job.processes < 2 => wrong("a pattern needs two processes"),
            _ => Ok(()),
        }
    }

    /// Calls `send` with sender and receiver of each message, in the posting order of each sender. [`TrafficPattern::AllToAll`] of `n` processes has about `n *
    /// n` messages: avoid it for many processes.
    pub(crate) fn messages(&self, job: &JobLayout, mut send: impl FnMut(u32, u32)) {
        let all = 0..job.processes;
        let place = |node: u32, rank: u32| job.rank(node, job.place(rank));
        match *self {
            TrafficPattern::Pair(pair) => {
                let (from, to) = pair.unwrap_or((0, job.rank(1, 0).unwrap_or(1)));
                send(from, to);
            }
            TrafficPattern::Ring => all.for_each(|rank| send(rank, (rank + 1) % job.processes)),
            TrafficPattern::Shift(axis, by) => {
                for rank in all {
                    let mut at = job.shape.coords(job.node(rank));
                    at[axis] = (at[axis] + by) % job.shape.lengths()[axis];
                    if let Some(to) = place(job.shape.node(&at), rank) {
                        send(rank, to);
                    }
                }
            }
            TrafficPattern::Halo => {
                for rank in all {
                    for port in 0..PORTS {
                        let (axis, up) = (port / 2, port % 2 == 1);
                        let next = job.shape.neighbour(job.node(rank), axis, up);
                        if let Some(to) = next.and_then(|next| place(next, rank)) {
                            send(rank, to);
                        }
                    }
                }
            }
            TrafficPattern::AllToAll => {
                for from in all.clone() {
                    let others = (1..job.processes).map(|by| (from + by) % job.processes);
                    others.for_each(|to| send(from, to));
                }
            }
            TrafficPattern::AllToOne(root) => {
                all.filter(|rank| *rank != root)
                    .for_each(|rank| send(rank, root));
            }
            TrafficPattern::Random(seed) => {
                for (from, to) in permutation(job.processes, seed).into_iter().enumerate() {
                    if from as u32 != to {
                        send(from as u32, to);
                    }
                }
            }
        }
    }
}

/// A Fisher-Yates shuffle with a linear congruential generator: the same on every machine.
fn permutation(n: u32, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((u128::from(state) * u128::from(below)) >> 64) as usize
    };
    let mut all: Vec<u32> = (0..n).collect();
    (0..2).for_each(|_| {
        next(1);
    });
    for last in (1..n as usize).rev() {
        all.swap(last, next(last as u64 + 1));
    }
    all
}

impl FromStr for TrafficPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, more) = match text.split_once(':') {
            Some((name, more)) => (name, Some(more)),
            None => (text, None),
        };
        let bad = |text: &str| {
            Error(format!(
                "{text:?} is no pattern: pair, pair:0-5, ring, shift:X, shift:X+2, halo, alltoall, alltoone, alltoone:3, random, random:7"
            ))
        };
        let number = |text: &str| text.parse().map_err(|_| bad(text));
        match (name, more) {
            ("pair", None) => Ok(TrafficPattern::Pair(None)),
            ("pair", Some(ranks)) => {
                let (from, to) = ranks.split_once('-').ok_or_else(|| bad(text))?;
                Ok(TrafficPattern::Pair(Some((number(from)?, number(to)?))))
            }
            ("ring", None) => Ok(TrafficPattern::Ring),
            ("shift", more) => {
                let (axis, by) = match more.unwrap_or("X").split_once('+') {
                    Some((axis, by)) => (axis, number(by)?),
                    None => (more.unwrap_or("X"), 1),
                };
                let axis = AXES.iter().position(|known| axis == known.to_string());
                Ok(TrafficPattern::Shift(axis.ok_or_else(|| bad(text))?, by))
            }
            ("halo", None) => Ok(TrafficPattern::Halo),
            ("alltoall", None) => Ok(TrafficPattern::AllToAll),
            ("alltoone", None) => Ok(TrafficPattern::AllToOne(0)),
            ("alltoone", Some(root)) => Ok(TrafficPattern::AllToOne(number(root)?)),
            ("random", None) => Ok(TrafficPattern::Random(0)),
            ("random", Some(seed)) => {
                Ok(TrafficPattern::Random(seed.parse().map_err(|_| bad(text))?))
            }
            _ => Err(bad(text)),
        }
    }
}

impl fmt::Display for TrafficPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TrafficPattern::Pair(None) => write!(f, "pair"),
            TrafficPattern::Pair(Some((from, to))) => write!(f, "pair:{from}-{to}"),
            TrafficPattern::Ring => write!(f, "ring"),
            TrafficPattern::Shift(axis, by) => write!(f, "shift:{}+{by}", AXES[axis]),
            TrafficPattern::Halo => write!(f, "halo"),
            TrafficPattern::AllToAll => write!(f, "alltoall"),
            TrafficPattern::AllToOne(root) => write!(f, "alltoone:{root}"),
            TrafficPattern::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_meant() {
        for name in [
            "pair",
            "pair:0-5",
            "ring",
            "shift:X+1",
            "shift:B+2",
            "halo",
            "alltoall",
            "alltoone:3",
            "random:7",
        ] {
            assert_eq!(name.parse::<TrafficPattern>().unwrap().to_string(), name);
        }
        for bad in [
            "",
            "pair:1",
            "shift:Q",
            "shift:X+",
            "halo:3",
            "random:x",
            "alltoone:-1",
        ] {
            assert!(bad.parse::<TrafficPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_permutation_has_everybody_once() {
        for n in [2, 3, 10, 1000] {
            let mut all = permutation(n, 5);
            assert_ne!(permutation(1000, 5), permutation(1000, 6));
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_pattern_sends_as_often_as_it_says() {
        let job = JobLayout::full("3x2x1x2x3x2".parse().unwrap(), 2).unwrap();
        let n = job.processes as usize;
        let count = |pattern: TrafficPattern| {
            let mut count = 0;
            pattern.messages(&job, |from, to| {
                assert_ne!(from, to);
                count += 1;
            });
            count
        };
        assert_eq!(count(TrafficPattern::Ring), n);
        assert_eq!(count(TrafficPattern::Shift(0, 2)), n);
        // X and B are rings; Y, A and C are single links; Z has length 1.
        assert_eq!(count(TrafficPattern::Halo), n * (2 + 1 + 1 + 2 + 1));
        assert_eq!(count(TrafficPattern::AllToAll), n * (n - 1));
        assert_eq!(count(TrafficPattern::AllToOne(3)), n - 1);
    }
}
