//! The lines of `UNIPGAS_CHECK=1`: one for each refused call, with the argument, the reason and the remedy. The library writes it when
//! it has the error code, so successful calls cost nothing.

use std::sync::OnceLock;

use crate::{tell, variables};

/// The prototype of a call.
#[derive(Debug, Clone, Copy)]
pub struct Prototype<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Names and types of its arguments.
    pub arguments: &'a [(&'a str, &'a str)],
}

/// The [`Prototype`](crate::refused::Prototype) of a call, from its Rust declaration.
#[macro_export]
macro_rules! prototype {
    ($name:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        const {
            &$crate::refused::Prototype {
                name: stringify!($name),
                arguments: &[$((stringify!($arg), stringify!($ty))),*],
            }
        }
    };
}

/// The reason for which an error code refuses a call.
#[derive(Debug, Clone, Copy)]
pub struct Reason {
    /// Parts of the names of arguments that may be wrong; [`POINTERS`] selects all pointers.
    pub suspects: &'static [&'static str],
    /// How to correct the call.
    pub remedy: &'static str,
}

/// A suspect that selects each argument of pointer type.
pub const POINTERS: &str = "*";

/// Whether the library explains refused calls.
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| variables::switch("UNIPGAS_CHECK", false).unwrap_or(false))
}

/// Writes a line about a refused call if `UNIPGAS_CHECK` is on.
#[cold]
pub fn explain(call: &Prototype<'_>, code: &str, meaning: &str, reason: Reason) {
    if is_on() {
        let rank = std::env::var("UNIPGAS_RANK")
            .map_or_else(|_| String::new(), |rank| format!("rank {rank}: "));
        tell(&format!("{rank}{}", line(call, code, meaning, reason)));
    }
}

impl<'a> Prototype<'a> {
    /// The arguments that a reason suspects.
    pub(crate) fn suspects(&self, reason: Reason) -> Vec<&'a str> {
        let is_one = |(name, kind): &&(&str, &str)| {
            let names = |suspect: &&str| match *suspect {
                POINTERS => kind.starts_with('*'),
                part => name.contains(part),
            };
            reason.suspects.iter().any(names)
        };
        let found = self.arguments.iter().filter(is_one);
        found.map(|(name, _)| *name).collect()
    }
}

fn line(call: &Prototype<'_>, code: &str, meaning: &str, reason: Reason) -> String {
    let names: Vec<_> = call.arguments.iter().map(|(name, _)| *name).collect();
    let mut text = call.name.to_owned();
    if !names.is_empty() {
        text += &format!("({})", names.join(", "));
    }
    text += &format!(": {code}: {}", meaning.trim_end_matches('.'));
    match &call.suspects(reason)[..] {
        [] => {}
        [one] => text += &format!("; argument {one}"),
        several => text += &format!("; argument {}", several.join(" or ")),
    }
    format!("{text}; remedy: {}", reason.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_call_argument_reason_and_remedy() {
        let call = Prototype {
            name: "utofu_poll_tcq",
            arguments: &[
                ("vcq_hdl", "usize"),
                ("flags", "u64"),
                ("cbdata", "*mut *mut c_void"),
            ],
        };
        let reason = |suspects| Reason {
            suspects,
            remedy: "give it",
        };
        let of = |suspects| line(&call, "CODE", "It is wrong.", reason(suspects));
        let begin = "utofu_poll_tcq(vcq_hdl, flags, cbdata): CODE: It is wrong; ";
        assert_eq!(
            of(&[POINTERS]),
            format!("{begin}argument cbdata; remedy: give it")
        );
        assert_eq!(
            of(&["hdl", "flags"]),
            format!("{begin}argument vcq_hdl or flags; remedy: give it")
        );
        assert_eq!(of(&["stadd"]), format!("{begin}remedy: give it"));
    }
}
