//! The output of `unipgas bench`, also after an interruption.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Measured processes are pinned and poll without a pause: two benches at once would starve each other.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

fn bench(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unipgas-bench"));
    command.args(words.split_whitespace());
    command
}

fn output(words: &str) -> Output {
    bench(words).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

const SHORT: &str = "--quick --no-peers --only one_line";

#[test]
fn records_go_to_standard_output_and_the_table_aside() {
    let _turn = alone();
    let output = output(&format!("{SHORT} --json -"));
    let (records, table) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}");
    let records: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    let last = records.last().expect("a record").clone();
    assert_eq!(last["final"], true);
    for field in ["version", "host", "cpu", "date"] {
        assert_ne!(last[field].as_str(), Some(""), "{field}");
    }
    assert!(!last["cores"].as_array().unwrap().is_empty());
    assert!(last["load"].as_f64().unwrap() >= 0.0);
    assert!(last["target"].is_null() && last["met"].is_null());
    for record in records {
        let library = record["library"].as_str().map(Path::new);
        match record["api"].as_str() {
            Some("utofu") => assert!(library.is_some_and(Path::is_file), "{record}"),
            _ => assert_eq!(library, None, "{record}"),
        }
    }
    assert!(table.contains("one_line: "), "{table}");
    assert!(table.contains("utofu") && !table.contains("met"), "{table}");
}

#[test]
fn a_library_that_is_not_there_is_an_error_before_anything_is_measured() {
    let by_option = output(&format!("{SHORT} --library /nowhere/libunipgas.so"));
    let mut by_variable = bench(SHORT);
    by_variable.env("UNIPGAS_LIB", "/proc/self/maps");
    let by_variable = by_variable.output().expect("the command starts");
    for (output, why) in [
        (
            by_option,
            "--library /nowhere/libunipgas.so: there is no such file",
        ),
        (by_variable, "the library cannot be loaded: /proc/"),
    ] {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(
            (said.lines().count(), said.contains(why)),
            (1, true),
            "{said}"
        );
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn backends_stand_beside_the_first_one() {
    let _turn = alone();
    let output = output("--quick --no-peers --only start:2 --backend shm,streams");
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = |backend: &str| {
        let row = table.lines().filter(|line| line.contains("gaspi"));
        row.filter(|line| line.split_whitespace().any(|word| word == backend))
            .count()
    };
    assert_eq!((rows("shm"), rows("streams")), (1, 1), "{table}");
    assert!(table.contains("x shm"), "{table}");
    let bare = table.lines().filter(|line| line.contains(" bare "));
    assert_eq!(bare.count(), 1, "limits are shown once: {table}");
}

#[test]
fn figures_of_a_file_stand_beside_those_of_another_one() {
    let _turn = alone();
    let (old, new, page) = (scratch("old"), scratch("new"), scratch("page"));
    let measured = output(&format!("{SHORT} --json {}", old.display()));
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    // The last old line is cut; the new values are twice as large.
    let lines = std::fs::read_to_string(&old).unwrap();
    let doubled: Vec<String> = lines
        .lines()
        .map(|line| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            for field in ["/value", "/quartiles/0", "/quartiles/1"] {
                let value = record.pointer_mut(field).unwrap();
                *value = (value.as_f64().unwrap() * 1e3).into();
            }
            record.to_string() + "\n"
        })
        .collect();
    std::fs::write(&new, doubled.concat()).unwrap();
    std::fs::write(&old, lines + "{\"metric\":\"one_l").unwrap();
    let (old_name, new_name) = (old.display(), new.display());
    let compared = output(&format!(
        "--records {new_name} --compare {old_name} --html {}",
        page.display()
    ));
    let table = text(&compared.stdout);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    assert!(table.contains("1000.00 ("), "{table}");
    assert!(table.contains(") worse"), "{table}");
    assert!(table.contains(": 0 better, 2 worse, 0 within"), "{table}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("class=\"bad\"") && html.contains("one_line"));
    for (words, why) in [
        (
            format!("--records {}", page.display()),
            "line 1 is no record",
        ),
        ("--records /nowhere".into(), "/nowhere: "),
        (
            format!("--records {new_name} --quick"),
            "cannot be used with",
        ),
        (
            format!("--compare {} {SHORT}", page.display()),
            "is no record",
        ),
    ] {
        let refused = output(&words);
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{words}");
        assert_eq!(
            (said.lines().count(), said.contains(why)),
            (1, true),
            "{said}"
        );
    }
    for file in [old, new, page] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn an_interrupted_bench_shows_what_it_has_measured() {
    let _turn = alone();
    let file = scratch("interrupted");
    // Several metrics, so that the run takes long enough.
    let words = format!("--quick --no-peers --only _rate --json {}", file.display());
    let mut command = bench(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY:
    // - signal is async-signal-safe
    unsafe {
        command.pre_exec(|| {
            // The parent of the tests may ignore the signal.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let ended = loop {
        let lines = std::fs::read_to_string(&file).unwrap_or_default();
        if lines.contains("\"final\":true") {
            break None;
        }
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended, None, "it has ended by itself");
    // SAFETY:
    // - the process id belongs to a child that has not been waited for
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let table = text(&output.stdout);
    assert_eq!(output.status.signal(), Some(libc::SIGINT), "{table}");
    assert!(table.contains("put_rate: "), "{table}");
    assert!(table.contains("ended before all"), "{table}");
    assert!(!table.contains("Not measured"), "{table}");
}

#[test]
fn a_killed_bench_has_written_what_it_had_measured() {
    let _turn = alone();
    let dir = std::env::temp_dir().join(format!("unipgas-records-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("records");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_unipgas-bench"))
        .args(["--backend", "ofi", "--quick", "--no-peers"])
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

#[test]
fn a_full_device_is_an_error() {
    for args in ["--list", "--help"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = bench(args).stdout(full).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args} {error}");
        assert!(
            error.lines().count() == 1 && error.contains("No space left"),
            "{args} {error}"
        );
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child = bench("--list")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
}
