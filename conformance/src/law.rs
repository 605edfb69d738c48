//! Laws, and the context of their bodies.

/// The interface of a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// The engine, used from Rust.
    Core,
    /// GASPI 17.1.
    Gaspi,
    /// uTofu, as specified in the User's Guide J2UL-2567-01ENZ0.
    Utofu,
    /// RCCE V1.0.13 and iRCCE 2.0.
    Rcce,
    /// A provider of libfabric: fi_atomic(3) of 1.8, and the calls that its programs need.
    Libfabric,
}

impl Api {
    /// All interfaces.
    pub const ALL: &'static [Api] = &[Api::Core, Api::Gaspi, Api::Utofu, Api::Rcce, Api::Libfabric];

    /// The interface of this name, as in `--api`.
    pub fn named(name: &str) -> Option<Api> {
        let name = if name == "ircce" { "rcce" } else { name };
        Api::ALL.iter().copied().find(|api| api.name() == name)
    }

    /// Name for `--api`.
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

/// The kind of loss in laws that lose processes or links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LossKind {
    /// Processes die without replacement.
    Deaths,
    /// Other processes replace the dead ones.
    Replacements,
    /// A link between hosts breaks, or the launcher of a host dies: such laws need several hosts.
    Links,
}

/// `Err` contains one line: the seen and the expected value.
pub type Verdict = Result<(), String>;

/// A sentence of a specification, and a body that checks it on several processes.
#[derive(Debug, Clone, Copy)]
pub struct Law {
    /// Unique: interface, subject, claim, as in `gaspi.notify.not-overtaking`.
    pub id: &'static str,
    /// The place of the sentence, as in `GASPI 17.1 §8.3.2`.
    pub clause: &'static str,
    /// The sentence in a few words.
    pub says: &'static str,
    /// The interface of the law.
    pub api: Api,
    /// Number of processes that run the body.
    pub processes: u32,
    /// Procedures of the specification that the law checks.
    pub procedures: &'static [&'static str],
    /// Worth running under many seeds.
    pub ordering: bool,
    /// A process dies on purpose: the law runs in a separate job, and the survivors continue. The body selects the victim by [`Ctx::dies`].
    pub needs_kill: bool,
    /// With [`needs_kill`](Law::needs_kill): other processes replace the dead ones, and run the body too.
    pub replaces: bool,
    /// Works on one host only.
    pub one_host: bool,
    /// Takes a link between hosts down ([`Ctx::cuts`]). Runs in a separate job, and only if links can be taken down.
    pub needs_cut: bool,
    /// Kills the launcher of a host, and its ranks end too. Runs in a separate job, and only with several hosts.
    pub kills_launcher: bool,
    /// The body itself initialises and terminates its interface. Otherwise `gaspi_proc_init` precedes a body of
    /// [`Api::Gaspi`], and `gaspi_proc_term` follows it. uTofu has neither: processes of a bare law of [`Api::Utofu`] have made
    /// no uTofu call before, so the law can change the environment. `RCCE_init` and `iRCCE_init` precede a body of [`Api::Rcce`],
    /// and `RCCE_finalize` follows it. Bodies of [`Api::Libfabric`] open their objects themselves.
    pub bare: bool,
    /// Runs on every process; all of them must return `Ok`.
    pub body: fn(&Ctx) -> Verdict,
}

impl Law {
    /// A plain law; change the fields that differ: `Law { ordering: true, ..Law::new(..) }`.
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
    /// `None` if the law loses neither processes nor links.
    pub fn kind(&self) -> Option<LossKind> {
        match self {
            _ if self.needs_cut || self.kills_launcher => Some(LossKind::Links),
            _ if self.replaces => Some(LossKind::Replacements),
            _ if self.needs_kill => Some(LossKind::Deaths),
            _ => None,
        }
    }

    /// Number of processes that may replace others.
    pub(crate) fn spares(&self) -> u32 {
        match self.replaces {
            true => 4,
            false => 0,
        }
    }
}

/// The context of a body.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// Rank of this process, from 0.
    pub rank: u32,
    /// Number of processes: [`Law::processes`].
    pub size: u32,
    /// Source of random values; the same on all ranks.
    pub seed: u64,
    /// The name of the column.
    pub backend: String,
    /// Life cycle of the process, from 1.
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

    /// Whether operations take nanoseconds here. Laws about coincidences then need many operations for the ranks to meet.
    pub fn is_quick(&self) -> bool {
        ["shm", "shm-copy", "loopback"].contains(&self.backend.as_str())
    }

    /// Waits until each live rank of the law has called this the same number of times. It is not part of the checks: it uses
    /// the board of the job, and orders bytes of a region no more than the CPU does.
    pub fn sync(&self) {
        self.place.sync();
    }

    /// Like [`sync`](Ctx::sync); calls `meanwhile` while other ranks are missing.
    pub fn sync_while(&self, meanwhile: &mut dyn FnMut()) {
        self.place.sync_while(meanwhile);
    }

    /// Publishes at most 448 bytes for the other ranks, instead of the last ones. Uses the same path as [`Ctx::sync`].
    pub fn tell(&self, bytes: &[u8]) {
        self.place.publish(bytes);
    }

    /// The last bytes that `rank` has published. A [`Ctx::sync`] between the two calls makes them current.
    pub fn told(&self, rank: u32) -> Option<Vec<u8>> {
        self.place.published(rank)
    }

    /// Whether `rank` is on another host.
    pub fn is_afar(&self, rank: u32) -> bool {
        self.place.is_afar(rank)
    }

    /// Ends this process by SIGKILL, in a law with [`Law::needs_kill`]. The framework accepts no other end.
    pub fn dies(&self) -> ! {
        self.place.dies()
    }

    /// Takes the link of this host down, in a law with [`Law::needs_cut`]: soon no data passes between it and the others. [`Ctx::sync`]
    /// still works.
    pub fn cuts(&self) {
        self.place.cuts();
    }

    /// Allows a signal to end this process from here on, in a law with [`Law::needs_kill`] in which another rank sends it.
    pub fn may_die(&self) {
        self.place.tell("dies", "");
    }
}

/// Runs `body` as in a process without a launcher. For bare laws: their process has only one thread at that time.
pub(crate) fn without_job(body: impl FnOnce() -> Verdict) -> Verdict {
    const JOB: &str = "UNIPGAS_JOB";
    let token = std::env::var_os(JOB);
    // SAFETY:
    // - no other thread reads the environment.
    unsafe { std::env::remove_var(JOB) };
    let verdict = body();
    if let Some(token) = token {
        // SAFETY:
        // - as above: the library's threads have ended, or do not read the environment.
        unsafe { std::env::set_var(JOB, token) };
    }
    verdict
}

/// The result of a body if the backend does not offer the law's subject; `reason` names it.
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

    /// Fills `bytes` with random values.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Returns from the body with the text if the condition is false.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        match $condition {
            true => {}
            false => return Err(format!($($text)+)),
        }
    };
}

/// As `ensure_eq!`, for the end of a body: gives the verdict.
#[macro_export]
macro_rules! equal {
    ($($check:tt)+) => {{
        $crate::ensure_eq!($($check)+);
        Ok::<(), String>(())
    }};
}

/// Returns from the body if the values differ: `ensure_eq!(seen, expected, "what")`.
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
