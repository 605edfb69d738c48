//! The operation counts of a job's ranks as a table: `unipgas ps --counts`.

use unipgas_launcher::job_snapshot::JobSnapshot;

/// One row with the sums of each rank, then one row for each used queue of the rank.
pub fn table(picture: &JobSnapshot) -> String {
    let head = [
        "rank",
        "queue",
        "operations",
        "bytes",
        "under way",
        "retries",
        "yields",
        "sleeps",
    ];
    let mut rows = vec![head.map(String::from)];
    for seen in &picture.ranks {
        let counts = &seen.counts;
        let none = String::new;
        rows.push([
            seen.rank.to_string(),
            "all".into(),
            counts.operations.to_string(),
            counts.bytes.to_string(),
            none(),
            counts.retries.to_string(),
            counts.yields.to_string(),
            counts.sleeps.to_string(),
        ]);
        // Long waits update this number; otherwise it is stale.
        let waits = !seen.waits.is_empty();
        for queue in counts.queues.iter().filter(|queue| queue.operations > 0) {
            rows.push([
                none(),
                queue.name.escape_debug().to_string(),
                queue.operations.to_string(),
                queue.bytes.to_string(),
                if waits {
                    queue.pending.to_string()
                } else {
                    none()
                },
                none(),
                none(),
                none(),
            ]);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..head.len()).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
