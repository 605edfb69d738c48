//! What a law is, and what its body is given.

/// Where a law looks from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// The engine, used from Rust.
    Core,
    /// GASPI 17.1.
    Gaspi,
    /// uTofu, as the User's Guide J2UL-2567-01ENZ0 has it.
    Utofu,
    /// RCCE V1.0.13 and iRCCE 2.0.
    Rcce,
    /// A provider of libfabric: fi_atomic(3) of 1.8, and the calls that its programs need.
    Libfabric,
}

impl Api {
    /// All of them.
    pub const ALL: &'static [Api] = &[Api::Core, Api::Gaspi, Api::Utofu, Api::Rcce, Api::Libfabric];

    /// The interface of this name, as in `--api`.
    pub fn named(name: &str) -> Option<Api> {
        let name = if name == "ircce" { "rcce" } else { name };
        Api::ALL.iter().copied().find(|api| api.name() == name)
    }

    /// As in `--api`.
    pub fn name(self) -> &'static str {
        match self {
            Api::Core => "core",
            Api::Gaspi => "gaspi",
            Api::Utofu => "utofu",
            Api::Rcce => "rcce",
            Api::Libfabric => "libfabric",
        }
    }
}

/// Laws in which processes or links are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Processes die, and no other processes take their places.
    Deaths,
    /// Other processes take the places of those that die.
    Replacements,
    /// A link between hosts breaks, or the launcher of a host dies: such laws need several hosts.
    Links,
}

/// `Err` says in one line what was seen and what was expected.
pub type Verdict = Result<(), String>;

/// A sentence of a specification, and a body that runs on several processes and finds out whether it holds.
#[derive(Debug, Clone, Copy)]
pub struct Law {
    /// Unique: interface, subject, what is claimed, as in `gaspi.notify.not-overtaking`.
    pub id: &'static str,
    /// Where the sentence stands, as in `GASPI 17.1 §8.3.2`.
    pub clause: &'static str,
    /// The sentence in short words.
    pub says: &'static str,
    /// Where the law looks from.
    pub api: Api,
    /// How many processes the body runs on.
    pub processes: u32,
    /// Procedures of the specification that it checks.
    pub procedures: &'static [&'static str],
    /// Worth running under many seeds.
    pub ordering: bool,
    /// A process dies on purpose: the law runs in a job of its own, whose survivors go on. The body says by [`Ctx::dies`] who.
    pub needs_kill: bool,
    /// With [`needs_kill`](Law::needs_kill): other processes take the places of those that die, and run the body as well.
    pub replaces: bool,
    /// Works on one host only.
    pub one_host: bool,
    /// Takes a link between hosts down ([`Ctx::cuts`]): runs only where that can be done, in a job of its own.
    pub needs_cut: bool,
    /// Kills the launcher of a host, whose ranks end with it: runs only where there are several hosts, in a job of its own.
    pub kills_launcher: bool,
    /// The body initialises and terminates its interface itself. Otherwise `gaspi_proc_init` comes before a body of
    /// [`Api::Gaspi`], and `gaspi_proc_term` after it. uTofu has neither: a bare law of [`Api::Utofu`] is one whose processes
    /// have called nothing of it before, so that it can change the environment. Around a body of [`Api::Rcce`] are `RCCE_init` with
    /// `iRCCE_init`, and `RCCE_finalize`. What [`Api::Libfabric`] needs is opened by its bodies.
    pub bare: bool,
    /// Runs on every process; all of them must return `Ok`.
    pub body: fn(&Ctx) -> Verdict,
}

impl Law {
    /// A plain law, to be changed where it differs: `Law { ordering: true, ..Law::new(..) }`.
    pub const fn new(
        api: Api,
        id: &'static str,
        clause: &'static str,
        says: &'static str,
        processes: u32,
        procedures: &'static [&'static str],
        body: fn(&Ctx) -> Verdict,
    ) -> Law {
        Law {
            id,
            clause,
            says,
            api,
            processes,
            procedures,
            ordering: false,
            needs_kill: false,
            replaces: false,
            one_host: false,
            needs_cut: false,
            kills_launcher: false,
            bare: false,
            body,
        }
    }
}

impl Law {
    /// `None` where nothing is lost.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            _ if self.needs_cut || self.kills_launcher => Some(Kind::Links),
            _ if self.replaces => Some(Kind::Replacements),
            _ if self.needs_kill => Some(Kind::Deaths),
            _ => None,
        }
    }

    /// How many processes may take the places of others.
    pub(crate) fn spares(&self) -> u32 {
        match self.replaces {
            true => 4,
            false => 0,
        }
    }
}

/// What a body is given.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// This process, from 0.
    pub rank: u32,
    /// Number of processes: [`Law::processes`].
    pub size: u32,
    /// Draw random values from it; the same on all ranks.
    pub seed: u64,
    /// The column.
    pub backend: String,
    /// 1 for the first life cycle of the process, then 2, and so on.
    pub life_cycle: u32,
    pub(crate) place: crate::place::Place,
}

impl Ctx {
    /// A stream of random numbers of this seed, different for each `salt`.
    pub fn random(&self, salt: u64) -> Random {
        let mut random = Random(self.seed ^ salt.rotate_left(32));
        random.next();
        random
    }

    /// Whether operations take nanoseconds here, and laws about coincidences need many for the ranks to meet.
    pub fn is_quick(&self) -> bool {
        ["shm", "shm-copy", "loopback"].contains(&self.backend.as_str())
    }

    /// Waits until every rank of the law that lives has called this as often. It is not part of what is checked: it goes
    /// through the board of the job, and no bytes of a region are ordered by it beyond what the CPU does.
    pub fn sync(&self) {
        self.place.sync();
    }

    /// The same; `meanwhile` is called while others have not come.
    pub fn sync_while(&self, meanwhile: &mut dyn FnMut()) {
        self.place.sync_while(meanwhile);
    }

    /// Tells the other ranks something, at most 448 bytes, in place of what was told before. It goes the way of [`Ctx::sync`].
    pub fn tell(&self, bytes: &[u8]) {
        self.place.publish(bytes);
    }

    /// What `rank` has told, if it has; with a [`Ctx::sync`] between the two, what it has told last.
    pub fn told(&self, rank: u32) -> Option<Vec<u8>> {
        self.place.published(rank)
    }

    /// Whether `rank` is on another host.
    pub fn is_afar(&self, rank: u32) -> bool {
        self.place.is_afar(rank)
    }

    /// Ends this process by SIGKILL, in a law with [`Law::needs_kill`]. The framework expects it of nobody else.
    pub fn dies(&self) -> ! {
        self.place.dies()
    }

    /// Takes the link of this host down, in a law with [`Law::needs_cut`]: soon nothing passes between it and the others. [`Ctx::sync`] works
    /// still.
    pub fn cuts(&self) {
        self.place.cuts();
    }

    /// Says that this process may end by a signal from now on, in a law with [`Law::needs_kill`] where another rank sends it.
    pub fn may_die(&self) {
        self.place.tell("dies", "");
    }
}

/// Runs `body` as in a process that `unipgas run` has not started. For bare laws, whose process has one thread then.
pub(crate) fn without_job(body: impl FnOnce() -> Verdict) -> Verdict {
    const JOB: &str = "UNIPGAS_JOB";
    let token = std::env::var_os(JOB);
    // SAFETY:
    // - no other thread reads the environment.
    unsafe { std::env::remove_var(JOB) };
    let verdict = body();
    if let Some(token) = token {
        // SAFETY:
        // - as above: the library's threads have ended, or read no environment.
        unsafe { std::env::set_var(JOB, token) };
    }
    verdict
}

/// A body returns this where the backend does not offer what the law is about; `reason` says what.
pub fn not_offered(reason: impl Into<String>) -> Verdict {
    Err(format!("{NOT_OFFERED}{}", reason.into()))
}

pub(crate) const NOT_OFFERED: &str = "not offered: ";

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`; `n > 0`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Returns from the body with the text when the condition does not hold.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        match $condition {
            true => {}
            false => return Err(format!($($text)+)),
        }
    };
}

/// Returns from the body when the two differ: `ensure_eq!(seen, expected, "what")`.
#[macro_export]
macro_rules! ensure_eq {
    ($seen:expr, $expected:expr, $($text:tt)+) => {
        match (&$seen, &$expected) {
            (seen, expected) => {
                if *seen != *expected {
                    return Err(format!(
                        "{}: {:?} instead of {:?}",
                        format_args!($($text)+),
                        seen,
                        expected
                    ));
                }
            }
        }
    };
}
