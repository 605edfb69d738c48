//! Macros from which interfaces make their `laws!`, `ok!` and `gives!`.

/// A table of laws, each with a body of the same name, as the function `laws`. The interface sets the prefixes of ids, clauses and procedures.
///
/// A row `body setup(size): ..` runs `setup(ctx, size, body)`: the body takes the arguments that the setup gives it.
macro_rules! table {
    (@body $body:ident) => { $body };
    (@body $body:ident $setup:ident($($argument:expr),*)) => { |ctx| $setup(ctx, $($argument,)* $body) };
    (
        $api:ident, $prefix:literal, $specification:literal, $procedures:literal;
        $(
            $body:ident $($setup:ident($($argument:expr),*))?: $id:literal, $clause:literal, $processes:literal,
            [$($procedure:ident),* $(,)?] $(+ $flag:ident)*, $says:literal;
        )*
    ) => {
        pub(crate) fn laws() -> Vec<&'static $crate::law::Law> {
            use $crate::law::{Api, Law};
            vec![$({
                static LAW: Law = Law {
                    $($flag: true,)*
                    ..Law::new(
                        Api::$api,
                        concat!($prefix, $id),
                        concat!($specification, $clause),
                        $says,
                        $processes,
                        &[$(concat!($procedures, stringify!($procedure))),*],
                        $crate::kit::table!(@body $body $($setup($($argument),*))?),
                    )
                };
                &LAW
            }),*]
        }
    };
}
pub(crate) use table;

/// The law fails unless the call with this text has given this code; `$code_name` makes a text of it.
macro_rules! check {
    ($call:expr, $seen:expr, $expected:expr, $code_name:path) => {
        match ($seen, $expected) {
            (seen, expected) => {
                if seen != expected {
                    let codes = ($code_name(seen), $code_name(expected));
                    return Err($crate::kit::gave(
                        $call,
                        (&codes.0, &codes.1),
                        (file!(), line!()),
                    ));
                }
            }
        }
    };
}
pub(crate) use check;

/// Checks calls in order; each row is a call and its code. A failure names the row. `$c` is the interface's macro that calls.
macro_rules! check_rows {
    ($c:ident, $code_name:path; $($name:ident($($arg:expr),* $(,)?) => $code:expr;)+) => {{
        let mut row = 0;
        $(
            row += 1;
            let text = format!("call {row}, {},", stringify!($name($($arg),*)));
            $crate::kit::check!(&text, $c!($name($($arg),*)), $code, $code_name);
        )+
    }};
}
pub(crate) use check_rows;
