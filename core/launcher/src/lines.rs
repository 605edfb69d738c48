//! Merges the output of ranks into one file, as lines of one rank each. An incomplete line waits here until it is complete. If its rank writes nothing for
//! a while, or the line is long, its beginning is written. The line is then *open*: only its rank continues it. The other ranks wait while that rank writes
//! without a pause. Then they begin a new line.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::time::{Duration, Instant};

/// An incomplete line is written after this time: a user must see a prompt.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// A longer incomplete line is written at once.
const KEPT: usize = 32 << 10;
/// The other ranks do not wait for the end of a longer line.
const LONGEST: usize = 4 << 20;

/// Prefix of each line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// No prefix.
    None,
    /// The rank.
    Plain,
    /// The rank, in a colour.
    Coloured,
}

impl Label {
    fn write(self, rank: u32, out: &mut Vec<u8>) {
        // A write to a vector cannot fail.
        let _ = match self {
            Label::None => Ok(()),
            Label::Plain => write!(out, "[{rank}] "),
            // Red to cyan: the background may be black or white.
            Label::Coloured => write!(out, "\x1b[{}m[{rank}]\x1b[0m ", 31 + rank % 6),
        };
    }
}

/// One output file, and the text for it.
pub(super) struct Lines {
    label: Label,
    pause: Duration,
    /// Text of each rank that has not been written.
    texts: BTreeMap<u32, Text>,
    open: Option<Open>,
    /// Ranks that wait for the end of the open line, in this order.
    waiting: VecDeque<u32>,
    /// Bytes to write now.
    pub out: Vec<u8>,
    /// The ranks of these bytes.
    pub gone: Vec<Gone>,
}

/// Bytes that have left the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub host: usize,
    pub rank: u32,
    pub bytes: usize,
}

struct Text {
    host: usize,
    bytes: Vec<u8>,
    /// Start of the wait of the first bytes.
    since: Instant,
    /// Arrival of the last bytes.
    last: Instant,
}

struct Open {
    rank: u32,
    since: Instant,
    length: usize,
}

impl Lines {
    pub(crate) fn new(label: Label, pause: Duration) -> Lines {
        Lines {
            label,
            pause,
            texts: BTreeMap::new(),
            open: None,
            waiting: VecDeque::new(),
            out: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Adds output of a rank.
    pub fn add(&mut self, host: usize, rank: u32, bytes: &[u8], now: Instant) {
        let text = self.texts.entry(rank).or_insert(Text {
            host,
            bytes: Vec::new(),
            since: now,
            last: now,
        });
        text.bytes.extend_from_slice(bytes);
        text.last = now;
        if let Some(open) = &self.open
            && open.rank == rank
            && open.length > LONGEST
            && !self.waiting.is_empty()
        {
            self.end_line();
        }
        if !self.waiting.contains(&rank) {
            self.waiting.push_back(rank);
        }
        if self.open.as_ref().is_some_and(|open| open.rank == rank) {
            self.waiting.retain(|other| *other != rank);
            self.turn(rank);
        }
        self.turns(now);
    }

    /// Time of the next [`look`](Lines::look), unless more output comes first.
    pub fn next(&self) -> Option<Instant> {
        let open = self.open.as_ref().map(|open| open.since);
        let earliest = self.texts.values().map(|text| text.since).min()?;
        Some(open.map_or(earliest, |open| open.max(earliest)) + self.pause)
    }

    /// Releases text that has waited for the pause.
    pub fn look(&mut self, now: Instant) {
        self.turns(now);
        while self.may_begin(now)
            && let Some(rank) = self.oldest().filter(|rank| self.is_late(*rank, now))
        {
            self.begin(rank);
            self.put(rank, usize::MAX);
        }
    }

    /// Releases all text of a rank.
    pub(crate) fn flush(&mut self, rank: u32) {
        if self.texts.contains_key(&rank) {
            self.waiting.retain(|other| *other != rank);
            self.begin(rank);
            self.put(rank, usize::MAX);
        }
    }

    /// Ends the open line, before lines from another source.
    pub(crate) fn interrupt(&mut self) {
        if self.open.is_some() {
            self.end_line();
        }
    }

    /// Releases all text. Returns whether the last line is incomplete.
    pub(crate) fn close(&mut self) -> bool {
        let first = std::mem::take(&mut self.waiting);
        first.into_iter().for_each(|rank| self.flush(rank));
        while let Some(rank) = self.oldest() {
            self.flush(rank);
        }
        if self.label != Label::None {
            self.interrupt();
        }
        self.open.is_some()
    }

    fn oldest(&self) -> Option<u32> {
        let oldest = self.texts.iter().min_by_key(|(_, text)| text.since);
        oldest.map(|(rank, _)| *rank)
    }

    fn is_late(&self, rank: u32, now: Instant) -> bool {
        let since = self.texts.get(&rank).map(|text| text.since);
        since.is_some_and(|since| now >= since + self.pause)
    }

    /// Whether the ranks that wait for the open line may write.
    fn may_begin(&self, now: Instant) -> bool {
        let open = self.open.as_ref();
        open.is_none_or(|open| now >= open.since + self.pause)
    }

    fn turns(&mut self, now: Instant) {
        while self.may_begin(now)
            && let Some(rank) = self.waiting.pop_front()
        {
            self.turn(rank);
        }
    }

    /// Releases the text of a rank that may be written now: complete lines, the continuation of its open line, and text too long to keep.
    fn turn(&mut self, rank: u32) {
        let Some(text) = self.texts.get(&rank) else {
            return;
        };
        let end = text.bytes.iter().rposition(|&byte| byte == b'\n');
        let whole = end.map_or(0, |at| at + 1);
        let rest = text.bytes.len() - whole;
        let goes_on = whole == 0 && self.open.as_ref().is_some_and(|open| open.rank == rank);
        let all = goes_on || rest > KEPT || self.pause.is_zero();
        let count = if all { text.bytes.len() } else { whole };
        if count > 0 {
            self.begin(rank);
            self.put(rank, count);
        }
    }

    /// Ends the open line of another rank.
    fn begin(&mut self, rank: u32) {
        if self.open.as_ref().is_some_and(|open| open.rank != rank) {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        self.out.push(b'\n');
        self.open = None;
    }

    /// Releases at most `count` bytes of a rank. An open line must be of this rank.
    fn put(&mut self, rank: u32, count: usize) {
        let Some(text) = self.texts.get_mut(&rank) else {
            return;
        };
        let count = count.min(text.bytes.len());
        for line in text.bytes[..count].split_inclusive(|&byte| byte == b'\n') {
            let before = self.open.take();
            if before.is_none() {
                self.label.write(rank, &mut self.out);
            }
            self.out.extend_from_slice(line);
            if line.last() != Some(&b'\n') {
                self.open = Some(Open {
                    rank,
                    since: text.last,
                    length: before.map_or(0, |open| open.length) + line.len(),
                });
            }
        }
        self.gone.push(Gone {
            host: text.host,
            rank,
            bytes: count,
        });
        text.bytes.drain(..count);
        text.since = text.last;
        if text.bytes.is_empty() {
            self.texts.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Page {
        lines: Lines,
        now: Instant,
    }

    impl Page {
        fn new(label: Label) -> Page {
            Page {
                lines: Lines::new(label, PAUSE),
                now: Instant::now(),
            }
        }

        fn add(&mut self, rank: u32, text: &str) -> String {
            self.lines.add(0, rank, text.as_bytes(), self.now);
            self.out()
        }

        fn wait(&mut self) -> String {
            self.now += PAUSE;
            self.lines.look(self.now);
            self.out()
        }

        fn out(&mut self) -> String {
            String::from_utf8(std::mem::take(&mut self.lines.out)).unwrap()
        }
    }

    #[test]
    fn a_line_is_of_one_rank() {
        let mut page = Page::new(Label::None);
        assert_eq!(page.add(0, "a"), "");
        assert_eq!(page.add(1, "b\nc"), "b\n");
        assert_eq!(page.add(0, "a\nd"), "aa\n");
        assert_eq!(page.add(1, "c\n"), "cc\n");
        assert!(page.lines.close());
        assert_eq!(page.out(), "d", "nothing is added where nothing follows");
    }

    #[test]
    fn a_question_is_seen_and_its_line_goes_on() {
        let mut page = Page::new(Label::None);
        assert_eq!(page.add(0, "name? "), "");
        let late = page.lines.next().unwrap();
        assert_eq!(late, page.now + PAUSE);
        assert_eq!(page.wait(), "name? ");
        assert_eq!(page.lines.next(), None);
        assert_eq!(page.add(0, "thanks\n"), "thanks\n");
        // Output of another rank begins a new line.
        page.add(0, "age? ");
        assert_eq!(page.wait(), "age? ");
        assert_eq!(page.add(1, "x\n"), "\nx\n");
        assert_eq!(page.add(0, "thanks\n"), "thanks\n");
        // Two prompts: two lines.
        page.add(0, "p");
        page.add(1, "q");
        assert_eq!(page.wait(), "p\nq");
    }

    #[test]
    fn the_others_wait_for_the_end_of_a_long_line() {
        let mut page = Page::new(Label::None);
        let long = "x".repeat(KEPT + 1);
        assert_eq!(page.add(0, &long), long);
        assert_eq!(page.add(1, "b\n"), "");
        assert_eq!(page.add(2, "c\n"), "");
        assert_eq!(page.add(0, &long), long);
        assert_eq!(page.add(0, "y\nz"), "y\nb\nc\n");
        assert_eq!(page.wait(), "z");
        // The wait is limited.
        assert_eq!(page.add(0, &long), long);
        assert_eq!(page.add(1, "b\n"), "");
        assert_eq!(page.wait(), "\nb\n");
        let longest = "x".repeat(LONGEST + 1);
        page.add(0, &longest);
        assert_eq!(page.add(1, "b\n"), "");
        assert_eq!(page.add(0, "end\n"), "\nb\nend\n");
    }

    #[test]
    fn what_a_rank_has_written_can_be_wanted_now() {
        let mut page = Page::new(Label::None);
        page.add(0, "a");
        page.lines.flush(0);
        page.lines.interrupt();
        assert_eq!(page.out(), "a\n");
        page.lines.flush(0);
        page.lines.interrupt();
        assert_eq!(page.out(), "");
        let gone: usize = page.lines.gone.iter().map(|gone| gone.bytes).sum();
        assert_eq!(gone, 1, "the end of the line is not the rank's");
    }

    #[test]
    fn each_line_has_its_label() {
        let mut page = Page::new(Label::Plain);
        assert_eq!(page.add(7, "a\n\nb"), "[7] a\n[7] \n");
        assert_eq!(page.wait(), "[7] b");
        assert_eq!(page.add(7, "c"), "c");
        page.now += PAUSE;
        assert_eq!(page.add(8, "d\n"), "\n[8] d\n");
        assert_eq!(page.add(7, "e"), "");
        assert!(!page.lines.close());
        assert_eq!(page.out(), "[7] e\n");
        let mut page = Page::new(Label::Coloured);
        assert_eq!(page.add(1, "a\n"), "\x1b[32m[1]\x1b[0m a\n");
    }

    #[test]
    fn one_process_has_the_file_for_itself() {
        let mut lines = Lines::new(Label::None, Duration::ZERO);
        lines.add(0, 0, b"a\nb", Instant::now());
        assert_eq!(lines.out, b"a\nb");
        assert_eq!(lines.next(), None);
    }
}
