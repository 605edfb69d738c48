//! Each call fails once on demand. The test sees the failure; the next same call works, or refuses its arguments itself.

use std::ffi::{c_int, c_void};

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::alone;

/// An arbitrary argument. The injected failure precedes its use.
trait Nothing {
    fn nothing() -> Self;
}
macro_rules! nothing {
    ($($ty:ty)*) => {$(
        impl Nothing for $ty {
            fn nothing() -> Self { Default::default() }
        }
    )*};
}
nothing! { u8 u16 u32 u64 usize }
impl<T> Nothing for *mut T {
    fn nothing() -> Self {
        std::ptr::null_mut()
    }
}

/// Whether a call has failed on demand.
trait Failed {
    fn has_failed(self) -> bool;
}
impl Failed for c_int {
    fn has_failed(self) -> bool {
        self == UTOFU_ERR_OUT_OF_RESOURCE
    }
}
/// With null pointers the effect is not visible here. `versions_are_not_told` tests it.
impl Failed for () {
    fn has_failed(self) -> bool {
        true
    }
}

macro_rules! fail_all {
    ($(fn $name:ident($($parameter:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        fn failed() -> Vec<&'static str> {
            let mut failed = Vec::new();
            $(
                if call!($name($(<$ty as Nothing>::nothing()),*)).has_failed() {
                    failed.push(stringify!($name));
                }
            )*
            failed
        }
    };
}
utofu_functions!(fail_all);

#[test]
fn every_call_fails_once() {
    let settings: Vec<String> = UtofuFunctions::NAMES
        .iter()
        .map(|name| format!("fail={name}:1:ERR_OUT_OF_RESOURCE"))
        .collect();
    alone(&settings.join(","), || {
        assert_eq!(failed(), UtofuFunctions::NAMES);
        let told = counts();
        for name in UtofuFunctions::NAMES {
            assert_eq!(
                (&told["calls"][name], &told["injected"][name]),
                (&1.into(), &1.into()),
                "{name}"
            );
        }
        // The second call works.
        let (a, b) = two();
        assert_eq!(a.put(&b, TCQ, 1), UTOFU_SUCCESS);
        assert_eq!(a.next_tcq(), (UTOFU_SUCCESS, 1));
        assert_eq!(counts()["injected"]["utofu_put"], 1);
        assert_eq!((a.deregister(), a.free()), (UTOFU_SUCCESS, UTOFU_SUCCESS));
    });
}

#[test]
fn versions_are_not_told() {
    let settings =
        "fail=utofu_query_tofu_version:2:ERR_FATAL,fail=utofu_query_utofu_version:2:ERR_FATAL";
    alone(settings, || {
        for query in [
            tofu().utofu_query_tofu_version,
            tofu().utofu_query_utofu_version,
        ] {
            let told = || {
                let mut versions = (-1, -1);
                // SAFETY:
                // - both pointers are valid for writes.
                unsafe { query(&mut versions.0, &mut versions.1) };
                versions
            };
            assert!(told() > (0, 0));
            assert_eq!(told(), (-1, -1));
            assert!(told() > (0, 0));
        }
    });
}

#[test]
fn some_calls_fail_and_do_nothing() {
    let settings = "fail=utofu_put:2:ERR_BUSY,fail=utofu_nop:every3:ERR_FULL,fail=utofu_reg_mem:2:ERR_OUT_OF_MEMORY";
    alone(settings, || {
        let a = TestVcq::new(0, 0);
        let mut stadd = 77;
        let register = |stadd: &mut u64| {
            let address = a.memory.cast::<c_void>();
            call!(utofu_reg_mem(a.handle, address, SIZE, 0, stadd))
        };
        assert_eq!((register(&mut stadd), stadd), (UTOFU_ERR_OUT_OF_MEMORY, 77));
        assert_eq!(register(&mut stadd), UTOFU_SUCCESS);
        assert_eq!(a.put(&a, TCQ, 1), UTOFU_SUCCESS);
        assert_eq!(a.put(&a, TCQ, 2), UTOFU_ERR_BUSY);
        assert_eq!(a.put(&a, TCQ, 3), UTOFU_SUCCESS);
        assert_eq!((a.next_tcq().1, a.next_tcq().1), (1, 3));
        let nops: Vec<c_int> = (0..6)
            .map(|_| call!(utofu_nop(a.handle, 0, cbdata(0))))
            .collect();
        assert_eq!(nops, [0, 0, UTOFU_ERR_FULL, 0, 0, UTOFU_ERR_FULL]);
    });
}
