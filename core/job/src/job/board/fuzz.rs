//! A board that a rank with memory errors has overwritten.

use unipgas_base::fenced::Patch;

use super::{Board, H_PID, MAX_VALUE, RankState, SentRecord, board_len};

const SIZE: u32 = 3;

/// Patches of the board of three ranks.
pub(crate) fn board(bytes: &[u8]) {
    let (board, _fd) = Board::create_for(SIZE, 1).expect("a board");
    board.set_pid(0, std::process::id()).expect("a rank");
    for patch in Patch::all(bytes) {
        // SAFETY:
        // - the whole board, which no other thread uses.
        unsafe { patch.apply(board.base.as_ptr(), board_len(SIZE)) };
    }
    let attached = Board::attach(&board.token());
    let attached = attached
        .iter()
        .inspect(|board| assert_eq!(board.size(), SIZE));
    for board in attached.chain([&board]) {
        look(board);
    }
}

fn look(board: &Board) {
    let mut told = SentRecord::default();
    for rank in 0..=SIZE {
        let _ = (board.state(rank), board.epoch(rank), board.pid(rank));
        let _ = (board.died(rank), board.present(rank), board.is_gone(rank));
        let _ = (board.end_is_wanted(rank), board.process_has_ended(rank));
        for key in ["place", "k"] {
            if let Ok(Some(value)) = board.fetch(rank, key) {
                assert!(value.len() <= MAX_VALUE);
            }
        }
        for wait in board.waits(rank) {
            assert!(wait.ranks.len() <= unipgas_base::waits::NAMED);
        }
        if rank < SIZE {
            let _ = board.give(rank, &mut told);
        }
    }
    let _ = (board.arrived(1), board.joined(), board.here());
    let _ = (board.hosts(), board.launcher_alive());
    // Writes of a correct rank after that.
    let _ = board.publish(1, "more", &[1; 9]);
    let _ = board.arrive(1, 2);
    let _ = board.set_state(1, RankState::Joined);
    let _ = board.mark_dead(1);
    let _ = board.begin_again(1);
    board.ring();
}

pub(crate) fn boards() -> Vec<Vec<u8>> {
    let (board, _fd) = Board::create_for(SIZE, 1).expect("a board");
    board.publish(0, "place", &[3; 40]).expect("room");
    board.publish(2, "k", &[4; MAX_VALUE]).expect("room");
    board.arrive(1, 7).expect("a rank");
    board.set_pid(0, std::process::id()).expect("a rank");
    let record = |at: usize, len: usize| {
        // SAFETY:
        // - within the board.
        unsafe { Patch::of(0, board.base.as_ptr(), at, len) }
    };
    let slots = super::slots_offset(SIZE);
    let told = super::watched::told_offset(SIZE);
    let mut waiting = record(told, 255);
    waiting[4..8].copy_from_slice(&std::process::id().to_le_bytes());
    waiting[8..12].fill(1);
    waiting[12] = 9;
    let mut counted = record(
        told + std::mem::offset_of!(unipgas_base::waits::StatusPage, counters),
        255,
    );
    counted[4..].fill(1);
    vec![
        record(0, 48),
        record(H_PID - H_PID % 4, 40),
        record(super::HEADER_BYTES, 192),
        record(slots, 255),
        record(slots + 2 * super::SLOTS_PER_RANK * super::SLOT_BYTES, 255),
        waiting,
        counted,
    ]
}
