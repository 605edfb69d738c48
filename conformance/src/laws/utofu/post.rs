//! The one-sided commands in the form that laws post.

use super::kit::*;

/// A command without its edata, flags and cbdata. Each method posts it once, or prepares it.
pub(crate) struct Command<F, P> {
    name: &'static str,
    hdl: usize,
    call: F,
    prepare: P,
}

impl<F, P> Command<F, P>
where
    F: Fn(u64, u64, *mut c_void) -> i32,
    P: Fn(u64, u64, *mut c_void, &mut usize) -> i32,
{
    /// Code of the call.
    pub(crate) fn code(&self, edata: u64, flags: u64, cbdata: usize) -> i32 {
        (self.call)(edata, flags, cb(cbdata))
    }

    /// Fails unless the call succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, edata: u64, flags: u64, cbdata: usize) -> Verdict {
        self.gives(SUCCESS, edata, flags, cbdata)
    }

    /// Fails unless the call gives this code.
    #[track_caller]
    pub(crate) fn gives(&self, code: i32, edata: u64, flags: u64, cbdata: usize) -> Verdict {
        let seen = self.code(edata, flags, cbdata);
        crate::kit::gives(self.name, (seen, code), code_name)
    }

    /// Posts with a local notice and returns this notice, the next one of the MRQ.
    #[track_caller]
    pub(crate) fn noticed(&self, edata: u64, flags: u64) -> Result<utofu_mrq_notice, String> {
        self.ok(edata, flags | LOCAL, 0)?;
        let queue = Queue {
            hdl: self.hdl,
            id: 0,
        };
        queue.notice(local_type(self.name))
    }

    /// As [`noticed`](Self::noticed), with the value before an ARMW operation.
    #[track_caller]
    pub(crate) fn before(&self) -> Result<u64, String> {
        Ok(self.noticed(0, 0)?.rmt_value)
    }

    /// Writes the descriptor and returns its size; fails unless the preparation succeeds.
    #[track_caller]
    pub(crate) fn prepare<T>(&self, edata: u64, flags: u64, desc: *mut T) -> Result<usize, String> {
        let mut size = 0;
        let seen = (self.prepare)(edata, flags, desc.cast(), &mut size);
        let what = format!("the preparation of {}", self.name);
        crate::kit::gives(&what, (seen, SUCCESS), code_name)?;
        Ok(size)
    }
}

macro_rules! commands {
    ($($short:ident: $name:ident, $prepare:ident($($parameter:ident: $ty:ty),* $(; $($last:ident),*)?);)*) => {$(
        // The wrapped function has this number of arguments.
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $short(
            hdl: usize, vcq: u64, $($parameter: $ty,)* $($($last: usize),*)?
        ) -> Command<
            impl Fn(u64, u64, *mut c_void) -> i32,
            impl Fn(u64, u64, *mut c_void, &mut usize) -> i32,
        > {
            Command {
                name: stringify!($name),
                hdl,
                call: move |edata, flags, cbdata| {
                    c!($name(hdl, vcq, $($parameter,)* edata, flags, $($($last,)*)? cbdata))
                },
                prepare: move |edata, flags, desc, size: &mut usize| {
                    c!($prepare(hdl, vcq, $($parameter,)* edata, flags, $($($last,)*)? desc, size))
                },
            }
        }
    )*};
}

commands! {
    put: utofu_put, utofu_prepare_put(local: u64, remote: u64, len: usize);
    put_gap: utofu_put_gap, utofu_prepare_put_gap(local: u64, remote: u64, len: usize; mtu, gap);
    put_stride: utofu_put_stride, utofu_prepare_put_stride(local: u64, remote: u64, len: usize, stride: usize, blocks: usize);
    put_stride_gap: utofu_put_stride_gap, utofu_prepare_put_stride_gap(
        local: u64, remote: u64, len: usize, stride: usize, blocks: usize; mtu, gap);
    put_piggyback: utofu_put_piggyback, utofu_prepare_put_piggyback(data: *mut c_void, remote: u64, len: usize);
    put_piggyback8: utofu_put_piggyback8, utofu_prepare_put_piggyback8(data: u64, remote: u64, len: usize);
    get: utofu_get, utofu_prepare_get(local: u64, remote: u64, len: usize);
    get_gap: utofu_get_gap, utofu_prepare_get_gap(local: u64, remote: u64, len: usize; mtu, gap);
    get_stride: utofu_get_stride, utofu_prepare_get_stride(local: u64, remote: u64, len: usize, stride: usize, blocks: usize);
    armw4: utofu_armw4, utofu_prepare_armw4(op: u32, value: u32, remote: u64);
    armw8: utofu_armw8, utofu_prepare_armw8(op: u32, value: u64, remote: u64);
    cswap4: utofu_cswap4, utofu_prepare_cswap4(old: u32, new: u32, remote: u64);
    cswap8: utofu_cswap8, utofu_prepare_cswap8(old: u64, new: u64, remote: u64);
}

macro_rules! of_jobs {
    ($($name:ident($job:ident, $rank:ident, $($parameter:ident: $ty:ty),*) => $command:expr;)*) => {
        impl Job<'_> {$(
            /// To or from byte `there` of a rank's memory, and byte `here` of the own memory.
            pub(crate) fn $name(&self, $rank: u32, $($parameter: $ty),*) -> Command<
                impl Fn(u64, u64, *mut c_void) -> i32,
                impl Fn(u64, u64, *mut c_void, &mut usize) -> i32,
            > {
                let $job = self;
                $command
            }
        )*}
    };
}

of_jobs! {
    put(job, rank, here: usize, there: usize, len: usize) =>
        put(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len);
    get(job, rank, here: usize, there: usize, len: usize) =>
        get(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len);
    put_stride(job, rank, here: usize, there: usize, len: usize, stride: usize, blocks: usize) =>
        put_stride(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len, stride, blocks);
    get_stride(job, rank, here: usize, there: usize, len: usize, stride: usize, blocks: usize) =>
        get_stride(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len, stride, blocks);
    put_gap(job, rank, here: usize, there: usize, len: usize, mtu: usize, gap: usize) =>
        put_gap(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len, mtu, gap);
    get_gap(job, rank, here: usize, there: usize, len: usize, mtu: usize, gap: usize) =>
        get_gap(job.hdl, job.vcq(rank), job.stadd + here as u64, job.at(rank, there), len, mtu, gap);
    put_piggyback(job, rank, data: &[u8], there: usize, len: usize) =>
        put_piggyback(job.hdl, job.vcq(rank), bytes(data), job.at(rank, there), len);
    armw4(job, rank, there: usize, op: u32, value: u32) => armw4(job.hdl, job.vcq(rank), op, value, job.at(rank, there));
    armw8(job, rank, there: usize, op: u32, value: u64) => armw8(job.hdl, job.vcq(rank), op, value, job.at(rank, there));
    cswap4(job, rank, there: usize, old: u32, new: u32) => cswap4(job.hdl, job.vcq(rank), old, new, job.at(rank, there));
    cswap8(job, rank, there: usize, old: u64, new: u64) => cswap8(job.hdl, job.vcq(rank), old, new, job.at(rank, there));
    put8(job, rank, there: usize, value: u64) =>
        put_piggyback8(job.hdl, job.vcq(rank), value, job.at(rank, there), 8);
}

/// The type of the local notices of a function.
pub(crate) fn local_type(function: &str) -> u8 {
    match function {
        name if name.contains("put") => LCL_PUT,
        name if name.contains("get") => LCL_GET,
        _ => LCL_ARMW,
    }
}

/// Posts the descriptors in these bytes.
pub(crate) fn toq<T>(hdl: usize, descs: *const T, size: usize, cbdata: usize) -> Verdict {
    let descs = descs.cast_mut().cast();
    ok!(utofu_post_toq(hdl, descs, size, cb(cbdata)));
    Ok(())
}

/// Pointer to these bytes, as `put_piggyback` takes it.
pub(crate) fn bytes(data: &[u8]) -> *mut c_void {
    data.as_ptr().cast_mut().cast()
}
