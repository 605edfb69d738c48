//! Simulated voltage and frequency. Requests are checked and stored as on the chip, and change nothing. The chip has 48 cores: 24 tiles of 2 cores in 4 rows.
//! A power domain has 2 x 2 tiles.

use crate::process::Ue;
use crate::status::{ErrorCode, Result};

/// Valid frequency dividers. A request for another divider takes the nearest valid one.
pub const DIVIDERS: std::ops::RangeInclusive<i32> = 2..=16;
/// The clock before division, in MHz.
const CLOCK_MHZ: i32 = 1600;
/// The highest frequency of each voltage level, in MHz.
const CAPS_MHZ: [i32; 7] = [460, 598, 644, 748, 875, 1024, 1198];

pub use unipgas_ircce_sys::RCCE_REQUEST as PowerRequest;

/// The power state of this UE.
#[derive(Debug)]
pub(crate) struct Power {
    active: bool,
    level: i32,
    divider: i32,
}

impl Default for Power {
    fn default() -> Self {
        Power {
            active: false,
            level: 4,
            divider: DIVIDER,
        }
    }
}

/// Number of tiles on the chip.
pub const TILES: usize = 24;
/// The initial divider of each tile.
const DIVIDER: i32 = 3;

/// The power domain of a core, 0 to 5.
pub fn domain(core: i32) -> i32 {
    let tile = core / 2;
    let (x, y) = (tile % 6, tile / 6);
    x / 2 + y / 2 * 3
}

fn level(divider: i32) -> Option<i32> {
    let frequency = CLOCK_MHZ / divider;
    let level = CAPS_MHZ.iter().position(|cap| *cap >= frequency)?;
    Some(level as i32)
}

fn nearest(divider: i32) -> i32 {
    divider.clamp(*DIVIDERS.start(), *DIVIDERS.end())
}

impl Ue {
    /// The power domain of this UE's core (`RCCE_power_domain`).
    pub fn power_domain(&self) -> i32 {
        domain(self.cores()[self.id() as usize])
    }

    fn power_members(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.num()).filter(|id| domain(self.cores()[*id as usize]) == self.power_domain())
    }

    /// The master of this UE's power domain: its first UE (`RCCE_power_domain_master`). Only the master can make requests.
    pub fn power_domain_master(&self) -> u32 {
        self.power_members().next().unwrap_or(self.id())
    }

    /// Number of UEs in this UE's power domain (`RCCE_power_domain_size`).
    pub fn power_domain_size(&self) -> u32 {
        self.power_members().count() as u32
    }

    /// The divider of each tile, as far as this UE knows it. Tiles of other domains have the initial divider.
    pub fn dividers(&self) -> [i32; TILES] {
        let mine = self.power.lock().divider;
        std::array::from_fn(|tile| match domain(2 * tile as i32) {
            domain if domain == self.power_domain() => mine,
            _ => DIVIDER,
        })
    }

    fn is_master(&self) -> bool {
        self.power_domain_master() == self.id()
    }

    /// Starts a change of frequency and voltage (`RCCE_iset_power`). Returns the request, with the new divider and voltage level. `now`: its start time in
    /// nanoseconds. `None`: this UE is not the master of its domain, and nothing changes. Errors: [`ErrorCode::MultipleRpcRequests`], [`ErrorCode::Fdivider`].
    pub fn iset_power(&self, divider: i32, now: i64) -> Result<Option<PowerRequest>> {
        if !self.is_master() {
            return Ok(None);
        }
        let mut power = self.power.lock();
        if power.active {
            return Err(ErrorCode::MultipleRpcRequests.into());
        }
        let divider = nearest(divider);
        let level = level(divider).ok_or(ErrorCode::Fdivider)?;
        power.active = true;
        Ok(Some(PowerRequest {
            release: 0,
            old_voltage_level: power.level,
            new_voltage_level: level,
            old_frequency_divider: power.divider,
            new_frequency_divider: divider,
            start_cycle: now,
        }))
    }

    /// Completes a change (`RCCE_wait_power`). Errors: [`ErrorCode::NoActiveRpcRequest`], [`ErrorCode::StaleRpcRequest`].
    pub fn wait_power(&self, request: &mut PowerRequest) -> Result<()> {
        if !self.is_master() {
            return Ok(());
        }
        let mut power = self.power.lock();
        if !power.active {
            return Err(ErrorCode::NoActiveRpcRequest.into());
        }
        power.active = false;
        if request.release != 0 {
            return Err(ErrorCode::StaleRpcRequest.into());
        }
        power.level = request.new_voltage_level;
        power.divider = request.new_frequency_divider;
        request.release = 1;
        Ok(())
    }

    /// Changes the frequency alone, and returns the divider (`RCCE_set_frequency_divider`). `None`: this UE is not the master of its domain, and nothing
    /// changes. Errors: [`ErrorCode::FrequencyExceeded`] if the voltage is too low.
    pub fn set_frequency_divider(&self, divider: i32) -> Result<Option<i32>> {
        if !self.is_master() {
            return Ok(None);
        }
        let mut power = self.power.lock();
        let divider = nearest(divider);
        if level(divider).is_none_or(|level| level > power.level) {
            return Err(ErrorCode::FrequencyExceeded.into());
        }
        power.divider = divider;
        Ok(Some(divider))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_have_eight_cores() {
        for wanted in 0..6 {
            assert_eq!((0..48).filter(|core| domain(*core) == wanted).count(), 8);
        }
        assert_eq!([0, 1, 2, 4, 12, 24, 47].map(domain), [0, 0, 0, 1, 0, 3, 5]);
    }

    #[test]
    fn levels_grow_with_frequency() {
        assert_eq!(
            [16, 4, 3, 2].map(level),
            [Some(0), Some(0), Some(1), Some(4)]
        );
        assert_eq!([-5, 2, 99].map(nearest), [2, 2, 16]);
    }
}
