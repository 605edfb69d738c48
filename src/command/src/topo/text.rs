//! Numbers and sizes in a readable form.

/// Reads a size in bytes: a number, with or without K, M or G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size: 8, 64K, 1M");
    let upper = text.to_ascii_uppercase();
    let plain = upper.trim_end_matches('B').trim_end_matches('I');
    let (digits, shift) = match plain.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if plain.ends_with('K') => (digits, 10),
        Some(digits) if plain.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (plain, 0),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    // With this limit, sums over all messages of the largest job do not overflow.
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes <= 1 << 28 => Ok(bytes),
        _ => Err(format!("{text:?} is too large: at most 256M")),
    }
}

/// A number with commas.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time with three digits, in a suitable unit.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_read_and_written() {
        for (text, value) in [
            ("8", 8),
            ("64K", 65536),
            ("1M", 1 << 20),
            ("1MiB", 1 << 20),
            ("256m", 1 << 28),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for bad in ["", "K", "-1", "1T", "1.5K", "1G", "99999999999999999999"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(grouped(158_976), "158,976");
        assert_eq!(grouped(12), "12");
        assert_eq!(time(490.0), "490 ns");
        assert_eq!(time(12_345.0), "12.3 us");
    }
}
