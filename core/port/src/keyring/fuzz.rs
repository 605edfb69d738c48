//! A key ring written by a hostile peer, for tests and libFuzzer.

use std::sync::Arc;

use super::*;
use crate::fuzz::write;
use unipgas_engine::loopback::{Loopback, LoopbackNet};

/// Input: the key to look up, the root's number of slots, and the bytes of the table.
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

/// Tables of two slots; the second slot has key 5.
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
