//! Threads that hammer one element: nothing is lost, nothing is seen twice.

use std::cell::UnsafeCell;
use std::sync::Barrier;
use std::thread;

use unipgas_base::atomic::{AtomicOp, AtomicType, apply, supported};

const THREADS: usize = 4;

/// One element that all threads work on.
#[repr(C, align(64))]
struct Shared(UnsafeCell<[u8; 16]>);

// SAFETY:
// - while threads share it, the bytes are accessed by `apply` only, which is atomic.
unsafe impl Sync for Shared {}

/// Plain data that an element is made of.
trait Plain: Copy + Send + Sync + 'static {
    const TYPE: AtomicType;
}

macro_rules! plain {
    ($($ty:ty => $name:ident),*) => {$(impl Plain for $ty { const TYPE: AtomicType = AtomicType::$name; })*};
}

plain!(u8 => U8, u16 => U16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, u128 => U128, f32 => F32, f64 => F64,
    [f32; 2] => ComplexF32, [f64; 2] => ComplexF64);

impl Shared {
    fn new<T: Plain>(value: T) -> Self {
        let shared = Self(UnsafeCell::new([0; 16]));
        shared.fetch(AtomicOp::Write, value, value);
        shared
    }

    fn at<T: Plain>(&self) -> *mut u8 {
        assert_eq!(size_of::<T>(), T::TYPE.size());
        self.0.get().cast()
    }

    /// The operation; the value before.
    fn fetch<T: Plain>(&self, op: AtomicOp, operand: T, compare: T) -> T {
        let mut before = operand;
        let (b, c) = ((&raw const operand).cast(), (&raw const compare).cast());
        // SAFETY:
        // - the element is 16 bytes, aligned to 64, and the arguments are values of its type.
        unsafe { apply(op, T::TYPE, self.at::<T>(), b, c, (&raw mut before).cast()).unwrap() };
        before
    }

    /// The operation, fetching nothing.
    fn post<T: Plain>(&self, op: AtomicOp, operand: T, compare: T) {
        let (b, c) = ((&raw const operand).cast(), (&raw const compare).cast());
        // SAFETY:
        // - the element is 16 bytes, aligned to 64, and the arguments are values of its type.
        unsafe { apply(op, T::TYPE, self.at::<T>(), b, c, std::ptr::null_mut()).unwrap() };
    }

    fn read<T: Plain>(&self, any: T) -> T {
        self.fetch(AtomicOp::Read, any, any)
    }
}

/// Runs the closure with 0..THREADS in as many threads that start together; their results.
fn together<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                scope.spawn(move || {
                    start.wait();
                    work(me)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Adds 1 by the threads; the values that they fetched, sorted, and the end value.
fn additions<T: Plain + PartialOrd>(one: T, zero: T, each: usize) -> (Vec<T>, T) {
    let shared = Shared::new(zero);
    let fetched = together(|_| {
        (0..each)
            .map(|_| shared.fetch(AtomicOp::Sum, one, zero))
            .collect::<Vec<_>>()
    });
    for seen in &fetched {
        assert!(
            seen.windows(2).all(|pair| pair[0] < pair[1]),
            "one thread's values must grow"
        );
    }
    let mut all: Vec<T> = fetched.into_iter().flatten().collect();
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    (all, shared.read(zero))
}

#[test]
fn fetch_add_gives_every_value_once() {
    const EACH: usize = if cfg!(miri) { 30 } else { 50_000 };
    const ALL: usize = THREADS * EACH;
    let (all, end) = additions(1u64, 0, EACH);
    assert!(all.into_iter().eq(0..ALL as u64) && end == ALL as u64);
    let (all, end) = additions(1u32, 0, EACH);
    assert!(all.into_iter().eq(0..ALL as u32) && end == ALL as u32);
    let (all, end) = additions(1u16, 0, EACH / 10);
    assert!(all.into_iter().eq(0..(ALL / 10) as u16) && end == (ALL / 10) as u16);
    let (all, end) = additions(1f64, 0.0, EACH);
    assert!(all.into_iter().eq((0..ALL).map(|n| n as f64)) && end == ALL as f64);
    let (all, end) = additions(1f32, 0.0, EACH);
    assert!(all.into_iter().eq((0..ALL).map(|n| n as f32)) && end == ALL as f32);
    if supported(AtomicOp::Sum, AtomicType::U128) {
        // Steps that carry from the low half into the high one.
        let step = 1u128 << 63;
        let (all, end) = additions(step, 0, EACH);
        assert!(
            all.into_iter().eq((0..ALL as u128).map(|n| n * step)) && end == ALL as u128 * step
        );
    }
}

#[test]
fn additions_that_fetch_nothing_are_counted() {
    const EACH: usize = if cfg!(miri) { 30 } else { 50_000 };
    let (word, byte, pair) = (Shared::new(0u64), Shared::new(0u8), Shared::new([0f32; 2]));
    together(|_| {
        for _ in 0..EACH {
            word.post(AtomicOp::Sum, 3u64, 0);
            byte.post(AtomicOp::Sum, 1u8, 0);
            pair.post(AtomicOp::Sum, [1f32, -2.0], [0.0; 2]);
        }
    });
    let all = THREADS * EACH;
    assert_eq!(word.read(0u64), 3 * all as u64);
    assert_eq!(byte.read(0u8), all as u8);
    assert_eq!(pair.read([0f32; 2]), [all as f32, -2.0 * all as f32]);
}

/// Counts by compare-and-swap loops; the end value.
fn cswap_counter<T: Plain + PartialEq>(zero: T, next: impl Fn(T) -> T + Sync, each: usize) -> T {
    let shared = Shared::new(zero);
    together(|_| {
        let mut guess = zero;
        for _ in 0..each {
            loop {
                let before = shared.fetch(AtomicOp::Cswap, next(guess), guess);
                if before == guess {
                    guess = next(guess);
                    break;
                }
                guess = before;
            }
        }
    });
    shared.read(zero)
}

#[test]
fn compare_and_swap_loops_lose_no_count() {
    const EACH: usize = if cfg!(miri) { 30 } else { 20_000 };
    const ALL: usize = THREADS * EACH;
    assert_eq!(cswap_counter(0u64, |n| n + 1, EACH), ALL as u64);
    assert_eq!(cswap_counter(0u32, |n| n + 1, EACH), ALL as u32);
    assert_eq!(cswap_counter(0u16, |n| n.wrapping_add(1), EACH), ALL as u16);
    assert_eq!(cswap_counter(0f64, |n| n + 1.0, EACH), ALL as f64);
    assert_eq!(
        cswap_counter([0f32; 2], |[re, im]| [re + 1.0, im - 1.0], EACH),
        [ALL as f32, -(ALL as f32)]
    );
    if supported(AtomicOp::Cswap, AtomicType::U128) {
        assert_eq!(
            cswap_counter(u64::MAX as u128, |n| n + 1, EACH),
            u64::MAX as u128 + ALL as u128
        );
        assert_eq!(
            cswap_counter([0f64; 2], |[re, im]| [re + 1.0, im + 2.0], EACH),
            [ALL as f64, 2.0 * ALL as f64]
        );
    }
}

#[test]
fn swaps_hand_each_value_on_once() {
    const EACH: usize = if cfg!(miri) { 30 } else { 30_000 };
    let shared = Shared::new(u64::MAX);
    let fetched = together(|me| {
        (0..EACH)
            .map(|n| shared.fetch(AtomicOp::Write, (me * EACH + n) as u64, 0))
            .collect::<Vec<_>>()
    });
    let mut all: Vec<u64> = fetched.into_iter().flatten().collect();
    all.push(shared.read(0));
    all.sort_unstable();
    assert!(
        all.into_iter()
            .eq((0..(THREADS * EACH) as u64).chain([u64::MAX]))
    );
}

#[test]
fn masked_swaps_touch_their_own_bits() {
    const EACH: u32 = if cfg!(miri) { 30 } else { 40_000 };
    let shared = Shared::new(0u64);
    together(|me| {
        let shift = 16 * me;
        let mask = 0xFFFFu64 << shift;
        // The other bits of the operand are noise that the mask must keep out.
        let operand = |n: u32| {
            ((n as u16 as u64) << shift) | (0x5555_5555_5555_5555u64.rotate_left(n) & !mask)
        };
        for n in 0..EACH {
            let before = shared.fetch(AtomicOp::Mswap, operand(n + 1), mask);
            assert_eq!(
                (before & mask) >> shift,
                n as u16 as u64,
                "thread {me} alone changes its bits"
            );
        }
    });
    let lane = EACH as u16 as u64;
    assert_eq!(
        shared.read(0u64),
        (0..THREADS).fold(0, |word, me| word | lane << (16 * me))
    );
}

/// The operations that change disjoint parts of one word, each by a separate instruction or loop.
#[test]
fn different_operations_mix_on_one_word() {
    const EACH: u64 = if cfg!(miri) { 30 } else { 30_000 };
    // Bits 0..32 count by addition, 32..48 are a lane for a masked swap, 48..56 toggle, bit 60 is set and cleared.
    let shared = Shared::new(0u64);
    together(|me| {
        for n in 0..EACH {
            match me {
                0 => shared.post(AtomicOp::Sum, 1u64, 0),
                1 => {
                    let before = shared.fetch(AtomicOp::Mswap, (n + 1) << 32, 0xFFFF << 32);
                    assert_eq!(before >> 32 & 0xFFFF, n);
                }
                2 => {
                    let before = shared.fetch(AtomicOp::Bxor, 0xA5u64 << 48, 0);
                    assert_eq!(before >> 48 & 0xFF, if n % 2 == 0 { 0 } else { 0xA5 });
                }
                _ => {
                    shared.post(AtomicOp::Bor, 1u64 << 60, 0);
                    let before = shared.fetch(AtomicOp::Band, !(1u64 << 60), 0);
                    assert_eq!(before >> 60 & 1, 1);
                    // An addition by compare-and-swap, against the native one of thread 0.
                    let mut guess = before;
                    loop {
                        let seen = shared.fetch(AtomicOp::Cswap, guess + 1, guess);
                        if seen == guess {
                            break;
                        }
                        guess = seen;
                    }
                }
            }
        }
    });
    assert_eq!(shared.read(0u64), (2 * EACH) | (EACH << 32));
}

#[test]
fn extremes_survive_the_race() {
    const EACH: i64 = if cfg!(miri) { 30 } else { 30_000 };
    let (low, high) = (Shared::new(i64::MAX), Shared::new(f64::NEG_INFINITY));
    together(|me| {
        let me = me as i64;
        for n in 0..EACH {
            let value = (n * 7919 + me) % EACH * if me % 2 == 0 { 1 } else { -1 };
            let before = low.fetch(AtomicOp::Min, value, 0);
            assert!(low.read(0i64) <= before.min(value));
            high.post(AtomicOp::Max, value as f64, 0.0);
        }
    });
    assert_eq!(
        (low.read(0i64), high.read(0f64)),
        (1 - EACH, (EACH - 1) as f64)
    );
}

/// A write that is not atomic would show a mixture of two values.
#[test]
fn wide_elements_are_never_torn() {
    if !supported(AtomicOp::Write, AtomicType::U128) {
        return;
    }
    let shared = Shared::new(0u128);
    together(|me| {
        let value = u128::from_ne_bytes([me as u8; 16]);
        for _ in 0..if cfg!(miri) { 100 } else { 30_000 } {
            if me % 2 == 0 {
                shared.post(AtomicOp::Write, value, 0);
            }
            let bytes = shared.read(0u128).to_ne_bytes();
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        }
    });
}
