//! Posted descriptors. Each is kept until all its notices are read.

use std::ffi::{c_int, c_ulong};

use unipgas_utofu_sys::*;

/// The operation of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    Put,
    Piggyback,
    Get,
    Armw,
    Nop,
}

/// A descriptor with the properties that are fixed at its creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub kind: DescriptorKind,
    /// The id of the remote VCQ that the program gave.
    pub remote_id: utofu_vcq_id_t,
    /// The same id without a path.
    pub peer: utofu_vcq_id_t,
    pub flags: c_ulong,
    pub edata: u64,
    /// The local STADD of a put or get.
    pub local: utofu_stadd_t,
    pub remote: utofu_stadd_t,
    pub length: usize,
}

impl Descriptor {
    fn asks(&self, flag: c_ulong) -> bool {
        self.flags & flag != 0
    }

    /// Whether its end gives a notice in the local MRQ.
    pub fn is_noticed(&self) -> bool {
        self.kind != DescriptorKind::Nop && self.asks(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)
    }

    /// Whether the notices of the two descriptors are in order in the MRQ (guide §2.2.10).
    fn is_ordered_with(&self, other: &Descriptor) -> bool {
        self.remote_id == other.remote_id && path_id_of(self.flags) == path_id_of(other.flags)
    }

    /// The notice of its end (guide §3.7.6.1).
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

    /// Whether this may be the notice of its end. `peer` is the VCQ id of the notice without a path. Notices of errors may have no STADDs.
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

/// The failure that was chosen at the post. The descriptor is then not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedFailure {
    Tcq(c_int),
    Mrq(c_int),
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub part: Descriptor,
    pub cbdata: usize,
    /// Serial number among the descriptors of its VCQ.
    pub serial: u64,
    pub failure: Option<InjectedFailure>,
    /// The poll that found its TCQ descriptor, and the code.
    came: Option<(u64, c_int)>,
    /// Its TCQ descriptor is read: its place in the TOQ is free.
    read: bool,
    /// The program knows that the source data are read.
    sent: bool,
    /// The program knows that the operation is complete.
    landed: bool,
}

impl Flight {
    /// Whether it may still access local memory. With a requested completion, this holds until the program reads the completion. Without one, it holds until
    /// the descriptor is sent: the program may know the rest from a peer's answer.
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
            // A later notice for the same VCQ may also have confirmed it.
            _ => !self.sent && self.came.is_none(),
        }
    }
}

/// The descriptors of a VCQ, in posting order.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: Vec<Flight>,
    serial: u64,
    /// Number of local notices that are requested and not yet returned.
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

    /// Number of descriptors that occupy a place in the TOQ.
    pub fn unread(&self) -> usize {
        self.all.iter().filter(|flight| !flight.read).count()
    }

    /// The library has returned the next TCQ descriptor. It returns one for each descriptor that it executes, in order.
    pub fn came(&mut self, code: c_int, tick: u64) {
        let waits = |flight: &&mut Flight| flight.failure.is_none() && flight.came.is_none();
        if let Some(flight) = self.all.iter_mut().find(waits) {
            flight.came = Some((tick, code));
        }
    }

    /// Ends injected failures in order with the other descriptors. Returns their local notices.
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

    /// Reads the TCQ descriptors that arrived up to poll number `tick`. Returns serial number, code and cbdata of those for the program: requested ones, and
    /// errors.
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

    /// The program has read the TCQ descriptor with this serial number: it and all earlier descriptors are sent (guide §2.2.10).
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

    /// The program has read this notice. Earlier descriptors to the same VCQ by the same path are complete, too.
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

    /// A descriptor that may still access the `length` bytes from `first` on.
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

    /// Removes descriptors with a free place in the TOQ and no unread notice.
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
