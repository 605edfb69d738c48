//! The VCQs of this process and the CQs that they share: calls in progress, and the contents of their queues.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::{Mutex, MutexGuard, RwLock};
use unipgas_utofu_sys::*;

use crate::counts::{self, Most};
use crate::flight::{Descriptor, Flights};
use crate::library::{Double, UtofuResult, outcome};
use crate::rules::broken;

pub(crate) struct Vcq {
    pub handle: utofu_vcq_hdl_t,
    /// The VCQ id without a path.
    pub id: utofu_vcq_id_t,
    pub thread_safe: bool,
    pub session: bool,
    pub cq: Arc<Cq>,
}

pub(crate) struct Cq {
    pub tni: utofu_tni_id_t,
    number: utofu_cq_id_t,
    /// A thread is in a call on a VCQ that is not thread-safe.
    busy: AtomicBool,
    queues: Mutex<VcqTable>,
}

/// Memory under a STADD.
pub(crate) struct StaddEntry {
    pub address: usize,
    /// The longest registered length, in bytes.
    pub length: usize,
    /// Number of registrations. The entry stays until as many deregistrations (guide §3.6.1).
    pub times: usize,
}

/// The state of a VCQ.
#[derive(Default)]
pub(crate) struct VcqState {
    pub flights: Flights,
    /// Registered memory.
    pub registered: BTreeMap<utofu_stadd_t, StaddEntry>,
    /// Descriptors that were prepared, by their bytes.
    pub prepared: HashMap<Vec<u64>, Descriptor>,
    /// TCQ descriptors that have been read: serial number, code, cbdata.
    tcq: VecDeque<(u64, c_int, usize)>,
    /// MRQ descriptors that the library has returned, with the number of the poll.
    mrq: VecDeque<(u64, c_int, utofu_mrq_notice)>,
    mrq_polls: u64,
}

/// The VCQs of a CQ.
#[derive(Default)]
pub(crate) struct VcqTable {
    by_handle: BTreeMap<utofu_vcq_hdl_t, VcqState>,
    tcq_polls: u64,
}

#[derive(Default)]
struct Table {
    vcqs: HashMap<utofu_vcq_hdl_t, Arc<Vcq>>,
    cqs: Vec<Arc<Cq>>,
}

static TABLE: RwLock<Option<Table>> = RwLock::new(None);

/// VCQs of this process on a TNI.
pub fn count_on(tni: utofu_tni_id_t) -> usize {
    let table = TABLE.read();
    let all = table.iter().flat_map(|table| table.vcqs.values());
    all.filter(|vcq| vcq.cq.tni == tni).count()
}

/// A VCQ that the library has created.
pub fn created(double: &Double, handle: utofu_vcq_hdl_t, flags: c_ulong) -> UtofuResult {
    let (mut id, mut coords) = (0, [0u8; 6]);
    let (mut tni, mut number, mut extra) = (0, 0, 0);
    // SAFETY:
    // - the VCQ exists, and the pointers are valid for the results.
    unsafe {
        outcome((double.real.utofu_query_vcq_id)(handle, &mut id))?;
        let query = double.real.utofu_query_vcq_info;
        outcome(query(
            id,
            coords.as_mut_ptr(),
            &mut tni,
            &mut number,
            &mut extra,
        ))?;
    }
    let mut table = TABLE.write();
    let table = table.get_or_insert_default();
    let known = table
        .cqs
        .iter()
        .find(|cq| (cq.tni, cq.number) == (tni, number));
    let cq = known.cloned().unwrap_or_else(|| {
        let cq = Arc::new(Cq {
            tni,
            number,
            busy: AtomicBool::new(false),
            queues: Mutex::default(),
        });
        table.cqs.push(cq.clone());
        cq
    });
    cq.queues
        .lock()
        .by_handle
        .insert(handle, VcqState::default());
    let vcq = Vcq {
        handle,
        id: double.plain(id),
        thread_safe: flags & UTOFU_VCQ_FLAG_THREAD_SAFE != 0,
        session: flags & UTOFU_VCQ_FLAG_SESSION_MODE != 0,
        cq,
    };
    table.vcqs.insert(handle, Arc::new(vcq));
    Ok(())
}

/// Frees a VCQ by `free`. No thread reads the queues of its CQ meanwhile.
pub fn freed(vcq: &Vcq, free: impl FnOnce() -> c_int) -> UtofuResult {
    let mut queues = vcq.cq.queues.lock();
    outcome(free())?;
    queues.by_handle.remove(&vcq.handle);
    drop(queues);
    if let Some(table) = TABLE.write().as_mut() {
        table.vcqs.remove(&vcq.handle);
    }
    Ok(())
}

/// The VCQ of a handle. A freed or unknown handle ends the program: on the machine it leads to memory that is no VCQ.
pub fn find(call: &str, handle: utofu_vcq_hdl_t) -> Arc<Vcq> {
    let table = TABLE.read();
    let vcq = table.as_ref().and_then(|table| table.vcqs.get(&handle));
    vcq.cloned().unwrap_or_else(|| {
        broken(
            call,
            "no VCQ has this handle: it was freed, or never created",
        )
    })
}

/// The address behind a STADD of a VCQ of this process; `None` for another process's.
pub fn address(double: &Double, vcq_id: utofu_vcq_id_t, stadd: utofu_stadd_t) -> Option<usize> {
    let plain = double.plain(vcq_id);
    let table = TABLE.read();
    let vcq = table.as_ref()?.vcqs.values().find(|vcq| vcq.id == plain)?;
    let queues = vcq.cq.queues.lock();
    let registered = &queues.by_handle.get(&vcq.handle)?.registered;
    let (first, memory) = registered.range(..=stadd).next_back()?;
    let offset = (stadd - first) as usize;
    (offset < memory.length).then_some(memory.address + offset)
}

/// A thread in a call of §3.6 or §3.7 on a VCQ.
pub(crate) struct VcqCall(Arc<Vcq>);

impl VcqCall {
    /// Errors: none; another thread in such a call ends the program (guide §2.5).
    pub fn new(double: &Double, call: &str, handle: utofu_vcq_hdl_t) -> Self {
        let vcq = find(call, handle);
        if !vcq.thread_safe && vcq.cq.busy.swap(true, Acquire) {
            let (tni, cq) = (vcq.cq.tni, vcq.cq.number);
            broken(
                call,
                format_args!(
                    "two threads use VCQs that share CQ {cq} of TNI {tni} at the same time and are not thread-safe"
                ),
            );
        }
        if double.config.yields {
            std::thread::yield_now();
        }
        VcqCall(vcq)
    }

    pub fn vcq(&self) -> &Vcq {
        &self.0
    }

    pub fn queues(&self) -> MutexGuard<'_, VcqTable> {
        self.0.cq.queues.lock()
    }
}

impl Drop for VcqCall {
    fn drop(&mut self) {
        if !self.0.thread_safe {
            self.0.cq.busy.store(false, Release);
        }
    }
}

impl VcqTable {
    /// The state of a VCQ of this CQ.
    pub fn of(&mut self, vcq: &Vcq) -> &mut VcqState {
        self.by_handle.entry(vcq.handle).or_default()
    }

    /// Number of descriptors with unread TCQ descriptors.
    pub fn unread(&self) -> usize {
        self.by_handle
            .values()
            .map(|queue| queue.flights.unread())
            .sum()
    }

    /// Polls the library for all VCQs of the CQ. Errors: codes of the library that belong to no completion.
    pub fn look(&mut self, double: &Double) -> UtofuResult {
        let tick = self.tcq_polls;
        for (handle, queue) in &mut self.by_handle {
            loop {
                let mut cbdata = std::ptr::null_mut();
                // SAFETY:
                // - the VCQ exists, and the pointers are valid for the results. This thread holds the CQ.
                let code = unsafe { (double.real.utofu_poll_tcq)(*handle, 0, &mut cbdata) };
                match code {
                    UTOFU_ERR_NOT_FOUND => break,
                    UTOFU_SUCCESS | UTOFU_ERR_TCQ_LENGTH..=UTOFU_ERR_TCQ_OTHER => {
                        queue.flights.came(code, tick);
                    }
                    code => return Err(code),
                }
            }
        }
        for queue in self.by_handle.values_mut() {
            let polls = queue.mrq_polls;
            let notices = queue.flights.fail(tick).into_iter();
            queue
                .mrq
                .extend(notices.map(|(code, notice)| (polls, code, notice)));
        }
        Ok(())
    }

    /// The next TCQ descriptor of a VCQ: its code and cbdata.
    pub fn poll_tcq(
        &mut self,
        double: &Double,
        vcq: &Vcq,
    ) -> Result<Option<(c_int, usize)>, c_int> {
        self.tcq_polls += 1;
        self.look(double)?;
        if let Some(last) = self.tcq_polls.checked_sub(double.config.late) {
            for queue in self.by_handle.values_mut() {
                queue.tcq.extend(queue.flights.read(last));
            }
        }
        let queue = self.of(vcq);
        Ok(queue.tcq.pop_front().map(|(serial, code, cbdata)| {
            queue.flights.told(serial, code);
            (code, cbdata)
        }))
    }

    /// The result of the query. 0 means that all commands are sent.
    pub fn query_unread(&mut self, double: &Double) -> Result<usize, c_int> {
        self.look(double)?;
        let unread = self.unread();
        if unread == 0 {
            for queue in self.by_handle.values_mut() {
                queue.flights.all_sent();
            }
        }
        Ok(unread)
    }

    /// Number of descriptors in the MRQ of a VCQ. A full MRQ ends the program: it would overflow, and the machine cannot recover.
    pub fn check_mrq(&mut self, double: &Double, call: &str, vcq: &Vcq) -> Result<usize, c_int> {
        let mut unread = 0;
        // SAFETY:
        // - the VCQ exists, and the pointer is valid for the number. This thread is in a call on the VCQ.
        outcome(unsafe { (double.real.utofu_query_num_unread_mrq)(vcq.handle, &mut unread) })?;
        let held = unread + self.of(vcq).mrq.len();
        counts::at_least(Most::Mrq, held);
        if held >= double.config.mrq {
            broken(
                call,
                format_args!(
                    "the MRQ has {} entries, and holds {held} unpolled descriptors",
                    double.config.mrq
                ),
            );
        }
        Ok(held)
    }

    /// The next notice of a VCQ, with its code.
    pub fn poll_mrq(
        &mut self,
        double: &Double,
        vcq: &Vcq,
    ) -> Result<Option<(c_int, utofu_mrq_notice)>, c_int> {
        self.look(double)?;
        let queue = self.of(vcq);
        queue.mrq_polls += 1;
        loop {
            let mut notice = utofu_mrq_notice::default();
            // SAFETY:
            // - the VCQ exists, and the pointer is valid for the notice. This thread is in a call on the VCQ.
            let code = unsafe { (double.real.utofu_poll_mrq)(vcq.handle, 0, &mut notice) };
            match code {
                UTOFU_ERR_NOT_FOUND => break,
                UTOFU_SUCCESS | UTOFU_ERR_MRQ_RMT_LENGTH..=UTOFU_ERR_MRQ_OTHER => {
                    queue.mrq.push_back((queue.mrq_polls, code, notice));
                }
                code => return Err(code),
            }
        }
        let is_due = |(came, ..): &(u64, c_int, utofu_mrq_notice)| {
            came + double.config.late <= queue.mrq_polls
        };
        if !queue.mrq.front().is_some_and(is_due) {
            return Ok(None);
        }
        Ok(queue.mrq.pop_front().map(|(_, code, notice)| {
            queue
                .flights
                .landed(&notice, double.plain(notice.vcq_id), code);
            (code, notice)
        }))
    }
}
