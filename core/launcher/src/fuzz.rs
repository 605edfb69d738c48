//! Readers of foreign bytes, for tests and libFuzzer: frames from launchers of other hosts, and boards that a rank has overwritten.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::failure_policy::{FailurePolicy, Rules};
use crate::frames::{self, Begin, End, Frames, Written};
use crate::job_snapshot::JobSnapshot;
use crate::rates::Rates;
use crate::{Exit, node};
use unipgas_core::fenced::Patch;
use unipgas_core::job::RankState;
use unipgas_core::job::board::{Board, SentRecord};

/// A reader: its name, its function, and sample inputs that it accepts.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The readers of this crate.
pub const READERS: &[Reader] = &[
    ("frames", frames, all_frames),
    ("picture", picture, pictures),
];

const RANKS: u32 = 4;

/// Frames from a pipe, as both sides parse them.
fn frames(bytes: &[u8]) {
    let (board, _fd) = Board::create_for(RANKS, 1).expect("a board");
    board.set_afar(2).and(board.set_afar(3)).expect("ranks");
    let rules = Rules {
        homes: vec![0, 0, 1, 1],
        keep_going: true,
        spares: 1,
    };
    let mut course = FailurePolicy::new(rules, 2);
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

fn hear(board: &Board, course: &mut FailurePolicy, kind: u8, payload: Vec<u8>) {
    match kind {
        frames::ENDED => {
            if let Some(end) = frames::record::<End>(&payload) {
                let _ = course.ended(1, &end);
            }
        }
        frames::CANNOT => {
            if let Some((rank, _)) = frames::rank_of(&payload) {
                let _ = course.cannot(1, rank);
            }
        }
        frames::BEGIN => {
            if let Some(begin) = frames::record::<Begin>(&payload) {
                assert!(begin.here.len() + begin.plan.len() < payload.len());
            }
        }
        frames::OUTPUT => {
            if let Some((_, _, text)) = frames::output(&payload) {
                assert!(text.len() < payload.len());
            }
        }
        frames::SHOWN => {
            if let Some(other) = frames::record(&payload) {
                let mut picture = JobSnapshot::look(board);
                picture.join("there", other);
                let _ = (picture.to_string(), picture.cycle(), picture.missing());
            }
        }
        _ => {
            let asked = node::understand(board, vec![(kind, payload)]);
            assert!(asked.len() <= 1);
        }
    }
}

fn all_frames() -> Vec<Vec<u8>> {
    let frame = |kind: u8, payload: &[u8]| {
        let len = (payload.len() as u32).to_le_bytes();
        [&len[..], &[kind], payload].concat()
    };
    let (home, _fd) = Board::create_for(RANKS, 1).expect("a board");
    home.publish(2, "place", b"here").expect("room");
    home.arrive(2, 3).expect("a rank");
    home.set_state(2, RankState::Joined).expect("a rank");
    let news = home
        .give(2, &mut SentRecord::default())
        .expect("there is some");
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
    let picture = frames::payload(&JobSnapshot::look(&home));
    let written = Written {
        rank: 2,
        is_stderr: false,
        bytes: 7,
        closed: [false, true],
    };
    let rank = 2u32.to_le_bytes();
    let each = [
        frame(frames::NEWS, &news),
        frame(frames::ENDED, &frames::payload(&end)),
        frame(frames::BEGIN, &frames::payload(&begin)),
        frame(frames::SHOWN, &picture),
        frame(frames::CANNOT, &[&rank[..], b"why"].concat()),
        frame(frames::LOST, &rank),
        frame(frames::START, &rank),
        frame(frames::WRITTEN, &frames::payload(&written)),
        frame(frames::OUTPUT, &frames::to_output(2, true, b"text")),
    ];
    let all = each.concat();
    each.into_iter().chain([all]).collect()
}

/// Patches of a board, from which a picture is then taken.
fn picture(bytes: &[u8]) {
    let (board, memory) = Board::create_for(RANKS, 1).expect("a board");
    board.set_pid(0, std::process::id()).expect("a rank");
    let memory = File::from(memory);
    let end = memory.metadata().expect("a memfd").len();
    for Patch { at, bytes, .. } in Patch::all(bytes) {
        let room = end.saturating_sub(at as u64).min(bytes.len() as u64) as usize;
        memory
            .write_all_at(&bytes[..room], at as u64)
            .expect("a memfd");
    }
    let picture = JobSnapshot::look(&board);
    let rates = Rates::between(&JobSnapshot::default(), &picture, Duration::ZERO);
    let _ = (picture.table(Some(&rates)), picture.cycle());
    let _ = (picture.to_string(), picture.missing());
}

/// Each part of a board that ranks have written.
fn pictures() -> Vec<Vec<u8>> {
    const PART: usize = 252;
    let (board, memory) = Board::create_for(RANKS, 1).expect("a board");
    board.publish(0, "place", &[3; 40]).expect("room");
    board.arrive(1, 7).expect("a rank");
    board.set_pid(0, std::process::id()).expect("a rank");
    let memory = File::from(memory);
    let end = memory.metadata().expect("a memfd").len() as usize;
    let parts = (0..end.min(1 << 18)).step_by(PART);
    let mut bytes = vec![0; end];
    memory.read_exact_at(&mut bytes, 0).expect("a memfd");
    parts
        // SAFETY:
        // - within the bytes.
        .map(|at| unsafe { Patch::of(0, bytes.as_ptr(), at, PART.min(end - at)) })
        .filter(|patch| patch[4..].iter().any(|byte| *byte != 0))
        .collect()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();
