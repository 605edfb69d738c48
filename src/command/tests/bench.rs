//! What `unipgas bench` leaves when it is ended before it is done.

use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_killed_bench_has_written_what_it_had_measured() {
    let dir = std::env::temp_dir().join(format!("unipgas-records-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("records");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_unipgas"))
        .args(["bench", "--backend", "ofi", "--quick", "--no-peers"])
        .args(["--only", ":2:", "--json"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    let ended = loop {
        if lines().lines().count() >= 2 {
            break bench.try_wait().unwrap();
        }
        if let Some(status) = bench.try_wait().unwrap() {
            break Some(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let _ = bench.kill();
    bench.wait().unwrap();
    let told = lines();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(ended, None, "it has ended by itself: {told}");
    // The last line may be cut.
    let whole = &told[..told.rfind('\n').unwrap()];
    for line in whole.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["final"], false, "{line}");
        assert_eq!(record["hosts"], "this one", "{line}");
        assert!(record["value"].as_f64().unwrap() > 0.0, "{line}");
        assert!(record["values"].as_u64().unwrap() > 0, "{line}");
    }
}
