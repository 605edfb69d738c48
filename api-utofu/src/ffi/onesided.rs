//! §3.7.1 one-sided communication start, §3.7.2 preparation, §3.7.3 batch start. Each operation has two functions: one posts its commands, the other
//! writes them as descriptors.

use libc::{c_ulong, c_void};
use unipgas_core::port::{Command, CommandKind, DEPTH, Rmw};
use unipgas_core::waits;

use super::entry::{functions, given};
use crate::command::{CommandTarget, Packets, Stride, armw_op, blocks, check_packets, is_delayed};
use crate::status::{Result, ReturnCode};
use crate::vcq::{Vcq, vcq};
use unipgas_utofu_sys::UtofuFunctions;

const WHOLE: Packets = Packets {
    mtu: crate::caps::MAX_MTU,
    gap: 0,
};

#[inline(always)]
fn target(vcq_id: u64, stadd: u64, edata: u64, flags: c_ulong) -> CommandTarget {
    CommandTarget {
        vcq_id,
        stadd,
        edata,
        flags,
    }
}

/// The first `len` bytes at `data`. Errors: [`ReturnCode::InvalidPointer`], [`ReturnCode::InvalidSize`].
///
/// # Safety
/// `data` is null or has `len` bytes.
unsafe fn carried(data: *const u8, len: usize) -> Result<[u64; 4]> {
    let mut bytes = [0u64; 4];
    if len > size_of_val(&bytes) {
        return Err(ReturnCode::InvalidSize);
    }
    if len > 0 {
        given(data)?;
        // SAFETY:
        // - contract of this call: a pointer that is not null has `len` bytes. They fit, as checked above.
        unsafe { data.copy_to_nonoverlapping(bytes.as_mut_ptr().cast(), len) };
    }
    Ok(bytes)
}

/// Writes descriptors. Errors: [`ReturnCode::InvalidPointer`] for a pointer that is null, or for a `desc` that is not aligned to 8 bytes.
///
/// # Safety
/// `desc` is null or has room for them; `desc_size` is null or valid.
unsafe fn write(
    commands: impl Iterator<Item = Command>,
    desc: *mut c_void,
    desc_size: *mut usize,
) -> Result<()> {
    given(desc)?;
    given(desc_size)?;
    let desc = desc.cast::<Command>();
    if !desc.is_aligned() {
        return Err(ReturnCode::InvalidPointer);
    }
    let mut written = 0;
    for command in commands {
        // SAFETY:
        // - contract of this call: `desc` has room for all commands.
        unsafe { desc.add(written).write(command) };
        written += 1;
    }
    // SAFETY:
    // - contract of this call: a pointer that is not null is valid.
    unsafe { super::entry::put(desc_size, written * Command::SIZE) }
}

/// Defines the function `$name`, which posts by `$post`, and `$prepare`, which writes descriptors by `$write`.
macro_rules! entry {
    (
        fn $name:ident | $prepare:ident ($($arg:ident: $ty:ty),*);
        |$vcq:ident, $context:ident| $post:block
        |$desc:ident, $desc_size:ident| $write:block
    ) => {
        /// Jumps to the engine or to the machine's library, so that the choice costs neither of them a call.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(vcq_hdl: usize, $($arg: $ty,)* cbdata: *mut c_void) -> i32 {
            $crate::ffi::native::jump!($name::WAY)
        }

        mod $name {
            use super::*;

            pub(super) type Function = unsafe extern "C" fn(usize, $($ty,)* *mut c_void) -> i32;
            /// Destination of the jump. It changes at most once, before the program has a handle.
            pub static mut WAY: Function = by_engine;

            /// Sends all later calls to the machine's library.
            pub fn take_over(native: &UtofuFunctions) {
                // SAFETY:
                // - an aligned pointer, which readers load at once.
                // - the machine's function differs in the names of types only.
                unsafe {
                    let theirs = std::mem::transmute::<*const (), Function>(native.$name as *const ());
                    (&raw mut WAY).write_volatile(theirs);
                }
            }

            unsafe extern "C" fn by_engine(vcq_hdl: usize, $($arg: $ty,)* cbdata: *mut c_void) -> i32 {
                let call = unipgas_core::prototype!($name(vcq_hdl: usize, $($arg: $ty,)* cbdata: *mut c_void));
                $crate::ffi::entry::code(call, || {
                    let held = vcq(vcq_hdl)?;
                    let $vcq: &Vcq = &held;
                    let $context = cbdata as u64;
                    $post
                })
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $prepare(
            vcq_hdl: usize, $($arg: $ty,)* $desc: *mut c_void, $desc_size: *mut usize,
        ) -> i32 {
            let call = unipgas_core::prototype!(
                $prepare(vcq_hdl: usize, $($arg: $ty,)* $desc: *mut c_void, $desc_size: *mut usize)
            );
            if let Some(native) = $crate::ffi::native::get() {
                // SAFETY:
                // - contract of this call: the same C contract.
                let code = unsafe { (native.$prepare)(vcq_hdl, $($arg as _,)* $desc, $desc_size) };
                return $crate::ffi::native::returned(call, code);
            }
            $crate::ffi::entry::code(call, || {
                let held = vcq(vcq_hdl)?;
                let $vcq: &Vcq = &held;
                $write
            })
        }
    };
}

/// `$name` first tries the fast path `$now`, then posts the command of `$make`. `$prepare` writes the command as a descriptor.
macro_rules! both {
    ($(
        fn $name:ident | $prepare:ident ($($arg:ident: $ty:ty),* $(,)?) by $flags:ident: |$vcq:ident| $make:block
        $(now |$context:ident| $now:block)?
    )*) => {$(
        entry! {
            fn $name | $prepare ($($arg: $ty),*);
            |$vcq, cbdata| {
                $(
                    let $context = cbdata;
                    if let Some(done) = $now {
                        return done;
                    }
                )?
                // `move`: references to the arguments would force them into memory.
                long_way(stringify!($name), move || {
                    let command: Command = $make?;
                    // SAFETY:
                    // - threads: the C contract (§2.5).
                    unsafe { $vcq.post(&command, is_delayed($flags), cbdata) }
                })
            }
            |desc, desc_size| {
                let command: Command = $make?;
                // SAFETY:
                // - room for one descriptor, by the C contract.
                unsafe { write(std::iter::once(command), desc, desc_size) }
            }
        }
    )*};
}

#[cold]
#[inline(never)]
fn long_way(name: &'static str, way: impl FnOnce() -> Result<()>) -> Result<()> {
    let _inside = waits::inside(name);
    way()
}

/// `both` for functions that make one descriptor for each block.
macro_rules! both_strided {
    ($(fn $name:ident | $prepare:ident ($($arg:ident: $ty:ty),* $(,)?) by $stride:expr; |$vcq:ident| $make:block)*) => {$(
        entry! {
            fn $name | $prepare ($($arg: $ty),*);
            |$vcq, cbdata| {
                let first: Command = $make?;
                // SAFETY:
                // - threads: the C contract (§2.5).
                unsafe { $vcq.post_stride(&first, $stride, cbdata) }
            }
            |desc, desc_size| {
                let first: Command = $make?;
                // SAFETY:
                // - room for one descriptor for each block, by the C contract.
                unsafe { write(blocks(&first, $stride)?, desc, desc_size) }
            }
        }
    )*};
}

both! {
    fn utofu_put | utofu_prepare_put(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        vcq.transfer(CommandKind::Put, &target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_stadd, length)
    } now |context| {
        // SAFETY:
        // - threads: the C contract (§2.5).
        unsafe { vcq.put_fast(&target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_stadd, length, context) }
    }

    fn utofu_put_gap | utofu_prepare_put_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
        mtu: usize, gap: usize,
    ) by flags: |vcq| {
        check_packets(Packets { mtu, gap }).and_then(|()| {
            vcq.transfer(CommandKind::Put, &target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_stadd, length)
        })
    }

    fn utofu_put_piggyback | utofu_prepare_put_piggyback(
        rmt_vcq_id: u64, lcl_data: *const u8, rmt_stadd: u64, length: usize, edata: u64,
        flags: c_ulong,
    ) by flags: |vcq| {
        // SAFETY:
        // - null or `length` bytes, by the C contract.
        unsafe { carried(lcl_data, length) }.and_then(|bytes| {
            vcq.piggyback(&target(rmt_vcq_id, rmt_stadd, edata, flags), bytes, length)
        })
    } now |context| {
        // SAFETY:
        // - threads, and null or `length` bytes: the C contract.
        unsafe {
            vcq.piggyback_fast(&target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_data, length, context)
        }
    }

    fn utofu_put_piggyback8 | utofu_prepare_put_piggyback8(
        rmt_vcq_id: u64, lcl_data: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        if length > 8 {
            Err(ReturnCode::InvalidSize)
        } else {
            // The less significant bits come first (§3.7.1.6): little-endian.
            let bytes = [lcl_data.to_le(), 0, 0, 0];
            vcq.piggyback(&target(rmt_vcq_id, rmt_stadd, edata, flags), bytes, length)
        }
    } now |context| {
        let word = lcl_data.to_le();
        if length == 8 && rmt_stadd.is_multiple_of(8) {
            // SAFETY:
            // - threads: the C contract.
            unsafe { vcq.word_fast(&target(rmt_vcq_id, rmt_stadd, edata, flags), word, context) }
        } else if length > 8 {
            None
        } else {
            let bytes = word.to_ne_bytes();
            let data = bytes.as_ptr();
            // SAFETY:
            // - threads: the C contract.
            // - the array has 8 bytes, and `length` is at most 8.
            unsafe {
                vcq.piggyback_fast(&target(rmt_vcq_id, rmt_stadd, edata, flags), data, length, context)
            }
        }
    }

    fn utofu_get | utofu_prepare_get(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        vcq.transfer(CommandKind::Get, &target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_stadd, length)
    }

    fn utofu_get_gap | utofu_prepare_get_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, edata: u64, flags: c_ulong,
        mtu: usize, gap: usize,
    ) by flags: |vcq| {
        check_packets(Packets { mtu, gap }).and_then(|()| {
            vcq.transfer(CommandKind::Get, &target(rmt_vcq_id, rmt_stadd, edata, flags), lcl_stadd, length)
        })
    }

    fn utofu_armw4 | utofu_prepare_armw4(
        rmt_vcq_id: u64, armw_op: u32, op_value: u32, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        self::armw_op(armw_op).and_then(|op| {
            vcq.armw(&target(rmt_vcq_id, rmt_stadd, edata, flags), false, op, op_value.into(), 0)
        })
    }

    fn utofu_armw8 | utofu_prepare_armw8(
        rmt_vcq_id: u64, armw_op: u32, op_value: u64, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        self::armw_op(armw_op).and_then(|op| {
            vcq.armw(&target(rmt_vcq_id, rmt_stadd, edata, flags), true, op, op_value, 0)
        })
    } now |context| {
        let target = target(rmt_vcq_id, rmt_stadd, edata, flags);
        // SAFETY:
        // - threads: the C contract (§2.5).
        self::armw_op(armw_op).ok().and_then(|op| unsafe { vcq.armw8_fast(&target, op, [op_value, 0], context) })
    }

    fn utofu_cswap4 | utofu_prepare_cswap4(
        rmt_vcq_id: u64, old_value: u32, new_value: u32, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        let (new, old) = (new_value.into(), old_value.into());
        vcq.armw(&target(rmt_vcq_id, rmt_stadd, edata, flags), false, Rmw::CompareSwap, new, old)
    }

    fn utofu_cswap8 | utofu_prepare_cswap8(
        rmt_vcq_id: u64, old_value: u64, new_value: u64, rmt_stadd: u64, edata: u64, flags: c_ulong,
    ) by flags: |vcq| {
        let target = target(rmt_vcq_id, rmt_stadd, edata, flags);
        vcq.armw(&target, true, Rmw::CompareSwap, new_value, old_value)
    } now |context| {
        let target = target(rmt_vcq_id, rmt_stadd, edata, flags);
        // SAFETY:
        // - threads: the C contract (§2.5).
        unsafe { vcq.armw8_fast(&target, Rmw::CompareSwap, [new_value, old_value], context) }
    }

    fn utofu_nop | utofu_prepare_nop(flags: c_ulong) by flags: |vcq| { vcq.nop(flags) }
}

both_strided! {
    fn utofu_put_stride | utofu_prepare_put_stride(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize,
        num_blocks: usize, edata: u64, flags: c_ulong,
    ) by Stride { bytes: stride, blocks: num_blocks }; |vcq| {
        strided(vcq, CommandKind::Put, &target(rmt_vcq_id, rmt_stadd, edata, flags), (lcl_stadd, length), WHOLE)
    }

    fn utofu_put_stride_gap | utofu_prepare_put_stride_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize,
        num_blocks: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
    ) by Stride { bytes: stride, blocks: num_blocks }; |vcq| {
        let packets = Packets { mtu, gap };
        strided(vcq, CommandKind::Put, &target(rmt_vcq_id, rmt_stadd, edata, flags), (lcl_stadd, length), packets)
    }

    fn utofu_get_stride | utofu_prepare_get_stride(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize,
        num_blocks: usize, edata: u64, flags: c_ulong,
    ) by Stride { bytes: stride, blocks: num_blocks }; |vcq| {
        strided(vcq, CommandKind::Get, &target(rmt_vcq_id, rmt_stadd, edata, flags), (lcl_stadd, length), WHOLE)
    }

    fn utofu_get_stride_gap | utofu_prepare_get_stride_gap(
        rmt_vcq_id: u64, lcl_stadd: u64, rmt_stadd: u64, length: usize, stride: usize,
        num_blocks: usize, edata: u64, flags: c_ulong, mtu: usize, gap: usize,
    ) by Stride { bytes: stride, blocks: num_blocks }; |vcq| {
        let packets = Packets { mtu, gap };
        strided(vcq, CommandKind::Get, &target(rmt_vcq_id, rmt_stadd, edata, flags), (lcl_stadd, length), packets)
    }
}

fn strided(
    vcq: &Vcq,
    kind: CommandKind,
    target: &CommandTarget,
    (local, len): (u64, usize),
    packets: Packets,
) -> Result<Command> {
    check_packets(packets)?;
    vcq.transfer(kind, target, local, len)
}

functions! {
    fn utofu_post_toq(vcq_hdl: usize, desc: *const c_void, desc_size: usize, cbdata: *mut c_void) {
        let vcq = vcq(vcq_hdl)?;
        let commands: &[Command] = if desc_size == 0 {
            &[]
        } else {
            given(desc)?;
            let desc = desc.cast::<Command>();
            if !desc.is_aligned() {
                return Err(ReturnCode::InvalidPointer);
            }
            // The queue never has room for more, so the size is wrong. No descriptor is read.
            if !desc_size.is_multiple_of(Command::SIZE) || desc_size > DEPTH * Command::SIZE {
                return Err(ReturnCode::InvalidSize);
            }
            // SAFETY:
            // - not null, aligned, and `desc_size` bytes by the C contract. All byte values are valid in a command.
            unsafe { std::slice::from_raw_parts(desc, desc_size / Command::SIZE) }
        };
        // SAFETY:
        // - threads: the C contract (§2.5).
        unsafe { vcq.post_descriptors(commands, cbdata as u64) }
    }
}

/// Sends all later calls that start communication to the machine's library.
pub(crate) fn take_over(native: &UtofuFunctions) {
    macro_rules! all {
        ($($name:ident)*) => { $($name::take_over(native);)* };
    }
    all! {
        utofu_put utofu_put_gap utofu_put_piggyback utofu_put_piggyback8 utofu_get utofu_get_gap utofu_armw4 utofu_armw8 utofu_cswap4 utofu_cswap8 utofu_nop
        utofu_put_stride utofu_put_stride_gap utofu_get_stride utofu_get_stride_gap
    }
}
