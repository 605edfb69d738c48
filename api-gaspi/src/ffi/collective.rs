//! §6 and §11: groups and collective operations.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use unipgas_core::Error;
use unipgas_core::schedule::PAYLOAD;

use super::{given, procedures, put};
use crate::environment::process;
use crate::reduce::{Datatype, ReductionOperation};
use crate::status::{Result, Status};

pub use unipgas_gaspi_sys::{
    gaspi_reduce_operation_17_t as ReduceOperation17, gaspi_reduce_operation_t as ReduceOperation,
};

/// Results of callbacks, aligned for each element type.
#[repr(align(64))]
struct Aligned([u8; PAYLOAD]);

/// The result of a reduction callback.
fn answered(code: i32) -> unipgas_core::Result<()> {
    match code {
        0 => Ok(()),
        1 => Err(Error::Timeout),
        _ => Err(Error::InvalidArgument(
            "the reduction's callback failed".into(),
        )),
    }
}

/// The buffers of a reduction as slices. Errors: [`Status::ErrNullptr`], [`Status::ErrInvSize`].
///
/// # Safety
/// Both buffers are null or have `len` bytes, and do not overlap unless they are the same.
unsafe fn buffers<R>(
    send: *const u8,
    receive: *mut u8,
    len: Option<usize>,
    run: impl FnOnce(&[u8], &mut [u8]) -> Result<R>,
) -> Result<R> {
    given(send)?;
    given(receive)?;
    let len = len
        .filter(|len| *len <= PAYLOAD)
        .ok_or(Status::ErrInvSize)?;
    // Some programs pass one buffer for both. The input is copied before the result is written.
    let mut input = [MaybeUninit::<u8>::uninit(); PAYLOAD];
    // SAFETY:
    // - contract of this function: both buffers have `len` bytes.
    // - the first `len` bytes of `input` are initialised by the copy.
    unsafe {
        std::ptr::copy_nonoverlapping(send, input.as_mut_ptr().cast(), len);
        run(
            std::slice::from_raw_parts(input.as_ptr().cast(), len),
            std::slice::from_raw_parts_mut(receive, len),
        )
    }
}

/// As [`buffers`], without a limit of the length.
///
/// # Safety
/// As for [`buffers`].
unsafe fn long_buffers<R>(
    send: *const u8,
    receive: *mut u8,
    len: usize,
    run: impl FnOnce(&[u8], &mut [u8]) -> Result<R>,
) -> Result<R> {
    if len <= PAYLOAD {
        // SAFETY:
        // - same contract as this function.
        return unsafe { buffers(send, receive, Some(len), run) };
    }
    given(send)?;
    given(receive)?;
    // SAFETY:
    // - contract of this function: both buffers have `len` bytes. They do not overlap unless they are the same; then the input is copied.
    unsafe {
        let receive = std::slice::from_raw_parts_mut(receive, len);
        if std::ptr::eq(send, receive.as_ptr()) {
            let input = receive.to_vec();
            run(&input, receive)
        } else {
            run(std::slice::from_raw_parts(send, len), receive)
        }
    }
}

procedures! {
    fn gaspi_group_create | pgaspi_group_create(group: *mut u8) with process {
        let process = process()?;
        given(group)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(group, process.group_create()?) }
    }

    fn gaspi_group_add | pgaspi_group_add(group: u8, rank: u16) with process {
        process()?.group_add(group, rank)
    }

    fn gaspi_group_commit | pgaspi_group_commit(group: u8, timeout: u64) with process {
        process()?.group_commit(group, timeout)
    }

    fn gaspi_group_delete | pgaspi_group_delete(group: u8) with process {
        process()?.group_delete(group)
    }

    fn gaspi_group_num | pgaspi_group_num(num: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(num, process()?.group_num()) }
    }

    fn gaspi_group_size | pgaspi_group_size(group: u8, size: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(size, process()?.group_ranks(group)?.len() as u32) }
    }

    fn gaspi_group_ranks | pgaspi_group_ranks(group: u8, ranks: *mut u16) with process {
        let process = process()?;
        given(ranks)?;
        for (i, rank) in process.group_ranks(group)?.into_iter().enumerate() {
            // SAFETY:
            // - C contract: `ranks` has room for gaspi_group_size entries.
            unsafe { ranks.add(i).write(rank) };
        }
        Ok(())
    }

    fn gaspi_barrier | pgaspi_barrier(group: u8, timeout: u64) with process {
        process()?.barrier(group, timeout)
    }

    fn gaspi_allreduce | pgaspi_allreduce(
        send: *const u8, receive: *mut u8, num: u32, operation: u32, datatype: u32, group: u8,
        timeout: u64,
    ) with process {
        let process = process()?;
        given(send)?;
        given(receive)?;
        let operation = ReductionOperation::from_c(operation)?;
        let datatype = Datatype::from_c(datatype)?;
        if num == 0 || num > process.config().allreduce_elem_max {
            return Err(Status::ErrInvNum);
        }
        let len = num as usize * datatype.size();
        // SAFETY:
        // - C contract: both buffers hold `num` elements (§11.3.1).
        unsafe {
            long_buffers(send, receive, len, |send, receive| {
                process.allreduce(send, receive, num, operation, datatype, group, timeout)
            })
        }
    }

    fn gaspi_allreduce_user | pgaspi_allreduce_user(
        send: *const u8, receive: *mut u8, num: u32, size: u64,
        operation: Option<ReduceOperation>, state: *mut c_void, group: u8, timeout: u64,
    ) with process {
        let process = process()?;
        let operation = operation.ok_or(Status::ErrNullptr)?;
        let len = (num as usize).checked_mul(size as usize);
        let mut combined = Aligned([0u8; PAYLOAD]);
        // SAFETY:
        // - C contract: both buffers hold `num` elements of `size` bytes (§11.4.1).
        unsafe {
            buffers(send, receive, len, |send, receive| {
                process.allreduce_user(send, receive, group, timeout, &mut |held, other| {
                    let (one, two) = (held.as_mut_ptr(), other.as_ptr().cast_mut());
                    answered(operation(one, two, combined.0.as_mut_ptr(), state, num, size, timeout))?;
                    held.copy_from_slice(&combined.0[..held.len()]);
                    Ok(())
                })
            })
        }
    }

    fn gaspi_allreduce_user_17 | pgaspi_allreduce_user_17(
        send: *const u8, receive: *mut u8, num: u32, size: u64,
        operation: Option<ReduceOperation17>, state: *mut c_void, group: u8, timeout: u64,
    ) with process {
        let process = process()?;
        let operation = operation.ok_or(Status::ErrNullptr)?;
        let len = (num as usize).checked_mul(size as usize);
        let mut combined = Aligned([0u8; PAYLOAD]);
        // SAFETY:
        // - as above.
        unsafe {
            buffers(send, receive, len, |send, receive| {
                process.allreduce_user(send, receive, group, timeout, &mut |held, other| {
                    let bytes = size as usize;
                    for (i, (one, two)) in
                        held.chunks_exact(bytes).zip(other.chunks_exact(bytes)).enumerate()
                    {
                        let result = combined.0[i * bytes..].as_mut_ptr();
                        answered(operation(one.as_ptr(), two.as_ptr(), result, state, timeout))?;
                    }
                    held.copy_from_slice(&combined.0[..held.len()]);
                    Ok(())
                })
            })
        }
    }
}
