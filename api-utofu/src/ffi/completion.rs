//! §3.7.4 completion confirmation, §3.7.5 queries.

use libc::{c_ulong, c_void};

use unipgas_core::port::NoticeKind;

use super::entry::{functions, given, put};
use crate::process::current;
use crate::status::{Result, ReturnCode, from_fault};
use crate::vcq::vcq;

/// §3.7.6.1.
pub use unipgas_utofu_sys::utofu_mrq_notice as MrqNotice;

fn check_poll_flags(flags: c_ulong) -> Result<()> {
    if flags == 0 {
        Ok(())
    } else {
        Err(ReturnCode::InvalidFlags)
    }
}

functions! {
    fn utofu_poll_tcq(vcq_hdl: usize, flags: c_ulong, cbdata: *mut *mut c_void) {
        check_poll_flags(flags)?;
        given(cbdata)?;
        let vcq = vcq(vcq_hdl)?;
        // SAFETY:
        // - threads: the C contract (§2.5).
        let mut queues = unsafe { vcq.port().hold() };
        let taken = vcq.port().poll_completion(&mut queues);
        drop(queues);
        let Some(taken) = taken else {
            return if vcq.port().has_overflowed() {
                vcq.overflow()
            } else {
                Err(ReturnCode::NotFound)
            };
        };
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(cbdata, taken.context as *mut c_void) }?;
        match taken.fault {
            None => Ok(()),
            Some(fault) => Err(from_fault(fault)),
        }
    }

    fn utofu_poll_mrq(vcq_hdl: usize, flags: c_ulong, notice: *mut MrqNotice) {
        check_poll_flags(flags)?;
        given(notice)?;
        let vcq = vcq(vcq_hdl)?;
        // SAFETY:
        // - threads: the C contract (§2.5).
        let mut queues = unsafe { vcq.port().hold() };
        let taken = vcq.port().poll_notice(&mut queues);
        drop(queues);
        let taken = match taken {
            Ok(Some(taken)) => taken,
            Ok(None) => return Err(ReturnCode::NotFound),
            Err(_) => vcq.overflow(),
        };
        // Comparisons, not a match: a jump through a table would cost more than the rest of the function.
        let is_get = (taken.kind == NoticeKind::LocalGet) | (taken.kind == NoticeKind::RemoteGet);
        let only = |given: bool, value: u64| if given { value } else { 0 };
        // The guide does not define the value at the target of an ARMW. Programs expect the STADD.
        let rmt_value = only(taken.kind == NoticeKind::LocalAtomic, taken.value)
            | only(taken.kind == NoticeKind::RemoteAtomic, taken.remote);
        let lcl_stadd = only(is_get, taken.value);
        let rmt_stadd = only(taken.kind != NoticeKind::LocalGet, taken.remote);
        let filled = MrqNotice {
            notice_type: taken.kind as u8,
            padding1: [0; 7],
            vcq_id: taken.peer,
            edata: u64::from(taken.edata),
            rmt_value,
            lcl_stadd,
            rmt_stadd,
            reserved: [0; 2],
        };
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(notice, filled) }?;
        match taken.fault {
            None => Ok(()),
            Some(fault) => Err(from_fault(fault)),
        }
    }

    fn utofu_query_num_unread_tcq(vcq_hdl: usize, count: *mut usize) {
        let process = current()?;
        let unread = process.unread(&vcq(vcq_hdl)?);
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(count, unread) }
    }

    fn utofu_query_num_unread_mrq(vcq_hdl: usize, count: *mut usize) {
        given(count)?;
        let vcq = vcq(vcq_hdl)?;
        // SAFETY:
        // - threads: the C contract (§2.5); not null, so valid.
        unsafe {
            let unread = vcq.port().unread_notices(&mut vcq.port().hold());
            put(count, unread)
        }
    }
}
