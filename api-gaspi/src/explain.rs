//! Reports of the checking library (GASPI 17.1 §5.7). Each refused call prints one line: the procedure, its arguments, and the valid values.
//! UNIPGAS_CHECK=1 enables the lines. The library checks arguments in any case.

use std::fmt::Debug;

use unipgas_core::transport::Life;

use crate::environment::process;
use crate::process::GaspiProcess;
use crate::status::Status;

/// An argument: its name in the prototype, and its value.
pub(crate) type Argument<'a> = (&'static str, &'a dyn Debug);

/// Prints a line about a refused call. A call to repeat ([`Status::Timeout`], [`Status::QueueFull`]) is not refused.
#[cold]
pub fn explain(procedure: &str, arguments: &[Argument<'_>], status: Status) {
    if matches!(status, Status::Timeout | Status::QueueFull) {
        return;
    }
    let process = process().ok();
    let rank = process
        .as_ref()
        .map(|process| format!("rank {}: ", process.rank()));
    let shown: Vec<String> = arguments.iter().map(show).collect();
    let right = process.map_or_else(String::new, |process| right(&process, arguments, status));
    let null = match status {
        Status::ErrNullptr => null(arguments),
        _ => String::new(),
    };
    unipgas_core::tell(&format!(
        "{}{procedure}({}): {status}{null}{right}",
        rank.unwrap_or_default(),
        shown.join(", ")
    ));
}

/// An argument as programs write it: the smallest and the largest timeout appear by their names.
fn show((name, value): &Argument<'_>) -> String {
    let value = format!("{value:?}");
    match (*name, value.as_str()) {
        ("timeout", "18446744073709551615") => "timeout GASPI_BLOCK".into(),
        ("timeout", "0") => "timeout GASPI_TEST".into(),
        _ => format!("{name} {value}"),
    }
}

/// Names of the null arguments.
fn null(arguments: &[Argument<'_>]) -> String {
    let null = |(_, value): &&Argument<'_>| matches!(format!("{value:?}").as_str(), "0x0" | "None");
    let names: Vec<&str> = arguments
        .iter()
        .filter(null)
        .map(|(name, _)| *name)
        .collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    }
}

fn number(arguments: &[Argument<'_>], names: &[&str]) -> Option<u64> {
    let found = names
        .iter()
        .find_map(|wanted| arguments.iter().find(|(name, _)| name == wanted));
    found.and_then(|(_, value)| format!("{value:?}").parse().ok())
}

fn list<T: Debug>(all: &[T]) -> String {
    match all {
        [] => "none".into(),
        all => {
            let all: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
            all.join(", ")
        }
    }
}

/// The values that are valid now.
fn right(process: &GaspiProcess, arguments: &[Argument<'_>], status: Status) -> String {
    let config = process.config();
    let local = number(arguments, &["segment_local", "segment", "id"]);
    let remote = number(arguments, &["segment_remote", "segment"]);
    let rank = number(arguments, &["rank"]);
    let size = |segment: Option<u64>, rank: u64| {
        let segment = u8::try_from(segment?).ok()?;
        process
            .segment_size(segment, u16::try_from(rank).ok()?)
            .ok()
    };
    let mine = || size(local, process.rank().into());
    match status {
        Status::ErrInvRank => format!("; ranks go from 0 to {}", process.num() - 1),
        Status::ErrInvSeg => format!(
            "; segments of this process: {}; register segments of other ranks with this one",
            list(&process.segment_list())
        ),
        Status::ErrInvQueue => format!(
            "; {} queues are there: gaspi_queue_create",
            process.queue_num()
        ),
        Status::ErrInvGroup => format!(
            "; {} groups are there; they are to be committed",
            process.group_num()
        ),
        Status::ErrInvLocOff => mine().map_or_else(String::new, |size| {
            format!("; the segment has {size} bytes")
        }),
        Status::ErrInvRemOff => size(remote, rank.unwrap_or(u64::from(process.rank())))
            .map_or_else(String::new, |size| {
                format!("; the segment there has {size} bytes")
            }),
        Status::ErrInvCommsize => format!(
            "; the most is {} bytes, 1 to {} of a passive message",
            config.transfer_size_max, config.passive_transfer_size_max
        ),
        Status::ErrInvNotifId => match config.notification_num {
            0 => "; the configuration has no notifications".into(),
            num => format!("; ids go from 0 to {}", num - 1),
        },
        Status::ErrInvNum => format!(
            "; lists have 1 to {} elements, reductions 1 to {}",
            config.rw_list_elem_max.min(config.queue_size_max),
            config.allreduce_elem_max
        ),
        Status::Error => match dead(process).as_slice() {
            [] => String::new(),
            ranks => format!("; ranks that have died: {}", list(ranks)),
        },
        _ => String::new(),
    }
}

/// The dead ranks that this process knows of. No liveness check runs.
fn dead(process: &GaspiProcess) -> Vec<u32> {
    let world = process.world();
    let dead = |rank: &u32| world.life(*rank) == Life::Dead;
    (0..world.size()).filter(dead).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_programs_write_them() {
        let (rank, null_pointer) = (9u16, std::ptr::null::<u8>());
        let (block, test) = (u64::MAX, 0u64);
        let arguments: [Argument<'_>; 4] = [
            ("rank", &rank),
            ("first", &null_pointer),
            ("timeout", &block),
            ("timeout", &test),
        ];
        let shown: Vec<String> = arguments.iter().map(show).collect();
        assert_eq!(
            shown,
            [
                "rank 9",
                "first 0x0",
                "timeout GASPI_BLOCK",
                "timeout GASPI_TEST"
            ]
        );
        assert_eq!(null(&arguments), " (first)");
        assert_eq!(number(&arguments, &["x", "rank"]), Some(9));
    }
}
