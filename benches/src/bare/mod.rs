//! The machine's limits: the cost of the same exchange, written by hand on plain shared memory.

mod collective;
mod copy;
mod exchange;
mod kernel;

pub use copy::each;
pub use kernel::wake_of;

use crate::case::{Case, Metric};
use crate::worker::Body;

/// The hand-written implementations of a case.
pub fn bodies(case: &Case) -> Vec<Body> {
    let one = |run| vec![Body { api: "bare", run }];
    match case.metric {
        Metric::PutNotice => vec![
            Body {
                api: "bare/tight",
                run: exchange::two_lines,
            },
            Body {
                api: "bare/paced",
                run: exchange::two_lines_paced,
            },
        ],
        Metric::OneLine | Metric::Relay => one(exchange::one_line),
        Metric::FetchAdd => one(exchange::fetch_add),
        Metric::PutRate => one(exchange::rate),
        Metric::PairRate => one(exchange::pair_rate),
        Metric::Bandwidth => one(copy::plain),
        #[cfg(target_arch = "x86_64")]
        Metric::CopyNt => one(copy::non_temporal),
        #[cfg(not(target_arch = "x86_64"))]
        Metric::CopyNt => Vec::new(),
        Metric::Barrier => vec![
            Body {
                api: "bare/central",
                run: collective::central,
            },
            Body {
                api: "bare/flags",
                run: collective::flags,
            },
            Body {
                api: "bare/dissemination",
                run: collective::dissemination,
            },
        ],
        Metric::Allreduce => vec![
            Body {
                api: "bare/central",
                run: collective::sum_central,
            },
            Body {
                api: "bare/flags",
                run: collective::sum_flags,
            },
        ],
        Metric::Wake => one(kernel::wake),
        Metric::ProcessVm => one(kernel::process_vm),
        // System calls dominate a small registration. Only large ones are compared with a copy.
        Metric::Register if case.bytes >= 1 << 20 => one(copy::new_memfd),
        Metric::Start => one(kernel::start),
        Metric::Message | Metric::Passive | Metric::Tagged => vec![
            Body {
                api: "bare/tight",
                run: exchange::short_message,
            },
            Body {
                api: "bare/paced",
                run: exchange::short_message_paced,
            },
        ],
        Metric::MessageBandwidth => vec![
            Body {
                api: "bare/pushed",
                run: copy::pushed,
            },
            Body {
                api: "bare/pulled",
                run: copy::pulled,
            },
        ],
        // Multicast is compared with a loop of sends, which are calls of the library under test.
        Metric::Multicast | Metric::IdleCpu | Metric::Register => Vec::new(),
        // Metrics that are compared with other providers.
        _ => Vec::new(),
    }
}
