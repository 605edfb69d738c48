//! Explains refused calls if `UNIPGAS_CHECK=1`. Programs call through tables, so the name of the Rust function identifies the call.

use unipgas_core::refused::{self, Prototype, Reason};

use crate::status::Errno;

/// Source files, and the prefix of their calls in C.
const FAMILIES: [(&str, &str); 14] = [
    ("queue", "fi_cq_"),
    ("counter", "fi_cntr_"),
    ("av", "fi_av_"),
    ("event", "fi_eq_"),
    ("memory", "fi_mr_"),
    ("poll", "fi_poll_"),
    ("endpoint", "fi_endpoint_"),
    ("shared", "fi_shared_"),
    ("domain", "fi_domain_"),
    ("fabric", "fi_fabric_"),
    ("info", "fi_"),
    ("message", "fi_"),
    ("rma", "fi_"),
    ("trigger", "fi_"),
];

/// Functions with other names in C, or that implement several calls.
const OTHERS: [(&str, &str); 32] = [
    ("queue::open_queue", "fi_cq_open"),
    ("queue::close", "fi_close of a completion queue"),
    ("queue::control", "fi_control of a completion queue"),
    ("counter::open_counter", "fi_cntr_open"),
    ("counter::close", "fi_close of a counter"),
    ("counter::control", "fi_control of a counter"),
    ("av::open_av", "fi_av_open"),
    ("av::close", "fi_close of an address vector"),
    ("event::open_event_queue", "fi_eq_open"),
    ("event::close", "fi_close of an event queue"),
    ("event::control", "fi_control of an event queue"),
    ("memory::register", "fi_mr_reg"),
    ("memory::register_vector", "fi_mr_regv"),
    ("memory::register_by_attributes", "fi_mr_regattr"),
    ("memory::close", "fi_close of a memory region"),
    ("poll::open_poll", "fi_poll_open"),
    ("poll::poll_add", "fi_poll_add"),
    ("poll::poll_del", "fi_poll_del"),
    ("poll::close", "fi_close of a poll set"),
    ("wait::open_wait", "fi_wait_open"),
    ("wait::wait", "fi_wait"),
    ("wait::close", "fi_close of a wait set"),
    ("wait::control", "fi_control of a wait set"),
    ("endpoint::open_endpoint", "fi_endpoint"),
    ("endpoint::bind", "fi_ep_bind"),
    ("endpoint::close", "fi_close of an endpoint"),
    (
        "endpoint::control",
        "fi_enable or fi_control of an endpoint",
    ),
    ("domain::close", "fi_close of a domain"),
    ("fabric::close", "fi_close of a fabric"),
    ("fabric::trywait", "fi_trywait"),
    ("rma::inject", "fi_inject_write"),
    ("rma::injectdata", "fi_inject_writedata"),
];

/// The return value of a failed call. `run`: type name of the closure that has failed.
#[cold]
#[inline(never)]
pub(super) fn told(run: &str, errno: Errno) -> isize {
    if let Some(remedy) = remedy(errno)
        && refused::is_on()
    {
        let call = Prototype {
            name: &name(run),
            arguments: &[],
        };
        let (code, meaning) = (format!("-{}", errno.name()), errno.text().to_string_lossy());
        refused::explain(
            &call,
            &code,
            &meaning,
            Reason {
                suspects: &[],
                remedy,
            },
        );
    }
    -(errno.0 as isize)
}

fn name(run: &str) -> String {
    let inner = run.split_once("::ffi::").map_or(run, |(_, inner)| inner);
    let path: Vec<&str> = inner
        .split("::")
        .map(|part| part.split('<').next().unwrap_or(part))
        .collect();
    let [file, function, ..] = path[..] else {
        return inner.to_owned();
    };
    let known = format!("{file}::{function}");
    if let Some((_, name)) = OTHERS.iter().find(|(place, _)| *place == known) {
        return (*name).to_owned();
    }
    let family = FAMILIES.iter().find(|(place, _)| *place == file);
    match file {
        "atomic" => "fi_atomic, fi_fetch_atomic or fi_compare_atomic".into(),
        _ => format!("{}{function}", family.map_or("fi_", |(_, begin)| begin)),
    }
}

/// The remedy for an error. `None` for an error that the program retries or reads, and for refused hints: libfabric asks each provider.
fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::AGAIN
        | Errno::AVAIL
        | Errno::TIMEDOUT
        | Errno::NOMSG
        | Errno::NODATA
        | Errno::CANCELED => {
            return None;
        }
        Errno::INVAL => {
            "give no null pointer, objects of the same fabric and domain, and attributes within those of fi_getinfo"
        }
        Errno::BADFLAGS => "give flags that the manual page of this call names",
        Errno::NOSYS | Errno::OPNOTSUPP => {
            "ask fi_getinfo for the capability, and query what it offers"
        }
        Errno::NOPROTOOPT => "take an option that fi_endpoint(3) names and this provider has",
        Errno::MSGSIZE => "give no more than max_msg_size, inject_size or iov_limit of fi_getinfo",
        Errno::TOOSMALL => "give a buffer of the length that the call has returned",
        Errno::BUSY => "close or unbind first what still uses the object",
        Errno::NOCQ => "bind a completion queue to the endpoint before it is enabled",
        Errno::NOAV => "bind an address vector to the endpoint before it is enabled",
        Errno::NOEQ => "bind an event queue first",
        Errno::OPBADSTATE => "call fi_enable first; bind and set options before it",
        Errno::DOMAIN => "use objects of one domain",
        Errno::NOKEY => "use a registered key, or, to register, a free one",
        Errno::ACCES => "register the memory for this access, and stay within it",
        Errno::NOENT => "use what has been inserted, and not removed",
        Errno::NOSPC | Errno::NOMEM => "close what is not used any more",
        Errno::ADDRINUSE | Errno::ADDRNOTAVAIL => {
            "let the provider choose the name, or give a free one"
        }
        Errno::CONNRESET | Errno::HOSTUNREACH => {
            "look for the end of the peer: it has died, or has closed its endpoint"
        }
        _ => "FI_LOG_LEVEL=info says what has failed",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_as_in_c() {
        let of = |run: &str| name(&format!("unipgas_libfabric::ffi::{run}::{{{{closure}}}}"));
        assert_eq!(of("queue::open_queue"), "fi_cq_open");
        assert_eq!(of("queue::signal"), "fi_cq_signal");
        assert_eq!(of("av::insert"), "fi_av_insert");
        assert_eq!(of("message::tsend<true>"), "fi_tsend");
        assert_eq!(
            of("atomic::post"),
            "fi_atomic, fi_fetch_atomic or fi_compare_atomic"
        );
    }

    #[test]
    fn what_is_to_be_tried_again_is_not_explained() {
        for errno in [Errno::AGAIN, Errno::AVAIL, Errno::TIMEDOUT] {
            assert_eq!(remedy(errno), None);
        }
        assert!(remedy(Errno::INVAL).is_some());
    }
}
