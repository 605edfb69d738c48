//! unipgas itself: the core's Rust interface, linked into this program, and the functions of GASPI, uTofu and iRCCE in the shared library.

mod core;
pub mod counts;
mod gaspi;
mod ircce;
mod meeting;
mod utofu;

use unipgas_core::Error;

use crate::case::{Case, Metric};
use crate::ctx::{BenchContext, memory};
use crate::worker::{self, Body, Run};

/// The state of unipgas in a measured process.
pub(crate) enum Ours {
    /// One-sided: the core, GASPI and uTofu.
    OneSided(Box<OneSided>),
    /// Messages: RCCE, in its own job.
    Messages(Box<ircce::Ircce>),
}

/// The interfaces of one-sided communication.
pub(crate) struct OneSided {
    core: core::Core,
    gaspi: gaspi::Gaspi,
    utofu: Option<utofu::Utofu>,
    utofu_calls: unipgas_utofu_sys::UtofuFunctions,
    /// Memory that GASPI uses, in KiB.
    memory: u64,
}

/// The implementations of a case by unipgas.
pub fn bodies(case: &Case) -> Vec<Body> {
    let all = |core: Run, gaspi: Run, utofu: Run| {
        worker::bodies(&[("core", core), ("gaspi", gaspi), ("utofu", utofu)])
    };
    let both = |core: Run, gaspi: Run| worker::bodies(&[("core", core), ("gaspi", gaspi)]);
    let one = |api, run: Run| worker::bodies(&[(api, run)]);
    match case.metric {
        Metric::PutNotice => all(core::put_notice, gaspi::put_notice, utofu::put_notice),
        Metric::OneLine => one("utofu", utofu::piggyback),
        Metric::FetchAdd => all(core::fetch_add, gaspi::fetch_add, utofu::armw8),
        Metric::Read => both(core::read, gaspi::read),
        Metric::PutRate => all(core::rate, gaspi::rate, utofu::rate),
        Metric::PairRate => both(core::pair_rate, gaspi::pair_rate),
        Metric::Bandwidth => all(core::bandwidth, gaspi::bandwidth, utofu::bandwidth),
        Metric::Barrier => all(core::barrier, gaspi::barrier, utofu::barrier),
        Metric::Allreduce => both(core::allreduce, gaspi::allreduce),
        Metric::Wake => both(core::wake, gaspi::wake),
        Metric::Register => all(core::register, gaspi::register, utofu::register),
        Metric::Relay => one("utofu", utofu::relay),
        Metric::Passive => both(core::message, gaspi::passive),
        Metric::Message => one("ircce", ircce::message),
        Metric::MessageBandwidth => one("ircce", ircce::message_bandwidth),
        Metric::Tagged => one("ircce", ircce::tagged),
        Metric::Multicast => worker::bodies(&[
            ("bare/window", ircce::window),
            ("ircce/rcce_bcast", ircce::rcce_broadcast),
            ("ircce/multicast", ircce::multicast),
        ]),
        Metric::IdleCpu => one("ircce", ircce::idle_cpu),
        Metric::Start => one("gaspi", gaspi::start),
        Metric::Memory => one("gaspi", gaspi::memory),
        // Other metrics are limits of the machine, or are measured from outside like peers.
        _ => Vec::new(),
    }
}

/// Calls a function of the library under test. Errors: it does not return 0.
macro_rules! call {
    ($calls:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY:
        // - contract of the function: each pointer is null, or leads to a place that is large enough and outlives the call
        super::ok(stringify!($name), unsafe { ($calls.$name)($($argument),*) })
    };
    ($of:ident.calls.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY:
        // - as above
        super::ok(stringify!($name), unsafe { ($of.calls.$name)($($argument),*) })
    };
}
use call;

/// A struct `Calls` with the addresses of all functions of an interface. A call does not test whether the function exists.
macro_rules! calls {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of the library.
        #[allow(dead_code, non_snake_case, reason = "the list has all functions of the interface")]
        struct Calls {
            $($name: unsafe extern "C" fn($($ty),*) -> $result,)*
        }

        impl Calls {
            fn of(library: &InstalledLibrary) -> Result<Calls, String> {
                // SAFETY:
                // - the library has this interface and stays loaded: these functions have the types of the header
                let found = unsafe { Functions::load(|name| library.symbol(name)) };
                Ok(Calls {
                    $($name: found.$name.ok_or_else(|| super::lacks(stringify!($name)))?,)*
                })
            }
        }
    };
}
use calls;

fn lacks(name: &str) -> String {
    format!("the library has no {name}: name another one by --library")
}

/// Joins the job through RCCE if `messages`, else through the core, GASPI and uTofu.
pub fn enter(ctx: &BenchContext, messages: bool) -> Result<Ours, String> {
    let library = &ctx.library;
    if messages {
        return ircce::Ircce::enter(ctx, library).map(|ours| Ours::Messages(Box::new(ours)));
    }
    let before = memory();
    let gaspi = gaspi::Gaspi::enter(library)?;
    ctx.started();
    let memory = memory().saturating_sub(before);
    gaspi.segments(ctx)?;
    let utofu_calls = utofu::functions(library)?;
    Ok(Ours::OneSided(Box::new(OneSided {
        core: core::Core::enter(ctx)?,
        gaspi,
        utofu: utofu::Utofu::new(ctx, utofu_calls)?,
        utofu_calls,
        memory,
    })))
}

impl Ours {
    fn one_sided(&self) -> Result<&OneSided, String> {
        match self {
            Ours::OneSided(ours) => Ok(ours),
            Ours::Messages(_) => Err("this job measures messages".into()),
        }
    }

    fn core(&self) -> Result<&core::Core, String> {
        self.one_sided().map(|ours| &ours.core)
    }

    fn gaspi(&self) -> Result<&gaspi::Gaspi, String> {
        self.one_sided().map(|ours| &ours.gaspi)
    }

    fn memory(&self) -> Result<u64, String> {
        self.one_sided().map(|ours| ours.memory)
    }

    /// State of the columns `utofu`, for two processes.
    fn utofu(&self) -> Result<&utofu::Utofu, String> {
        self.one_sided()?
            .utofu
            .as_ref()
            .ok_or("two processes only".into())
    }

    fn ircce(&self) -> Result<&ircce::Ircce, String> {
        match self {
            Ours::Messages(ircce) => Ok(ircce),
            Ours::OneSided(_) => Err("this job measures one-sided communication".into()),
        }
    }

    /// Makes progress for peers, as a waiting thread in the interface of this column does.
    pub fn attend(&self, column: &str) {
        match (self, column) {
            (Ours::OneSided(ours), "core") => ours.core.attend(),
            (Ours::OneSided(ours), "gaspi") => ours.gaspi.attend(),
            (Ours::OneSided(ours), "utofu") => ours.utofu.iter().for_each(utofu::Utofu::attend),
            _ => {}
        }
    }

    /// Leaves the job.
    pub fn leave(self, ctx: &BenchContext) -> Result<(), String> {
        ctx.sync();
        match self {
            Ours::Messages(ircce) => ircce.leave(),
            Ours::OneSided(ours) => {
                if let Some(utofu) = ours.utofu {
                    utofu.leave()?;
                }
                ours.core.leave()?;
                ours.gaspi.leave()
            }
        }
    }
}

/// A page-aligned user buffer, with its pages touched.
pub(crate) struct UserBuffer {
    /// Its first byte.
    pub base: *mut u8,
    layout: std::alloc::Layout,
}

impl UserBuffer {
    /// Allocates `len` bytes, which must not be 0.
    pub fn new(len: usize) -> Result<UserBuffer, String> {
        let layout = std::alloc::Layout::from_size_align(len, 4096).map_err(|e| e.to_string())?;
        // SAFETY:
        // - no caller passes a length of 0
        let base = unsafe { std::alloc::alloc(layout) };
        if base.is_null() {
            return Err(format!("no memory for {len} bytes"));
        }
        // SAFETY:
        // - it was just allocated with this length
        unsafe { base.write_bytes(1, len) };
        Ok(UserBuffer { base, layout })
    }
}

impl Drop for UserBuffer {
    fn drop(&mut self) {
        // SAFETY:
        // - `new` allocated it with this layout; registrations have ended
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}

/// Median time of `register` in us, without `release`. Rank 0 runs it, and the others wait.
fn registration<T>(
    ctx: &BenchContext,
    case: &Case,
    mut register: impl FnMut(*mut u8, usize) -> Result<T, String>,
    mut release: impl FnMut(T) -> Result<(), String>,
) -> Result<f64, String> {
    ctx.by_first(|| {
        let len = case.bytes as usize;
        let rounds = if len >= 1 << 20 { 1 } else { ctx.batches() };
        let mut times = Vec::new();
        for _ in 0..rounds {
            let buffer = UserBuffer::new(len)?;
            let start = std::time::Instant::now();
            let registered = register(buffer.base, len)?;
            times.push(start.elapsed().as_nanos() as f64 / 1e3);
            release(registered)?;
        }
        Ok(crate::ctx::median(&mut times))
    })
}

/// The offsets of `n` puts of `len` bytes, which walk through a window.
fn walk(n: usize, len: usize, window: usize) -> impl Iterator<Item = usize> {
    let mut next = 0;
    (0..n).map(move |_| {
        let at = next;
        next = if at + len < window { at + len } else { 0 };
        at
    })
}

/// Fails unless a call returned 0.
fn ok(what: &str, code: i32) -> Result<(), String> {
    match code {
        0 => Ok(()),
        _ => Err(format!("{what} returned {code}")),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
