//! Circuits of barrier gates (guide §2.3). TNIs pass packets on without a processor.

use std::ffi::c_ulong;
use std::ptr::null_mut;

use unipgas_core::circuit::{Circuit, GateNetwork, GateOp};
use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use crate::library::UtofuLibrary;
use crate::vcq::{failed, name};

/// The gates of this process. A process without gates reports that to the members of its groups, which may have some.
pub(crate) struct TofuGates {
    library: &'static UtofuLibrary,
    /// TNIs with gates; may be empty.
    tnis: Vec<utofu_tni_id_t>,
    ops: c_ulong,
    words: usize,
    doubles: usize,
}

/// Gates of one circuit. The first one is its begin and end; the others relay.
struct Vbg {
    library: &'static UtofuLibrary,
    ids: Vec<utofu_vbg_id_t>,
}

fn checked(code: i32, what: &str) -> Result<()> {
    match code {
        UTOFU_SUCCESS => Ok(()),
        code => Err(failed(code, what)),
    }
}

fn has_ended(code: i32, what: &str) -> Result<bool> {
    match code {
        UTOFU_ERR_NOT_COMPLETED => Ok(false),
        code => checked(code, what).map(|()| true),
    }
}

impl TofuGates {
    /// `nth`: rank of this process, which selects its first TNI.
    pub fn find(library: &'static UtofuLibrary, nth: usize) -> Self {
        let none = TofuGates {
            library,
            tnis: Vec::new(),
            ops: 0,
            words: 0,
            doubles: 0,
        };
        let calls = &library.functions;
        let (mut ids, mut count) = (null_mut(), 0);
        // SAFETY:
        // - the call fills places for the array and its length.
        let code = unsafe { (calls.utofu_get_barrier_tnis)(&raw mut ids, &raw mut count) };
        if code != UTOFU_SUCCESS || ids.is_null() || count == 0 {
            return none;
        }
        // SAFETY:
        // - contract of `utofu_get_barrier_tnis`: the array has `count` elements.
        let mut tnis = unsafe { std::slice::from_raw_parts(ids, count) }.to_vec();
        // SAFETY:
        // - the library allocates the array by malloc for the caller (guide §3.2.1.2).
        unsafe { libc::free(ids.cast()) };
        tnis.rotate_left(nth % count);
        let mut caps = null_mut();
        // SAFETY:
        // - the call fills the place with a pointer to memory of the library.
        let code = unsafe { (calls.utofu_query_barrier_caps)(tnis[0], &raw mut caps) };
        if code != UTOFU_SUCCESS || caps.is_null() {
            return none;
        }
        // SAFETY:
        // - contract of `utofu_query_barrier_caps`: the pointer is valid.
        let caps = unsafe { &*caps };
        if caps.reduce_ops & UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER == 0 {
            return none;
        }
        TofuGates {
            library,
            tnis,
            ops: caps.reduce_ops,
            words: caps.max_uint64_reduction,
            doubles: caps.max_double_reduction,
        }
    }
}

impl GateNetwork for TofuGates {
    fn claim(&self, count: usize) -> Result<Box<dyn Circuit>> {
        let mut ids = vec![UTOFU_VBG_ID_NULL; count];
        let alloc = self.library.functions.utofu_alloc_vbg;
        let claimed = self.tnis.iter().any(|tni| {
            // SAFETY:
            // - `ids` has room for `ids.len()` IDs.
            let code = unsafe {
                alloc(
                    *tni,
                    ids.len(),
                    UTOFU_VBG_FLAG_THREAD_SAFE,
                    ids.as_mut_ptr(),
                )
            };
            code == UTOFU_SUCCESS
        });
        match claimed {
            false => Err(Error::Exhausted(format!("TNIs with {count} barrier gates"))),
            true => Ok(Box::new(Vbg {
                library: self.library,
                ids,
            })),
        }
    }

    fn most(&self, by: GateOp) -> usize {
        let (needs, most) = match by {
            GateOp::Max => (UTOFU_BARRIER_CAP_REDUCE_OP_MAX, self.words),
            GateOp::Sum => (UTOFU_BARRIER_CAP_REDUCE_OP_SUM, self.words),
            GateOp::SumF64 => (UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM, self.doubles),
        };
        if self.ops & needs == 0 { 0 } else { most }
    }
}

impl Circuit for Vbg {
    fn gates(&self) -> &[u64] {
        &self.ids
    }

    fn connect(&mut self, to: &[Option<u64>], from: &[Option<u64>]) -> Result<()> {
        let count = self.ids.len();
        // Signals go around the gates of a process.
        let signal = |nth: usize| match count {
            1 => UTOFU_VBG_ID_NULL,
            _ => self.ids[nth % count],
        };
        let mut settings: Vec<_> = (0..count)
            .map(|nth| utofu_vbg_setting {
                vbg_id: self.ids[nth],
                src_lcl_vbg_id: signal(nth + count - 1),
                src_rmt_vbg_id: from[nth].unwrap_or(UTOFU_VBG_ID_NULL),
                dst_lcl_vbg_id: signal(nth + 1),
                dst_rmt_vbg_id: to[nth].unwrap_or(UTOFU_VBG_ID_NULL),
                dst_path_coords: [UTOFU_PATH_COORD_NULL; 3],
            })
            .collect();
        let set = self.library.functions.utofu_set_vbg;
        // SAFETY:
        // - `settings` has `settings.len()` elements.
        checked(
            unsafe { set(settings.as_mut_ptr(), settings.len()) },
            "utofu_set_vbg",
        )
    }

    fn meet(&mut self) -> Result<()> {
        let begin = self.library.functions.utofu_barrier;
        // SAFETY:
        // - the gate belongs to this process.
        checked(unsafe { begin(self.ids[0], 0) }, "utofu_barrier")
    }

    fn have_met(&mut self) -> Result<bool> {
        let poll = self.library.functions.utofu_poll_barrier;
        // SAFETY:
        // - as above.
        has_ended(unsafe { poll(self.ids[0], 0) }, "utofu_poll_barrier")
    }

    fn reduce(&mut self, by: GateOp, words: &[u64]) -> Result<()> {
        let (gate, count, calls) = (self.ids[0], words.len(), &self.library.functions);
        let input = words.as_ptr().cast_mut();
        // SAFETY:
        // - the gate belongs to this process. The call only reads the `count` words, and keeps no pointer to them. For sums of `f64` they are bits of `f64`.
        let code = unsafe {
            match by {
                GateOp::Max => {
                    (calls.utofu_reduce_uint64)(gate, UTOFU_REDUCE_OP_MAX, input, count, 0)
                }
                GateOp::Sum => {
                    (calls.utofu_reduce_uint64)(gate, UTOFU_REDUCE_OP_SUM, input, count, 0)
                }
                GateOp::SumF64 => (calls.utofu_reduce_double)(
                    gate,
                    UTOFU_REDUCE_OP_BFPSUM,
                    input.cast(),
                    count,
                    0,
                ),
            }
        };
        checked(code, "utofu_reduce")
    }

    fn poll_reduced(&mut self, by: GateOp, words: &mut [u64]) -> Result<bool> {
        let (gate, into, calls) = (self.ids[0], words.as_mut_ptr(), &self.library.functions);
        // SAFETY:
        // - contract of `Circuit::is_reduced`: `words` has as many elements as the input of `reduce`.
        let code = unsafe {
            match by {
                GateOp::SumF64 => (calls.utofu_poll_reduce_double)(gate, 0, into.cast()),
                GateOp::Max | GateOp::Sum => (calls.utofu_poll_reduce_uint64)(gate, 0, into),
            }
        };
        has_ended(code, "utofu_poll_reduce")
    }
}

impl Drop for Vbg {
    fn drop(&mut self) {
        let free = self.library.functions.utofu_free_vbg;
        // SAFETY:
        // - `claim` allocated the gates, and this is their last use.
        let code = unsafe { free(self.ids.as_mut_ptr(), self.ids.len()) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_free_vbg: {}", name(code));
        }
    }
}
