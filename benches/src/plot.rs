//! Plots of results as SVG: over sizes, and over numbers of processes.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::case::Metric;
use crate::record::{BenchRecord, is_bare, is_ours};
use crate::samples::family;
use crate::table;

/// The limit between processes that share no memory.
const TCP: &str = "bare/tcp";

/// The horizontal axis.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Bytes,
    Processes,
}

/// A plot of a metric.
struct Chart {
    metric: Metric,
    file: &'static str,
    title: &'static str,
    /// Description of the limit.
    limit: &'static str,
    over: Over,
}

const CHARTS: [Chart; 6] = [
    Chart {
        metric: Metric::PutNotice,
        file: "latency.svg",
        title: "Put with notice between two processes, one way",
        limit: "bare exchange",
        over: Over::Bytes,
    },
    Chart {
        metric: Metric::Bandwidth,
        file: "bandwidth.svg",
        title: "Puts between two processes",
        limit: "memcpy",
        over: Over::Bytes,
    },
    Chart {
        metric: Metric::PairRate,
        file: "rate.svg",
        title: "8-byte puts of pairs of processes, all together",
        limit: "plain stores",
        over: Over::Processes,
    },
    Chart {
        metric: Metric::Barrier,
        file: "barrier.svg",
        title: "Barrier",
        limit: "best bare barrier",
        over: Over::Processes,
    },
    Chart {
        metric: Metric::Start,
        file: "start.svg",
        title: "Time between launch and main work in every process",
        limit: "bare processes",
        over: Over::Processes,
    },
    Chart {
        metric: Metric::Memory,
        file: "memory.svg",
        title: "Memory that joining a job takes, of each process",
        limit: "",
        over: Over::Processes,
    },
];

/// A plot.
pub(crate) struct Plot {
    file: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The image.
    pub svg: String,
}

/// A column over sizes or processes.
struct Line<'a> {
    api: &'a str,
    /// The backend, if the plot shows several.
    backend: Option<&'a str>,
    points: Vec<(f64, f64)>,
}

/// The plots that have a line of at least two points.
pub fn all(records: &[BenchRecord]) -> Result<Vec<Plot>, String> {
    let mut plots = Vec::new();
    for chart in &CHARTS {
        let lines = lines(chart, records);
        if lines.iter().all(|line| line.points.len() < 2) {
            continue;
        }
        let mut svg = String::new();
        draw(&mut svg, chart, &lines).map_err(|e| format!("{}: {e}", chart.file))?;
        plots.push(Plot {
            file: chart.file,
            title: chart.title,
            svg,
        });
    }
    Ok(plots)
}

/// Writes the plots into `dir`. Returns their paths.
pub fn write(dir: &Path, records: &[BenchRecord]) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut written = Vec::new();
    for plot in all(records)? {
        let path = dir.join(plot.file);
        std::fs::write(&path, plot.svg).map_err(|e| format!("{}: {e}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn lines<'a>(chart: &Chart, records: &'a [BenchRecord]) -> Vec<Line<'a>> {
    let of_metric = || records.iter().filter(|r| r.metric == chart.metric);
    let several = !table::Columns::of(records).backends.is_empty();
    // Plots over processes show only the smallest size.
    let size = of_metric().map(|r| r.bytes).min();
    let mut lines: Vec<Line> = Vec::new();
    for record in of_metric() {
        if chart.over == Over::Processes && Some(record.bytes) != size {
            continue;
        }
        // One line for the limit: the best variant at each point.
        let bare = is_bare(family(&record.api));
        let api = match bare {
            true if record.api.starts_with(TCP) => TCP,
            true => "bare",
            false => &record.api,
        };
        let backend = (several && record.is_ours()).then_some(record.backend.as_str());
        let value = match bare {
            true => record.limit.unwrap_or(record.value),
            false => record.value,
        };
        let x = match chart.over {
            Over::Bytes => record.bytes as f64,
            Over::Processes => f64::from(record.processes),
        };
        let same = |line: &&mut Line| (line.api, line.backend) == (api, backend);
        match lines.iter_mut().find(same) {
            Some(line) if line.points.last() == Some(&(x, value)) => {}
            Some(line) => line.points.push((x, value)),
            None => lines.push(Line {
                api,
                backend,
                points: vec![(x, value)],
            }),
        }
    }
    lines
}

/// The name of a column in legends.
fn label(api: &str, limit: &str) -> String {
    let (name, variant) = match api {
        TCP => ("limit: plain TCP", ""),
        _ => (
            family(api),
            api.split_once('/').map_or("", |(_, variant)| variant),
        ),
    };
    let name = match name {
        "bare" => &format!("limit: {limit}"),
        "provider" if variant == "fd" => return "the same, to sleep at".into(),
        "provider" => "libfabric's provider",
        "core" => "unipgas core",
        "gaspi" => "unipgas GASPI",
        "utofu" => "unipgas uTofu",
        "ircce" => "unipgas RCCE",
        "libfabric" => "unipgas libfabric",
        "openmpi" => "Open MPI",
        "openmpi_windows" => "Open MPI's windows",
        "oshmem" => "OpenSHMEM",
        "mpich" => "MPICH",
        "ucx" => "UCX",
        "ofi_shm" => "libfabric's shm",
        "ofi_tcp" => "libfabric's tcp",
        other => other,
    };
    match variant {
        "" => name.into(),
        variant => format!("{name}, {variant}"),
    }
}

/// The colour of a column, the same in every plot. Colour-blind readers can tell the colours apart: the set of Okabe and Ito, and some in between.
fn color(api: &str) -> RGBColor {
    match api {
        "provider" => RGBColor(110, 110, 110),
        "provider/fd" => RGBColor(170, 170, 170),
        "openmpi/sendrecv" => RGBColor(140, 110, 40),
        _ => match family(api) {
            "bare" => BLACK,
            "core" => RGBColor(213, 94, 0),
            "gaspi" => RGBColor(0, 114, 178),
            "utofu" => RGBColor(204, 121, 167),
            "libfabric" => RGBColor(0, 158, 115),
            "ircce" => RGBColor(90, 60, 150),
            "ucx" => RGBColor(230, 159, 0),
            "openmpi" => RGBColor(86, 180, 233),
            "mpich" => RGBColor(150, 30, 60),
            "oshmem" => RGBColor(120, 170, 60),
            "ofi_shm" => RGBColor(200, 190, 60),
            _ => RGBColor(90, 140, 140),
        },
    }
}

/// 1, 2 and 5 times each power of ten from `low` to `high`; only the powers over more than three decades.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let many = (high / low).log10() > 3.0;
    let steps: &[f64] = if many { &[1.0] } else { &[1.0, 2.0, 5.0] };
    decades
        .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

/// The label of a value of the vertical axis.
fn tick_label(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        // 0.3 times a power of ten has no exact value.
        v => format!("{}", (v * 1e6).round() / 1e6),
    }
}

fn draw(svg: &mut String, chart: &Chart, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|l| l.points.iter());
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0f64), |(low, high), v| {
            (low.min(v), high.max(v))
        })
    };
    let (x_low, x_high) = range(&mut points().map(|p| p.0));
    let (y_low, y_high) = range(&mut points().map(|p| p.1));
    let (y_low, y_high) = (y_low * 0.7, y_high * 1.4);
    let mut measured: Vec<f64> = points().map(|p| p.0).collect();
    measured.sort_by(f64::total_cmp);
    measured.dedup();

    let area = SVGBackend::with_string(svg, (960, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let (plot, legend) = area.split_horizontally(720);
    let mut axes = ChartBuilder::on(&plot)
        .caption(chart.title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (x_low * 0.8..x_high * 1.25)
                .log_scale()
                .base(2.0)
                .with_key_points(measured),
            (y_low..y_high)
                .log_scale()
                .with_key_points(ticks(y_low, y_high)),
        )?;
    let x_label = |x: &f64| match chart.over {
        Over::Bytes => table::size(x.round() as u64),
        Over::Processes => x.round().to_string(),
    };
    axes.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(215, 215, 215))
        .x_desc(match chart.over {
            Over::Bytes => "size",
            Over::Processes => "processes",
        })
        .y_desc(chart.metric.unit())
        .axis_desc_style(("sans-serif", 16))
        .label_style(("sans-serif", 14))
        .x_labels(32)
        .y_labels(32)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|y| tick_label(*y))
        .draw()?;

    for (row, line) in lines.iter().enumerate() {
        let ours = is_ours(family(line.api));
        let first = lines.iter().find_map(|line| line.backend);
        // Backends other than the first have hollow marks.
        let other = line.backend != first && line.backend.is_some();
        let color = color(line.api);
        let style = color.stroke_width(if ours && !other { 3 } else { 2 });
        let mark = if other {
            color.stroke_width(2)
        } else {
            color.filled()
        };
        let size = if ours { 4 } else { 3 };
        axes.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        axes.draw_series(line.points.iter().map(|&p| Circle::new(p, size, mark)))?;
        let y = 64 + 26 * row as i32;
        legend.draw(&PathElement::new(vec![(4, y), (34, y)], style))?;
        legend.draw(&Circle::new((19, y), size, mark))?;
        let mut name = label(line.api, chart.limit);
        name.extend(line.backend.map(|backend| format!(", {backend}")));
        legend.draw(&Text::new(name, (42, y - 8), ("sans-serif", 16)))?;
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
            "libfabric",
            "ircce",
            "openmpi",
            "openmpi/sendrecv",
            "mpich",
            "oshmem",
            "ofi_shm",
            "ofi_tcp",
            "ucx",
        ];
        for (nth, name) in columns.iter().enumerate() {
            for other in &columns[..nth] {
                assert_ne!(color(name), color(other), "{name} and {other}");
                assert_ne!(label(name, "memcpy"), label(other, "memcpy"));
            }
        }
        assert_eq!(label("bare/tcp", "memcpy"), "limit: plain TCP");
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.9, 12.0), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks(3.0, 20_000.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(tick_label(ticks(0.1, 0.6)[1]), "0.2");
        assert_eq!(tick_label(20_000.0), "20k");
    }

    #[test]
    fn every_column_is_in_the_legend() {
        let mut samples = Samples::default();
        let cases: Vec<Case> = [8, 4096]
            .map(|bytes| Case::new(Metric::PutNotice, 2, bytes))
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
        let setting = crate::record::RecordSetting::of_tests(false, false);
        let written = write(&dir, &crate::record::all(&cases, &samples, &setting)).expect("a plot");
        let svg = std::fs::read_to_string(&written[0]).expect("the file");
        std::fs::remove_dir_all(&dir).expect("the directory goes");
        assert_eq!(written.len(), 1, "no bandwidth was measured");
        for name in ["limit", "unipgas core", "unipgas GASPI", "UCX", "4 KiB"] {
            assert!(svg.contains(name), "{name} is missing");
        }
    }
}
