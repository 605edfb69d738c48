//! Endpoints of two processes: two fabrics of one process.

mod along;
mod calls;
mod strangers;

use std::ptr::null_mut;

use unipgas_core::{Error, Rights};

use crate::choice::{ProviderInfo, ProviderSelector, choose};
use crate::fabric::{AccessParameters, Event, Fabric, RemoteLocation};

/// Providers without special hardware.
const PROVIDERS: [&str; 3] = ["tcp", "udp", "sockets"];

fn wish(provider: &str, interface: Option<&str>) -> ProviderSelector {
    ProviderSelector {
        provider: Some(provider.into()),
        interface: interface.map(str::to_owned),
    }
}

/// `None`: libfabric is not installed, or has no such provider.
fn chosen(provider: &str) -> Option<ProviderInfo> {
    let chosen = choose(&wish(provider, None), false);
    chosen
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()
}

fn fabric(provider: &str) -> Option<Fabric> {
    Some(Fabric::open(chosen(provider)?).unwrap())
}

fn pairs() -> impl Iterator<Item = (Fabric, Fabric)> {
    PROVIDERS
        .into_iter()
        .filter_map(|provider| fabric(provider).zip(fabric(provider)))
}

/// Posts until there is room, with progress of both fabrics meanwhile.
fn insist(
    fabrics: [&Fabric; 2],
    events: &mut [Vec<Event>; 2],
    mut post: impl FnMut() -> unipgas_core::Result<()>,
) {
    while let Err(error) = post() {
        assert_eq!(error, Error::NotNow);
        progress(fabrics, events);
    }
}

fn progress(fabrics: [&Fabric; 2], events: &mut [Vec<Event>; 2]) {
    for (fabric, events) in fabrics.into_iter().zip(events) {
        fabric.read(|event| events.push(event));
    }
}

const PLAIN: AccessParameters = AccessParameters {
    desc: null_mut(),
    context: 0,
    data: None,
    inline: false,
};

#[test]
fn writes_carry_a_word_and_reads_see_what_was_written() {
    for (one, two) in pairs() {
        eprintln!("{:?}", one.traits);
        let both = [&one, &two];
        let mut events = [vec![], vec![]];
        let mut memory = vec![0u64; 64];
        // SAFETY:
        // - the memory outlives the registration.
        let mr = unsafe {
            two.register(
                memory.as_mut_ptr().cast(),
                512,
                Rights::READ | Rights::WRITE,
                77,
            )
        }
        .unwrap();
        let base = if one.traits.addresses {
            memory.as_ptr().addr() as u64
        } else {
            0
        };
        let far = RemoteLocation {
            peer: one.insert(&two.name).unwrap(),
            address: base,
            key: mr.key(),
        };
        for round in 1..200u64 {
            let (data, context) = (Some(round << 32 | 5), 1 << 20 | round as usize);
            let how = AccessParameters {
                data,
                context,
                ..PLAIN
            };
            let len = if round % 3 == 0 { 0 } else { 8 };
            // SAFETY:
            // - the source lives until the completion.
            insist(both, &mut events, || unsafe {
                one.write((&raw const round).cast(), len, far, how)
            });
            while events[0].is_empty() || events[1].is_empty() {
                progress(both, &mut events);
            }
            assert!(
                matches!(events[0][..], [Event::Ended { context: found, .. }] if found == context),
                "{events:?}"
            );
            assert!(
                matches!(events[1][..], [Event::Written { data: found, context: 0 }] if Some(found) == data),
                "{events:?}"
            );
            events = [vec![], vec![]];
            let mut landing = 0u64;
            // SAFETY:
            // - the landing lives until the completion.
            insist(both, &mut events, || unsafe {
                one.read_from(
                    (&raw mut landing).cast(),
                    8,
                    far,
                    AccessParameters { context, ..PLAIN },
                )
            });
            while events[0].is_empty() {
                progress(both, &mut events);
            }
            assert!(
                matches!(events[0][..], [Event::Ended { context: found, .. }] if found == context),
                "{events:?}"
            );
            assert_eq!(landing, if len == 0 { round - 1 } else { round });
            events = [vec![], vec![]];
        }
    }
}
