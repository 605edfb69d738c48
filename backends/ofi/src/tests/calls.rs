//! Cost of operations: calls of the provider, counted in its tables.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use unipgas_core::inbox::{self, InboxLayout, InboxReader, Record};
use unipgas_core::op::{Flags, Local, Notice, Outcome, PutRequest};
use unipgas_core::transport::Transport;
use unipgas_core::{Deadline, Engine, Error, Rights};
use unipgas_libfabric_sys::*;

use super::strangers::place;
use crate::fabric::Fabric;

/// Calls of a thread.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Calls {
    /// Unsignaled writes.
    untold: usize,
    /// Signaled writes.
    completed: usize,
    /// Messages.
    sent: usize,
}

thread_local! {
    static CALLS: Cell<Calls> = const { Cell::new(Calls { untold: 0, completed: 0, sent: 0 }) };
}

fn count(part: impl FnOnce(&mut Calls)) {
    let mut calls = CALLS.get();
    part(&mut calls);
    CALLS.set(calls);
}

static PROVIDERS: OnceLock<(fi_ops_rma, fi_ops_msg)> = OnceLock::new();

unsafe extern "C" fn writemsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    count(|calls| match flags & FI_COMPLETION {
        0 => calls.untold += 1,
        _ => calls.completed += 1,
    });
    let (table, _) = PROVIDERS.get().unwrap();
    // SAFETY:
    // - contract of this function, which has the same arguments.
    unsafe { (table.writemsg)(ep, message, flags) }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    bytes: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    count(|calls| calls.sent += 1);
    let (_, table) = PROVIDERS.get().unwrap();
    // SAFETY:
    // - contract of this function, which has the same arguments.
    unsafe { (table.send)(ep, bytes, len, desc, to, context) }
}

/// Messages that this thread has sent by [`counted`] fabrics.
pub fn sent() -> usize {
    CALLS.get().sent
}

/// Counts calls of `fabric` after this call.
pub fn counted(fabric: &Fabric) {
    // SAFETY:
    // - the endpoint is open, and no other thread posts to it. All endpoints of the provider share one table.
    unsafe {
        let ep = fabric.endpoint();
        let (rma, msg) = *PROVIDERS.get_or_init(|| (*(*ep).rma, *(*ep).msg));
        (*ep).rma = Box::leak(Box::new(fi_ops_rma { writemsg, ..rma }));
        (*ep).msg = Box::leak(Box::new(fi_ops_msg { send, ..msg }));
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
    let at = |offset| region.at(offset);
    let flags = Flags::INLINE | Flags::GATHERED | Flags::ORDERED;
    let put = |nth: u32| {
        let bytes = u64::from(nth);
        let src = Local::unregistered((&raw const bytes).cast());
        let notice = Notice {
            slot: at(LEN - 4),
            value: nth,
        };
        loop {
            // SAFETY:
            // - the bytes are copied in the call.
            match unsafe { channel.put(&PutRequest::new(src, at(0), 8).with(notice), flags, 0) } {
                Err(Error::NotNow) => _ = one.progress(),
                posted => return assert_eq!(posted, Ok(Outcome::Pending)),
            }
        }
    };
    let word = |offset: usize| {
        // SAFETY:
        // - in bounds and aligned. The memory outlives the word.
        unsafe { AtomicU32::from_ptr(memory.base().wrapping_add(offset).cast()) }
    };
    // Connects first: afterwards there is room.
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
        let expected = Calls {
            untold,
            completed,
            ..Calls::default()
        };
        assert_eq!(CALLS.get(), expected);
    }
    // No further completion is requested.
    let ends = ended(&|ends| channel.report(&mut |end| *ends += usize::from(end.result.is_ok())));
    assert_eq!(ends, 64);
    // Completion means visible data. The notice takes effect when the owner makes progress.
    assert_eq!(word(0).load(Ordering::Acquire), 65);
    while word(LEN - 4).load(Ordering::Acquire) != 65 {
        two.progress();
    }
    CALLS.set(Calls::default());
    put(66);
    channel.report(&mut |end| panic!("{end:?}"));
    let alone = Calls {
        untold: 1,
        ..Calls::default()
    };
    assert_eq!(CALLS.get(), alone);
    // A caller that waits requests one completion.
    ended(&|ends| channel.poll(&mut |_| *ends += 1));
    let asked = Calls {
        completed: 1,
        ..alone
    };
    assert_eq!(CALLS.get(), asked);
}

/// Messages of two processes, from all their threads.
static SENDS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn send_of_any(
    ep: *mut fid_ep,
    from: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    SENDS.fetch_add(1, Ordering::SeqCst);
    let (_, table) = PROVIDERS.get().unwrap();
    // SAFETY:
    // - contract of this function, which has the same arguments.
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
    let word = region.at(8);
    assert_eq!(endpoint.fetch_add(&asking, word, 1), Ok(0));
    for place in [&one, &two] {
        let ep = place.net.fabric.endpoint();
        // SAFETY:
        // - the endpoint is open. Other threads see one table or the other, and both stay. All endpoints of the provider share one table.
        unsafe {
            let (_, msg) = *PROVIDERS.get_or_init(|| (*(*ep).rma, *(*ep).msg));
            let send = send_of_any;
            (*ep).msg = Box::leak(Box::new(fi_ops_msg { send, ..msg }));
        }
    }
    const MANY: usize = 100;
    for nth in 1..=MANY {
        assert_eq!(endpoint.fetch_add(&asking, word, 1), Ok(nth as u64));
    }
    // The owner's answer comes before the operation ends.
    assert_eq!(SENDS.load(Ordering::SeqCst), 2 * MANY);
}

#[test]
fn a_short_put_with_a_record_is_one_message() {
    let Some((one, two)) = place().zip(place()) else {
        return;
    };
    const PLACES: usize = 4;
    let len = InboxLayout::new(PLACES).unwrap().size();
    let memory = two.allocate(4096, Rights::FULL).unwrap();
    let records = two.allocate(len, Rights::FULL).unwrap();
    // SAFETY:
    // - zeroed memory of enough bytes, which outlives the reader. There is no other reader.
    let mut reader = unsafe {
        inbox::initialise_zeroed(records.base(), PLACES).unwrap();
        InboxReader::attach(records.base(), records.len()).unwrap()
    };
    let peer = one.connect(&two.address()).unwrap();
    let import = |key: &[u8]| peer.import(key, Deadline::Never).unwrap();
    let (region, inbox) = (import(&memory.key()), import(&records.key()));
    let channel = one.open_channel().unwrap();
    counted(&one.net.fabric);
    // Several lines, which must become visible in order.
    let bytes = [7u8; 1000];
    let src = Local::unregistered(bytes.as_ptr());
    let dst = region.at(100);
    let record = Record {
        value: 5,
        ..Record::default()
    };
    let (to, flags) = ((&inbox).into(), Flags::LINES | Flags::ORDERED);
    CALLS.set(Calls::default());
    // SAFETY:
    // - `bytes` has this length.
    let put = unsafe {
        let put = PutRequest::new(src, dst, bytes.len());
        channel.put_deliver(&put, to, record, flags, 9)
    };
    assert_eq!(put, Ok(Outcome::Pending));
    let expected = Calls {
        sent: 1,
        ..Calls::default()
    };
    assert_eq!(CALLS.get(), expected);
    let mut ends = Vec::new();
    while channel.pending() > 0 {
        two.progress();
        channel.poll(&mut |end| ends.push((end.context, end.result)));
        std::thread::yield_now();
    }
    assert_eq!(ends, [(9, Ok(()))]);
    assert_eq!(reader.take(), Some(record));
    // SAFETY:
    // - in bounds, and no longer written.
    let come = unsafe { std::slice::from_raw_parts(memory.base().wrapping_add(100), bytes.len()) };
    assert_eq!(come, bytes);
}
