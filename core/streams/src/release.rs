//! Reports to peers: the end of a registration that they have imported, and the leave of this process.

use parking_lot::Mutex;

use unipgas_engine::agent::RegisteredPlace;

#[derive(Default)]
pub(super) struct Releases(Mutex<State>);

#[derive(Default)]
struct State {
    /// Ended registrations that peers do not know yet.
    untold: Vec<RegisteredPlace>,
    /// Registrations with a reported end, and the number of peers that have not answered.
    told: Vec<(RegisteredPlace, usize)>,
    /// Entries of `told` without a waiting thread, because a peer was silent for too long.
    given_up: Vec<RegisteredPlace>,
    /// Peers know that this process leaves.
    left: bool,
    /// No more reports: the agent has ended.
    closed: bool,
    /// Since the last [`have_changed`](Releases::have_changed).
    changed: bool,
}

impl Releases {
    /// Reports the end of this registration to peers.
    pub fn begin(&self, place: RegisteredPlace) {
        self.0.lock().untold.push(place);
    }

    /// Whether no peer uses the registration any more. Gives true only once, until the agent ends.
    pub(crate) fn is_over(&self, place: RegisteredPlace) -> bool {
        let mut state = self.0.lock();
        if let Some(at) = state.told.iter().position(|told| *told == (place, 0)) {
            state.told.swap_remove(at);
            return true;
        }
        state.closed
    }

    /// No thread waits any more for the peers that have not answered.
    pub(crate) fn give_up(&self, place: RegisteredPlace) {
        self.0.lock().given_up.push(place);
    }

    /// Whether a peer that a thread gave up is still silent.
    pub(crate) fn are_given_up(&self) -> bool {
        !self.0.lock().given_up.is_empty()
    }

    /// Whether peers know that this process leaves.
    pub(crate) fn has_left(&self) -> bool {
        let state = self.0.lock();
        state.left || state.closed
    }

    /// For the agent: peers know that this process leaves.
    pub(crate) fn left(&self) {
        let mut state = self.0.lock();
        state.changed |= !state.left;
        state.left = true;
    }

    /// For the agent: reports the new ends. `tell` does it, and returns the number of peers.
    pub(crate) fn tell(&self, mut tell: impl FnMut(RegisteredPlace) -> usize) {
        let mut state = self.0.lock();
        for place in std::mem::take(&mut state.untold) {
            let peers = tell(place);
            state.told.push((place, peers));
            state.changed = true;
        }
    }

    /// For the agent: a peer no longer uses the registration.
    pub(crate) fn forgotten(&self, place: RegisteredPlace) {
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

    /// For the agent: whether there was a change since the last call.
    pub(crate) fn have_changed(&self) -> bool {
        std::mem::take(&mut self.0.lock().changed)
    }

    /// For the agent: it ends.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
    }
}
