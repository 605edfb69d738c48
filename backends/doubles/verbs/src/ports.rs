//! Attributes and GIDs of ports.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;

use unipgas_verbs_sys::*;

use crate::context::nic_of;
use crate::device::Device;

/// Users have an older version of the structure, which ends with `flags`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY:
    // - the caller gives an open context.
    let device = unsafe { nic_of(context) }.device;
    let Some(state) = device.port(port) else {
        return libc::EINVAL;
    };
    let down = state.down.load(SeqCst);
    let known = ibv_port_attr {
        state: if down { IBV_PORT_DOWN } else { IBV_PORT_ACTIVE },
        max_mtu: IBV_MTU_4096,
        active_mtu: device.config.mtu,
        gid_tbl_len: device.config.gids as c_int,
        port_cap_flags: 0,
        max_msg_sz: device.config.max_msg_sz,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: device.lid(port),
        sm_lid: if device.config.ethernet { 0 } else { 1 },
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 18,
        init_type_reply: 0,
        active_width: 2,
        active_speed: 32,
        phys_state: if down { 2 } else { 5 },
        link_layer: match device.config.ethernet {
            true => IBV_LINK_LAYER_ETHERNET as u8,
            false => IBV_LINK_LAYER_INFINIBAND as u8,
        },
        flags: 0,
        port_cap_flags2: 0,
    };
    let len = std::mem::offset_of!(ibv_port_attr, flags) + 1;
    // SAFETY:
    // - the caller gives a buffer for the fields up to `flags`.
    unsafe { ptr::copy_nonoverlapping((&raw const known).cast::<u8>(), attr.cast(), len) };
    0
}

fn gid_entry(device: &Device, port: u32, index: u32) -> Option<ibv_gid_entry> {
    Some(ibv_gid_entry {
        gid: device.gid(u8::try_from(port).ok()?, index)?,
        gid_index: index,
        port_num: port,
        gid_type: device.gid_type(index),
        ndev_ifindex: 0,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY:
    // - the caller gives an open context.
    let device = unsafe { nic_of(context) }.device;
    if flags != 0 || size != size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    let ports = 1..=u32::from(device.config.ports);
    let all = ports.flat_map(|port| {
        (0..device.config.gids).filter_map(move |index| gid_entry(device, port, index))
    });
    let mut count = 0;
    for entry in all.take(most) {
        // SAFETY:
        // - the caller gives an array of `most` elements.
        unsafe { entries.add(count).write(entry) };
        count += 1;
    }
    count as isize
}
