//! `unipgas run --trace FILE`: writes the timeline of a job from the events of its processes.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value, json};
use unipgas::core::tell;

use crate::records::Records;

/// Variables for ranks that append their events to `records`.
pub fn variables(records: &Records) -> [(OsString, OsString); 1] {
    [("UNIPGAS_TRACE".into(), records.path().into())]
}

/// Checks before the job starts that the file can be written. Errors: a line.
pub fn begin(path: &Path) -> Result<(), String> {
    std::fs::write(path, b"[]\n").map_err(|error| format!("--trace {}: {error}", path.display()))
}

/// Writes the events in order, with times relative to the first event. Returns false, after an error line, if the file cannot be written.
pub fn end(path: &Path, text: &str, processes: u32) -> bool {
    let events = events(text);
    let told = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .count();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command = words.collect::<Vec<_>>().join(" ");
    let whole = json!({
        "displayTimeUnit": "ns",
        "otherData": { "unipgas": env!("CARGO_PKG_VERSION"), "processes": processes, "command": command },
        "traceEvents": events,
    });
    if let Err(error) = std::fs::write(path, format!("{whole}\n")) {
        // A truncated file would be invalid JSON.
        let _ = std::fs::write(path, b"[]\n");
        tell(&format!("--trace {}: {error}", path.display()));
        return false;
    }
    if told < processes as usize {
        tell(&format!(
            "{} of {processes} ranks have no timeline: they have not begun to communicate",
            processes as usize - told
        ));
    }
    true
}

/// Each line has one event and a comma. Incomplete lines are skipped.
fn events(text: &str) -> Vec<Map<String, Value>> {
    let line = |line: &str| serde_json::from_str(line.strip_suffix(',')?).ok();
    let mut events: Vec<Map<String, Value>> = text.lines().filter_map(line).collect();
    let time = |event: &Map<String, Value>| event.get("ts").and_then(Value::as_f64).unwrap_or(0.0);
    events.sort_by(|one, other| time(one).total_cmp(&time(other)));
    let first = events.first().map_or(0.0, time);
    for event in &mut events {
        // Rounds to a nanosecond; `ts` is in microseconds.
        let since = ((time(event) - first) * 1e3).round() / 1e3;
        event.insert("ts".into(), since.into());
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_in_order() {
        let text = "[\n{\"name\":\"b\",\"ts\":1500.25},\n{\"name\":\"a\",\"ts\":1000.0},\n{\"name\":\"cut o";
        let found = events(text);
        let shown: Vec<_> = found
            .iter()
            .map(|event| (event["name"].as_str(), event["ts"].as_f64()))
            .collect();
        assert_eq!(shown, [(Some("a"), Some(0.0)), (Some("b"), Some(500.25))]);
    }
}
