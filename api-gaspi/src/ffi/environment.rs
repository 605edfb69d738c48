//! §13: version, time, error texts, and the extensions about the machine.

use std::ffi::{CStr, CString, c_char, c_void};

use super::{given, print, procedures, put};
use crate::affinity;
use crate::environment::started;
use crate::status::{Status, text};

/// Release 1.6 of the interface.
const VERSION: f32 = 1.6;

procedures! {
    fn gaspi_version | pgaspi_version(version: *mut f32) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(version, VERSION) }
    }

    fn gaspi_time_get | pgaspi_time_get(time: *mut f32) {
        // A float holds few digits. Count from the start of the program, not of the machine.
        let elapsed = started().elapsed().as_secs_f64() * 1e3;
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(time, elapsed as f32) }
    }

    fn gaspi_time_resolution | pgaspi_time_resolution(resolution: *mut f32) {
        given(resolution)?;
        let clock = clock_resolution();
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(resolution, clock) }
    }

    fn gaspi_time_ticks | pgaspi_time_ticks(ticks: *mut u64) {
        // SAFETY:
        // - null or valid, by the C contract.
        unsafe { put(ticks, clock_ticks()) }
    }

    fn gaspi_cpu_frequency | pgaspi_cpu_frequency(mhz: *mut f32) {
        given(mhz)?;
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(mhz, tick_frequency()) }
    }

    fn gaspi_print_error | pgaspi_print_error(code: i32, message: *mut *mut c_char) {
        given(message)?;
        let text = explained(code);
        // SAFETY:
        // - `message` is not null, so valid by the C contract. The program frees the copy of strdup.
        unsafe {
            let copy = libc::strdup(text.as_ptr());
            if copy.is_null() {
                return Err(Status::ErrMemalloc);
            }
            message.write(copy);
        }
        Ok(())
    }

    fn gaspi_error_message | pgaspi_error_message(code: i32, message: *mut *mut c_char) {
        given(message)?;
        let text = explained(code);
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(message, text.as_ptr().cast_mut()) }
    }

    fn gaspi_pcontrol | pgaspi_pcontrol(_argument: *mut c_void) {
        Ok(())
    }

    fn gaspi_numa_socket | pgaspi_numa_socket(socket: *mut u8) {
        given(socket)?;
        if std::env::var_os("UNIPGAS_BIND").is_none_or(|bound| bound != "numa") {
            return Err(Status::ErrEnv);
        }
        let mut node = 0u32;
        // SAFETY:
        // - `node` is valid for a write. The other two arguments may be null.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_getcpu,
                std::ptr::null_mut::<u32>(),
                &raw mut node,
                std::ptr::null_mut::<c_void>(),
            )
        } != 0;
        if failed {
            return Err(Status::Error);
        }
        // SAFETY:
        // - not null, so valid by the C contract.
        unsafe { put(socket, node as u8) }
    }

    fn gaspi_set_socket_affinity | pgaspi_set_socket_affinity(socket: u8) {
        affinity::bind_to_node(u32::from(socket)).map_err(|_| Status::Error)
    }
}

/// A text for each number, since programs print it unchecked.
fn explained(code: i32) -> &'static CStr {
    text(code).unwrap_or(c"no return code of GASPI")
}

/// Resolution of the clock in milliseconds.
fn clock_resolution() -> f32 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    // SAFETY:
    // - `resolution` is a local variable, valid for a write.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &mut resolution) };
    (resolution.tv_sec as f64 * 1e3 + resolution.tv_nsec as f64 / 1e6) as f32
}

#[cfg(target_arch = "x86_64")]
fn clock_ticks() -> u64 {
    // SAFETY:
    // - reading the time-stamp counter has no effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn clock_ticks() -> u64 {
    started().elapsed().as_nanos() as u64
}

/// Ticks per microsecond. The first call measures it over 5 ms.
fn tick_frequency() -> f32 {
    static MHZ: std::sync::OnceLock<f32> = std::sync::OnceLock::new();
    *MHZ.get_or_init(|| {
        let (time, ticks) = (std::time::Instant::now(), clock_ticks());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let ticks = clock_ticks().wrapping_sub(ticks);
        (ticks as f64 / time.elapsed().as_secs_f64() / 1e6) as f32
    })
}

/// The text of a code. Another number has a text too; the result is never null.
#[unsafe(no_mangle)]
pub extern "C" fn pgaspi_error_str(code: i32) -> *mut c_char {
    explained(code).as_ptr().cast_mut()
}

/// As [`pgaspi_error_str`].
#[unsafe(no_mangle)]
pub extern "C" fn gaspi_error_str(code: i32) -> *mut c_char {
    pgaspi_error_str(code)
}

/// A short pause for polling loops. It only yields the processor.
#[unsafe(no_mangle)]
pub extern "C" fn pgaspi_delay() {
    std::thread::yield_now();
}

/// As [`pgaspi_delay`].
#[unsafe(no_mangle)]
pub extern "C" fn gaspi_delay() {
    pgaspi_delay();
}

/// Prints the rank and the processors on which the calling thread may run.
#[unsafe(no_mangle)]
pub extern "C" fn pgaspi_print_affinity_mask() {
    let cpus = affinity::ranges(&unipgas_core::numa::current_affinity());
    let Ok(line) = CString::new(format!("processors: {cpus}\n")) else {
        return;
    };
    // SAFETY:
    // - `line` is a C string.
    unsafe { print::unipgas_gaspi_print(-1, line.as_ptr()) };
}

/// As [`pgaspi_print_affinity_mask`].
#[unsafe(no_mangle)]
pub extern "C" fn gaspi_print_affinity_mask() {
    pgaspi_print_affinity_mask();
}
