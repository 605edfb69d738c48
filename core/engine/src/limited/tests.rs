use std::ops::Range;
use std::ptr::{null, null_mut};

use super::*;
use crate::Rights;
use crate::lines::LINE;
use crate::op::{Local, PutRequest};
use crate::region::{RemoteParts, RemoteRegion};

/// A call that the network received: place, bytes, flags, notice.
#[derive(Debug, Clone)]
struct Given {
    peer: u32,
    at: usize,
    bytes: Vec<u8>,
    from: usize,
    flags: Flags,
    notice: Option<u32>,
    context: u64,
}

/// Takes up to `depth` operations to a peer. They end when the test ends them.
#[derive(Clone)]
struct Network {
    limits: Limits,
    given: Arc<Mutex<Vec<Given>>>,
    under_way: Arc<Mutex<Vec<(u32, u64)>>>,
    ends: Arc<Mutex<Vec<Completion>>>,
}

impl Network {
    fn give(&self, given: Given) -> Result<Outcome> {
        let mut under_way = self.under_way.lock();
        let peer = given.peer;
        if under_way.iter().filter(|(to, _)| *to == peer).count() >= self.limits.depth {
            return Err(Error::NotNow);
        }
        under_way.push((peer, given.context));
        self.given.lock().push(given);
        Ok(Outcome::Pending)
    }
}

impl Channel for Network {
    unsafe fn put(&self, put: &PutRequest<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let PutRequest { src, dst, len, .. } = *put;
        assert!(len <= self.limits.largest);
        assert!(!flags.contains(Flags::INLINE) || len <= self.limits.inline);
        assert!(!flags.contains(Flags::LINES) || self.limits.lines);
        assert!(!flags.contains(Flags::GATHERED) || flags.contains(Flags::INLINE));
        let mut bytes = vec![0; len];
        // SAFETY:
        // - contract of `Channel::put`: the source is valid.
        unsafe { crate::copy(src.ptr, bytes.as_mut_ptr(), len) };
        self.give(Given {
            peer: dst.region.parts().peer,
            at: dst.offset,
            bytes,
            from: src.ptr.addr(),
            flags,
            notice: put.notice.map(|notice| notice.value),
            context,
        })
    }

    fn notify(&self, notice: Notice<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        self.give(Given {
            peer: notice.slot.region.parts().peer,
            at: notice.slot.offset,
            bytes: Vec::new(),
            from: 0,
            flags,
            notice: Some(notice.value),
            context,
        })
    }

    fn poll(&self, sink: &mut dyn FnMut(Completion)) {
        for end in self.ends.lock().drain(..) {
            sink(end);
        }
    }

    fn pending(&self) -> usize {
        self.under_way.lock().len()
    }
}

struct Bench {
    limited: LimitAdapter,
    network: Network,
}

const LEN: usize = 256 << 10;

impl Bench {
    fn new(limits: Limits) -> Bench {
        let network = Network {
            limits,
            given: Arc::default(),
            under_way: Arc::default(),
            ends: Arc::default(),
        };
        Bench {
            limited: LimitAdapter::over(Box::new(network.clone()), limits, None).unwrap(),
            network,
        }
    }

    /// Ends the operations at these positions of the operations in progress.
    fn end(&self, which: Range<usize>, result: Result<()>) {
        // Otherwise the driver may find a free place before it gets the completion.
        let _still = self.limited.shared.state.lock();
        for (_, context) in self.network.under_way.lock().drain(which) {
            let result = result.clone();
            self.network
                .ends
                .lock()
                .push(Completion { context, result });
        }
    }

    /// Puts bytes that outlive the test's operations, or that the call takes.
    fn put(&self, bytes: &[u8], dst: Remote<'_>, flags: Flags, context: u64) -> Result<Outcome> {
        let src = Local::unregistered(bytes.as_ptr().cast_mut());
        let put = PutRequest::new(src, dst, bytes.len());
        // SAFETY:
        // - the callers keep the bytes until `finish`, or the call takes or refuses them.
        unsafe { self.limited.put(&put, flags, context) }
    }

    fn polled(&self) -> Vec<(u64, Result<()>)> {
        let mut ends = Vec::new();
        let limited = &self.limited;
        limited.poll(&mut |end| ends.push((end.context, end.result)));
        ends
    }

    fn finish(&self) -> Vec<(u64, Result<()>)> {
        let mut all = Vec::new();
        while self.limited.pending() > 0 {
            let under_way = self.network.under_way.lock().len();
            self.end(0..under_way, Ok(()));
            all.extend(self.polled());
        }
        all
    }
}

fn region(peer: u32) -> RemoteRegion {
    let parts = RemoteParts {
        peer,
        ..RemoteParts::here(null_mut(), LEN, Rights::FULL, null(), null())
    };
    // SAFETY:
    // - the region has no memory, and nothing accesses its address.
    unsafe { RemoteRegion::new(parts, Arc::new(())) }
}

const NARROW: Limits = Limits {
    lines: false,
    atomics: true,
    registered: false,
    inline: 8,
    largest: 100,
    depth: 3,
};

#[test]
fn what_is_too_long_to_be_gathered_is_not() {
    let bench = Bench::new(NARROW);
    let (one, bytes) = (region(1), [7u8; 9]);
    for len in [8, 9] {
        let flags = Flags::INLINE | Flags::GATHERED;
        let posted = bench.put(&bytes[..len], one.at(0), flags, 77);
        assert_eq!(posted, Ok(Outcome::Pending));
        assert_eq!(bench.finish(), [(77, Ok(()))]);
        let gathered =
            (bench.network.given.lock().pop()).map(|one| one.flags.contains(Flags::GATHERED));
        assert_eq!(gathered, Some(len == 8));
    }
}

#[test]
fn long_transfers_go_in_pieces_and_end_once() {
    let bench = Bench::new(NARROW);
    let (one, bytes) = (region(1), [7u8; 950]);
    let notice = Notice {
        slot: one.at(0),
        value: 5,
    };
    let src = Local::unregistered(bytes.as_ptr().cast_mut());
    let put = PutRequest::new(src, one.at(8), 950).with(notice);
    // SAFETY:
    // - the bytes outlive the operation.
    let posted = unsafe { bench.limited.put(&put, Flags::empty(), 77) };
    assert_eq!(posted, Ok(Outcome::Pending));
    assert_eq!(bench.network.given.lock().len(), 3);
    assert!(bench.polled().is_empty());
    assert_eq!(bench.finish(), [(77, Ok(()))]);
    let given = bench.network.given.lock();
    assert_eq!(given.len(), 10);
    for (nth, one) in given.iter().enumerate() {
        // Directly from the caller's bytes.
        assert_eq!(one.from, bytes.as_ptr().addr() + 100 * nth);
        assert_eq!(
            (one.at, one.bytes.len()),
            (8 + 100 * nth, if nth == 9 { 50 } else { 100 })
        );
        assert_eq!(one.notice.is_some(), nth == 9);
        assert_eq!(one.flags.contains(Flags::ORDERED), nth == 9);
    }
}

#[test]
fn the_last_word_of_each_line_goes_after_the_line() {
    for (offset, len) in [
        (0, 600),
        (40, 600),
        (250, 3),
        (255, 2),
        (256, 256),
        (8, 8),
        (9, 8),
    ] {
        let bench = Bench::new(NARROW);
        put_lines(&bench, offset, len);
        let given = bench.network.given.lock();
        let mut next = offset;
        for one in given.iter() {
            assert_eq!(one.at, next);
            next += one.bytes.len();
            let last = next == offset + len || next.is_multiple_of(LINE);
            assert_eq!(one.at / LINE, (next - 1) / LINE);
            let whole_line = one.at == offset || one.at.is_multiple_of(LINE);
            assert_eq!(one.flags.contains(Flags::ORDERED), last && !whole_line);
            let word = one.bytes.len();
            assert!(!last || word.is_power_of_two() && word <= 8 && one.at.is_multiple_of(word));
        }
        assert_eq!(next, offset + len);
    }
}

/// Puts `len` bytes with `Flags::LINES`, and waits for the end.
fn put_lines(bench: &Bench, offset: usize, len: usize) {
    let (one, bytes) = (region(1), vec![7u8; len]);
    let posted = bench.put(&bytes, one.at(offset), Flags::LINES, 1);
    assert_eq!(posted, Ok(Outcome::Pending));
    assert_eq!(bench.finish(), [(1, Ok(()))]);
}

#[test]
fn many_lines_go_in_pieces_that_end_where_lines_do() {
    let whole = Limits {
        lines: true,
        largest: usize::MAX,
        depth: usize::MAX,
        ..NARROW
    };
    for (offset, len) in [
        (0, 64 << 10),
        (0, 200 << 10),
        (40, 200 << 10),
        (8, 64 << 10),
    ] {
        let bench = Bench::new(whole);
        put_lines(&bench, offset, len);
        let given = bench.network.given.lock();
        let mut next = offset;
        for one in given.iter() {
            assert_eq!(one.at, next);
            next += one.bytes.len();
            assert!(one.bytes.len() <= 64 << 10 && one.flags.contains(Flags::LINES));
            assert!(next == offset + len || next.is_multiple_of(LINE));
        }
        assert_eq!(next, offset + len);
        assert_eq!(given.len(), len.div_ceil(64 << 10));
    }
}

#[test]
fn what_the_network_does_not_take_waits_in_order_for_its_peer_alone() {
    let bench = Bench::new(NARROW);
    let peers = [region(1), region(2)];
    for value in 0..20 {
        let slot = peers[0].at(0);
        let notice = Notice { slot, value };
        let posted = bench.limited.notify(notice, Flags::ORDERED, value.into());
        assert_eq!(posted, Ok(Outcome::Pending));
    }
    // The caller may change its bytes after the call.
    let mut bytes = [1u8; 50];
    let put = bench.put(&bytes, peers[0].at(64), Flags::INLINE, 20);
    put.unwrap();
    bytes.fill(2);
    let slot = peers[1].at(0);
    let aside = Notice { slot, value: 99 };
    bench.limited.notify(aside, Flags::empty(), 21).unwrap();
    assert_eq!(bench.network.given.lock().len(), 4);
    assert_eq!(bench.limited.pending(), 22);
    // A free place takes one more operation. The driver may have issued it before.
    bench.end(0..1, Ok(()));
    assert_eq!(bench.polled(), [(0, Ok(()))]);
    assert_eq!(bench.network.given.lock().len(), 5);
    let mut ended: Vec<u64> = bench
        .finish()
        .into_iter()
        .map(|(context, _)| context)
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, (1..22).collect::<Vec<_>>());
    let given = bench.network.given.lock();
    let mut to_one = given.iter().filter(|given| given.peer == 1);
    let values: Vec<_> = to_one.clone().filter_map(|given| given.notice).collect();
    assert_eq!(values, (0..20).collect::<Vec<_>>());
    assert_eq!(to_one.next_back().expect("the put").bytes, [1; 50]);
}

#[test]
fn a_piece_that_fails_ends_the_whole_and_nothing_of_it_follows() {
    let bench = Bench::new(NARROW);
    let (one, bytes) = (region(1), [7u8; 950]);
    let dst = one.at(0);
    bench.put(&bytes, dst, Flags::empty(), 4).unwrap();
    let notice = Notice {
        slot: dst,
        value: 1,
    };
    bench.limited.notify(notice, Flags::empty(), 5).unwrap();
    bench.end(1..2, Err(Error::PeerDead));
    assert!(bench.polled().is_empty());
    bench.end(0..2, Ok(()));
    assert_eq!(bench.polled(), [(4, Err(Error::PeerDead))]);
    assert_eq!(bench.finish(), [(5, Ok(()))]);
    assert_eq!(bench.network.given.lock().len(), 4);
}

#[test]
fn what_is_wrong_is_refused_whole() {
    let bench = Bench::new(NARROW);
    let (one, bytes) = (region(1), [7u8; 950]);
    let refused = bench.put(&bytes, one.at(LEN - 949), Flags::empty(), 4);
    assert!(matches!(refused, Err(Error::OutOfBounds { .. })));
    assert_eq!(
        (bench.network.given.lock().len(), bench.limited.pending()),
        (0, 0)
    );
}
