//! The provider that ours use, by itself: its objects as a program opens them that uses nothing else, and no more than one thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use unipgas_backends::ofi::choice::{Wish, choose, name};
use unipgas_backends::ofi::library::Library;
use unipgas_launcher::library::Library as Installed;
use unipgas_libfabric_sys::*;

use crate::ctx::Ctx;
use crate::ours::Buffer;

/// fi_errno(3): there is an error to be read.
const FI_EAVAIL: isize = 259;
const FI_EAGAIN: isize = libc::EAGAIN as isize;
/// The longest name of an endpoint.
const NAME: usize = 64;
/// Bytes of the memory that peers reach, and of that which is sent from.
pub const WINDOW: usize = 4 << 20;
/// Keys, where the provider has none of its own.
const KEYS: u64 = 0x6265_6e63;
/// Contexts in turn; more than operations that are under way.
const CONTEXTS: usize = 8192;

/// A call through a table of functions, all of which a provider fills: what it does not have gives -FI_ENOSYS.
macro_rules! call {
    ($table:expr, $function:ident $(, $argument:expr)*) => {
        ((*$table).$function)($($argument),*) as isize
    };
}
pub(super) use call;

/// Another process, as operations name it.
#[derive(Clone, Copy)]
pub struct Far {
    pub peer: u64,
    pub base: u64,
    pub key: u64,
}

/// What has come so far.
#[derive(Default)]
pub struct Counts {
    /// Operations of this process that have ended.
    pub ended: Cell<u64>,
    /// Messages.
    pub received: Cell<u64>,
    /// Writes that carried this number.
    pub written: [Cell<u64>; 8],
}

/// Whose provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The one that the backend `ofi` would choose.
    Theirs,
    /// The same, with a descriptor of the queue, as `ofi` needs it to serve peers while the program computes.
    TheirsToSleepAt,
    /// Ours.
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
pub struct Provider {
    library: &'static Library,
    info: *mut fi_info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    pub ep: *mut fid_ep,
    registered: RefCell<Vec<*mut fid_mr>>,
    /// What peers reach.
    pub memory: Buffer,
    /// What is sent from.
    pub source: Buffer,
    contexts: Vec<Cell<[fi_context; 2]>>,
    next: Cell<usize>,
    /// What has come.
    pub counts: Counts,
    /// Operations begun that will be told.
    pub begun: Cell<u64>,
    /// By rank.
    pub far: Vec<Far>,
    /// Whether others need the cores.
    crowded: bool,
}

impl Provider {
    /// Opens it, and tells the others.
    pub fn open(ctx: &Ctx, whose: Whose, other_hosts: bool) -> Result<Provider, String> {
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

    /// The objects, and what peers have to know of them.
    fn alone(ctx: &Ctx, whose: Whose, other_hosts: bool) -> Result<(Provider, Vec<u8>), String> {
        let library = Library::get()?;
        let (info, open) = match whose {
            Whose::Theirs | Whose::TheirsToSleepAt => {
                let wish = Wish::from_env().map_err(|e| e.to_string())?;
                let like = choose(&wish, other_hosts).map_err(|e| e.to_string())?;
                let fits = |info: &fi_info| same_place(info, like.raw());
                let info = offer(library, library.getinfo, &like.provider(), fits)?;
                (info, library.fabric)
            }
            Whose::Ours => {
                let own = own_provider(&ctx.library)?;
                let info = offer(library, own.getinfo, "unipgas", |_| true)?;
                (info, own.fabric)
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
            memory: Buffer::new(WINDOW)?,
            source: Buffer::new(WINDOW)?,
            contexts: (0..CONTEXTS).map(|_| contexts()).collect(),
            next: Cell::new(0),
            counts: Counts::default(),
            begun: Cell::new(0),
            far: Vec::new(),
            crowded: ctx.crowded,
        };
        // SAFETY:
        // - so long, and nobody else's
        unsafe { provider.memory.base.write_bytes(0, WINDOW) };
        provider.open_all(open, whose == Whose::TheirsToSleepAt)?;
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
        // - the info is complete, and freed after the objects; each object is used once it is there, which a status of 0 says
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
        // - open objects; a buffer of this length, which is freed after the registration is closed
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

    /// The descriptors of what peers reach, and of what is sent from.
    pub fn desc(&self) -> [*mut c_void; 2] {
        let registered = self.registered.borrow();
        // SAFETY:
        // - both are registered, and open
        [0, 1].map(|number| unsafe { (*registered[number]).mem_desc })
    }

    /// Name, base and key.
    fn hello(&self) -> Result<Vec<u8>, String> {
        let (mut name, mut len) = ([0u8; NAME], NAME);
        // SAFETY:
        // - open objects, room for so many bytes
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

    fn meet(&self, hello: &[u8]) -> Option<Far> {
        let (base, rest) = hello.split_first_chunk()?;
        let (key, name) = rest.split_first_chunk()?;
        let mut peer = 0;
        let at = name.as_ptr().cast();
        // SAFETY:
        // - an open object; a name of an endpoint of the same provider
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
        (inserted == 1).then_some(Far {
            peer,
            base: u64::from_le_bytes(*base),
            key: u64::from_le_bytes(*key),
        })
    }

    /// A context that no operation has that is under way.
    pub fn context(&self) -> *mut c_void {
        let next = self.next.get();
        self.next.set((next + 1) % CONTEXTS);
        self.contexts[next].as_ptr().cast()
    }

    /// Looks once for what has come.
    #[inline(always)]
    pub fn look(&self) -> Result<(), String> {
        let mut entry = std::mem::MaybeUninit::<fi_cq_data_entry>::uninit();
        // SAFETY:
        // - an open queue of this format, and room for one entry
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
        // Some say at both ends that there was data.
        let by_peer = entry.flags & FI_RMA != 0 && entry.flags & FI_WRITE == 0;
        let with_data = entry.flags & FI_REMOTE_CQ_DATA != 0;
        let count = match entry.flags {
            flags if with_data && (by_peer || flags & FI_REMOTE_WRITE != 0) => {
                let number = entry.data as usize;
                counts
                    .written
                    .get(number)
                    .ok_or(format!("data {number} came, which nobody has sent"))?
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
        // - an entry of zeros is one; an open queue
        let entry = unsafe {
            let mut entry: fi_cq_err_entry = std::mem::zeroed();
            call!((*self.cq).ops, readerr, self.cq, &raw mut entry, 0);
            entry
        };
        format!("an operation has failed: {}", self.library.text(entry.err))
    }

    /// Posts until the provider takes it; one that will be told where `told`.
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

    /// Looks until it is so.
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

    /// Waits for the ends of all operations of this process.
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
            // - open; what depends on one is closed before. What cannot be closed goes with the process.
            unsafe { call!((*object).ops, close, object) };
        }
        // SAFETY:
        // - fi_dupinfo's, and freed once
        unsafe { (self.library.freeinfo)(self.info) };
    }
}

/// What the provider offers that fits: with atomic operations and tagged messages, if it has them.
fn offer(
    library: &Library,
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
    library: &Library,
    getinfo: GetInfo,
    provider: &str,
    fits: &dyn Fn(&fi_info) -> bool,
    caps: u64,
) -> Option<*mut fi_info> {
    let name = CString::new(provider).ok()?;
    // SAFETY:
    // - null asks for an empty info, whose attributes are all there; the provider's name is malloc's, and freed with it
    // - a list that ends with null, of which a copy stands alone; freed once
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
        (*wanted.fabric_attr).prov_name = libc::strdup(name.as_ptr());
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

/// The provider of the library whose interfaces are measured. It stays as long as the process.
fn own_provider(library: &Installed) -> Result<&'static fi_provider, String> {
    type FiProvIni = unsafe extern "C" fn() -> *mut fi_provider;
    // SAFETY:
    // - fi_provider(3): the function takes nothing; it gives null, or the provider's table, which stays and is only read
    let provider = unsafe {
        let initialise = library.function::<FiProvIni>(c"fi_prov_ini");
        initialise.and_then(|initialise| initialise().as_ref())
    };
    provider.ok_or("the library has no provider of libfabric".into())
}

/// Whether two offers are of one interface.
fn same_place(one: &fi_info, other: &fi_info) -> bool {
    let place = |info: &fi_info| {
        // SAFETY:
        // - fi_getinfo fills all attributes, and the address has so many bytes
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
