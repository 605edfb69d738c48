//! Malformed addresses, keys and slots of a peer's control block.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::MemfdFlags;

use super::*;
use crate::control::Slot;
use crate::pool::{Mapping, PoolView};

/// The smallest pool.
const WINDOW: usize = 8 << 20;
/// Bytes of a record for one slot: generation and flags, offset, length, address.
const RECORD: usize = 32;

/// Reads an address, then a key, then the records of the first slots.
pub(crate) fn imports(bytes: &[u8]) {
    let Some((address, rest)) = bytes.split_at_checked(size_of::<ShmAddress>()) else {
        return;
    };
    let address: ShmAddress = bytemuck::pod_read_unaligned(address);
    // An address with the pid of this process would open descriptors of the test.
    if address.pid != std::process::id() {
        let _ = PeerProcess::open(&address, 1).map(drop);
    }
    let (key, records) = rest.split_at(rest.len().min(size_of::<ShmKey>()));
    let pool = descriptor::memory("unipgas-test", MemfdFlags::empty()).expect("a file");
    rustix::fs::ftruncate(&pool, WINDOW as u64).expect("room");
    let view = Arc::new(PoolView::map(pool.as_fd(), WINDOW).expect("a pool"));
    let control = view.control();
    for (slot, record) in control.slots.iter().zip(records.chunks_exact(RECORD)) {
        write(slot, record);
    }
    let adopted = descriptor::memory("unipgas-test", MemfdFlags::empty()).expect("a file");
    rustix::fs::ftruncate(&adopted, 1 << 40).expect("room");
    let number = adopted.as_raw_fd() as u32;
    control.mirror_fd.store(number, Ordering::Relaxed);
    control.state.store(ALIVE, Ordering::Relaxed);
    let process = PeerProcess {
        watch: Arc::new(Watch::Look),
        ..PeerProcess::myself(view.clone(), 1)
    };
    let peer = ShmPeer {
        process: Arc::new(process),
    };
    // Twice: the second import uses the cached view of adopted memory.
    let imported = [(); 2].map(|()| peer.import(key, Deadline::Never));
    for region in imported.iter().flatten() {
        let parts = region.parts();
        let inside = |view: &Mapping| {
            let at = parts.base.addr().checked_sub(view.base().addr());
            let end = at.and_then(|at| at.checked_add(parts.len));
            end.is_some_and(|end| end <= view.bytes())
        };
        let mirror = peer.process.mirror.lock();
        let pool = view.at(0, WINDOW as u64).map_or(0, |base| base.addr());
        let in_pool = (pool..=pool + WINDOW).contains(&parts.base.addr())
            && parts.len <= pool + WINDOW - parts.base.addr();
        assert!(
            parts.base.is_null() || in_pool || mirror.views.values().any(|view| inside(view)),
            "{parts:?}"
        );
    }
    let _ = peer.life();
    peer.process.close_regions();
}

fn write(slot: &Slot, record: &[u8]) {
    let words: [u64; RECORD / 8] = bytemuck::pod_read_unaligned(record);
    slot.generation.store(words[0] as u32, Ordering::Relaxed);
    slot.flags.store((words[0] >> 32) as u32, Ordering::Relaxed);
    slot.offset.store(words[1], Ordering::Relaxed);
    slot.len.store(words[2], Ordering::Relaxed);
    slot.address.store(words[3], Ordering::Relaxed);
}

pub(crate) fn slots() -> Vec<Vec<u8>> {
    let address = ShmAddress {
        host: 1,
        start_time: 2,
        pid: i32::MAX as u32,
        fd: 3,
        inode: 4,
    };
    let mut all = Vec::new();
    for kind in [RegionKind::Pool, RegionKind::Mirror, RegionKind::Private] {
        for slot in 0..2 {
            let key = ShmKey {
                slot,
                generation: 1,
            };
            let flags = u64::from((kind as u32) << 8 | 7);
            // The second one is longer than any address space.
            for (len, at) in [(5000, 1 << 30), (u64::MAX - 0x3000, 0x1000)] {
                let records = [[1 | flags << 32, 1 << 21, len, at]; 2];
                let parts = [
                    bytemuck::bytes_of(&address),
                    bytemuck::bytes_of(&key),
                    bytemuck::cast_slice(&records),
                ];
                all.push(parts.concat());
            }
        }
    }
    all
}
