//! Records as lines of JSON.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::record::BenchRecord;

/// The destination.
pub(crate) struct Json {
    name: String,
    to: Box<dyn Write + Send>,
}

impl Json {
    /// Opens the file, or standard output for "-".
    pub fn create(path: &Path) -> Result<Json, String> {
        let name = path.display().to_string();
        let to: Box<dyn Write + Send> = match is_stdout(path) {
            true => Box::new(std::io::stdout()),
            false => Box::new(File::create(path).map_err(|e| format!("{name}: {e}"))?),
        };
        Ok(Json { name, to })
    }

    /// Writes whole lines and flushes them, so that readers see them at once.
    pub fn write(&mut self, records: &[BenchRecord]) -> Result<(), String> {
        let mut lines = Vec::new();
        let written = records.iter().try_for_each(|record| {
            serde_json::to_writer(&mut lines, record)?;
            lines.write_all(b"\n")
        });
        written
            .and_then(|()| self.to.write_all(&lines))
            .and_then(|()| self.to.flush())
            .map_err(|e| format!("{}: {e}", self.name))
    }
}

/// Whether this stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The last record of each figure, in the order of the table. An incomplete last line is skipped: a killed run may leave one.
pub fn read(path: &Path) -> Result<Vec<BenchRecord>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    let mut records: Vec<BenchRecord> = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let record = match serde_json::from_str::<BenchRecord>(line) {
            Ok(record) => record,
            Err(_) if !line.ends_with('\n') => break,
            Err(why) => {
                return Err(format!(
                    "{name}: line {} is no record of unipgas bench --json: {why}",
                    number + 1
                ));
            }
        };
        match records.iter_mut().find(|old| old.is_of_the_same(&record)) {
            Some(old) => *old = record,
            None => records.push(record),
        }
    }
    if records.is_empty() {
        return Err(format!("{name}: no records"));
    }
    records.sort_by_key(BenchRecord::case);
    Ok(records)
}
