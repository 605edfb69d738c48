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

/// A server that expects these requests and sends these answers, and a connection that wants version `first` of it.
fn server(first: Version, talk: &[(&str, &str)]) -> (Result<Connection>, JoinHandle<()>) {
    let (here, there) = UnixStream::pair().unwrap();
    let talk: Vec<(String, String)> = talk
        .iter()
        .map(|(request, answer)| (request.to_string(), answer.to_string()))
        .collect();
    let server = std::thread::spawn(move || {
        let mut from = BufReader::new(there.try_clone().unwrap());
        let mut there = there;
        let mut version = Version::One;
        for (request, answer) in talk {
            assert_eq!(heard(&mut from, version), request);
            let answered = match version {
                Version::One => format!("{answer}\n").into_bytes(),
                Version::Two => counted(&answer),
            };
            there.write_all(&answered).unwrap();
            if answer == TWO {
                version = Version::Two;
            }
        }
        // Drop is not enough: children that other tests fork may have the descriptor, too.
        let _ = there.shutdown(Shutdown::Both);
    });
    (over(here, first), server)
}

/// A line of PMI-1, or a message of PMI-2.
fn heard(from: &mut BufReader<UnixStream>, version: Version) -> String {
    if version == Version::One {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        return line.trim_end().to_owned();
    }
    let mut length = [0; 6];
    from.read_exact(&mut length).unwrap();
    let length = std::str::from_utf8(&length).unwrap().trim();
    let mut message = vec![0; length.parse().unwrap()];
    from.read_exact(&mut message).unwrap();
    String::from_utf8(message).unwrap()
}

fn over(here: UnixStream, first: Version) -> Result<Connection> {
    Connection::over(Stream::new(here.into()), first, 2, Some("7.0"))
}

fn greeted(greeting: &[(&str, &str)], more: &[(&str, &str)]) -> (Connection, JoinHandle<()>) {
    let (connection, server) = server(Version::Two, &[greeting, more].concat());
    (connection.unwrap(), server)
}

#[track_caller]
fn unreachable<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unreachable(_))));
}

#[test]
fn values_go_through_the_server() {
    let (mut connection, server) = greeted(
        &GREETING,
        &[
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
        ],
    );
    connection.put("unipgas.0.a", &[0, 255, 65]).unwrap();
    connection.barrier(Deadline::Never).unwrap();
    assert_eq!(connection.get("unipgas.1.a").unwrap(), Some(vec![10, 11]));
    assert_eq!(connection.get("unipgas.2.a").unwrap(), None);
    assert_eq!(connection.neighbours(2, 4).unwrap(), (vec![0, 2], 2));
    connection.finalize();
    server.join().unwrap();
    assert!(!connection.is_open());
    unreachable(connection.get("unipgas.1.a"));
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
    unreachable(connection.barrier(Deadline::Never));
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
        let (connection, server) = server(Version::Two, &[(GREETING[0].0, answer)]);
        assert!(
            matches!(connection, Err(Error::Unreachable(_))),
            "{answer:?}"
        );
        server.join().unwrap();
    }
    let (mut connection, server) = greeted(
        &GREETING,
        &[
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
        ],
    );
    for _ in 0..3 {
        unreachable(connection.get("a"));
    }
    unreachable(connection.neighbours(0, 2));
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
        unreachable(over(here, Version::Two));
        writer.join().unwrap();
    }
    unreachable(Connection::begin(-1, Version::One, 0, None));
    unreachable(Connection::begin(1 << 20, Version::One, 0, None));
}

#[test]
fn servers_of_one_version_are_understood() {
    let refused = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1";
    let again = "cmd=init pmi_version=1 pmi_subversion=1";
    let mut talk = vec![(INIT, refused), (again, GREETING[0].1)];
    talk.extend(&GREETING[1..]);
    let (connection, one) = server(Version::Two, &talk);
    assert_eq!(connection.unwrap().version(), Version::One);
    one.join().unwrap();

    // The server refuses both.
    let (connection, none) = server(Version::Two, &[(INIT, refused), (again, refused)]);
    let error = connection.err().unwrap().to_string();
    assert!(error.contains("another version"), "{error}");
    none.join().unwrap();
}

fn counted(text: &str) -> Vec<u8> {
    format!("{:6}{text}", text.len()).into_bytes()
}

/// The server agrees to version 2.
const TWO: &str = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0";

const SECOND: [(&str, &str); 3] = [
    (INIT, TWO),
    (
        "cmd=fullinit;pmijobid=7.0;pmirank=2;threaded=TRUE;",
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=2;size=4;appnum=-1;",
    ),
    (
        "cmd=job-getid;",
        "cmd=job-getid-response;rc=0;jobid=the;;job;",
    ),
];

#[test]
fn values_go_through_a_server_of_the_second_version() {
    let (mut connection, server) = greeted(
        &SECOND,
        &[
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
        ],
    );
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
    unreachable(connection.barrier(Deadline::Never));
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
        let (connection, server) = server(Version::Two, &[SECOND[0], (SECOND[1].0, answer)]);
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
        let (connection, server) =
            server(Version::Two, &[SECOND[0], SECOND[1], (SECOND[2].0, answer)]);
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
    unreachable(stream.counted(Deadline::Never));
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
    let again = "cmd=init pmi_version=1 pmi_subversion=1";
    let refused = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1";
    let talk = [&[(again, refused)], &SECOND[..]].concat();
    let (connection, server) = server(Version::One, &talk);
    assert_eq!(connection.unwrap().version(), Version::Two);
    server.join().unwrap();
}

#[test]
fn a_late_answer_is_not_that_of_another_request() {
    for version in [Version::One, Version::Two] {
        let (mut connection, mut there) = begun(version);
        connection.patience = Duration::ZERO;
        unreachable(connection.get("x"));
        let late = match version {
            Version::One => b"cmd=get_result rc=0 msg=success value=00\n".to_vec(),
            Version::Two => counted("cmd=kvs-get-response;rc=0;found=TRUE;value=00;"),
        };
        there.write_all(&late).unwrap();
        connection.patience = PATIENCE;
        unreachable(connection.get("y"));
    }
}
