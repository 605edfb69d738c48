//! The libfabric provider that unipgas uses, alone: its objects are opened as in a program with one thread that uses nothing else.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use unipgas_backends::ofi::choice::{ProviderSelector, choose, name};
use unipgas_backends::ofi::library::LibfabricLibrary;
use unipgas_core::dynamic::{DynamicLibrary, SymbolVisibility};
use unipgas_launcher::library::InstalledLibrary as Installed;
use unipgas_libfabric_sys::*;

use crate::ctx::BenchContext;
use crate::ours::UserBuffer;

/// fi_errno(3): an error can be read.
const FI_EAVAIL: isize = 259;
const FI_EAGAIN: isize = libc::EAGAIN as isize;
/// Maximum length of an endpoint's name.
const NAME: usize = 64;
/// Length of the memory that peers access, and of the source of sends.
pub const WINDOW: usize = 4 << 20;
/// Keys, if the provider does not choose its own.
const KEYS: u64 = 0x6265_6e63;
/// Number of contexts, used in turn: more than operations in flight.
const CONTEXTS: usize = 8192;

/// Calls a function of a table. A provider fills its tables: an unsupported function returns -FI_ENOSYS.
macro_rules! call {
    ($table:expr, $function:ident $(, $argument:expr)*) => {
        ((*$table).$function)($($argument),*) as isize
    };
}
pub(super) use call;

/// A peer, in terms of operations.
#[derive(Clone, Copy)]
pub(super) struct PeerMemory {
    pub peer: u64,
    pub base: u64,
    pub key: u64,
}

/// Events so far.
#[derive(Default)]
pub(super) struct EventCounts {
    /// Completed operations of this process.
    pub ended: Cell<u64>,
    /// Received messages.
    pub received: Cell<u64>,
    /// Incoming writes, by their immediate data.
    pub written: [Cell<u64>; 8],
}

/// The choice of a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderChoice {
    /// The provider that the backend `ofi` would choose.
    Theirs,
    /// The same with a file descriptor of the queue. `ofi` needs it to serve peers while the program computes.
    TheirsToSleepAt,
    /// The provider `unipgas` of the library under test.
    Ours,
}

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;

type OpenFabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;

/// The objects of one process.
pub(super) struct Provider {
    library: &'static LibfabricLibrary,
    info: *mut fi_info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    pub ep: *mut fid_ep,
    registered: RefCell<Vec<*mut fid_mr>>,
    /// Memory that peers access.
    pub memory: UserBuffer,
    /// Source of sends.
    pub source: UserBuffer,
    contexts: Vec<Cell<[fi_context; 2]>>,
    next: Cell<usize>,
    /// Events so far.
    pub counts: EventCounts,
    /// Posted operations that will have a completion.
    pub begun: Cell<u64>,
    /// Peers by rank.
    pub far: Vec<PeerMemory>,
    /// Other processes need the cores.
    crowded: bool,
}

impl Provider {
    /// Opens the objects, and exchanges addresses with the other processes.
    pub fn open(
        ctx: &BenchContext,
        whose: ProviderChoice,
        other_hosts: bool,
    ) -> Result<Provider, String> {
        let opened = Provider::alone(ctx, whose, other_hosts);
        let hello = match &opened {
            Ok((_, hello)) => hello.as_slice(),
            Err(_) => &[],
        };
        let all = ctx.share(hello);
        let (mut provider, _) = opened?;
        for (rank, hello) in all.iter().enumerate() {
            let far = provider.meet(hello);
            provider
                .far
                .push(far.ok_or(format!("process {rank} has no address"))?);
        }
        Ok(provider)
    }

    /// The objects, and the data that peers need.
    fn alone(
        ctx: &BenchContext,
        whose: ProviderChoice,
        other_hosts: bool,
    ) -> Result<(Provider, Vec<u8>), String> {
        let (library, info, open) = match whose {
            ProviderChoice::Theirs | ProviderChoice::TheirsToSleepAt => {
                let library = LibfabricLibrary::get()?;
                let wish = ProviderSelector::from_env().map_err(|e| e.to_string())?;
                let like = choose(&wish, other_hosts).map_err(|e| e.to_string())?;
                let fits = |info: &fi_info| same_place(info, like.raw());
                let info = offer(library, library.getinfo, &like.provider(), fits)?;
                (library, info, library.fabric)
            }
            ProviderChoice::Ours => {
                let (library, own) = (shared_libfabric()?, own_provider(&ctx.library)?);
                let info = offer(library, own.getinfo, "unipgas", |_| true)?;
                (library, info, own.fabric)
            }
        };
        let contexts = || {
            Cell::new(
                [fi_context {
                    internal: [null_mut(); 4],
                }; 2],
            )
        };
        let mut provider = Provider {
            library,
            info,
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            cq: null_mut(),
            ep: null_mut(),
            registered: RefCell::default(),
            memory: UserBuffer::new(WINDOW)?,
            source: UserBuffer::new(WINDOW)?,
            contexts: (0..CONTEXTS).map(|_| contexts()).collect(),
            next: Cell::new(0),
            counts: EventCounts::default(),
            begun: Cell::new(0),
            far: Vec::new(),
            crowded: ctx.crowded,
        };
        // SAFETY:
        // - the buffer has `WINDOW` bytes, which no other thread uses
        unsafe { provider.memory.base.write_bytes(0, WINDOW) };
        provider.open_all(open, whose == ProviderChoice::TheirsToSleepAt)?;
        let hello = provider.hello()?;
        Ok((provider, hello))
    }

    fn check(&self, what: &str, status: isize) -> Result<(), String> {
        match status {
            0 => Ok(()),
            _ => Err(format!("{what}: {}", self.library.text(status as c_int))),
        }
    }

    fn open_all(&mut self, open: OpenFabric, to_sleep_at: bool) -> Result<(), String> {
        let info = self.info;
        // SAFETY:
        // - the info is complete, and freed after the objects
        // - each object is used only after the status 0 of the call that opens it
        // - attributes live through the call
        unsafe {
            let fabric = open((*info).fabric_attr, &raw mut self.fabric, null_mut());
            self.check("fi_fabric", fabric as isize)?;
            let (of, none) = (self.fabric, null_mut());
            let domain = call!((*of).ops, domain, of, info, &raw mut self.domain, none);
            self.check("fi_domain", domain)?;
            let mut attributes: fi_cq_attr = std::mem::zeroed();
            attributes.format = FI_CQ_FORMAT_DATA;
            attributes.size = 4096;
            if to_sleep_at {
                attributes.wait_obj = FI_WAIT_FD;
            }
            let (of, ops) = (self.domain, (*self.domain).ops);
            let cq = call!(
                ops,
                cq_open,
                of,
                &raw mut attributes,
                &raw mut self.cq,
                none
            );
            self.check("fi_cq_open", cq)?;
            let mut attributes: fi_av_attr = std::mem::zeroed();
            let av = call!(
                ops,
                av_open,
                of,
                &raw mut attributes,
                &raw mut self.av,
                none
            );
            self.check("fi_av_open", av)?;
            let ep = call!(ops, endpoint, of, info, &raw mut self.ep, none);
            self.check("fi_endpoint", ep)?;
            let ep = self.ep.cast::<fid>();
            let bound = call!((*ep).ops, bind, ep, self.av.cast(), 0);
            self.check("fi_ep_bind", bound)?;
            let bound = call!((*ep).ops, bind, ep, self.cq.cast(), FI_TRANSMIT | FI_RECV);
            self.check("fi_ep_bind", bound)?;
            let enabled = call!((*ep).ops, control, ep, FI_ENABLE, null_mut());
            self.check("fi_enable", enabled)?;
        }
        for (number, at) in [self.memory.base, self.source.base].into_iter().enumerate() {
            self.register(at, KEYS + number as u64)?;
        }
        Ok(())
    }

    fn register(&self, at: *mut u8, key: u64) -> Result<(), String> {
        let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        let mut mr = null_mut();
        // SAFETY:
        // - the objects are open
        // - the buffer has `WINDOW` bytes, and is freed after the registration is closed
        unsafe {
            let status = call!(
                (*self.domain).mr,
                reg,
                self.domain.cast(),
                at.cast(),
                WINDOW,
                access,
                0,
                key,
                0,
                &raw mut mr,
                null_mut()
            );
            self.check("fi_mr_reg", status)?;
            self.registered.borrow_mut().push(mr);
            if self.mode(FI_MR_ENDPOINT) {
                let of = mr.cast::<fid>();
                self.check("fi_mr_bind", call!((*of).ops, bind, of, self.ep.cast(), 0))?;
                let enabled = call!((*of).ops, control, of, FI_ENABLE, null_mut());
                self.check("fi_mr_enable", enabled)?;
            }
        }
        Ok(())
    }

    fn mode(&self, bit: c_int) -> bool {
        // SAFETY:
        // - fi_getinfo fills all attributes
        unsafe { (*(*self.info).domain_attr).mr_mode & bit != 0 }
    }

    /// The descriptors of the memory that peers access, and of the source.
    pub fn desc(&self) -> [*mut c_void; 2] {
        let registered = self.registered.borrow();
        // SAFETY:
        // - both registrations are open
        [0, 1].map(|number| unsafe { (*registered[number]).mem_desc })
    }

    /// Base, key and endpoint name for peers.
    fn hello(&self) -> Result<Vec<u8>, String> {
        let (mut name, mut len) = ([0u8; NAME], NAME);
        // SAFETY:
        // - the objects are open
        // - `name` has room for `len` bytes
        let key = unsafe {
            let ep = self.ep.cast::<fid>();
            let at = name.as_mut_ptr().cast();
            let status = call!((*self.ep).cm, getname, ep, at, &raw mut len);
            self.check("fi_getname", status)?;
            (*self.registered.borrow()[0]).key
        };
        let base = match self.mode(FI_MR_VIRT_ADDR) {
            true => self.memory.base.expose_provenance() as u64,
            false => 0,
        };
        let mut hello = [base.to_le_bytes(), key.to_le_bytes()].concat();
        hello.extend(&name[..len.min(NAME)]);
        Ok(hello)
    }

    fn meet(&self, hello: &[u8]) -> Option<PeerMemory> {
        let (base, rest) = hello.split_first_chunk()?;
        let (key, name) = rest.split_first_chunk()?;
        let mut peer = 0;
        let at = name.as_ptr().cast();
        // SAFETY:
        // - the object is open
        // - `name` is an endpoint name of the same provider
        let inserted = unsafe {
            call!(
                (*self.av).ops,
                insert,
                self.av,
                at,
                1,
                &raw mut peer,
                0,
                null_mut()
            )
        };
        (inserted == 1).then_some(PeerMemory {
            peer,
            base: u64::from_le_bytes(*base),
            key: u64::from_le_bytes(*key),
        })
    }

    /// A context that no operation in flight uses.
    pub fn context(&self) -> *mut c_void {
        let next = self.next.get();
        self.next.set((next + 1) % CONTEXTS);
        self.contexts[next].as_ptr().cast()
    }

    /// Polls the completion queue once.
    #[inline(always)]
    pub fn look(&self) -> Result<(), String> {
        let mut entry = std::mem::MaybeUninit::<fi_cq_data_entry>::uninit();
        // SAFETY:
        // - the queue is open and has this format
        // - there is room for one entry
        let read = unsafe { call!((*self.cq).ops, read, self.cq, entry.as_mut_ptr().cast(), 1) };
        if read == -FI_EAGAIN {
            return Ok(());
        }
        if read != 1 {
            return Err(self.failure(read));
        }
        // SAFETY:
        // - the provider has filled it
        let entry = unsafe { entry.assume_init() };
        let counts = &self.counts;
        // Some providers report the data at both ends.
        let by_peer = entry.flags & FI_RMA != 0 && entry.flags & FI_WRITE == 0;
        let with_data = entry.flags & FI_REMOTE_CQ_DATA != 0;
        let count = match entry.flags {
            flags if with_data && (by_peer || flags & FI_REMOTE_WRITE != 0) => {
                let number = entry.data as usize;
                counts
                    .written
                    .get(number)
                    .ok_or(format!("data {number} came without a send"))?
            }
            flags if flags & FI_RECV != 0 => &counts.received,
            _ => &counts.ended,
        };
        count.set(count.get() + 1);
        Ok(())
    }

    #[cold]
    fn failure(&self, read: isize) -> String {
        if read != -FI_EAVAIL {
            return format!("fi_cq_read: {}", self.library.text(read as c_int));
        }
        // SAFETY:
        // - an entry of zeros is valid
        // - the queue is open
        let entry = unsafe {
            let mut entry: fi_cq_err_entry = std::mem::zeroed();
            call!((*self.cq).ops, readerr, self.cq, &raw mut entry, 0);
            entry
        };
        format!("an operation has failed: {}", self.library.text(entry.err))
    }

    /// Posts until the provider accepts the operation. `told`: it will have a completion.
    #[inline(always)]
    pub fn post(&self, told: bool, mut call: impl FnMut() -> isize) -> Result<(), String> {
        loop {
            match call() {
                0 => {
                    self.begun.set(self.begun.get() + u64::from(told));
                    return Ok(());
                }
                status if status == -FI_EAGAIN => self.look()?,
                status => return Err(self.library.text(status as c_int)),
            }
        }
    }

    /// Polls until the condition holds.
    #[inline(always)]
    pub fn until(&self, is_so: impl Fn() -> bool) -> Result<(), String> {
        while !is_so() {
            self.look()?;
            if self.crowded {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Waits for the completion of all operations of this process.
    pub fn drain(&self) -> Result<(), String> {
        self.until(|| self.counts.ended.get() == self.begun.get())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let mut objects: Vec<*mut fid> = vec![self.ep.cast()];
        objects.extend(
            self.registered
                .take()
                .into_iter()
                .map(|mr| mr.cast::<fid>()),
        );
        objects.extend([self.cq.cast(), self.av.cast(), self.domain.cast()]);
        objects.push(self.fabric.cast());
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY:
            // - the object is open, and objects that depend on it are closed before
            // - an error is ignored: the object then stays until the process ends
            unsafe { call!((*object).ops, close, object) };
        }
        // SAFETY:
        // - it comes from fi_dupinfo, and is freed once
        unsafe { (self.library.freeinfo)(self.info) };
    }
}

/// The first offer of the provider that fits. Offers with atomic operations and tagged messages come first.
fn offer(
    library: &LibfabricLibrary,
    getinfo: GetInfo,
    provider: &str,
    fits: impl Fn(&fi_info) -> bool,
) -> Result<*mut fi_info, String> {
    let more = [FI_ATOMIC | FI_TAGGED, FI_TAGGED, FI_ATOMIC, 0];
    let found = more
        .into_iter()
        .find_map(|caps| with_caps(library, getinfo, provider, &fits, FI_MSG | FI_RMA | caps));
    found.ok_or_else(|| format!("{provider} offers nothing to a program without other threads"))
}

fn with_caps(
    library: &LibfabricLibrary,
    getinfo: GetInfo,
    provider: &str,
    fits: &dyn Fn(&fi_info) -> bool,
    caps: u64,
) -> Option<*mut fi_info> {
    let name = CString::new(provider).ok()?;
    // SAFETY:
    // - null requests an empty info with all attributes
    // - libfabric's own libc allocates the provider's name; it is freed with the info
    // - the list ends with null, and is freed once; its copy is independent
    unsafe {
        let hints = (library.dupinfo)(null());
        if hints.is_null() {
            return None;
        }
        let wanted = &mut *hints;
        wanted.caps = caps;
        wanted.mode = FI_CONTEXT | FI_CONTEXT2;
        (*wanted.ep_attr).r#type = FI_EP_RDM;
        let domain = &mut *wanted.domain_attr;
        domain.mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        (*wanted.fabric_attr).prov_name = (library.strdup)(name.as_ptr());
        let mut first = null_mut();
        let status = getinfo(library.api(), null(), null(), 0, hints, &raw mut first);
        (library.freeinfo)(hints);
        if status != 0 {
            return None;
        }
        let mut at = first;
        while !at.is_null() && !fits(&*at) {
            at = (*at).next;
        }
        let own = match at.is_null() {
            true => null_mut(),
            false => (library.dupinfo)(at),
        };
        (library.freeinfo)(first);
        (!own.is_null()).then_some(own)
    }
}

/// The copy of libfabric that the library under test finds: it allocates the offers of the library's provider, so only this copy may free them.
fn shared_libfabric() -> Result<&'static LibfabricLibrary, String> {
    static SHARED: OnceLock<Result<LibfabricLibrary, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let library = DynamicLibrary::load(c"libfabric.so.1", SymbolVisibility::Private)?;
        LibfabricLibrary::find(&library)
    });
    shared.as_ref().map_err(String::clone)
}

/// The provider of the library under test. It exists as long as the process.
fn own_provider(library: &Installed) -> Result<&'static fi_provider, String> {
    type FiProvIni = unsafe extern "C" fn() -> *mut fi_provider;
    // SAFETY:
    // - fi_provider(3): the function has no arguments. It returns null, or the provider's table, which stays and is only read.
    let provider = unsafe {
        let initialise = library.function::<FiProvIni>(c"fi_prov_ini");
        initialise.and_then(|initialise| initialise().as_ref())
    };
    provider.ok_or("the library has no provider of libfabric".into())
}

/// Whether two offers have the same domain, provider and source address.
fn same_place(one: &fi_info, other: &fi_info) -> bool {
    let place = |info: &fi_info| {
        // SAFETY:
        // - fi_getinfo fills all attributes
        // - the address has `src_addrlen` bytes
        unsafe {
            let domain = name((*info.domain_attr).name);
            let provider = name((*info.fabric_attr).prov_name);
            let address = match info.src_addr.is_null() {
                true => Vec::new(),
                false => std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen)
                    .to_vec(),
            };
            (domain, provider, address)
        }
    };
    place(one) == place(other)
}
