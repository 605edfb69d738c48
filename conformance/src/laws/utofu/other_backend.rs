//! Processes of one job with different backends.

use std::sync::atomic::Ordering;

use super::kit::*;
use crate::kit::{Child, child, shared_words};

laws! {
    refused: "resources.other-backend", "§4.3.2", 1, [create_vcq, query_my_coords] + bare,
        "a process that maps its peers' memory, or does not, and finds a job at work that does it the other way, says so in one line and gets errors";
}

/// A backend, and the number of played hosts: with several, not all memory is mapped.
type Setting<'a> = [(&'a str, &'a str); 2];

/// A setting that maps other memory than this process's.
fn other<'a>(backend: &str, hosts: &str) -> Setting<'a> {
    let name = match (backend, hosts) {
        ("shm", "1") => "streams",
        _ => "shm",
    };
    [("UNIPGAS_BACKEND", name), ("UNIPGAS_TEST_HOSTS", "1")]
}

fn refused(_ctx: &Ctx) -> Verdict {
    let get = |name, default: &str| std::env::var(name).unwrap_or(default.into());
    let hosts = get("UNIPGAS_TEST_HOSTS", "1");
    let backend = get("UNIPGAS_BACKEND", "shm");
    let this: Setting<'_> = [
        ("UNIPGAS_BACKEND", &backend),
        ("UNIPGAS_TEST_HOSTS", &hosts),
    ];
    let other = other(&backend, &hosts);
    for_all([(&this, &other), (&other, &this)], |(first, second)| {
        fast_path(first, second)
    })
}

fn fast_path(first: &Setting<'_>, second: &Setting<'_>) -> Verdict {
    let [there, over] = shared_words(2)? else {
        return Err("not two words".into());
    };
    let at_work = Child::start(first, || {
        let queue = Queue::with_component(TNI, 0, 0)?;
        there.store(1, Ordering::Release);
        until("the other process's end", || {
            over.load(Ordering::Acquire) == 1
        })?;
        queue.free()
    })?;
    let met = until("the first process", || there.load(Ordering::Acquire) == 1);
    let late = met.and_then(|()| {
        child(second, || {
            let (mut hdl, mut at) = (0, [0; 6]);
            for _ in 0..3 {
                gives!(UTOFU_ERR_FATAL, utofu_create_vcq(TNI, 0, &mut hdl));
                gives!(UTOFU_ERR_FATAL, utofu_query_my_coords(at.as_mut_ptr()));
            }
            Ok(())
        })
    });
    over.store(1, Ordering::Release);
    at_work.succeeds("the process that came first")?;
    let (status, text) = late?;
    ensure_eq!(status, 0, "the status of the second process, {text:?}");
    ensure!(
        text.lines().count() == 1 && text.contains("UNIPGAS_BACKEND"),
        "{text:?}"
    );
    Ok(())
}
