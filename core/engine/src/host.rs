//! The host of this process, on which its pids, `/proc` and shared memory are valid.
//!
//! A pid is unique on its host only: two containers, or two hosts, may have processes with the same pid.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::{Error, Result, descriptor, variables};

/// Boot ids distinguish machines, and boots of one machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Names the pid namespace of this process.
const PIDS: &str = "/proc/self/ns/pid";
/// Number of hosts that the ranks of a job play on one host. Rank r plays host r modulo this number.
pub(crate) const PLAYED: &str = "UNIPGAS_TEST_HOSTS";

/// A number of this host. Other hosts, other pid namespaces and other boots have other numbers. Errors: [`Error::Os`].
pub fn id() -> Result<u64> {
    static REAL: OnceLock<u64> = OnceLock::new();
    let real = match REAL.get() {
        Some(real) => *real,
        None => {
            let found = look()?;
            *REAL.get_or_init(|| found)
        }
    };
    Ok(match played()? {
        Some((hosts, host)) => mix(
            real,
            (u64::from(hosts) << 32 | u64::from(host)).to_le_bytes(),
        ),
        None => real,
    })
}

fn look() -> Result<u64> {
    let boot = descriptor::proc_text(BOOT_ID)?.unwrap_or_default();
    if boot.trim().is_empty() {
        return Err(Error::Os(format!(
            "{BOOT_ID} holds no boot id: mount all of /proc"
        )));
    }
    // Kernels without pid namespaces have one for all processes.
    let pids = std::fs::read_link(PIDS).unwrap_or_default();
    let boot = boot.trim().bytes();
    Ok(mix(
        mix(0, boot),
        pids.as_os_str().as_bytes().iter().copied(),
    ))
}

/// FNV-1a. Its input comes from the kernel, so it need not resist chosen input.
fn mix(seed: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let start = seed ^ 0xcbf2_9ce4_8422_2325;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(start, step)
}

/// The addresses of this host's own name. Other hosts reach it there. Other interfaces may lead nowhere: bridges for containers, and links to devices.
pub fn named_addresses() -> Vec<IpAddr> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let found = (&*name, 0u16).to_socket_addrs();
    found.map_or_else(
        |_| Vec::new(),
        |all| all.map(|address| address.ip()).collect(),
    )
}

/// Number of hosts that the ranks of this job play, and the host that this rank plays. For tests of the library. Errors: [`Error::InvalidArgument`].
pub fn played() -> Result<Option<(u32, u32)>> {
    let number = |name| variables::number(name);
    Ok(match (number(PLAYED)?, number("UNIPGAS_RANK")?) {
        (Some(hosts @ 2..=0xffff), Some(rank)) => Some((hosts as u32, (rank % hosts) as u32)),
        _ => None,
    })
}

/// An IPv4 address of this host that is not loopback. Addresses of the host's name come first, since others may lead nowhere. Loopback if there is no other.
pub fn own_address() -> Ipv4Addr {
    let all = own_addresses();
    let named = match all.len() {
        0 | 1 => Vec::new(),
        _ => named_addresses(),
    };
    let known = all
        .iter()
        .find(|address| named.contains(&IpAddr::V4(**address)));
    let best = known.or(all.first());
    best.copied().unwrap_or(Ipv4Addr::LOCALHOST)
}

/// The IPv4 addresses that are not loopback.
fn own_addresses() -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY:
    // - getifaddrs makes a list that ends with null. Its addresses are null or valid for their family. The list is freed once, after its last use.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return found;
        }
        let mut at = list;
        while let Some(interface) = at.as_ref() {
            let address = interface.ifa_addr;
            if !address.is_null() && (*address).sa_family == libc::AF_INET as libc::sa_family_t {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                let address = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                if !address.is_loopback() {
                    found.push(address);
                }
            }
            at = interface.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_number_and_another_pid_namespace_has_another() {
        assert_eq!(id().unwrap(), id().unwrap());
        let same_boot = |pids: &str| mix(mix(0, "boot".bytes()), pids.bytes());
        assert_ne!(same_boot("pid:[1]"), same_boot("pid:[2]"));
        assert_eq!(same_boot("pid:[1]"), same_boot("pid:[1]"));
        assert_ne!(
            mix(mix(0, "other".bytes()), "pid:[1]".bytes()),
            same_boot("pid:[1]")
        );
    }
}
