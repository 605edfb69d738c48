//! irccerun and rccerun: the options of the manual (§2.4).

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::UNIPGAS;
use crate::common::c::{built, demand, run, scratch};
use crate::common::{compiler, crate_dir};

/// A directory, as of `make install`, and a program that prints its arguments and last core.
struct Place {
    bin: PathBuf,
    here: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let place = Place {
            bin: scratch(&format!("bin-{name}")),
            here: scratch(&format!("here-{name}")),
        };
        for directory in [&place.bin, &place.here] {
            let _ = std::fs::remove_dir_all(directory);
            std::fs::create_dir_all(directory).unwrap();
        }
        symlink(UNIPGAS, place.bin.join("unipgas")).unwrap();
        for script in ["irccerun", "rccerun"] {
            std::fs::copy(
                crate_dir().join("../packaging").join(script),
                place.bin.join(script),
            )
            .unwrap();
        }
        symlink(built("libunipgas_c.so"), place.here.join("libunipgas.so.0")).unwrap();
        demand(
            compiler()
                .arg(crate_dir().join("tests/programs/arguments.c"))
                .arg(built("libunipgas_c.so"))
                .arg(format!("-Wl,-rpath,{}", place.here.display()))
                .arg("-o")
                .arg(place.here.join("program")),
        );
        place
    }

    fn run(&self, script: &str, line: &str) -> Output {
        let mut command = Command::new(self.bin.join(script));
        run(command
            .args(line.split_whitespace())
            .current_dir(&self.here))
    }

    fn says(&self, script: &str, line: &str) -> String {
        let output = self.run(script, line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script} {line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn programs_are_started_by_their_names() {
    let place = Place::new("names");
    assert_eq!(
        place.says("rccerun", "-nue 2 program -nue 9"),
        "-nue 9 / named 1\n".repeat(2)
    );
    assert_eq!(
        place.says("irccerun", "-cores 07,00,05 program x"),
        "x / named 7\n".repeat(3)
    );
    assert_eq!(
        place.says("irccerun", "-nue 2 -cores 07,00,05 ./program"),
        "/ named 7\n".repeat(2)
    );
    std::fs::write(place.here.join("rc.hosts"), "00 # the first\nrck05\n11\n").unwrap();
    for option in ["-f", "-corefile"] {
        let line =
            format!("-nue 2 {option} rc.hosts -clock 0.533 -clear -emulator -delay 0.01 program");
        assert_eq!(place.says("rccerun", &line), "/ named 5\n".repeat(2));
    }
    let said = place.says("irccerun", "-V -nue 2 program");
    assert!(
        said.contains("run -n 2 --tag ./program") && said.contains("[1] / named 1"),
        "{said}"
    );
}

#[test]
fn some_options_start_nothing() {
    let place = Place::new("nothing");
    for option in ["-t", "-testing", "-tetsing"] {
        let said = place.says("irccerun", &format!("{option} -cores 03,01 program"));
        assert!(
            said.starts_with("UNIPGAS_RCCE_CORES=1,3 ") && said.ends_with("run -n 2 ./program\n"),
            "{said}"
        );
    }
    let said = place.says("irccerun", "-ping -nue 3");
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("UE 2 of 3: ping"), "{said}");
    assert!(place.says("rccerun", "--help").contains("usage: rccerun"));
    assert!(
        place
            .says("irccerun", "-kill program")
            .contains(" 0 processes of ")
    );
}

#[test]
fn what_is_left_of_a_program_is_ended() {
    let place = Place::new("kill");
    // A unique name, so `irccerun -kill` does not end processes of other tests.
    let sleeper = place.here.join("sleeper");
    std::fs::copy("/bin/sleep", &sleeper).unwrap();
    let mut job = Command::new(place.bin.join("irccerun"))
        .args(["-nue", "2", "sleeper", "60"])
        .current_dir(&place.here)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut ended = 0;
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let said = place.says("irccerun", "-kill sleeper");
        let number = said
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse::<u32>().ok());
        ended += number.unwrap_or(0);
        if ended > 0 {
            break;
        }
    }
    assert!(ended > 0, "nothing to be ended was found");
    assert!(!job.wait().unwrap().success());
}

#[test]
fn mistakes_get_a_line() {
    let place = Place::new("mistakes");
    for line in [
        "",
        "-nue",
        "-nue 0 program",
        "-nue 49 program",
        "-nue many program",
        "-cores 48 program",
        "-cores 1,1 program",
        "-nue 3 -cores 1 program",
        "-f nowhere program",
        "-cores 1 -f nowhere program",
        "-delay soon -nue 1 program",
        "-other program",
        "-nue 2",
        "-kill",
    ] {
        let output = place.run("irccerun", line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(
            text.starts_with("irccerun: ") && text.lines().count() == 1,
            "{line}: {text}"
        );
    }
}
