//! Choice of the device, its port, and the address.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::thread::sched_getaffinity;
use unipgas_core::rendezvous::JobName;
use unipgas_core::{Error, Result, descriptor, numa, variables};
use unipgas_verbs_sys::*;

use crate::device::Context;

/// Maximum number of a device's addresses that the choice considers.
const GIDS: usize = 256;

/// Settings of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceSelector {
    /// Name of a device in /sys/class/infiniband.
    pub device: Option<String>,
    /// Number of the port, from 1.
    pub port: Option<u8>,
    /// Index in the port's GID table.
    pub gid: Option<u32>,
    /// Exponent of the retry timeout, as in [`DevicePort::timeout`].
    pub timeout: Option<u8>,
}

/// Exponents that adapters accept.
const TIMEOUTS: std::ops::RangeInclusive<u8> = 8..=31;
/// Half a second.
const TIMEOUT: u8 = 17;

impl DeviceSelector {
    /// Reads UNIPGAS_VERBS_DEVICE (`mlx5_0`, `mlx5_0:1`), UNIPGAS_VERBS_GID and UNIPGAS_VERBS_TIMEOUT. Errors: [`Error::InvalidArgument`].
    pub fn from_env() -> Result<Self> {
        DeviceSelector::read(variables::get)
    }

    pub(crate) fn read(get: impl Fn(&str) -> Result<Option<String>>) -> Result<Self> {
        let mut wish = DeviceSelector::default();
        if let Some(text) = get("UNIPGAS_VERBS_DEVICE")? {
            let (device, port) = match text.split_once(':') {
                None => (text.as_str(), None),
                Some((device, port)) => {
                    let number = port.parse().ok().filter(|port| *port > 0);
                    let must = "must be a device, or a device and a port, as mlx5_0:1";
                    let wrong = || variables::wrong("UNIPGAS_VERBS_DEVICE", &text, must);
                    (device, Some(number.ok_or_else(wrong)?))
                }
            };
            (wish.device, wish.port) = (Some(device.to_owned()), port);
        }
        if let Some(text) = get("UNIPGAS_VERBS_GID")? {
            let must = "must be an index of the port's table of GIDs";
            let wrong = |_| variables::wrong("UNIPGAS_VERBS_GID", &text, must);
            wish.gid = Some(text.parse().map_err(wrong)?);
        }
        if let Some(text) = get("UNIPGAS_VERBS_TIMEOUT")? {
            let exponent = text
                .parse()
                .ok()
                .filter(|exponent| TIMEOUTS.contains(exponent));
            let must = "must be 8 to 31: 4.096 us times 2 to this power";
            let wrong = || variables::wrong("UNIPGAS_VERBS_TIMEOUT", &text, must);
            wish.timeout = Some(exponent.ok_or_else(wrong)?);
        }
        Ok(wish)
    }
}

/// A usable port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DevicePort {
    /// From 1.
    pub number: u8,
    /// An Ethernet port: only GIDs address its peers.
    pub ethernet: bool,
    /// Maximum packet size, as an `ibv_mtu`.
    pub mtu: u32,
    /// Maximum message size in bytes.
    pub longest: u32,
    /// Its address.
    pub gid: [u8; 16],
    /// Index of the address in the port's GID table.
    pub gid_index: u8,
    /// Exponent of the timeout for a retry: 4.096 us times 2 to this power.
    pub timeout: u8,
}

impl DevicePort {
    /// The IP address of its GID, if peers can reach it.
    pub fn ip(&self) -> Option<IpAddr> {
        let ip = Ipv6Addr::from(self.gid);
        let mapped = ip.to_ipv4_mapped().map(IpAddr::V4);
        let wide = self.ethernet && (ip.segments()[0] & 0xffc0) != 0xfe80 && !ip.is_unspecified();
        mapped.or_else(|| wide.then_some(IpAddr::V6(ip)))
    }
}

/// The best device and its port. Errors: [`Error::Unreachable`] with the reasons.
pub fn choose(wish: &DeviceSelector) -> Result<(Context, DevicePort)> {
    let mut reasons = Vec::new();
    let mut names = Vec::new();
    let mut usable = Vec::new();
    for context in Context::open_all()? {
        names.push(context.name.clone());
        if wish
            .device
            .as_ref()
            .is_some_and(|name| *name != context.name)
        {
            continue;
        }
        match find_port(&context, wish) {
            Ok(port) => usable.push((context, port)),
            Err(why) => reasons.push(format!("{}: {why}", context.name)),
        }
    }
    if let Some(best) = best(&fits(&usable), rank_of_job()) {
        return Ok(usable.swap_remove(best));
    }
    Err(Error::Unreachable(
        match (&wish.device, names.is_empty(), reasons.is_empty()) {
            (_, true, _) => "there is no RDMA device (ibv_devices lists them)".into(),
            (Some(name), _, true) => format!(
                "there is no RDMA device {name}, but {} (UNIPGAS_VERBS_DEVICE)",
                names.join(", ")
            ),
            _ => reasons.join("; "),
        },
    ))
}

/// Distance of a device from the processors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    /// On a NUMA node with processors of this process.
    Here,
    /// The kernel does not report it.
    Unknown,
    /// On another NUMA node.
    There,
}

/// Rank of a device: Ethernet after InfiniBand, then the distance. The link type comes first, because all processes must use the same.
type Fit = (bool, Near);

/// Index of the device to use. Ranks alternate between the nearest devices.
fn best(all: &[Fit], rank: u32) -> Option<usize> {
    let nearest = all.iter().min()?;
    let nearest: Vec<usize> = (0..all.len()).filter(|nth| all[*nth] == *nearest).collect();
    Some(nearest[rank as usize % nearest.len()])
}

fn rank_of_job() -> u32 {
    let job = JobName::from_env().ok();
    job.and_then(|job| job.rank()).unwrap_or(0)
}

fn fits(all: &[(Context, DevicePort)]) -> Vec<Fit> {
    let allowed = sched_getaffinity(None).ok();
    let of = |(context, _): &(Context, DevicePort)| {
        let file = format!("/sys/class/infiniband/{}/device/numa_node", context.name);
        let text = descriptor::read_text(file).ok()?;
        let processors = numa::processors(text.trim().parse().ok()?).ok()?;
        let is_here = |processor: &u32| {
            allowed
                .as_ref()
                .is_some_and(|all| all.is_set(*processor as usize))
        };
        Some(match processors.iter().any(is_here) {
            true => Near::Here,
            false => Near::There,
        })
    };
    let fit = |one: &(Context, DevicePort)| (one.1.ethernet, of(one).unwrap_or(Near::Unknown));
    all.iter().map(fit).collect()
}

fn find_port(context: &Context, wish: &DeviceSelector) -> Result<DevicePort, String> {
    if !context.speaks_ib() {
        return Err("it speaks iWARP; use the backend ofi there".into());
    }
    let limits = context.limits();
    if limits.max_srq == 0 || limits.max_srq_wr <= 0 {
        return Err("it has no shared receive queues".into());
    }
    let ports = match wish.port {
        Some(port) => port..=port,
        None => 1..=limits.phys_port_cnt,
    };
    let mut reasons = Vec::new();
    for number in ports {
        match look_at(context, number, wish) {
            Ok(port) => return Ok(port),
            Err(why) => reasons.push(format!("port {number} {why}")),
        }
    }
    Err(match reasons.is_empty() {
        true => "it has no port".into(),
        false => reasons.join(", "),
    })
}

fn look_at(context: &Context, number: u8, wish: &DeviceSelector) -> Result<DevicePort, String> {
    let port = context.port(number).ok_or("is none of its ports")?;
    if port.state != IBV_PORT_ACTIVE {
        return Err("is not active".into());
    }
    let ethernet = u32::from(port.link_layer) == IBV_LINK_LAYER_ETHERNET;
    let gids = context.gids(GIDS);
    let of_port = gids.iter().filter(|gid| gid.port_num == u32::from(number));
    let gid = match wish.gid {
        Some(index) => of_port
            .clone()
            .find(|gid| gid.gid_index == index)
            .ok_or(format!("has no GID {index}"))?,
        None => of_port
            .min_by_key(|gid| rank(gid, ethernet))
            .ok_or("has no GID")?,
    };
    Ok(DevicePort {
        number,
        ethernet,
        mtu: port.active_mtu,
        longest: port.max_msg_sz,
        gid: gid.gid.0,
        gid_index: u8::try_from(gid.gid_index).map_err(|_| "has too many GIDs")?,
        timeout: wish.timeout.unwrap_or(TIMEOUT),
    })
}

/// Preference of a GID: the lowest is the best. RoCE v2 is routable, and the hosts of a cluster usually share an IPv4 network. The first GID of an
/// InfiniBand port is its own.
fn rank(gid: &ibv_gid_entry, ethernet: bool) -> (u32, u32) {
    let ip = Ipv6Addr::from(gid.gid.0);
    let is_loop = ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback());
    let class = match (ethernet, gid.gid_type, ip.to_ipv4_mapped()) {
        (false, ..) => 0,
        (_, _, Some(_)) if is_loop => 6,
        (_, IBV_GID_TYPE_ROCE_V2, Some(_)) => 1,
        (_, IBV_GID_TYPE_ROCE_V2, None) if ip.segments()[0] != 0xfe80 => 2,
        (_, IBV_GID_TYPE_ROCE_V2, None) => 3,
        (_, _, Some(ip)) if ip != Ipv4Addr::UNSPECIFIED => 4,
        _ => 5,
    };
    (class, gid.gid_index)
}

/// Name of the device.
///
/// # Safety
/// `device` is in a device list that has not been freed.
pub unsafe fn name(device: *mut ibv_device) -> String {
    // SAFETY:
    // - contract of this call: the device is valid. Its name is a C string in the structure.
    unsafe { CStr::from_ptr((*device).name.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, gid_type: u32, text: &str) -> ibv_gid_entry {
        let gid: Ipv6Addr = text.parse().unwrap();
        ibv_gid_entry {
            gid: ibv_gid(gid.octets()),
            gid_index: index,
            port_num: 1,
            gid_type,
            ndev_ifindex: 0,
        }
    }

    #[test]
    fn the_nearest_devices_are_shared_out() {
        use Near::{Here, There, Unknown};
        let shares = |all: &[Near]| {
            let all: Vec<Fit> = all.iter().map(|near| (true, *near)).collect();
            [0, 1, 2, 3, 4].map(|rank| best(&all, rank).unwrap())
        };
        assert_eq!(best(&[], 3), None);
        assert_eq!(shares(&[There]), [0; 5]);
        assert_eq!(shares(&[There, Here]), [1; 5]);
        assert_eq!(shares(&[Here, There, Here]), [0, 2, 0, 2, 0]);
        assert_eq!(shares(&[There, Unknown, There]), [1; 5]);
        assert_eq!(shares(&[Unknown; 3]), [0, 1, 2, 0, 1]);
        assert_eq!(shares(&[There; 2]), [0, 1, 0, 1, 0]);
        let mixed = [(true, Here), (false, There), (true, Here), (false, There)];
        assert_eq!([0, 1].map(|rank| best(&mixed, rank)), [Some(1), Some(3)]);
    }

    #[test]
    fn an_address_that_is_routed_comes_first() {
        let best = |ethernet, all: &[ibv_gid_entry]| {
            let found = all.iter().min_by_key(|gid| rank(gid, ethernet));
            found.unwrap().gid_index
        };
        let roce = [
            entry(0, IBV_GID_TYPE_ROCE_V1, "fe80::1"),
            entry(1, IBV_GID_TYPE_ROCE_V2, "fe80::1"),
            entry(2, IBV_GID_TYPE_ROCE_V1, "::ffff:10.0.0.1"),
            entry(3, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1"),
            entry(4, IBV_GID_TYPE_ROCE_V2, "2001:db8::1"),
        ];
        assert_eq!(best(true, &roce), 3);
        assert_eq!(best(true, &roce[..2]), 1);
        assert_eq!(best(true, &roce[..3]), 1);
        assert_eq!(best(true, &roce[4..]), 4);
        assert_eq!(best(false, &roce), 0);
    }
}
