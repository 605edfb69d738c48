//! Operations on consecutive u64 of a peer.

use super::kit::*;

/// The operand of most operations: it outlives all of them.
pub(crate) static ONE: u64 = 1;

/// The arguments of an operation. A method for each call posts it.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    pub(crate) ep: *mut fid_ep,
    /// Address of the peer, remote address and key.
    pub(crate) place: (u64, u64, u64),
    pub(crate) count: usize,
    pub(crate) operand: *const u64,
    pub(crate) result: *mut u64,
    pub(crate) context: *mut c_void,
}

/// A method of [`Words`].
pub(crate) type Operation = fn(&Words) -> isize;

impl Words {
    /// An operation on one u64 with the operand 1, without a result.
    pub(crate) fn new(ep: *mut fid_ep, place: (u64, u64, u64)) -> Words {
        Words {
            ep,
            place,
            count: 1,
            operand: &raw const ONE,
            result: null_mut(),
            context: null_mut(),
        }
    }

    /// The same operation with a place for its results.
    pub(crate) fn into(self, result: *mut u64) -> Words {
        Words { result, ..self }
    }

    /// The same operation with another operand.
    pub(crate) fn from(self, operand: *const u64) -> Words {
        Words { operand, ..self }
    }

    /// The same operation by another endpoint.
    pub(crate) fn by(self, ep: *mut fid_ep) -> Words {
        Words { ep, ..self }
    }

    /// The same operation with a context.
    pub(crate) fn told(self, context: usize) -> Words {
        let context = cx(context);
        Words { context, ..self }
    }

    /// The same operation `more` bytes further.
    pub(crate) fn behind(self, more: u64) -> Words {
        let (to, at, key) = self.place;
        let place = (to, at + more, key);
        Words { place, ..self }
    }

    /// The same operation under another key.
    pub(crate) fn under(self, key: u64) -> Words {
        let place = (self.place.0, self.place.1, key);
        Words { place, ..self }
    }

    /// The same operation on the peer with this address.
    pub(crate) fn of(self, to: u64) -> Words {
        let place = (to, self.place.1, self.place.2);
        Words { place, ..self }
    }

    /// fi_atomic, FI_SUM.
    pub(crate) fn add(&self) -> isize {
        self.atomic(UINT64, SUM)
    }

    /// fi_atomic.
    pub(crate) fn atomic(&self, datatype: c_int, op: c_int) -> isize {
        let (to, at, key) = self.place;
        call!(atomic self.ep, write(self.operand.cast(), self.count, null_mut(), to, at, key, datatype, op, self.context))
    }

    /// fi_inject_atomic, FI_SUM.
    pub(crate) fn inject_add(&self) -> isize {
        let (to, at, key) = self.place;
        call!(atomic self.ep, inject(self.operand.cast(), self.count, to, at, key, UINT64, SUM))
    }

    /// fi_fetch_atomic, FI_SUM.
    pub(crate) fn fetch_add(&self) -> isize {
        self.fetch(SUM)
    }

    /// fi_fetch_atomic, FI_ATOMIC_READ, without an operand.
    pub(crate) fn load(&self) -> isize {
        self.from(null()).fetch(READ)
    }

    /// fi_fetch_atomic.
    pub(crate) fn fetch(&self, op: c_int) -> isize {
        let (to, at, key) = self.place;
        call!(atomic self.ep, readwrite(self.operand.cast(), self.count, null_mut(), self.result.cast(), null_mut(), to, at, key, UINT64, op, self.context))
    }

    /// fi_compare_atomic, FI_CSWAP. The operand is the comparand.
    pub(crate) fn swap(&self) -> isize {
        self.compare(self.operand, CSWAP)
    }

    /// fi_compare_atomic.
    pub(crate) fn compare(&self, compare: *const u64, op: c_int) -> isize {
        let (to, at, key) = self.place;
        call!(atomic self.ep, compwrite(self.operand.cast(), self.count, null_mut(), compare.cast(), null_mut(), self.result.cast(), null_mut(), to, at, key, UINT64, op, self.context))
    }

    /// fi_write.
    pub(crate) fn write(&self) -> isize {
        let (to, at, key) = self.place;
        call!(rma self.ep, write(self.operand.cast(), 8 * self.count, null_mut(), to, at, key, self.context))
    }

    /// fi_inject_write.
    pub(crate) fn inject(&self) -> isize {
        let (to, at, key) = self.place;
        call!(rma self.ep, inject(self.operand.cast(), 8 * self.count, to, at, key))
    }

    /// fi_writedata.
    pub(crate) fn write_data(&self, data: u64) -> isize {
        let (to, at, key) = self.place;
        call!(rma self.ep, writedata(self.operand.cast(), 8 * self.count, null_mut(), data, to, at, key, self.context))
    }

    /// fi_inject_writedata.
    pub(crate) fn inject_data(&self, data: u64) -> isize {
        let (to, at, key) = self.place;
        call!(rma self.ep, injectdata(self.operand.cast(), 8 * self.count, data, to, at, key))
    }

    /// fi_read.
    pub(crate) fn read(&self) -> isize {
        let (to, at, key) = self.place;
        call!(rma self.ep, read(self.result.cast(), 8 * self.count, null_mut(), to, at, key, self.context))
    }

    /// fi_send of the operand.
    pub(crate) fn send(&self) -> isize {
        call!(msg self.ep, send(self.operand.cast(), 8 * self.count, null_mut(), self.place.0, self.context))
    }
}
