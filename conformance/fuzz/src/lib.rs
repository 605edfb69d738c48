//! Calls what reads foreign bytes with bytes that no peer would send: a fixed number of times, from fixed seeds, in tests.
//!
//! Crates name such functions in a module `fuzz` of theirs, which tests and libFuzzer have alone ([`Reader`]). A reader is right if it comes back: without a
//! panic, soon, and without much more memory than it was given bytes.

mod late;
mod memory;
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};

use late::Watchdog;
use mutate::{FuzzRandom, mutated};

/// What reads bytes that others have written: a name, the function, and bytes that make sense to it.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Bytes that a reader may have at a time, beyond what it is given.
const ROOM: usize = 32 << 20;
/// And for each byte that it is given.
const ROOM_FOR_EACH: usize = 4096;
/// How often each is called.
const ROUNDS: u32 = 4000;
/// Another number of rounds.
const VARIABLE: &str = "FUZZ_ROUNDS";
/// The one reader that is called, instead of all.
const ONLY: &str = "FUZZ_READER";

/// Calls each reader with its seeds, and with what becomes of them. Panics where one does, and says with which bytes.
pub fn run(readers: &[Reader]) {
    let rounds = std::env::var(VARIABLE).ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let only = std::env::var(ONLY).ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let any = readers.iter().any(|(name, ..)| wanted(name));
    assert!(any, "there is no reader of the name in {ONLY}");
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (readers.iter())
            .filter(|(name, ..)| wanted(name))
            .map(|reader| scope.spawn(move || run_one(reader, rounds)))
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.filter_map(|end| end.expect("it catches panics"))
            .collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// For a module `fuzz`: the test of its `READERS`.
#[macro_export]
macro_rules! test_readers {
    () => {
        #[test]
        #[cfg_attr(miri, ignore = "as often as it takes")]
        fn malformed_bytes_are_read() {
            $crate::run(READERS);
        }
    };
}

/// What went wrong.
fn run_one((name, read, seeds): &Reader, rounds: u32) -> Option<String> {
    let seeds = seeds();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let mut random = FuzzRandom::of(name);
    let plain = seeds.iter().cloned();
    let altered = (0..rounds).map(|_| mutated(&seeds, &mut random));
    let watch = Watchdog::new(name);
    for bytes in plain.chain(altered) {
        watch.begins(&bytes);
        let before = memory::begin();
        let came_back = catch_unwind(AssertUnwindSafe(|| read(&bytes))).is_ok();
        let most = memory::most_since(before);
        let why = match came_back {
            false => "panics".to_owned(),
            true if most > ROOM + bytes.len() * ROOM_FOR_EACH => format!("takes {most} bytes"),
            true => continue,
        };
        return Some(format!("{name} {why}, given {}", hex(&bytes)));
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds() -> Vec<Vec<u8>> {
        vec![vec![1, 2, 3, 4, 5, 6, 7, 8]]
    }

    fn trusts_a_length(bytes: &[u8]) {
        if let Some(len) = bytes.first_chunk() {
            drop(vec![1u8; u32::from_le_bytes(*len) as usize]);
        }
    }

    fn trusts_an_index(bytes: &[u8]) {
        if let Some(at) = bytes.first() {
            assert!(usize::from(*at) < bytes.len());
        }
    }

    fn trusts_nobody(bytes: &[u8]) {
        drop(bytes.to_vec());
    }

    #[test]
    fn what_trusts_bytes_is_found() {
        assert_eq!(run_one(&("nobody", trusts_nobody, seeds), 1000), None);
        let found = run_one(&("index", trusts_an_index, seeds), 1000);
        assert!(found.is_some_and(|text| text.contains("panics, given")));
        let found = run_one(&("length", trusts_a_length, seeds), 1000);
        assert!(found.is_some_and(|text| text.contains("takes")));
    }

    #[test]
    fn the_same_bytes_come_each_time() {
        let all = || {
            let mut random = FuzzRandom::of("name");
            (0..100)
                .map(|_| mutated(&seeds(), &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(), all());
    }
}
