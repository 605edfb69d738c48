//! Answers leave with the next message to the same process.

use std::sync::Arc;

use unipgas_core::streams::Stream;

use super::calls::{counted, sent};
use crate::net::OfiNet;

fn net() -> Option<Arc<OfiNet>> {
    Some(OfiNet::open(super::chosen("tcp")?, Arc::default()).unwrap())
}

#[test]
fn an_answer_leaves_with_what_follows_it_or_by_itself() {
    let Some((one, two)) = net().zip(net()) else {
        return;
    };
    let asks = one.reach(&two.address).unwrap();
    let replies = two.reach(&one.address).unwrap();
    let (mut answers, mut hears) = (None, None);
    while answers.is_none() || hears.is_none() || !asks.is_open() || !replies.is_open() {
        one.progress(false, false);
        two.progress(false, false);
        answers = answers.or_else(|| two.owner.accept());
        hears = hears.or_else(|| one.owner.accept());
    }
    let (answers, hears) = (answers.unwrap().stream, hears.unwrap().stream);
    let come = |stream: &dyn Stream, expected: &[u8], moves: &dyn Fn()| {
        let mut bytes = Vec::new();
        while bytes.len() < expected.len() {
            moves();
            one.progress(false, false);
            stream.pull(&mut bytes).unwrap();
        }
        assert_eq!(bytes, expected);
    };
    let still = || {};
    counted(&two.fabric);

    let before = sent();
    assert_eq!(answers.push_along(b"one "), Ok(4));
    assert_eq!(answers.push_along(b"two "), Ok(4));
    assert_eq!(sent(), before);
    assert_eq!(replies.push(b"reply"), Ok(5));
    assert_eq!(sent(), before + 1);
    come(&*asks, b"one two ", &still);
    come(&*hears, b"reply", &still);

    // One message has no room for both, so the answer leaves first.
    assert_eq!(answers.push_along(b"three "), Ok(6));
    let long = vec![7; two.body()];
    assert_eq!(replies.push(&long), Ok(long.len()));
    assert_eq!(sent(), before + 3);
    come(&*asks, b"three ", &still);
    come(&*hears, &long, &still);

    // Later bytes of the same stream come after the answer.
    assert_eq!(answers.push_along(b"four "), Ok(5));
    assert_eq!(answers.push(b"five"), Ok(4));
    assert_eq!(sent(), before + 4);
    come(&*asks, b"four five", &still);

    // Without a follow-up the answer leaves after some rounds of progress.
    assert_eq!(answers.push_along(b"six"), Ok(3));
    two.progress(false, false);
    assert_eq!(sent(), before + 4);
    come(&*asks, b"six", &|| {
        two.progress(false, false);
    });
    assert_eq!(sent(), before + 5);

    // The progress thread does not wait. After answers without a follow-up, none is held back.
    for nth in 6..9 {
        assert_eq!(answers.push_along(b"seven"), Ok(5));
        two.progress(true, true);
        assert_eq!(sent(), before + nth);
        come(&*asks, b"seven", &still);
    }
    assert_eq!(answers.push_along(b"eight"), Ok(5));
    assert_eq!(sent(), before + 9);
    come(&*asks, b"eight", &still);
}
