//! What ranks write at the same time to one file, as lines of one rank each. A line that is not complete yet stays here until it is; if its rank writes
//! nothing for a while, or if it is long, what there is of it goes out, and the line is *open*: it is its rank's to go on with. The others wait as long
//! as that does so without a pause, and begin a new line then.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::time::{Duration, Instant};

/// What has not been completed for so long goes out: a person who is asked something must see it.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// A line of more bytes is not kept until it is complete.
const KEPT: usize = 32 << 10;
/// The others wait no longer for the end of a line.
const LONGEST: usize = 4 << 20;

/// What each line begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// Nothing.
    None,
    /// The rank.
    Plain,
    /// The rank, in a colour.
    Coloured,
}

impl Label {
    fn write(self, rank: u32, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ = match self {
            Label::None => Ok(()),
            Label::Plain => write!(out, "[{rank}] "),
            // Red to cyan: black and white may be what is behind the letters.
            Label::Coloured => write!(out, "\x1b[{}m[{rank}]\x1b[0m ", 31 + rank % 6),
        };
    }
}

/// One file, with what is to be written there.
pub(super) struct Lines {
    label: Label,
    pause: Duration,
    /// What has come of whom, and has not gone out.
    texts: BTreeMap<u32, Text>,
    open: Option<Open>,
    /// Who has something for when the line ends, in this order.
    waiting: VecDeque<u32>,
    /// What goes out now.
    pub out: Vec<u8>,
    /// Whose bytes those are.
    pub gone: Vec<Gone>,
}

/// Bytes that are kept no longer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub host: usize,
    pub rank: u32,
    pub bytes: usize,
}

struct Text {
    host: usize,
    bytes: Vec<u8>,
    /// Since when the first of them have been here.
    since: Instant,
    /// When the last ones came.
    last: Instant,
}

struct Open {
    rank: u32,
    since: Instant,
    length: usize,
}

impl Lines {
    pub fn new(label: Label, pause: Duration) -> Lines {
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

    /// A rank has written something.
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

    /// When something goes out that nothing else follows.
    pub fn next(&self) -> Option<Instant> {
        let open = self.open.as_ref().map(|open| open.since);
        let earliest = self.texts.values().map(|text| text.since).min()?;
        Some(open.map_or(earliest, |open| open.max(earliest)) + self.pause)
    }

    /// Lets out what has been waiting for a while.
    pub fn look(&mut self, now: Instant) {
        self.turns(now);
        while self.may_begin(now)
            && let Some(rank) = self.oldest().filter(|rank| self.is_late(*rank, now))
        {
            self.begin(rank);
            self.put(rank, usize::MAX);
        }
    }

    /// Lets out all that a rank has written.
    pub fn flush(&mut self, rank: u32) {
        if self.texts.contains_key(&rank) {
            self.waiting.retain(|other| *other != rank);
            self.begin(rank);
            self.put(rank, usize::MAX);
        }
    }

    /// Whole lines of somebody else go out next.
    pub fn interrupt(&mut self) {
        if self.open.is_some() {
            self.end_line();
        }
    }

    /// Lets out everything, and says whether the last line has no end.
    pub fn close(&mut self) -> bool {
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

    /// Whether somebody else than who writes the line may write.
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

    /// What of a rank's text can go out now does: complete lines, of the one that it has begun everything, and what is too long to be kept.
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

    /// What goes out next is of this rank.
    fn begin(&mut self, rank: u32) {
        if self.open.as_ref().is_some_and(|open| open.rank != rank) {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        self.out.push(b'\n');
        self.open = None;
    }

    /// At most `count` bytes of a rank, which is the one that has begun the line, if one is open.
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
        // Who has something to say meanwhile begins a line.
        page.add(0, "age? ");
        assert_eq!(page.wait(), "age? ");
        assert_eq!(page.add(1, "x\n"), "\nx\n");
        assert_eq!(page.add(0, "thanks\n"), "thanks\n");
        // Two questions: two lines.
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
        // But not for ever.
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
