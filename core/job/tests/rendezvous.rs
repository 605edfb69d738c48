//! The rendezvous with real processes, killed at any moment.

#[path = "rendezvous_common/processes.rs"]
mod processes;
mod rendezvous_common;

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use processes::*;
use rendezvous_common::*;
use unipgas_job::rendezvous::{JobName, Rendezvous};

/// Resource words that the killed processes compete for, all in group 0.
const WORDS: u32 = 24;

/// Not a test: the roles of the processes that the tests start.
#[test]
fn helper() {
    let Some((role, arguments)) = role() else {
        return;
    };
    let number = |index: usize| arguments[index].parse::<u32>().unwrap();
    match role.as_str() {
        // <directory> <job> <wish or -> <total>: takes a place, waits for the sign, and finds all others.
        "member" => {
            let wish = arguments[2].parse().ok();
            let joined = join(&arguments[0], &arguments[1], 7).unwrap();
            let place = joined.take_place(wish).unwrap();
            joined.publish(&bundle(place), &bundle(!place)).unwrap();
            tell(&place.to_string());
            wait_for_word();
            for other in 0..number(3) {
                let found = joined.find(other).unwrap().expect("all have published");
                assert_eq!(found.address, bundle(other));
                assert_eq!(found.key, bundle(!other));
                assert_eq!(found.pid == std::process::id(), other == place);
            }
            tell("found");
            wait_for_end_of_input();
        }
        // <directory> <job> <wish> <marks>: claims and releases without end.
        "worker" => work(&arguments[0], &arguments[1], number(2), &arguments[3]),
        // <directory> <job> <exec'd already>: takes place 3, and after an exec takes it again.
        "exec" => {
            let joined = join(&arguments[0], &arguments[1], 1).unwrap();
            assert_eq!(joined.take_place(Some(3)), Ok(3));
            if arguments[2] == "no" {
                let mut command = Command::new(std::env::current_exe().unwrap());
                let arguments = [&arguments[0], &arguments[1], "yes"];
                panic!("{}", as_helper(&mut command, "exec", &arguments).exec());
            }
            tell("again");
        }
        // <directory> <job>: joins and forks; parent and child continue.
        "forker" => {
            let joined = join(&arguments[0], &arguments[1], 1).unwrap();
            joined.take_place(Some(2)).unwrap();
            joined.claim(0, 0..WORDS).unwrap().unwrap();
            // SAFETY:
            // - the child uses no lock that another thread of this process may hold: the allocator has fork handlers.
            if unsafe { libc::fork() } == 0 {
                let refused = joined.leave().unwrap_err().to_string();
                assert!(refused.contains("fork") && refused.lines().count() == 1);
                assert!(joined.claim(0, 0..WORDS).is_err() && joined.place().is_none());
                assert_eq!(joined.owner(0, 0), Some(2));
                drop(joined);
                let again = join(&arguments[0], &arguments[1], 1).unwrap();
                assert!(again.alive(2) && again.take_place(Some(2)).is_err());
                drop(again);
                tell("child");
            }
            wait_for_end_of_input();
        }
        // Reports the job name from the launcher.
        "named" => {
            let job = JobName::from_env().unwrap();
            tell(&format!("{job}|{:?}|{:?}", job.rank(), job.size()));
        }
        other => panic!("no role {other}"),
    }
}

/// Claims words and marks them, so that the test detects a word of two living processes.
fn work(directory: &str, job: &str, wish: u32, marks: &str) {
    let marks = Marks::open(marks);
    let joined = join(directory, job, 1).unwrap();
    assert_eq!(joined.take_place(Some(wish)), Ok(wish));
    tell("at work");
    let mine = std::process::id();
    let mut round = mine;
    loop {
        round = round.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let first = (round >> 16) % WORDS;
        let count = 1 + (round >> 8) as usize % 4;
        let order = (0..WORDS).map(|index| (first + index) % WORDS);
        let Some(claimed) = joined.claim_many(0, count, order).unwrap() else {
            continue;
        };
        assert_eq!(claimed.len(), count);
        for &index in &claimed {
            assert_eq!(joined.owner(0, index), Some(wish));
            let before = marks.word(index).swap(mine, Ordering::AcqRel);
            assert!(
                before == 0 || !marks.survives(before),
                "word {index} was claimed twice"
            );
        }
        joined.publish(&bundle(round), &bundle(!round)).unwrap();
        for &index in &claimed {
            assert_eq!(marks.word(index).swap(0, Ordering::AcqRel), mine);
            joined.release(0, index).unwrap();
        }
        if round.is_multiple_of(8) && !marks.survives(mine) {
            joined.leave().unwrap();
            assert_eq!(joined.take_place(Some(wish)), Ok(wish));
        }
        marks.rounds(wish).fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn forty_eight_at_once_get_places_of_their_own() {
    const MEMBERS: usize = 48;
    let directory = TestDirectory::new("many");
    let total = MEMBERS.to_string();
    let arguments = [directory.name(), "many", "-", &total];
    let mut members = [(); MEMBERS].map(|()| Helper::start("member", &arguments));
    let mut places = members
        .each_mut()
        .map(|member| member.hear().parse::<u32>().unwrap());
    places.sort();
    assert!(places.into_iter().eq(0..MEMBERS as u32));
    assert_eq!(directory.files(), 1);
    for member in &mut members {
        member.say_word();
    }
    for member in &mut members {
        assert_eq!(member.hear(), "found");
    }
    for member in members {
        member.succeed();
    }
    assert_eq!(directory.files(), 0, "the last one removes the file");
}

#[test]
fn a_living_process_keeps_its_place_and_a_dead_one_does_not() {
    let directory = TestDirectory::new("wish");
    let arguments = [directory.name(), "wish", "5", "0"];
    let mut member = Helper::start("member", &arguments);
    assert_eq!(member.hear(), "5");
    let joined = join(directory.name(), "wish", 9).unwrap();
    assert_eq!(joined.properties()[0], 7, "the first one's properties hold");
    assert_eq!(joined.layout().properties[0], 7);
    let refused = joined.take_place(Some(5)).unwrap_err().to_string();
    assert!(refused.contains(&member.pid().to_string()), "{refused}");
    assert!(joined.alive(5));
    let before = joined.find(5).unwrap().unwrap();
    assert_eq!((before.pid, before.generation), (member.pid(), 1));
    assert!(!joined.has_died(5) && !joined.has_died(4) && !joined.has_died(PLACES));
    assert_eq!(joined.deaths(), 0);
    member.kill();
    assert!(!joined.alive(5));
    for _ in 0..2 {
        assert!(joined.has_died(5));
        assert_eq!(joined.deaths(), 1, "each death counts once");
    }
    assert_eq!(joined.take_place(Some(5)), Ok(5));
    assert!(!joined.has_died(5));
    assert_eq!(joined.find(5), Ok(None), "nothing of the predecessor's");
    joined.publish(&bundle(1), &bundle(2)).unwrap();
    assert_eq!(joined.find(5).unwrap().unwrap().generation, 2);
    assert_eq!(joined.take_place(None), Ok(5));
    assert!(joined.take_place(Some(4)).is_err());
    joined.leave().unwrap();
    assert_eq!(joined.find(5), Ok(None));
    assert_eq!(joined.take_place(None), Ok(0));
    assert!(joined.take_place(Some(PLACES)).is_err() && joined.find(PLACES).is_err());
}

#[test]
fn the_killed_cost_the_others_nothing() {
    const KILLS: u32 = 60;
    const SURVIVORS: u32 = 2;
    let directory = TestDirectory::new("kill");
    let marks = Marks::new();
    let shared = marks.path();
    let start = |place: u32| {
        let arguments = [directory.name(), "kill", &place.to_string(), &shared];
        let mut helper = Helper::start("worker", &arguments);
        assert_eq!(helper.hear(), "at work");
        helper
    };
    // This process joins before the victims. So only locks and places show their deaths.
    let joined = join(directory.name(), "kill", 1).unwrap();
    assert_eq!(joined.take_place(Some(PLACES - 1)), Ok(PLACES - 1));
    let survivors: Vec<_> = (0..SURVIVORS)
        .map(|place| {
            let helper = start(place);
            marks.survivor(place).store(helper.pid(), Ordering::Release);
            helper
        })
        .collect();
    let mut torn = 0;
    for kill in 0..KILLS {
        let mut victim = start(SURVIVORS);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(u64::from(kill) * 97 % 3000) {
            if let Some(found) = joined.find(SURVIVORS).unwrap() {
                let (address, key) = (number(&found.address), number(&found.key));
                torn += u32::from(address != !key);
            }
        }
        victim.kill();
        assert!(!joined.alive(SURVIVORS));
        let rounds: Vec<u32> = (0..SURVIVORS)
            .map(|place| marks.rounds(place).load(Ordering::Relaxed))
            .collect();
        let stuck = Instant::now() + Duration::from_secs(300);
        while (0..SURVIVORS)
            .any(|place| marks.rounds(place).load(Ordering::Relaxed) == rounds[place as usize])
        {
            assert!(
                Instant::now() < stuck,
                "a survivor is stuck after kill {kill}"
            );
            std::thread::yield_now();
        }
    }
    assert_eq!(torn, 0, "entries half old, half new");
    for mut survivor in survivors {
        assert!(survivor.runs(), "a survivor has failed");
        survivor.kill();
    }
    // All words of dead processes are free again.
    let all = joined.claim_many(0, WORDS as usize, 0..WORDS).unwrap();
    assert_eq!(all.unwrap().len(), WORDS as usize);
    assert_eq!(joined.count_owned(0, PLACES - 1), WORDS as usize);
    assert_eq!(joined.claim(0, 0..WORDS), Ok(None));
}

#[test]
fn after_the_death_of_all_everything_is_fresh() {
    let directory = TestDirectory::new("all");
    let mut members: Vec<_> = ["one", "one", "two"]
        .map(|job| Helper::start("member", &[directory.name(), job, "-", "0"]))
        .into();
    let places: Vec<_> = members.iter_mut().map(Helper::hear).collect();
    assert_eq!(places[2], "0", "jobs have places of their own");
    assert_ne!(places[0], places[1]);
    assert_eq!(directory.files(), 2);
    let mut last = members.pop().unwrap();
    for member in &mut members {
        member.kill();
    }
    let other = join(directory.name(), "three", 1).unwrap();
    assert_eq!(
        directory.files(),
        2,
        "the dead job's file is swept, not the living one's"
    );
    last.kill();
    let fresh = join(directory.name(), "two", 3).unwrap();
    assert_eq!(directory.files(), 2);
    assert_eq!((fresh.properties()[0], fresh.places_used()), (3, 0));
    drop(fresh);
    drop(other);
    assert_eq!(directory.files(), 0);
}

#[test]
fn a_fork_keeps_nothing_alive() {
    let directory = TestDirectory::new("fork");
    let mut forker = Helper::start("forker", &[directory.name(), "fork"]);
    assert_eq!(forker.hear(), "child");
    let joined = join(directory.name(), "fork", 2).unwrap();
    assert_eq!(joined.properties()[0], 1);
    assert_eq!((joined.owner(0, 0), joined.count_owned(0, 2)), (Some(2), 1));
    drop(joined);
    // The child still waits for the end of the input.
    forker.kill();
    let fresh = join(directory.name(), "fork", 2).unwrap();
    assert_eq!(fresh.properties()[0], 2, "the child holds the file");
    assert!(!fresh.alive(2) && fresh.owner(0, 0).is_none());
}

#[test]
fn a_program_gets_the_place_that_it_had_before_exec() {
    let directory = TestDirectory::new("exec");
    // This process keeps the file.
    let joined = join(directory.name(), "exec", 1).unwrap();
    let mut helper = Helper::start("exec", &[directory.name(), "exec", "no"]);
    assert_eq!(helper.hear(), "again");
    helper.succeed();
    assert!(!joined.alive(3));
}

#[test]
fn resources_are_claimed_in_order_and_all_or_none() {
    let directory = TestDirectory::new("claim");
    let joined = join(directory.name(), "claim", 1).unwrap();
    let other = join(directory.name(), "claim", 1).unwrap();
    assert!(joined.claim(0, 0..WORDS).is_err(), "without a place");
    assert_eq!(joined.take_place(None), Ok(0));
    assert_eq!(other.take_place(None), Ok(1));
    assert_eq!(joined.claim(1, [5, 6]), Ok(Some(5)));
    assert_eq!(other.claim(1, [5, 6]), Ok(Some(6)));
    assert_eq!((joined.owner(1, 5), joined.owner(1, 6)), (Some(0), Some(1)));
    assert_eq!((joined.owner(0, 5), joined.owner(2, 0)), (None, None));
    assert_eq!(joined.claim_many(1, 3, [4, 5, 6, 4, 7]), Ok(None));
    assert_eq!(joined.owner(1, 4), None);
    assert_eq!(
        joined.claim_many(1, 2, [4, 5, 6, 4, 7]),
        Ok(Some(vec![4, 7]))
    );
    assert!(other.release(1, 5).is_err() && other.release(1, 0).is_err());
    joined.release(1, 5).unwrap();
    assert!(joined.release(1, 5).is_err());
    assert_eq!(other.claim(1, [5]), Ok(Some(5)));
    other.leave().unwrap();
    assert_eq!((joined.owner(1, 5), joined.count_owned(1, 1)), (None, 0));
    assert_eq!(joined.claim(1, 5..7), Ok(Some(5)));
    assert!(joined.claim(1, [WORDS]).is_err());
    assert!(joined.claim(PLACES, [0]).is_err());
}

#[test]
fn launchers_name_their_jobs() {
    // Only installed launchers. Other tests cover the parsing.
    let launchers: [(&str, &[&str]); 2] = [
        (
            "mpirun.openmpi",
            &["--allow-run-as-root", "--oversubscribe"],
        ),
        ("mpiexec.hydra", &[]),
    ];
    for (launcher, options) in launchers {
        let run = || {
            let mut command = Command::new(launcher);
            command.args(options).args(["-n", "2"]);
            // With a shell in between, as in scripts.
            command.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]);
            command.arg(std::env::current_exe().unwrap());
            as_helper(&mut command, "named", &[]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn()?;
            // Hydra forwards the end of its input, and dies by SIGPIPE if its proxy has ended. So the input stays open.
            let input = child.stdin.take();
            let output = child.wait_with_output();
            drop(input);
            output
        };
        let Ok(first) = run() else {
            continue;
        };
        let second = run().unwrap();
        let said = [first, second].map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut said: Vec<String> = messages(&text).map(str::to_owned).collect();
            said.sort();
            assert_eq!(said.len(), 2, "{launcher}: {output:?}");
            let jobs = said.iter().map(|line| line.split('|').next().unwrap());
            let job = jobs.clone().next().unwrap().to_owned();
            assert!(jobs.clone().all(|other| other == job), "{said:?}");
            for (rank, line) in said.iter().enumerate() {
                assert!(line.ends_with(&format!("|Some({rank})|Some(2)")), "{line}");
            }
            job
        });
        assert_ne!(said[0], said[1], "two jobs of {launcher} have one name");
    }
}

/// Shared memory in which the workers mark their words.
struct Marks {
    file: std::fs::File,
    base: *mut AtomicU32,
}

impl Marks {
    const LEN: usize = 4096;

    fn new() -> Self {
        let fd = rustix::fs::memfd_create("marks", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, Self::LEN as u64).unwrap();
        Self::map(fd.into())
    }

    fn open(path: &str) -> Self {
        let file = std::fs::File::options().read(true).write(true).open(path);
        Self::map(file.unwrap())
    }

    fn map(file: std::fs::File) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let (null, rights) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY:
        // - a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { mmap(null, Self::LEN, rights, MapFlags::SHARED, &file, 0) };
        Marks {
            file,
            base: base.unwrap().cast(),
        }
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn word(&self, index: u32) -> &AtomicU32 {
        assert!((index as usize) < Self::LEN / 4);
        // SAFETY:
        // - in bounds of the mapping, which is never unmapped; accessed through atomics only.
        unsafe { &*self.base.add(index as usize) }
    }

    /// Pid of a worker that is not killed.
    fn survivor(&self, place: u32) -> &AtomicU32 {
        self.word(100 + place)
    }

    fn rounds(&self, place: u32) -> &AtomicU32 {
        self.word(200 + place)
    }

    fn survives(&self, pid: u32) -> bool {
        (0..2).any(|place| self.survivor(place).load(Ordering::Acquire) == pid)
    }
}

/// Joins with WORDS words.
fn join(directory: &str, job: &str, property: u8) -> unipgas_base::Result<Rendezvous> {
    rendezvous_common::join(directory, job, property, WORDS)
}
