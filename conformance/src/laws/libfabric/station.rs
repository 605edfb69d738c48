//! The objects of one endpoint, opened as a program opens them.

use super::kit::*;
use super::library::{self, Info, getinfo};

/// The structure [`Plan`], its default, and for each field a method that gives the plan with another value.
macro_rules! plan {
    ($lifetime:lifetime; $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr;)+) => {
        /// Requests of a program.
        #[derive(Clone, Copy)]
        pub(crate) struct Plan<$lifetime> {
            $($(#[$doc])* pub(crate) $field: $type,)+
        }

        impl Plan<'_> {
            /// Messages, RMA and atomics, with registration as FI_MR_BASIC.
            pub(crate) const DEFAULT: Plan<'static> = Plan { $($field: $default),+ };
        }

        impl<$lifetime> Plan<$lifetime> {
            $(pub(crate) const fn $field(self, $field: $type) -> Self {
                Plan { $field, ..self }
            })+
        }
    };
}

plan! {
    'a;
    version: u32 = version(1, 17);
    caps: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    mr_mode: c_int = BASIC;
    order: u64 = 0;
    op_flags: u64 = 0;
    threading: c_int = FI_THREAD_SAFE;
    progress: c_int = FI_PROGRESS_UNSPEC;
    av_type: c_int = FI_AV_TABLE;
    format: c_int = FI_CQ_FORMAT_TAGGED;
    wait: c_int = FI_WAIT_NONE;
    condition: c_int = FI_CQ_COND_NONE;
    entries: usize = 0;
    /// FI_SELECTIVE_COMPLETION for both directions.
    selective: bool = false;
    /// Whether there are completion queues.
    queues: bool = true;
    /// One counter for each element: the events that it counts.
    counters: &'a [u64] = &[];
}

impl Plan<'_> {
    /// Counters have a descriptor if queues have one.
    fn wait_of_counters(&self) -> i32 {
        match self.wait {
            FI_WAIT_FD => FI_WAIT_FD,
            _ => FI_WAIT_UNSPEC,
        }
    }

    pub(crate) fn hints(&self) -> Info {
        let mut hints = Info::hints();
        hints.info().caps = self.caps;
        hints.transmit().msg_order = self.order;
        hints.transmit().op_flags = self.op_flags;
        hints.receive().msg_order = self.order;
        hints.domain().mr_mode = self.mr_mode;
        hints.domain().threading = self.threading;
        hints.domain().data_progress = self.progress;
        hints.domain().av_type = self.av_type;
        hints
    }
}

/// The objects of an endpoint.
pub(crate) struct Station {
    pub(crate) info: Info,
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    pub(crate) av: *mut fid_av,
    /// Completions of transmits.
    pub(crate) tx: Queue,
    /// Completions of receives.
    pub(crate) rx: Queue,
    pub(crate) counters: Vec<*mut fid_cntr>,
    pub(crate) ep: *mut fid_ep,
}

impl Station {
    /// Opens fabric, domain, vector, queues, counters, and an enabled endpoint that is bound to them.
    pub(crate) fn open(plan: &Plan<'_>) -> Result<Station, String> {
        let mut station = Station::without_endpoint(plan)?;
        station.ep = station.enabled(plan)?;
        Ok(station)
    }

    pub(crate) fn without_endpoint(plan: &Plan<'_>) -> Result<Station, String> {
        let info = getinfo(plan.version, 0, Some(&plan.hints()))
            .map_err(|code| format!("fi_getinfo gave {code}"))?;
        Station::of(info, plan)
    }

    /// As [`Station::without_endpoint`], from a result of fi_getinfo(3).
    pub(crate) fn of(info: Info, plan: &Plan<'_>) -> Result<Station, String> {
        let mut station = Station {
            info,
            fabric: null_mut(),
            domain: null_mut(),
            av: null_mut(),
            tx: Queue(null_mut()),
            rx: Queue(null_mut()),
            counters: Vec::new(),
            ep: null_mut(),
        };
        let fabric: *mut fi_fabric_attr = station.info.fabric();
        // SAFETY:
        // - fi_getinfo(3) has returned the info; the result has room for a pointer.
        let code = unsafe {
            (*fabric).api_version = plan.version;
            let provider = &*library::provider();
            (provider.fabric)(fabric, &mut station.fabric, null_mut())
        };
        crate::ensure_eq!(code, 0, "fi_fabric");
        ok!(obj station.fabric, domain(station.info.raw(), &mut station.domain, null_mut()));
        let mut attr = av_attr(station.info.domain().av_type, 0);
        ok!(obj station.domain, av_open(&mut attr, &mut station.av, null_mut()));
        if plan.queues {
            station.tx = open_queue(station.domain, plan)?;
            station.rx = open_queue(station.domain, plan)?;
        }
        for _ in plan.counters {
            let counter = station.counter_with(plan.wait_of_counters())?;
            station.counters.push(counter);
        }
        Ok(station)
    }

    /// A further counter, without a binding.
    pub(crate) fn counter(&self) -> Result<*mut fid_cntr, String> {
        self.counter_with(FI_WAIT_UNSPEC)
    }

    /// As [`Station::counter`], with a wait object.
    pub(crate) fn counter_with(&self, wait_obj: i32) -> Result<*mut fid_cntr, String> {
        let mut attr = counter_attr(wait_obj, null_mut());
        Ok(open!(obj self.domain, cntr_open(&mut attr)))
    }

    /// An endpoint without bindings.
    pub(crate) fn bare(&self) -> Result<*mut fid_ep, String> {
        Ok(open!(obj self.domain, endpoint(self.info.raw())))
    }

    /// An endpoint with all bindings, not enabled.
    pub(crate) fn endpoint(&self, plan: &Plan<'_>) -> Result<*mut fid_ep, String> {
        let ep = self.bare()?;
        ok!(fid ep, bind(self.av.cast(), 0));
        if plan.queues {
            let selective = FI_SELECTIVE_COMPLETION * u64::from(plan.selective);
            ok!(fid ep, bind(self.tx.0.cast(), FI_TRANSMIT | selective));
            ok!(fid ep, bind(self.rx.0.cast(), FI_RECV | selective));
        }
        for (counter, counted) in self.counters.iter().zip(plan.counters) {
            ok!(fid ep, bind(counter.cast(), *counted));
        }
        Ok(ep)
    }

    /// As [`Station::endpoint`], enabled.
    pub(crate) fn enabled(&self, plan: &Plan<'_>) -> Result<*mut fid_ep, String> {
        let ep = self.endpoint(plan)?;
        ok!(fid ep, control(FI_ENABLE, null_mut()));
        Ok(ep)
    }

    /// The counters, of which the plan has this number.
    pub(crate) fn counted<const N: usize>(&self) -> Result<[*mut fid_cntr; N], String> {
        let counters = self.counters[..].try_into();
        counters.map_err(|_| format!("{} counters instead of {N}", self.counters.len()))
    }

    /// The sizes of the transmit and the receive context.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let info = self.info.raw();
        // SAFETY:
        // - fi_getinfo(3) has returned the info with its attributes.
        unsafe { ((*(*info).tx_attr).size, (*(*info).rx_attr).size) }
    }

    /// The endpoint's name.
    pub(crate) fn name(&self) -> Result<[u8; NAME], String> {
        name_of(self.ep)
    }

    /// The address of a name.
    pub(crate) fn insert(&self, name: &[u8]) -> Result<u64, String> {
        let mut address = FI_ADDR_NOTAVAIL;
        let count =
            call!(obj self.av, insert(name.as_ptr().cast(), 1, &mut address, 0, null_mut()));
        crate::ensure_eq!(count, 1, "fi_av_insert of one name");
        Ok(address)
    }

    /// Registers memory for all accesses by peers.
    pub(crate) fn register(&self, memory: Memory, key: u64) -> Result<Registered, String> {
        self.register_for(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, key)
    }

    pub(crate) fn register_for(
        &self,
        memory: Memory,
        access: u64,
        key: u64,
    ) -> Result<Registered, String> {
        let mut mr = null_mut();
        let code = call!(mr self.domain, reg(memory.base.cast(), memory.len, access, 0, key, 0, &mut mr, null_mut()));
        crate::ensure_eq!(code, 0, "fi_mr_reg");
        Ok(self.registered(mr, memory))
    }

    /// Key and base of a region of this memory.
    pub(crate) fn registered(&self, mr: *mut fid_mr, memory: Memory) -> Registered {
        // SAFETY:
        // - the region has just been registered; the program may read its members.
        let key = unsafe { (*mr).key };
        // SAFETY:
        // - as above.
        let mode = unsafe { (*(*self.info.raw()).domain_attr).mr_mode };
        let base = match mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) {
            0 => 0,
            _ => memory.base.addr() as u64,
        };
        Registered { mr, key, base }
    }

    /// Closes all objects, the endpoint first.
    pub(crate) fn close(self) -> Verdict {
        close(self.ep)?;
        self.close_the_rest()
    }

    pub(crate) fn close_the_rest(self) -> Verdict {
        self.counters.into_iter().try_for_each(close)?;
        for queue in [self.tx, self.rx] {
            if !queue.0.is_null() {
                close(queue.0)?;
            }
        }
        close(self.av)?;
        close(self.domain)?;
        close(self.fabric)
    }
}

/// A registration, and its key and base for peers.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) mr: *mut fid_mr,
    pub(crate) key: u64,
    pub(crate) base: u64,
}

pub(crate) fn av_attr(kind: c_int, flags: u64) -> fi_av_attr {
    fi_av_attr {
        r#type: kind,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: std::ptr::null(),
        map_addr: null_mut(),
        flags,
    }
}

/// Opens an address vector.
pub(crate) fn vector(station: &Station, kind: c_int, flags: u64) -> Result<*mut fid_av, String> {
    let mut attr = fi_av_attr {
        count: 4,
        ..av_attr(kind, flags)
    };
    Ok(open!(obj station.domain, av_open(&mut attr)))
}

/// Opens a completion queue as planned.
pub(crate) fn open_queue(domain: *mut fid_domain, plan: &Plan<'_>) -> Result<Queue, String> {
    Ok(Queue(open!(obj domain, cq_open(&mut queue_attr(plan)))))
}

/// The attributes of a completion queue.
pub(crate) fn queue_attr(plan: &Plan<'_>) -> fi_cq_attr {
    fi_cq_attr {
        size: plan.entries,
        flags: 0,
        format: plan.format,
        wait_obj: plan.wait,
        signaling_vector: 0,
        wait_cond: plan.condition,
        wait_set: null_mut(),
    }
}

/// The attributes of a counter.
pub(crate) fn counter_attr(wait_obj: c_int, wait_set: *mut fid_wait) -> fi_cntr_attr {
    fi_cntr_attr {
        events: 0,
        wait_obj,
        wait_set: wait_set.cast(),
        flags: 0,
    }
}

/// An endpoint's name.
pub(crate) fn name_of(ep: *mut fid_ep) -> Result<[u8; NAME], String> {
    let (mut name, mut len) = ([0; NAME], NAME);
    ok!(cm ep, getname(name.as_mut_ptr().cast(), &mut len));
    crate::ensure_eq!(len, NAME, "the length of a name");
    Ok(name)
}

/// fi_close(3).
pub(crate) fn close<T>(object: *mut T) -> Verdict {
    let object: *mut fid = object.cast();
    // SAFETY:
    // - laws close each opened object once; each object begins with its `fid`.
    let (class, code) = unsafe { ((*object).fclass, ((*(*object).ops).close)(object)) };
    crate::ensure_eq!(code, 0, "fi_close of an object of class {class}");
    Ok(())
}
