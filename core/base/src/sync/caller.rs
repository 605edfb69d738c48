//! Finds the call of an interface that this thread is in, by its stack and by symbols. It uses the symbols that shared libraries export, or else the symbol
//! table of the program, which static programs and Rust programs have. It is slow, and only for long waits.

use std::ffi::{CStr, c_int, c_void};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use once_cell::sync::OnceCell;
use rustc_demangle::demangle;

use crate::interface::{is_call, is_function};

/// The most frames of the stack that are examined.
const FRAMES: usize = 64;

/// The outermost call of an interface on this thread's stack. Empty: none has a name.
pub(crate) fn calling() -> String {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES];
    // SAFETY:
    // - the array has room for `FRAMES` entries.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    let frames = &frames[..count.clamp(0, FRAMES as i32) as usize];
    let exported = frames.iter().rev().find_map(|frame| exported(*frame));
    let own = || frames.iter().rev().find_map(|frame| own(*frame));
    exported.or_else(own).unwrap_or_default()
}

/// Finds a name in the symbols that shared libraries export.
fn exported(address: *mut c_void) -> Option<String> {
    // SAFETY:
    // - dladdr accepts any address. The structure is plain, and filled if dladdr returns success.
    let name = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut found) == 0 || found.dli_sname.is_null() {
            return None;
        }
        CStr::from_ptr(found.dli_sname).to_str().ok()?
    };
    is_call(name).then(|| name.to_owned())
}

/// A call in the program itself.
struct Call {
    /// Address in the program's file, and length.
    place: u64,
    len: u64,
    name: String,
}

/// Finds a name in the program's symbol table, unless it was stripped.
fn own(address: *mut c_void) -> Option<String> {
    static CALLS: OnceCell<Vec<Call>> = OnceCell::new();
    let calls = CALLS.get_or_init(|| read("/proc/self/exe").unwrap_or_default());
    // A return address may be the first address of the next function.
    let place = (address.addr() as u64)
        .checked_sub(bias())?
        .checked_sub(1)?;
    let after = calls.partition_point(|call| call.place <= place);
    let call = calls.get(after.checked_sub(1)?)?;
    (place - call.place < call.len).then(|| call.name.clone())
}

/// The calls of a program, sorted by address.
fn read(path: &str) -> Option<Vec<Call>> {
    let bytes = std::fs::read(path).ok()?;
    let file: ElfFile64 = ElfFile64::parse(bytes.as_slice()).ok()?;
    let calls = file.symbols().filter_map(|symbol| {
        let name = symbol.name().ok()?;
        let name = match is_call(name) {
            true => name.to_owned(),
            false => in_rust(name)?,
        };
        let (place, len) = (symbol.address(), symbol.size());
        (len > 0).then_some(Call { place, len, name })
    });
    let mut calls: Vec<Call> = calls.collect();
    calls.sort_by_key(|call| call.place);
    Some(calls)
}

/// `TYPE::function` or `module::function` of a function of an [interface](crate::interface).
fn in_rust(symbol: &str) -> Option<String> {
    if !symbol.contains("unipgas_") {
        return None;
    }
    let path = format!("{:#}", demangle(symbol));
    // An implementation is `<CRATE::TYPE>::function`, or `CRATE::<impl CRATE::TYPE>::function`. Functions of traits are skipped: other functions call them.
    let plain = path.strip_prefix('<').unwrap_or(&path);
    let is_ours = is_function(plain) && !path.contains(" as ");
    if !is_ours || path.contains("{closure") {
        return None;
    }
    let words = path.replace(['<', '>'], "").replace("impl ", "");
    let mut last = words.rsplit("::");
    let (function, owner) = (last.next()?, last.next()?);
    Some(format!("{owner}::{function}"))
}

/// The difference between the program's addresses in memory and in its file.
fn bias() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        bias: *mut c_void,
    ) -> c_int {
        // SAFETY:
        // - contract of dl_iterate_phdr: `info` is valid during the call, and `bias` is the argument below, a `u64`.
        unsafe { *bias.cast::<u64>() = (*info).dlpi_addr };
        1
    }
    let mut bias = 0u64;
    // SAFETY:
    // - the callback ends the walk at the first object, which is the program itself. It writes one number to `bias`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut bias).cast()) };
    bias
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contribute() {
        crate::interface::contribute(crate::interface::Interface {
            calls: &["gaspi_"],
            crates: &["unipgas_base::", "unipgas_core::", "unipgas_gaspi::"],
            variables: &[],
        });
    }

    #[test]
    fn calls_in_rust_have_short_names() {
        contribute();
        let name = |symbol| in_rust(symbol);
        for (symbol, short) in [
            (
                "_ZN12unipgas_core6ranked5group5Group7barrier17h0123456789abcdefE",
                "Group::barrier",
            ),
            (
                "_RNvMs_NtNtCs1234_12unipgas_core6ranked5groupNtB4_5Group7barrier",
                "Group::barrier",
            ),
            (
                "_ZN13unipgas_gaspi8transfer12gaspi_anchor17h0123456789abcdefE",
                "transfer::gaspi_anchor",
            ),
        ] {
            assert_eq!(name(symbol).as_deref(), Some(short), "{symbol}");
        }
        assert_eq!(name("_ZN3std2io5print17h0123456789abcdefE"), None);
        assert_eq!(name("main"), None);
    }

    #[inline(never)]
    fn outer() -> String {
        std::hint::black_box(calling())
    }

    /// The program's table has symbols that no library exports.
    #[test]
    fn the_programs_own_table_is_read() {
        contribute();
        let calls = read("/proc/self/exe").expect("a table");
        let outer = calls
            .iter()
            .find(|call| call.name == "tests::outer")
            .expect("a function of this test");
        assert!(outer.len > 0);
        assert!(read("/dev/null").is_none());
        let name = super::tests::outer();
        assert!(name.contains("::"), "{name:?}");
    }
}
