//! The counts of calls and operations.

use unipgas_utofu_sys::*;

use crate::kit::*;
use crate::process::alone;

#[test]
fn what_is_done_is_counted() {
    alone("", || {
        let (a, b) = two();
        for number in 0..3 {
            assert_eq!(a.put(&b, TCQ | LOCAL, number), UTOFU_SUCCESS);
        }
        let sps = UTOFU_ONESIDED_FLAG_SPS(2);
        assert_eq!(a.put(&b, sps, 0), UTOFU_SUCCESS);
        let told = counts();
        assert_eq!(told["calls"]["utofu_put"], 4);
        assert_eq!(told["flags"]["TCQ_NOTICE"], 3);
        assert_eq!(told["flags"]["LOCAL_MRQ_NOTICE"], 3);
        assert_eq!(told["flags"]["SPS"], 1);
        assert!(told["flags"]["STRONG_ORDER"].is_null());
        assert_eq!(told["most"]["toq"], 4);
        assert_eq!(told["most"]["local_notices"], 3);
    });
}
