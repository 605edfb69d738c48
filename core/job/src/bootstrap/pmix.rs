//! PMIx: Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`.
//!
//! Fences collect no data: values of ranks on other hosts are fetched at their first use. Slurm is the exception: at a fence that collects nothing, its
//! server (22.05) does not wait for other nodes.

mod asked;
mod library;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::environment::Environment;
use super::host;
use super::launched::Server;
use crate::job::check_size;
use crate::rendezvous::JobName;
use asked::Asked;
use library::{
    Bytes, Data, Done, ERR_NOT_FOUND, Handled, Info, Library, NAMESPACE_LEN, Proc, SCOPE_GLOBAL,
    SUCCESS, TYPE_BOOL, TYPE_BYTES, TYPE_PROC, TYPE_STRING, TYPE_UINT32, Value, WILDCARD,
};
use unipgas_base::{Deadline, Error, Result, exit, variables};

/// Prefix of Slurm's job names.
const SLURM: &[u8] = b"slurm.";
/// State of a fence in progress.
const PENDING: c_int = i32::MAX;
/// Interval between checks at a fence.
const NAP: Duration = Duration::from_micros(200);

/// Events that report the end of a process.
const ENDS: [c_int; 9] = [-7, -8, -111, -200, -201, -400, -401, -402, -403];
/// Events that report the loss of the server. Older releases use another number.
const LOST: [c_int; 2] = [-61, -101];

/// The connection of this process to the server, from its first job to its exit.
struct Client {
    pid: u32,
    library: Library,
    me: Proc,
    size: u32,
    neighbours: Vec<u32>,
    /// Hosts of the job.
    hosts: Option<u32>,
    fencing: Mutex<Option<Arc<AtomicI32>>>,
    /// Requests to ranks of other hosts that are in progress.
    asked: Mutex<HashMap<(u32, String), Arc<Asked>>>,
}

static CLIENT: Mutex<Option<Arc<Client>>> = Mutex::new(None);
static SERVER_HAS_GONE: AtomicBool = AtomicBool::new(false);

/// The job of the PMIx server that has started this process. `None`: no such server.
///
/// # Errors
/// [`Error::Unreachable`] if the library is missing, or the server refuses.
pub(super) fn from_env() -> Result<Option<Box<dyn Server>>> {
    if variables::get("PMIX_NAMESPACE")?.is_none() || variables::get("PMIX_RANK")?.is_none() {
        return Ok(None);
    }
    let name = JobName::from_env()?;
    let client = match Client::get() {
        Err(error @ Error::Unreachable(_)) => return without_library(name, error),
        client => client?,
    };
    Ok(Some(Box::new(Pmix { client, name })))
}

/// Fallback if the library or the server cannot be used: Open MPI's environment suffices for a job on one host.
fn without_library(name: JobName, error: Error) -> Result<Option<Box<dyn Server>>> {
    let here = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok();
    let here = here.and_then(|here| here.trim().parse().ok());
    match (name.rank(), name.size()) {
        (Some(rank), Some(size)) if size == 1 || here == Some(size) => {
            let environment = Environment::new("Open MPI's environment", name, rank, size, None)?;
            Ok(Some(Box::new(environment)))
        }
        _ => Err(error),
    }
}

struct Pmix {
    client: Arc<Client>,
    name: JobName,
}

impl Client {
    fn get() -> Result<Arc<Client>> {
        let mut client = CLIENT.lock();
        if let Some(client) = &*client
            && client.pid == std::process::id()
        {
            return Ok(client.clone());
        }
        let made = Arc::new(Client::new()?);
        *client = Some(made.clone());
        Ok(made)
    }

    fn new() -> Result<Self> {
        let library = Library::load()?;
        let mut me = Proc {
            namespace: [0; NAMESPACE_LEN],
            rank: 0,
        };
        // SAFETY:
        // - `me` has room for the answer, and there are no options.
        let code = unsafe { (library.init)(&raw mut me, null(), 0) };
        if code != SUCCESS {
            return Err(Error::Unreachable(format!(
                "the PMIx server that has started this process does not answer: {}",
                text(&library, code)
            )));
        }
        // SAFETY:
        // - `on_event` and `at_exit` stay valid as long as the process. A server treats a process that exits without PMIx_Finalize as failed. `at_exit`
        //   finalizes, so that a normal exit is not a failure.
        unsafe {
            (library.watch)(null(), 0, null(), 0, on_event, None, null_mut());
            libc::atexit(at_exit);
        }
        let mut client = Client {
            pid: std::process::id(),
            library,
            me,
            size: 0,
            neighbours: Vec::new(),
            hosts: None,
            fencing: Mutex::default(),
            asked: Mutex::default(),
        };
        let number = |key: &CStr| match client.ask(key)? {
            Some(Told::Number(number)) => Ok(number),
            _ => Err(Error::Unreachable(format!(
                "the PMIx server does not tell {}",
                key.to_string_lossy()
            ))),
        };
        let size = number(c"pmix.job.size")?;
        check_size(size)?;
        let here = match client.ask(c"pmix.lpeers")? {
            Some(Told::Text(list)) => peers(&list, size),
            _ => None,
        };
        // A server without a list of local ranks may report that all ranks are local.
        let all = || (number(c"pmix.local.size") == Ok(size)).then(|| (0..size).collect());
        let hosts = number(c"pmix.num.nodes").ok().filter(|hosts| *hosts > 0);
        client.neighbours = here.or_else(all).unwrap_or_else(|| vec![client.me.rank]);
        (client.size, client.hosts) = (size, hosts);
        if client.me.rank >= size || client.neighbours.binary_search(&client.me.rank).is_err() {
            return Err(Error::Unreachable(format!(
                "the PMIx server contradicts itself: rank {} of {size}",
                client.me.rank
            )));
        }
        Ok(client)
    }

    fn process(&self, rank: u32) -> Proc {
        Proc { rank, ..self.me }
    }

    /// The request for the value of `rank` under `key`: a new one, or the one in progress.
    fn asked(&self, rank: u32, key: &str) -> Result<Arc<Asked>> {
        let mut all = self.asked.lock();
        if let Some(asked) = all.get(&(rank, key.to_owned())) {
            return Ok(asked.clone());
        }
        let process = self.process(rank);
        let asked = Asked::begin(&self.library, &process, c_key(key)?)
            .map_err(|code| self.failed("PMIx_Get_nb", code))?;
        all.insert((rank, key.to_owned()), asked.clone());
        Ok(asked)
    }

    /// The server's value of `key` for the job.
    fn ask(&self, key: &CStr) -> Result<Option<Told>> {
        let process = self.process(WILDCARD);
        let mut value: *mut Value = null_mut();
        // SAFETY:
        // - a process, a C string, no options, and room for the answer.
        let code = unsafe {
            (self.library.get)(&raw const process, key.as_ptr(), null(), 0, &raw mut value)
        };
        match code {
            SUCCESS if value.is_null() => Ok(None),
            // SAFETY:
            // - contract of PMIx_Get: the value belongs to the caller.
            SUCCESS => Ok(unsafe { Told::take(value) }),
            ERR_NOT_FOUND => Ok(None),
            other => Err(self.failed("PMIx_Get", other)),
        }
    }

    fn failed(&self, what: &str, code: c_int) -> Error {
        Error::Os(format!("{what}: {}", text(&self.library, code)))
    }
}

fn text(library: &Library, code: c_int) -> String {
    // SAFETY:
    // - contract of PMIx_Error_string: null or a C string that stays valid.
    let text = unsafe {
        let text = (library.text)(code);
        if text.is_null() {
            return format!("error {code}");
        }
        CStr::from_ptr(text)
    };
    format!("{} ({code})", text.to_string_lossy())
}

/// Parses ranks with commas between them. Returns them in ascending order. `None`: malformed, a duplicate, or a rank that is not below `size`.
pub(super) fn peers(list: &str, size: u32) -> Option<Vec<u32>> {
    let mut ranks: Vec<u32> = list
        .split(',')
        .map(|rank| rank.trim().parse().ok())
        .collect::<Option<_>>()?;
    ranks.sort_unstable();
    (ranks.is_sorted_by(|a, b| a < b) && ranks.last() < Some(&size)).then_some(ranks)
}

/// A value from the server.
#[derive(Debug, PartialEq)]
enum Told {
    Number(u32),
    Text(String),
}

impl Told {
    /// Reads `value` and frees it. `None` for types that are not requested.
    ///
    /// # Safety
    /// `value` is from the library: allocated by malloc, and filled as its type says.
    unsafe fn take(value: *mut Value) -> Option<Self> {
        // SAFETY:
        // - contract of this call: the type selects the valid member, and a text is a C string.
        // - the value and its text are separate allocations, and this call owns both.
        unsafe {
            let Value { kind, data } = *value;
            let told = match kind {
                TYPE_UINT32 => Some(Told::Number(data.number)),
                TYPE_STRING if !data.text.is_null() => {
                    let text = CStr::from_ptr(data.text).to_string_lossy().into_owned();
                    libc::free(data.text.cast());
                    Some(Told::Text(text))
                }
                _ => None,
            };
            libc::free(value.cast());
            told
        }
    }
}

fn c_key(key: &str) -> Result<CString> {
    CString::new(format!("unipgas.{key}"))
        .map_err(|_| Error::InvalidArgument(format!("a key without zeros, not {key:?}")))
}

impl Server for Pmix {
    fn source(&self) -> String {
        "PMIx".into()
    }

    fn name(&self) -> &JobName {
        &self.name
    }

    fn rank(&self) -> u32 {
        self.client.me.rank
    }

    fn size(&self) -> u32 {
        self.client.size
    }

    fn neighbours(&self) -> &[u32] {
        &self.client.neighbours
    }

    fn hosts(&self) -> Option<u32> {
        self.client.hosts
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_key(key)?;
        let told = Value {
            kind: TYPE_BYTES,
            data: Data {
                bytes: Bytes {
                    bytes: value.as_ptr().cast_mut().cast(),
                    len: value.len(),
                },
            },
        };
        // SAFETY:
        // - a C string and a value, which the call copies.
        let code =
            unsafe { (self.client.library.put)(SCOPE_GLOBAL, key.as_ptr(), &raw const told) };
        if code != SUCCESS {
            return Err(self.client.failed("PMIx_Put", code));
        }
        Ok(())
    }

    fn get(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        let asked = self.client.asked(rank, key)?;
        let Some(code) = asked.wait(|| !self.lives() || host::is_dead(rank)) else {
            return Ok(None);
        };
        self.client.asked.lock().remove(&(rank, key.to_owned()));
        match code {
            SUCCESS => Ok(asked.value()),
            ERR_NOT_FOUND => Ok(None),
            other => Err(self.client.failed("PMIx_Get_nb", other)),
        }
    }

    fn commit(&self) -> Result<()> {
        // SAFETY:
        // - no arguments.
        match unsafe { (self.client.library.commit)() } {
            SUCCESS => Ok(()),
            code => Err(self.client.failed("PMIx_Commit", code)),
        }
    }

    fn fence(&self, deadline: Deadline) -> Result<()> {
        let mut fencing = self.client.fencing.lock();
        let arrived = match &*fencing {
            Some(arrived) => arrived.clone(),
            None => {
                let arrived = Arc::new(AtomicI32::new(PENDING));
                let all = self.client.process(WILDCARD);
                let flag = self.client.me.namespace.starts_with(SLURM);
                let collect = Info::new(c"pmix.collect", TYPE_BOOL, Data { flag });
                let told = Arc::into_raw(arrived.clone()).cast_mut().cast();
                // SAFETY:
                // - the call copies processes and options. The callback owns a reference to the state.
                let code = unsafe {
                    match (self.client.library.commit)() {
                        SUCCESS => (self.client.library.fence)(
                            &raw const all,
                            1,
                            &raw const collect,
                            1,
                            on_fence,
                            told,
                        ),
                        other => other,
                    }
                };
                if code != SUCCESS {
                    // SAFETY:
                    // - the library does not call the callback of a failed call.
                    drop(unsafe { Arc::from_raw(told.cast_const().cast::<AtomicI32>()) });
                    return Err(self.client.failed("PMIx_Fence", code));
                }
                *fencing = Some(arrived.clone());
                arrived
            }
        };
        loop {
            match arrived.load(Ordering::Acquire) {
                PENDING if !self.lives() => {
                    return Err(Error::Unreachable(
                        "the launcher of this job has ended".into(),
                    ));
                }
                PENDING if deadline.expired() => return Err(Error::Timeout),
                PENDING => std::thread::sleep(NAP.min(deadline.remaining().unwrap_or(NAP))),
                code => {
                    *fencing = None;
                    return match code {
                        SUCCESS => Ok(()),
                        code => Err(self.client.failed("PMIx_Fence", code)),
                    };
                }
            }
        }
    }

    fn lives(&self) -> bool {
        !SERVER_HAS_GONE.load(Ordering::Relaxed)
    }
}

unsafe extern "C" fn on_fence(status: c_int, arrived: *mut c_void) {
    // SAFETY:
    // - `arrived` is the reference that the fence passed. The library passes it once.
    let arrived = unsafe { Arc::from_raw(arrived.cast_const().cast::<AtomicI32>()) };
    arrived.store(status, Ordering::Release);
}

/// The callback for events. A thread of the library runs it.
unsafe extern "C" fn on_event(
    _: usize,
    status: c_int,
    source: *const Proc,
    infos: *const Info,
    count: usize,
    _: *mut Info,
    _: usize,
    handled: Option<Handled>,
    data: *mut c_void,
) {
    if LOST.contains(&status) {
        SERVER_HAS_GONE.store(true, Ordering::Relaxed);
    }
    if ENDS.contains(&status) {
        let infos = if infos.is_null() {
            &[]
        } else {
            // SAFETY:
            // - contract of the library: `infos` has `count` elements.
            unsafe { std::slice::from_raw_parts(infos, count) }
        };
        // SAFETY:
        // - the process of an info of this type is valid. `source` is valid, or null.
        let process = unsafe { affected(infos).unwrap_or(source).as_ref() };
        if let Some(process) = process
            && CLIENT.try_lock().is_none_or(|client| {
                client
                    .as_ref()
                    .is_none_or(|c| c.me.namespace == process.namespace)
            })
        {
            host::mark_died(process.rank);
        }
    }
    if let Some(handled) = handled {
        let done: Option<Done> = None;
        // SAFETY:
        // - the library's callback gets the library's data. Other handlers may still see the event.
        unsafe { handled(SUCCESS, null_mut(), 0, done, null_mut(), data) };
    }
}

fn affected(infos: &[Info]) -> Option<*const Proc> {
    let info = infos.iter().find(|info| {
        info.value.kind == TYPE_PROC
            && CStr::from_bytes_until_nul(&info.key).is_ok_and(|key| key == c"pmix.evproc")
    })?;
    // SAFETY:
    // - the type selects this member.
    Some(unsafe { info.value.data.process })
}

extern "C" fn at_exit() {
    exit::run(|| {
        let client = CLIENT.lock().take();
        if let Some(client) = client
            && client.pid == std::process::id()
        {
            // SAFETY:
            // - initialised once, and not used after this.
            unsafe { (client.library.finalize)(null(), 0) };
        }
    });
}
