//! Latency and bandwidth over size as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::case::Metric;
use crate::record::{Record, is_bare, is_ours};
use crate::samples::family;
use crate::table;

/// The limit between processes that share no memory.
const TCP: &str = "bare/tcp";

/// A column over sizes.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Writes `latency.svg` and `bandwidth.svg` into `dir` from what was measured; returns what was written.
pub fn write(dir: &Path, records: &[Record]) -> Result<Vec<std::path::PathBuf>, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut written = Vec::new();
    for (metric, file, title, axis) in [
        (
            Metric::PutNotice,
            "latency.svg",
            "Put with notice between two processes, one way",
            "ns",
        ),
        (
            Metric::Bandwidth,
            "bandwidth.svg",
            "Puts between two processes",
            "GB/s",
        ),
    ] {
        let lines = lines(metric, records);
        if lines.iter().all(|l| l.points.len() < 2) {
            continue;
        }
        let path = dir.join(file);
        draw(&path, title, axis, &lines, metric.more_is_better())
            .map_err(|e| format!("{}: {e}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn lines(metric: Metric, records: &[Record]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for record in records.iter().filter(|r| r.case.metric == metric) {
        // One line for the limit, whichever of its variants was the best at a size.
        let bare = is_bare(family(&record.api));
        let name = match bare {
            true if record.api.starts_with(TCP) => TCP,
            true => "bare",
            false => &record.api,
        };
        let point = (
            record.bytes as f64,
            if bare {
                record.limit.unwrap_or(record.value)
            } else {
                record.value
            },
        );
        match lines.iter_mut().find(|l| l.name == name) {
            Some(line) if line.points.last() == Some(&point) => {}
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: name.into(),
                points: vec![point],
            }),
        }
    }
    lines
}

fn label(name: &str, bandwidth: bool) -> &str {
    match name {
        TCP => "limit: plain TCP",
        "bare" if bandwidth => "limit: memcpy",
        "bare" => "limit: bare exchange",
        "provider" => "libfabric's provider",
        "provider/fd" => "the same, to sleep at",
        "core" => "unipgas core",
        "gaspi" => "unipgas GASPI",
        "utofu" => "unipgas uTofu",
        "unipgas" => "unipgas libfabric",
        peer => peer,
    }
}

/// The colour of a column, the same in every plot. Distinguishable also for colour-blind readers (the set of Okabe and Ito).
fn color(name: &str) -> RGBColor {
    match name {
        "bare" | TCP => BLACK,
        "provider" => RGBColor(110, 110, 110),
        "provider/fd" => RGBColor(170, 170, 170),
        "core" => RGBColor(213, 94, 0),
        "gaspi" => RGBColor(0, 114, 178),
        "ucx" => RGBColor(230, 159, 0),
        "openmpi" | "openmpi/put" => RGBColor(86, 180, 233),
        "openmpi/sendrecv" => RGBColor(140, 110, 40),
        "oshmem" | "unipgas" => RGBColor(0, 158, 115),
        _ => RGBColor(204, 121, 167),
    }
}

fn draw(
    path: &Path,
    title: &str,
    axis: &str,
    lines: &[Line],
    more_is_better: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|l| l.points.iter());
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0f64), |(low, high), v| {
            (low.min(v), high.max(v))
        })
    };
    let (x_low, x_high) = range(&mut points().map(|p| p.0));
    let (y_low, y_high) = range(&mut points().map(|p| p.1));

    let area = SVGBackend::new(path, (960, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let (plot, legend) = area.split_horizontally(740);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (x_low * 0.8..x_high * 1.25).log_scale().base(2.0),
            (y_low * 0.7..y_high * 1.4).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .x_desc("size")
        .y_desc(axis)
        .axis_desc_style(("sans-serif", 16))
        .label_style(("sans-serif", 14))
        .x_labels(12)
        .max_light_lines(1)
        .x_label_formatter(&|x| table::size(x.round() as u64))
        .y_label_formatter(&|y| table::plain(*y))
        .draw()?;

    for (row, line) in lines.iter().enumerate() {
        let ours = is_ours(family(&line.name));
        let color = color(&line.name);
        let style = color.stroke_width(if ours { 3 } else { 2 });
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        chart.draw_series(
            line.points
                .iter()
                .map(|&p| Circle::new(p, if ours { 4 } else { 3 }, color.filled())),
        )?;
        let y = 64 + 26 * row as i32;
        legend.draw(&PathElement::new(vec![(4, y), (34, y)], style))?;
        legend.draw(&Circle::new(
            (19, y),
            if ours { 4 } else { 3 },
            color.filled(),
        ))?;
        legend.draw(&Text::new(
            label(&line.name, more_is_better),
            (42, y - 8),
            ("sans-serif", 16),
        ))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::samples::Samples;

    #[test]
    fn columns_of_a_network_have_names_and_colours_of_their_own() {
        let columns = [
            "bare/tcp",
            "provider",
            "provider/fd",
            "core",
            "gaspi",
            "utofu",
            "unipgas",
            "openmpi",
            "openmpi/sendrecv",
            "ucx",
        ];
        for (nth, name) in columns.iter().enumerate() {
            for other in &columns[..nth] {
                assert_ne!(color(name), color(other), "{name} and {other}");
                assert_ne!(label(name, true), label(other, true));
            }
        }
        assert_eq!(label("bare/tcp", true), "limit: plain TCP");
    }

    #[test]
    fn every_column_is_in_the_legend() {
        let mut samples = Samples::default();
        let cases: Vec<Case> = [8, 4096]
            .map(|bytes| Case {
                metric: Metric::PutNotice,
                processes: 2,
                bytes,
            })
            .to_vec();
        for case in &cases {
            for (api, value) in [
                ("bare", 100.0),
                ("core", 110.0),
                ("gaspi", 120.0),
                ("ucx", 150.0),
            ] {
                samples.add(*case, api, value);
            }
        }
        let dir = std::env::temp_dir().join(format!("unipgas-plot-{}", std::process::id()));
        let setting = crate::record::Setting {
            backend: "shm".into(),
            hosts: "this one".into(),
            network: false,
            model: None,
        };
        let written = write(&dir, &crate::record::all(&cases, &samples, &setting)).expect("a plot");
        let svg = std::fs::read_to_string(&written[0]).expect("the file");
        std::fs::remove_dir_all(&dir).expect("the directory goes");
        assert_eq!(written.len(), 1, "no bandwidth was measured");
        for name in ["limit", "unipgas core", "unipgas GASPI", "ucx", "4 KiB"] {
            assert!(svg.contains(name), "{name} is missing");
        }
    }
}
