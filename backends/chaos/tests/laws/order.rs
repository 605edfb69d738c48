//! The order of operations. Each law also runs without the flag that it needs; then at least one seed must break the law. This proves
//! that chaos does reorder.

use crate::common::{Rig, eventually};
use unipgas_chaos::ChaosConfig;
use unipgas_core::op::{Flags, Outcome};

const PUTS: usize = 8;
const LEN: usize = 96;
const WORD: usize = 4096;
const DATA: [u8; LEN] = [0xa5; LEN];

fn rig(seed: u64, layers: usize) -> Rig {
    let rig = Rig::new(ChaosConfig::seeded(seed), layers, 8192);
    rig.fill(0, &DATA);
    rig
}

/// Polls until no operation is pending. Returns whether each check of `law` held.
fn always(rig: &Rig, law: impl Fn(&Rig) -> bool) -> bool {
    let mut held = true;
    eventually("the operations end", || {
        held &= law(rig);
        rig.endpoint.poll(&mut |c| assert_eq!(c.result, Ok(())));
        rig.endpoint.pending() == 0
    });
    held & law(rig)
}

fn all_there(rig: &Rig, puts: usize) -> bool {
    (0..puts).all(|i| rig.bytes(i * LEN, LEN) == DATA)
}

/// "When the notice is there, the earlier puts are", for a notice alone and for one of a put.
fn notice_after_puts(seed: u64, layers: usize, of_put: bool, flags: Flags) -> bool {
    let rig = rig(seed, layers);
    for i in 0..PUTS {
        rig.put(0, i * LEN, LEN, Flags::empty(), 0).unwrap();
    }
    match of_put {
        true => rig.put_notify(0, PUTS * LEN, LEN, (WORD, 1), flags, 0),
        false => rig.notify(WORD, 1, flags, 0),
    }
    .unwrap();
    always(&rig, |rig| rig.word(WORD) == 0 || all_there(rig, PUTS))
}

#[test]
fn an_ordered_notice_comes_after_earlier_puts() {
    for (layers, of_put, seeds) in [(1, false, 1000), (2, false, 200), (1, true, 500)] {
        let holds = |seed, flags| notice_after_puts(seed, layers, of_put, flags);
        for seed in 0..seeds {
            assert!(holds(seed, Flags::ORDERED), "seed {seed}, {layers} layers");
        }
        let broken = (0..1000).find(|seed| !holds(*seed, Flags::empty()));
        assert!(broken.is_some(), "no seed shows that the flag is missing");
    }
}

/// "When the notice of a put is there, its data is", for a notice that is part of the operation or not.
fn notice_after_its_data(seed: u64, layers: usize, one_operation: bool) -> bool {
    let rig = rig(seed, layers);
    if one_operation {
        rig.put_notify(0, 0, LEN, (WORD, 1), Flags::empty(), 0)
            .unwrap();
    } else {
        rig.put(0, 0, LEN, Flags::empty(), 0).unwrap();
        rig.notify(WORD, 1, Flags::empty(), 0).unwrap();
    }
    always(&rig, |rig| rig.word(WORD) == 0 || all_there(rig, 1))
}

#[test]
fn a_notice_never_overtakes_the_data_of_its_operation() {
    for layers in [1, 2] {
        for seed in 0..500 {
            assert!(
                notice_after_its_data(seed, layers, true),
                "seed {seed}, {layers} layers"
            );
        }
        assert!((0..1000).any(|seed| !notice_after_its_data(seed, layers, false)));
    }
}

#[test]
fn a_chain_of_ordered_operations_arrives_in_order() {
    // Whether no word is ever less than the word behind it.
    let chain = |seed: u64, flags: Flags| {
        let rig = rig(seed, 1);
        for i in 0..10 {
            rig.notify(WORD + 4 * i, 1, flags, 0).unwrap();
        }
        always(&rig, |rig| {
            // Reads from the back: a word that is set must imply that all words set earlier are set.
            let words: Vec<_> = (0..10).rev().map(|i| rig.word(WORD + 4 * i)).collect();
            words.is_sorted()
        })
    };
    assert!((0..500).all(|seed| chain(seed, Flags::ORDERED)));
    assert!((0..500).any(|seed| !chain(seed, Flags::empty())));
}

#[test]
fn later_unordered_operations_may_overtake_ordered_ones() {
    let overtaken = |config: ChaosConfig| {
        let rig = Rig::new(config, 1, 8192);
        rig.fill(0, &DATA);
        rig.put(0, 0, LEN, Flags::empty(), 0).unwrap();
        rig.notify(WORD, 1, Flags::ORDERED, 0).unwrap();
        rig.put(0, LEN, LEN, Flags::empty(), 0).unwrap();
        !always(&rig, |rig| {
            let later = rig.bytes(LEN, LEN) == DATA;
            !later || rig.word(WORD) == 1
        })
    };
    assert!((0..500).any(|seed| overtaken(ChaosConfig::seeded(seed))));
    let orderly = |seed| ChaosConfig {
        reorder: false,
        ..ChaosConfig::seeded(seed)
    };
    assert!((0..500).all(|seed| !overtaken(orderly(seed))));
}

#[test]
fn transfers_are_seen_half_done_but_words_are_not() {
    let torn = |config: ChaosConfig, at: usize, len: usize| {
        let rig = Rig::new(config, 1, 8192);
        rig.fill(0, &DATA);
        rig.put(0, at, len, Flags::empty(), 0).unwrap();
        !always(&rig, |rig| {
            let seen = rig.bytes(at, len);
            seen.iter().all(|b| *b == DATA[0]) || {
                // The check reads byte by byte, and the rest may arrive during it. So a torn transfer counts only if it stays the same.
                let again = rig.bytes(at, len);
                again != seen || seen.iter().all(|b| *b == 0)
            }
        })
    };
    let seeds = || (0..300).map(ChaosConfig::seeded);
    assert!(seeds().any(|config| torn(config, 3, LEN)));
    assert!(
        seeds().any(|config| torn(config, 12, 8)),
        "not aligned: no word"
    );
    for len in [1, 2, 4, 8] {
        assert!(!seeds().any(|config| torn(config, 16, len)), "{len} bytes");
    }
    let whole = |config| ChaosConfig {
        split: false,
        ..config
    };
    assert!(!seeds().any(|config| torn(whole(config), 3, LEN)));
}

#[test]
fn the_source_is_read_late_unless_inline() {
    let late = |seed: u64, flags: Flags| {
        let rig = rig(seed, 1);
        let outcome = rig.put(0, 0, LEN, flags, 0).unwrap();
        rig.fill(0, &[0; LEN]);
        rig.drain();
        let arrived = rig.bytes(0, LEN);
        assert!(
            outcome == Outcome::Pending || arrived == DATA,
            "complete means taken"
        );
        arrived != DATA
    };
    assert!((0..100).any(|seed| late(seed, Flags::empty())));
    assert!(!(0..500).any(|seed| late(seed, Flags::INLINE)));
}
