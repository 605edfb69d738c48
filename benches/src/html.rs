//! A page for browsers, in one file: plots and tables of the results, and the machine.

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::case::Metric;
use crate::compare::Worth;
use crate::plot;
use crate::record::BenchRecord;
use crate::table::{Columns, about, size};

const STYLE: &str = include_str!("page.css");

/// Writes the page.
///
/// # Errors
/// A text if it cannot be written, or if there are no records.
pub fn write(path: &Path, records: &[BenchRecord], notes: &[String]) -> Result<(), String> {
    if records.is_empty() {
        return Err("nothing was measured: there is no page of it".into());
    }
    let page = page(records, notes)?.into_string();
    std::fs::write(path, page).map_err(|e| format!("{}: {e}", path.display()))
}

fn page(records: &[BenchRecord], notes: &[String]) -> Result<Markup, String> {
    let columns = Columns::of(records);
    let plots = plot::all(records)?;
    let machine = records.iter().find_map(|record| record.machine.as_ref());
    let metrics: Vec<Metric> = Metric::all()
        .filter(|metric| records.iter().any(|record| record.metric == *metric))
        .collect();
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "unipgas bench" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "unipgas bench" }
                @if let Some(machine) = machine {
                    dl {
                        dt { "Release" } dd { (machine.version) }
                        dt { "Host" } dd { (machine.host) ", " (machine.cpu) }
                        dt { "Cores" } dd { (list(&machine.cores)) " (ranks are pinned to them in turn)" }
                        dt { "Date" } dd { (machine.date) }
                        dt { "Load" } dd { (format!("{:.2}", machine.load)) }
                        dt { "Hosts" } dd { (records[0].hosts) }
                    }
                }
                p {
                    "Each figure is a median; hover over it for its quartiles and the number of its values. Ratios are of medians of one run: "
                    b { "x limit" } " to the best hand-written way on this machine, " b { "x peer" } " to the best of the other libraries."
                }
                nav {
                    @for metric in &metrics { a href=(format!("#{}", metric.name())) { (metric.name()) } " " }
                }
                @if !plots.is_empty() {
                    section class="plots" {
                        @for plot in &plots {
                            figure role="img" aria-label=(plot.title) { (PreEscaped(&plot.svg)) }
                        }
                    }
                }
                @for metric in &metrics { (table(*metric, records, &columns)) }
                @if !notes.is_empty() {
                    h2 { "Not measured" }
                    ul { @for note in notes { li { (note) } } }
                }
            }
        }
    })
}

fn list(cores: &[usize]) -> String {
    let words: Vec<String> = cores.iter().map(usize::to_string).collect();
    words.join(", ")
}

fn table(metric: Metric, records: &[BenchRecord], columns: &Columns) -> Markup {
    let rows: Vec<&BenchRecord> = records.iter().filter(|r| r.metric == metric).collect();
    let heads = columns.heads();
    html! {
        h2 id=(metric.name()) { (metric.name()) }
        p { (about(metric, columns.network)) ", in " (metric.unit()) }
        div class="wide" {
            table {
                thead { tr {
                    th { "processes" } th { "size" }
                    @for head in &heads { th { (head) } }
                } }
                tbody {
                    @for (nth, row) in rows.iter().enumerate() {
                        @let first = nth == 0 || rows[nth - 1].case() != row.case();
                        tr class=[first.then_some("first")] {
                            td { @if first { (row.processes) } }
                            td { @if first { (size(row.bytes)) } }
                            @for (head, cell) in heads.iter().zip(columns.cells(row, records)) {
                                td class=[class(head, row)] title=[title(head, row)] { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The CSS class of a cell.
fn class(head: &str, row: &BenchRecord) -> Option<&'static str> {
    match head {
        "column" if row.is_ours() => Some("ours"),
        "column" | "backend" => Some("word"),
        "target" => match row.met {
            Some(true) => Some("word good"),
            Some(false) => Some("word bad"),
            None => Some("word"),
        },
        "x old (noise)" => match row.change?.worth(row.metric.more_is_better()) {
            Worth::Better => Some("good"),
            Worth::Worse => Some("bad"),
            Worth::Noise => None,
        },
        _ => None,
    }
}

fn title(head: &str, row: &BenchRecord) -> Option<String> {
    if head != "median" {
        return None;
    }
    let [low, high] = row.quartiles?;
    Some(format!(
        "{low:.4} to {high:.4} {}, {} values",
        row.unit, row.values
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::record::{RecordSetting, all};
    use crate::samples::Samples;

    #[test]
    fn a_page_has_plots_tables_and_what_was_not_measured() {
        let mut samples = Samples::default();
        let cases: Vec<Case> = [8, 4096]
            .map(|bytes| Case::new(Metric::PutNotice, 2, bytes))
            .to_vec();
        for case in &cases {
            samples.add(*case, "bare", 100.0);
            samples.add(*case, "core", 150.0);
        }
        let setting = RecordSetting::of_tests(false, true);
        let notes = ["ucx: not <usable>".to_string()];
        let text = page(&all(&cases, &samples, &setting), &notes)
            .unwrap()
            .into_string();
        for part in [
            "<svg",
            "id=\"put_notice\"",
            "4 KiB",
            "MISSED",
            "class=\"word bad\"",
            "ucx: not &lt;usable&gt;",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        // The page loads no other file.
        for part in ["src=", "<link", "<script", "@import"] {
            assert!(!text.contains(part), "{part}");
        }
        assert!(write(Path::new("/nowhere"), &[], &[]).is_err());
    }
}
