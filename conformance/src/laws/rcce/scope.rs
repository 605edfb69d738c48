//! Requests of the Rust interface, which borrow for a scope; §3, §4.2, §4.3, §6.

use unipgas::core::Error;
use unipgas::ircce::scope::Status;
use unipgas::ircce::wait_list::Ended;
use unipgas::ircce::{Failure, Ue, current};

use super::kit::*;
use crate::law::{Ctx, Verdict};
use crate::{ensure, ensure_eq};

laws! {
    ring: "scope.ring", "iRCCE 2.0 §3.5", 4, [iRCCE_isend, iRCCE_irecv, iRCCE_isend_wait, iRCCE_irecv_wait] + ordering,
        "messages of every length go round, all UEs sending and receiving at once, within scopes";
    left: "scope.left", "iRCCE 2.0 §3.4", 3, [iRCCE_isend, iRCCE_irecv] + ordering,
        "a scope ends when its requests have, whether anybody has waited for them or not";
    list: "scope.wait-list", "iRCCE 2.0 §4.3", 4, [iRCCE_wait_any, iRCCE_wait_all, iRCCE_test_any] + ordering,
        "lists give requests back one by one as they end, with source and length of each message";
    failed: "scope.error", "iRCCE 2.0 §4.2", 2, [iRCCE_isend_cancel, iRCCE_irecv_cancel] + ordering,
        "after an error receives that nothing has come for are taken back; what has begun is received; nothing is written later";
    death: "scope.death", "unipgas conformance", 3, [iRCCE_isend, iRCCE_irecv] + needs_kill + bare,
        "where a UE has died the scope ends with an error, and nothing uses its buffers after that";
}

fn ue() -> Result<&'static Ue, String> {
    current().map_err(|failure| failure.to_string())
}

fn told<T>(result: Result<T, Failure>) -> Result<T, String> {
    result.map_err(|failure| failure.to_string())
}

fn ring(ctx: &Ctx) -> Verdict {
    let (ue, n) = (ue()?, ctx.size);
    let (to, from) = ((ctx.rank + 1) % n, (ctx.rank + n - 1) % n);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        let salt = |id: u32| nth as u64 * 64 + u64::from(id);
        let data = content(ctx, salt(ctx.rank), len);
        let mut room = vec![0x33; len + 1];
        let seen = told(ue.scope(|s| {
            let send = s.isend(&data, to)?;
            let receive = s.irecv(&mut room, (nth % 2 == 0).then_some(from))?;
            if nth % 3 == 0 {
                while !receive.test()? {
                    ue.push_sends()?;
                }
            }
            let message = receive.wait()?;
            let seen = (message.source, message.len, send.dest());
            send.wait()?;
            Ok::<_, Failure>(seen)
        }))?;
        ensure_eq!(seen, (from, len, to), "source, length and receiver");
        ensure!(
            room[..len] == content(ctx, salt(from), len) && room[len] == 0x33,
            "the message of {len} bytes is wrong"
        );
        barrier()?;
    }
    Ok(())
}

fn left(ctx: &Ctx) -> Verdict {
    let ue = ue()?;
    for round in 0..10u64 {
        let len = [30, 3000, 70_000][round as usize % 3];
        let of = |from: u32, to: u32| {
            content(ctx, round * 100 + u64::from(from) * 10 + u64::from(to), len)
        };
        let others: Vec<u32> = (0..ctx.size).filter(|id| *id != ctx.rank).collect();
        let data: Vec<_> = others.iter().map(|to| of(ctx.rank, *to)).collect();
        let mut rooms: Vec<_> = others.iter().map(|_| vec![0; len]).collect();
        told(ue.scope(|s| {
            for ((data, room), id) in data.iter().zip(&mut rooms).zip(&others) {
                let _ = s.irecv(room, Some(*id))?;
                let _ = s.isend(data, *id)?;
            }
            Ok::<_, Failure>(())
        }))?;
        for (room, from) in rooms.iter().zip(&others) {
            ensure!(
                *room == of(*from, ctx.rank),
                "the message of UE {from} in round {round} is wrong"
            );
        }
    }
    Ok(())
}

fn list(ctx: &Ctx) -> Verdict {
    const EACH: u64 = 12;
    let ue = ue()?;
    let len = |from: u32, nth: u64| (u64::from(from) * 700 + nth * 997) as usize % 9000;
    let of = |from: u32, nth: u64| content(ctx, u64::from(from) << 8 | nth, len(from, nth));
    if ctx.rank != 0 {
        let data: Vec<_> = (0..EACH).map(|nth| of(ctx.rank, nth)).collect();
        return told(ue.scope(|s| {
            let mut list = s.wait_list();
            for data in &data {
                list.add_send(s.isend(data, 0)?);
            }
            for finished in list.wait_all()? {
                finished.ended?;
            }
            Ok(())
        }));
    }
    let senders = ctx.size - 1;
    let mut rooms = vec![vec![0; 9000]; (EACH * u64::from(senders)) as usize];
    let mut seen = vec![0; ctx.size as usize];
    let (mut wrong, mut random) = (None, ctx.random(9));
    told(ue.scope(|s| {
        let mut list = s.wait_list();
        for room in &mut rooms {
            list.add_receive(s.irecv(room, None)?);
        }
        let mut given = vec![false; list.len()];
        while !list.is_empty() {
            let found = if random.below(2) == 0 {
                list.wait_any()?
            } else {
                list.test_any()?
            };
            let Some(finished) = found else {
                continue;
            };
            let number = finished.number;
            let Ended::Received(message) = finished.ended? else {
                wrong = Some("a send in a list of receives".to_string());
                break;
            };
            // Receives from anyone take the messages of one sender in their order.
            let nth = seen[message.source as usize];
            if std::mem::replace(&mut given[number], true)
                || message.bytes().is_empty() != (len(message.source, nth) == 0)
            {
                wrong = Some(format!(
                    "member {number} came twice, or with another length"
                ));
            }
            seen[message.source as usize] += 1;
        }
        Ok::<_, Failure>(())
    }))?;
    ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    ensure_eq!(seen[1..], vec![EACH; senders as usize], "messages of each");
    for from in 1..=senders {
        for nth in 0..EACH {
            let expected = of(from, nth);
            let found = rooms
                .iter()
                .filter(|room| room[..expected.len()] == expected);
            ensure!(
                found.count() > 0,
                "message {nth} of UE {from} is in no buffer"
            );
        }
    }
    Ok(())
}

fn failed(ctx: &Ctx) -> Verdict {
    let ue = ue()?;
    for len in [20, 3000, 70_000] {
        let data = content(ctx, len as u64, len);
        if ctx.rank == 1 {
            ctx.sync();
            ensure!(receive(len, 0)? == data, "what had begun is wrong");
            // The second send had not, or its bytes had gone as well.
            ctx.sync();
            while let Some(more) = told(ue.try_probe(Some(0)))? {
                receive(more.len, 0)?;
            }
            send(&Bytes::filled(40, 1), 0)?;
            continue;
        }
        let mut rooms = [[0xaa; 64]; 2];
        let ended: Result<(), Failure> = ue.scope(|s| {
            let [first, second] = &mut rooms;
            let _ = (s.irecv(first, Some(1))?, s.irecv(second, None)?);
            let begun = s.isend(&data, 1)?;
            let waits = s.isend(&data, 1)?;
            let states = (begun.status(), waits.status());
            assert_eq!(states, (Status::Pending, Status::Reserved));
            ctx.sync();
            Err(Failure::NotRunning)
        });
        ensure_eq!(ended, Err(Failure::NotRunning), "the error of the body");
        drop(data);
        ctx.sync();
        ensure!(
            receive(40, 1)? == [1; 40],
            "a message after the scope is wrong"
        );
        ensure_eq!(
            rooms,
            [[0xaa; 64]; 2],
            "buffers of receives that were taken back"
        );
    }
    Ok(())
}

fn death(ctx: &Ctx) -> Verdict {
    ok!(RCCE_init(std::ptr::null_mut(), std::ptr::null_mut()));
    ok!(iRCCE_init());
    let ue = ue()?;
    barrier()?;
    if ctx.rank == 2 {
        // The others' requests are under way by now.
        pause(50);
        ctx.dies();
    }
    if ctx.rank == 1 {
        ctx.sync();
        let failure = ue.send(&[1; 40], 0);
        ensure_eq!(failure, Ok(()), "a message between those that live");
        return Ok(());
    }
    let mut rooms = vec![vec![0xaa; 70_000]; 3];
    let long = vec![1; 70_000];
    let ended = {
        let [first, second, third] = &mut rooms[..] else {
            unreachable!("three of them")
        };
        ue.scope(|s| {
            let _ = (s.irecv(first, Some(2))?, s.irecv(second, None)?);
            let _ = (s.isend(&long, 2)?, s.isend(&long, 1)?);
            s.irecv(third, Some(2))?.wait().map(|_| ())
        })
    };
    ensure_eq!(
        ended,
        Err(Failure::Engine(Error::RankDead(2))),
        "the end of the scope"
    );
    drop(long);
    ctx.sync();
    let mut room = [0; 40];
    let received = told(ue.receive(&mut room, Some(1)))?;
    ensure_eq!((received.len, room), (40, [1; 40]), "the message of UE 1");
    ensure!(
        rooms.iter().flatten().all(|byte| *byte == 0xaa),
        "a buffer of the scope was written after it"
    );
    Ok(())
}
