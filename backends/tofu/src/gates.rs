//! Circuits of barrier gates (guide §2.3): TNIs pass packets on without a processor.

use std::ptr::null_mut;

use unipgas_core::circuit::{Circuit, Gates};
use unipgas_core::{Error, Result};
use unipgas_utofu_sys::*;

use crate::library::Library;
use crate::vcq::{failed, name};

/// The gates of this process. Where it has none it says so to others that form a group with it, who may have some.
pub struct Vbgs {
    library: &'static Library,
    /// Those with gates that can meet.
    tnis: Vec<utofu_tni_id_t>,
}

/// Those of a circuit: the first one is where it begins and ends, the others relay.
struct Vbg {
    library: &'static Library,
    ids: Vec<utofu_vbg_id_t>,
}

fn checked(code: i32, what: &str) -> Result<()> {
    match code {
        UTOFU_SUCCESS => Ok(()),
        code => Err(failed(code, what)),
    }
}

impl Vbgs {
    /// `nth`: this process, of those of its node.
    pub fn find(library: &'static Library, nth: usize) -> Self {
        let tnis = Vbgs::tnis(library, nth).unwrap_or_default();
        Vbgs { library, tnis }
    }

    /// `None`: the TNIs have none, or none is this process's.
    fn tnis(library: &Library, nth: usize) -> Option<Vec<utofu_tni_id_t>> {
        let calls = &library.functions;
        let (mut ids, mut count) = (null_mut(), 0);
        // SAFETY:
        // - places for the array and its length.
        let code = unsafe { (calls.utofu_get_barrier_tnis)(&raw mut ids, &raw mut count) };
        if code != UTOFU_SUCCESS || ids.is_null() || count == 0 {
            return None;
        }
        // SAFETY:
        // - so many are there, by the word of the library.
        let mut tnis = unsafe { std::slice::from_raw_parts(ids, count) }.to_vec();
        // SAFETY:
        // - made by malloc for the caller (guide §3.2.1.2).
        unsafe { libc::free(ids.cast()) };
        tnis.rotate_left(nth % count);
        let mut caps = null_mut();
        // SAFETY:
        // - a place for the pointer, which leads to memory of the library's.
        let code = unsafe { (calls.utofu_query_barrier_caps)(tnis[0], &raw mut caps) };
        if code != UTOFU_SUCCESS || caps.is_null() {
            return None;
        }
        // SAFETY:
        // - there, by the word of the library.
        let meets = unsafe { *caps }.reduce_ops & UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER != 0;
        meets.then_some(tnis)
    }
}

impl Gates for Vbgs {
    fn claim(&self, rounds: u32) -> Result<Box<dyn Circuit>> {
        let mut ids = vec![UTOFU_VBG_ID_NULL; rounds as usize];
        let alloc = self.library.functions.utofu_alloc_vbg;
        let claimed = self.tnis.iter().any(|tni| {
            // SAFETY:
            // - room for so many IDs.
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
            false => Err(Error::Exhausted(format!(
                "TNIs with {rounds} barrier gates"
            ))),
            true => Ok(Box::new(Vbg {
                library: self.library,
                ids,
            })),
        }
    }
}

impl Circuit for Vbg {
    fn gates(&self) -> &[u64] {
        &self.ids
    }

    fn connect(&mut self, to: &[u64], from: &[u64]) -> Result<()> {
        let rounds = self.ids.len();
        // A gate receives what is sent in the round before the one in which it sends; signals go around the gates of a process.
        let signal = |nth: usize| match rounds {
            1 => UTOFU_VBG_ID_NULL,
            _ => self.ids[nth % rounds],
        };
        let mut settings: Vec<_> = (0..rounds)
            .map(|nth| utofu_vbg_setting {
                vbg_id: self.ids[nth],
                src_lcl_vbg_id: signal(nth + rounds - 1),
                src_rmt_vbg_id: from[(nth + rounds - 1) % rounds],
                dst_lcl_vbg_id: signal(nth + 1),
                dst_rmt_vbg_id: to[nth],
                dst_path_coords: [UTOFU_PATH_COORD_NULL; 3],
            })
            .collect();
        let set = self.library.functions.utofu_set_vbg;
        // SAFETY:
        // - so many settings.
        checked(
            unsafe { set(settings.as_mut_ptr(), settings.len()) },
            "utofu_set_vbg",
        )
    }

    fn begin(&mut self) -> Result<()> {
        let begin = self.library.functions.utofu_barrier;
        // SAFETY:
        // - a gate of this process's.
        checked(unsafe { begin(self.ids[0], 0) }, "utofu_barrier")
    }

    fn poll(&mut self) -> Result<bool> {
        let poll = self.library.functions.utofu_poll_barrier;
        // SAFETY:
        // - as above.
        match unsafe { poll(self.ids[0], 0) } {
            UTOFU_ERR_NOT_COMPLETED => Ok(false),
            code => checked(code, "utofu_poll_barrier").map(|()| true),
        }
    }
}

impl Drop for Vbg {
    fn drop(&mut self) {
        let free = self.library.functions.utofu_free_vbg;
        // SAFETY:
        // - what `claim` has got, used no more.
        let code = unsafe { free(self.ids.as_mut_ptr(), self.ids.len()) };
        if code != UTOFU_SUCCESS {
            tracing::debug!("tofu: utofu_free_vbg: {}", name(code));
        }
    }
}
