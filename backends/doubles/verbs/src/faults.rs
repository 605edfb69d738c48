//! Faults on demand, by [`verbs_double_inject`].
//!
//! A fault is `port_down`, `port_up`, `device_fatal`, `lid_change`, `gid_change`, `qp_fatal`, `silence`, `reg_fails=N`, or `create_qp_fails=N`. It affects all
//! devices of this process; a suffix `@double1` selects one. Faults of ports affect all ports; `=2` selects one. `qp_fatal=N` gives the number of the queue
//! pair; the default is the first one.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use parking_lot::Mutex;
use unipgas_verbs_sys::*;

use crate::device;
use crate::nic::{Nic, Subject};

static OPEN: Mutex<Vec<Arc<Nic>>> = Mutex::new(Vec::new());
static REGISTRATIONS: AtomicU32 = AtomicU32::new(0);
static QPS: AtomicU32 = AtomicU32::new(0);

/// A parsed fault.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    what: String,
    device: Option<usize>,
    number: Option<u32>,
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (rest, device) = match text.split_once('@') {
            Some((rest, device)) => (rest, Some(device.strip_prefix("double")?.parse().ok()?)),
            None => (text, None),
        };
        let (what, number) = match rest.split_once('=') {
            Some((what, number)) => (what, Some(number.parse().ok()?)),
            None => (rest, None),
        };
        let takes_number = match what {
            "reg_fails" | "create_qp_fails" => number.is_some(),
            "port_down" | "port_up" | "lid_change" | "gid_change" | "qp_fatal" => true,
            "device_fatal" | "silence" => number.is_none(),
            _ => false,
        };
        takes_number.then(|| Fault {
            what: what.to_owned(),
            device,
            number,
        })
    }

    fn meets(&self, index: usize) -> bool {
        self.device.is_none_or(|device| device == index)
    }

    fn happen(&self) {
        match self.what.as_str() {
            "reg_fails" => REGISTRATIONS.store(self.number.unwrap_or(0), SeqCst),
            "create_qp_fails" => QPS.store(self.number.unwrap_or(0), SeqCst),
            _ => {}
        }
        for device in device::all().iter().filter(|of| self.meets(of.index)) {
            if self.what == "silence" {
                device.silent.store(true, SeqCst);
            }
            for (port, number) in device.ports.iter().zip(1u32..) {
                if self.number.is_none_or(|only| only == number) {
                    match self.what.as_str() {
                        "port_down" => port.down.store(true, SeqCst),
                        "port_up" => port.down.store(false, SeqCst),
                        "lid_change" => drop(port.lid_changes.fetch_add(1, SeqCst)),
                        "gid_change" => drop(port.gid_changes.fetch_add(1, SeqCst)),
                        _ => {}
                    }
                }
            }
        }
        let open = open_nics();
        let met = |nic: &&Arc<Nic>| !nic.is_parents() && self.meets(nic.device.index);
        for nic in open.iter().filter(met) {
            self.meet(nic);
        }
    }

    fn meet(&self, nic: &Nic) {
        let of_port = match self.what.as_str() {
            "port_down" => Some(IBV_EVENT_PORT_ERR),
            "port_up" => Some(IBV_EVENT_PORT_ACTIVE),
            "lid_change" => Some(IBV_EVENT_LID_CHANGE),
            "gid_change" => Some(IBV_EVENT_GID_CHANGE),
            _ => None,
        };
        for port in 1..=nic.device.config.ports {
            let is_met = self.number.is_none_or(|only| only == u32::from(port));
            if let Some(event) = of_port.filter(|_| is_met) {
                nic.raise(event, Subject::Port(port));
            }
        }
        match self.what.as_str() {
            "device_fatal" => nic.die(),
            "qp_fatal" => {
                let all = nic.all_qps();
                let mut all = all.iter();
                if let Some(qp) = all.find(|qp| self.number.is_none_or(|only| only == qp.number)) {
                    qp.fail();
                    nic.raise(IBV_EVENT_QP_FATAL, Subject::Qp(qp.clone()));
                }
            }
            _ => {}
        }
        nic.ring_all();
    }
}

pub fn opened(nic: &Arc<Nic>) {
    OPEN.lock().push(nic.clone());
}

pub fn closed(nic: &Arc<Nic>) {
    OPEN.lock().retain(|open| !Arc::ptr_eq(open, nic));
}

/// Open NICs of this process, and of its parent.
pub fn open_nics() -> Vec<Arc<Nic>> {
    OPEN.lock().clone()
}

fn takes(left: &AtomicU32) -> bool {
    left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        .is_ok()
}

/// Whether this registration fails. It uses up one of the requested failures.
pub fn takes_registration() -> bool {
    takes(&REGISTRATIONS)
}

/// Whether the creation of this queue pair fails. It uses up one of the requested failures.
pub fn takes_qp() -> bool {
    takes(&QPS)
}

/// Returns 0, or EINVAL for an unknown fault.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs_double_inject(what: *const c_char) -> c_int {
    // SAFETY:
    // - the caller gives a C string.
    let what = unsafe { CStr::from_ptr(what) }.to_str();
    match what.ok().and_then(Fault::parse) {
        Some(fault) => {
            fault.happen();
            0
        }
        None => libc::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = |text: &str| Fault::parse(text).map(|of| (of.what, of.device, of.number));
        let some = |what: &str, device, number| Some((what.to_owned(), device, number));
        assert_eq!(fault("silence"), some("silence", None, None));
        assert_eq!(
            fault("port_down=2@double1"),
            some("port_down", Some(1), Some(2))
        );
        assert_eq!(fault("reg_fails=3"), some("reg_fails", None, Some(3)));
        for wrong in [
            "",
            "reg_fails",
            "silence=1",
            "port_down@1",
            "x",
            "port_up=x",
        ] {
            assert_eq!(fault(wrong), None);
        }
    }
}
