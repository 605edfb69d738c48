//! How programs see names of endpoints: as bytes, or as texts (FI_ADDR_STR); and what `node` and `service` mean.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use super::given;
use crate::name::{Called, LEN, SCHEME};
use crate::process::has_other_hosts;
use crate::service::{Server, Service};
use crate::status::{Errno, Result};
use crate::sys::*;

/// FI_FORMAT of our names.
pub const ADDRESS_FORMAT: u32 = FI_PROV_SPECIFIC | 0x756e69;
/// The longest text that is looked at, in bytes.
const LONGEST: usize = 256;

/// `addr_format` of fi_info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Bytes,
    Text,
}

impl Format {
    /// The one of this number; 0 is ours.
    pub fn of(number: u32) -> Option<Format> {
        match number {
            FI_FORMAT_UNSPEC | ADDRESS_FORMAT => Some(Format::Bytes),
            FI_ADDR_STR => Some(Format::Text),
            _ => None,
        }
    }

    pub fn number(self) -> u32 {
        match self {
            Format::Bytes => ADDRESS_FORMAT,
            Format::Text => FI_ADDR_STR,
        }
    }

    /// A name as programs get it; a text with its zero.
    pub fn write(self, called: &Called) -> Vec<u8> {
        match self {
            Format::Bytes => called.as_bytes().to_vec(),
            Format::Text => format!("{called}\0").into_bytes(),
        }
    }

    /// The name at `place`, and how many bytes of the program's it takes there.
    ///
    /// # Safety
    /// `place` is null or a name in this format: so many bytes, or a text that ends with a zero.
    pub unsafe fn read(self, place: *const c_void) -> (Result<Called>, usize) {
        if let Err(errno) = given(place) {
            return (Err(errno), 0);
        }
        match self {
            Format::Bytes => {
                // SAFETY:
                // - as many bytes by the caller's word.
                let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), LEN) };
                (Called::from_bytes(bytes), LEN)
            }
            Format::Text => {
                // SAFETY:
                // - a text that ends with a zero by the caller's word.
                let text = unsafe { CStr::from_ptr(place.cast()) };
                let called = text.to_str().map_err(|_| Errno::INVAL);
                (called.and_then(str::parse), text.count_bytes() + 1)
            }
        }
    }

    /// What stands for any name, as the source of who has not chosen one: no endpoint can be called so.
    pub fn any(self) -> Vec<u8> {
        match self {
            Format::Bytes => vec![0; LEN],
            Format::Text => format!("{SCHEME}\0").into_bytes(),
        }
    }

    /// The name of `len` bytes at `place`, as it stands in fi_info; `None` for null, and for any name.
    ///
    /// # Safety
    /// `place` is null or has `len` bytes.
    pub unsafe fn read_sized(self, place: *const c_void, len: usize) -> Option<Result<Called>> {
        if place.is_null() {
            return None;
        }
        let any = self.any();
        // SAFETY:
        // - the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), len) };
        if bytes == any {
            return None;
        }
        Some(match self {
            Format::Bytes => Called::from_bytes(bytes),
            // Programs count the zero, or do not.
            Format::Text => {
                let end = bytes.iter().position(|byte| *byte == 0);
                let text = std::str::from_utf8(&bytes[..end.unwrap_or(len)]);
                text.map_err(|_| Errno::INVAL).and_then(str::parse)
            }
        })
    }
}

/// A text of the program's; `None` for null. Errors: [`Errno::INVAL`] for what is none.
///
/// # Safety
/// Null, or a string of C.
unsafe fn text<'a>(place: *const c_char) -> Result<Option<&'a str>> {
    if place.is_null() {
        return Ok(None);
    }
    // SAFETY:
    // - the caller's word.
    let text = unsafe { CStr::from_ptr(place) }.to_str();
    let text = text.ok().filter(|text| text.len() <= LONGEST);
    text.map(Some).ok_or(Errno::INVAL)
}

/// The endpoint that is `service` on the machine `node`; `None` if no endpoint is meant by them. `node` may also be the text of a name. Errors:
/// [`Errno::NODATA`] for services that cannot be named, and on other machines for all but numbers of ports: nobody listens there for the program
/// itself (FI_SOURCE), and where all processes are on one host there are none.
///
/// # Safety
/// Null, or strings of C.
pub(super) unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    flags: u64,
) -> Result<Option<Called>> {
    // SAFETY:
    // - the caller's word.
    let (node, service) = unsafe {
        (
            text(node).map_err(|_| Errno::NODATA)?,
            text(service).map_err(|_| Errno::NODATA)?,
        )
    };
    if let Some(node) = node {
        if let (Ok(called), None) = (node.parse(), service) {
            return Ok(Some(called));
        }
        if let Some(ip) = elsewhere(node, flags & FI_NUMERICHOST != 0)? {
            let service = service.and_then(|service| Service::new(service).ok());
            let port = service.and_then(|service| service.port());
            let port = port.filter(|_| flags & FI_SOURCE == 0 && has_other_hosts() == Ok(true));
            let at = SocketAddr::new(ip, port.ok_or(Errno::NODATA)?);
            let server = Server::new(at).map_err(|_| Errno::NODATA)?;
            return Ok(Some(Called::Server(server)));
        }
    }
    // As with ports, 0 is any: whoever listens there needs no name that others agree on.
    let is_any = |service: &str| service.is_empty() || flags & FI_SOURCE != 0 && service == "0";
    let service = service.filter(|service| !is_any(service));
    let service = service.map(|service| Service::new(service).map(Called::Service));
    service.transpose().map_err(|_| Errno::NODATA)
}

/// The names that follow a first one in a symmetric insertion (fi_av(3)): numeric addresses of nodes, or a text with a number at its end.
pub(super) enum Series {
    /// Null: the only name.
    None,
    Address(IpAddr),
    /// Digits keep their number of places, so that node09 is followed by node10.
    Text {
        text: String,
        number: Option<(u64, usize)>,
    },
}

impl Series {
    /// The series that begins with a name. Errors: [`Errno::INVAL`].
    ///
    /// # Safety
    /// Null, or a string of C.
    pub unsafe fn of(first: *const c_char) -> Result<Series> {
        // SAFETY:
        // - the caller's contract.
        let Some(first) = (unsafe { text(first) })? else {
            return Ok(Series::None);
        };
        if let Ok(address) = first.parse() {
            return Ok(Series::Address(address));
        }
        let text = first.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &first[text.len()..];
        Ok(Series::Text {
            text: text.to_owned(),
            number: digits.parse().ok().map(|number| (number, digits.len())),
        })
    }

    /// Whether it has so many names.
    pub fn has(&self, count: usize) -> bool {
        count <= 1
            || count as u64 <= u64::from(u32::MAX)
                && match self {
                    Series::None => false,
                    Series::Address(IpAddr::V4(first)) => {
                        u32::from(*first).checked_add(count as u32 - 1).is_some()
                    }
                    Series::Address(IpAddr::V6(first)) => {
                        u128::from(*first).checked_add(count as u128 - 1).is_some()
                    }
                    Series::Text { number, .. } => number
                        .is_some_and(|(first, _)| first.checked_add(count as u64 - 1).is_some()),
                }
    }

    /// The name number `nth` from 0 on, which it [has](Series::has).
    pub fn nth(&self, nth: usize) -> Option<CString> {
        let text = match self {
            Series::None => return None,
            Series::Address(IpAddr::V4(first)) => {
                Ipv4Addr::from(u32::from(*first).wrapping_add(nth as u32)).to_string()
            }
            Series::Address(IpAddr::V6(first)) => {
                Ipv6Addr::from(u128::from(*first).wrapping_add(nth as u128)).to_string()
            }
            Series::Text { text, number: None } => text.clone(),
            Series::Text {
                text,
                number: Some((first, places)),
            } => {
                format!("{text}{:0places$}", first.wrapping_add(nth as u64))
            }
        };
        CString::new(text).ok()
    }
}

/// The address of another machine of that name or address; `None`: it is this one. Errors: [`Errno::NODATA`] for what is none.
fn elsewhere(node: &str, numeric: bool) -> Result<Option<IpAddr>> {
    let own = rustix::system::uname();
    if !numeric && (node == "localhost" || own.nodename().to_bytes() == node.as_bytes()) {
        return Ok(None);
    }
    let all: Vec<IpAddr> = match node.parse() {
        Ok(address) => vec![address],
        Err(_) if numeric => return Err(Errno::NODATA),
        Err(_) => {
            let found = (node, 0u16).to_socket_addrs();
            let found = found.map_err(|_| Errno::NODATA)?;
            found.map(|address| address.ip()).collect()
        }
    };
    if all.iter().any(|address| is_own(*address)) {
        return Ok(None);
    }
    // Those of one link need its name, too.
    let local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let reachable = all.into_iter().find(|ip| !local(ip));
    reachable.map(Some).ok_or(Errno::NODATA)
}

fn is_own(address: IpAddr) -> bool {
    // Only own addresses can be bound.
    address.is_loopback()
        || address.is_unspecified()
        || !address.is_multicast() && UdpSocket::bind((address, 0)).is_ok()
}
