//! What an operation costs: calls of the provider, counted in its tables.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use unipgas_core::op::{Flags, Local, Notice, Outcome, Remote};
use unipgas_core::region::Rights;
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Engine, Error};
use unipgas_libfabric_sys::*;

use super::strangers::place;
use crate::fabric::Fabric;

/// Calls that a thread has made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Calls {
    /// Of writes whose ends nobody is told of.
    untold: usize,
    /// Of writes that have a completion each.
    completed: usize,
}

thread_local! {
    static CALLS: Cell<Calls> = const { Cell::new(Calls { untold: 0, completed: 0 }) };
}

fn count(part: impl FnOnce(&mut Calls)) {
    let mut calls = CALLS.get();
    part(&mut calls);
    CALLS.set(calls);
}

static PROVIDERS: OnceLock<fi_ops_rma> = OnceLock::new();

unsafe extern "C" fn writemsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    count(|calls| match flags & FI_COMPLETION {
        0 => calls.untold += 1,
        _ => calls.completed += 1,
    });
    let table = PROVIDERS.get().unwrap();
    // SAFETY:
    // - as it was called.
    unsafe { (table.writemsg)(ep, message, flags) }
}

/// Counts the calls of `fabric` from now on.
fn counted(fabric: &Fabric) {
    // SAFETY:
    // - the endpoint is open, and no other thread writes by it; all endpoints of the provider have one table.
    unsafe {
        let ep = fabric.endpoint();
        let table = *PROVIDERS.get_or_init(|| *(*ep).rma);
        (*ep).rma = Box::leak(Box::new(fi_ops_rma { writemsg, ..table }));
    }
}

#[test]
fn a_put_with_notice_is_one_call_and_one_of_many_has_a_completion() {
    let Some((one, two)) = place().zip(place()) else {
        return;
    };
    assert!(one.net.fabric.traits.gathers);
    // A notice far into the region has a number, too.
    const LEN: usize = 8 << 20;
    let memory = two.allocate(LEN, Rights::FULL).unwrap();
    let peer = one.connect(&two.address()).unwrap();
    let region = peer.import(&memory.key(), Deadline::Never).unwrap();
    let channel = one.open_channel().unwrap();
    let at = |offset| Remote {
        region: &region,
        offset,
    };
    let flags = Flags::INLINE | Flags::GATHERED | Flags::ORDERED;
    let put = |nth: u32| {
        let bytes = u64::from(nth);
        let src = Local {
            ptr: (&raw const bytes).cast_mut().cast(),
            desc: 0,
        };
        let notice = Notice {
            slot: at(LEN - 4),
            value: nth,
        };
        loop {
            // SAFETY:
            // - taken in the call.
            match unsafe { channel.put_notify(src, at(0), 8, notice, flags, 0) } {
                Err(Error::NotNow) => _ = one.progress(),
                posted => return assert_eq!(posted, Ok(Outcome::Pending)),
            }
        }
    };
    let word = |offset: usize| {
        // SAFETY:
        // - in bounds and aligned, and as long there as the memory.
        unsafe { AtomicU32::from_ptr(memory.base().wrapping_add(offset).cast()) }
    };
    // The connection is made: from then on there is room.
    put(1);
    let ended = |how: &dyn Fn(&mut usize)| {
        let mut ends = 0;
        while channel.pending() > 0 {
            one.progress();
            how(&mut ends);
            std::thread::yield_now();
        }
        ends
    };
    ended(&|ends| channel.poll(&mut |_| *ends += 1));
    counted(&one.net.fabric);
    for nth in 2..66 {
        put(nth);
        let completed = usize::from(nth == 65);
        let untold = nth as usize - 1;
        let expected = Calls { untold, completed };
        assert_eq!(CALLS.get(), expected);
    }
    // Nobody asks for more.
    let ends = ended(&|ends| channel.report(&mut |end| *ends += usize::from(end.result.is_ok())));
    assert_eq!(ends, 64);
    // Completion says that it is there; the notice comes when its owner looks.
    assert_eq!(word(0).load(Ordering::Acquire), 65);
    while word(LEN - 4).load(Ordering::Acquire) != 65 {
        two.progress();
    }
    CALLS.set(Calls::default());
    put(66);
    channel.report(&mut |end| panic!("{end:?}"));
    let alone = Calls {
        untold: 1,
        completed: 0,
    };
    assert_eq!(CALLS.get(), alone);
    // Who waits for it asks once.
    ended(&|ends| channel.poll(&mut |_| *ends += 1));
    let asked = Calls {
        completed: 1,
        ..alone
    };
    assert_eq!(CALLS.get(), asked);
}

/// Messages of two processes, whichever of their threads has sent them.
static SENDS: AtomicUsize = AtomicUsize::new(0);
static MESSAGES: OnceLock<fi_ops_msg> = OnceLock::new();

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    from: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    SENDS.fetch_add(1, Ordering::SeqCst);
    let table = MESSAGES.get().unwrap();
    // SAFETY:
    // - as it was called.
    unsafe { (table.send)(ep, from, len, desc, to, context) }
}

#[test]
fn a_fetch_add_is_a_question_and_an_answer() {
    let Some((one, two)) = place().zip(place()) else {
        return;
    };
    let (one, two) = (Arc::new(one), Arc::new(two));
    let asking = Engine::new(vec![one.clone()]).unwrap();
    let owner = Engine::new(vec![two.clone()]).unwrap();
    let memory = owner.allocate(64, Rights::FULL).unwrap();
    let there = asking.connect(&owner.address().unwrap()).unwrap();
    let region = there.import(&memory.key()).unwrap();
    let endpoint = asking.endpoint(8).unwrap();
    let word = Remote {
        region: &region,
        offset: 8,
    };
    assert_eq!(endpoint.fetch_add(&asking, word, 1), Ok(0));
    for place in [&one, &two] {
        let ep = place.net.fabric.endpoint();
        // SAFETY:
        // - the endpoint is open; other threads see the one table or the other, and both stay; all endpoints of the provider have one.
        unsafe {
            let table = *MESSAGES.get_or_init(|| *(*ep).msg);
            (*ep).msg = Box::leak(Box::new(fi_ops_msg { send, ..table }));
        }
    }
    const MANY: usize = 100;
    for nth in 1..=MANY {
        assert_eq!(endpoint.fetch_add(&asking, word, 1), Ok(nth as u64));
    }
    // The owner answers before the asker knows.
    assert_eq!(SENDS.load(Ordering::SeqCst), 2 * MANY);
}
