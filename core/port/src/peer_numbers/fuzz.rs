//! Corrupt tables of numbers.

use std::sync::Arc;

use super::*;
use crate::fuzz::write;
use unipgas_engine::loopback::{Loopback, LoopbackNet};

/// Input: the id of a peer (8 bytes), then a table. Owner and peer look the id up.
pub(crate) fn numbers(bytes: &[u8]) {
    let Some((id, table)) = bytes.split_first_chunk() else {
        return;
    };
    let id = u64::from_le_bytes(*id);
    let net = Arc::new(LoopbackNet::default());
    let engine = || Engine::new(vec![Arc::new(Loopback::join(&net))]).expect("a backend");
    let (mine, yours) = (engine(), engine());
    let all = PeerNumbers::new(&yours, table.len().div_ceil(EACH).max(1)).expect("memory");
    write(all.region(), table);
    let name = [7; NAME_LEN];
    let address = yours.address().expect("an address");
    let connection = mine.connect(&address).expect("a connection");
    let region = connection.import(&all.region().key()).expect("memory");
    let service = Service::new(&mine).expect("an endpoint");
    let there = number_there(&mine, &service, &region, id, &name, || Err(Error::Ended));
    let here = all.number(id, &name);
    if let (Ok(there), Ok(here)) = (&there, &here) {
        assert_eq!(there, here);
        assert!((*here as usize) < all.numbers);
        all.free(*here);
    }
    for number in [0, 1, all.numbers as u32, u32::MAX] {
        let _ = all.name(number);
        all.free(number);
    }
    assert!(all.taken().1 <= all.numbers);
}

/// Tables with two claims of one peer, and with settled entries.
pub(crate) fn tables() -> Vec<Vec<u8>> {
    let id = 40u64;
    let words = [
        [FREE; 3],
        [id | CLAIMED, FREE, id | CLAIMED],
        [id | CHOSEN, 80 | NAMED, id | CLAIMED],
        [80 | NAMED, 120 | NAMED, id | NAMED],
        [80 | NAMED, 120 | CHOSEN, 160 | CLAIMED],
    ];
    let table = |words: &[u64; 3]| {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(bytemuck::cast_slice::<u64, u8>(words));
        bytes.resize(8 + 3 * EACH, 9);
        bytes
    };
    words.iter().map(table).collect()
}
