//! Answers of a PMI server.

use super::answer::Answer;
use super::mapping::hosts;

/// An answer in each framing, and the process mapping that it may hold.
pub(crate) fn pmi(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for answer in [Answer::of_line(&text, "a"), Answer::of_message(&text, "a")] {
        let Ok(answer) = answer else {
            continue;
        };
        let _ = (answer.check(), answer.number("size"));
        let map = answer.get("value").and_then(|map| hosts(map, 300));
        assert!(map.is_none_or(|map| map.len() == 300));
    }
    let _ = hosts(&text, 300);
}

pub(crate) fn answers() -> Vec<Vec<u8>> {
    let texts = [
        "cmd=a rc=0 value=(vector,(0,2,1)) size=4",
        "cmd=a;rc=0;size=300;value=(vector,(0,2,4),(2,1,7));",
        "cmd=a;rc=3;errmsg=no room;;x;",
        "(vector,(0,1,4))",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
