//! The Rust interface, in a process that talks to itself.

use std::time::{Duration, Instant};

use unipgas_core::port::{NoticeKind, Rmw};
use unipgas_core::registry::register;
use unipgas_utofu::command::CommandTarget;
use unipgas_utofu::vbg::VbgSetting;
use unipgas_utofu::vcq::VcqFlags;
use unipgas_utofu::{OwnedVbgs, ReturnCode, VcqHandle};

const TCQ_NOTICE: u64 = 1 << 14;
const LOCAL_MRQ_NOTICE: u64 = 1 << 15;
const REMOTE_MRQ_NOTICE: u64 = 1 << 2;

fn join() {
    // SAFETY:
    // - before any thread of this program reads the environment but the harness's own
    unsafe { std::env::set_var("UNIPGAS_JOB_NAME", format!("owned {}", std::process::id())) };
    register(unipgas_shm::BACKEND);
}

fn wait<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "nothing comes");
    }
}

#[test]
fn a_vcq_and_a_circuit_of_one_process() {
    join();
    let mut vcq = VcqHandle::create(0, Some(0), VcqFlags::empty()).unwrap();
    assert_eq!(
        VcqHandle::create(0, Some(0), VcqFlags::empty()).unwrap_err(),
        ReturnCode::Used
    );
    let memory = Box::leak(vec![0u64; 1024].into_boxed_slice());
    let word = |i: usize| {
        // SAFETY:
        // - inside the memory, which is never freed
        unsafe { (&raw const memory[i]).read_volatile() }
    };
    // SAFETY:
    // - never freed, and read by volatile loads only
    let stadd = unsafe { vcq.reg_mem(memory.as_ptr().cast_mut().cast(), 8192, false) }.unwrap();
    let target = |word: u64, flags| CommandTarget {
        vcq_id: vcq.id().bits(),
        stadd: stadd + 8 * word,
        edata: 7,
        flags,
    };
    let (both, plain) = (
        target(3, TCQ_NOTICE | LOCAL_MRQ_NOTICE | REMOTE_MRQ_NOTICE),
        target(4, LOCAL_MRQ_NOTICE),
    );
    vcq.put_piggyback(&both, &99u64.to_ne_bytes(), 5).unwrap();
    assert_eq!(wait(|| vcq.poll_tcq().unwrap()), 5);
    let mut kinds = [(); 2].map(|()| wait(|| vcq.poll_mrq().unwrap()).kind);
    kinds.sort_by_key(|kind| *kind as u8);
    assert_eq!(kinds, [NoticeKind::LocalPut, NoticeKind::RemotePut]);
    assert_eq!(word(3), 99);

    vcq.put(&plain, stadd + 24, 8, 0).unwrap();
    wait(|| vcq.poll_mrq().unwrap());
    vcq.armw(&plain, true, Rmw::Add, 1, 0, 0).unwrap();
    let notice = wait(|| vcq.poll_mrq().unwrap());
    assert_eq!((notice.value, notice.edata, word(4)), (99, 7, 100));
    vcq.get(&plain, stadd + 40, 8, 0).unwrap();
    wait(|| vcq.poll_mrq().unwrap());
    assert_eq!(word(5), 100);
    let too_long = vcq.put_piggyback(&plain, &[0; 33], 0);
    assert_eq!(too_long, Err(ReturnCode::InvalidSize));
    vcq.dereg_mem(stadd).unwrap();
    assert_eq!(vcq.dereg_mem(stadd), Err(ReturnCode::InvalidStadd));

    let mut gates = OwnedVbgs::alloc(1, 2).unwrap();
    let ids: Vec<u64> = gates.ids().iter().map(|id| id.bits()).collect();
    let through = |vbg_id, other| VbgSetting {
        vbg_id,
        src_lcl_vbg_id: other,
        src_rmt_vbg_id: u64::MAX,
        dst_lcl_vbg_id: other,
        dst_rmt_vbg_id: u64::MAX,
        dst_path_coords: [u8::MAX; 3],
    };
    gates
        .set(&[through(ids[0], ids[1]), through(ids[1], ids[0])])
        .unwrap();
    assert_eq!(gates.poll_barrier(), Err(ReturnCode::Busy));
    gates.barrier().unwrap();
    assert_eq!(gates.poll_barrier(), Ok(true));
    gates.reduce_uint64(7, &[1, 2, 3]).unwrap();
    assert_eq!(gates.poll_reduce_uint64(), Ok(Some(vec![1, 2, 3])));
    gates.reduce_double(8, &[0.5]).unwrap();
    assert_eq!(gates.poll_reduce_double(), Ok(Some(vec![0.5])));
}
