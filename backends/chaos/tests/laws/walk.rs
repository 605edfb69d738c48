//! Random programs against a mirror: for any chaos, the memory after a drain is as the program implies.

use std::collections::HashMap;

use crate::common::{Rig, flags_if, read, write};
use proptest::prelude::*;
use unipgas_chaos::ChaosConfig;
use unipgas_core::op::{AtomicRequest, Flags, Outcome};
use unipgas_core::{AtomicOp, AtomicType};

/// The target: bytes, then notification words, then counters of 8 bytes.
const BYTES: usize = 768;
const WORDS: usize = 32;
const COUNTERS: usize = 16;
const FIRST_COUNTER: usize = BYTES + 4 * WORDS;
const TARGET: usize = FIRST_COUNTER + 8 * COUNTERS;

#[derive(Debug, Clone)]
enum Act {
    Put {
        at: usize,
        len: usize,
        fill: u8,
        inline: bool,
    },
    PutNotify {
        at: usize,
        len: usize,
        fill: u8,
        word: usize,
        inline: bool,
    },
    Get {
        at: usize,
        len: usize,
    },
    Notify {
        word: usize,
        value: u32,
    },
    Add {
        counter: usize,
        count: usize,
        value: u64,
        fetch: bool,
    },
    Poll,
    Drain,
}

struct Walk {
    rig: Rig,
    mirror: Vec<u8>,
    /// First byte and length of the ranges that operations since the last drain touch.
    touched: Vec<(usize, usize)>,
    /// Local bytes in use since then.
    local: usize,
    /// Local offsets, and their expected content after the drain.
    expected: Vec<(usize, Vec<u8>)>,
    /// Contexts of open operations, and whether each must be reported (true) or must not.
    reports: HashMap<u64, bool>,
    next: u64,
    /// An operation that touches the range of an earlier one is ordered after it. Without this the program is wrong.
    careful: bool,
}

impl Walk {
    fn flags(&mut self, touches: &[(usize, usize)], flags: Flags) -> Flags {
        let overlap = |a: &(usize, usize), b: &(usize, usize)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
        let clash = touches
            .iter()
            .any(|t| self.touched.iter().any(|u| overlap(t, u)));
        self.touched.extend_from_slice(touches);
        flags | flags_if(clash && self.careful, Flags::ORDERED)
    }

    fn room(&mut self, len: usize) -> usize {
        let at = self.local;
        self.local += len;
        at
    }

    fn posted(&mut self, outcome: unipgas_core::Result<Outcome>) {
        let pending = outcome.expect("arguments are right") == Outcome::Pending;
        self.reports.insert(self.next, pending);
        self.next += 1;
    }

    fn source(&mut self, len: usize, fill: u8) -> (usize, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8) | 1).collect();
        let from = self.room(len);
        self.rig.fill(from, &bytes);
        (from, bytes)
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        // Bounds the local memory in use.
        if self.local > 60_000 {
            self.drain()?;
        }
        let context = self.next;
        match *act {
            Act::Put {
                at,
                len,
                fill,
                inline,
            } => {
                let (from, bytes) = self.source(len, fill);
                let inline = flags_if(inline, Flags::INLINE);
                let flags = self.flags(&[(at, len)], inline);
                let outcome = self.rig.put(from, at, len, flags, context);
                self.sent(from, len, flags);
                self.posted(outcome);
                self.mirror[at..at + len].copy_from_slice(&bytes);
            }
            Act::PutNotify {
                at,
                len,
                fill,
                word,
                inline,
            } => {
                let (from, bytes) = self.source(len, fill);
                let slot = BYTES + 4 * word;
                let inline = flags_if(inline, Flags::INLINE);
                let flags = self.flags(&[(at, len), (slot, 4)], inline);
                let value = context as u32 + 1;
                let outcome = self
                    .rig
                    .put_notify(from, at, len, (slot, value), flags, context);
                self.sent(from, len, flags);
                self.posted(outcome);
                self.mirror[at..at + len].copy_from_slice(&bytes);
                self.mirror[slot..slot + 4].copy_from_slice(&value.to_ne_bytes());
            }
            Act::Get { at, len } => {
                let to = self.room(len);
                let flags = self.flags(&[(at, len)], Flags::empty());
                let dst = self.rig.local.local(to, len).unwrap();
                let src = self.rig.at(at);
                // SAFETY:
                // - the local bytes are this operation's alone until the drain.
                let outcome = unsafe { self.rig.endpoint.get(dst, src, len, flags, context) };
                self.posted(outcome);
                self.expected.push((to, self.mirror[at..at + len].to_vec()));
            }
            Act::Notify { word, value } => {
                let slot = BYTES + 4 * word;
                let flags = self.flags(&[(slot, 4)], Flags::WAKE);
                let outcome = self.rig.notify(slot, value, flags, context);
                self.posted(outcome);
                self.mirror[slot..slot + 4].copy_from_slice(&value.to_ne_bytes());
            }
            Act::Add {
                counter,
                count,
                value,
                fetch,
            } => {
                let count = count.min(COUNTERS - counter);
                let at = FIRST_COUNTER + 8 * counter;
                let end = at + 8 * count;
                let operands = vec![value; count];
                let to = self.room(8 * count);
                let result = self.rig.local.local(to, 8 * count).unwrap().ptr;
                let request = AtomicRequest {
                    op: AtomicOp::Sum,
                    ty: AtomicType::U64,
                    count,
                    operand: operands.as_ptr().cast(),
                    compare: std::ptr::null(),
                    result: if fetch { result } else { std::ptr::null_mut() },
                };
                let flags = self.flags(&[(at, end - at)], Flags::empty());
                // SAFETY:
                // - operands live until the call returns, results until the drain.
                let outcome = unsafe {
                    self.rig
                        .endpoint
                        .atomic(self.rig.at(at), &request, flags, context)
                };
                drop(operands);
                self.posted(outcome);
                if fetch {
                    self.expected.push((to, self.mirror[at..end].to_vec()));
                }
                for element in self.mirror[at..end].chunks_exact_mut(8) {
                    let sum = u64::from_ne_bytes(element.try_into().unwrap()).wrapping_add(value);
                    element.copy_from_slice(&sum.to_ne_bytes());
                }
            }
            Act::Poll => {
                let mut ended = Vec::new();
                self.rig.endpoint.poll(&mut |c| ended.push(c));
                self.reported(ended)?;
            }
            Act::Drain => self.drain()?,
        }
        Ok(())
    }

    /// The source of an inline operation may be reused at once.
    fn sent(&mut self, from: usize, len: usize, flags: Flags) {
        if flags.contains(Flags::INLINE) {
            write(&self.rig.local, from, &vec![0; len]);
        }
    }

    fn reported(&mut self, ended: Vec<unipgas_core::Completion>) -> Result<(), String> {
        for completion in ended {
            completion.result.map_err(|e| e.to_string())?;
            if self.reports.insert(completion.context, false) != Some(true) {
                return Err(format!(
                    "operation {} ended once too often",
                    completion.context
                ));
            }
        }
        let pending = self.reports.values().filter(|p| **p).count();
        if self.rig.endpoint.pending() != pending {
            return Err(format!(
                "{} pending, not {pending}",
                self.rig.endpoint.pending()
            ));
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), String> {
        let ended = self.rig.drain();
        self.reported(ended)?;
        if self.rig.bytes(0, TARGET) != self.mirror {
            return Err("the target is not what was written".into());
        }
        for (at, bytes) in self.expected.drain(..) {
            if read(&self.rig.local, at, bytes.len()) != bytes {
                return Err(format!("the result at {at} is wrong"));
            }
        }
        self.touched.clear();
        self.local = 0;
        Ok(())
    }
}

fn walk(config: ChaosConfig, layers: usize, acts: &[Act], careful: bool) -> Result<(), String> {
    let mut walk = Walk {
        rig: Rig::new(config, layers, TARGET),
        mirror: vec![0; TARGET],
        touched: Vec::new(),
        local: 0,
        expected: Vec::new(),
        reports: HashMap::new(),
        next: 0,
        careful,
    };
    let result = acts.iter().try_for_each(|act| walk.act(act));
    let result = result.and_then(|()| walk.drain());
    // No operation may be pending when the memory is freed, even after an error.
    walk.rig.drain();
    result
}

fn place() -> impl Strategy<Value = (usize, usize)> {
    (0..BYTES, 0..200usize).prop_map(|(at, len)| (at, len.min(BYTES - at)))
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (place(), any::<u8>(), any::<bool>())
            .prop_map(|((at, len), fill, inline)| Act::Put { at, len, fill, inline }),
        4 => (place(), any::<u8>(), 0..WORDS, any::<bool>())
            .prop_map(|((at, len), fill, word, inline)| Act::PutNotify { at, len, fill, word, inline }),
        3 => place().prop_map(|(at, len)| Act::Get { at, len }),
        2 => (0..WORDS, any::<u32>()).prop_map(|(word, value)| Act::Notify { word, value }),
        3 => (0..COUNTERS, 0..6usize, any::<u64>(), any::<bool>())
            .prop_map(|(counter, count, value, fetch)| Act::Add { counter, count, value, fetch }),
        2 => Just(Act::Poll),
        1 => Just(Act::Drain),
    ]
}

prop_compose! {
    fn config()(
        seed in any::<u64>(),
        max_delay_polls in 0..40u32,
        at_once_percent in prop_oneof![Just(0), Just(100), 0..100u32],
        split in any::<bool>(),
        reorder in any::<bool>(),
    ) -> ChaosConfig {
        ChaosConfig { seed, max_delay_polls, at_once_percent, split, reorder, ..ChaosConfig::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn memory_is_what_the_program_says(
        config in config(),
        layers in 1..=2usize,
        acts in prop::collection::vec(act(), 1..120),
    ) {
        if let Err(why) = walk(config, layers, &acts, true) {
            prop_assert!(false, "{}", why);
        }
    }
}

#[test]
fn a_program_that_forgets_the_order_is_found_out() {
    let acts: Vec<_> = (0..20)
        .map(|i| Act::Put {
            at: 40,
            len: 64,
            fill: 10 * i,
            inline: true,
        })
        .collect();
    let found = |careful| {
        (0..200).find(|seed| walk(ChaosConfig::seeded(*seed), 1, &acts, careful).is_err())
    };
    assert!(found(false).is_some());
    assert_eq!(found(true), None);
}
