//! The figures of the model, and their sources.

use crate::{Result, wrong};

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureSource {
    /// The publication.
    Published(&'static str),
    /// No publication is known. The reason for this value.
    Assumed(&'static str),
}

/// One figure, for tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Its name in [`Figures::set`].
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Its meaning.
    pub about: &'static str,
    /// Its source.
    pub source: FigureSource,
}

/// The figures of the model. Times in ns; bandwidths in GB/s, that is bytes per ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// One-way time of a put of 8 bytes to a neighbour, from the call until the target sees the data.
    pub put_ns: f64,
    /// Time of each further hop.
    pub hop_ns: f64,
    /// Bandwidth of a link in one direction, including headers.
    pub link_gbs: f64,
    /// Bandwidth of a node with all its TNIs, for injection and for reception, without headers.
    pub injection_gbs: f64,
    /// TNIs of a node.
    pub tnis: f64,
    /// Time of the processor to post a put; part of `put_ns`.
    pub post_ns: f64,
    /// Minimum time between the starts of two puts at a TNI.
    pub gap_ns: f64,
    /// Time between two atomic operations on one word.
    pub atomic_ns: f64,
    /// Time of 8 bytes to another process of the node, through shared memory.
    pub local_ns: f64,
    /// The processor's part of `local_ns`.
    pub store_ns: f64,
    /// Bandwidth of a copy to another process of the node.
    pub local_gbs: f64,
    /// Bandwidth of a processor that combines values in a reduction.
    pub combine_gbs: f64,
    /// Time of a packet from a barrier gate to a gate of a neighbour, including that gate.
    pub gate_ns: f64,
}

const PAPER: &str = "Ajima et al., The Tofu Interconnect D, CLUSTER 2018";

impl Default for Figures {
    fn default() -> Self {
        Figures {
            put_ns: 490.0,
            hop_ns: 100.0,
            link_gbs: 6.8,
            injection_gbs: 38.1,
            tnis: 6.0,
            post_ns: 100.0,
            gap_ns: 50.0,
            atomic_ns: 50.0,
            local_ns: 200.0,
            store_ns: 20.0,
            local_gbs: 20.0,
            combine_gbs: 10.0,
            gate_ns: 250.0,
        }
    }
}

impl Figures {
    /// Bandwidth of a put through one TNI, in bytes per ns: the injection bandwidth of the node divided by its TNIs. This is 93 % of a link, as published.
    pub fn put_gbs(&self) -> f64 {
        self.injection_gbs / self.tnis
    }

    /// Bandwidth of a link without headers, in bytes per ns. Headers take the same share as for a put.
    pub fn link_payload_gbs(&self) -> f64 {
        self.link_gbs.min(self.put_gbs())
    }

    /// One-way time of a put of `bytes` over `hops` hops, in ns. With 0 hops it stays in the node, through shared memory.
    pub fn put(&self, bytes: u64, hops: u32) -> f64 {
        let more = bytes.saturating_sub(8) as f64;
        match hops {
            0 => self.local_ns + more / self.local_gbs,
            hops => self.put_ns + f64::from(hops - 1) * self.hop_ns + more / self.put_gbs(),
        }
    }

    /// Bandwidth of consecutive puts of `bytes` between two processes, over `hops` hops through one TNI, in bytes per ns.
    pub fn stream(&self, bytes: u64, hops: u32) -> f64 {
        let busy = match hops {
            0 => bytes as f64 / self.local_gbs,
            _ => (bytes as f64 / self.put_gbs()).max(self.gap_ns),
        };
        bytes as f64 / busy.max(self.post_ns)
    }

    fn fields(
        &mut self,
    ) -> [(
        &'static str,
        &mut f64,
        &'static str,
        &'static str,
        FigureSource,
    ); 13] {
        use FigureSource::{Assumed, Published};
        #[rustfmt::skip]
        let fields = [
            ("put", &mut self.put_ns, "ns", "put of 8 bytes to a neighbour", Published(PAPER)),
            ("hop", &mut self.hop_ns, "ns", "each further hop", Assumed("as of the first Tofu: Ajima et al., IEEE Micro, 1/2012")),
            ("link", &mut self.link_gbs, "GB/s", "a link in one direction", Published(PAPER)),
            ("injection", &mut self.injection_gbs, "GB/s", "injection of a node", Published(PAPER)),
            ("tnis", &mut self.tnis, "", "network interfaces of a node", Published(PAPER)),
            ("post", &mut self.post_ns, "ns", "processor's part of a put", Assumed("a fifth of the put")),
            ("gap", &mut self.gap_ns, "ns", "time between puts of a TNI", Assumed("half of what a processor needs to post one")),
            ("atomic", &mut self.atomic_ns, "ns", "atomic operation on one word after another", Assumed("as the gap of a TNI")),
            ("local", &mut self.local_ns, "ns", "8 bytes within a node", Assumed("two transfers of a cache line between core groups")),
            ("store", &mut self.store_ns, "ns", "processor's part of that", Assumed("a tenth: stores do not wait")),
            ("copy", &mut self.local_gbs, "GB/s", "copy of one process within a node", Assumed("one core's part of the memory's bandwidth")),
            ("combine", &mut self.combine_gbs, "GB/s", "reduction of one process", Assumed("two streams read and one written at a core's part")),
            ("gate", &mut self.gate_ns, "ns", "barrier gate to that of a neighbour", Assumed("half of a put: no processor, no memory")),
        ];
        fields
    }

    /// All figures, in a fixed order.
    pub fn list(&self) -> Vec<Figure> {
        let mut copy = *self;
        let fields = copy.fields();
        let figure = |(name, value, unit, about, source): (_, &mut f64, _, _, _)| Figure {
            name,
            value: *value,
            unit,
            about,
            source,
        };
        fields.into_iter().map(figure).collect()
    }

    /// Sets a figure, for example `hop=80`. Errors: an unknown figure, or a value that is not above 0.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let Some((name, value)) = text.split_once('=') else {
            return wrong(format!(
                "{text:?} sets no figure: a name and a value are needed, as in hop=80"
            ));
        };
        let value = match value.parse::<f64>() {
            Ok(value) if value > 0.0 && value.is_finite() => value,
            _ => {
                return wrong(format!(
                    "{value:?} is no value of {name}: it must be above 0"
                ));
            }
        };
        if name == "tnis" && value.fract() != 0.0 {
            return wrong("a node has a whole number of TNIs");
        }
        let mut names = Vec::new();
        for (known, place, ..) in self.fields() {
            if known == name {
                *place = value;
                return Ok(());
            }
            names.push(known);
        }
        wrong(format!(
            "there is no figure {name:?}: there are {}",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_through_one_interface_has_the_published_part_of_a_link() {
        let figures = Figures::default();
        let part = figures.put_gbs() / figures.link_gbs;
        assert_eq!((part * 100.0).round(), 93.0);
        assert_eq!(figures.put(8, 1), 490.0);
        assert_eq!(figures.put(0, 3), 690.0);
    }

    #[test]
    fn short_puts_are_bound_by_posting_and_long_ones_by_the_interface() {
        let figures = Figures::default();
        assert_eq!(figures.stream(8, 1), 8.0 / figures.post_ns);
        let long = figures.stream(1 << 24, 1);
        assert!((long - figures.put_gbs()).abs() < 1e-9, "{long}");
    }

    #[test]
    fn figures_are_set_by_name() {
        let mut figures = Figures::default();
        for figure in figures.list() {
            figures.set(&format!("{}=3", figure.name)).unwrap();
        }
        assert!(figures.list().iter().all(|figure| figure.value == 3.0));
        for bad in ["hop", "hop=", "hop=-1", "hop=nan", "nothing=1", "tnis=1.5"] {
            assert!(figures.set(bad).is_err(), "{bad}");
        }
    }
}
