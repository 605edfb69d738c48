//! Each start function with its preparation function, callable with given arguments (§3.7.1, §3.7.2).

use super::kit::*;
use super::wrong::TOO_LONG;

/// Arguments of a start function. Each function ignores the arguments that it lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) hdl: usize,
    pub(super) to: u64,
    pub(super) local: u64,
    pub(super) remote: u64,
    pub(super) len: usize,
    pub(super) edata: u64,
    pub(super) flags: u64,
    pub(super) op: u32,
    /// The word of a piggyback, the operand of an ARMW, or the new value of a compare and swap.
    pub(super) value: u64,
    /// The compare operand.
    pub(super) old: u64,
    pub(super) mtu: usize,
    pub(super) gap: usize,
    pub(super) stride: usize,
    pub(super) blocks: usize,
    pub(super) data: *const u8,
    pub(super) desc: *mut u8,
    pub(super) size: *mut usize,
    pub(super) cbdata: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) start: fn(&Call) -> i32,
    pub(super) prepare: fn(&Call) -> i32,
    /// Its arguments besides handle and flags.
    pub(super) takes: &'static str,
    /// The maximum length.
    pub(super) most: usize,
}

impl Call {
    /// Between the own memory and a rank's memory, 8 bytes without flags.
    pub(super) fn to(job: &Job<'_>, rank: u32) -> Call {
        Call {
            hdl: job.hdl,
            to: job.vcq(rank),
            local: job.stadd,
            remote: job.at(rank, 0),
            len: 8,
            edata: 0,
            flags: 0,
            op: ADD,
            value: 1,
            old: 0,
            mtu: 1920,
            gap: 255,
            stride: 8,
            blocks: 1,
            data: job.memory.base,
            desc: null_mut(),
            size: null_mut(),
            cbdata: 0,
        }
    }
}

impl Function {
    /// The function of this name.
    pub(super) fn named(name: &str) -> Function {
        let mut all = functions().into_iter();
        all.find(|function| function.name == name)
            .expect("a start function")
    }

    /// Posts the call, of no more bytes than the function takes.
    pub(super) fn post(&self, call: &Call) -> i32 {
        let len = call.len.min(self.most);
        (self.start)(&Call { len, ..*call })
    }

    /// The type of its local notices.
    pub(super) fn local_type(&self) -> u8 {
        post::local_type(self.name)
    }

    /// The commands and the notices of a kind that a call for so many blocks gives.
    pub(super) fn counts(&self, blocks: usize) -> (usize, usize) {
        let commands = match self.takes.contains("blocks") {
            true => blocks,
            false => 1,
        };
        match self.name {
            "utofu_nop" => (commands, 0),
            _ => (commands, commands),
        }
    }
}

/// Both forms of each function, with the same arguments.
macro_rules! functions {
    ($($start:ident, $prepare:ident: $takes:literal, $most:expr, |$a:ident| $($arg:expr),*;)*) => {
        /// All start functions with their preparation functions.
        pub(super) fn functions() -> Vec<Function> {
            vec![$(Function {
                name: stringify!($start),
                start: |$a| c!($start($a.hdl, $($arg),*, cb($a.cbdata))),
                prepare: |$a| c!($prepare($a.hdl, $($arg),*, $a.desc.cast(), $a.size)),
                takes: $takes,
                most: $most,
            }),*]
        }
    };
}

const LONGEST: usize = TOO_LONG - 1;

functions! {
    utofu_put, utofu_prepare_put: "target local", LONGEST, |a| a.to, a.local, a.remote, a.len, a.edata, a.flags;
    utofu_put_gap, utofu_prepare_put_gap: "target local packets", LONGEST, |a| a.to, a.local, a.remote, a.len, a.edata, a.flags, a.mtu, a.gap;
    utofu_put_stride, utofu_prepare_put_stride: "target local blocks", LONGEST, |a| a.to, a.local, a.remote, a.len, a.stride, a.blocks, a.edata, a.flags;
    utofu_put_stride_gap, utofu_prepare_put_stride_gap: "target local blocks packets", LONGEST, |a| a.to, a.local, a.remote, a.len, a.stride, a.blocks, a.edata, a.flags, a.mtu, a.gap;
    utofu_put_piggyback, utofu_prepare_put_piggyback: "target data", 32, |a| a.to, a.data.cast_mut().cast(), a.remote, a.len, a.edata, a.flags;
    utofu_put_piggyback8, utofu_prepare_put_piggyback8: "target", 8, |a| a.to, a.value, a.remote, a.len, a.edata, a.flags;
    utofu_get, utofu_prepare_get: "target local", LONGEST, |a| a.to, a.local, a.remote, a.len, a.edata, a.flags;
    utofu_get_gap, utofu_prepare_get_gap: "target local packets", LONGEST, |a| a.to, a.local, a.remote, a.len, a.edata, a.flags, a.mtu, a.gap;
    utofu_get_stride, utofu_prepare_get_stride: "target local blocks", LONGEST, |a| a.to, a.local, a.remote, a.len, a.stride, a.blocks, a.edata, a.flags;
    utofu_get_stride_gap, utofu_prepare_get_stride_gap: "target local blocks packets", LONGEST, |a| a.to, a.local, a.remote, a.len, a.stride, a.blocks, a.edata, a.flags, a.mtu, a.gap;
    utofu_armw4, utofu_prepare_armw4: "target op", usize::MAX, |a| a.to, a.op, a.value as u32, a.remote, a.edata, a.flags;
    utofu_armw8, utofu_prepare_armw8: "target op", usize::MAX, |a| a.to, a.op, a.value, a.remote, a.edata, a.flags;
    utofu_cswap4, utofu_prepare_cswap4: "target", usize::MAX, |a| a.to, a.old as u32, a.value as u32, a.remote, a.edata, a.flags;
    utofu_cswap8, utofu_prepare_cswap8: "target", usize::MAX, |a| a.to, a.old, a.value, a.remote, a.edata, a.flags;
    utofu_nop, utofu_prepare_nop: "", usize::MAX, |a| a.flags;
}

/// Room for two descriptors.
#[repr(align(8))]
pub(super) struct Room(pub(super) [u8; 2 * DESC]);

/// A call to the next rank with all notices, and with places for the descriptor and its size.
pub(super) fn right_call(job: &Job<'_>, room: &mut Room, size: &mut usize) -> Call {
    Call {
        remote: job.at(job.right(), 256),
        edata: 255,
        flags: TCQ | LOCAL | REMOTE,
        desc: room.0.as_mut_ptr(),
        size,
        cbdata: 3,
        ..Call::to(job, job.right())
    }
}
