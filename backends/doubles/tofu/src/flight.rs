//! A descriptor that was posted, until nothing more can be learned of it.

use std::ffi::{c_int, c_ulong};

use unipgas_utofu_sys::*;

/// What a descriptor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    Put,
    Piggyback,
    Get,
    Armw,
    Nop,
}

/// One descriptor, as it is known when it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub kind: DescriptorKind,
    /// The remote VCQ, as the program names it.
    pub remote_id: utofu_vcq_id_t,
    /// The same without a path.
    pub peer: utofu_vcq_id_t,
    pub flags: c_ulong,
    pub edata: u64,
    /// Where there is a local range: put and get.
    pub local: utofu_stadd_t,
    pub remote: utofu_stadd_t,
    pub length: usize,
}

impl Descriptor {
    fn asks(&self, flag: c_ulong) -> bool {
        self.flags & flag != 0
    }

    /// Whether the local MRQ is told of its end.
    pub fn is_noticed(&self) -> bool {
        self.kind != DescriptorKind::Nop && self.asks(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)
    }

    /// Whether the MRQ tells of the two in their order, if of both (guide §2.2.10).
    fn is_ordered_with(&self, other: &Descriptor) -> bool {
        self.remote_id == other.remote_id && path_id_of(self.flags) == path_id_of(other.flags)
    }

    /// The notice that tells of its end (guide §3.7.6.1).
    pub fn notice(&self) -> utofu_mrq_notice {
        let length = self.length as u64;
        let (notice_type, lcl_stadd, rmt_stadd) = match self.kind {
            DescriptorKind::Get => (UTOFU_MRQ_TYPE_LCL_GET, self.local.wrapping_add(length), 0),
            DescriptorKind::Armw => (UTOFU_MRQ_TYPE_LCL_ARMW, 0, self.remote),
            _ => (UTOFU_MRQ_TYPE_LCL_PUT, 0, self.remote.wrapping_add(length)),
        };
        utofu_mrq_notice {
            notice_type,
            vcq_id: self.peer,
            edata: self.edata,
            lcl_stadd,
            rmt_stadd,
            ..utofu_mrq_notice::default()
        }
    }

    /// Whether the notice, whose VCQ id is `peer` without a path, may be that of its end. Those of errors may have no STADDs.
    fn may_be(&self, notice: &utofu_mrq_notice, peer: utofu_vcq_id_t, code: c_int) -> bool {
        let own = self.notice();
        let stadds = match self.kind {
            DescriptorKind::Get => (own.lcl_stadd, notice.lcl_stadd),
            _ => (own.rmt_stadd, notice.rmt_stadd),
        };
        self.kind != DescriptorKind::Nop
            && self.peer == peer
            && (own.notice_type, own.edata) == (notice.notice_type, notice.edata)
            && (stadds.0 == stadds.1 || code != UTOFU_SUCCESS)
    }
}

/// What was chosen for it when it was posted, instead of being carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedFailure {
    Tcq(c_int),
    Mrq(c_int),
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub part: Descriptor,
    pub cbdata: usize,
    /// Among the descriptors of its VCQ.
    pub serial: u64,
    pub failure: Option<InjectedFailure>,
    /// The poll that found its TCQ descriptor, and what that says.
    came: Option<(u64, c_int)>,
    /// Its TCQ descriptor has been read: its place in the TOQ is free.
    read: bool,
    /// The program knows that what it puts has been read from memory.
    sent: bool,
    /// The program knows that all is over.
    landed: bool,
}

impl Flight {
    /// Whether it still reads or writes local memory: until the program has got the notice that says so. A program that has asked for none may know
    /// it from elsewhere, as from a peer's answer; then it counts whether it has been sent.
    fn uses_memory(&self) -> bool {
        let awaited = match self.part.kind {
            DescriptorKind::Put => {
                self.part.is_noticed() || self.part.asks(UTOFU_ONESIDED_FLAG_TCQ_NOTICE)
            }
            DescriptorKind::Get => self.part.is_noticed(),
            _ => return false,
        };
        match self.part.kind {
            DescriptorKind::Put if awaited => !self.sent,
            _ if awaited => !self.landed,
            // What came later to the same VCQ may have told.
            _ => !self.sent && self.came.is_none(),
        }
    }
}

/// The descriptors of a VCQ, in their order.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: Vec<Flight>,
    serial: u64,
    /// Local notices that were asked for and have not been handed out.
    noticed: usize,
}

impl Flights {
    pub fn post(&mut self, part: Descriptor, cbdata: usize, failure: Option<InjectedFailure>) {
        self.noticed += usize::from(part.is_noticed());
        self.all.push(Flight {
            part,
            cbdata,
            serial: self.serial,
            failure,
            came: None,
            read: false,
            sent: false,
            landed: false,
        });
        self.serial += 1;
    }

    pub fn noticed(&self) -> usize {
        self.noticed
    }

    /// Those that hold a place in the TOQ.
    pub fn unread(&self) -> usize {
        self.all.iter().filter(|flight| !flight.read).count()
    }

    /// The library has handed out the next TCQ descriptor: it tells of each that it has, in their order.
    pub fn came(&mut self, code: c_int, tick: u64) {
        let waits = |flight: &&mut Flight| flight.failure.is_none() && flight.came.is_none();
        if let Some(flight) = self.all.iter_mut().find(waits) {
            flight.came = Some((tick, code));
        }
    }

    /// Those that are to fail come in their order, too: the local notices that they send.
    pub fn fail(&mut self, tick: u64) -> Vec<(c_int, utofu_mrq_notice)> {
        let mut notices = Vec::new();
        for flight in &mut self.all {
            match (flight.came, flight.failure) {
                (Some(_), _) => {}
                (None, None) => break,
                (None, Some(InjectedFailure::Tcq(code))) => flight.came = Some((tick, code)),
                (None, Some(InjectedFailure::Mrq(code))) => {
                    flight.came = Some((tick, UTOFU_SUCCESS));
                    notices.push((code, flight.part.notice()));
                }
            }
        }
        notices
    }

    /// Reads the TCQ descriptors that have come by poll number `tick`: those that the program is told of, each with its serial number, code and cbdata.
    pub fn read(&mut self, tick: u64) -> Vec<(u64, c_int, usize)> {
        let mut told = Vec::new();
        for flight in self.all.iter_mut().filter(|flight| !flight.read) {
            let Some((_, code)) = flight.came.filter(|(came, _)| *came <= tick) else {
                break;
            };
            flight.read = true;
            if code != UTOFU_SUCCESS || flight.part.asks(UTOFU_ONESIDED_FLAG_TCQ_NOTICE) {
                told.push((flight.serial, code, flight.cbdata));
            }
        }
        self.forget();
        told
    }

    /// The program has got the TCQ descriptor of that number: those before it have been sent (guide §2.2.10).
    pub fn told(&mut self, serial: u64, code: c_int) {
        for flight in self.all.iter_mut().filter(|flight| flight.serial <= serial) {
            flight.sent = true;
            if code != UTOFU_SUCCESS && flight.serial == serial && !flight.landed {
                flight.landed = true;
                self.noticed -= usize::from(flight.part.is_noticed());
            }
        }
        self.forget();
    }

    /// The program knows that the TOQ is empty.
    pub fn all_sent(&mut self) {
        self.all.iter_mut().for_each(|flight| flight.sent = true);
        self.forget();
    }

    /// The program has got this notice: what was posted before to the same VCQ by the same path is over, too.
    pub fn landed(&mut self, notice: &utofu_mrq_notice, peer: utofu_vcq_id_t, code: c_int) {
        let told = |flight: &&Flight| {
            !flight.landed
                && (code != UTOFU_SUCCESS || flight.part.is_noticed())
                && flight.part.may_be(notice, peer, code)
        };
        let Some(last) = self
            .all
            .iter()
            .find(told)
            .map(|flight| (flight.serial, flight.part))
        else {
            return;
        };
        for flight in &mut self.all {
            let is_it = flight.serial == last.0;
            let is_before = flight.serial < last.0 && flight.part.is_ordered_with(&last.1);
            if !flight.landed && (is_it || is_before) {
                flight.landed = true;
                flight.sent = true;
                self.noticed -= usize::from(flight.part.is_noticed());
            }
        }
        self.forget();
    }

    /// Who still uses the memory from `first` on of `length` bytes.
    pub fn user_of(&self, first: utofu_stadd_t, length: usize) -> Option<&Descriptor> {
        let uses = |flight: &&Flight| {
            let part = &flight.part;
            flight.uses_memory()
                && part.length > 0
                && part.local < first + length as u64
                && first < part.local + part.length as u64
        };
        self.all.iter().find(uses).map(|flight| &flight.part)
    }

    /// Nothing more is to be learned of what the program has got all that it asked for of.
    fn forget(&mut self) {
        self.all.retain(|flight| {
            let part = &flight.part;
            let is_over = if part.is_noticed() {
                flight.landed
            } else {
                flight.sent || !part.asks(UTOFU_ONESIDED_FLAG_TCQ_NOTICE)
            };
            !(flight.read && is_over)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(flags: c_ulong) -> Descriptor {
        Descriptor {
            kind: DescriptorKind::Put,
            remote_id: 1,
            peer: 1,
            flags,
            edata: 0,
            local: 0,
            remote: 0,
            length: 8,
        }
    }

    #[test]
    fn what_comes_later_tells_that_memory_is_free() {
        let mut flights = Flights::default();
        flights.post(put(0), 1, None);
        flights.post(put(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), 2, None);
        assert!(flights.user_of(0, 8).is_some());
        flights.landed(&put(0).notice(), 1, UTOFU_SUCCESS);
        assert!(flights.user_of(0, 8).is_none());
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut flights = Flights::default();
        flights.post(put(0), 1, None);
        flights.post(put(UTOFU_ONESIDED_FLAG_TCQ_NOTICE), 2, None);
        flights.post(put(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), 3, None);
        for tick in [1, 1, 2] {
            flights.came(UTOFU_SUCCESS, tick);
        }
        assert_eq!((flights.read(0), flights.unread()), (Vec::new(), 3));
        assert_eq!((flights.read(1), flights.all.len()), (vec![(1, 0, 2)], 2));
        flights.told(1, UTOFU_SUCCESS);
        assert_eq!((flights.all.len(), flights.unread()), (1, 1));
        assert_eq!((flights.read(2), flights.unread()), (Vec::new(), 0));
        assert_eq!((flights.all.len(), flights.noticed()), (1, 1));
        flights.landed(&put(0).notice(), 1, UTOFU_SUCCESS);
        assert_eq!((flights.all.len(), flights.noticed()), (0, 0));
    }
}
