//! `unipgas run --hosts`: what the launchers of clusters are told. They are scripts here, which say how they were called.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A PATH with launchers, in a directory that goes with it.
struct Launchers(PathBuf);

/// What all of them do but tell their versions.
const CALLED: &str = "
echo \"${0##*/} $*\"
echo \"environment $UNIPGAS_BACKEND/$UNIPGAS_SEED/$UNIPGAS_BIND/$UNIPGAS_TOFU_SHAPE/${UNIPGAS_JOB-none} $PWD\"
cat
exit 7
";
const OPEN_MPI: &str = "[ \"$1\" = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit; }";
const OPEN_MPI_5: &str = "[ \"$1\" = --version ] && { echo 'mpirun (Open MPI) 5.0.8'; exit; }";
const MPICH: &str = "[ \"$1\" = --version ] && { echo 'HYDRA build details:'; exit; }";
const SLURM: &str = "[ \"$1\" = --mpi=list ] && { printf 'MPI plugin types are...\\n\\tpmi2\\n\\tnone\\n' >&2; exit; }";

impl Launchers {
    fn new(name: &str, scripts: &[(&str, &str)]) -> Launchers {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("launchers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for tool in ["sh", "cat", "sleep", "cut"] {
            let found = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(tool));
            let found = found.iter().find(|tool| tool.exists()).unwrap();
            std::os::unix::fs::symlink(found, path.join(tool)).unwrap();
        }
        for (name, version) in scripts {
            let file = path.join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{version}\n{CALLED}")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Launchers(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unipgas"));
        command.arg("run").args(args).stdin(Stdio::null());
        command.env("PATH", &self.0);
        for name in ["SLURM_JOB_ID", "SLURM_MPI_TYPE", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        let others = std::env::vars_os().map(|(name, _)| name);
        let passed_on = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            name.starts_with("FI_") || name.starts_with("UNIPGAS_")
        };
        for name in others.filter(passed_on) {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What the launcher was told, in its first line.
    fn told(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = out(&output);
        assert_eq!(output.status.code(), Some(7), "{text}{}", err(&output));
        text.lines().next().unwrap().to_owned()
    }
}

impl Drop for Launchers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two hosts that there are not.
const HOSTS: [&str; 2] = ["--hosts", "a.invalid,b.invalid"];

#[test]
fn the_launcher_that_is_there_gets_the_job() {
    let bare = [&HOSTS[..], &["-n", "3", "sh", "-n", "x y"]].concat();
    let all = Launchers::new(
        "all",
        &[
            ("srun", SLURM),
            ("prterun", ""),
            ("mpirun", OPEN_MPI),
            ("mpiexec", MPICH),
        ],
    );
    let sh = all.0.join("sh");
    let program = format!("-n 3 {} -n x y", sh.display());
    let of_mpi = "--host a.invalid:2,b.invalid:1 --map-by slot --bind-to none -x UNIPGAS_BIND -x UNIPGAS_TOFU_SHAPE";
    assert_eq!(all.told(&bare), format!("prterun {of_mpi} {program}"));
    let with = |launcher| all.told(&[&["--launcher", launcher], &bare[..]].concat());
    assert_eq!(with("mpirun"), format!("mpirun {of_mpi} {program}"));
    assert_eq!(
        with("mpiexec"),
        format!(
            "mpiexec -hosts a.invalid:2,b.invalid:1 -genv UNIPGAS_BIND none -genv UNIPGAS_TOFU_SHAPE 1x1x1x2x3x2 {program}"
        )
    );
    let of_slurm = format!(
        "srun -N 2 -w a.invalid,a.invalid,b.invalid --distribution=arbitrary --export=ALL --input=0 --kill-on-bad-exit=1 --mpi=pmi2 {program}"
    );
    let mut inside = all.command(&bare);
    inside.env("SLURM_JOB_ID", "9");
    let text = out(&inside.output().unwrap());
    assert_eq!(text.lines().next(), Some(&of_slurm[..]));
    // The user has chosen.
    let text = out(&inside.env("SLURM_MPI_TYPE", "pmix").output().unwrap());
    assert_eq!(
        text.lines().next(),
        Some(&of_slurm.replace(" --mpi=pmi2", "")[..])
    );
}

#[test]
fn options_and_environment_go_along() {
    let here = Launchers::new("along", &[("mpirun", OPEN_MPI)]);
    let args = [
        &HOSTS[..],
        &[
            "-n",
            "2",
            "--backend",
            "chaos",
            "--seed",
            "5",
            "--bind",
            "core",
            "--tag",
            "--keep-going",
        ],
        &["--launcher-args", "--mca plm_rsh_agent 'ssh -p 2222'", "sh"],
    ]
    .concat();
    let mut command = here.command(&args);
    command
        .env("UTOFU_SWAP_PROTECT", "0")
        .env("FI_PROVIDER", "tcp")
        .env("LD_LIBRARY_PATH", "/x")
        .env("OTHER", "1")
        // What this command itself is part of is not what it starts.
        .env("UNIPGAS_JOB", "1:2:3")
        .env("UNIPGAS_RANK", "0")
        .env("UNIPGAS_SIZE", "1")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = out(&output);
    let sh = here.0.join("sh");
    assert_eq!(
        text,
        format!(
            "mpirun --host a.invalid:1,b.invalid:1 --map-by slot --bind-to core:overload-allowed --tag-output --enable-recovery \
             -x FI_PROVIDER -x LD_LIBRARY_PATH -x UNIPGAS_BACKEND -x UNIPGAS_BIND -x UNIPGAS_SEED -x UNIPGAS_TOFU_SHAPE \
             -x UTOFU_SWAP_PROTECT --mca plm_rsh_agent ssh -p 2222 -n 2 {}\n\
             environment chaos/5/core/1x1x1x2x3x2/none /\ninput\n",
            sh.display()
        )
    );
    assert_eq!(output.status.code(), Some(7));
    let five = Launchers::new("five", &[("mpirun", OPEN_MPI_5)]);
    let told = five.told(&args);
    assert!(
        told.contains("--output tag --runtime-options continuous")
            && !told.contains("--tag-output"),
        "{told}"
    );
}

#[test]
fn hosts_come_from_a_file_and_with_numbers() {
    let here = Launchers::new("file", &[("mpirun", OPEN_MPI)]);
    let file = here.0.join("hosts");
    std::fs::write(&file, "a.invalid slots=2 # the big one\nb.invalid\n").unwrap();
    let file = file.to_str().unwrap();
    for (n, expected) in [("5", "b.invalid:3 "), ("3", "b.invalid:1 ")] {
        let told = here.told(&["--hostfile", file, "-n", n, "sh"]);
        assert!(
            told.contains(&format!("--host a.invalid:2,{expected}")),
            "{told}"
        );
    }
    let told = here.told(&["--hostfile", file, "sh"]);
    assert!(
        told.contains("--host a.invalid:2,b.invalid:1 ") && told.contains(" -n 3 "),
        "{told}"
    );
    std::fs::write(file, "a.invalid slots=2\nb.invalid:3\n").unwrap();
    let told = here.told(&["--hostfile", file, "sh"]);
    assert!(
        told.contains("--host a.invalid:2,b.invalid:3 ") && told.contains(" -n 5 "),
        "{told}"
    );
    // A host that comes again is no neighbour.
    let told = here.told(&["--hosts", "a.invalid,b.invalid,a.invalid", "-n", "3", "sh"]);
    assert!(
        told.contains("--host a.invalid,b.invalid,a.invalid --map-by seq"),
        "{told}"
    );
}

#[test]
fn a_list_of_this_host_needs_no_launcher() {
    let here = Launchers::new("own", &[("mpirun", OPEN_MPI)]);
    let own = rustix::system::uname();
    let own = own.nodename().to_str().unwrap();
    for list in ["localhost", "127.0.0.1:2", &format!("{own},localhost")] {
        let output = here.run(&["--hosts", list, "-n", "2", "sh", "-c", "echo $UNIPGAS_SIZE"]);
        assert_eq!(out(&output), "2\n2\n", "{list}: {}", err(&output));
    }
    let output = here.run(&["--hosts", "localhost:3", "sh", "-c", "echo $UNIPGAS_SIZE"]);
    assert_eq!(out(&output), "3\n3\n3\n", "{}", err(&output));
    let output = here.run(&["--hosts", "localhost", "-n", "2", "--dry-run", "sh"]);
    assert!(
        out(&output).starts_with("this host only: 2 processes"),
        "{}",
        out(&output)
    );
    // Who names a launcher gets it.
    let told = here.told(&[
        "--hosts",
        "localhost",
        "-n",
        "2",
        "--launcher",
        "mpirun",
        "sh",
    ]);
    assert!(told.starts_with("mpirun --host localhost:2 "), "{told}");
    // An allocation alone changes nothing.
    let mut command = here.command(&["-n", "2", "sh", "-c", "echo $UNIPGAS_SIZE"]);
    let output = command.env("SLURM_JOB_ID", "9").output().unwrap();
    assert_eq!(out(&output), "2\n2\n", "{}", err(&output));
}

#[test]
fn a_dry_run_shows_what_a_shell_would_take() {
    let here = Launchers::new("dry", &[("mpirun", OPEN_MPI)]);
    let output = here.run(&[&HOSTS[..], &["-n", "2", "--dry-run", "sh", "a b"]].concat());
    let sh = here.0.join("sh");
    assert_eq!(
        out(&output),
        format!(
            "UNIPGAS_BIND=none UNIPGAS_TOFU_SHAPE=1x1x1x2x3x2 mpirun --host 'a.invalid:1,b.invalid:1' --map-by slot --bind-to none \
             -x UNIPGAS_BIND -x UNIPGAS_TOFU_SHAPE -n 2 {} 'a b'\n",
            sh.display()
        )
    );
    assert!(output.status.success());
}

#[test]
fn the_process_becomes_the_launcher() {
    let here = Launchers::new("signal", &[("mpirun", OPEN_MPI)]);
    let file = here.0.join("mpirun");
    std::fs::write(
        &file,
        format!("#!/bin/sh\n{OPEN_MPI}\necho $$\nexec sleep 60\n"),
    )
    .unwrap();
    let args = [&HOSTS[..], &["-n", "2", "sh"]].concat();
    let mut child = here.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 16];
    let read = std::io::Read::read(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    let said = std::str::from_utf8(&said[..read]).unwrap();
    assert_eq!(said.trim(), child.id().to_string());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

/// A remote shell whose hosts are all this one; it says on standard error which one was meant.
const RSH: &str = "echo \"to $1\" >&2\nshift\nexec sh -c \"$*\"";

fn with_rsh(name: &str) -> (Launchers, String) {
    let here = Launchers::new(name, &[("mpirun", OPEN_MPI)]);
    let file = here.0.join("rsh");
    std::fs::write(&file, format!("#!/bin/sh\n{RSH}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let rsh = file.to_str().unwrap().to_owned();
    (here, rsh)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_remote_shell_is_enough() {
    let (here, rsh) = with_rsh("shell");
    let run = |more: &[&str]| {
        let args = [&HOSTS[..], &["--launcher", &rsh], more].concat();
        here.command(&args)
            .env("OTHER", "its")
            .current_dir("/")
            .output()
            .unwrap()
    };
    let script = "echo $UNIPGAS_RANK/$UNIPGAS_SIZE $OTHER $PWD; echo oops >&2";
    let output = run(&["-n", "3", "--tag", "sh", "-c", script]);
    let expected = ["[0] 0/3 its /", "[1] 1/3 its /", "[2] 2/3 its /"];
    assert_eq!(sorted(&out(&output)), expected, "{}", err(&output));
    let told = err(&output);
    let expected = [
        "[0] oops",
        "[1] oops",
        "[2] oops",
        "to a.invalid",
        "to b.invalid",
    ];
    assert_eq!(sorted(&told), expected);
    assert!(output.status.success());
    // Ranks know how many hosts there are.
    let output = run(&["-n", "3", env!("CARGO_BIN_EXE_unipgas"), "info"]);
    let told = out(&output);
    for (rank, here) in [(0, 2), (1, 2), (2, 1)] {
        let line = format!("rank {rank} of 3, {here} on this host of 2");
        assert!(told.contains(&line), "{told}{}", err(&output));
    }
    // A failure ends the others, and its status is that of the job.
    let script = "[ $UNIPGAS_RANK = 2 ] && exit 5; exec sleep 600";
    let output = run(&["-n", "3", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    let told = err(&output);
    assert!(
        told.contains("on b.invalid) exited with status 5; ending the others"),
        "{told}"
    );
    // With a spare it is none.
    let script =
        "[ $UNIPGAS_RANK = 2 ] && [ -z \"$UNIPGAS_INCARNATION\" ] && exit 5; echo $UNIPGAS_RANK";
    let output = run(&["-n", "3", "--spares", "1", "sh", "-c", script]);
    assert_eq!(sorted(&out(&output)), ["0", "1", "2"], "{}", err(&output));
    assert!(output.status.success());
    let output = run(&[
        "-n",
        "3",
        "--keep-going",
        "--spares",
        "0",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(sorted(&out(&output)), ["0", "1"], "{}", err(&output));
    assert_eq!(output.status.code(), Some(5));
    let output = run(&["-n", "2", "--timeout", "0.2", "sleep", "600"]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    let output = run(&["-n", "2", "--dry-run", "sh"]);
    let lines = out(&output);
    let expected = format!("{rsh} a.invalid ");
    assert!(
        lines.starts_with(&expected) && lines.lines().count() == 2,
        "{lines}"
    );
}

#[test]
fn bytes_go_through_a_remote_shell_as_they_are() {
    let (here, rsh) = with_rsh("bytes");
    let mut command = here.command(&[&HOSTS[..], &["-n", "2", "cat"]].concat());
    command
        .env("UNIPGAS_LAUNCHER", &rsh)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let sent: Vec<u8> = (0..1_000_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    let mut input = child.stdin.take().unwrap();
    let writer = {
        let sent = sent.clone();
        std::thread::spawn(move || std::io::Write::write_all(&mut input, &sent))
    };
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == sent, "{} bytes came", output.stdout.len());
    assert!(output.status.success());
}

#[test]
fn the_ranks_of_a_lost_host_go_on_elsewhere() {
    let (here, rsh) = with_rsh("lost");
    let run = |spares: &str, whom: &str| {
        let go = here.0.join(format!("go-{spares}-{}", whom.len()));
        let script = format!(
            "echo $UNIPGAS_RANK:$UNIPGAS_INCARNATION; [ $UNIPGAS_RANK -ge 2 ] && [ -z \"$UNIPGAS_INCARNATION\" ] || exit 0; \
             until [ -e {} ]; do sleep 0.01; done; [ $UNIPGAS_RANK = 2 ] && kill -9 {whom}; exec sleep 600",
            go.display()
        );
        let options = ["-n", "4", "--launcher", &rsh, "--spares", spares];
        let args = [&HOSTS[..], &options, &["sh", "-c", &script]].concat();
        let mut child = here
            .command(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(lines).map(Result::unwrap);
        // All have begun, and the launcher has heard of it.
        let mut said: Vec<String> = lines.by_ref().take(4).collect();
        std::fs::write(&go, "").unwrap();
        said.extend(lines);
        said.sort_unstable();
        (said, child.wait_with_output().unwrap())
    };
    // The launcher is the parent of a rank, and its own is the keeper.
    let keeper = "$(cut -d ' ' -f 4 /proc/$PPID/stat)";
    let launcher = "$PPID";
    for whom in [launcher, keeper] {
        let (said, output) = run("2", whom);
        let all = ["0:", "1:", "2:", "2:1", "3:", "3:1"];
        assert_eq!(said, all, "{}", err(&output));
        assert!(output.status.success());
        let told = err(&output);
        let expected =
            "with ranks 2, 3; processes of other hosts take their places, spares left: 0";
        assert!(told.contains(expected), "{told}");
    }
    let (said, output) = run("1", launcher);
    assert_eq!(said, ["0:", "1:", "2:", "3:"], "{}", err(&output));
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
    let told = err(&output);
    assert!(told.contains("host b.invalid is lost"), "{told}");
}

#[test]
fn signals_reach_the_ranks_of_a_remote_shell() {
    let (here, rsh) = with_rsh("signals");
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let args = [
        &HOSTS[..],
        &["-n", "2", "--launcher", &rsh, "sh", "-c", script],
    ]
    .concat();
    let mut child = here.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next()], ["ready", "ready"]);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    assert_eq!([next(), next()], ["got it", "got it"]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let mpi = Launchers::new("refused", &[("mpirun", OPEN_MPI)]);
    let hydra = Launchers::new("hydra", &[("mpirun", MPICH)]);
    let strange = Launchers::new("strange", &[("mpirun", "")]);
    let none = Launchers::new("none", &[("srun", SLURM)]);
    let two = |more: &[&str]| [&HOSTS[..], &["-n", "2"], more, &["sh"]].concat().join(" ");
    for (launchers, args, expected) in [
        (
            &none,
            two(&[]),
            "of the others on all hosts, as Debian's openmpi-bin or mpich",
        ),
        (&strange, two(&[]), "mpirun is none of srun, prterun"),
        (&mpi, two(&["--launcher", "mpiexec"]), "mpiexec"),
        (
            &mpi,
            two(&["--timeout", "5"]),
            "--timeout: put timeout(1) before",
        ),
        (
            &mpi,
            two(&["--launcher", "mpirun", "--spares", "1"]),
            "mpirun starts no process in the place of another one; --launcher ssh does",
        ),
        (
            &mpi,
            two(&["--spares", "1"]),
            "--spares on several hosts needs ssh",
        ),
        (&mpi, two(&["--backend", "chaos"]), "needs a --seed"),
        (&mpi, two(&["--backend", "pigeon"]), "no backend \"pigeon\""),
        (
            &mpi,
            two(&["--launcher-args", "'x"]),
            "a quotation mark is missing",
        ),
        (
            &hydra,
            two(&["--keep-going"]),
            "--keep-going: MPICH's launcher",
        ),
        (&mpi, two(&["--hostfile", "x"]), "cannot be used with"),
        (
            &mpi,
            "--hostfile /no/such -n 2 sh".into(),
            "cannot read the host file /no/such",
        ),
        (&mpi, "--hosts a:0 -n 2 sh".into(), "a:0: a host has 1 to"),
        (
            &mpi,
            "--hosts a,b,c -n 2 sh".into(),
            "c would have no process",
        ),
        (&mpi, "--hosts a:1,b:1 -n 3 sh".into(), "-n 3 does not fit"),
        (&mpi, "--hosts a,b sh".into(), "-n is missing"),
        (&mpi, "--dry-run -n 2 sh".into(), "--dry-run needs --hosts"),
        (
            &mpi,
            "--launcher mpirun -n 2 sh".into(),
            "--launcher needs --hosts",
        ),
        (&mpi, "sh".into(), "run needs a number of processes"),
    ] {
        let args: Vec<_> = args.split(' ').collect();
        let output = launchers.run(&args);
        let text = err(&output);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {text}{}",
            out(&output)
        );
        assert!(text.contains(expected), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
    let output = mpi.run(&[&HOSTS[..], &["-n", "2", "--dry-run", "./no-such-program"]].concat());
    assert!(
        out(&output).ends_with(" -n 2 ./no-such-program\n"),
        "{}",
        err(&output)
    );
    let missing = mpi.run(&[&HOSTS[..], &["-n", "2", "no-such-program"]].concat());
    assert_eq!(missing.status.code(), Some(127));
}
