//! Bodies that lie, hang and crash: the framework must tell them from laws that hold.

use std::time::Duration;

use crate::law::{Api, Ctx, Law, Verdict, not_offered};
use crate::stall::Looks;

const CLAUSE: &str = "unipgas conformance";

const fn law(id: &'static str, body: fn(&Ctx) -> Verdict) -> Law {
    Law::new(
        Api::Core,
        id,
        CLAUSE,
        "the framework tests itself",
        2,
        &[],
        body,
    )
}

/// Found by name only.
pub const LAWS: &[Law] = &[
    law("selftest.holds", |ctx| {
        ctx.sync();
        Ok(())
    }),
    // Pinned as broken on shm.
    law("selftest.holds-against-its-pin", |_| Ok(())),
    // The other rank waits for the one that fails: it is not what is reported.
    law("selftest.lies", |ctx| {
        crate::ensure_eq!(ctx.rank, 0, "rank");
        ctx.sync();
        Ok(())
    }),
    law("selftest.lies-at-seed-3", |ctx| {
        crate::ensure!(ctx.seed != 3, "three");
        Ok(())
    }),
    law("selftest.panics", |ctx| {
        assert!(ctx.rank == 1, "rank 0 panics");
        Ok(())
    }),
    law("selftest.hangs", |ctx| {
        if ctx.rank == 0 {
            return Ok(());
        }
        let mut looks = Looks::new();
        loop {
            looks.pause(Duration::from_millis(10));
        }
    }),
    // Does not even wait for anything: the clock ends it.
    law("selftest.sleeps", |ctx| {
        if ctx.rank == 0 {
            return Ok(());
        }
        loop {
            std::thread::sleep(Duration::from_millis(10));
        }
    }),
    // The others wait for it longer than a law that hangs does.
    law("selftest.takes-its-time", |ctx| {
        if ctx.rank == 1 {
            std::thread::sleep(Duration::from_secs(3));
        }
        ctx.sync();
        Ok(())
    }),
    law("selftest.crashes", |ctx| {
        if ctx.rank == 1 {
            std::process::abort();
        }
        ctx.sync();
        Ok(())
    }),
    law("selftest.exits", |_| std::process::exit(0)),
    law("selftest.not-offered", |_| not_offered("nobody has it")),
    law("selftest.two-hosts", |ctx| {
        let host = std::fs::read_link("/proc/self/ns/net").map_err(|e| e.to_string())?;
        let host = host.to_string_lossy().into_owned();
        ctx.tell(host.as_bytes());
        ctx.sync();
        let other = ctx.told(1 - ctx.rank).unwrap_or_default();
        crate::ensure!(
            other != host.as_bytes() && ctx.is_afar(1 - ctx.rank),
            "both ranks are on host {host}"
        );
        Ok(())
    }),
    Law {
        needs_kill: true,
        ..law("selftest.kills", |ctx| {
            if ctx.rank == 1 {
                ctx.dies();
            }
            ctx.sync();
            Ok(())
        })
    },
    Law {
        needs_kill: true,
        ..law("selftest.kills-and-lies", |ctx| {
            if ctx.rank == 1 {
                ctx.dies();
            }
            ctx.sync();
            Err("the survivor has seen something".into())
        })
    },
    // The process that takes the place of a killed one crashes, and the next one does not.
    Law {
        needs_kill: true,
        replaces: true,
        ..law(
            "selftest.crashes-in-its-place",
            |ctx| match std::env::var("UNIPGAS_INCARNATION").as_deref() {
                Err(_) if ctx.rank == 1 => ctx.dies(),
                Ok("1") => std::process::abort(),
                _ => Ok(()),
            },
        )
    },
    // Dies without having said so.
    Law {
        needs_kill: true,
        ..law("selftest.dies-of-something-else", |ctx| {
            if ctx.rank == 1 {
                std::process::abort();
            }
            Ok(())
        })
    },
];
