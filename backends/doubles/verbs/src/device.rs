//! The devices of this process: their names, ports and attributes.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::config::{Config, config};
use crate::context::nic_of;
use crate::{counters, exit, fork};

/// Users hold a pointer to the first field.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    pub index: usize,
    pub config: &'static Config,
    pub ports: Vec<Port>,
    /// Held by each HCA atomic operation.
    pub atomics: Mutex<()>,
    /// All packets to and from the device are lost.
    pub silent: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Port {
    pub down: AtomicBool,
    /// Number of changes of its LID, and of its GIDs.
    pub lid_changes: AtomicU32,
    pub gid_changes: AtomicU32,
}

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, from) in chars.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    chars
}

impl Device {
    fn new(index: usize, config: &'static Config) -> Self {
        Device {
            ibv: ibv_device {
                _ops: [None; 2],
                node_type: IBV_NODE_CA as c_int,
                transport_type: IBV_TRANSPORT_IB as c_int,
                name: chars(&format!("double{index}")),
                dev_name: chars(&format!("uverbs{index}")),
                dev_path: chars(&format!("/nonexistent/infiniband_verbs/uverbs{index}")),
                ibdev_path: chars(&format!("/nonexistent/infiniband/double{index}")),
            },
            index,
            config,
            ports: (0..config.ports).map(|_| Port::default()).collect(),
            atomics: Mutex::new(()),
            silent: AtomicBool::new(false),
        }
    }

    pub fn ibv(&self) -> *mut ibv_device {
        (&raw const self.ibv).cast_mut()
    }

    pub fn port(&self, number: u8) -> Option<&Port> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    fn guid(&self) -> u64 {
        0x02fa_ceff_fe00_0000 + ((self.index as u64) << 8)
    }

    /// 0 on Ethernet, as with a real device.
    pub fn lid(&self, port: u8) -> u16 {
        let Some(state) = self.port(port).filter(|_| !self.config.ethernet) else {
            return 0;
        };
        let changes = state.lid_changes.load(SeqCst) as u16 % 16;
        1 + ((self.index as u16) << 8) + (u16::from(port) << 4) + changes
    }

    /// `None`: the table has no GID at this index.
    pub fn gid(&self, port: u8, index: u32) -> Option<ibv_gid> {
        if index >= self.config.gids {
            return None;
        }
        let changes = self.port(port)?.gid_changes.load(SeqCst) as u8;
        let mut gid = [0; 16];
        if index < 2 {
            gid[..2].copy_from_slice(&[0xfe, 0x80]);
            gid[8..].copy_from_slice(&self.guid().to_be_bytes());
            gid[14] = changes;
            gid[15] = port
                + if self.config.ethernet {
                    0
                } else {
                    index as u8 * 16
                };
        } else {
            let host = [10, self.index as u8, port.wrapping_add(changes << 4)];
            gid[10..12].fill(0xff);
            gid[12..15].copy_from_slice(&host);
            // On Ethernet each address has two entries, one for each version of RoCE.
            gid[15] = 1 + if self.config.ethernet {
                index as u8 / 2
            } else {
                index as u8
            };
        }
        Some(ibv_gid(gid))
    }

    pub fn gid_type(&self, index: u32) -> u32 {
        match (self.config.ethernet, index % 2) {
            (false, _) => IBV_GID_TYPE_IB,
            (true, 0) => IBV_GID_TYPE_ROCE_V1,
            (true, _) => IBV_GID_TYPE_ROCE_V2,
        }
    }

    /// Whether packets to this address arrive here.
    pub fn is_at(&self, port: u8, route: u32) -> bool {
        let gids = || (0..self.config.gids).filter_map(|index| self.gid(port, index));
        route == u32::from(self.lid(port)) || gids().any(|gid| route == global_route(&gid))
    }

    /// Whether the port neither sends nor receives.
    pub fn is_cut(&self, port: u8) -> bool {
        self.silent.load(SeqCst) || self.port(port).is_none_or(|port| port.down.load(SeqCst))
    }

    pub fn attributes(&self) -> ibv_device_attr {
        let config = self.config;
        // SAFETY:
        // - zero is valid in all its fields.
        let zero: ibv_device_attr = unsafe { std::mem::zeroed() };
        let limit = |n: u32| n.min(i32::MAX as u32) as c_int;
        ibv_device_attr {
            fw_ver: chars("1.0.0"),
            node_guid: self.guid().to_be(),
            sys_image_guid: self.guid().to_be(),
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            vendor_id: 0x0fa1ce,
            vendor_part_id: 1,
            hw_ver: 1,
            max_qp: limit(config.max_qp),
            max_qp_wr: limit(config.max_qp_wr),
            device_cap_flags: IBV_DEVICE_RC_RNR_NAK_GEN,
            max_sge: limit(config.max_sge),
            max_sge_rd: limit(config.max_sge),
            max_cq: 1 << 16,
            max_cqe: limit(config.max_cqe),
            max_mr: limit(config.max_mr),
            max_pd: 1 << 16,
            max_qp_rd_atom: limit(config.rd_atom),
            max_res_rd_atom: limit(config.rd_atom.saturating_mul(config.max_qp)),
            max_qp_init_rd_atom: limit(config.rd_atom),
            atomic_cap: config.atomics,
            max_ah: 1 << 16,
            max_srq: limit(config.max_srq),
            max_srq_wr: limit(if config.max_srq > 0 {
                config.max_srq_wr
            } else {
                0
            }),
            max_srq_sge: limit(if config.max_srq > 0 {
                config.max_sge
            } else {
                0
            }),
            max_pkeys: 1,
            local_ca_ack_delay: 15,
            phys_port_cnt: config.ports,
            ..zero
        }
    }
}

/// The address in a packet with a GRH. It is outside the range of LIDs.
pub fn global_route(gid: &ibv_gid) -> u32 {
    let hash = gid.0.iter().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    hash | 1 << 31
}

/// All devices of this process. Empty if VERBS_DOUBLE is invalid.
pub fn all() -> &'static [Device] {
    static ALL: OnceLock<Vec<Device>> = OnceLock::new();
    ALL.get_or_init(|| match config() {
        Some(config) => (0..config.devices)
            .map(|index| Device::new(index, config))
            .collect(),
        None => Vec::new(),
    })
}

fn device<'a>(device: *mut ibv_device) -> &'a Device {
    // SAFETY:
    // - the pointer is from the list of devices, and devices are never freed.
    unsafe { &*device.cast::<Device>() }
}

/// The device of a pointer that a user passes to `ibv_open_device`.
pub fn of(pointer: *mut ibv_device) -> &'static Device {
    device(pointer)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    fork::watch();
    exit::watch();
    counters::begin();
    let all = all();
    if !count.is_null() {
        // SAFETY:
        // - the caller gives a valid pointer, not null here.
        unsafe { *count = all.len() as c_int };
    }
    // SAFETY:
    // - the list is longer than the written part, and calloc ends it with null.
    unsafe {
        let list: *mut *mut ibv_device =
            libc::calloc(all.len() + 1, size_of::<*mut ibv_device>()).cast();
        if !list.is_null() {
            for (at, device) in all.iter().enumerate() {
                *list.add(at) = device.ibv();
            }
        }
        list
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY:
    // - the caller returns a list that calloc allocated.
    unsafe { libc::free(list.cast::<c_void>()) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(pointer: *mut ibv_device) -> *const c_char {
    match pointer.is_null() {
        true => ptr::null(),
        false => device(pointer).ibv.name.as_ptr(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(pointer: *mut ibv_device) -> u64 {
    device(pointer).guid().to_be()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(pointer: *mut ibv_device) -> c_int {
    device(pointer).index as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY:
    // - the caller gives an open context, and a valid pointer for the attributes.
    unsafe { attr.write(nic_of(context).device.attributes()) };
    0
}
