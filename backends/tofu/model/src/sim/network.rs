//! The cost of a message, and the resources for which it waits.

use super::{Fidelity, SimSetting};
use crate::route;
use crate::shape::PORTS;

/// A message.
pub(super) struct SimMessage {
    pub from: u32,
    pub to: u32,
    pub slot: u32,
    pub bytes: u64,
}

/// The resources, each with the time until which it is busy, in ps.
pub(super) struct SimNetwork<'a> {
    setting: &'a SimSetting<'a>,
    tnis: u32,
    out: Vec<u64>,
    /// Links and receiving TNIs; empty without contention.
    links: Vec<u64>,
    taking: Vec<u64>,
    /// Number of messages that each rank has sent to other nodes: it uses its TNIs in turn.
    turns: Vec<u32>,
    pub remote: u64,
    pub local: u64,
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

impl<'a> SimNetwork<'a> {
    pub fn new(setting: &'a SimSetting<'a>) -> Self {
        let nodes = setting.job.shape.nodes() as usize;
        let tnis = setting.figures.tnis as u32;
        let contention = setting.fidelity == Fidelity::Contention;
        let with = |len: usize| vec![0; if contention { len } else { 0 }];
        SimNetwork {
            setting,
            tnis,
            out: vec![0; nodes * tnis as usize],
            links: with(nodes * PORTS),
            taking: with(nodes * tnis as usize),
            turns: vec![0; setting.job.processes as usize],
            remote: 0,
            local: 0,
        }
    }

    /// Returns the time at which the sender continues, and the arrival time.
    pub fn send(&mut self, message: &SimMessage, now: u64) -> (u64, u64) {
        let (job, figures) = (self.setting.job, self.setting.figures);
        let ends = [job.node(message.from), job.node(message.to)];
        let latency = |hops| ps(figures.put(message.bytes, hops));
        if ends[0] == ends[1] {
            self.local += 1;
            let copy = message.bytes.saturating_sub(8) as f64 / figures.local_gbs;
            return (now + ps(figures.store_ns + copy), now + latency(0));
        }
        self.remote += 1;
        let hops = route::hops(&job.shape, job.path, ends[0], ends[1]);
        self.turns[message.from as usize] += 1;
        let turn = self.turns[message.from as usize];
        if self.by_gates(message.slot) {
            // The processor starts the first gate. Gates start the following ones.
            let posted = now + if turn == 1 { ps(figures.post_ns) } else { 0 };
            let way = figures.gate_ns + f64::from(hops - 1) * figures.hop_ns;
            return (posted, posted + ps(way));
        }
        let tni = |rank: u32, turn: u32| {
            let mut own = job.tnis(job.place(rank), self.tnis);
            let which = own.nth(turn as usize % own.len()).unwrap_or(0);
            (job.node(rank) * self.tnis + which) as usize
        };
        let (out, into) = (tni(message.from, turn), tni(message.to, turn));
        let posted = now + ps(figures.post_ns);
        let start = posted.max(self.out[out]);
        let through = ps((message.bytes as f64 / figures.put_gbs()).max(figures.gap_ns));
        self.out[out] = start + through;
        let mut late = 0;
        if self.setting.fidelity == Fidelity::Contention {
            let busy = ps(message.bytes as f64 / figures.link_payload_gbs());
            let mut head = start;
            let links = &mut self.links;
            route::walk(&job.shape, job.path, ends[0], ends[1], |link| {
                let at = head.max(links[link]);
                links[link] = at + busy;
                head = at + ps(figures.hop_ns);
            });
            // Earliest arrival of the first byte.
            let taken = head.max(self.taking[into]);
            self.taking[into] = taken + through;
            late = taken - (start + u64::from(hops) * ps(figures.hop_ns));
        }
        (posted, start + latency(hops) - ps(figures.post_ns) + late)
    }

    /// The arrival time of an atomic operation at the node of a rank, and the duration of its answer.
    pub fn ask(&mut self, from: u32, to: u32, now: u64) -> (u64, u64) {
        let job = self.setting.job;
        let message = SimMessage {
            from,
            to,
            slot: 0,
            bytes: 8,
        };
        let back = match job.hops(from, to) {
            0 => 0,
            hops => ps(self.setting.figures.put(8, hops) - self.setting.figures.post_ns),
        };
        match from == to {
            true => (now, 0),
            false => (self.send(&message, now).1, back),
        }
    }

    pub fn atomic(&self) -> u64 {
        ps(self.setting.figures.atomic_ns)
    }

    /// Time to combine a value. Gates combine while packets pass, without extra time.
    pub fn combine(&self, slot: u32) -> u64 {
        match self.by_gates(slot) {
            true => 0,
            false => ps(self.setting.bytes as f64 / self.setting.figures.combine_gbs),
        }
    }

    pub fn copy(&self) -> u64 {
        ps(self.setting.bytes as f64 / self.setting.figures.local_gbs)
    }

    pub fn by_gates(&self, slot: u32) -> bool {
        self.setting.gates.is_some_and(|first| slot >= first)
    }

    /// Time from the last gate to the processor: the time of a put without its post and without the time between gates.
    pub fn out_of_gates(&self, slot: u32, last: bool) -> u64 {
        let figures = self.setting.figures;
        match self.by_gates(slot) && last {
            true => ps((figures.put_ns - figures.post_ns - figures.gate_ns).max(0.0)),
            false => 0,
        }
    }
}
