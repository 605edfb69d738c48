//! Cache lines, the unit of transfer between processors. Words that different threads or processes write keep this distance.

use std::ops::Deref;

/// Longest cache line of this architecture, in bytes. Most aarch64 processors have lines of 64 bytes, the A64FX of 256.
pub const LINE: usize = if cfg!(target_arch = "aarch64") {
    256
} else {
    64
};

/// Distance in bytes that prevents false sharing. Processors other than the A64FX fetch lines in pairs.
pub const PAIR: usize = if LINE > 128 { LINE } else { 128 };

/// Aligns a type to a [`LINE`](crate::cache::LINE), which it shares with no other value.
#[macro_export]
macro_rules! on_line {
    ($($item:tt)*) => {
        #[cfg_attr(target_arch = "aarch64", repr(align(256)))]
        #[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
        $($item)*
    };
}

/// Aligns a type to a [`PAIR`](crate::cache::PAIR) of lines.
#[macro_export]
macro_rules! on_pair {
    ($($item:tt)*) => {
        #[cfg_attr(target_arch = "aarch64", repr(align(256)))]
        #[cfg_attr(not(target_arch = "aarch64"), repr(align(128)))]
        $($item)*
    };
}

on_line! {
    /// A value with its own line.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct OwnLine<T>(pub T);
}

on_pair! {
    /// A value with its own pair of lines.
    #[repr(C)]
    #[derive(Debug, Default)]
    pub struct OwnPair<T>(pub T);
}

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for OwnPair<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

// `repr` takes only literals.
const _: () = assert!(align_of::<OwnLine<u8>>() == LINE && align_of::<OwnPair<u8>>() == PAIR);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Checks this machine's lines, as its kernel reports them.
    #[test]
    fn no_line_is_longer() {
        for index in 0..8 {
            let path =
                format!("/sys/devices/system/cpu/cpu0/cache/index{index}/coherency_line_size");
            let Ok(told) = std::fs::read_to_string(path) else {
                continue;
            };
            let line: usize = told.trim().parse().expect("a number");
            assert!(line <= LINE, "lines of {line} bytes");
        }
    }
}
