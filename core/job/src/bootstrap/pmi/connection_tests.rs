use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::super::stream::MAX_ANSWER;
use super::*;

const INIT: &str = "cmd=init pmi_version=2 pmi_subversion=0";

const GREETING: [(&str, &str); 3] = [
    (
        INIT,
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    ),
    (
        "cmd=get_maxes",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
    ),
    ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1"),
];

fn over(here: UnixStream) -> Result<Connection> {
    Connection::over(Stream::new(here.into()), Version::Two, 2, Some("7.0"))
}

/// A server that expects these lines and sends these answers, and a connection to it.
fn server(talk: &[(&str, &str)]) -> (Result<Connection>, JoinHandle<()>) {
    let (here, there) = UnixStream::pair().unwrap();
    let talk: Vec<(String, String)> = talk
        .iter()
        .map(|(line, answer)| (line.to_string(), answer.to_string()))
        .collect();
    let server = std::thread::spawn(move || {
        let mut lines = BufReader::new(there.try_clone().unwrap()).lines();
        let mut there = there;
        for (line, answer) in talk {
            assert_eq!(lines.next().unwrap().unwrap(), line);
            there.write_all(answer.as_bytes()).unwrap();
            there.write_all(b"\n").unwrap();
        }
        // Drop is not enough: children that other tests fork may have the descriptor, too.
        let _ = there.shutdown(Shutdown::Both);
    });
    (over(here), server)
}

fn greeted(more: &[(&str, &str)]) -> (Connection, JoinHandle<()>) {
    let talk: Vec<_> = GREETING.iter().chain(more).copied().collect();
    let (connection, server) = server(&talk);
    (connection.unwrap(), server)
}

#[test]
fn values_go_through_the_server() {
    let (mut connection, server) = greeted(&[
        (
            "cmd=put kvsname=kvs_1 key=unipgas.0.a value=00ff41",
            "cmd=put_result rc=0 msg=success",
        ),
        ("cmd=barrier_in", "cmd=barrier_out"),
        (
            "cmd=get kvsname=kvs_1 key=unipgas.1.a",
            "cmd=get_result rc=0 msg=success value=0a0b",
        ),
        (
            "cmd=get kvsname=kvs_1 key=unipgas.2.a",
            "cmd=get_result rc=-1 msg=key_not_found value=unknown",
        ),
        (
            "cmd=get kvsname=kvs_1 key=PMI_process_mapping",
            "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))",
        ),
        ("cmd=finalize", "cmd=finalize_ack"),
    ]);
    connection.put("unipgas.0.a", &[0, 255, 65]).unwrap();
    connection.barrier(Deadline::Never).unwrap();
    assert_eq!(connection.get("unipgas.1.a").unwrap(), Some(vec![10, 11]));
    assert_eq!(connection.get("unipgas.2.a").unwrap(), None);
    assert_eq!(connection.neighbours(2, 4).unwrap(), (vec![0, 2], 2));
    connection.finalize();
    server.join().unwrap();
    assert!(!connection.is_open());
    assert!(matches!(
        connection.get("unipgas.1.a"),
        Err(Error::Unreachable(_))
    ));
}

/// A connection after its handshake, and the other end.
fn begun(version: Version) -> (Connection, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    let connection = Connection {
        stream: Stream::new(here.into()),
        version,
        space: "s".into(),
        in_barrier: false,
        silent: false,
        patience: PATIENCE,
        longest: 1024,
    };
    (connection, there)
}

#[test]
fn a_barrier_goes_on_after_its_time_out() {
    let (mut connection, mut there) = begun(Version::One);
    assert_eq!(connection.barrier(Deadline::Now), Err(Error::Timeout));
    assert_eq!(connection.get("x"), Ok(None));
    assert_eq!(connection.put("x", b"1"), Err(Error::Busy));
    there.write_all(b"cmd=barrier").unwrap();
    assert_eq!(connection.barrier(Deadline::Now), Err(Error::Timeout));
    there.write_all(b"_out\n").unwrap();
    assert_eq!(connection.barrier(Deadline::Never), Ok(()));
    assert!(connection.is_open());
    drop(there);
    assert!(matches!(
        connection.barrier(Deadline::Never),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn what_is_no_answer_is_an_error() {
    for answer in [
        "",
        "x",
        "=",
        "cmd",
        "cmd=",
        "cmd=response_to_init",
        "cmd=response_to_init rc=0",
        "cmd=maxes",
        "cmd=response_to_init \u{1} =",
    ] {
        let (connection, server) = server(&[(GREETING[0].0, answer)]);
        assert!(
            matches!(connection, Err(Error::Unreachable(_))),
            "{answer:?}"
        );
        server.join().unwrap();
    }
    let (mut connection, server) = greeted(&[
        (
            "cmd=get kvsname=kvs_1 key=a",
            "cmd=get_result rc=0 value=0g",
        ),
        ("cmd=get kvsname=kvs_1 key=a", "cmd=get_result rc=0 value=0"),
        ("cmd=get kvsname=kvs_1 key=a", "cmd=put_result rc=0"),
        (
            "cmd=get kvsname=kvs_1 key=PMI_process_mapping",
            "cmd=get_result rc=0 value=(vector)",
        ),
    ]);
    for _ in 0..3 {
        assert!(matches!(connection.get("a"), Err(Error::Unreachable(_))));
    }
    assert!(matches!(
        connection.neighbours(0, 2),
        Err(Error::Unreachable(_))
    ));
    server.join().unwrap();
}

#[test]
fn bytes_that_are_no_text_and_lines_without_end_are_errors() {
    for bytes in [vec![0xff, b'\n'], vec![b'x'; 2 * MAX_ANSWER]] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            // The reader may have failed before the end.
            let _ = there.write_all(&bytes);
        });
        assert!(matches!(over(here), Err(Error::Unreachable(_))));
        writer.join().unwrap();
    }
    assert!(matches!(
        Connection::begin(-1, Version::One, 0, None),
        Err(Error::Unreachable(_))
    ));
    assert!(matches!(
        Connection::begin(1 << 20, Version::One, 0, None),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn servers_of_one_version_are_understood() {
    let refused = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1";
    let again = "cmd=init pmi_version=1 pmi_subversion=1";
    let mut talk = vec![(INIT, refused), (again, GREETING[0].1)];
    talk.extend(&GREETING[1..]);
    let (connection, one) = server(&talk);
    assert_eq!(connection.unwrap().version(), Version::One);
    one.join().unwrap();

    // The server refuses both.
    let (connection, none) = server(&[(INIT, refused), (again, refused)]);
    let error = connection.err().unwrap().to_string();
    assert!(error.contains("another version"), "{error}");
    none.join().unwrap();
}

/// A server of PMI-2 that expects these messages and sends these bytes, after the first line of the handshake.
fn second(talk: &[(&str, &str)]) -> (Result<Connection>, JoinHandle<()>) {
    let (here, there) = UnixStream::pair().unwrap();
    let mut messages: Vec<(String, Vec<u8>)> = Vec::new();
    for (message, answer) in talk {
        messages.push((message.to_string(), counted(answer)));
    }
    let server = std::thread::spawn(move || {
        let mut from = BufReader::new(there.try_clone().unwrap());
        let mut there = there;
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), INIT);
        let answer = b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
        there.write_all(answer).unwrap();
        for (message, answer) in messages {
            let mut length = [0; 6];
            from.read_exact(&mut length).unwrap();
            let length: usize = std::str::from_utf8(&length)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let mut said = vec![0; length];
            from.read_exact(&mut said).unwrap();
            assert_eq!(String::from_utf8(said).unwrap(), message);
            there.write_all(&answer).unwrap();
        }
    });
    (over(here), server)
}

fn counted(text: &str) -> Vec<u8> {
    format!("{:6}{text}", text.len()).into_bytes()
}

const SECOND: [(&str, &str); 2] = [
    (
        "cmd=fullinit;pmijobid=7.0;pmirank=2;threaded=TRUE;",
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=2;size=4;appnum=-1;",
    ),
    (
        "cmd=job-getid;",
        "cmd=job-getid-response;rc=0;jobid=the;;job;",
    ),
];

fn second_greeted(more: &[(&str, &str)]) -> (Connection, JoinHandle<()>) {
    let talk: Vec<_> = SECOND.iter().chain(more).copied().collect();
    let (connection, server) = second(&talk);
    (connection.unwrap(), server)
}

#[test]
fn values_go_through_a_server_of_the_second_version() {
    let (mut connection, server) = second_greeted(&[
        (
            "cmd=kvs-put;key=unipgas.0.a;value=00ff41;",
            "cmd=kvs-put-response;rc=0;",
        ),
        ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
        (
            "cmd=kvs-get;jobid=the;;job;srcid=-1;key=unipgas.1.a;",
            "cmd=kvs-get-response;rc=0;found=TRUE;value=0a0b;",
        ),
        (
            "cmd=kvs-get;jobid=the;;job;srcid=-1;key=unipgas.2.a;",
            "cmd=kvs-get-response;rc=0;found=FALSE;",
        ),
        (
            "cmd=kvs-get;jobid=the;;job;srcid=-1;key=unipgas.2.a;",
            "cmd=kvs-get-response;rc=14;errmsg=no such key;",
        ),
        (
            "cmd=info-getjobattr;key=PMI_process_mapping;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,1));",
        ),
        ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
    ]);
    assert_eq!(connection.version(), Version::Two);
    connection.put("unipgas.0.a", &[0, 255, 65]).unwrap();
    assert!(matches!(
        connection.put("unipgas.0.b", &[0; 512]),
        Err(Error::InvalidArgument(_))
    ));
    connection.barrier(Deadline::Never).unwrap();
    assert_eq!(connection.get("unipgas.1.a").unwrap(), Some(vec![10, 11]));
    assert_eq!(connection.get("unipgas.2.a").unwrap(), None);
    assert_eq!(connection.get("unipgas.2.a").unwrap(), None);
    assert_eq!(connection.neighbours(2, 4).unwrap(), (vec![0, 2], 2));
    connection.finalize();
    server.join().unwrap();
    assert!(!connection.is_open());
    assert!(matches!(
        connection.barrier(Deadline::Never),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn what_the_second_version_does_not_allow_is_an_error() {
    for answer in [
        "",
        "cmd",
        "cmd=fullinit-response",
        "cmd=fullinit-response;rc=0;rank=2",
        "cmd=fullinit-response;rc=0;",
        "cmd=fullinit-response;rc=0;rank=3;",
        "cmd=fullinit-response;rc=1;rank=2;",
        "cmd=finalize-response;rc=0;rank=2;",
    ] {
        let (connection, server) = second(&[(SECOND[0].0, answer)]);
        assert!(
            matches!(connection, Err(Error::Unreachable(_))),
            "{answer:?}"
        );
        server.join().unwrap();
    }
    for answer in [
        "cmd=job-getid-response;rc=0;",
        "cmd=job-getid-response;rc=9;jobid=x;",
    ] {
        let (connection, server) = second(&[SECOND[0], (SECOND[1].0, answer)]);
        assert!(connection.is_err(), "{answer:?}");
        server.join().unwrap();
    }
}

#[test]
fn what_is_no_counted_message_is_an_error() {
    let nonsense: [&[u8]; 6] = [
        b"     0",
        b" 65537",
        b"    -1x",
        b"cmd=kvs-get-response;rc=0;",
        b"\xff\xff\xff\xff\xff\xffcmd=",
        b"     2\xff\xff",
    ];
    for bytes in nonsense {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut stream = Stream::new(here.into());
        there.write_all(bytes).unwrap();
        let said = stream.counted(Deadline::after(PATIENCE));
        assert!(matches!(said, Err(Error::Unreachable(_))), "{bytes:?}");
    }
    // A server that ends within a message.
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut stream = Stream::new(here.into());
    there.write_all(b"    12cmd=").unwrap();
    assert_eq!(stream.counted(Deadline::Now), Err(Error::Timeout));
    drop(there);
    assert!(matches!(
        stream.counted(Deadline::Never),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn a_fence_of_the_second_version_goes_on_after_its_time_out() {
    let (mut connection, mut there) = begun(Version::Two);
    assert_eq!(connection.barrier(Deadline::Now), Err(Error::Timeout));
    assert_eq!(connection.get("x"), Ok(None));
    assert_eq!(connection.put("x", b"1"), Err(Error::Busy));
    let answer = counted("cmd=kvs-fence-response;rc=0;");
    there.write_all(&answer[..9]).unwrap();
    assert_eq!(connection.barrier(Deadline::Now), Err(Error::Timeout));
    there.write_all(&answer[9..]).unwrap();
    assert_eq!(connection.barrier(Deadline::Never), Ok(()));
    let answer = counted("cmd=kvs-fence-response;rc=14;");
    there.write_all(&answer).unwrap();
    assert!(connection.barrier(Deadline::Never).is_err());
}

#[test]
fn a_server_that_refuses_the_first_version_is_asked_for_the_second() {
    let (here, there) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut lines = BufReader::new(there.try_clone().unwrap()).lines();
        let mut there = there;
        let again = "cmd=init pmi_version=1 pmi_subversion=1";
        assert_eq!(lines.next().unwrap().unwrap(), again);
        let refused = b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n";
        there.write_all(refused).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), INIT);
        let taken = b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
        there.write_all(taken).unwrap();
        there.write_all(&counted(SECOND[0].1)).unwrap();
        there.write_all(&counted(SECOND[1].1)).unwrap();
        // Stays open until the client has read all.
        let _ = lines.next();
    });
    let stream = Stream::new(here.into());
    let connection = Connection::over(stream, Version::One, 2, Some("7.0")).unwrap();
    assert_eq!(connection.version(), Version::Two);
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_late_answer_is_not_that_of_another_request() {
    for version in [Version::One, Version::Two] {
        let (mut connection, mut there) = begun(version);
        connection.patience = Duration::ZERO;
        assert!(matches!(connection.get("x"), Err(Error::Unreachable(_))));
        let late = match version {
            Version::One => b"cmd=get_result rc=0 msg=success value=00\n".to_vec(),
            Version::Two => counted("cmd=kvs-get-response;rc=0;found=TRUE;value=00;"),
        };
        there.write_all(&late).unwrap();
        connection.patience = PATIENCE;
        assert!(matches!(connection.get("y"), Err(Error::Unreachable(_))));
    }
}
