//! Requests of the Rust interface, in a job of one UE that sends to itself.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unipgas_core::registry::register;
use unipgas_ircce::launch::LaunchSettings;
use unipgas_ircce::scope::RequestStatus;
use unipgas_ircce::wait_list::RequestResult;
use unipgas_ircce::{ErrorCode, Failure, Ue};

fn start() -> Ue {
    register(unipgas_shm::BACKEND);
    Ue::start(&LaunchSettings::from_env().unwrap(), &[]).unwrap()
}

/// Checks that no earlier request is open: a new message arrives, and old buffers stay unchanged.
fn works(ue: &Ue) {
    let mut room = [0; 8];
    ue.scope(|s| {
        let send = s.isend(&[5; 8], 0)?;
        let message = s.irecv(&mut room, None)?.wait()?;
        assert_eq!((message.source, message.bytes()), (0, &[5; 8][..]));
        send.wait()
    })
    .unwrap();
    assert!(!ue.push_sends().unwrap() && !ue.push_receives().unwrap());
}

#[test]
fn messages_of_every_length() {
    let ue = start();
    for len in [0, 1, 33, 5000, 100_000] {
        let (data, mut room) = (vec![len as u8 + 1; len], vec![0; len + 10]);
        ue.scope(|s| {
            let receive = s.irecv(&mut room, Some(0))?;
            assert_eq!(receive.status(), RequestStatus::Pending);
            assert!(!receive.test()?);
            let send = s.isend(&data, 0)?;
            assert_eq!(send.dest(), 0);
            let message = receive.wait()?;
            assert_eq!((message.source, message.len), (0, len));
            assert!(message.bytes() == data);
            // The buffer is returned, and may be lent again.
            let buffer = message.buffer;
            buffer.fill(9);
            let again = s.irecv(buffer, None)?;
            let second = s.isend(&data, 0)?;
            assert!(again.wait()?.bytes() == data);
            send.wait()?;
            second.wait()
        })
        .unwrap();
        assert!(room[..len] == data && room[len..] == [9; 10]);
    }
    works(&ue);
}

#[test]
fn errors_and_panics_end_scopes() {
    let ue = start();
    let (long, mut rooms) = (vec![1; 100_000], [[7u8; 64]; 3]);
    let [first, second, third] = &mut rooms;
    let failed: Result<(), Failure> = ue.scope(|s| {
        // Three receives without a message. The scope fails and cancels them.
        let _ = (s.irecv(first, Some(0))?, s.irecv(second, None)?);
        let _ = s.irecv(third, Some(0))?;
        Err(ErrorCode::Malloc.into())
    });
    assert_eq!(failed, Err(ErrorCode::Malloc.into()));
    let failed = catch_unwind(AssertUnwindSafe(|| {
        ue.scope(|s| -> Result<(), Failure> {
            let _ = (s.isend(&[1; 8], 0)?, s.isend(&long, 0)?);
            panic!("on purpose");
        })
    }));
    assert_eq!(
        failed.unwrap_err().downcast_ref::<&str>(),
        Some(&"on purpose")
    );
    drop(long);
    // Only the first send had begun, and its bytes were sent. No other message exists.
    let mut room = [0; 64];
    let received = ue.receive(&mut room, None).unwrap();
    assert_eq!((received.len, room[0]), (8, 1));
    assert_eq!(ue.try_probe(None), Ok(None));
    assert_eq!(rooms, [[7; 64]; 3]);
    works(&ue);
}

#[test]
fn wrong_ids_and_short_buffers() {
    let ue = start();
    let mut rooms = [[0; 8]; 3];
    let [a, b, c] = &mut rooms;
    let failed: Result<(), Failure> = ue.scope(|s| {
        assert_eq!(s.isend(&[0], 1).err(), Some(ErrorCode::Id.into()));
        assert_eq!(s.isend(&[0], u32::MAX).err(), Some(ErrorCode::Id.into()));
        assert_eq!(s.irecv(a, Some(1)).err(), Some(ErrorCode::Id.into()));
        let receive = s.irecv(b, Some(0))?;
        let _ = s.isend(&[4; 9], 0)?;
        assert_eq!(receive.wait().err(), Some(ErrorCode::MessageLength.into()));
        // No call waits for this receive: the scope reports its error.
        let _ = (s.irecv(c, Some(0))?, s.isend(&[4; 9], 0)?);
        Ok(())
    });
    assert_eq!(failed, Err(ErrorCode::MessageLength.into()));
    assert_eq!(rooms, [[0; 8], [4; 8], [4; 8]]);
    works(&ue);
}

#[test]
fn what_has_not_begun_is_cancelled() {
    let ue = start();
    let (mut first, mut second) = ([0; 8], [0; 8]);
    ue.scope(|s| {
        let named = s.irecv(&mut first, Some(0))?;
        let later = s.irecv(&mut second, Some(0))?;
        assert_eq!(
            (named.status(), later.status()),
            (RequestStatus::Pending, RequestStatus::Reserved)
        );
        let named = named.cancel().expect_err("the first one has begun");
        let buffer = later.cancel().ok().expect("the second one has not");
        buffer.fill(6);
        let _ = s.isend(&[1; 8], 0)?;
        assert_eq!(named.wait()?.bytes(), [1; 8]);
        Ok::<_, Failure>(())
    })
    .unwrap();
    assert_eq!((first, second), ([1; 8], [6; 8]));
    ue.scope(|s| {
        let (begun, waits) = (s.isend(&[1; 8], 0)?, s.isend(&[2; 8], 0)?);
        assert_eq!(
            (begun.status(), waits.status()),
            (RequestStatus::Pending, RequestStatus::Reserved)
        );
        waits.cancel().ok().expect("it waits for the first one");
        let begun = match begun.cancel() {
            Err(begun) => begun,
            Ok(()) => panic!("the first one has gone"),
        };
        assert_eq!(s.irecv(&mut first, Some(0))?.wait()?.bytes(), [1; 8]);
        begun.wait()
    })
    .unwrap();
    works(&ue);
}

#[test]
fn wait_lists() {
    let ue = start();
    let mut rooms = [[0u8; 4]; 6];
    ue.scope(|s| {
        let mut list = s.wait_list();
        assert!(list.wait_any()?.is_none() && list.test_any()?.is_none() && list.test_all()?);
        for (nth, room) in rooms.iter_mut().enumerate() {
            assert_eq!(list.add_receive(s.irecv(room, Some(0))?), nth);
        }
        assert!(!list.test_all()? && list.test_any()?.is_none());
        assert_eq!(list.add_send(s.isend(&[8; 3], 0)?), 6);
        assert_eq!(list.add_send(s.isend(&[9; 4], 0)?), 7);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let finished = list.wait_any()?.expect("members");
            seen.push(finished.number);
            match finished.ended? {
                RequestResult::Sent(dest) => assert_eq!(dest, 0),
                RequestResult::Received(message) => {
                    assert_eq!(message.len, 3 + finished.number);
                    assert_eq!(message.bytes()[0], 8 + finished.number as u8);
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 6, 7]);
        for nth in 0..4 {
            list.add_send(s.isend(&[1; 5][..4 + nth / 3], 0)?);
        }
        let finished = list.wait_all()?;
        assert!(list.is_empty());
        let numbers: Vec<_> = finished.iter().map(|finished| finished.number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 8, 9, 10, 11]);
        for finished in finished {
            match (finished.number, finished.ended) {
                (5, ended) => assert_eq!(ended.err(), Some(ErrorCode::MessageLength.into())),
                (2..5, Ok(RequestResult::Received(message))) => assert_eq!(message.bytes(), [1; 4]),
                (8.., Ok(RequestResult::Sent(0))) => {}
                (number, ended) => panic!("member {number}: {ended:?}"),
            }
        }
        Ok::<_, Failure>(())
    })
    .unwrap();
    works(&ue);
}

#[test]
fn scopes_within_scopes_and_threads() {
    let ue = start();
    let (mut outer, mut inner) = ([0; 8], [0; 8]);
    ue.scope(|s| {
        let waits = s.irecv(&mut outer, Some(0))?;
        let data = [1; 8];
        ue.scope(|t| {
            let receive = t.irecv(&mut inner, Some(0))?;
            let _ = (t.isend(&data, 0)?, t.isend(&[2; 8], 0)?);
            assert_eq!(receive.wait()?.bytes(), [2; 8]);
            t.wait_all()
        })?;
        assert!(waits.test()?);
        assert_eq!(waits.wait()?.bytes(), [1; 8]);
        s.wait_all()
    })
    .unwrap();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..500 {
                    let mut room = [0; 40];
                    ue.scope(|s| {
                        let (send, receive) = (s.isend(&[3; 40], 0)?, s.irecv(&mut room, None)?);
                        assert_eq!(receive.wait()?.bytes(), [3; 40]);
                        send.wait()
                    })
                    .unwrap();
                }
            });
        }
    });
    works(&ue);
}
