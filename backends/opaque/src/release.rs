//! What peers are told before it is over: the end of a registration that they have imported, and the end of this process's part.

use parking_lot::{Condvar, Mutex};
use unipgas_core::agent::Place;
use unipgas_core::process;

/// Those under way.
pub struct Releases {
    state: Mutex<State>,
    changed: Condvar,
    process: u32,
}

#[derive(Default)]
struct State {
    /// Peers have not been told yet.
    untold: Vec<Place>,
    /// Told, and by how many not answered yet; 0: by none any more.
    told: Vec<(Place, usize)>,
    /// Peers have been told that this process leaves.
    left: bool,
    /// Nobody tells anybody any more.
    closed: bool,
}

impl Releases {
    pub fn new() -> Self {
        Releases {
            state: Mutex::default(),
            changed: Condvar::new(),
            process: process::id(),
        }
    }

    /// Returns when no peer uses the registration any more.
    pub fn tell_and_wait(&self, place: Place, wake: impl FnOnce()) {
        if self.process != process::id() {
            // The child of a fork has no agent, and peers know nothing of it.
            return;
        }
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.untold.push(place);
        wake();
        loop {
            let over = state.told.iter().position(|told| *told == (place, 0));
            if let Some(at) = over {
                state.told.swap_remove(at);
                return;
            }
            if state.closed {
                return;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Returns when peers have been told that this process leaves.
    pub fn wait_until_left(&self) {
        let mut state = self.state.lock();
        while self.process == process::id() && !state.left && !state.closed {
            self.changed.wait(&mut state);
        }
    }

    /// For the agent: they have.
    pub fn left(&self) {
        self.state.lock().left = true;
        self.changed.notify_all();
    }

    /// For the agent: what peers are to be told of; `tell` does, and gives how many that are.
    pub fn tell(&self, mut tell: impl FnMut(Place) -> usize) {
        let mut state = self.state.lock();
        let untold = std::mem::take(&mut state.untold);
        if untold.is_empty() {
            return;
        }
        for place in untold {
            let peers = tell(place);
            state.told.push((place, peers));
        }
        self.changed.notify_all();
    }

    /// For the agent: one of those peers uses it no more.
    pub fn forgotten(&self, place: Place) {
        let mut state = self.state.lock();
        let told = state.told.iter_mut().find(|(told, _)| *told == place);
        if let Some((_, left)) = told {
            *left = left.saturating_sub(1);
        }
        self.changed.notify_all();
    }

    /// For the agent: it goes.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}
