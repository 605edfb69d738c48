//! A run: each metric and number of processes in turn, with every column. Rows are printed as soon as they are complete.

use std::cell::OnceCell;
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use unipgas_core::print;
use unipgas_core::stop::Stop;

use crate::case::{self, Case};
use crate::compare::Old;
use crate::file::Json;
use crate::job::{self, JobSettings};
use crate::machine::MachineInfo;
use crate::peers::PeerPrograms;
use crate::record::{self, BenchRecord, RecordSetting};
use crate::samples::{Notes, Samples, family};
use crate::table::{self, Columns, Table};

/// A backend of unipgas.
pub(crate) struct BenchBackend {
    /// Settings of its measurements.
    pub how: JobSettings,
    /// Fields that its records share.
    pub setting: RecordSetting,
}

/// The requested measurements.
pub(crate) struct BenchPlan {
    /// Cases, in the order of the table.
    pub cases: Vec<Case>,
    /// The backends. The first backend with shared memory, and the first without, also show the other columns.
    pub lanes: Vec<BenchBackend>,
    /// Number of rounds. Each round measures every column once.
    pub rounds: usize,
    /// Measure for a shorter time.
    pub quick: bool,
    /// Measure other libraries, too.
    pub peers: bool,
}

/// Destinations of the results.
pub(crate) struct Outlets<'a> {
    /// Gets each figure as soon as it is known.
    pub json: Option<Json>,
    /// Earlier figures, for comparison.
    pub old: Option<&'a Old>,
    /// Output for people.
    pub out: &'a Out,
}

/// Output for people.
pub(crate) struct Out {
    /// Use standard error: standard output is for records.
    aside: bool,
    /// Shown during measurements.
    progress: OnceCell<ProgressBar>,
}

impl Out {
    /// Writes to standard error if `aside`, otherwise to standard output.
    pub fn new(aside: bool) -> Out {
        Out {
            aside,
            progress: OnceCell::new(),
        }
    }

    /// Errors: a text if the write fails.
    pub fn say(&self, text: &str) -> Result<(), String> {
        let write = || match self.aside {
            true => {
                let written = std::io::stderr().write_all(text.as_bytes());
                written.map_err(|e| e.to_string())
            }
            false => print(text).map_err(|e| e.to_string()),
        };
        match self.progress.get() {
            Some(progress) => progress.suspend(write),
            None => write(),
        }
    }
}

/// Groups of cases that one job measures.
fn groups(cases: &[Case]) -> impl Iterator<Item = &[Case]> {
    cases.chunk_by(|a, b| (a.metric, a.processes) == (b.metric, b.processes))
}

/// Results of a run.
pub(crate) struct BenchResults {
    /// Records in the order of the table.
    pub records: Vec<BenchRecord>,
    /// Omitted measurements, and the reasons.
    pub notes: Notes,
}

/// Measures, and prints results as it goes. It stops early if a signal asks for it.
///
/// # Errors
/// A text if nothing can be measured, or if a result cannot be written.
pub fn run(plan: &BenchPlan, outlets: Outlets<'_>) -> Result<BenchResults, String> {
    let Outlets { json, old, out } = outlets;
    let mut notes = Notes::default();
    let mut peers = find_peers(plan, &mut notes)?;
    let turns: usize = plan.lanes.len() + peers.iter().map(|(_, p)| p.names().len()).sum::<usize>();
    let steps = (plan.rounds * groups(&plan.cases).count() * turns) as u64;
    let progress = out.progress.get_or_init(|| progress(steps));
    let machine = MachineInfo::now()?;
    out.say(&format!("{}\n", machine.about()))?;
    if machine.load > 0.5 {
        out.say(&format!(
            "Load average {:.1}: other programs use these cores, and the figures suffer from it.\n",
            machine.load
        ))?;
    }
    let measured = Measured::new(plan, json, machine);
    let measured = Mutex::new(measured);
    let mut table = Table::new(columns(plan, old));
    let mut records: Vec<BenchRecord> = Vec::new();
    for group in groups(&plan.cases) {
        measured.lock().machine = MachineInfo::now()?;
        for _ in 0..plan.rounds {
            round(plan, group, &measured, &mut peers, progress);
        }
        let mut rows = measured.lock().rows(group);
        if let Some(old) = old {
            old.compare(&mut rows);
        }
        let stopped = Stop::is_pending();
        measured.lock().finish(&rows, stopped)?;
        if records.is_empty() {
            out.say(&table::provider(&rows))?;
        }
        out.say(&table.add(&rows))?;
        records.extend(rows);
        if stopped {
            break;
        }
    }
    progress.finish_and_clear();
    for lane in measured.into_inner().lanes {
        out.say(&lane.samples.device())?;
        notes.extend(lane.samples.notes);
    }
    Ok(BenchResults { records, notes })
}

fn find_peers(plan: &BenchPlan, notes: &mut Notes) -> Result<Vec<(usize, PeerPrograms)>, String> {
    let mut found = Vec::new();
    if plan.peers {
        for lane in first_of_their_kind(&plan.lanes) {
            let how = &plan.lanes[lane].how;
            found.push((
                lane,
                PeerPrograms::find(
                    how.place.as_ref(),
                    &how.backend,
                    Ok(how.library.clone()),
                    notes,
                )?,
            ));
        }
    }
    Ok(found)
}

/// Indices of the first lane that shares memory, and of the first that does not.
fn first_of_their_kind(lanes: &[BenchBackend]) -> Vec<usize> {
    let first = |network| {
        lanes
            .iter()
            .position(|lane| lane.setting.network == network)
    };
    [first(false), first(true)].into_iter().flatten().collect()
}

fn columns(plan: &BenchPlan, old: Option<&Old>) -> Columns {
    let settings: Vec<&RecordSetting> = plan.lanes.iter().map(|lane| &lane.setting).collect();
    let backends = settings.iter().map(|setting| setting.backend.clone());
    Columns {
        network: settings.iter().any(|setting| setting.network),
        model: settings
            .iter()
            .find_map(|setting| setting.model)
            .map(|model| model.name().into()),
        backends: match settings.len() {
            1 => Vec::new(),
            _ => backends.collect(),
        },
        old: old.is_some(),
        check: settings.iter().any(|setting| setting.check),
    }
}

/// Measures every column once.
fn round(
    plan: &BenchPlan,
    group: &[Case],
    measured: &Mutex<Measured<'_>>,
    peers: &mut [(usize, PeerPrograms)],
    progress: &ProgressBar,
) {
    let Some(Case {
        metric, processes, ..
    }) = group.first()
    else {
        return;
    };
    let what = format!("{}, {processes} processes", metric.name());
    let is_measured = |lane: &BenchBackend| !lane.setting.network || case::is_of_a_network(*metric);
    for (number, lane) in plan.lanes.iter().enumerate() {
        progress.set_message(format!("{what}: {}", lane.setting.backend));
        let heard = |line: &str| {
            progress.set_message(format!("{what}: {line}"));
            measured.lock().hear(number, line);
        };
        if is_measured(lane)
            && !Stop::is_pending()
            && let Err(why) = job::run(group, &lane.how, &heard)
            && !Stop::is_pending()
        {
            let note = format!("{what}: {why}");
            measured.lock().lanes[number].samples.notes.add(note);
        }
        progress.inc(1);
    }
    for (lane, peers) in peers {
        let names = peers.names();
        for (index, name) in names.into_iter().enumerate() {
            progress.set_message(format!("{what}: {name}"));
            if is_measured(&plan.lanes[*lane]) && !Stop::is_pending() {
                let (text, failure) = peers.measure(index, group, plan.quick);
                measured
                    .lock()
                    .hear_peer(*lane, &text, failure.filter(|_| !Stop::is_pending()));
            }
            progress.inc(1);
        }
    }
}

/// A lane and its measured values.
struct Values<'a> {
    samples: Samples,
    setting: &'a RecordSetting,
    /// Show the columns of other libraries and limits, too.
    shows_all: bool,
}

impl Values<'_> {
    fn shows(&self, record: &BenchRecord) -> bool {
        self.shows_all || record.is_ours()
    }
}

/// The values measured so far.
struct Measured<'a> {
    lanes: Vec<Values<'a>>,
    json: Option<Json>,
    machine: MachineInfo,
    /// The first failed write to the JSON file.
    failure: Option<String>,
}

impl<'a> Measured<'a> {
    fn new(plan: &'a BenchPlan, json: Option<Json>, machine: MachineInfo) -> Measured<'a> {
        let first = first_of_their_kind(&plan.lanes);
        let lanes = plan.lanes.iter().enumerate();
        let values = lanes.map(|(number, lane)| Values {
            samples: Samples::default(),
            setting: &lane.setting,
            shows_all: first.contains(&number),
        });
        Measured {
            lanes: values.collect(),
            json,
            machine,
            failure: None,
        }
    }

    /// Takes lines of [`Samples::read`], and writes a record for each value at once: the remaining measurements may take long, or be interrupted.
    fn hear(&mut self, lane: usize, text: &str) {
        let values = &mut self.lanes[lane];
        for (case, api) in values.samples.read(text) {
            let record = record::so_far(case, &api, &values.samples, values.setting);
            let Some(mut record) = record.filter(|record| values.shows(record)) else {
                continue;
            };
            record.machine = Some(self.machine.clone());
            if let Some(json) = &mut self.json
                && let Err(why) = json.write(&[record])
            {
                self.failure.get_or_insert(why);
            }
        }
    }

    /// The same for lines of another library. All lanes of the same kind show its values. `failure` becomes a note.
    fn hear_peer(&mut self, lane: usize, text: &str, failure: Option<String>) {
        self.hear(lane, text);
        let is_peers = |line: &&str| {
            let api = line.split(' ').nth(1).unwrap_or_default();
            !record::is_ours(family(api))
        };
        let peers: Vec<&str> = text.lines().filter(is_peers).collect();
        let network = self.lanes[lane].setting.network;
        for (number, other) in self.lanes.iter_mut().enumerate() {
            if number != lane && other.setting.network == network {
                other.samples.read(&peers.join("\n"));
            }
        }
        let notes = &mut self.lanes[lane].samples.notes;
        failure.into_iter().for_each(|why| notes.add(why));
    }

    /// The records of `cases`.
    fn rows(&self, cases: &[Case]) -> Vec<BenchRecord> {
        let mut rows = Vec::new();
        for case in cases {
            for lane in &self.lanes {
                let all = record::all(&[*case], &lane.samples, lane.setting);
                rows.extend(all.into_iter().filter(|record| lane.shows(record)));
            }
        }
        for row in &mut rows {
            row.machine = Some(self.machine.clone());
        }
        rows
    }

    /// Writes the final records, unless the run was `stopped`. Errors: a text if the file cannot be written, or an earlier write failed.
    fn finish(&mut self, rows: &[BenchRecord], stopped: bool) -> Result<(), String> {
        if let Some(json) = self.json.as_mut().filter(|_| !stopped) {
            json.write(rows)?;
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed}, about {eta} left)")
    {
        bar.set_style(style);
    }
    bar
}
