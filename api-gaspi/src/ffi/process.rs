//! §5: configuration and processes.

use super::{given, procedures, put};
use crate::config::Config;
use crate::environment::{self, process};
use crate::status::Status;

const HEALTHY: i32 = 0;
const CORRUPT: i32 = 1;

procedures! {
    fn gaspi_config_get | pgaspi_config_get(config: *mut Config) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(config, environment::config()) }
    }

    fn gaspi_config_set | pgaspi_config_set(config: Config) {
        environment::set_config(config)
    }

    fn gaspi_proc_init | pgaspi_proc_init(timeout: u64) {
        environment::init(timeout)
    }

    fn gaspi_proc_term | pgaspi_proc_term(timeout: u64) {
        environment::term(timeout)
    }

    fn gaspi_proc_num | pgaspi_proc_num(num: *mut u16) with process
    quick(here, call) {
        // SAFETY:
        // - null or valid, by the C contract.
        Some(unsafe { put(num, here.num()) })
    } {
        // SAFETY:
        // - as above.
        unsafe { put(num, process()?.num()) }
    }

    fn gaspi_proc_rank | pgaspi_proc_rank(rank: *mut u16) with process
    quick(here, call) {
        // SAFETY:
        // - null or valid, by the C contract.
        Some(unsafe { put(rank, here.rank()) })
    } {
        // SAFETY:
        // - as above.
        unsafe { put(rank, process()?.rank()) }
    }

    fn gaspi_proc_kill | pgaspi_proc_kill(rank: u16, timeout: u64) with process {
        process()?.kill(rank, timeout)
    }

    fn gaspi_proc_ping | pgaspi_proc_ping(rank: u16, _timeout: u64) with process {
        process()?.ping(rank)
    }

    fn gaspi_connect | pgaspi_connect(rank: u16, timeout: u64) with process {
        process()?.connect(rank, timeout)
    }

    fn gaspi_disconnect | pgaspi_disconnect(rank: u16, timeout: u64) with process {
        process()?.disconnect(rank, timeout)
    }

    fn gaspi_initialized | pgaspi_initialized(initialized: *mut u32) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(initialized, u32::from(environment::initialized())) }
    }

    fn gaspi_proc_local_rank | pgaspi_proc_local_rank(rank: *mut u16) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(rank, process()?.local_rank()) }
    }

    fn gaspi_proc_local_num | pgaspi_proc_local_num(num: *mut u16) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(num, process()?.local_num()) }
    }

    fn gaspi_proc_incarnation | pgaspi_proc_incarnation(incarnation: *mut u32) with process {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(incarnation, process()?.incarnation()) }
    }

    fn gaspi_state_vec_get | pgaspi_state_vec_get(states: *mut i32) with process {
        given(states)?;
        for (i, healthy) in process()?.states().into_iter().enumerate() {
            // SAFETY:
            // - C contract: `states` has room for one entry per rank.
            unsafe { states.add(i).write(if healthy { HEALTHY } else { CORRUPT }) };
        }
        Ok(())
    }

    // The form of the specification: a pointer to the vector. A null vector is allocated; the program frees it.
    fn gaspi_state_vec_get_17 | pgaspi_state_vec_get_17(states: *mut *mut i32) with process {
        given(states)?;
        // SAFETY:
        // - `states` is not null, so valid by the C contract.
        // - the vector of malloc has room for one entry per rank.
        unsafe {
            if (*states).is_null() {
                let bytes = usize::from(process()?.num()) * size_of::<i32>();
                let made: *mut i32 = libc::malloc(bytes).cast();
                if made.is_null() {
                    return Err(Status::ErrMemalloc);
                }
                *states = made;
            }
            match pgaspi_state_vec_get(*states) {
                0 => Ok(()),
                _ => Err(Status::Error),
            }
        }
    }
}
