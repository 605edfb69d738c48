//! The command `unipgas conform`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unipgas_core::{print, tell};

use crate::hosts::{self, HostPool};
use crate::html::{HtmlReport, Run, RunState};
use crate::law::LossKind;
use crate::matrix::{self, Cell, Column, Matrix, SeedPlan};
use crate::runner::{LawResult, Runner};
use crate::{Api, Law, coverage, laws, report, sentences, worker};
use unipgas_core::stop::Stop;

/// With more jobs, laws of 48 processes would exceed the limits of most machines.
const MOST_JOBS: u64 = 256;
/// Maximum number of ranks of a law.
const MOST_HOSTS: u64 = 48;
/// Time between two writes of the report during a run.
const ANEW: Duration = Duration::from_secs(30);

/// Checks the laws of each interface on each backend. Exit status 0 only if no law is broken.
#[derive(Parser, Debug, Default, PartialEq, Eq)]
#[command(
    name = "unipgas conform",
    args_override_self = true,
    disable_version_flag = true
)]
struct Wishes {
    /// Only the laws of this interface: core, gaspi, utofu, rcce (or ircce), libfabric
    #[arg(long, value_name = "A", value_parser = api)]
    api: Option<Api>,
    /// Only this column (several: with commas between them): shm, shm-copy (without adoption of memory in place), chaos, streams and streams-tcp (nothing is
    /// mapped: everything goes over sockets; old name: opaque), streams-chaos (chaos around that), streams-poor (any order, narrow limits),
    /// mixed (shm among the ranks of one parity, streams between the two), tofu-mock (over tests/with-tofu-double), loopback; for the networks
    /// verbs (an RDMA device), tofu (the machine's uTofu library) and ofi (libfabric) also NAME-chaos (chaos around it) and mixed-NAME
    #[arg(long, value_name = "B")]
    backend: Option<String>,
    /// Distributes the ranks over N hosts in turn: shm within a host, the job's network between them. Root creates the hosts from namespaces
    /// (status 77: not possible here), unless HOSTS names hosts; HOSTS_RSH reaches them like ssh
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=MOST_HOSTS))]
    hosts: Option<u64>,
    /// Only laws with this text in their names; with a * the pattern is the whole name. Separate several by commas
    #[arg(long, value_name = "PATTERN")]
    law: Option<String>,
    /// Only the laws in which processes die, others replace them, or links between hosts break
    #[arg(long, value_name = "K", value_enum)]
    kind: Option<LossKind>,
    /// Laws about order run under N seeds on chaos, at most 50 elsewhere (20)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed (1); without --seeds all laws run under this seed alone
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// A law hangs if all its ranks have waited S seconds without success (30). It also hangs if no rank moves for 10 S, or if a seed takes 100 S
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86400))]
    limit: Option<u64>,
    /// The library under test (default: ../lib/libunipgas.so.0 beside this program); UNIPGAS_LIB names it, too
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Runs N jobs of laws in parallel (default: one for each core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_JOBS))]
    jobs: Option<u64>,
    /// Writes one record a line (- is standard output, without the table)
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Writes pages for a browser into this directory, starting with index.html: the run, the matrix, each specification sentence by sentence, and each law;
    /// also the records. Updates them twice a minute, at the end, and on Ctrl-C
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Also runs laws that are known to be broken in a column, and fails if they pass
    #[arg(long)]
    pinned: bool,
    /// Lists the laws
    #[arg(long)]
    list: bool,
    /// Lists the laws that check each procedure
    #[arg(long)]
    coverage: bool,
    /// Lists the normative sentences of the specifications (with --api: only this one), each with its laws
    #[arg(long)]
    sentences: bool,
}

/// Errors: one line.
fn api(name: &str) -> Result<Api, String> {
    Api::named(name).ok_or_else(|| {
        let names: Vec<_> = Api::ALL.iter().map(|api| api.name()).collect();
        format!("there are: {}", names.join(", "))
    })
}

/// The command line, for man pages and shells.
pub fn command() -> clap::Command {
    Wishes::command()
}

/// Errors: the text to show instead.
fn parse(args: impl Iterator<Item = String>) -> Result<Wishes, clap::Error> {
    Wishes::try_parse_from(std::iter::once("unipgas conform".to_string()).chain(args))
}

/// Whether one of the comma-separated `patterns` matches `id`.
fn matches_any(id: &str, patterns: &str) -> bool {
    patterns
        .split(',')
        .any(|pattern| matches_pattern(id, pattern))
}

/// Whether `pattern` matches `id`: as a part, or with `*` (any characters) as a whole.
fn matches_pattern(id: &str, pattern: &str) -> bool {
    if !pattern.contains('*') {
        return id.contains(pattern);
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| id.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn select(wishes: &Wishes) -> Result<Vec<&'static Law>, String> {
    let known = laws::all();
    if let Some(pattern) = &wishes.law
        && let Some(law) = laws::find(pattern)
    {
        return Ok(vec![law]);
    }
    let chosen: Vec<_> = known
        .into_iter()
        .filter(|law| wishes.api.is_none_or(|api| law.api == api))
        .filter(|law| wishes.law.as_ref().is_none_or(|p| matches_any(law.id, p)))
        .filter(|law| wishes.kind.is_none() || law.kind() == wishes.kind)
        .collect();
    if chosen.is_empty() {
        return Err("no law has such a name; unipgas conform --list shows them".into());
    }
    Ok(chosen)
}

fn columns(wishes: &Wishes) -> Result<Vec<&'static Column>, String> {
    if wishes.hosts.is_some() {
        return match &wishes.backend {
            None => Ok(matrix::columns()
                .iter()
                .filter(|column| column.hosts)
                .collect()),
            Some(_) => Err("--hosts is a separate column: omit --backend".into()),
        };
    }
    let named = wishes.backend.iter().flat_map(|names| names.split(','));
    let named: Vec<_> = (named.map(|name| (name, Column::current_name(name)))).collect();
    let is_wanted = |name| named.is_empty() || named.iter().any(|(_, one)| one == name);
    let chosen: Vec<_> = matrix::columns()
        .iter()
        .filter(|column| !column.hosts && is_wanted(column.name))
        .collect();
    let is_known = |name: &str| chosen.iter().any(|column| column.name == name);
    if let Some((wrong, _)) = named.iter().find(|(_, name)| !is_known(name)) {
        let names = matrix::columns().iter().filter(|column| !column.hosts);
        let names: Vec<_> = names.map(|column| column.name).collect();
        return Err(format!(
            "there is no backend {wrong:?}; there are: {}, and --hosts N",
            names.join(", ")
        ));
    }
    Ok(chosen)
}

/// Runs the command. The caller must have filled the table of backends (`unipgas_backends::init`). This executable must call this function with
/// all its arguments: it starts itself as the processes of the jobs.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    match args.split_first() {
        Some((first, rest)) if first == "--worker" => return worker::run(rest),
        Some((first, rest)) if first == "--part" => return hosts::run_part(rest),
        Some((first, _)) if first == "--orphans" => return hosts::tell_orphans(),
        _ => {}
    }
    let outcome = match parse(args.iter().cloned()) {
        Ok(wishes) => carry_out(&wishes, &args),
        Err(help) if !help.use_stderr() => print(&help.to_string())
            .map(|()| ExitCode::SUCCESS)
            .map_err(|e| e.to_string()),
        Err(wrong) => Err(format!(
            "{}; --help lists what there is",
            first_line(&wrong)
        )),
    };
    outcome.unwrap_or_else(|text| {
        // Ignores write errors: standard error may be closed.
        let _ = writeln!(std::io::stderr(), "unipgas: {text}");
        ExitCode::from(2)
    })
}

fn first_line(wrong: &clap::Error) -> String {
    let text = wrong.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn carry_out(wishes: &Wishes, args: &[String]) -> Result<ExitCode, String> {
    let say = |text: &str| print(text).map_err(|e| e.to_string());
    if wishes.sentences {
        say(&sentences::table(wishes.api))?;
        return Ok(ExitCode::SUCCESS);
    }
    let laws = select(wishes)?;
    if wishes.list {
        for law in laws {
            say(&format!(
                "{:45} {} x  {}: {}\n",
                law.id, law.processes, law.clause, law.says
            ))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if wishes.coverage {
        say(&coverage::table(&laws))?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = columns(wishes)?;
    let by_name = wishes.backend.is_some() || wishes.hosts.is_some();
    if let (true, [column]) = (by_name, columns.as_slice())
        && let Some(why) = column.missing()
    {
        return Err(format!("nothing can run on {} here: {why}", column.name));
    }
    let mut at_a_time = match wishes.jobs {
        Some(jobs) => jobs as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let library = match laws.iter().all(|law| law.api == Api::Core) {
        true => PathBuf::new(),
        false => unipgas_launcher::library::find(wishes.library.as_deref())?,
    };
    let limit = Duration::from_secs(wishes.limit.unwrap_or(30));
    let mut runner = Runner::new(limit, library.into())?;
    if let Some(each) = wishes.hosts {
        runner.hosts = HostPool::from_env(each as usize)?;
        match &runner.hosts {
            Some(hosts) => at_a_time = at_a_time.min(hosts.jobs()),
            None => return hosts::make(each as usize, at_a_time, args),
        }
    }
    let alone = wishes.seed.is_some() && wishes.seeds.is_none();
    let plan = SeedPlan {
        first: wishes.seed.unwrap_or(1),
        count: wishes.seeds.unwrap_or(if alone { 1 } else { 20 }),
        all: alone,
        broken: wishes.pinned,
        cuts: runner.hosts.as_ref().is_some_and(HostPool::can_cut),
    };
    let mut json = match wishes.json.as_deref() {
        None => None,
        Some("-") => Some(Box::new(std::io::stdout()) as Box<dyn Write>),
        Some(path) => Some(Box::new(
            std::fs::File::create(path).map_err(|e| format!("cannot write {path}: {e}"))?,
        ) as Box<dyn Write>),
    };
    if wishes.report.is_some() {
        runner.stop = Some(Stop::hold());
    }
    let matrix = Matrix::new(&runner, &laws, &columns, &plan);
    let report = match &wishes.report {
        None => None,
        Some(dir) => {
            let run = Run {
                command: command_line(args),
                laws: &laws,
                columns: &columns,
                plan,
                work: matrix.work(),
            };
            Some(HtmlReport::begin(dir, run)?)
        }
    };
    let bar = progress_bar(matrix.work());
    let progress = |column: &'static Column, done| {
        bar.set_message(column.name);
        bar.set_position(done);
    };
    let worked = match &report {
        None => matrix.run(at_a_time, &progress),
        Some(report) => reported(report, &matrix, || matrix.run(at_a_time, &progress)),
    };
    bar.finish_and_clear();
    let cells = matrix.cells();
    let stopped = runner.is_stopped();
    let written = match &report {
        None => Ok(()),
        Some(report) => {
            let state = match &worked {
                Err(why) => RunState::Ended(why),
                Ok(()) if stopped => RunState::Ended("it was asked to by a signal"),
                Ok(()) => RunState::Done,
            };
            report.write(&cells, state)
        }
    };
    worked?;
    if let Some(to) = &mut json {
        report::json(&cells, &mut **to)
            .and_then(|()| to.flush())
            .map_err(|e| format!("cannot write the records: {e}"))?;
    }
    if let (Some(report), true) = (&report, stopped) {
        match &written {
            Ok(()) => tell(&format!(
                "stopped; the results so far are in {}",
                report.index().display()
            )),
            Err(why) => tell(why),
        }
        if let Some(stop) = runner.stop.take() {
            stop.obey();
        }
    }
    if wishes.json.as_deref() != Some("-") {
        say(&report::table(&laws, &columns, &cells))?;
    }
    written?;
    let applies = |cell: &Cell| !matches!(cell.ran.verdict, LawResult::NotApplicable(_));
    if !cells.iter().any(applies) {
        return Err("no law has been tried: none of those chosen applies here".into());
    }
    Ok(match report::counts(&cells).failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Runs `work`, and meanwhile writes the report at intervals.
fn reported<T>(report: &HtmlReport<'_>, matrix: &Matrix<'_>, work: impl FnOnce() -> T) -> T {
    let (over, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(ANEW) == Err(RecvTimeoutError::Timeout) {
                // The last write reports errors.
                let _ = report.write(&matrix.cells(), RunState::Running);
            }
        });
        let worked = work();
        drop(over);
        worked
    })
}

/// This command as a shell line.
fn command_line(args: &[String]) -> String {
    let words = ["unipgas", "conform"].into_iter();
    let words = words.chain(args.iter().map(String::as_str));
    // Cannot fail: arguments of a process contain no zero bytes.
    shlex::try_join(words).unwrap_or_default()
}

fn progress_bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{msg:9} [{bar:40}] {pos}/{len} seeds, {elapsed}, {eta} to go",
    );
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(line: &str) -> Result<Wishes, String> {
        parse(line.split_whitespace().map(String::from)).map_err(|wrong| first_line(&wrong))
    }

    #[test]
    fn options_are_read() {
        let expected = Wishes {
            api: Some(Api::Gaspi),
            backend: Some("chaos".into()),
            law: Some("gaspi.notify*".into()),
            seeds: Some(1000),
            seed: Some(7),
            json: Some("-".into()),
            ..Wishes::default()
        };
        let line = "--api gaspi --backend=chaos --law gaspi.notify* --seeds 1000 --seed=7 --json -";
        assert_eq!(wishes(line), Ok(expected));
        for (line, part) in [
            ("--api mpi", "core, gaspi, utofu, rcce"),
            ("--kind order", "invalid value"),
            ("--seeds 0", "0 is not in 1.."),
            ("--seed x", "invalid digit"),
            ("--seed", "a value is required"),
            ("--limit 100000", "1..=86400"),
            ("--jobs 1000", "1..=256"),
            ("--hosts 1", "2..=48"),
            ("--hosts 1000", "2..=48"),
            ("--list=1", "unexpected value"),
            ("--frobnicate", "unexpected argument"),
            ("laws", "unexpected argument"),
        ] {
            let error = wishes(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn patterns() {
        assert!(matches_pattern("core.put.bounds", "put"));
        assert!(matches_pattern("core.put.bounds", "core.*"));
        assert!(matches_pattern("core.put.bounds", "*bounds"));
        assert!(matches_pattern("core.put.bounds", "c*put*s"));
        assert!(!matches_pattern("core.put.bounds", "put*"));
        assert!(!matches_pattern("core.put.bounds", "*put"));
        assert!(!matches_pattern("core.put.bounds", "core.put.b*bounds*s"));
        assert!(matches_any("core.put.bounds", "get,put"));
        assert!(!matches_any("core.put.bounds", "get,notice"));
    }

    #[test]
    fn kinds() {
        let ids = |kind: &str| {
            let laws = select(&wishes(&format!("--kind {kind}")).unwrap()).unwrap();
            laws.iter().map(|law| law.id).collect::<Vec<_>>()
        };
        let kinds = ["deaths", "replacements", "links"].map(ids);
        for (of, id) in [
            (0, "core.death.in-barrier"),
            (1, "gaspi.replaced.twice"),
            (2, "gaspi.replaced.host"),
            (2, "core.link.barrier"),
        ] {
            for (kind, ids) in kinds.iter().enumerate() {
                assert_eq!(ids.contains(&id), kind == of, "{id} among {ids:?}");
            }
        }
        assert!(kinds.iter().flatten().all(|id| *id != "core.put.contents"));
    }

    #[test]
    fn what_there_is_not_is_said() {
        let nothing = Wishes {
            law: Some("no such law".into()),
            ..Wishes::default()
        };
        assert!(select(&nothing).unwrap_err().contains("--list"));
        let nowhere = Wishes {
            backend: Some("nowhere".into()),
            ..Wishes::default()
        };
        assert!(columns(&nowhere).unwrap_err().contains("shm-copy"));
        let several = |names: &str| {
            columns(&Wishes {
                backend: Some(names.into()),
                ..Wishes::default()
            })
            .map(|columns| columns.iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(several("chaos,shm"), Ok(vec!["shm", "chaos"]));
        unipgas_backends::init();
        assert_eq!(
            several("opaque-poor,opaque"),
            several("streams,streams-poor")
        );
        let error = several("opaque-rich").unwrap_err();
        assert!(error.contains("no backend \"opaque-rich\""), "{error}");
        let error = several("shm,nowhere").unwrap_err();
        assert!(error.contains("no backend \"nowhere\""), "{error}");
    }
}
