//! Regions imported through chaos are not mapped, for any backend below.

use std::sync::Arc;

use unipgas_chaos::{Chaos, ChaosConfig};
use unipgas_core::loopback::{Loopback, LoopbackNet};
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Rights};

#[test]
fn nothing_that_is_imported_is_mapped() {
    let net = Arc::new(LoopbackNet::default());
    let plain = Loopback::join(&net);
    let owner = Loopback::join(&net);
    let memory = owner.allocate(4096, Rights::FULL).unwrap();
    let import = |transport: &dyn Transport| {
        let peer = transport.connect(&owner.address()).unwrap();
        peer.import(&memory.key(), Deadline::Never).unwrap()
    };
    let mapped = import(&plain);
    assert!(mapped.is_direct() && !mapped.parts().base.is_null());

    let chaos = Chaos::wrap(Arc::new(plain), ChaosConfig::seeded(1));
    assert!(!chaos.capabilities().maps && !chaos.capabilities().direct);
    let hidden = import(&chaos);
    let parts = hidden.parts();
    assert!(!hidden.is_direct() && parts.base.is_null());
    assert!(parts.bell.is_null() && parts.locks.is_null());
    assert_eq!((parts.len, parts.rights), (4096, Rights::FULL));
    assert!(hidden.is_current());
    drop(memory);
    assert!(!hidden.is_current() && !mapped.is_current());
}
