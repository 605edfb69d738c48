//! The machine's limits: the cost of the same exchange, written by hand on plain shared memory.

mod collective;
mod copy;
mod exchange;
mod kernel;

pub use copy::each;
pub use kernel::wake_of;

use crate::case::{Case, Metric};
use crate::worker::{self, Body};

/// The hand-written implementations of a case.
pub fn bodies(case: &Case) -> Vec<Body> {
    worker::bodies(match case.metric {
        Metric::PutNotice => &[
            ("bare/tight", exchange::two_lines),
            ("bare/paced", exchange::two_lines_paced),
        ],
        Metric::OneLine | Metric::Relay => &[("bare", exchange::one_line)],
        Metric::FetchAdd => &[("bare", exchange::fetch_add)],
        Metric::PutRate => &[("bare", exchange::rate)],
        Metric::PairRate => &[("bare", exchange::pair_rate)],
        Metric::Bandwidth => &[("bare", copy::plain)],
        #[cfg(target_arch = "x86_64")]
        Metric::CopyNt => &[("bare", copy::non_temporal)],
        Metric::Barrier => &[
            ("bare/central", collective::central),
            ("bare/flags", collective::flags),
            ("bare/dissemination", collective::dissemination),
        ],
        Metric::Allreduce => &[
            ("bare/central", collective::sum_central),
            ("bare/flags", collective::sum_flags),
        ],
        Metric::Wake => &[("bare", kernel::wake)],
        Metric::ProcessVm => &[("bare", kernel::process_vm)],
        // System calls dominate a small registration. Only large ones are compared with a copy.
        Metric::Register if case.bytes >= 1 << 20 => &[("bare", copy::new_memfd)],
        Metric::Start => &[("bare", kernel::start)],
        Metric::Message | Metric::Passive | Metric::Tagged => &[
            ("bare/tight", exchange::short_message),
            ("bare/paced", exchange::short_message_paced),
        ],
        Metric::MessageBandwidth => &[("bare/pushed", copy::pushed), ("bare/pulled", copy::pulled)],
        // Multicast is compared with a loop of sends, which are calls of the library under test; others are compared with other providers.
        _ => &[],
    })
}
