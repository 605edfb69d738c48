//! What the ranks of a job have met, as a table: `unipgas ps --counts`.

use std::fmt::Write as _;

use unipgas::core::job::picture::Picture;

/// A line for each rank.
pub fn table(picture: &Picture) -> String {
    let head = ["rank", "retries", "yields", "sleeps"].map(String::from);
    let rows = picture.ranks.iter().map(|seen| {
        let counts = &seen.counts;
        let figures = [counts.retries, counts.yields, counts.sleeps];
        let [retries, yields, sleeps] = figures.map(|many| many.to_string());
        [seen.rank.to_string(), retries, yields, sleeps]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let [a, b, c, d] = [0, 1, 2, 3].map(|column| widest(column).unwrap_or(0));
    let mut text = String::new();
    for [rank, retries, yields, sleeps] in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{rank:>a$}  {retries:>b$}  {yields:>c$}  {sleeps:>d$}"
        );
    }
    text
}
