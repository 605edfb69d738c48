//! The inbox with processes for producers, which are killed: at random moments under load, and after each single
//! instruction of a delivery. The records of the others all arrive.

#[path = "../../job/tests/stepped/mod.rs"]
mod stepped;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use unipgas_base::Error;
use unipgas_base::process::has_no_threads;
use unipgas_engine::inbox::{InboxLayout, InboxReader, InboxWriter, Record, initialise};

const CAPACITY: usize = 4;
const SURVIVORS: u64 = 2;
/// Records of each survivor.
const EACH: u64 = 60_000;
/// Producers that are killed.
const KILLS: u64 = 40;

/// Makes a run of this test binary a producer: `<path of the memory>,<source>,<records>`.
const ROLE: &str = "UNIPGAS_TEST_INBOX_PRODUCER";

struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn of(file: &impl std::os::fd::AsFd) -> Self {
        let len = InboxLayout::new(CAPACITY).unwrap().size();
        let (null, rights) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY:
        // - a new mapping at an address of the kernel's choice replaces nothing.
        let at = unsafe { mmap(null, len, rights, MapFlags::SHARED, file, 0) };
        let at = at.unwrap().cast();
        Self { at, len }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY:
        // - made by `mmap` with this length; the writers and readers of it are gone.
        unsafe { munmap(self.at.cast(), self.len).unwrap() }
    }
}

fn record(source: u64, value: u64) -> Record {
    Record {
        source,
        kind: source as u32,
        len: value as u32,
        value,
        offset: !value,
    }
}

/// Not a test: the part of `killed_producers_cost_only_their_own_records` that runs in other processes.
#[test]
fn producer() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut role = role.split(',');
    let path = role.next().unwrap();
    let mut number = || role.next().unwrap().parse::<u64>().unwrap();
    let (source, count) = (number(), number());
    let mapping = Mapping::of(&File::options().read(true).write(true).open(path).unwrap());
    // SAFETY:
    // - the mapping outlives the writer.
    let writer = unsafe { InboxWriter::attach(mapping.at, mapping.len).unwrap() };
    for value in 0..count {
        while let Err(error) = writer.push(record(source, value)) {
            assert_eq!(error, Error::InboxFull);
            std::thread::yield_now();
        }
    }
}

/// An inbox in shared memory, and its only reader, which is dropped before the mapping.
fn inbox() -> (OwnedFd, Mapping, InboxReader) {
    let memory = memfd_create("inbox", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, InboxLayout::new(CAPACITY).unwrap().size() as u64).unwrap();
    let mapping = Mapping::of(&memory);
    // SAFETY:
    // - the memory has the size of the layout, and outlives the reader.
    let reader = unsafe {
        initialise(mapping.at, CAPACITY).unwrap();
        InboxReader::attach(mapping.at, mapping.len).unwrap()
    };
    (memory, mapping, reader)
}

fn start(memory: &OwnedFd, source: u64, count: u64) -> Child {
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "producer", "--test-threads=1"])
        .env(ROLE, format!("{path},{source},{count}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_producers_cost_only_their_own_records() {
    let (memory, _mapping, mut reader) = inbox();
    let mut survivors: Vec<_> = (0..SURVIVORS)
        .map(|source| start(&memory, source, EACH))
        .collect();
    // Each victim is a separate source, counted from SURVIVORS, and never stops by itself.
    let mut next = vec![0u64; (SURVIVORS + KILLS) as usize];
    let mut victim: Option<(u64, Child, Instant)> = None;
    let mut killed = 0;
    let begun = Instant::now();
    let mut last_progress = begun;
    while killed < KILLS || next[..SURVIVORS as usize].iter().sum::<u64>() < SURVIVORS * EACH {
        match reader.take() {
            Some(got) => {
                let expected = &mut next[got.source as usize];
                assert_eq!(
                    got,
                    record(got.source, *expected),
                    "a record is lost, doubled or torn"
                );
                *expected += 1;
                last_progress = Instant::now();
            }
            None => {
                assert!(
                    last_progress.elapsed() < Duration::from_secs(600),
                    "stuck after {killed} kills: {next:?}"
                );
                reader.pass_over(has_no_threads);
                std::thread::yield_now();
            }
        }
        victim = match victim.take() {
            None if killed < KILLS => {
                let source = SURVIVORS + killed;
                Some((source, start(&memory, source, u64::MAX), Instant::now()))
            }
            // Each victim works for a few milliseconds, and a different number of microseconds.
            Some((source, mut child, mut since)) => {
                if next[source as usize] == 0 {
                    since = Instant::now();
                }
                if since.elapsed() > Duration::from_micros(500 + 137 * source) {
                    child.kill().unwrap();
                    assert_eq!(child.wait().unwrap().signal(), Some(9));
                    killed += 1;
                    None
                } else {
                    Some((source, child, since))
                }
            }
            none => none,
        };
    }
    for child in &mut survivors {
        assert!(child.wait().unwrap().success());
    }
    // The last victim may have left a record, or a claimed position.
    let mut next_record = || {
        reader.take().or_else(|| {
            reader.pass_over(has_no_threads);
            reader.take()
        })
    };
    while let Some(got) = next_record() {
        assert_eq!(got, record(got.source, next[got.source as usize]));
        next[got.source as usize] += 1;
    }
    assert!(!reader.has_work());
    assert_eq!(next[..SURVIVORS as usize], [EACH; SURVIVORS as usize]);
    assert!(
        reader.lost() <= KILLS,
        "a victim has one claim at the most: {}",
        reader.lost()
    );
    let (lost, time) = (reader.lost(), begun.elapsed());
    eprintln!("{killed} producers killed at work, {lost} claims passed over, in {time:?}");
}

/// A child pushes `record` from its first stop. Whether it reached the second stop.
fn killed_after(steps: usize, writer: &InboxWriter, record: Record) -> bool {
    // SAFETY:
    // - the child makes system calls and pushes, which neither locks nor allocates.
    unsafe { stepped::killed_after(steps, || Some(()), |()| writer.push(record).is_ok()) }.is_some()
}

#[cfg(target_os = "linux")]
#[test]
fn death_after_any_instruction_blocks_nobody() {
    const VICTIM: u32 = 1;
    const SURVIVOR: u32 = 2;
    let (_memory, mapping, mut reader) = inbox();
    let [victim, survivor] = [VICTIM, SURVIVOR].map(|producer| {
        // SAFETY:
        // - the mapping outlives the writers.
        unsafe { InboxWriter::attach_as(mapping.at, mapping.len, producer).unwrap() }
    });
    let mut sent = 0;
    // How many deaths came before the claim, between claim and completion, and after.
    let mut phases = [0u64; 3];
    for steps in 0..100_000 {
        let before = reader.lost();
        let finished = killed_after(steps, &victim, record(9, steps as u64));
        let mut arrived = Vec::new();
        // The survivor goes right behind, a different number of records each time, so that deaths come at every slot.
        for _ in 0..1 + steps % 3 {
            survivor.push(record(5, sent)).unwrap();
            reader.pass_over(|producer| producer == VICTIM);
            arrived.extend(reader.take());
            sent += 1;
        }
        loop {
            reader.pass_over(|producer| producer == VICTIM);
            let Some(got) = reader.take() else { break };
            arrived.push(got);
        }
        assert!(!reader.has_work());
        let (of_victim, of_survivor): (Vec<_>, Vec<_>) =
            arrived.into_iter().partition(|got| got.source == 9);
        let pushed = 1 + (steps % 3) as u64;
        assert!(
            of_survivor
                .into_iter()
                .eq((sent - pushed..sent).map(|n| record(5, n))),
            "after {steps} steps"
        );
        let phase = match (of_victim.as_slice(), reader.lost() - before) {
            ([], 0) => 0,
            ([], 1) => 1,
            ([got], 0) if *got == record(9, steps as u64) => 2,
            other => panic!("after {steps} steps: {other:?}"),
        };
        assert!(
            phases[phase + 1..].iter().all(|&deaths| deaths == 0),
            "phase {phase} again after {steps} steps"
        );
        phases[phase] += 1;
        if finished {
            break;
        }
    }
    assert!(
        phases.iter().all(|&deaths| deaths > 0),
        "deaths before, within and after a delivery: {phases:?}"
    );
    eprintln!("deaths before, within and after a delivery: {phases:?}");
}
