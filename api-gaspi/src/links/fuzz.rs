//! Fuzzing of the messages about texts and connections.

use super::*;

const RANKS: u16 = 3;

/// Handles a sequence of messages, each after its length (1 byte).
pub(crate) fn messages(bytes: &[u8]) {
    // The texts go to a closed channel: no thread prints them.
    let (printed, _) = channel();
    let shared = Shared {
        world: Weak::new(),
        closed: Closed::none(RANKS.into()),
        from_there: Closed::none(RANKS.into()),
        once_closed: (0..RANKS).map(|_| AtomicBool::new(false)).collect(),
        turns: (0..RANKS).map(|_| AtomicU32::new(0)).collect(),
        released: Mutex::default(),
        parts: Mutex::default(),
        printer: Printer {
            texts: Mutex::new(Some(printed)),
            thread: Mutex::default(),
            ended: AtomicBool::new(false),
        },
    };
    let (mut rest, mut count) = (bytes, 0);
    while let [len, more @ ..] = rest {
        let (message, more) = more.split_at(usize::from(*len).min(more.len()));
        let mut reply = Vec::new();
        assert_eq!(shared.handle(0, message, &mut reply), Ok(()));
        (rest, count) = (more, count + 1);
    }
    assert!(shared.parts.lock().len() <= UNENDED);
    let turns = shared.turns.iter().map(|turn| turn.load(Ordering::Relaxed));
    assert!(turns.sum::<u32>() <= count);
    for (rank, incarnation) in (0..u32::from(RANKS)).flat_map(|rank| [0, 1].map(|one| (rank, one)))
    {
        let sides = [&shared.closed, &shared.from_there];
        let [here, there] = sides.map(|side| side.is_closed(rank, || incarnation));
        assert_eq!(here, there);
    }
}

pub(crate) fn all_messages() -> Vec<Vec<u8>> {
    let message = |what: u8, rank: u16, rest: &[u8]| {
        let mut bytes = vec![3 + rest.len() as u8, what];
        bytes.extend(rank.to_le_bytes());
        bytes.extend(rest);
        bytes
    };
    let each = [
        message(TEXT, 1, b"\x05\0\0\0some"),
        message(LINE, 1, b"\x05\0\0\0 text\n"),
        message(CLOSE, 2, &[0; 4]),
        message(CLOSE, 2, &[0xff; 4]),
        message(OPEN, 2, &[0; 4]),
        message(CLOSE, RANKS - 1, &[1, 0, 0, 0]),
        message(CLOSE, 1, b""),
    ];
    // More incomplete texts than the limit.
    let mut many = Vec::new();
    for number in 0..UNENDED as u32 + 9 {
        many.extend(message(TEXT, 1, &number.to_le_bytes()));
    }
    let all = each.concat();
    each.into_iter().chain([all, many]).collect()
}
