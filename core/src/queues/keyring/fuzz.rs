//! A ring of keys as a peer has written it, for tests and libFuzzer.

use std::sync::Arc;

use super::*;
use crate::loopback::{Loopback, LoopbackNet};

/// The key that is looked for, the number of places that the root names, and the root's and the first places' bytes.
pub fn ring(bytes: &[u8]) {
    let Some((key, rest)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let Some((places, table)) = rest.split_first_chunk::<8>() else {
        return;
    };
    let net = Arc::new(LoopbackNet::default());
    let engine = || Engine::new(vec![Arc::new(Loopback::join(&net))]).expect("a backend");
    let (mine, yours) = (engine(), engine());
    let region = yours
        .allocate(table.len().next_multiple_of(8).max(8), Rights::READ)
        .expect("memory");
    write(&region, table);
    let root = Root {
        sequence: 0,
        listed: 1,
        places: u64::from_le_bytes(*places),
        table: *region.key().as_bytes(),
    };
    let home = yours
        .allocate(size_of::<Root>(), Rights::READ)
        .expect("memory");
    write(&home, bytemuck::bytes_of(&root));
    let service = Service::new(&mine).expect("an endpoint");
    let address = yours.address().expect("an address");
    let connection = mine.connect(&address).expect("a connection");
    let mut keys = RemoteKeys::new(&connection, &home.key()).expect("a ring");
    let _ = keys.find(&mine, &service, u64::from_le_bytes(*key));
}

fn write(region: &Region, bytes: &[u8]) {
    let place = region.local(0, bytes.len()).expect("room");
    // SAFETY:
    // - so many bytes of a region that lives, and that nobody else uses yet.
    unsafe {
        place
            .ptr
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
}

/// A table of two places, the second of which has the key 5.
pub fn rings() -> Vec<Vec<u8>> {
    let place = |state, key| Place {
        state,
        key,
        len: 64,
        access: 3,
        ..Place::zeroed()
    };
    let table = [place(GONE, 0), place(LIVE, 5)];
    [2u64, u64::MAX / 2 + 1]
        .map(|places| {
            let head = [5u64.to_le_bytes(), places.to_le_bytes()];
            [head.as_flattened(), bytemuck::cast_slice(&table)].concat()
        })
        .to_vec()
}
