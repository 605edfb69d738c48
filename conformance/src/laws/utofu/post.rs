//! The one-sided commands, as laws post them.

use super::kit::*;

/// A command, all of it but its edata, flags and cbdata. Each method posts it once.
pub(crate) struct Command<F> {
    name: &'static str,
    call: F,
}

impl<F: Fn(u64, u64, *mut c_void) -> i32> Command<F> {
    /// What the call gives.
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
}

macro_rules! commands {
    ($($short:ident: $name:ident($($parameter:ident: $ty:ty),*);)*) => {$(
        pub(crate) fn $short(
            hdl: usize, vcq: u64, $($parameter: $ty),*
        ) -> Command<impl Fn(u64, u64, *mut c_void) -> i32> {
            let call = move |edata, flags, cbdata| {
                c!($name(hdl, vcq, $($parameter,)* edata, flags, cbdata))
            };
            Command { name: stringify!($name), call }
        }
    )*};
}

commands! {
    put: utofu_put(local: u64, remote: u64, len: usize);
    piggyback: utofu_put_piggyback(data: *mut c_void, remote: u64, len: usize);
    put_piggyback8: utofu_put_piggyback8(data: u64, remote: u64, len: usize);
    put_stride: utofu_put_stride(local: u64, remote: u64, len: usize, stride: usize, blocks: usize);
    get: utofu_get(local: u64, remote: u64, len: usize);
    get_stride: utofu_get_stride(local: u64, remote: u64, len: usize, stride: usize, blocks: usize);
    armw4: utofu_armw4(op: u32, value: u32, remote: u64);
    armw8: utofu_armw8(op: u32, value: u64, remote: u64);
    cswap4: utofu_cswap4(old: u32, new: u32, remote: u64);
    cswap8: utofu_cswap8(old: u64, new: u64, remote: u64);
}

/// `utofu_put_piggyback` of these bytes of the caller.
pub(crate) fn put_piggyback(
    hdl: usize,
    vcq: u64,
    data: *const u8,
    remote: u64,
    len: usize,
) -> Command<impl Fn(u64, u64, *mut c_void) -> i32> {
    piggyback(hdl, vcq, data.cast_mut().cast(), remote, len)
}
