//! How long a pattern takes.
//!
//! `time = latency of the longest way + busy time of the bottleneck`. What is busy: each link in each direction, each TNI out and in, each node out and in, and each
//! processor, which posts and copies. A resource with `m` messages and `l` bytes is busy for `(l - first) / bandwidth`, where `first`, up to 8
//! bytes, is in the latency; a processor or TNI for at least `(m - 1)` times what a message costs it. Headers of short messages beyond those of long ones, and
//! waiting for more than one resource in turn, are left out: this is a lower bound where several are nearly as busy.

use crate::figures::Figures;
use crate::job::JobLayout;
use crate::pattern::TrafficPattern;
use crate::route;
use crate::shape::PORTS;
use crate::{Result, wrong};

/// Ways that are followed one by one; [`TrafficPattern::AllToAll`] of larger jobs is folded.
const WAYS: u64 = 1 << 22;
/// Ways of folded ones.
const FOLDED: u64 = 1 << 24;

/// What determines the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Nothing is busy for longer than a message takes.
    Latency,
    /// A link.
    Link,
    /// A TNI that sends.
    TniOut,
    /// A TNI that receives.
    TniIn,
    /// All that a node sends.
    Injection,
    /// All that a node receives.
    Ejection,
    /// A processor, as it posts.
    Post,
    /// A processor, as it copies within the node.
    Copy,
}

impl Bottleneck {
    /// In a few words.
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

/// What a pattern puts on everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads {
    /// Bytes of each link, by [`route::link`]; 0 where there is none.
    pub links: Vec<u64>,
    /// Bytes that the busiest node sends to others, and receives.
    pub node: [u64; 2],
    /// Bytes of the busiest TNI, sending and receiving, and its messages.
    pub tni: [(u64, u64); 2],
    /// Messages of the process that posts most of them.
    pub posts: u64,
    /// Bytes of the process that copies most of them within its node.
    pub copies: u64,
    /// Messages.
    pub messages: u64,
    /// Messages within nodes.
    pub local: u64,
    /// Hops of all messages.
    pub hops: u64,
    /// Hops of the longest way.
    pub longest: u32,
}

impl Loads {
    /// The busiest link; `None` where nothing leaves a node.
    pub fn hottest(&self) -> Option<(usize, u64)> {
        let busy = self.links.iter().copied().enumerate();
        busy.max_by_key(|(link, bytes)| (*bytes, usize::MAX - link))
            .filter(|(_, bytes)| *bytes > 0)
    }
}

/// How long a pattern takes, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Of the longest way, in ns.
    pub latency_ns: f64,
    /// From the first post to the last byte, in ns.
    pub time_ns: f64,
    /// Why not sooner.
    pub bottleneck: Bottleneck,
    /// Busy times of all resources that the pattern uses, in ns.
    pub busy_ns: Vec<(Bottleneck, f64)>,
    /// Bytes of all messages a ns.
    pub total_gbs: f64,
    /// The loads.
    pub loads: Loads,
}

/// What a pattern of messages of `bytes` takes. Errors: those of [`TrafficPattern::check`]; too many messages to follow.
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

/// By following each message.
fn followed(job: &JobLayout, tnis: u32, pattern: TrafficPattern, bytes: u64) -> Loads {
    let nodes = job.shape.nodes() as usize;
    let mut links = vec![0; nodes * PORTS];
    let mut node = [vec![0; nodes], vec![0; nodes]];
    let mut tni = vec![[(0, 0); 2]; nodes * tnis as usize];
    let mut posts = vec![0u64; job.processes as usize];
    let mut taken = posts.clone();
    let mut copies = vec![0; job.processes as usize];
    let (mut messages, mut local, mut hops, mut longest) = (0, 0, 0, 0);
    pattern.messages(job, |from, to| {
        messages += 1;
        posts[from as usize] += 1;
        taken[to as usize] += 1;
        // Of the TNIs at either end.
        let turns = [posts[from as usize], taken[to as usize]];
        let ends = [from, to].map(|rank| job.node(rank));
        let steps = route::walk(&job.shape, job.path, ends[0], ends[1], |link| {
            links[link] += bytes
        });
        if steps == 0 {
            local += 1;
            copies[from as usize] += bytes;
            return;
        }
        hops += u64::from(steps);
        longest = longest.max(steps);
        for (side, rank) in [from, to].into_iter().enumerate() {
            node[side][ends[side] as usize] += bytes;
            let mut own = job.tnis(job.place(rank), tnis);
            let which = own.nth(turns[side] as usize % own.len()).unwrap_or(0);
            let (busy, count) = &mut tni[(ends[side] * tnis + which) as usize][side];
            *busy += bytes;
            *count += 1;
        }
    });
    let most = |all: &[u64]| all.iter().copied().max().unwrap_or(0);
    let busiest = |side: usize| tni.iter().map(|sides| sides[side]).max().unwrap_or((0, 0));
    Loads {
        links,
        node: [most(&node[0]), most(&node[1])],
        tni: [busiest(0), busiest(1)],
        posts: most(&posts),
        copies: most(&copies),
        messages,
        local,
        hops,
        longest,
    }
}

/// All to all on a full box. What one node sends looks the same from all nodes that lie apart by steps around rings: links are added up that do so as well.
fn folded(job: &JobLayout, tnis: u32, bytes: u64) -> Result<Loads> {
    let shape = &job.shape;
    let (nodes, per_node) = (shape.nodes(), job.per_node);
    // Where a coordinate does not matter.
    let fold = |node: u32| {
        let mut at = shape.coords(node);
        (0..3)
            .filter(|axis| shape.is_ring(*axis))
            .for_each(|axis| at[axis] = 0);
        shape.node(&at)
    };
    let sources: Vec<u32> = (0..nodes).filter(|node| fold(*node) == *node).collect();
    if !job.is_full() || sources.len() as u64 * u64::from(nodes) > FOLDED {
        return wrong(format!(
            "all to all of {} processes is followed only where they fill a box whose X, Y and Z close: take at most {}",
            job.processes,
            WAYS.isqrt()
        ));
    }
    let alike = u64::from(nodes) / sources.len() as u64;
    let between = bytes * u64::from(per_node * per_node);
    let folds: Vec<u32> = (0..nodes).map(fold).collect();
    let mut of_folds = vec![0; nodes as usize * PORTS];
    let (mut hops, mut longest) = (0, 0);
    for from in &sources {
        for to in 0..nodes {
            let steps = route::walk(shape, job.path, *from, to, |link| {
                of_folds[folds[link / PORTS] as usize * PORTS + link % PORTS] += between;
            });
            hops += u64::from(steps);
            longest = longest.max(steps);
        }
    }
    let links = (0..nodes as usize * PORTS)
        .map(|link| of_folds[folds[link / PORTS] as usize * PORTS + link % PORTS])
        .collect();
    let (n, here) = (u64::from(job.processes), u64::from(per_node));
    let far = n - here;
    let mut tni = vec![0; tnis as usize];
    for place in 0..per_node {
        let own = job.tnis(place, tnis);
        let part = far.div_ceil(own.len() as u64);
        own.for_each(|which| tni[which as usize] += part);
    }
    let most = tni.into_iter().max().unwrap_or(0);
    Ok(Loads {
        links,
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

#[cfg(test)]
mod tests;
