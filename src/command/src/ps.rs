//! `unipgas ps` and `unipgas top`: the jobs of this user on this host or several hosts, and the state of their ranks.

pub(crate) mod job;

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use unipgas::core::tell;
use unipgas_launcher::job_snapshot::JobSnapshot;
use unipgas_launcher::rates::Rates;

use crate::hosts::{Asked, Asking};
use crate::{Ended, counts, fail, failed, shown};
use job::{JobListing, JobSelector};

/// Options of `unipgas ps`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job to show, by the pid of its launcher or of a rank, with --hosts also as HOST:PID; without it, all jobs, one on each line
    #[arg(value_name = "JOB")]
    job: Option<JobSelector>,
    /// Operations and bytes of each rank and queue so far, and retries, yields and sleeps
    #[arg(short, long)]
    counts: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Options of `unipgas top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// The job to show, by the pid of its launcher or of a rank, with --hosts also as HOST:PID; optional if only one job runs
    #[arg(value_name = "JOB")]
    job: Option<JobSelector>,
    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = span)]
    delay: f64,
    /// Number of updates; without it until the job has ended
    #[arg(short = 'n', long, value_name = "TIMES")]
    times: Option<u32>,
    #[command(flatten)]
    asked: Asked,
}

fn span(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "want seconds".to_owned())?;
    match (0.01..=1e6).contains(&seconds) {
        true => Ok(seconds),
        false => Err("want seconds, from 0.01 on".into()),
    }
}

/// The hosts to search for jobs; `None`: this host.
struct Places(Option<Asking>);

impl Places {
    fn new(asked: &Asked) -> Result<Places, String> {
        asked.for_what(&["ps", "--json"]).map(Places)
    }

    fn words(&self) -> String {
        match &self.0 {
            Some(asking) => asking.place(),
            None => "this host".into(),
        }
    }

    /// The jobs on these hosts, and the number of hosts that did not answer. It prints a line for each of the latter.
    fn jobs(&self) -> (Vec<JobListing>, usize) {
        let Some(asking) = &self.0 else {
            return (JobListing::all(), 0);
        };
        let mut failed = 0;
        let mut heard = Vec::new();
        for (host, said) in asking.ask(JobListing::all, |text| serde_json::from_str(text).ok()) {
            match said {
                Ok(jobs) => heard.push((host, jobs)),
                Err(why) => {
                    failed += 1;
                    tell(&why);
                }
            }
        }
        (JobListing::joined(heard), failed)
    }

    /// The job of this name, or the only one, and the number of hosts that did not answer. Errors: a line.
    fn find(&self, wanted: Option<&JobSelector>) -> (Result<JobListing, String>, usize) {
        let (jobs, failed) = self.jobs();
        (JobListing::find(jobs, wanted, &self.words()), failed)
    }
}

/// `unipgas ps`.
pub fn run(args: &Args) -> Ended {
    let places = Places::new(&args.asked).map_err(failed(2))?;
    if args.counts && args.job.is_none() {
        return fail(
            2,
            "--counts is of one job: unipgas ps --counts JOB; unipgas ps lists the jobs",
        );
    }
    let (text, failed) = match &args.job {
        Some(name) => match places.find(Some(name)) {
            (Ok(job), failed) => (one(args, &job), failed),
            (Err(why), _) => return fail(1, why),
        },
        None => {
            let (jobs, failed) = places.jobs();
            let text = match args.json {
                true => json(&jobs),
                false => JobListing::list(&jobs),
            };
            (text, failed)
        }
    };
    let status = shown(&text);
    match failed {
        0 => status,
        _ => Ok(ExitCode::FAILURE),
    }
}

fn one(args: &Args, job: &JobListing) -> String {
    let picture = job.picture();
    match (args.json, args.counts) {
        (true, _) => json(job),
        (_, true) => job.text(&counts::table(&picture)),
        _ => job.text(&picture.table(None)),
    }
}

fn json(what: &impl serde::Serialize) -> String {
    // All values are structures with named fields, so serialization does not fail.
    serde_json::to_string_pretty(what).unwrap_or_default() + "\n"
}

/// `unipgas top`.
pub fn top(args: &TopArgs) -> Ended {
    let places = Places::new(&args.asked).map_err(failed(2))?;
    let mut out = std::io::stdout();
    let clear = if out.is_terminal() {
        "\x1b[H\x1b[J"
    } else {
        ""
    };
    let mut wanted = args.job.clone();
    let mut looks = 0;
    let mut before: Option<(JobSnapshot, Instant)> = None;
    loop {
        let job = match places.find(wanted.as_ref()) {
            (Ok(job), _) => job,
            // The job has ended.
            (Err(_), 0) if looks > 0 => return Ok(ExitCode::SUCCESS),
            (Err(why), _) => return fail(1, why),
        };
        wanted = Some(job.name());
        let (now, picture) = (Instant::now(), job.picture());
        let rates = before
            .take()
            .map_or_else(Rates::default, |(earlier, then)| {
                Rates::between(&earlier, &picture, now - then)
            });
        let text = job.text(&picture.table(Some(&rates)));
        let text = format!("{clear}{text}");
        before = Some((picture, now));
        if out
            .write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return Ok(ExitCode::FAILURE);
        }
        looks += 1;
        if args.times.is_some_and(|times| looks >= times) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs_f64(args.delay));
    }
}
