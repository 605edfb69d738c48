//! The processes of a job of laws: they run the items in order and report the result of each to the parent.
//!
//! An item is a law and a run of seeds; each seed is a separate life cycle. The first rank that finds a law broken ends its
//! process, and with it the job: later results of the others prove nothing.

use std::fs::OpenOptions;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use unipgas_core::job::Board;
use unipgas_core::loopback::LoopbackNet;

use crate::closed;
use crate::law::NOT_OFFERED;
use crate::library::{self, Lacks};
use crate::place::{Log, Place};
use crate::stall::Seats;
use crate::{Api, Ctx, Law, Verdict, laws};
use unipgas_core::stop::Stop;

/// A law, and its seeds `first..first + count` (wrapping).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub law: &'static Law,
    pub first: u64,
    pub count: u64,
}

impl Item {
    pub fn to_arg(self) -> String {
        format!("{}@{}+{}", self.law.id, self.first, self.count)
    }

    pub fn from_arg(arg: &str) -> Option<Item> {
        let (id, seeds) = arg.split_once('@')?;
        let (first, count) = seeds.split_once('+')?;
        Some(Item {
            law: laws::find(id)?,
            first: first.parse().ok()?,
            count: count.parse().ok()?,
        })
    }
}

/// `LOG SEATS BACKEND CLOCK THREADS LIBRARY ITEM…`: the log file, the file of the seats (`-`: none), the name of the column, the maximum seconds for a
/// seed, the number of threads that play ranks (0: none), the library under test, the items. All items have one interface. Laws of the engine use the
/// linked engine; all others use only the library.
pub(crate) fn run(args: &[String]) -> ExitCode {
    Stop::let_through();
    match work(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conform worker: {error}");
            ExitCode::from(2)
        }
    }
}

struct Worker {
    backend: String,
    clock: u32,
    log: Arc<Log>,
    board: Arc<Board>,
    /// For each rank of this process: number of times that it has met the others.
    turns: Vec<Arc<AtomicU64>>,
    /// The first rank of this process.
    rank: u32,
    threads: bool,
    life_cycle: u32,
}

fn work(args: &[String]) -> Result<bool, String> {
    let [log, seats, backend, clock, threads, library, items @ ..] = args else {
        return Err("started without its arguments".into());
    };
    let number = |text: &str| text.parse::<u32>().map_err(|e| format!("{text}: {e}"));
    let items: Option<Vec<Item>> = items.iter().map(|arg| Item::from_arg(arg)).collect();
    let items = items.ok_or("an item that is no law and seeds")?;
    let file = OpenOptions::new()
        .append(true)
        .open(log)
        .map_err(|e| format!("{log}: {e}"))?;
    let threads = number(threads)?;
    let made = match threads {
        0 => None,
        n => Some(Board::create(n).map_err(|e| e.to_string())?),
    };
    let environment = |name: &str| std::env::var(name).map_err(|e| format!("{name}: {e}"));
    let (board, rank) = match &made {
        Some((board, _)) => (Board::attach(&board.token()), 0),
        None => (
            Board::attach(&environment("UNIPGAS_JOB")?),
            number(&environment("UNIPGAS_RANK")?)?,
        ),
    };
    let board = board.map_err(|e| e.to_string())?;
    let mut watch = None;
    if seats != "-" {
        let file = OpenOptions::new().read(true).write(true).open(seats);
        let file = file.map_err(|e| format!("{seats}: {e}"))?;
        let count = made.as_ref().map_or(board.size(), |_| 1);
        watch = Some(Seats::map(&file, count)?.take(rank));
    }
    let log = Arc::new(Log(file));
    let of_the_engine = |item: &Item| item.law.api == Api::Core;
    if !items.iter().any(of_the_engine) {
        library::open(Path::new(library), watch)?;
    } else if !items.iter().all(of_the_engine) {
        return Err("laws of the engine beside others".into());
    }
    let turn = crate::place::turn(&board, rank);
    if let Some(wish) = closed::wish()? {
        closed::close(wish);
    }
    let mut worker = Worker {
        backend: backend.clone(),
        clock: number(clock)?,
        log,
        board: Arc::new(board),
        turns: match threads {
            // A replacement has met the others as often as its predecessor.
            0 => vec![Arc::new(AtomicU64::new(turn))],
            _ => (0..threads).map(|_| Arc::default()).collect(),
        },
        rank,
        threads: threads > 0,
        life_cycle: 0,
    };
    for (index, item) in items.iter().enumerate() {
        for nth in 0..item.count {
            if !worker.seed(item.law, (index, item.first.wrapping_add(nth))) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl Worker {
    /// Runs a law under one seed. Returns whether the job may continue.
    fn seed(&mut self, law: &'static Law, item: (usize, u64)) -> bool {
        self.life_cycle += 1;
        // SAFETY:
        // - between two life cycles no other thread of this process reads the environment: threads of the last one have ended
        // - or wait, and the threads that play ranks have been joined.
        unsafe { std::env::set_var("UNIPGAS_SEED", item.1.to_string()) };
        // The default action of SIGALRM ends the process at any point of a hang.
        // SAFETY:
        // - sets only a timer.
        unsafe { libc::alarm(self.clock) };
        let net = self.threads.then(|| Arc::new(LoopbackNet::default()));
        let contexts: Vec<Ctx> = self
            .turns
            .iter()
            .zip(self.rank..)
            .map(|(turn, rank)| Ctx {
                rank,
                size: self.board.size(),
                seed: item.1,
                backend: self.backend.clone(),
                life_cycle: self.life_cycle,
                place: Place::new(
                    rank,
                    self.board.clone(),
                    turn.clone(),
                    net.clone(),
                    self.log.clone(),
                    item,
                ),
            })
            .collect();
        if let [ctx] = contexts.as_slice() {
            if !carry_out(law, ctx) {
                return false;
            }
        } else {
            // A thread that finds the law broken ends the process, and with it the threads that wait for it.
            std::thread::scope(|scope| {
                for ctx in &contexts {
                    scope.spawn(move || {
                        if !carry_out(law, ctx) {
                            std::process::exit(1);
                        }
                    });
                }
            });
        }
        // SAFETY:
        // - as above.
        unsafe { libc::alarm(0) };
        true
    }
}

/// Runs the body for one rank and reports the result.
fn carry_out(law: &Law, ctx: &Ctx) -> bool {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    ctx.place.tell("start", &micros.to_string());
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| within_interface(law, ctx)));
    let verdict = verdict.unwrap_or_else(|panic| {
        if let Some(lacks) = panic.downcast_ref::<Lacks>() {
            return lacks.verdict();
        }
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without a text")))
    });
    ctx.place
        .tell("took", &start.elapsed().as_micros().to_string());
    match verdict {
        Ok(()) => ctx.place.tell("ok", ""),
        Err(text) => match text.strip_prefix(NOT_OFFERED) {
            Some(reason) => ctx.place.tell("none", reason),
            None => {
                ctx.place.tell("fail", &text);
                return false;
            }
        },
    }
    ctx.sync();
    true
}

fn within_interface(law: &Law, ctx: &Ctx) -> Verdict {
    if let Some(lacks) = library::lacks(law) {
        return lacks.verdict();
    }
    match law.api {
        Api::Gaspi if !law.bare => within_gaspi(law, ctx),
        Api::Rcce if !law.bare => within_rcce(law, ctx),
        _ => body(law, ctx),
    }
}

fn body(law: &Law, ctx: &Ctx) -> Verdict {
    (law.body)(ctx)?;
    closed::check()?;
    ctx.place.tell("body", "");
    Ok(())
}

fn within_gaspi(law: &Law, ctx: &Ctx) -> Verdict {
    use crate::laws::gaspi::kit::{BLOCK, c, code_name, ok};
    ok!(gaspi_proc_init(BLOCK));
    body(law, ctx)?;
    // No rank terminates while another one still works on its memory.
    ctx.sync();
    let code = c!(gaspi_proc_term(BLOCK));
    crate::ensure!(
        code == 0 || law.needs_kill,
        "gaspi_proc_term after the body: {}",
        code_name(code)
    );
    Ok(())
}

fn within_rcce(law: &Law, ctx: &Ctx) -> Verdict {
    use crate::laws::rcce::kit::{c, gives, ok};
    ok!(RCCE_init(std::ptr::null_mut(), std::ptr::null_mut()));
    ok!(iRCCE_init());
    body(law, ctx)?;
    ok!(RCCE_finalize());
    Ok(())
}
