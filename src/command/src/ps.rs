//! `unipgas ps` and `unipgas top`: the jobs of this user on this host, and what their ranks are doing.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unipgas::core::job::board::{Board, boards};
use unipgas::core::job::picture::{Doing, Picture};
use unipgas::core::job::rates::Rates;

use crate::{counts, fail, shown};

/// Options of `unipgas ps`.
#[derive(clap::Args)]
pub struct Args {
    /// The job to look at, by the pid of its launcher or of a rank; without it all jobs, in a line each
    #[arg(value_name = "JOB")]
    job: Option<u32>,
    /// What its ranks have done so far: operations and bytes of each queue, and what was in their way
    #[arg(short, long, requires = "job")]
    counts: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Options of `unipgas top`.
#[derive(clap::Args)]
pub struct TopArgs {
    /// The job to look at, by the pid of its launcher or of a rank; not needed where there is one
    #[arg(value_name = "JOB")]
    job: Option<u32>,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = span)]
    delay: f64,
    /// How often to look; without it until the job has ended
    #[arg(short = 'n', long, value_name = "TIMES")]
    times: Option<u32>,
}

fn span(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "want seconds".to_owned())?;
    match (0.01..=1e6).contains(&seconds) {
        true => Ok(seconds),
        false => Err("want seconds, from 0.01 on".into()),
    }
}

/// A job on this host.
struct Job {
    board: Board,
    picture: Picture,
}

impl Job {
    fn all() -> Vec<Job> {
        let jobs = boards().into_iter().map(|board| Job {
            picture: Picture::look(&board),
            board,
        });
        jobs.collect()
    }

    /// Whether this is the pid of its launcher, of the process that has started that, or of a rank.
    fn has(&self, pid: u32) -> bool {
        let launcher = self.board.launcher_pid();
        let mut ranks = self.picture.ranks.iter();
        pid == launcher || Some(pid) == parent_of(launcher) || ranks.any(|seen| seen.pid == pid)
    }

    /// The one that has this pid, or the only one. Errors: a line.
    fn find(wanted: Option<u32>) -> Result<Job, String> {
        let mut all = Job::all();
        match wanted {
            Some(pid) => {
                let found = all.into_iter().find(|job| job.has(pid));
                found.ok_or_else(|| {
                    format!("{pid} is no process of a job on this host; unipgas ps lists the jobs")
                })
            }
            None => match only(&mut all) {
                (1, Some(job)) => Ok(job),
                (0, _) => Err("no job runs on this host".into()),
                (many, _) => Err(format!(
                    "{many} jobs run on this host: name one; unipgas ps lists them"
                )),
            },
        }
    }

    fn command(&self) -> String {
        let name = format!("/proc/{}/cmdline", self.board.launcher_pid());
        let bytes = std::fs::read(name).unwrap_or_default();
        let words = bytes
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
        words.join(" ").escape_debug().to_string()
    }

    /// Ranks here that wait in calls, that compute, and that do something else.
    fn counts(&self) -> [usize; 3] {
        let ranks = &self.picture.ranks;
        let waits = ranks.iter().filter(|seen| !seen.waits.is_empty()).count();
        let computes = (ranks.iter())
            .filter(|seen| seen.waits.is_empty() && seen.doing == Doing::Runs)
            .count();
        [waits, computes, ranks.len() - waits - computes]
    }

    fn json(&self) -> Value {
        json!({
            "job": self.board.launcher_pid(),
            "size": self.board.size(),
            "command": self.command(),
            "ranks": self.picture.ranks,
            "deadlock": self.picture.cycle(),
        })
    }

    fn text(&self, shown: &str) -> String {
        if self.picture.ranks.is_empty() {
            let pid = self.board.launcher_pid();
            return format!(
                "job {pid}, {} ranks, started by others: {}\nkill -USR1 {pid} has its launcher tell what they are doing\n",
                self.board.size(),
                self.command()
            );
        }
        let here = self.picture.ranks.len();
        let of = match here == self.board.size() as usize {
            true => String::new(),
            false => format!("{here} of "),
        };
        let (pid, size) = (self.board.launcher_pid(), self.board.size());
        format!("job {pid}, {of}{size} ranks: {}\n{shown}", self.command())
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// How many jobs have ranks here, and one of them: that of a launcher whose ranks others have started is none to look at.
fn only(all: &mut Vec<Job>) -> (usize, Option<Job>) {
    all.retain(|job| !job.picture.ranks.is_empty());
    (all.len(), all.pop())
}

/// `unipgas ps`.
pub fn run(args: &Args) -> ExitCode {
    if let Some(pid) = args.job {
        return match Job::find(Some(pid)) {
            Ok(job) if args.json => shown(&format!("{:#}\n", job.json())),
            Ok(job) if args.counts => shown(&job.text(&counts::table(&job.picture))),
            Ok(job) => shown(&job.text(&job.picture.table(None))),
            Err(why) => fail(1, &why),
        };
    }
    let jobs = Job::all();
    if args.json {
        let all: Vec<Value> = jobs.iter().map(Job::json).collect();
        return shown(&format!("{:#}\n", Value::from(all)));
    }
    let mut text = format!(
        "{:>8}  {:>6}  {:>5}  {:>7}  {:>5}  command\n",
        "job", "ranks", "wait", "compute", "other"
    );
    for job in &jobs {
        let (pid, size) = (job.board.launcher_pid(), job.board.size());
        let ([waits, computes, others], command) = (job.counts(), job.command());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{pid:>8}  {size:>6}  {waits:>5}  {computes:>7}  {others:>5}  {command}"
        );
    }
    shown(&text)
}

/// `unipgas top`.
pub fn top(args: &TopArgs) -> ExitCode {
    let mut out = std::io::stdout();
    let clear = if out.is_terminal() {
        "\x1b[H\x1b[J"
    } else {
        ""
    };
    let mut wanted = args.job;
    let mut looks = 0;
    let mut before: Option<(Picture, Instant)> = None;
    loop {
        let job = match Job::find(wanted) {
            Ok(job) => job,
            // It has ended.
            Err(_) if looks > 0 => return ExitCode::SUCCESS,
            Err(why) => return fail(1, &why),
        };
        wanted = Some(job.board.launcher_pid());
        let now = Instant::now();
        let rates = before
            .take()
            .map_or_else(Rates::default, |(picture, then)| {
                Rates::between(&picture, &job.picture, now - then)
            });
        let text = job.text(&job.picture.table(Some(&rates)));
        let text = format!("{clear}{text}");
        before = Some((job.picture, now));
        if out
            .write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return ExitCode::FAILURE;
        }
        looks += 1;
        if args.times.is_some_and(|times| looks >= times) {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(Duration::from_secs_f64(args.delay));
    }
}
