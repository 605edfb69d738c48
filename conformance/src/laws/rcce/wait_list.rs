//! Lists of requests; §4.3, §9.7.

use std::mem::MaybeUninit;

use super::kit::*;

laws! {
    all: "wait-list.all", "iRCCE 2.0 §4.3, §9.7", 3,
        [iRCCE_init_wait_list, iRCCE_add_to_wait_list, iRCCE_wait_all] + ordering,
        "iRCCE_wait_all ends when all sends and receives of the list have ended";
    test_all: "wait-list.test-all", "iRCCE 2.0 §9.7", 2, [iRCCE_test_all, iRCCE_add_to_wait_list] + ordering,
        "iRCCE_test_all does not wait, and says 1 when all have ended and not before; without a place for the flag, too";
    any: "wait-list.any", "iRCCE 2.0 §9.7", 3, [iRCCE_wait_any, iRCCE_get_source, iRCCE_get_dest] + ordering,
        "iRCCE_wait_any returns each ended request once, a send or a receive, with a null pointer for the other";
    test_any: "wait-list.test-any", "iRCCE 2.0 §9.7", 2, [iRCCE_test_any] + ordering,
        "iRCCE_test_any does not wait, gives null twice while none has ended, and each once";
    adders: "wait-list.adders", "iRCCE 2.0 §9.7", 2,
        [iRCCE_add_to_wait_list, iRCCE_add_send_to_wait_list, iRCCE_add_recv_to_wait_list, iRCCE_wait_any],
        "one, both, or none of the two requests are added";
    null_places: "wait-list.null-places", "iRCCE 2.0 §9.7", 2, [iRCCE_wait_any, iRCCE_test_any],
        "either place for a request may be null";
    empty: "wait-list.empty", "iRCCE 2.0 §9.7", 1, [iRCCE_wait_all, iRCCE_test_all, iRCCE_test_any, iRCCE_wait_any],
        "an empty list has nothing to wait for";
    out_of_order: "wait-list.out-of-order", "iRCCE 2.0 §4.3", 3, [iRCCE_wait_any, iRCCE_test_any],
        "the request that ends first is returned first, at any place in the list";
    too_long: "wait-list.longer-messages", "iRCCE 2.0 §9.7", 2, [iRCCE_wait_any, iRCCE_wait_all, iRCCE_test_all],
        "the list's calls report a message longer than its buffer";
}

struct List(*mut iRCCE_WAIT_LIST);

impl List {
    fn new() -> List {
        let list = Box::into_raw(Box::new(MaybeUninit::<iRCCE_WAIT_LIST>::uninit())).cast();
        c!(iRCCE_init_wait_list(list));
        List(list)
    }

    fn add(&self, send: Option<Send>, receive: Option<Recv>) {
        let send = send.map_or(null_mut(), |request| request.0);
        let receive = receive.map_or(null_mut(), |request| request.0);
        c!(iRCCE_add_to_wait_list(self.0, send, receive));
    }

    /// Begins a receive and adds it.
    fn receives(&self, room: &Bytes, source: i32) -> Result<Recv, String> {
        let request = irecv(room, source)?.0;
        self.add(None, Some(request));
        Ok(request)
    }
}

/// Begins messages with all other UEs and returns the expected ones.
fn exchange(ctx: &Ctx, list: &List, each: u64) -> Result<Vec<(Recv, Bytes, u64)>, String> {
    let (me, n) = place(ctx);
    let mut random = ctx.random(50);
    let mut receives = Vec::new();
    for a in 0..n {
        for b in (0..n).filter(|b| *b != a) {
            for nth in 0..each {
                let nth = (a as u64) << 16 | (b as u64) << 8 | nth;
                let len = 1 + random.below(20_000) as usize;
                if me == a {
                    list.add(Some(isend(&Bytes::of(&content(ctx, nth, len)), b)?.0), None);
                } else if me == b {
                    let room = Bytes::filled(len, 0);
                    let request = list.receives(&room, a)?;
                    receives.push((request, room, nth));
                }
            }
        }
    }
    Ok(receives)
}

fn check(ctx: &Ctx, receives: &[(Recv, Bytes, u64)]) -> Verdict {
    for (request, room, nth) in receives {
        ensure_eq!(request.status(), SUCCESS, "the status of {nth:#x}");
        let expected = content(ctx, *nth, room.len);
        room.holds(&expected, 0, &format!("message {nth:#x}"))?;
    }
    Ok(())
}

fn all(ctx: &Ctx) -> Verdict {
    let list = List::new();
    for _ in 0..2 {
        let receives = exchange(ctx, &list, 8)?;
        ok!(iRCCE_wait_all(list.0));
        check(ctx, &receives)?;
    }
    Ok(())
}

/// Whether a test says the end, by this code.
fn ended(seen: (i32, i32), code: i32) -> Result<bool, String> {
    let right = seen == (code, 1) || seen == (PENDING, 0);
    ensure!(right, "code and flag: {seen:?}");
    Ok(seen.1 == 1)
}

fn test_all(ctx: &Ctx) -> Verdict {
    let list = List::new();
    let room = Bytes::filled(10, 0);
    let other = 1 - ctx.rank as i32;
    list.receives(&room, other)?;
    let mut flag = -7;
    gives!(PENDING, iRCCE_test_all(list.0, &mut flag));
    ensure_eq!(flag, 0, "with a request that has not ended");
    gives!(PENDING, iRCCE_test_all(list.0, null_mut()));
    ctx.sync();
    list.add(Some(isend(&Bytes::filled(10, 5), other)?.0), None);
    let receives = exchange(ctx, &list, 8)?;
    until("all", || {
        let code = c!(iRCCE_test_all(list.0, &mut flag));
        ended((code, flag), SUCCESS)
    })?;
    room.holds(&[5; 10], 0, "the first message")?;
    check(ctx, &receives)
}

/// Takes all requests out one by one by `call`, and counts them.
fn one_by_one(
    ctx: &Ctx,
    each: u64,
    call: impl Fn(&List, &mut Send, &mut Recv) -> Result<bool, String>,
) -> Verdict {
    let list = List::new();
    let receives = exchange(ctx, &list, each)?;
    let (mut sent, mut received) = (0, Vec::new());
    let total = receives.len() * 2;
    until("all, one by one", || {
        let (mut send, mut receive) = (Send(null_mut()), Recv(null_mut()));
        if call(&list, &mut send, &mut receive)? {
            ensure!(send.0.is_null() != receive.0.is_null(), "two, or none");
            if receive.0.is_null() {
                ensure_eq!(send.status(), SUCCESS, "a send that was given");
                sent += 1;
            } else {
                ensure_eq!(receive.status(), SUCCESS, "a receive that was given");
                ensure!(!received.contains(&receive.0), "one was given twice");
                received.push(receive.0);
            }
        } else {
            let none = send.0.is_null() && receive.0.is_null();
            ensure!(none, "a request that has not ended was returned");
        }
        Ok(sent + received.len() == total)
    })?;
    ensure_eq!((sent, received.len()), (total / 2, total / 2), "by kind");
    ensure_eq!(got!(iRCCE_test_all(list.0)), 1, "the list at the end");
    check(ctx, &receives)
}

fn any(ctx: &Ctx) -> Verdict {
    one_by_one(ctx, 6, |list, send, receive| {
        ok!(iRCCE_wait_any(list.0, &mut send.0, &mut receive.0));
        Ok(true)
    })
}

fn test_any(ctx: &Ctx) -> Verdict {
    one_by_one(ctx, 12, |list, send, receive| {
        (send.0, receive.0) = (Send::new().0, Recv::new().0);
        let code = c!(iRCCE_test_any(list.0, &mut send.0, &mut receive.0));
        one_of(code, &[SUCCESS, PENDING], "iRCCE_test_any")?;
        Ok(code == SUCCESS)
    })
}

/// Begins several requests.
fn several<T>(n: u32, begin: impl Fn() -> Result<(T, i32), String>) -> Result<Vec<T>, String> {
    (0..n).map(|_| begin().map(|begun| begun.0)).collect()
}

fn adders(ctx: &Ctx) -> Verdict {
    let list = List::new();
    let other = 1 - ctx.rank as i32;
    let bytes = Bytes::filled(30, 1);
    let receives = several(3, || irecv(&Bytes::filled(30, 0), other))?;
    ctx.sync();
    let sends = several(3, || isend(&bytes, other))?;
    list.add(Some(sends[0]), Some(receives[0]));
    list.add(None, None);
    c!(iRCCE_add_send_to_wait_list(list.0, sends[1].0));
    c!(iRCCE_add_recv_to_wait_list(list.0, receives[1].0));
    c!(iRCCE_add_send_to_wait_list(list.0, null_mut()));
    c!(iRCCE_add_recv_to_wait_list(list.0, null_mut()));
    list.add(Some(sends[2]), None);
    list.add(None, Some(receives[2]));
    let mut seen = Vec::new();
    for _ in 0..6 {
        let (mut send, mut receive) = (null_mut(), null_mut());
        ok!(iRCCE_wait_any(list.0, &mut send, &mut receive));
        seen.push(send as usize + receive as usize);
    }
    let mut expected: Vec<_> = sends.iter().map(|s| s.0 as usize).collect();
    expected.extend(receives.iter().map(|r| r.0 as usize));
    expected.sort_unstable();
    seen.sort_unstable();
    equal!(seen, expected, "the requests that were given")
}

fn null_places(ctx: &Ctx) -> Verdict {
    let list = List::new();
    let other = 1 - ctx.rank as i32;
    let receives = several(4, || irecv(&Bytes::filled(30, 0), other))?;
    for request in &receives {
        list.add(None, Some(*request));
    }
    gives!(PENDING, iRCCE_test_any(list.0, null_mut(), null_mut()));
    ctx.sync();
    let bytes = Bytes::filled(30, 1);
    let sends = several(4, || isend(&bytes, other))?;
    let receive = got!(iRCCE_wait_any(list.0, null_mut()));
    ensure_eq!(receive, receives[0].0, "the first receive");
    ok!(iRCCE_wait_any(list.0, null_mut(), null_mut()));
    let mut send = Send::new().0;
    ok!(iRCCE_wait_any(list.0, &mut send, null_mut()));
    ensure!(send.is_null(), "a send was given");
    until("the last", || {
        Ok(c!(iRCCE_test_any(list.0, null_mut(), null_mut())) == SUCCESS)
    })?;
    for_all(sends, |request| request.wait())
}

fn empty(_: &Ctx) -> Verdict {
    let list = List::new();
    let mut flag = -7;
    ok!(iRCCE_wait_all(list.0));
    ok!(iRCCE_test_all(list.0, &mut flag));
    ensure_eq!(flag, 1, "the test of an empty list");
    let (mut send, mut receive) = (Send::new().0, Recv::new().0);
    c!(iRCCE_test_any(list.0, &mut send, &mut receive));
    ensure!(send.is_null() && receive.is_null(), "of an empty list");
    (send, receive) = (Send::new().0, Recv::new().0);
    ok!(iRCCE_wait_any(list.0, &mut send, &mut receive));
    ensure!(send.is_null() && receive.is_null(), "of an empty list");
    Ok(())
}

fn out_of_order(ctx: &Ctx) -> Verdict {
    if ctx.rank != 0 {
        if ctx.rank == 1 {
            ctx.sync();
        }
        send(&Bytes::filled(25, 7), 0)?;
        if ctx.rank == 2 {
            ctx.sync();
        }
        return Ok(());
    }
    let list = List::new();
    let [first, second] = [1, 2].map(|source| list.receives(&Bytes::filled(25, 0), source));
    let receives = [first?, second?];
    for (source, nth) in [(2, 1), (1, 0)] {
        let (mut send, mut receive) = (null_mut(), null_mut());
        ok!(iRCCE_wait_any(list.0, &mut send, &mut receive));
        ensure_eq!(receive, receives[nth].0, "the request that has ended");
        ensure_eq!(c!(iRCCE_get_source(receive)), source, "its source");
        if source == 2 {
            gives!(PENDING, iRCCE_test_any(list.0, &mut send, &mut receive));
            ctx.sync();
        }
    }
    Ok(())
}

fn too_long(ctx: &Ctx) -> Verdict {
    if ctx.rank == 0 {
        for_all(0..3, |_| send(&Bytes::filled(100, 1), 1))?;
        return Ok(());
    }
    let wrong = RCCE_ERROR_MESSAGE_LENGTH;
    let list = List::new();
    // The message may be there before its receive.
    let receives = || -> Result<Recv, String> {
        let (room, request) = (Bytes::filled(10, 0), Recv::new());
        let code = c!(iRCCE_irecv(room.ptr(), 10, 0, request.0));
        one_of(code, &[PENDING, wrong], "iRCCE_irecv")?;
        list.add(None, Some(request));
        Ok(request)
    };
    let request = receives()?;
    let mut receive = null_mut();
    gives!(wrong, iRCCE_wait_any(list.0, null_mut(), &mut receive));
    ensure_eq!(receive, request.0, "the request");
    receives()?;
    gives!(wrong, iRCCE_wait_all(list.0));
    receives()?;
    let mut flag = -7;
    until("the last", || {
        let code = c!(iRCCE_test_all(list.0, &mut flag));
        ended((code, flag), wrong)
    })
}
