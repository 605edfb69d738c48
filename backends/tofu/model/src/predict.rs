//! The predicted time of a pattern.
//!
//! `time = latency of the longest route + busy time of the bottleneck`. These resources can be busy: each link in each direction, each TNI and each node,
//! sending and receiving, and each processor, which posts and copies.
//!
//! A resource with `m` messages and `l` bytes is busy for `(l - first) / bandwidth`. `first` is at most 8 bytes, which the latency contains. A processor or TNI
//! is busy for at least `(m - 1)` times its cost of a message.
//!
//! The model omits two effects: the larger headers of short messages, and waiting for several resources in turn. So the time is a lower bound if several
//! resources are nearly equally busy.

use crate::figures::Figures;
use crate::job::JobLayout;
use crate::pattern::TrafficPattern;
use crate::route;
use crate::shape::{PORTS, TorusShape};
use crate::{Result, wrong};

/// Maximum number of messages that are followed one by one. [`TrafficPattern::AllToAll`] of larger jobs is folded.
const WAYS: u64 = 1 << 22;
/// Maximum number of messages that a folded pattern follows.
const FOLDED: u64 = 1 << 24;

/// The resource that determines the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// No resource is busy for longer than the latency of a message.
    Latency,
    /// A link.
    Link,
    /// A sending TNI.
    TniOut,
    /// A receiving TNI.
    TniIn,
    /// All that a node sends.
    Injection,
    /// All that a node receives.
    Ejection,
    /// A processor that posts.
    Post,
    /// A processor that copies within the node.
    Copy,
}

impl Bottleneck {
    /// A short description.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Latency => "latency",
            Bottleneck::Link => "link",
            Bottleneck::TniOut => "TNI, sending",
            Bottleneck::TniIn => "TNI, receiving",
            Bottleneck::Injection => "injection",
            Bottleneck::Ejection => "ejection",
            Bottleneck::Post => "processor, posting",
            Bottleneck::Copy => "processor, copying",
        }
    }
}

/// Load of a pattern on all resources.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loads {
    /// Bytes of each link, indexed by [`route::link`]; 0 for links that do not exist.
    pub links: Vec<u64>,
    /// Bytes that the busiest node sends to other nodes, and receives from them.
    pub node: [u64; 2],
    /// Bytes and messages of the busiest TNI, for sending and for receiving.
    pub tni: [(u64, u64); 2],
    /// Largest number of messages that a process posts.
    pub posts: u64,
    /// Largest number of bytes that a process copies within its node.
    pub copies: u64,
    /// Number of messages.
    pub messages: u64,
    /// Number of messages within nodes.
    pub local: u64,
    /// Hops of all messages.
    pub hops: u64,
    /// Hops of the longest route.
    pub longest: u32,
}

impl Loads {
    /// The busiest link and its bytes. `None`: no message leaves a node.
    pub fn hottest(&self) -> Option<(usize, u64)> {
        let busy = self.links.iter().copied().enumerate();
        busy.max_by_key(|(link, bytes)| (*bytes, usize::MAX - link))
            .filter(|(_, bytes)| *bytes > 0)
    }
}

/// The predicted time of a pattern, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Latency of the longest route, in ns.
    pub latency_ns: f64,
    /// Time from the first post to the last byte, in ns.
    pub time_ns: f64,
    /// The resource that determines the time.
    pub bottleneck: Bottleneck,
    /// Busy times of all resources that the pattern uses, in ns.
    pub busy_ns: Vec<(Bottleneck, f64)>,
    /// Bandwidth of all messages together, in bytes per ns.
    pub total_gbs: f64,
    /// The loads.
    pub loads: Loads,
}

/// Predicts the time of a pattern of messages of `bytes`. Errors: as [`TrafficPattern::check`]; too many messages to follow.
pub fn predict(
    job: &JobLayout,
    figures: &Figures,
    pattern: TrafficPattern,
    bytes: u64,
) -> Result<Prediction> {
    pattern.check(job)?;
    job.path.check(&job.shape)?;
    let tnis = figures.tnis as u32;
    let loads = loads(job, tnis, pattern, bytes)?;
    let first = bytes.min(8);
    let busy = |load: u64, gbs: f64| load.saturating_sub(first) as f64 / gbs;
    let after = |messages: u64, ns: f64| messages.saturating_sub(1) as f64 * ns;
    let link = loads.hottest().map_or(0, |(_, bytes)| bytes);
    let tni =
        |(bytes, messages)| busy(bytes, figures.put_gbs()).max(after(messages, figures.gap_ns));
    let busy_ns = vec![
        (Bottleneck::Link, busy(link, figures.link_payload_gbs())),
        (Bottleneck::TniOut, tni(loads.tni[0])),
        (Bottleneck::TniIn, tni(loads.tni[1])),
        (
            Bottleneck::Injection,
            busy(loads.node[0], figures.injection_gbs),
        ),
        (
            Bottleneck::Ejection,
            busy(loads.node[1], figures.injection_gbs),
        ),
        (Bottleneck::Post, after(loads.posts, figures.post_ns)),
        (Bottleneck::Copy, busy(loads.copies, figures.local_gbs)),
    ];
    let latency_ns = match loads.messages {
        0 => 0.0,
        _ => figures.put(0, loads.longest),
    };
    let start = (Bottleneck::Latency, 0.0);
    let (bottleneck, longest) =
        busy_ns.iter().fold(
            start,
            |most, this| if this.1 > most.1 { *this } else { most },
        );
    let time_ns = latency_ns + longest;
    Ok(Prediction {
        latency_ns,
        time_ns,
        bottleneck,
        busy_ns,
        total_gbs: loads.messages as f64 * bytes as f64 / time_ns.max(1.0),
        loads,
    })
}

fn loads(job: &JobLayout, tnis: u32, pattern: TrafficPattern, bytes: u64) -> Result<Loads> {
    let n = u64::from(job.processes);
    match pattern {
        TrafficPattern::AllToAll if n * n > WAYS => folded(job, tnis, bytes),
        _ => Ok(followed(job, tnis, pattern, bytes)),
    }
}

/// Loads of each node, TNI and process, summed message by message.
struct Followed<'a> {
    job: &'a JobLayout,
    tnis: u32,
    bytes: u64,
    loads: Loads,
    node: [Vec<u64>; 2],
    tni: Vec<[(u64, u64); 2]>,
    /// Numbers of messages that each process has sent, and has received.
    turns: [Vec<u64>; 2],
    copies: Vec<u64>,
}

impl Followed<'_> {
    fn add(&mut self, ranks: [u32; 2]) {
        let (job, tnis, loads) = (self.job, self.tnis, &mut self.loads);
        loads.messages += 1;
        for (turns, rank) in self.turns.iter_mut().zip(ranks) {
            turns[rank as usize] += 1;
        }
        let ends = ranks.map(|rank| job.node(rank));
        let steps = route::walk(&job.shape, job.path, ends[0], ends[1], |link| {
            loads.links[link] += self.bytes
        });
        if steps == 0 {
            loads.local += 1;
            self.copies[ranks[0] as usize] += self.bytes;
            return;
        }
        loads.hops += u64::from(steps);
        loads.longest = loads.longest.max(steps);
        for side in 0..2 {
            self.node[side][ends[side] as usize] += self.bytes;
            let turn = self.turns[side][ranks[side] as usize] as usize;
            let mut own = job.tnis(job.place(ranks[side]), tnis);
            let which = own.nth(turn % own.len()).unwrap_or(0);
            let (busy, count) = &mut self.tni[(ends[side] * tnis + which) as usize][side];
            *busy += self.bytes;
            *count += 1;
        }
    }

    fn end(self) -> Loads {
        let most = |all: &[u64]| all.iter().copied().max().unwrap_or(0);
        let tni = |side: usize| self.tni.iter().map(|sides| sides[side]).max();
        Loads {
            node: [most(&self.node[0]), most(&self.node[1])],
            tni: [0, 1].map(|side| tni(side).unwrap_or((0, 0))),
            posts: most(&self.turns[0]),
            copies: most(&self.copies),
            ..self.loads
        }
    }
}

/// The loads of a pattern, message by message.
fn followed(job: &JobLayout, tnis: u32, pattern: TrafficPattern, bytes: u64) -> Loads {
    let (nodes, processes) = (job.shape.nodes() as usize, job.processes as usize);
    let mut followed = Followed {
        job,
        tnis,
        bytes,
        loads: Loads {
            links: vec![0; nodes * PORTS],
            ..Loads::default()
        },
        node: [vec![0; nodes], vec![0; nodes]],
        tni: vec![[(0, 0); 2]; nodes * tnis as usize],
        turns: [vec![0; processes], vec![0; processes]],
        copies: vec![0; processes],
    };
    pattern.messages(job, |from, to| followed.add([from, to]));
    followed.end()
}

/// The loads of [`TrafficPattern::AllToAll`] on a full box. Nodes that differ only by steps around rings load links equally, so such links share one sum.
fn folded(job: &JobLayout, tnis: u32, bytes: u64) -> Result<Loads> {
    let nodes = job.shape.nodes();
    let folds: Vec<u32> = (0..nodes).map(|node| fold(&job.shape, node)).collect();
    let sources: Vec<u32> = (0..nodes)
        .filter(|node| folds[*node as usize] == *node)
        .collect();
    if !job.is_full() || sources.len() as u64 * u64::from(nodes) > FOLDED {
        return wrong(format!(
            "all to all of {} processes is simulated only where they fill a box with closed X, Y and Z: take at most {}",
            job.processes,
            WAYS.isqrt()
        ));
    }
    let alike = u64::from(nodes) / sources.len() as u64;
    let (n, here) = (u64::from(job.processes), u64::from(job.per_node));
    let folded = |link: usize| folds[link / PORTS] as usize * PORTS + link % PORTS;
    let mut of_folds = vec![0; nodes as usize * PORTS];
    let (mut hops, mut longest) = (0, 0);
    for from in &sources {
        for to in 0..nodes {
            let steps = route::walk(&job.shape, job.path, *from, to, |link| {
                of_folds[folded(link)] += bytes * here * here;
            });
            hops += u64::from(steps);
            longest = longest.max(steps);
        }
    }
    let far = n - here;
    let most = most_of_a_tni(job, tnis, far);
    Ok(Loads {
        links: (0..of_folds.len())
            .map(|link| of_folds[folded(link)])
            .collect(),
        node: [bytes * here * far; 2],
        tni: [(most * bytes, most); 2],
        posts: n - 1,
        copies: (here - 1) * bytes,
        messages: n * (n - 1),
        local: n * (here - 1),
        hops: hops * here * here * alike,
        longest,
    })
}

/// The node with coordinate 0 in each ring, and the coordinates of `node` in the other axes.
fn fold(shape: &TorusShape, node: u32) -> u32 {
    let mut at = shape.coords(node);
    (0..3)
        .filter(|axis| shape.is_ring(*axis))
        .for_each(|axis| at[axis] = 0);
    shape.node(&at)
}

/// Messages of the busiest TNI of a node, if each process sends `far` of them.
fn most_of_a_tni(job: &JobLayout, tnis: u32, far: u64) -> u64 {
    let mut tni = vec![0; tnis as usize];
    for place in 0..job.per_node {
        let own = job.tnis(place, tnis);
        let part = far.div_ceil(own.len() as u64);
        own.for_each(|which| tni[which as usize] += part);
    }
    tni.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
