//! The state word of a gate, shared by all processes of its circuit.

/// Counters of inputs for each port and of firings (16 bits each, wrapping), the ports in use, and the number of the configuration.
///
/// Each change is one compare-exchange of the whole word. So exactly one thread makes a gate ready, and this thread executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

/// One of the two inputs, or outputs, of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Signal = 0,
    Packet = 1,
}

/// Cause of a broken gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Input,
    Output,
}

pub(super) const PORTS: [Port; 2] = [Port::Signal, Port::Packet];

const COUNTER: u64 = 0xffff;
const FIRED_SHIFT: u32 = 32;
const CONFIGURED: u64 = 1 << 48;
const WAITS: u64 = 1 << 49;
const SENDS: u64 = 1 << 51;
const END: u64 = 1 << 53;
const BROKEN: u64 = 1 << 54;
const LOST_INPUT: u64 = 1 << 55;
const EPOCH: u64 = 1 << 56;
const EPOCH_MASK: u64 = !(EPOCH - 1);

impl State {
    /// The unconfigured state that follows.
    pub(super) fn cleared(self) -> Self {
        Self((self.0 & EPOCH_MASK).wrapping_add(EPOCH))
    }

    /// A cleared state, configured.
    pub(super) fn configured(self, waits: [bool; 2], sends: [bool; 2], end: bool) -> Self {
        let mut word = self.0 | CONFIGURED | if end { END } else { 0 };
        for port in PORTS {
            word |= u64::from(waits[port as usize]) * (WAITS << port as u32);
            word |= u64::from(sends[port as usize]) * (SENDS << port as u32);
        }
        Self(word)
    }

    #[inline(always)]
    pub(super) fn is_configured(self) -> bool {
        self.0 & CONFIGURED != 0
    }

    /// Whether it is a start/end gate.
    #[inline(always)]
    pub(super) fn is_end(self) -> bool {
        self.0 & END != 0
    }

    #[inline(always)]
    pub(super) fn is_broken(self) -> bool {
        self.0 & BROKEN != 0
    }

    pub(super) fn has_lost_input(self) -> bool {
        self.0 & LOST_INPUT != 0
    }

    /// The state after the loss of an input or output.
    pub(super) fn broken(self, by: Lost) -> Self {
        let lost = match by {
            Lost::Input => LOST_INPUT,
            Lost::Output => 0,
        };
        Self(self.0 | BROKEN | lost)
    }

    #[inline(always)]
    pub(super) fn waits_for(self, port: Port) -> bool {
        self.0 & (WAITS << port as u32) != 0
    }

    #[inline(always)]
    pub(super) fn waits(self) -> bool {
        self.0 & (WAITS * 3) != 0
    }

    #[inline(always)]
    pub(super) fn sends(self, port: Port) -> bool {
        self.0 & (SENDS << port as u32) != 0
    }

    /// Number of inputs that have arrived.
    #[inline(always)]
    pub(super) fn arrived(self, port: Port) -> u16 {
        (self.0 >> (16 * port as u32)) as u16
    }

    #[inline(always)]
    pub(super) fn fired(self) -> u16 {
        (self.0 >> FIRED_SHIFT) as u16
    }

    #[inline(always)]
    fn increment(self, shift: u32) -> Self {
        let counter = (self.0 >> shift).wrapping_add(1) & COUNTER;
        Self(self.0 & !(COUNTER << shift) | counter << shift)
    }

    /// With one more input.
    #[inline(always)]
    pub(super) fn arrive(self, port: Port) -> Self {
        self.increment(16 * port as u32)
    }

    /// With the next input of each port used.
    #[inline(always)]
    pub(super) fn fire(self) -> Self {
        self.increment(FIRED_SHIFT)
    }

    /// Number of inputs that have arrived and are not used yet.
    #[inline(always)]
    pub(super) fn unused(self, port: Port) -> u16 {
        self.arrived(port).wrapping_sub(self.fired())
    }

    /// Whether the gate waits for inputs, and has all inputs of the next round.
    #[inline(always)]
    pub(super) fn is_ready(self) -> bool {
        let there = |port| !self.waits_for(port) || self.unused(port) != 0;
        self.waits() && there(Port::Signal) && there(Port::Packet)
    }

    /// Whether both states belong to one configuration.
    #[inline(always)]
    pub(super) fn same_settings(self, other: Self) -> bool {
        (self.0 ^ other.0) & (EPOCH_MASK | CONFIGURED) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "long, and arithmetic alone")]
    fn counters_wrap_alone() {
        let start = State(0).cleared().configured([true; 2], [false; 2], true);
        let mut state = start;
        for round in 0..0x1_0003_u64 {
            assert!(!state.is_ready());
            assert_eq!(u64::from(state.fired()), round & COUNTER);
            state = state.arrive(Port::Packet);
            assert!(!state.is_ready() && state.unused(Port::Packet) == 1);
            state = state.arrive(Port::Signal);
            assert!(state.is_ready() && state.same_settings(start));
            state = state.fire();
        }
        assert!(state.is_end() && state.waits_for(Port::Signal) && !state.sends(Port::Signal));
    }

    #[test]
    fn masked_inputs_are_not_waited_for() {
        let state = State(0).configured([true, false], [false, true], false);
        assert!(!state.is_ready() && state.arrive(Port::Signal).is_ready());
        assert!(state.sends(Port::Packet) && !state.sends(Port::Signal) && !state.is_end());
        let none = State(0).configured([false; 2], [true; 2], false);
        assert!(!none.is_ready());
    }

    #[test]
    fn each_configuration_differs_from_the_last() {
        let state = State(u64::MAX);
        let next = state.cleared();
        assert!(!next.is_configured() && !next.is_broken() && !state.same_settings(next));
        assert!(
            !next
                .configured([true; 2], [true; 2], true)
                .same_settings(next)
        );
    }
}
