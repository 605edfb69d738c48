//! Laws of the engine, used from Rust.

/// A table of laws, each with its body, as the constant `LAWS`.
macro_rules! laws {
    ($($id:literal, $clause:expr, $processes:literal $(+ $flag:ident)*, $says:expr => $body:expr;)*) => {
        pub const LAWS: &[$crate::law::Law] = &[$($crate::law::Law {
            $($flag: true,)*
            ..$crate::laws::core::law($id, $clause, $says, $processes, $body)
        }),*];
    };
}

mod atomics;
mod central;
mod collective;
mod connections;
mod death;
mod full_queue;
mod link;
mod memory;
mod mixed_atomics;
mod notices;
mod order;
mod private;
mod queues;
pub(crate) mod rank;
mod transfer;
mod transport;

use crate::law::{Api, Ctx, Law, Verdict};

const fn law(
    id: &'static str,
    clause: &'static str,
    says: &'static str,
    processes: u32,
    body: fn(&Ctx) -> Verdict,
) -> Law {
    Law::new(Api::Core, id, clause, says, processes, &[], body)
}

pub use order::BREAKABLE;

/// The laws of this interface.
pub fn laws() -> Vec<&'static Law> {
    [
        transfer::LAWS,
        memory::LAWS,
        notices::LAWS,
        order::LAWS,
        atomics::LAWS,
        mixed_atomics::LAWS,
        private::LAWS,
        queues::LAWS,
        full_queue::LAWS,
        collective::LAWS,
        central::LAWS,
        connections::LAWS,
        death::LAWS,
        link::LAWS,
    ]
    .into_iter()
    .flatten()
    .chain(transport::laws())
    .collect()
}
