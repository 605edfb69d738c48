//! Transitions of queue pairs, with the attributes that each demands.

use std::ffi::c_int;

use unipgas_verbs_sys::*;

use crate::packet::SEQUENCE;
use crate::pairs;
use crate::qp::{Qp, QpState};

struct Transition {
    from: u32,
    to: u32,
    required: u32,
    optional: u32,
}

const ALTERNATIVE: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

/// The table of the specification. RESET and ERR can be entered from all states.
const TRANSITIONS: &[Transition] = &[
    Transition {
        from: IBV_QPS_RESET,
        to: IBV_QPS_INIT,
        required: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        optional: 0,
    },
    Transition {
        from: IBV_QPS_INIT,
        to: IBV_QPS_INIT,
        required: 0,
        optional: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    },
    Transition {
        from: IBV_QPS_INIT,
        to: IBV_QPS_RTR,
        required: IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER,
        optional: IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    },
    Transition {
        from: IBV_QPS_RTR,
        to: IBV_QPS_RTS,
        required: IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC,
        optional: IBV_QP_CUR_STATE | ALTERNATIVE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
    },
    Transition {
        from: IBV_QPS_RTS,
        to: IBV_QPS_RTS,
        required: 0,
        optional: IBV_QP_CUR_STATE | ALTERNATIVE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
    },
];

fn is_legal(from: u32, to: u32, mask: u32) -> bool {
    let mask = mask & !IBV_QP_STATE;
    match to {
        IBV_QPS_RESET => mask & !IBV_QP_CUR_STATE == 0,
        IBV_QPS_ERR => from != IBV_QPS_RESET && mask & !IBV_QP_CUR_STATE == 0,
        _ => TRANSITIONS
            .iter()
            .filter(|way| (way.from, way.to) == (from, to))
            .any(|way| {
                mask & way.required == way.required && mask & !(way.required | way.optional) == 0
            }),
    }
}

/// Whether a device accepts the values.
fn is_possible(qp: &Qp, state: &QpState, attr: &ibv_qp_attr, mask: u32) -> bool {
    let device = qp.nic.device;
    let config = device.config;
    let has = |bit: u32| mask & bit != 0;
    let to = &attr.ah_attr;
    let wrong = (has(IBV_QP_CUR_STATE) && attr.cur_qp_state != state.state)
        || (has(IBV_QP_PORT) && device.port(attr.port_num).is_none())
        || (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
        || (has(IBV_QP_PATH_MTU) && !(1..=config.mtu).contains(&attr.path_mtu))
        || (has(IBV_QP_MAX_QP_RD_ATOMIC) && u32::from(attr.max_rd_atomic) > config.rd_atom)
        || (has(IBV_QP_MAX_DEST_RD_ATOMIC) && u32::from(attr.max_dest_rd_atomic) > config.rd_atom)
        || (has(IBV_QP_TIMEOUT) && attr.timeout > 31)
        || (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7)
        || (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7)
        || (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31)
        || (has(IBV_QP_DEST_QPN) && attr.dest_qp_num >= 1 << 24)
        || (has(IBV_QP_AV) && !is_address(qp, to))
        || has(ALTERNATIVE);
    !wrong
}

/// Whether a device accepts the address. On Ethernet only GIDs are addresses.
fn is_address(qp: &Qp, to: &ibv_ah_attr) -> bool {
    let device = qp.nic.device;
    let known = u32::from(to.grh.sgid_index) < device.config.gids;
    device.port(to.port_num).is_some()
        && match to.is_global {
            0 => !device.config.ethernet,
            _ => known,
        }
}

fn take_over(own: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) {
    macro_rules! take {
        ($($bit:ident: $($field:ident),*;)*) => {$(
            if mask & $bit != 0 { $(own.$field = attr.$field;)* }
        )*};
    }
    take! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_DEST_QPN: dest_qp_num;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    pointer: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY:
    // - the caller gives a queue pair that is not destroyed, and attributes.
    let (qp, attr) = unsafe { (pairs::of(pointer), &*attr) };
    if qp.nic.is_parents() {
        return libc::EIO;
    }
    let mask = mask as u32;
    let mut state = qp.state.lock();
    let from = state.state;
    let to = if mask & IBV_QP_STATE != 0 {
        attr.qp_state
    } else {
        from
    };
    // After a fatal error of the device, only RESET and ERR are possible.
    if !qp.nic.is_usable() && !matches!(to, IBV_QPS_RESET | IBV_QPS_ERR) {
        return libc::EIO;
    }
    if !is_legal(from, to, mask) || !is_possible(qp, &state, attr, mask) {
        return libc::EINVAL;
    }
    take_over(&mut state.attr, attr, mask);
    match to {
        IBV_QPS_RESET => qp.reset(&mut state),
        IBV_QPS_ERR => qp.break_down(&mut state, IBV_WC_WR_FLUSH_ERR),
        IBV_QPS_RTR if from == IBV_QPS_INIT => state.receiver.expected = attr.rq_psn % SEQUENCE,
        IBV_QPS_RTS if from == IBV_QPS_RTR => state.sender.first = state.attr.sq_psn % SEQUENCE,
        _ => {}
    }
    state.state = to;
    // SAFETY:
    // - as above; users read this field only while no call of this function is in progress.
    unsafe { (*pointer).state = to };
    0
}
