//! The columns of the matrix, and the laws that run in them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use unipgas_core::registry;

use crate::hosts::HostPool;
use crate::pinned::{self, Why};
use crate::runner::{FailureKind, LawFailure, LawResult, Ran, Runner};
use crate::worker::Item;
use crate::{Api, Law};

/// Seeds of a law that is not about order, if the backend draws from them.
const SEEDS_WITHOUT_ORDER: u64 = 5;
/// Seeds of a law about order, if only its body draws from them.
const SEEDS_WITHOUT_CHAOS: u64 = 50;

/// A backend in one of its modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name for `--backend` of `unipgas conform`.
    pub name: &'static str,
    /// Name for UNIPGAS_BACKEND.
    pub backend: &'static str,
    /// The [pins](crate::pinned) of these backends apply to it.
    pub pins: &'static [&'static str],
    /// Environment that selects the mode.
    pub env: &'static [(&'static str, &'static str)],
    /// Ranks are threads of one process.
    pub threads: bool,
    /// The ranks are distributed over several hosts in turn.
    pub hosts: bool,
    /// Its behavior depends on the seed.
    pub seeded: bool,
}

/// Ranks that are processes of this host.
const PLAIN: Column = Column {
    name: "",
    backend: "",
    pins: &[],
    env: &[],
    threads: false,
    hosts: false,
    seeded: false,
};

/// The modes that need their own environment or pins.
const MODES: &[Column] = &[
    Column {
        name: "shm",
        backend: "shm",
        pins: &["shm"],
        env: &[("UNIPGAS_SHM_ADOPT", "1")],
        ..PLAIN
    },
    Column {
        name: "shm-copy",
        backend: "shm",
        pins: &["shm"],
        env: &[("UNIPGAS_SHM_ADOPT", "0")],
        ..PLAIN
    },
    Column {
        name: "chaos",
        backend: "chaos",
        pins: &["chaos"],
        env: &[("UNIPGAS_SHM_ADOPT", "1")],
        seeded: true,
        ..PLAIN
    },
    Column {
        name: "streams-chaos",
        backend: "chaos",
        pins: &["chaos", "streams"],
        env: &[("UNIPGAS_CHAOS", "over=streams"), ("UNIPGAS_STREAMS", "")],
        seeded: true,
        ..PLAIN
    },
    Column {
        name: "streams",
        backend: "streams",
        pins: &["streams"],
        env: &[("UNIPGAS_STREAMS", "")],
        ..PLAIN
    },
    Column {
        name: "streams-tcp",
        backend: "streams",
        pins: &["streams"],
        env: &[("UNIPGAS_STREAMS", "tcp")],
        ..PLAIN
    },
    Column {
        name: "streams-poor",
        backend: "streams",
        pins: &["streams", "poor"],
        env: &[(
            "UNIPGAS_STREAMS",
            "unordered,no-lines,no-atomics,registered,inline=8,largest=4096,depth=4",
        )],
        seeded: true,
        ..PLAIN
    },
    Column {
        name: "tofu-mock",
        backend: "tofu",
        pins: &["streams", "tofu", "tofu-mock"],
        ..PLAIN
    },
    Column {
        name: "mixed",
        backend: "shm",
        pins: &["streams", "mixed"],
        env: &[
            ("UNIPGAS_SHM_ADOPT", "1"),
            ("UNIPGAS_TEST_HOSTS", "2"),
            ("UNIPGAS_STREAMS", "registered,no-atomics"),
        ],
        ..PLAIN
    },
    Column {
        name: "hosts",
        backend: "shm",
        pins: &["streams", "mixed", "hosts"],
        env: &[("UNIPGAS_SHM_ADOPT", "1")],
        hosts: true,
        ..PLAIN
    },
    Column {
        name: "loopback",
        backend: "loopback",
        pins: &["loopback"],
        threads: true,
        ..PLAIN
    },
];

/// All columns: the modes that need their own environment, then for each other network NAME, NAME-chaos and mixed-NAME.
pub fn columns() -> &'static [Column] {
    static ALL: OnceLock<Vec<Column>> = OnceLock::new();
    ALL.get_or_init(|| {
        let is_mode = |name| MODES.iter().any(|mode| mode.name == name);
        let backends = registry::backends();
        let networks = backends.iter().filter(|backend| backend.network);
        let others = networks.filter(|backend| !is_mode(backend.name));
        let derived = others.flat_map(|backend| columns_of(backend.name));
        MODES.iter().copied().chain(derived).collect()
    })
}

/// The columns of a network: alone, under chaos, and between ranks that share memory otherwise.
fn columns_of(network: &'static str) -> [Column; 3] {
    let alone = Column {
        name: network,
        backend: network,
        pins: vec!["streams", network].leak(),
        ..PLAIN
    };
    let chaos: &str = format!("{network}-chaos").leak();
    let over = ("UNIPGAS_CHAOS", &*format!("over={network}").leak());
    let mixed = [
        ("UNIPGAS_SHM_ADOPT", "1"),
        ("UNIPGAS_TEST_HOSTS", "2"),
        ("UNIPGAS_NETWORKS", network),
    ];
    [
        alone,
        Column {
            name: chaos,
            backend: "chaos",
            pins: vec!["chaos", "streams", network, chaos].leak(),
            env: vec![over].leak(),
            seeded: true,
            ..alone
        },
        Column {
            name: format!("mixed-{network}").leak(),
            backend: "shm",
            pins: vec!["streams", "mixed", network].leak(),
            env: Vec::from(mixed).leak(),
            ..alone
        },
    ]
}

impl Column {
    /// The current name of the column `name`, which may begin with the old name of a backend.
    pub fn current_name(name: &str) -> String {
        let (backend, mode) = name.split_at(name.find('-').unwrap_or(name.len()));
        let backend = registry::check(backend, "").unwrap_or(backend);
        format!("{backend}{mode}")
    }

    /// The reason that no law can run in it here.
    pub fn missing(&self) -> Option<String> {
        if self.threads {
            return None;
        }
        let backends = registry::backends();
        if backends.iter().all(|backend| backend.name != self.backend) {
            return Some(format!("this library has no backend {}", self.backend));
        }
        // Some columns also need another backend, between the hosts or below.
        let needed = |name| name == self.backend || self.pins.contains(&name);
        let mut needed = backends.iter().filter(|backend| needed(backend.name));
        needed.find_map(|backend| (backend.probe)(false).err())
    }

    /// The reason that this law does not run in it.
    fn refuses(&self, law: &Law, plan: &SeedPlan) -> Option<LawResult> {
        let not_about_it = |reason: &str| Some(LawResult::NotApplicable(reason.into()));
        match pinned::find(self, law) {
            Some(pin) if pin.why == Why::Inapplicable => not_about_it(pin.reason),
            Some(pin) if pin.why == Why::Broken && !plan.broken => {
                Some(LawResult::KnownBroken(pin.reason.into()))
            }
            _ => self.has_no_place_for(law, plan).and_then(not_about_it),
        }
    }

    /// A need of the law beyond the backend that is missing here.
    fn has_no_place_for(&self, law: &Law, plan: &SeedPlan) -> Option<&'static str> {
        let cut = law.needs_cut;
        let why = match law.api {
            _ if cut && !self.hosts => "there is no link between hosts",
            _ if cut && !plan.cuts => "no command takes the link down (HOSTS_LINK is not set)",
            _ if law.kills_launcher && !self.hosts => "all its ranks have one launcher",
            _ if law.processes == 1 && self.hosts => {
                "one rank is on one host, as in the column shm"
            }
            _ if law.one_host && self.hosts => "its ranks need one host",
            _ if !self.threads => return None,
            _ if law.needs_kill => "its ranks are threads, which cannot be killed one by one",
            Api::Core => return None,
            Api::Gaspi => "its ranks are threads, and GASPI has one process a process",
            Api::Utofu => "its ranks are threads, and uTofu has one process a process",
            Api::Rcce => "its ranks are threads, and RCCE has one UE a process",
            Api::Libfabric => {
                "its ranks are threads, and a provider opens the backend once a process"
            }
        };
        Some(why)
    }
}

/// The laws that run, and their seeds.
#[derive(Debug, Clone, Copy)]
pub struct SeedPlan {
    /// The first seed.
    pub first: u64,
    /// Number of seeds for laws about order.
    pub count: u64,
    /// Runs all laws under this number of seeds.
    pub all: bool,
    /// Also runs laws pinned as broken.
    pub broken: bool,
    /// Also runs laws that take a link down.
    pub cuts: bool,
}

impl SeedPlan {
    fn of(&self, law: &Law, column: &Column) -> u64 {
        match (law.ordering, column.seeded) {
            _ if self.all => self.count,
            (true, true) => self.count,
            (true, false) => self.count.min(SEEDS_WITHOUT_CHAOS),
            (false, true) => self.count.min(SEEDS_WITHOUT_ORDER),
            (false, false) => 1,
        }
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The column.
    pub column: &'static Column,
    /// The law, and its result.
    pub ran: Ran,
    /// Number of hosts, in a column with several.
    pub hosts: Option<usize>,
}

/// Laws in columns, and their results so far.
pub struct Matrix<'a> {
    runner: &'a Runner,
    plan: SeedPlan,
    /// Laws that do not run.
    left_out: Vec<Cell>,
    jobs: Vec<(&'static Column, Vec<Item>)>,
    /// The results of each job; set when it ends.
    done: Mutex<Vec<Vec<Ran>>>,
}

impl<'a> Matrix<'a> {
    /// A matrix of `laws` in `columns`. Starts no job.
    pub fn new(
        runner: &'a Runner,
        laws: &[&'static Law],
        columns: &[&'static Column],
        plan: &SeedPlan,
    ) -> Matrix<'a> {
        let mut matrix = Matrix {
            runner,
            plan: *plan,
            left_out: Vec::new(),
            jobs: Vec::new(),
            done: Mutex::default(),
        };
        for &column in columns {
            let missing = column.missing();
            let mut wanted = Vec::new();
            for &law in laws {
                let missing = missing.clone().map(LawResult::NotOffered);
                match missing.or_else(|| column.refuses(law, plan)) {
                    None => wanted.push(law),
                    Some(verdict) => {
                        let ran = Ran {
                            law,
                            verdict,
                            seeds: 0,
                            took: Default::default(),
                        };
                        let cell = matrix.cell(column, ran);
                        matrix.left_out.push(cell);
                    }
                }
            }
            let batches = batches(&wanted, column, plan);
            matrix
                .jobs
                .extend(batches.into_iter().map(|batch| (column, batch)));
        }
        matrix.done.get_mut().resize(matrix.jobs.len(), Vec::new());
        matrix
    }

    fn cell(&self, column: &'static Column, ran: Ran) -> Cell {
        let hosts = self.runner.hosts.as_ref().filter(|_| column.hosts);
        Cell {
            column,
            ran,
            hosts: hosts.map(HostPool::each),
        }
    }

    /// Total number of seeds of [`run`](Matrix::run).
    pub fn work(&self) -> u64 {
        let items = self.jobs.iter().flat_map(|(_, batch)| batch);
        items.map(|item| item.count).sum()
    }

    /// Runs all jobs, `at_a_time` in parallel. Calls `progress` with the column and the number of seeds done so far. Errors: a text, if a job
    /// cannot be started.
    pub fn run(
        &self,
        at_a_time: usize,
        progress: &(dyn Fn(&'static Column, u64) + Sync),
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let seeds_done: Vec<AtomicU64> = self.jobs.iter().map(|_| AtomicU64::new(0)).collect();
        let all_done = || {
            seeds_done
                .iter()
                .map(|job| job.load(Ordering::Relaxed))
                .sum()
        };
        let work = || {
            while !self.runner.is_stopped() {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let Some((column, batch)) = self.jobs.get(nth) else {
                    break;
                };
                let ran = self.runner.run(column, batch, &|seeds| {
                    seeds_done[nth].store(seeds, Ordering::Relaxed);
                    progress(column, all_done());
                });
                // After an error no other job starts.
                let ran = ran.inspect_err(|_| next.store(self.jobs.len(), Ordering::Relaxed))?;
                self.done.lock()[nth] = ran;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
            let results = threads.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.collect()
        })
    }

    /// The results so far: first the laws that do not run, of all columns, then the results of ended jobs.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = self.left_out.clone();
        let done = self.done.lock();
        let done = self.jobs.iter().zip(done.iter());
        for (column, ran) in
            done.flat_map(|((column, _), ran)| ran.iter().map(move |ran| (*column, ran)))
        {
            match cells.last_mut() {
                // Some laws have a job for each seed.
                Some(Cell {
                    column: before,
                    ran: same,
                    ..
                }) if *before == column && same.law.id == ran.law.id => {
                    same.seeds += ran.seeds;
                    same.took += ran.took;
                    if !matches!(same.verdict, LawResult::Fail(_)) {
                        same.verdict = ran.verdict.clone();
                    }
                }
                _ => cells.push(self.cell(column, ran.clone())),
            }
        }
        for cell in &mut cells {
            if let Some(text) = against_pins(cell) {
                cell.ran.verdict = LawResult::Fail(LawFailure {
                    seed: self.plan.first,
                    kind: FailureKind::Fails,
                    text,
                    said: Vec::new(),
                });
            }
        }
        cells
    }
}

/// A contradiction between a law that ran and the pins. The law reports "not offered" without a pin, or passes
/// against its pin.
fn against_pins(cell: &Cell) -> Option<String> {
    let pin = pinned::find(cell.column, cell.ran.law);
    match (&cell.ran.verdict, pin) {
        (LawResult::NotOffered(_), Some(pin)) if pin.why == Why::Absent => None,
        (LawResult::NotOffered(reason), _) if cell.ran.seeds > 0 => {
            Some(format!("not offered ({reason}), but not pinned"))
        }
        (LawResult::Pass, Some(pin)) => Some(format!(
            "an unexpected pass: it is pinned as {} ({})",
            pin.why.name(),
            pin.reason
        )),
        _ => None,
    }
}

/// Most lives of a process of RCCE. It keeps the engine of each finished UE, which the progress thread still drives.
const FINISHED: u64 = 40;

/// Groups laws that can share a job: the same interface and number of processes. A bare law has a separate job. A law that loses processes or
/// links has one job for each seed. So has a uTofu or libfabric law if the column depends on the seed: its processes open the
/// backend only once.
fn batches(laws: &[&'static Law], column: &Column, plan: &SeedPlan) -> Vec<Vec<Item>> {
    let mut batches: Vec<Vec<Item>> = Vec::new();
    for &law in laws {
        let item = Item {
            law,
            first: plan.first,
            count: plan.of(law, column),
        };
        let once = [Api::Utofu, Api::Libfabric].contains(&law.api);
        let alone = |law: &Law| {
            law.needs_kill || law.needs_cut || law.kills_launcher || once && column.seeded
        };
        if alone(law) {
            let one = |nth| Item {
                first: plan.first.wrapping_add(nth),
                count: 1,
                ..item
            };
            batches.extend((0..item.count).map(|nth| vec![one(nth)]));
        } else if law.bare {
            batches.push(vec![item]);
        } else {
            let shared = batches.iter_mut().find(|batch| {
                let first = batch[0].law;
                let lives: u64 = batch.iter().map(|item| item.count).sum();
                (first.api, first.processes) == (law.api, law.processes)
                    && !first.bare
                    && !alone(first)
                    && (law.api != Api::Rcce || lives + item.count <= FINISHED)
            });
            match shared {
                Some(batch) => batch.push(item),
                None => batches.push(vec![item]),
            }
        }
    }
    batches
}
