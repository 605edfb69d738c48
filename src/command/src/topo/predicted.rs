//! The prediction for a pattern, as text and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use unipgas_tofud::figures::{Figure, FigureSource};
use unipgas_tofud::predict::Prediction;
use unipgas_tofud::shape::{AXES, PORTS};
use unipgas_tofud::{Figures, JobLayout, TrafficPattern};

use super::text::{grouped, time};

/// A pattern and its prediction.
pub(super) struct PatternReport<'a> {
    pub job: &'a JobLayout,
    pub figures: &'a Figures,
    pub pattern: TrafficPattern,
    pub bytes: u64,
    pub predicted: &'a Prediction,
}

impl PatternReport<'_> {
    /// The pattern on the job, in a line.
    pub fn title(&self) -> String {
        format!(
            "TofuD {}: {} of {} bytes, {} predicted",
            self.job.shape,
            self.pattern,
            grouped(self.bytes),
            time(self.predicted.time_ns)
        )
    }

    pub fn text(&self) -> String {
        let Prediction { loads, .. } = self.predicted;
        let far = loads.messages - loads.local;
        let mut text = format!(
            "Predicted by a model of TofuD, not measured:\n  {}, {} bytes a message\n",
            self.pattern,
            grouped(self.bytes)
        );
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<22}{value}");
        };
        line("time", time(self.predicted.time_ns));
        line("bottleneck", self.predicted.bottleneck.name().into());
        line(
            "latency",
            format!(
                "{} over {} hops",
                time(self.predicted.latency_ns),
                loads.longest
            ),
        );
        line(
            "messages",
            format!(
                "{}, {} of them within nodes",
                grouped(loads.messages),
                grouped(loads.local)
            ),
        );
        if far > 0 {
            line(
                "hops of a message",
                format!("{:.2} in the mean", loads.hops as f64 / far as f64),
            );
        }
        line(
            "all together",
            format!("{:.1} GB/s", self.predicted.total_gbs),
        );
        if let Some((link, bytes)) = loads.hottest() {
            let (node, axis, sign) = named(link);
            line(
                "busiest link",
                format!("{sign}{axis} of node {node}: {} bytes", grouped(bytes)),
            );
        }
        let busy = self.predicted.busy_ns.iter().filter(|(_, ns)| *ns > 0.0);
        for (nth, (what, ns)) in busy.enumerate() {
            let name = if nth == 0 { "busy" } else { "" };
            line(name, format!("{:<20}{}", what.name(), time(*ns)));
        }
        text + "\n" + &figures(self.figures)
    }

    pub fn json(&self) -> Value {
        let (job, loads) = (self.job, &self.predicted.loads);
        let busiest = loads.hottest().map(|(link, bytes)| {
            let (node, axis, sign) = named(link);
            json!({ "node": node, "port": format!("{sign}{axis}"), "bytes": bytes })
        });
        let busy = self.predicted.busy_ns.iter();
        let busy: serde_json::Map<String, Value> = busy
            .map(|(what, ns)| (what.name().into(), json!(ns)))
            .collect();
        json!({
            "model": "tofud",
            "shape": job.shape.lengths(),
            "nodes": job.shape.nodes(),
            "processes": job.processes,
            "per_node": job.per_node,
            "pattern": self.pattern.to_string(),
            "bytes": self.bytes,
            "time_ns": self.predicted.time_ns,
            "latency_ns": self.predicted.latency_ns,
            "bottleneck": self.predicted.bottleneck.name(),
            "busy_ns": busy,
            "messages": loads.messages,
            "messages_within_nodes": loads.local,
            "hops": loads.hops,
            "longest_hops": loads.longest,
            "busiest_link": busiest,
            "total_gbs": self.predicted.total_gbs,
            "figures": self.figures.list().iter().map(figure).collect::<Vec<_>>(),
        })
    }
}

/// Node, axis and direction of a link.
fn named(link: usize) -> (usize, char, char) {
    let port = link % PORTS;
    let sign = if port % 2 == 1 { '+' } else { '-' };
    (link / PORTS, AXES[port / 2], sign)
}

/// A figure for JSON.
pub fn figure(figure: &Figure) -> Value {
    let (known, source) = match figure.source {
        FigureSource::Published(source) => ("published", source),
        FigureSource::Assumed(source) => ("assumed", source),
    };
    json!({
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "about": figure.about,
        known: source,
    })
}

/// All figures, the published ones first.
pub fn figures(figures: &Figures) -> String {
    let defaults = Figures::default().list();
    let all = figures.list();
    let mut published: Vec<(&str, Vec<String>)> = Vec::new();
    let mut assumed = String::new();
    for (figure, default) in all.iter().zip(&defaults) {
        let value = format!("{} {} {}", figure.name, figure.value, figure.unit);
        let value = value.trim_end().to_owned();
        let set = figure.value != default.value;
        match figure.source {
            FigureSource::Published(source) if !set => {
                match published.iter_mut().find(|(known, _)| *known == source) {
                    Some((_, values)) => values.push(value),
                    None => published.push((source, vec![value])),
                }
            }
            FigureSource::Assumed(why) if !set => {
                let _ = writeln!(assumed, "  {value:<22}{}", why);
            }
            _ => {
                let _ = writeln!(assumed, "  {value:<22}set by --set");
            }
        }
    }
    let mut text = String::new();
    for (source, values) in published {
        let _ = writeln!(text, "Published ({source}):\n  {}", values.join(", "));
    }
    text + "Assumed, without published figures; --set NAME=VALUE takes others:\n" + &assumed
}
