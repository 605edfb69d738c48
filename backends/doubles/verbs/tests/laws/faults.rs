//! Faults on demand.

use unipgas_verbs_sys::*;

use crate::api::inject;
use crate::process::alone;
use crate::requests::*;
use crate::side::*;

#[test]
fn addresses_change() {
    alone("", || {
        let (one, other) = Side::plain_pair();
        let before = one.lid();
        inject(c"lid_change");
        assert_eq!(one.event().event_type, IBV_EVENT_LID_CHANGE);
        assert_ne!(one.lid(), before);
        // No port has the old address any more.
        one.start(&wr(1, IBV_WR_RDMA_WRITE, 0, 8).to(&other.address(), 0));
        assert_eq!(one.ends(), (1, IBV_WC_RETRY_EXC_ERR));
    });
}
