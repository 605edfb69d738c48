//! Each scenario is written once for each interface, as its users would write it. All versions must leave the bytes of a serial reference
//! without the library. So all interfaces agree with each other, on every backend.
//!
//! A scenario is a module with the reference and the common code. Each submodule has the version of an interface.

mod exchange;
mod halo;
mod stealing;
mod tree;

use crate::kit::same;
use crate::law::{Law, Verdict};

/// All laws, by scenario.
pub fn laws() -> Vec<&'static Law> {
    [
        halo::laws(),
        stealing::laws(),
        exchange::laws(),
        tree::laws(),
    ]
    .concat()
}

/// The memory of a rank at the end.
type Left = Result<Vec<u8>, String>;

/// The laws of a scenario: for each interface on 2, 3, 5 and 8 processes.
macro_rules! scenario {
    ($name:literal, $says:literal; $(
        $api:ident by $module:ident: $clause:literal, [$($procedure:literal),* $(,)?];
    )*) => {
        $(mod $module;)*

        pub(super) fn laws() -> Vec<&'static $crate::law::Law> {
            use $crate::law::{Api, Ctx, Law, Verdict};
            let mut laws: Vec<&'static Law> = Vec::new();
            $({
                fn body(ctx: &Ctx) -> Verdict {
                    $crate::laws::differential::agrees(&$module::run(ctx)?, &reference(ctx))
                }
                const LAW: Law = Law::new(Api::$api, "", $clause, $says, 0, &[$($procedure),*], body);
                const fn of(processes: u32, id: &'static str) -> Law {
                    Law { id, processes, ordering: processes == 3, ..LAW }
                }
                static LAWS: [Law; 4] = [
                    of(2, concat!(stringify!($module), ".differential.", $name, ".of-2")),
                    of(3, concat!(stringify!($module), ".differential.", $name, ".of-3")),
                    of(5, concat!(stringify!($module), ".differential.", $name, ".of-5")),
                    of(8, concat!(stringify!($module), ".differential.", $name, ".of-8")),
                ];
                laws.extend(&LAWS);
            })*
            laws
        }
    };
}
use scenario;

/// Fails unless the bytes left equal the reference.
fn agrees(left: &[u8], reference: &[u8]) -> Verdict {
    same(left, reference, "what is left, beside the reference")
}

/// Arrivals by round. Peers may be a round ahead: arrivals of the next round wait here.
#[derive(Default)]
struct Arrivals(Vec<(usize, usize)>);

impl Arrivals {
    /// The next arrival of `round`. `poll` waits for an arrival of any round.
    fn next(
        &mut self,
        round: usize,
        mut poll: impl FnMut() -> Result<(usize, usize), String>,
    ) -> Result<usize, String> {
        loop {
            if let Some(at) = self.0.iter().position(|(of, _)| *of == round) {
                return Ok(self.0.swap_remove(at).1);
            }
            let came = poll()?;
            crate::ensure!(
                came.0 >= round,
                "what came in round {round} is of round {}",
                came.0
            );
            self.0.push(came);
        }
    }
}

/// The words in memory order.
fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Words from memory.
fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
        .collect()
}
