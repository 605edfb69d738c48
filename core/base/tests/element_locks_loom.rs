//! The locks of elements under the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p unipgas-core --release --test element_locks_loom`.
#![cfg(loom)]

mod loom_kit;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_kit::{beside, model};
use unipgas_base::atomic::ElementLocks;

/// Two adjacent elements with separate locks. The neighbour of the last element of a page is the first one of the next page.
const PLACES: [usize; 2] = [0, 16];
const PAGE: usize = 4096;
/// No process has this id, on any machine.
const DEAD: u32 = i32::MAX as u32;

#[derive(Default)]
struct Memory {
    locks: ElementLocks,
    elements: [UnsafeCell<u64>; 2],
}

impl Memory {
    fn add(&self, element: usize) {
        // SAFETY:
        // - a pointer of the cell, which checks that it is the only one.
        self.elements[element].with_mut(|value| unsafe { *value += 1 });
    }

    /// One element.
    fn update(&self, element: usize) {
        let at = PLACES[element];
        self.locks.with(at, 16, || self.add(element)).unwrap();
    }

    /// An element across the border.
    fn update_both(&self) {
        self.update_across(PLACES[1]);
    }

    /// An element across two pages, with locks in the opposite order.
    fn update_across_pages(&self) {
        self.update_across(PAGE);
    }

    fn update_across(&self, border: usize) {
        let all = || (self.add(0), self.add(1));
        self.locks.with(border - 8, 16, all).unwrap();
    }

    fn values(&self) -> [u64; 2] {
        // SAFETY:
        // - as above.
        let read = |cell: &UnsafeCell<u64>| cell.with(|value| unsafe { *value });
        let all = || [read(&self.elements[0]), read(&self.elements[1])];
        self.locks.with(PLACES[0] + 8, 16, all).unwrap()
    }
}

fn together<const N: usize>(memory: &Arc<Memory>, works: [fn(&Memory); N]) {
    let threads = works.map(|work| beside(memory, work));
    threads.map(|thread| thread.join().unwrap());
}

#[test]
fn one_thread_at_a_time() {
    model(3, || {
        let memory = Arc::new(Memory::default());
        together(&memory, [|memory| memory.update(0); 2]);
        assert_eq!(memory.values(), [2, 0]);
    });
}

#[test]
fn an_element_across_a_border_excludes_those_on_either_side() {
    model(3, || {
        let memory = Arc::new(Memory::default());
        together(&memory, [Memory::update_both, |memory| memory.update(1)]);
        assert_eq!(memory.values(), [1, 2]);
    });
}

/// Both threads need both locks. No thread holds one and waits for the other.
#[test]
fn no_threads_wait_in_a_circle() {
    model(3, || {
        let memory = Arc::new(Memory::default());
        together(&memory, [Memory::update_both, Memory::update_across_pages]);
        assert_eq!(memory.values(), [2, 2]);
    });
}

/// Two find the lock of a process that was killed: one takes it over, then it is the other one's turn.
#[test]
fn one_of_two_takes_over_the_lock_of_a_killed_process() {
    model(3, || {
        let memory = Arc::new(Memory::default());
        memory.locks.take_and_die(PLACES[0], DEAD, || memory.add(0));
        together(&memory, [|memory| memory.update(0); 2]);
        assert_eq!(memory.values(), [3, 0]);
    });
}
