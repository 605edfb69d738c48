//! What peers are told before it is over: the end of a registration that they have imported, and the end of this process's part.

use parking_lot::Mutex;

use crate::agent::Place;

/// Those under way.
#[derive(Default)]
pub(super) struct Releases(Mutex<State>);

#[derive(Default)]
struct State {
    /// Peers have not been told yet.
    untold: Vec<Place>,
    /// Told, and by how many not answered yet; 0: by none any more.
    told: Vec<(Place, usize)>,
    /// Of those the ones that nobody waits for any more: a peer has been silent for long.
    given_up: Vec<Place>,
    /// Peers have been told that this process leaves.
    left: bool,
    /// Nobody tells anybody any more.
    closed: bool,
    /// Since somebody asked last.
    changed: bool,
}

impl Releases {
    /// Peers are to be told that this registration ends.
    pub fn begin(&self, place: Place) {
        self.0.lock().untold.push(place);
    }

    /// Whether no peer uses the registration any more; says so once.
    pub fn is_over(&self, place: Place) -> bool {
        let mut state = self.0.lock();
        if let Some(at) = state.told.iter().position(|told| *told == (place, 0)) {
            state.told.swap_remove(at);
            return true;
        }
        state.closed
    }

    /// Nobody waits for the peers any more that have not answered.
    pub fn give_up(&self, place: Place) {
        self.0.lock().given_up.push(place);
    }

    /// Whether a peer has been given up, and still is silent.
    pub fn are_given_up(&self) -> bool {
        !self.0.lock().given_up.is_empty()
    }

    /// Whether peers have been told that this process leaves.
    pub fn has_left(&self) -> bool {
        let state = self.0.lock();
        state.left || state.closed
    }

    /// For the agent: they have.
    pub fn left(&self) {
        let mut state = self.0.lock();
        state.changed |= !state.left;
        state.left = true;
    }

    /// For the agent: what peers are to be told of; `tell` does, and gives how many that are.
    pub fn tell(&self, mut tell: impl FnMut(Place) -> usize) {
        let mut state = self.0.lock();
        for place in std::mem::take(&mut state.untold) {
            let peers = tell(place);
            state.told.push((place, peers));
            state.changed = true;
        }
    }

    /// For the agent: one of those peers uses it no more.
    pub fn forgotten(&self, place: Place) {
        let mut state = self.0.lock();
        let told = state.told.iter_mut().find(|(told, _)| *told == place);
        if let Some((_, left)) = told {
            *left = left.saturating_sub(1);
            let over = *left == 0;
            state.changed = true;
            if over && let Some(at) = state.given_up.iter().position(|known| *known == place) {
                state.given_up.swap_remove(at);
                state.told.retain(|told| *told != (place, 0));
            }
        }
    }

    /// For the agent: whether anything has changed since it asked last.
    pub fn have_changed(&self) -> bool {
        std::mem::take(&mut self.0.lock().changed)
    }

    /// For the agent: it goes.
    pub fn close(&self) {
        self.0.lock().closed = true;
    }
}
