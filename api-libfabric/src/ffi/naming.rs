//! Formats of endpoint names, bytes or text (FI_ADDR_STR), and the resolution of `node` and `service`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use super::given;
use crate::name::{Called, LEN, SCHEME};
use crate::process::has_other_hosts;
use crate::service::{Server, ServiceName};
use crate::status::{Errno, Result};
use crate::sys::*;

/// `addr_format` of the provider's names in bytes.
pub const ADDRESS_FORMAT: u32 = FI_PROV_SPECIFIC | 0x756e69;
/// The longest accepted text, in bytes.
const LONGEST: usize = 256;

/// `addr_format` of fi_info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Bytes,
    Text,
}

impl Format {
    /// The format with this number. FI_FORMAT_UNSPEC means the provider's bytes.
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

    /// A name in this format. A text ends with a zero.
    pub fn write(self, called: &Called) -> Vec<u8> {
        match self {
            Format::Bytes => called.as_bytes().to_vec(),
            Format::Text => format!("{called}\0").into_bytes(),
        }
    }

    /// The name at `place`, and its length in bytes there.
    ///
    /// # Safety
    /// `place` is null or a name in this format: [`LEN`] bytes, or a text that ends with a zero.
    pub unsafe fn read(self, place: *const c_void) -> (Result<Called>, usize) {
        if let Err(errno) = given(place) {
            return (Err(errno), 0);
        }
        match self {
            Format::Bytes => {
                // SAFETY:
                // - contract of this call: not null, so `LEN` bytes.
                let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), LEN) };
                (Called::from_bytes(bytes), LEN)
            }
            Format::Text => {
                // SAFETY:
                // - contract of this call: not null, so a text that ends with a zero.
                let text = unsafe { CStr::from_ptr(place.cast()) };
                let called = text.to_str().map_err(|_| Errno::INVAL);
                (called.and_then(str::parse), text.count_bytes() + 1)
            }
        }
    }

    /// The placeholder for any name: the source address of a program that has chosen none. No endpoint has this name.
    pub fn any(self) -> Vec<u8> {
        match self {
            Format::Bytes => vec![0; LEN],
            Format::Text => format!("{SCHEME}\0").into_bytes(),
        }
    }

    /// The name in the `len` bytes at `place`, as in fi_info. `None` for null, and for the placeholder for any name.
    ///
    /// # Safety
    /// `place` is null or has `len` bytes.
    pub unsafe fn read_sized(self, place: *const c_void, len: usize) -> Option<Result<Called>> {
        if place.is_null() {
            return None;
        }
        let any = self.any();
        // SAFETY:
        // - contract of this call: not null, so `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), len) };
        if bytes == any {
            return None;
        }
        Some(match self {
            Format::Bytes => Called::from_bytes(bytes),
            // The length may include the zero or not.
            Format::Text => {
                let end = bytes.iter().position(|byte| *byte == 0);
                let text = std::str::from_utf8(&bytes[..end.unwrap_or(len)]);
                text.map_err(|_| Errno::INVAL).and_then(str::parse)
            }
        })
    }
}

/// A text of the program. `None` for null. Errors: [`Errno::INVAL`] if it is not UTF-8, or too long.
///
/// # Safety
/// The pointer is null or a C string.
unsafe fn text<'a>(place: *const c_char) -> Result<Option<&'a str>> {
    if place.is_null() {
        return Ok(None);
    }
    // SAFETY:
    // - contract of this call: not null, so a C string.
    let text = unsafe { CStr::from_ptr(place) }.to_str();
    let text = text.ok().filter(|text| text.len() <= LONGEST);
    text.map(Some).ok_or(Errno::INVAL)
}

/// The endpoint of `service` on the machine `node`. `node` alone may also be the text of a name. `None`: they name no endpoint. Errors:
/// [`Errno::NODATA`] for an unknown `node` or an invalid `service`. On another machine, only port numbers are services, and there are none if all
/// processes are on one host. FI_SOURCE refuses another machine, since the program cannot listen there.
///
/// # Safety
/// The pointers are null or C strings.
pub(super) unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    flags: u64,
) -> Result<Option<Called>> {
    // SAFETY:
    // - contract of this call: null, or C strings.
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
            let service = service.and_then(|service| ServiceName::new(service).ok());
            let port = service.and_then(|service| service.port());
            let port = port.filter(|_| flags & FI_SOURCE == 0 && has_other_hosts() == Ok(true));
            let at = SocketAddr::new(ip, port.ok_or(Errno::NODATA)?);
            let server = Server::new(at).map_err(|_| Errno::NODATA)?;
            return Ok(Some(Called::Server(server)));
        }
    }
    // Service 0 of a source means any service, as port 0 means any port: the endpoint needs no name that peers know in advance.
    let is_any = |service: &str| service.is_empty() || flags & FI_SOURCE != 0 && service == "0";
    let service = service.filter(|service| !is_any(service));
    let service = service.map(|service| ServiceName::new(service).map(Called::Service));
    service.transpose().map_err(|_| Errno::NODATA)
}

/// The names of a symmetric insertion (fi_av(3)), from the first one: numeric addresses of nodes, or texts with a number at their end.
pub(super) enum Series {
    /// Null is the only name.
    None,
    Address(IpAddr),
    /// `number`: value, and number of digits. The digits keep their number: node10 follows node09.
    Text {
        text: String,
        number: Option<(u64, usize)>,
    },
}

impl Series {
    /// The series that begins with a name. Errors: [`Errno::INVAL`] if it is not UTF-8, or too long.
    ///
    /// # Safety
    /// The pointer is null or a C string.
    pub unsafe fn of(first: *const c_char) -> Result<Series> {
        // SAFETY:
        // - contract of this call: null, or a C string.
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

    /// Whether the series has `count` names.
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

    /// Name `nth` from 0. The series must [have](Series::has) it.
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

/// The address of `node`, if it is another machine. `None`: it is this machine. Errors: [`Errno::NODATA`] if `node` is unknown, or has only
/// link-local addresses.
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
    // A link-local address needs the name of an interface, too.
    let local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let reachable = all.into_iter().find(|ip| !local(ip));
    reachable.map(Some).ok_or(Errno::NODATA)
}

fn is_own(address: IpAddr) -> bool {
    // A socket can be bound only to addresses of this machine.
    address.is_loopback()
        || address.is_unspecified()
        || !address.is_multicast() && UdpSocket::bind((address, 0)).is_ok()
}
