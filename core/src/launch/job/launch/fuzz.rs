//! What the launchers of a job on several hosts hear from each other: a remote shell may greet, and a host may run something else.

use super::course::{Course, Rules};
use super::frames::{self, Begin, End, Frames, Written};
use super::{Exit, part};
use crate::job::board::{Board, Told};
use crate::job::{Picture, RankState};

const RANKS: u32 = 4;

/// What comes by a pipe, as either side hears it.
pub(crate) fn frames(bytes: &[u8]) {
    let (board, _fd) = Board::create_for(RANKS, 1).expect("a board");
    board.set_afar(2).and(board.set_afar(3)).expect("ranks");
    let rules = Rules {
        homes: vec![0, 0, 1, 1],
        keep_going: true,
        spares: 1,
    };
    let mut course = Course::new(rules, 2);
    let mut frames = Frames::default();
    for piece in bytes.chunks(97) {
        frames.add(piece);
        loop {
            match frames.next() {
                Ok(Some((kind, payload))) => hear(&board, &mut course, kind, payload),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn hear(board: &Board, course: &mut Course, kind: u8, payload: Vec<u8>) {
    match kind {
        frames::ENDED => {
            if let Some(end) = End::from_bytes(&payload) {
                let _ = course.ended(1, &end);
            }
        }
        frames::CANNOT => {
            if let Some((rank, _)) = frames::rank_of(&payload) {
                let _ = course.cannot(1, rank);
            }
        }
        frames::BEGIN => {
            if let Some(begin) = Begin::from_bytes(&payload) {
                assert!(4 * begin.here.len() + begin.plan.len() < payload.len());
            }
        }
        frames::OUTPUT => {
            if let Some((_, _, text)) = frames::output(&payload) {
                assert!(text.len() < payload.len());
            }
        }
        frames::SHOWN => {
            if let Ok(other) = serde_json::from_slice::<Picture>(&payload) {
                let mut picture = Picture::look(board);
                picture.join("there", other);
                let _ = (picture.to_string(), picture.cycle(), picture.missing());
            }
        }
        _ => {
            let asked = part::understand(board, vec![(kind, payload)]);
            assert!(asked.len() <= 1);
        }
    }
}

pub(crate) fn all_frames() -> Vec<Vec<u8>> {
    let frame = |kind: u8, payload: &[u8]| {
        let len = (payload.len() as u32).to_le_bytes();
        [&len[..], &[kind], payload].concat()
    };
    let (home, _fd) = Board::create_for(RANKS, 1).expect("a board");
    home.publish(2, "place", b"here").expect("room");
    home.arrive(2, 3).expect("a rank");
    home.set_state(2, RankState::Joined).expect("a rank");
    let news = home.give(2, &mut Told::default()).expect("there is some");
    let end = End {
        rank: 3,
        pid: 77,
        exit: Exit::Signal(9),
        left: false,
        wanted: false,
    };
    let begin = Begin {
        hosts: 2,
        job: 7,
        here: vec![0, 1],
        plan: b"plan".to_vec(),
    };
    let picture = serde_json::to_vec(&Picture::look(&home)).expect("text");
    let written = Written {
        rank: 2,
        is_stderr: false,
        bytes: 7,
        closed: [false, true],
    };
    let rank = 2u32.to_le_bytes();
    let each = [
        frame(frames::NEWS, &news),
        frame(frames::ENDED, &end.to_bytes()),
        frame(frames::BEGIN, &begin.to_bytes()),
        frame(frames::SHOWN, &picture),
        frame(frames::CANNOT, &[&rank[..], b"why"].concat()),
        frame(frames::LOST, &rank),
        frame(frames::START, &rank),
        frame(frames::WRITTEN, &written.to_bytes()),
        frame(frames::OUTPUT, &frames::to_output(2, true, b"text")),
    ];
    let all = each.concat();
    each.into_iter().chain([all]).collect()
}
