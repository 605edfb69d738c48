//! Selection of the provider and of its interface.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unipgas_core::{Error, Result, host, variables};
use unipgas_libfabric_sys::*;

use crate::library::LibfabricLibrary;
use crate::wire::LEAST;

/// Choices of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderSelector {
    /// As in fi_getinfo(3): `tcp`, `tcp;ofi_rxm`, `verbs`, ...
    pub provider: Option<String>,
    /// The name of a domain (`eth0`, `mlx5_0`), or an address of this host.
    pub interface: Option<String>,
}

impl ProviderSelector {
    /// Reads UNIPGAS_OFI_PROVIDER and UNIPGAS_OFI_INTERFACE. Errors: [`Error::InvalidArgument`].
    pub fn from_env() -> Result<Self> {
        Ok(ProviderSelector {
            provider: variables::get("UNIPGAS_OFI_PROVIDER")?,
            interface: variables::get("UNIPGAS_OFI_INTERFACE")?,
        })
    }
}

/// A copy of a result of fi_getinfo(3).
pub struct ProviderInfo {
    library: &'static LibfabricLibrary,
    own: *mut fi_info,
    /// Other interfaces on which the provider works.
    pub others: Vec<String>,
}

// SAFETY:
// - the info has no other owner, and changes through `&mut self` only.
unsafe impl Send for ProviderInfo {}
// SAFETY:
// - as for Send.
unsafe impl Sync for ProviderInfo {}

impl Drop for ProviderInfo {
    fn drop(&mut self) {
        // SAFETY:
        // - from fi_dupinfo, and freed once.
        unsafe { (self.library.freeinfo)(self.own) };
    }
}

macro_rules! attributes {
    ($($name:ident: $ty:ty;)*) => {$(
        /// The attributes of this kind.
        pub fn $name(&self) -> &$ty {
            // SAFETY:
            // - fi_getinfo fills in all attributes. They live as long as the info.
            unsafe { &*self.raw().$name }
        }
    )*};
}

impl ProviderInfo {
    /// For fi_fabric(3) and later calls.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.own
    }

    /// The info itself.
    pub fn raw(&self) -> &fi_info {
        // SAFETY:
        // - from fi_dupinfo, and not freed.
        unsafe { &*self.own }
    }

    /// Limits the sizes of the requested queues.
    pub fn be_modest(&mut self, most: usize) {
        // SAFETY:
        // - the info has all attributes. `&mut self`: there are no other references to them.
        unsafe {
            let (tx, rx) = (&mut *(*self.own).tx_attr, &mut *(*self.own).rx_attr);
            tx.size = tx.size.min(most);
            rx.size = rx.size.min(most);
        }
    }

    /// Makes operations without flags signaled: each produces a completion.
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
        // - from fi_getinfo: null or a C string.
        unsafe { name(self.fabric_attr().prov_name) }
    }

    /// The name of the domain: the interface, if the provider has several.
    pub fn interface(&self) -> String {
        // SAFETY:
        // - from fi_getinfo: null or a C string.
        unsafe { name(self.domain_attr().name) }
    }

    /// The interface, with its IP address if it has one.
    pub fn place(&self) -> String {
        match self.address() {
            Some(address) => format!("{} ({address})", self.interface()),
            None => self.interface(),
        }
    }

    /// The IP address of this host at the interface. `None`: not an IP address.
    pub fn address(&self) -> Option<IpAddr> {
        let info = self.raw();
        let (at, len) = (info.src_addr.cast::<u8>(), info.src_addrlen);
        if at.is_null() || len == 0 {
            return None;
        }
        // SAFETY:
        // - contract of fi_getinfo(3): the address has `src_addrlen` bytes, and lives as long as the info.
        ip(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

/// A name from fi_getinfo(3); empty for null.
///
/// # Safety
/// `name` is null, or a C string.
pub unsafe fn name(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY:
    // - contract of this function.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// The IP address in a `sockaddr`. `None`: not an IP address.
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

/// The IP address and the port in a `sockaddr`. `None`: not an IP address.
pub fn socket(bytes: &[u8]) -> Option<SocketAddr> {
    let port = bytes.get(2..4)?.try_into().ok()?;
    Some(SocketAddr::new(ip(bytes)?, u16::from_be_bytes(port)))
}

/// Reason to refuse an offer at another interface than the requested one.
const ELSEWHERE: &str = "UNIPGAS_OFI_INTERFACE is another one";

/// Reason to refuse an offer; `None`: it is usable.
fn refusal(info: &ProviderInfo, wish: &ProviderSelector, other_hosts: bool) -> Option<String> {
    let name = info.provider();
    let has = |part: &str| name.split(';').any(|own| own == part);
    if has("unipgas") {
        return Some("it is this library".into());
    }
    if has("ofi_rxd") {
        return Some("not all of its reads end, and it wakes no sleeping process".into());
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
            // A link-local address also needs the name of the link, which a peer does not know.
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

/// Modes that this backend supports.
const MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
const MEMORY: i32 =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Reason to refuse an offer with requirements that this backend does not meet.
fn beyond(info: &ProviderInfo) -> String {
    let domain = info.domain_attr();
    match () {
        () if domain.mr_mode & FI_MR_RAW != 0 => "its keys are no numbers (FI_MR_RAW)".into(),
        () if domain.resource_mgmt != FI_RM_ENABLED => {
            "messages without room are lost (FI_RM_DISABLED)".into()
        }
        () if domain.threading != FI_THREAD_SAFE => "it is for one thread at a time".into(),
        () => format!(
            "it demands what is not kept here: mode {:#x}, mr_mode {:#x}",
            info.raw().mode & !MODES,
            domain.mr_mode & !MEMORY
        ),
    }
}

/// Calls fi_getinfo(3). The caller frees the result. `all`: also offers with requirements that this backend does not meet. Errors: the status of the
/// call.
fn ask(
    library: &LibfabricLibrary,
    wish: &ProviderSelector,
    all: bool,
) -> Result<*mut fi_info, c_int> {
    let mut first = std::ptr::null_mut();
    // SAFETY:
    // - null makes an empty info with all attributes. The provider's name is from libfabric's own libc, and is freed with the info.
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
        // All modes except the two old ones, which stand for several others.
        let any = !(FI_MR_BASIC | FI_MR_SCALABLE);
        domain.mr_mode = if all { any } else { MEMORY };
        if !all {
            domain.threading = FI_THREAD_SAFE;
            domain.resource_mgmt = FI_RM_ENABLED;
        }
        if let Some(provider) = &wish.provider {
            let provider = CString::new(provider.as_str()).unwrap_or_default();
            (*wanted.fabric_attr).prov_name = (library.strdup)(provider.as_ptr());
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

/// The offers, best provider first, each with a reason to refuse it. `None`: it is usable. Errors: a text with the error of fi_getinfo(3).
pub fn offers(
    wish: &ProviderSelector,
    other_hosts: bool,
) -> Result<Vec<(ProviderInfo, Option<String>)>, String> {
    let library = LibfabricLibrary::get()?;
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
    // - the list ends with null, and each copy is independent. The list is freed once.
    unsafe {
        while !at.is_null() {
            let own = (library.dupinfo)(at);
            at = (*at).next;
            if own.is_null() {
                continue;
            }
            let info = ProviderInfo {
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

/// The first offer of the provider at an address of this host's name. `None`: there is none, or the provider has only one address.
fn known(fits: &[ProviderInfo], provider: &str) -> Option<usize> {
    let addresses = |info: &ProviderInfo| info.address().filter(|_| info.provider() == provider);
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

/// Selects the first usable provider, and one of its interfaces:
///
/// - The interface that the user names.
/// - On one host the loopback interface: other interfaces come and go.
/// - Between hosts the interface that this host's name resolves to.
///
/// Errors: [`Error::Unreachable`]; [`Error::InvalidArgument`] if the user has made a choice.
pub fn choose(wish: &ProviderSelector, other_hosts: bool) -> Result<ProviderInfo> {
    LibfabricLibrary::get().map_err(Error::Unreachable)?;
    let error = match *wish == ProviderSelector::default() {
        true => Error::Unreachable,
        false => Error::InvalidArgument,
    };
    let (mut fits, mut refused) = (Vec::new(), Vec::new());
    for (info, refusal) in offers(wish, other_hosts).map_err(error)? {
        match refusal {
            None => fits.push(info),
            Some(reason) => refused.push((info, reason)),
        }
    }
    let Some(first) = fits.first() else {
        return Err(error(why_none(wish, &refused)));
    };
    let provider = first.provider();
    let is_loop = |info: &ProviderInfo| {
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
    let others = same
        .map(ProviderInfo::place)
        .filter(|other| *other != place);
    chosen.others = others.collect();
    chosen.others.sort();
    chosen.others.dedup();
    Ok(chosen)
}

/// The reason that no offer fits.
fn why_none(wish: &ProviderSelector, refused: &[(ProviderInfo, String)]) -> String {
    let (mut reasons, mut elsewhere) = (Vec::new(), Vec::new());
    for (info, reason) in refused {
        let (list, text) = match reason.as_str() {
            ELSEWHERE => (&mut elsewhere, info.place()),
            _ => (
                &mut reasons,
                format!("{} at {}: {reason}", info.provider(), info.interface()),
            ),
        };
        if !list.contains(&text) {
            list.push(text);
        }
    }
    match &wish.interface {
        Some(interface) if !elsewhere.is_empty() => format!(
            "UNIPGAS_OFI_INTERFACE={interface}: libfabric has no such interface here, but {}",
            elsewhere.join(", ")
        ),
        _ => format!(
            "none of libfabric's providers can be used ({})",
            reasons.join("; ")
        ),
    }
}
