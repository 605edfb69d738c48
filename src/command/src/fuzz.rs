//! Fuzz tests: the command reads malformed input from users, batch systems and other hosts.

use unipgas_fuzz::{Reader, run};
use unipgas_tofud::TorusShape;

use crate::counts;
use crate::hosts::list::{from_file, from_list, share};
use crate::ps::job::JobListing;

const READERS: &[Reader] = &[
    ("hostfile", file, files),
    ("hosts", list, lists),
    ("shape", shape, shapes),
    ("jobs", jobs, told),
];

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(named) = from_file("F", &text) {
        let _ = (share(&named, Some(7)), share(&named, None));
    }
}

fn files() -> Vec<Vec<u8>> {
    texts(&[
        "a\nb:4\n# c\nd slots=3 max_slots=9\n",
        "n[01-12,40]:2\n",
        "a slots=2\nb slots=65536\n",
    ])
}

fn list(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(named) = from_list(&text) {
        let _ = (share(&named, Some(7)), share(&named, None));
    }
}

fn lists() -> Vec<Vec<u8>> {
    texts(&["a,b:4", "n[01-04,7],m[1-2]x[3-4]:2", "n[1-65535]"])
}

fn shape(bytes: &[u8]) {
    if let Ok(shape) = String::from_utf8_lossy(bytes).parse::<TorusShape>() {
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }
}

fn shapes() -> Vec<Vec<u8>> {
    texts(&["24x23x24x2x3x2", "4x2x3", "1x1x1x2x1x1"])
}

fn jobs(bytes: &[u8]) {
    let Ok(all) = serde_json::from_slice::<Vec<JobListing>>(bytes) else {
        return;
    };
    let all = JobListing::joined(vec![("a".into(), all.clone()), ("b".into(), all)]);
    let texts = all
        .iter()
        .map(|job| job.text(&job.picture().table(None)) + &counts::table(&job.picture()));
    let text = JobListing::list(&all) + &texts.collect::<String>();
    assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'));
}

fn told() -> Vec<Vec<u8>> {
    texts(&[
        r#"[{"id":"07","job":3,"started_by":2,"size":4,"command":"./p \u001b[2J","ranks":[{"rank":1,"pid":9,"program":"p\u0007","host":null,"doing":"sleeps",
            "waits":[{"thread":9,"call":"RCCE_recv\r","lasted":2.5,"ranks":[1,2],"needed":3,"pending":4,"sleeps":1}],
            "counts":{"operations":1,"bytes":8,"retries":0,"yields":3,"sleeps":1,"queues":[{"name":"queue\u0000 3","pending":1,"operations":1,"bytes":8}]}}],
            "deadlock":[1,1]},{"id":"08","job":3,"started_by":0,"size":1,"command":"","ranks":[],"deadlock":null}]"#,
    ])
}

#[test]
fn what_hosts_tell_is_read() {
    let all = serde_json::from_slice::<Vec<JobListing>>(&told()[0]);
    assert_eq!(
        all.map_err(|error| error.to_string()).map(|all| all.len()),
        Ok(2)
    );
}

#[test]
fn what_nobody_means_is_read() {
    run(READERS);
}
