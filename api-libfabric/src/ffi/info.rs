//! fi_getinfo(3): compares a program's hints with the provider's limits, and makes the offer.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;

use unipgas_core::registry;

use super::naming::{Format, resolve};
use super::told::{self, Kind, Shown};
use super::{code, library, put};
use crate::domain::{CQ_DATA_SIZE, MOST, MOST_ENDPOINTS, MOST_REGIONS};
use crate::endpoint::{DEPTH, INJECT_SIZE, IOV_LIMIT, RECEIVES};
use crate::memory::KEY_SIZE;
use crate::messages::RECEIVE_OP_FLAGS;
use crate::name::{Called, LONGEST as LONGEST_NAME};
use crate::process;
use crate::rma::{LONGEST, TRANSMIT_FLAGS};
use crate::status::{Errno, Result};
use crate::sys::*;

/// Name of the provider, of its fabric and of its domain.
pub const NAME: &str = "unipgas";
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x756e69;

const PRIMARY: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;
const MODIFIERS: u64 = FI_READ | FI_WRITE | FI_RECV | FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Capabilities that cost time or memory. Programs that name capabilities get these only on request.
const ON_REQUEST: u64 =
    FI_RMA_EVENT | FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_TRIGGER;
const ALWAYS: u64 = FI_LOCAL_COMM | FI_FENCE;
const CAPS: u64 = PRIMARY | FI_COLLECTIVE | MODIFIERS | ON_REQUEST | ALWAYS;
const TRANSMIT_CAPS: u64 =
    PRIMARY | FI_COLLECTIVE | FI_READ | FI_WRITE | FI_SEND | FI_FENCE | FI_TRIGGER;
const RECEIVE_CAPS: u64 =
    PRIMARY | FI_COLLECTIVE | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | ON_REQUEST;
const ORDERS: u64 = FI_ORDER_STRICT | FI_ORDER_RMA | FI_ORDER_ATOMIC;
/// Orders of accesses to the same memory, one for each of the three sizes in fi_ep_attr.
const DATA_ORDERS: [u64; 3] = [
    FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_RAW,
    FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_ATOMIC_WAR,
    FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW,
];
/// Modes of memory registration that the provider accepts.
const MR_MODES: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

/// The `getinfo` function of the provider's table.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    code(|| {
        // SAFETY:
        // - libfabric's contract: null, or a structure with its attributes. The code reads only the members of 1.17.
        let wishes = unsafe { hints.as_ref().map(|hints| Wishes::of(hints)) };
        let wishes = wishes.filter(|_| flags & FI_PROV_ATTR_ONLY == 0);
        let offer = Offer::to(version, wishes.as_ref()).ok_or(Errno::NODATA)?;
        // SAFETY:
        // - libfabric's contract: C strings or null.
        let meant = unsafe { resolve(node, service, flags) }?;
        let mut ends = wishes.as_ref().map_or(Ok(Ends::default()), Wishes::ends)?;
        if flags & FI_SOURCE != 0 {
            ends.source = meant.or(ends.source);
        } else if meant.is_some() {
            ends.destination = meant;
        } else if node.is_null() && !service.is_null() {
            return Err(Errno::NODATA);
        }
        if registry::backends().is_empty() {
            return Err(Errno::NODATA);
        }
        // SAFETY:
        // - libfabric's contract: `info` is valid for a write.
        unsafe { put(info, offer.info(&ends)?) }
    })
}

/// The hints and their attributes.
struct Wishes<'a> {
    info: &'a fi_info,
    transmit: Option<&'a fi_tx_attr>,
    receive: Option<&'a fi_rx_attr>,
    endpoint: Option<&'a fi_ep_attr>,
    domain: Option<&'a fi_domain_attr>,
    fabric: Option<&'a fi_fabric_attr>,
}

impl<'a> Wishes<'a> {
    /// # Safety
    /// The pointers of `info` are null or valid.
    unsafe fn of(info: &'a fi_info) -> Wishes<'a> {
        // SAFETY:
        // - contract of this call: the pointers are null or valid.
        unsafe {
            Wishes {
                info,
                transmit: info.tx_attr.as_ref(),
                receive: info.rx_attr.as_ref(),
                endpoint: info.ep_attr.as_ref(),
                domain: info.domain_attr.as_ref(),
                fabric: info.fabric_attr.as_ref(),
            }
        }
    }
}

/// The endpoints that a program names: its own and a peer.
#[derive(Default)]
struct Ends {
    source: Option<Called>,
    destination: Option<Called>,
}

impl Wishes<'_> {
    /// The endpoints in the hints. Errors: [`Errno::NODATA`] for a name in another format.
    fn ends(&self) -> Result<Ends> {
        let format = Format::of(self.info.addr_format).ok_or(Errno::NODATA)?;
        let ends = [
            (self.info.src_addr, self.info.src_addrlen),
            (self.info.dest_addr, self.info.dest_addrlen),
        ];
        let [source, destination] = ends.map(|(place, len)| {
            // SAFETY:
            // - libfabric's contract: null, or `len` bytes.
            unsafe { format.read_sized(place, len) }.transpose()
        });
        Ok(Ends {
            source: source.map_err(|_| Errno::NODATA)?,
            destination: destination.map_err(|_| Errno::NODATA)?,
        })
    }
}

/// The attributes of the info that a program gets.
struct Offer {
    caps: u64,
    /// Capabilities of the domain.
    reach: u64,
    format: Format,
    order: [u64; 2],
    op_flags: [u64; 2],
    sizes: [usize; 2],
    mr_mode: c_int,
    threading: c_int,
    control_progress: c_int,
    data_progress: c_int,
    resource_mgmt: c_int,
    av_type: c_int,
    tag_format: u64,
    /// Transmit and receive contexts of an endpoint.
    contexts: [usize; 2],
}

/// Peers are on this host. MPI libraries require FI_REMOTE_COMM on one host, too. It is offered only if FI_PROVIDER or the hints name
/// the provider. Requests to processes of other hosts fail.
fn reach(wishes: Option<&Wishes<'_>>) -> u64 {
    let chosen = std::env::var("FI_PROVIDER").unwrap_or_default();
    let hinted = wishes
        .and_then(|wishes| wishes.fabric)
        .is_some_and(|fabric| {
            !fabric.prov_name.is_null()
                && named("fabric_attr->prov_name", fabric.prov_name).is_some()
        });
    if hinted || chosen.split(',').any(|name| name.trim() == NAME) {
        FI_LOCAL_COMM | FI_REMOTE_COMM
    } else {
        FI_LOCAL_COMM
    }
}

/// The order that holds without a request. If operations end within their calls, RMA and atomics overtake only a message that waits for room.
fn held_order() -> u64 {
    if process::is_immediate() {
        ORDERS & !(FI_ORDER_RAS | FI_ORDER_WAS)
    } else {
        FI_ORDER_SAS
    }
}

/// Refuses bits that the provider does not know.
fn allowed(hint: &str, kind: Kind, wanted: u64, known: u64) -> Option<()> {
    if wanted & !known == 0 {
        return Some(());
    }
    told::unmet(hint, Shown(kind, known), Shown(kind, wanted))
}

fn within<T: PartialOrd + Display>(hint: &str, wanted: T, most: T) -> Option<()> {
    if wanted <= most {
        return Some(());
    }
    told::unmet(hint, most, wanted)
}

/// Applies a check to members of a structure of hints.
macro_rules! members {
    ($check:ident, $structure:literal, $wanted:ident, $($member:ident <= $most:expr),+) => {
        $($check(concat!($structure, "->", stringify!($member)), $wanted.$member, $most)?;)+
    };
}

/// Refuses values of an enumeration below 0 or above `most`.
fn among(hint: &str, wanted: c_int, most: c_int) -> Option<()> {
    within(hint, wanted.cast_unsigned(), most.cast_unsigned())
}

/// Refuses names of other providers.
fn named(hint: &str, wanted: *const c_char) -> Option<()> {
    if wanted.is_null() {
        return Some(());
    }
    // SAFETY:
    // - libfabric's contract: not null, so a C string.
    let wanted = unsafe { CStr::from_ptr(wanted) };
    if wanted.to_bytes() == NAME.as_bytes() {
        return Some(());
    }
    told::unmet(hint, NAME, wanted.to_string_lossy())
}

fn or<T: Default + PartialEq>(wanted: T, usual: T) -> T {
    if wanted == T::default() {
        usual
    } else {
        wanted
    }
}

/// Adds the capabilities that `caps` implies. Without a direction, it implies all directions (fi_getinfo(3)).
fn completed(caps: u64) -> u64 {
    let caps = if caps & (PRIMARY | FI_COLLECTIVE) == 0 {
        caps | PRIMARY
    } else {
        caps
    };
    let mut full = caps | ALWAYS;
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        full |= FI_SEND | FI_RECV;
    }
    let rma = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & rma == 0 {
        full |= rma;
    }
    full
}

impl Offer {
    /// `None`: the provider cannot meet the hints.
    fn to(version: u32, wishes: Option<&Wishes<'_>>) -> Option<Offer> {
        let reach = reach(wishes);
        let mut offer = Offer::without_hints(version, reach);
        let Some(wishes) = wishes else {
            return Some(offer);
        };
        offer.meet_caps(wishes, reach)?;
        let asked = wishes.info.addr_format;
        offer.format = match Format::of(asked) {
            Some(format) => format,
            None => told::unmet("addr_format", "FI_ADDR_STR, FI_FORMAT_UNSPEC", asked)?,
        };
        if let Some(wanted) = wishes.fabric {
            named("fabric_attr->name", wanted.name)?;
        }
        if let Some(wanted) = wishes.endpoint {
            offer.meet_endpoint(wanted)?;
        }
        if let Some(wanted) = wishes.transmit {
            offer.meet_transmit(wanted)?;
        }
        if let Some(wanted) = wishes.receive {
            offer.meet_receive(wanted)?;
        }
        if let Some(wanted) = wishes.endpoint {
            offer.add_data_orders(wanted);
        }
        if let Some(wanted) = wishes.domain {
            offer.meet_domain(version, wanted, reach)?;
        }
        // RMA and atomics progress without calls of the target. Messages and collectives need calls, or a thread that the hints request.
        if offer.caps & (FI_MSG | FI_TAGGED | FI_COLLECTIVE) == 0 {
            offer.data_progress = FI_PROGRESS_AUTO;
        }
        Some(offer)
    }

    fn without_hints(version: u32, reach: u64) -> Offer {
        Offer {
            // FI_SOURCE_ERR adds errors that a program must handle, so a program must request it.
            caps: (CAPS | reach) & !FI_SOURCE_ERR,
            reach,
            format: Format::Bytes,
            order: [held_order(); 2],
            op_flags: [0; 2],
            sizes: [1024; 2],
            mr_mode: if version < crate::sys::version(1, 5) {
                FI_MR_SCALABLE
            } else {
                0
            },
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_AUTO,
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_UNSPEC,
            tag_format: u64::MAX,
            contexts: [1; 2],
        }
    }

    fn meet_caps(&mut self, wishes: &Wishes<'_>, reach: u64) -> Option<()> {
        allowed("caps", Kind::Caps, wishes.info.caps, CAPS | reach)?;
        if wishes.info.caps != 0 {
            // Some programs request these only in rx_attr.
            let of_receives = (wishes.receive).map_or(0, |wanted| {
                wanted.caps & ON_REQUEST | wanted.op_flags & FI_MULTI_RECV
            });
            self.caps = completed(wishes.info.caps) | of_receives;
            self.reach = self.caps & reach;
            if self.caps & (FI_SOURCE | FI_SOURCE_ERR) == FI_SOURCE_ERR {
                allowed("caps", Kind::Caps, FI_SOURCE_ERR, FI_SOURCE)?;
            }
        }
        Some(())
    }

    fn meet_endpoint(&mut self, wanted: &fi_ep_attr) -> Option<()> {
        if wanted.r#type != FI_EP_UNSPEC && wanted.r#type != FI_EP_RDM {
            let [supported, requested] = [FI_EP_RDM, wanted.r#type]
                .map(|kind| Shown(Kind::EpType, u64::from(kind.cast_unsigned())));
            told::unmet("ep_attr->type", supported, requested)?;
        }
        if wanted.protocol != FI_PROTO_UNSPEC && wanted.protocol != PROTOCOL {
            told::unmet("ep_attr->protocol", PROTOCOL, wanted.protocol)?;
        }
        within("ep_attr->protocol_version", wanted.protocol_version, 1)?;
        within("ep_attr->max_msg_size", wanted.max_msg_size, LONGEST)?;
        let contexts = [
            ("ep_attr->tx_ctx_cnt", wanted.tx_ctx_cnt),
            ("ep_attr->rx_ctx_cnt", wanted.rx_ctx_cnt),
        ];
        for (offered, (hint, wanted)) in self.contexts.iter_mut().zip(contexts) {
            if wanted == FI_SHARED_CONTEXT {
                *offered = FI_SHARED_CONTEXT;
            } else {
                within(hint, wanted, 1)?;
            }
        }
        within("ep_attr->auth_key_size", wanted.auth_key_size, 0)?;
        self.tag_format = or(wanted.mem_tag_format, u64::MAX);
        Some(())
    }

    fn meet_transmit(&mut self, wanted: &fi_tx_attr) -> Option<()> {
        let (caps, op_flags) = (
            TRANSMIT_CAPS & self.caps,
            TRANSMIT_FLAGS & !FI_REMOTE_CQ_DATA,
        );
        allowed("tx_attr->caps", Kind::Caps, wanted.caps, caps)?;
        allowed(
            "tx_attr->op_flags",
            Kind::OpFlags,
            wanted.op_flags,
            op_flags,
        )?;
        allowed(
            "tx_attr->msg_order",
            Kind::MsgOrder,
            wanted.msg_order,
            ORDERS,
        )?;
        members!(
            within,
            "tx_attr",
            wanted,
            comp_order <= 0,
            inject_size <= INJECT_SIZE,
            size <= DEPTH,
            iov_limit <= IOV_LIMIT,
            rma_iov_limit <= IOV_LIMIT
        );
        self.op_flags[0] = wanted.op_flags;
        self.order[0] = or(wanted.msg_order, self.order[0]);
        self.sizes[0] = or(wanted.size, 1024);
        Some(())
    }

    fn meet_receive(&mut self, wanted: &fi_rx_attr) -> Option<()> {
        let (caps, op_flags) = (RECEIVE_CAPS & self.caps, RECEIVE_OP_FLAGS);
        allowed("rx_attr->caps", Kind::Caps, wanted.caps, caps)?;
        allowed(
            "rx_attr->op_flags",
            Kind::OpFlags,
            wanted.op_flags,
            op_flags,
        )?;
        allowed(
            "rx_attr->msg_order",
            Kind::MsgOrder,
            wanted.msg_order,
            ORDERS,
        )?;
        members!(
            within,
            "rx_attr",
            wanted,
            comp_order <= 0,
            size <= RECEIVES,
            total_buffered_recv <= 0,
            iov_limit <= IOV_LIMIT
        );
        self.op_flags[1] = wanted.op_flags;
        self.order[1] = or(wanted.msg_order, self.order[1]);
        self.sizes[1] = or(wanted.size, 1024);
        Some(())
    }

    /// Adds the orders of data for which the program gives a size.
    fn add_data_orders(&mut self, wanted: &fi_ep_attr) {
        let sizes = [
            wanted.max_order_raw_size,
            wanted.max_order_war_size,
            wanted.max_order_waw_size,
        ];
        for (_, order) in sizes
            .into_iter()
            .zip(DATA_ORDERS)
            .filter(|(size, _)| *size > 0)
        {
            self.order[0] |= order;
        }
    }

    fn meet_domain(&mut self, version: u32, wanted: &fi_domain_attr, reach: u64) -> Option<()> {
        named("domain_attr->name", wanted.name)?;
        members!(
            within,
            "domain_attr",
            wanted,
            mr_key_size <= KEY_SIZE,
            cq_data_size <= CQ_DATA_SIZE,
            cq_cnt <= MOST,
            ep_cnt <= MOST_ENDPOINTS,
            tx_ctx_cnt <= MOST_ENDPOINTS,
            rx_ctx_cnt <= MOST_ENDPOINTS,
            max_ep_tx_ctx <= 1,
            max_ep_rx_ctx <= 1,
            max_ep_stx_ctx <= MOST_ENDPOINTS,
            max_ep_srx_ctx <= MOST_ENDPOINTS,
            cntr_cnt <= MOST,
            mr_iov_limit <= 1,
            mr_cnt <= MOST_REGIONS,
            auth_key_size <= 0,
            max_err_data <= LONGEST_NAME
        );
        allowed("domain_attr->caps", Kind::Caps, wanted.caps, reach)?;
        self.reach |= wanted.caps;
        members!(
            among,
            "domain_attr",
            wanted,
            threading <= FI_THREAD_ENDPOINT,
            data_progress <= FI_PROGRESS_MANUAL,
            control_progress <= FI_PROGRESS_MANUAL,
            resource_mgmt <= FI_RM_ENABLED,
            av_type <= FI_AV_TABLE
        );
        self.threading = or(wanted.threading, FI_THREAD_SAFE);
        self.control_progress = or(wanted.control_progress, FI_PROGRESS_AUTO);
        self.data_progress = or(wanted.data_progress, FI_PROGRESS_MANUAL);
        self.resource_mgmt = or(wanted.resource_mgmt, FI_RM_ENABLED);
        self.av_type = wanted.av_type;
        self.mr_mode = if version < crate::sys::version(1, 5) {
            match wanted.mr_mode {
                FI_MR_UNSPEC | FI_MR_SCALABLE => FI_MR_SCALABLE,
                FI_MR_BASIC => FI_MR_BASIC,
                other => told::unmet("domain_attr->mr_mode", "FI_MR_BASIC, FI_MR_SCALABLE", other)?,
            }
        } else if wanted.mr_mode & (FI_MR_BASIC | FI_MR_SCALABLE) != 0 {
            wanted.mr_mode & (FI_MR_BASIC | FI_MR_SCALABLE)
        } else {
            wanted.mr_mode & MR_MODES
        };
        Some(())
    }

    /// The offer as a structure of libfabric.
    fn info(&self, ends: &Ends) -> Result<*mut fi_info> {
        let info = library::allocate_info()?;
        // SAFETY:
        // - allocated above with its attributes; no other reference exists.
        let filled = unsafe { self.fill(&mut *info, ends) };
        if let Err(errno) = filled {
            // SAFETY:
            // - as above.
            unsafe { library::free_info(info) };
            return Err(errno);
        }
        Ok(info)
    }

    /// # Safety
    /// The pointers to the attributes of `info` are valid.
    unsafe fn fill(&self, info: &mut fi_info, ends: &Ends) -> Result<()> {
        info.caps = self.caps;
        info.mode = 0;
        info.addr_format = self.format.number();
        let source = ends.source.as_ref();
        let source = source.map_or_else(|| self.format.any(), |source| self.format.write(source));
        (info.src_addr, info.src_addrlen) = copied(&source)?;
        if let Some(destination) = &ends.destination {
            (info.dest_addr, info.dest_addrlen) = copied(&self.format.write(destination))?;
        }
        // SAFETY:
        // - contract of this call: the pointers are valid.
        let (transmit, receive, endpoint, domain, fabric) = unsafe {
            (
                &mut *info.tx_attr,
                &mut *info.rx_attr,
                &mut *info.ep_attr,
                &mut *info.domain_attr,
                &mut *info.fabric_attr,
            )
        };
        transmit.caps = self.caps & TRANSMIT_CAPS;
        transmit.op_flags = self.op_flags[0];
        transmit.msg_order = self.order[0];
        transmit.inject_size = INJECT_SIZE;
        transmit.size = self.sizes[0];
        transmit.iov_limit = IOV_LIMIT;
        transmit.rma_iov_limit = IOV_LIMIT;
        receive.caps = self.caps & RECEIVE_CAPS;
        receive.op_flags = self.op_flags[1];
        receive.msg_order = self.order[1];
        receive.size = self.sizes[1];
        receive.iov_limit = IOV_LIMIT;
        endpoint.r#type = FI_EP_RDM;
        endpoint.protocol = PROTOCOL;
        endpoint.protocol_version = 1;
        endpoint.max_msg_size = LONGEST;
        [
            endpoint.max_order_raw_size,
            endpoint.max_order_war_size,
            endpoint.max_order_waw_size,
        ] = DATA_ORDERS.map(|order| {
            if self.order[0] & order != 0 {
                LONGEST
            } else {
                0
            }
        });
        endpoint.mem_tag_format = self.tag_format;
        [endpoint.tx_ctx_cnt, endpoint.rx_ctx_cnt] = self.contexts;
        domain.name = library::duplicate(NAME)?;
        domain.threading = self.threading;
        domain.control_progress = self.control_progress;
        domain.data_progress = self.data_progress;
        domain.resource_mgmt = self.resource_mgmt;
        domain.av_type = self.av_type;
        domain.mr_mode = self.mr_mode;
        domain.mr_key_size = KEY_SIZE;
        domain.cq_data_size = CQ_DATA_SIZE;
        domain.cq_cnt = MOST;
        domain.ep_cnt = MOST_ENDPOINTS;
        domain.tx_ctx_cnt = MOST_ENDPOINTS;
        domain.rx_ctx_cnt = MOST_ENDPOINTS;
        domain.max_ep_tx_ctx = 1;
        domain.max_ep_rx_ctx = 1;
        domain.max_ep_stx_ctx = MOST_ENDPOINTS;
        domain.max_ep_srx_ctx = MOST_ENDPOINTS;
        domain.cntr_cnt = MOST;
        domain.mr_iov_limit = 1;
        domain.mr_cnt = MOST_REGIONS;
        domain.max_err_data = LONGEST_NAME;
        domain.caps = self.reach;
        // The library fills in the provider's name and versions.
        fabric.name = library::duplicate(NAME)?;
        Ok(())
    }
}

fn copied(bytes: &[u8]) -> Result<(*mut c_void, usize)> {
    // SAFETY:
    // - malloc returns `bytes.len()` bytes, or null.
    unsafe {
        let copy = libc::malloc(bytes.len());
        if copy.is_null() {
            return Err(Errno::NOMEM);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        Ok((copy, bytes.len()))
    }
}
