//! Which provider, and which of its interfaces.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unipgas_core::{Error, Result, host, variables};
use unipgas_libfabric_sys::*;

use crate::library::Library;
use crate::wire::LEAST;

/// What users may wish for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// As in fi_getinfo(3): `tcp`, `tcp;ofi_rxm`, `verbs`, ...
    pub provider: Option<String>,
    /// The name of a domain (`eth0`, `mlx5_0`), or an address of this host.
    pub interface: Option<String>,
}

impl Wish {
    /// From UNIPGAS_OFI_PROVIDER and UNIPGAS_OFI_INTERFACE. Errors: [`Error::InvalidArgument`].
    pub fn from_env() -> Result<Self> {
        Ok(Wish {
            provider: variables::get("UNIPGAS_OFI_PROVIDER")?,
            interface: variables::get("UNIPGAS_OFI_INTERFACE")?,
        })
    }
}

/// What a provider offers, as fi_getinfo(3) gives it; the caller's.
pub struct Info {
    library: &'static Library,
    own: *mut fi_info,
    /// Other interfaces at which the same provider could be used.
    pub others: Vec<String>,
}

// SAFETY:
// - nobody else has it, and nothing changes in it.
unsafe impl Send for Info {}
// SAFETY:
// - as for Send.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY:
        // - given by fi_dupinfo, and freed once.
        unsafe { (self.library.freeinfo)(self.own) };
    }
}

macro_rules! attributes {
    ($($name:ident: $ty:ty;)*) => {$(
        /// That part of it.
        pub fn $name(&self) -> &$ty {
            // SAFETY:
            // - fi_getinfo fills all attributes of what it gives; they live as long as that.
            unsafe { &*self.raw().$name }
        }
    )*};
}

impl Info {
    /// What fi_fabric(3) and those that follow take.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.own
    }

    /// The whole.
    pub fn raw(&self) -> &fi_info {
        // SAFETY:
        // - given by fi_dupinfo, and not freed.
        unsafe { &*self.own }
    }

    /// Asks for no longer queues than that.
    pub fn be_modest(&mut self, most: usize) {
        // SAFETY:
        // - the info is this one's, with all attributes, and nobody borrows them.
        unsafe {
            let (tx, rx) = (&mut *(*self.own).tx_attr, &mut *(*self.own).rx_attr);
            tx.size = tx.size.min(most);
            rx.size = rx.size.min(most);
        }
    }

    /// What is posted without flags tells its end.
    pub fn tell_all_ends(&mut self) {
        // SAFETY:
        // - as in `be_modest`.
        unsafe {
            (*(*self.own).tx_attr).op_flags |= FI_COMPLETION;
            (*(*self.own).rx_attr).op_flags |= FI_COMPLETION;
        }
    }

    attributes! {
        tx_attr: fi_tx_attr;
        rx_attr: fi_rx_attr;
        ep_attr: fi_ep_attr;
        domain_attr: fi_domain_attr;
        fabric_attr: fi_fabric_attr;
    }

    /// The provider's name.
    pub fn provider(&self) -> String {
        // SAFETY:
        // - given by fi_getinfo.
        unsafe { name(self.fabric_attr().prov_name) }
    }

    /// Of the domain: the interface, where the provider has several.
    pub fn interface(&self) -> String {
        // SAFETY:
        // - given by fi_getinfo.
        unsafe { name(self.domain_attr().name) }
    }

    /// The interface, with its address where it has one of IP.
    pub fn place(&self) -> String {
        match self.address() {
            Some(address) => format!("{} ({address})", self.interface()),
            None => self.interface(),
        }
    }

    /// The address of this host, where it is one of IP.
    pub fn address(&self) -> Option<IpAddr> {
        let info = self.raw();
        let (at, len) = (info.src_addr.cast::<u8>(), info.src_addrlen);
        if at.is_null() || len == 0 {
            return None;
        }
        // SAFETY:
        // - the provider's word: so many bytes, as long as the info lives.
        ip(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

/// A name in what fi_getinfo(3) gives; empty where there is none.
///
/// # Safety
/// It is null, or a C string.
pub unsafe fn name(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY:
    // - the caller's word.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// The address in a `sockaddr`, where it is one of IP.
pub fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The address and the port in a `sockaddr`, where it is one of IP.
pub fn socket(bytes: &[u8]) -> Option<SocketAddr> {
    let port = bytes.get(2..4)?.try_into().ok()?;
    Some(SocketAddr::new(ip(bytes)?, u16::from_be_bytes(port)))
}

/// Why what is at another interface than the one that is wished for is of no use.
const ELSEWHERE: &str = "UNIPGAS_OFI_INTERFACE is another one";

/// Why an offer is of no use; `None`: it is.
fn refusal(info: &Info, wish: &Wish, other_hosts: bool) -> Option<String> {
    let name = info.provider();
    let has = |part: &str| name.split(';').any(|own| own == part);
    if has("unipgas") {
        return Some("it is this library".into());
    }
    if has("ofi_rxd") {
        return Some("not all of its reads end, and it wakes nobody who sleeps".into());
    }
    if name == "shm" {
        let why = "it reaches this host only, as the backend shm does, and has nothing to sleep on";
        return Some(why.into());
    }
    if let Some(interface) = &wish.interface {
        let address = info.address().map(|address| address.to_string());
        if info.interface() != *interface && address.as_ref() != Some(interface) {
            return Some(ELSEWHERE.into());
        }
    } else if other_hosts {
        let reach = info.address().is_none_or(|address| match address {
            IpAddr::V4(address) => !address.is_loopback(),
            // Those of one link need its name, too, which a peer does not know.
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        });
        if !reach {
            return Some("it does not reach other hosts".into());
        }
    }
    let order = info.tx_attr().msg_order & info.rx_attr().msg_order;
    if order & FI_ORDER_SAS == 0 {
        return Some("messages overtake each other".into());
    }
    let longest = info.ep_attr().max_msg_size;
    if longest < LEAST {
        return Some(format!("it sends {longest} bytes at most"));
    }
    if info.domain_attr().mr_key_size > size_of::<u64>() {
        return Some("its keys have more than 8 bytes".into());
    }
    None
}

/// What a provider may demand.
const MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
const MEMORY: i32 =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Why an offer is of no use that is made only to those who keep more.
fn beyond(info: &Info) -> String {
    let domain = info.domain_attr();
    match () {
        () if domain.mr_mode & FI_MR_RAW != 0 => "its keys are no numbers (FI_MR_RAW)".into(),
        () if domain.resource_mgmt != FI_RM_ENABLED => {
            "what it has no room for is lost (FI_RM_DISABLED)".into()
        }
        () if domain.threading != FI_THREAD_SAFE => "it is for one thread at a time".into(),
        () => format!(
            "it demands what is not kept here: mode {:#x}, mr_mode {:#x}",
            info.raw().mode & !MODES,
            domain.mr_mode & !MEMORY
        ),
    }
}

/// What fi_getinfo(3) gives, to be freed; `all`: also to those who keep more than this backend. Errors: its own.
fn ask(library: &Library, wish: &Wish, all: bool) -> Result<*mut fi_info, c_int> {
    let mut first = std::ptr::null_mut();
    // SAFETY:
    // - null asks for an empty info, whose attributes are all there; the provider's name is malloc's, and freed with it.
    let status = unsafe {
        let hints = (library.dupinfo)(std::ptr::null());
        if hints.is_null() {
            return Err(-libc::ENOMEM);
        }
        let wanted = &mut *hints;
        wanted.caps = FI_MSG | FI_RMA;
        wanted.mode = if all { u64::MAX } else { MODES };
        (*wanted.ep_attr).r#type = FI_EP_RDM;
        let domain = &mut *wanted.domain_attr;
        // All but the two of old, which stand for others.
        let any = !(FI_MR_BASIC | FI_MR_SCALABLE);
        domain.mr_mode = if all { any } else { MEMORY };
        if !all {
            domain.threading = FI_THREAD_SAFE;
            domain.resource_mgmt = FI_RM_ENABLED;
        }
        if let Some(provider) = &wish.provider {
            let provider = CString::new(provider.as_str()).unwrap_or_default();
            (*wanted.fabric_attr).prov_name = libc::strdup(provider.as_ptr());
        }
        let none = std::ptr::null();
        let find = || (library.getinfo)(library.api(), none, none, 0, hints, &raw mut first);
        let status = library.with_defaults(find);
        (library.freeinfo)(hints);
        status
    };
    match status {
        0 => Ok(first),
        _ => Err(status),
    }
}

/// What there is, in the order in which providers are preferred. `None` for the reason: it can be used. Errors: why fi_getinfo(3) gives
/// nothing.
pub fn offers(wish: &Wish, other_hosts: bool) -> Result<Vec<(Info, Option<String>)>, String> {
    let library = Library::get()?;
    let kept = ask(library, wish, false);
    let beyond_us = kept.is_err();
    let asked = kept.or_else(|status| ask(library, wish, true).map_err(|_| status));
    let first = asked.map_err(|status| {
        let (major, minor) = library.release();
        let why = library.text(status);
        let wished = match &wish.provider {
            Some(provider) => format!(" for UNIPGAS_OFI_PROVIDER={provider}"),
            None => String::new(),
        };
        format!("libfabric {major}.{minor} offers nothing{wished}: {why}")
    })?;
    let mut offers = Vec::new();
    let mut at = first;
    // SAFETY:
    // - a list that ends with null, of which each copy stands alone; freed once.
    unsafe {
        while !at.is_null() {
            let own = (library.dupinfo)(at);
            at = (*at).next;
            if own.is_null() {
                continue;
            }
            let info = Info {
                library,
                own,
                others: Vec::new(),
            };
            let refusal = match beyond_us {
                true => Some(beyond(&info)),
                false => refusal(&info, wish, other_hosts),
            };
            offers.push((info, refusal));
        }
        (library.freeinfo)(first);
    }
    Ok(offers)
}

/// The first offer of the provider at an address of this host's name, if it has several addresses.
fn known(fits: &[Info], provider: &str) -> Option<usize> {
    let addresses = |info: &Info| info.address().filter(|_| info.provider() == provider);
    let mut all: Vec<IpAddr> = fits.iter().filter_map(addresses).collect();
    all.sort();
    all.dedup();
    if all.len() < 2 {
        return None;
    }
    let named = host::named_addresses();
    let is_known = |info| addresses(info).is_some_and(|address| named.contains(&address));
    fits.iter().position(is_known)
}

/// The best offer: the first provider that fits; of its interfaces the host's own loop, where all processes are on one host and nobody wishes for
/// another one, since others come and go; between hosts that at which this host's name is known. Errors: [`Error::Unreachable`];
/// [`Error::InvalidArgument`] where that is because of a wish.
pub fn choose(wish: &Wish, other_hosts: bool) -> Result<Info> {
    Library::get().map_err(Error::Unreachable)?;
    let error = match *wish == Wish::default() {
        true => Error::Unreachable,
        false => Error::InvalidArgument,
    };
    let mut fits: Vec<Info> = Vec::new();
    let (mut reasons, mut elsewhere) = (Vec::new(), Vec::new());
    for (info, refusal) in offers(wish, other_hosts).map_err(error)? {
        match refusal {
            None => fits.push(info),
            Some(reason) if reason == ELSEWHERE => {
                let place = info.place();
                if !elsewhere.contains(&place) {
                    elsewhere.push(place);
                }
            }
            Some(reason) => {
                let reason = format!("{} at {}: {reason}", info.provider(), info.interface());
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
    }
    if let Some(interface) = &wish.interface
        && fits.is_empty()
        && !elsewhere.is_empty()
    {
        return Err(error(format!(
            "UNIPGAS_OFI_INTERFACE={interface}: libfabric has no such interface here, but {}",
            elsewhere.join(", ")
        )));
    }
    let Some(first) = fits.first() else {
        return Err(error(format!(
            "none of libfabric's providers can be used ({})",
            reasons.join("; ")
        )));
    };
    let provider = first.provider();
    let is_loop = |info: &Info| {
        info.provider() == provider && info.address().is_some_and(|address| address.is_loopback())
    };
    let best = match (&wish.interface, other_hosts) {
        (Some(_), _) => None,
        (None, false) => fits.iter().position(is_loop),
        (None, true) => known(&fits, &provider),
    };
    let mut chosen = fits.swap_remove(best.unwrap_or(0));
    let place = chosen.place();
    let same = fits.iter().filter(|info| info.provider() == provider);
    let others = same.map(Info::place).filter(|other| *other != place);
    chosen.others = others.collect();
    chosen.others.sort();
    chosen.others.dedup();
    Ok(chosen)
}
