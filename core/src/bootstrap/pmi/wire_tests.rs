use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::*;

const GREETING: [(&str, &str); 3] = [
    (
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    ),
    (
        "cmd=get_maxes",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
    ),
    ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1"),
];

/// A server that expects these lines and gives these answers, and a connection to it.
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
    });
    (Connection::over(here.into()), server)
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
    assert_eq!(connection.neighbours(2, 4).unwrap(), [0, 2]);
    connection.finalize();
    server.join().unwrap();
    assert!(!connection.is_open());
    assert!(matches!(
        connection.get("unipgas.1.a"),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn a_barrier_goes_on_after_its_time_out() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut connection = Connection {
        fd: here.into(),
        rest: Vec::new(),
        space: "s".into(),
        in_barrier: false,
        longest: 1024,
    };
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
        "cmd=response_to_init pmi_version=2",
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
    for bytes in [vec![0xff, b'\n'], vec![b'x'; 2 * MAX_LINE]] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            // The reader may have given up before all is written.
            let _ = there.write_all(&bytes);
        });
        assert!(matches!(
            Connection::over(here.into()),
            Err(Error::Unreachable(_))
        ));
        writer.join().unwrap();
    }
    assert!(matches!(Connection::begin(-1), Err(Error::Unreachable(_))));
    assert!(matches!(
        Connection::begin(1 << 20),
        Err(Error::Unreachable(_))
    ));
}

#[test]
fn maps_of_hosts_are_read() {
    assert_eq!(hosts("(vector,(0,1,4))", 4), Some(vec![0; 4]));
    assert_eq!(hosts("(vector,(0,2,1))", 3), Some(vec![0, 1, 0]));
    assert_eq!(
        hosts("(vector,(0,1,2),(1,2,1))", 5),
        Some(vec![0, 0, 1, 2, 0])
    );
    for map in [
        "",
        "(vector)",
        "(vector,)",
        "(vector,())",
        "(vector,(0,1))",
        "(vector,(0,0,0))",
        "(vector,(0,4294967295,0))",
        "(vector,(4294967295,2,1))",
        "(vector,(0,1,1,1))",
        "(vector,(a,b,c))",
    ] {
        assert_eq!(hosts(map, 3), None, "{map}");
    }
}
