//! The interfaces for Rust, safe and as in C, in jobs of several processes. Each test starts this program again, with the name of the test.

mod failures;
mod process;
mod together;
mod transfers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use unipgas::gaspi::ffi::gaspi_proc_init;
use unipgas::gaspi::safe::{
    Buffer, Error, Gaspi, Group, Notification, Pending, Queue, QueueScope, Reducible,
    RemoteElement, Result, Segment, Slice, SliceMut, Timeout,
};
use unipgas::gaspi::{Config, ReductionOperation, Status, statistics};
use unipgas_launcher::{Exit, JobOutcome, Launch, Output};

#[allow(dead_code, reason = "it has a main function")]
#[path = "../../examples/heat.rs"]
mod heat;

/// Variable with the test that the process is a rank of.
const TEST: &str = "UNIPGAS_GASPI_SAFE_TEST";

/// Whether this process is a rank of the test. If not, it starts `size` ranks on each backend, and judges their end.
fn is_rank(test: &str, size: u32, judge: fn(&JobOutcome) -> bool) -> bool {
    if std::env::var_os(TEST).is_some_and(|name| name == test) {
        unipgas::init();
        return true;
    }
    // Under chaos the order of operations depends on the seed.
    let seeds = if test == "ring" { 20 } else { 1 };
    let chaos = (1..=seeds).map(|seed| ("chaos", seed));
    for (backend, seed) in [("shm", 1), ("streams", 1)].into_iter().chain(chaos) {
        let mut launch = Launch::new(size, std::env::current_exe().expect("this program"));
        launch.args = ["--exact", test, "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .to_vec();
        launch.env = vec![(TEST.into(), test.into())];
        launch.backend = Some(backend.into());
        launch.seed = Some(seed);
        launch.keep_going = true;
        launch.spares = u32::from(test == "another_process_takes_the_place");
        launch.output = Output::Capture;
        let outcome = launch.run().expect("the job starts");
        assert!(
            judge(&outcome),
            "{test} on {backend} under seed {seed}: {}",
            told(&outcome)
        );
    }
    false
}

fn told(outcome: &JobOutcome) -> String {
    let ranks = outcome.ranks.iter().map(|rank| {
        let (out, err) = (&rank.stdout, &rank.stderr);
        let text = [out, err].map(|text| String::from_utf8_lossy(text).into_owned());
        format!("rank {} {}\n{}", rank.rank, rank.exit, text.concat())
    });
    ranks.collect()
}

macro_rules! ranks {
    ($($module:ident::$name:ident($size:literal) $(where $judge:expr)?;)*) => {$(
        #[test]
        fn $name() {
            let judge: fn(&JobOutcome) -> bool = ranks!(@ $($judge)?);
            if is_rank(stringify!($name), $size, judge) {
                $module::$name().expect("every call succeeds");
            }
        }
    )*};
    (@) => { JobOutcome::success };
    (@ $judge:expr) => { $judge };
}

ranks! {
    transfers::ring(3);
    transfers::lists_and_reads(2);
    together::collectives(4);
    together::a_collective_goes_on(2);
    transfers::atomics(3);
    transfers::messages(3);
    transfers::a_full_queue_is_waited_for(2);
    failures::what_is_refused(2);
    failures::scopes_end(2);
    transfers::threads(2);
    together::again_and_again(2);
    process::refused(2);
    together::counted(1);
    together::the_example(4);
    failures::another_process_takes_the_place(3);
    failures::a_rank_dies(3) where |outcome| {
        let ends: Vec<_> = outcome.ranks.iter().map(|rank| rank.exit).collect();
        ends[..2] == [Exit::Code(0); 2] && ends[2] != Exit::Code(0)
    };
}

fn one(id: u32) -> Notification {
    Notification::plain(id)
}
