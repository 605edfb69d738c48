//! §14.1: statistics.

use std::ffi::c_char;

use super::{given, procedures, put};
use crate::environment::process;
use crate::statistics;

procedures! {
    fn gaspi_statistic_verbosity_level | pgaspi_statistic_verbosity_level(level: u32) {
        statistics::set_level(level);
        Ok(())
    }

    fn gaspi_statistic_counter_max | pgaspi_statistic_counter_max(max: *mut u32) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(max, statistics::counters()) }
    }

    fn gaspi_statistic_counter_info | pgaspi_statistic_counter_info(
        counter: u32, argument: *mut u32, name: *mut *mut c_char, description: *mut *mut c_char,
        level: *mut u32,
    ) {
        given(argument)?;
        given(name)?;
        given(description)?;
        given(level)?;
        let info = statistics::info(counter)?;
        // SAFETY:
        // - no pointer is null, so all are valid by the C contract.
        unsafe {
            argument.write(info.of_rank.into());
            name.write(info.name.as_ptr().cast_mut());
            description.write(info.description.as_ptr().cast_mut());
            level.write(info.level);
        }
        Ok(())
    }

    fn gaspi_statistic_counter_get | pgaspi_statistic_counter_get(
        counter: u32, argument: u32, value: *mut u64,
    ) {
        given(value)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(value, statistics::value(counter, argument)?) }
    }

    fn gaspi_statistic_counter_get_17 | pgaspi_statistic_counter_get_17(
        counter: u32, argument: u32, value: *mut u32,
    ) {
        given(value)?;
        let now = statistics::value(counter, argument)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(value, u32::try_from(now).unwrap_or(u32::MAX)) }
    }

    fn gaspi_statistic_counter_reset | pgaspi_statistic_counter_reset(counter: u32) {
        statistics::reset(counter)
    }

    fn gaspi_statistic_print_counters | pgaspi_statistic_print_counters() {
        statistics::print(process().ok().map(|process| process.rank()));
        Ok(())
    }
}
