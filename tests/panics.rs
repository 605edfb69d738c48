//! A panic under the locks that are held while a backend is called costs one call: later calls go on, and so does the end.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unipgas::core::atomic::ElementLocks;
use unipgas::core::bell::Bell;
use unipgas::core::bundle::Tag;
use unipgas::core::region::Memory;
use unipgas::core::registry::{Backend, Opening, register};
use unipgas::core::transport::{Capabilities, Channel, Peer, Transport};
use unipgas::core::{Deadline, Result, Rights};
use unipgas::gaspi::ffi::*;
use unipgas::shm::Shm;
use unipgas::utofu::ffi::*;

static BROKEN: AtomicBool = AtomicBool::new(false);

/// The shm backend, which panics where it makes regions while [`BROKEN`] is set.
struct Brittle(Shm);

fn break_if_asked() {
    assert!(!BROKEN.load(Ordering::Relaxed), "as the test wants it");
}

impl Transport for Brittle {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn tag(&self) -> Tag {
        self.0.tag()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn address(&self) -> Vec<u8> {
        self.0.address()
    }

    fn connect_within(&self, address: &[u8], deadline: Deadline) -> Result<Arc<dyn Peer>> {
        self.0.connect_within(address, deadline)
    }

    fn allocate(&self, len: usize, rights: Rights) -> Result<Box<dyn Memory>> {
        break_if_asked();
        self.0.allocate(len, rights)
    }

    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        rights: Rights,
    ) -> Result<Box<dyn Memory>> {
        break_if_asked();
        // SAFETY:
        // - the caller's word.
        unsafe { self.0.register(base, len, rights) }
    }

    fn open_channel(&self) -> Result<Box<dyn Channel>> {
        self.0.open_channel()
    }

    fn bell(&self) -> &Bell {
        self.0.bell()
    }

    fn locks(&self) -> &ElementLocks {
        self.0.locks()
    }

    fn leave(&self) {
        self.0.leave();
    }
}

fn open(opening: &Opening) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(Brittle(Shm::open(opening.local_processes)?)))
}

/// What a call gives while the backend is broken, and afterwards.
fn broken_then_whole(mut call: impl FnMut() -> i32) -> (i32, i32) {
    BROKEN.store(true, Ordering::Relaxed);
    let broken = call();
    BROKEN.store(false, Ordering::Relaxed);
    (broken, call())
}

#[test]
fn one_panic_costs_one_call() {
    register(Backend {
        open,
        ..unipgas::shm::BACKEND
    });
    let mut memory = vec![0u64; 1024];
    let base = memory.as_mut_ptr();
    // SAFETY:
    // - C calls with valid arguments; the memory outlives what is made of it.
    unsafe {
        assert_eq!(gaspi_proc_init(u64::MAX), 0);
        assert_eq!(
            broken_then_whole(|| gaspi_segment_bind(0, base.cast(), 4096, 0)),
            (-1, 0)
        );
        assert_eq!(
            broken_then_whole(|| gaspi_segment_alloc(1, 4096, 0)),
            (-1, 0)
        );
        let (mut number, mut pointer) = (0, null_mut());
        assert_eq!(gaspi_segment_num(&mut number), 0);
        assert_eq!(number, 2);
        assert_eq!(gaspi_segment_ptr(0, &mut pointer), 0);
        assert_eq!(pointer.cast(), base);
        assert_eq!(gaspi_segment_delete(0), 0);
        assert_eq!(gaspi_proc_term(u64::MAX), 0);

        let (mut vcq, mut stadd, mut named) = (0, 0, 0);
        assert_eq!(utofu_create_vcq(0, 0, &mut vcq), 0);
        let base = base.cast();
        let fatal = unipgas::utofu::ReturnCode::Fatal as i32;
        assert_eq!(
            broken_then_whole(|| utofu_reg_mem(vcq, base, 4096, 0, &mut stadd)),
            (fatal, 0)
        );
        let aligned = base.add(base.align_offset(256));
        let with_stag = || utofu_reg_mem_with_stag(vcq, aligned, 256, 5, 0, &mut named);
        assert_eq!(broken_then_whole(with_stag), (fatal, 0));
        assert_eq!(utofu_dereg_mem(vcq, stadd, 0), 0);
        assert_eq!(utofu_dereg_mem(vcq, named, 0), 0);
        let mut other = 0;
        let (code, again) = broken_then_whole(|| utofu_create_vcq(1, 0, &mut other));
        assert_eq!((code, again), (fatal, 0));
        assert_eq!(utofu_free_vcq(other), 0);
        assert_eq!(utofu_free_vcq(vcq), 0);
    }
}
