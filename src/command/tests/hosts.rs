//! `unipgas run --hosts`: the command lines of cluster launchers. Scripts replace the launchers here, and print their arguments.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

mod common;

use common::{Folder, Said, has, sorted, with_pipes, words};

/// A PATH with launchers, in a directory that is deleted on drop.
struct Launchers(Folder);

/// Common part of the scripts.
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
        let folder = Folder::new(&format!("launchers-{name}"));
        for tool in ["sh", "cat", "sleep", "cut"] {
            let found = ["/bin", "/usr/bin"].map(|place| Path::new(place).join(tool));
            let found = found.iter().find(|tool| tool.exists()).unwrap();
            std::os::unix::fs::symlink(found, folder.0.join(tool)).unwrap();
        }
        for (name, version) in scripts {
            folder.script(name, &format!("#!/bin/sh\n{version}\n{CALLED}"));
        }
        Launchers(folder)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unipgas"));
        command.arg("run").args(args).stdin(Stdio::null());
        command.env("PATH", &self.0.0);
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

    /// The arguments of the launcher, from its first line.
    fn told(&self, args: &[&str]) -> String {
        let output = self.run(args);
        output.ends(7);
        output.out().lines().next().unwrap().to_owned()
    }
}

/// Two hosts that do not exist.
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
    let program = format!("-n 3 {} -n x y", all.0.path("sh"));
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
    let text = inside.output().unwrap().out();
    assert_eq!(text.lines().next(), Some(&of_slurm[..]));
    // The user has set the protocol.
    let text = inside.env("SLURM_MPI_TYPE", "pmix").output().unwrap().out();
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
        &words("-n 2 --backend chaos --seed 5 --bind core --tag --keep-going"),
        &["--launcher-args", "--mca plm_rsh_agent 'ssh -p 2222'", "sh"],
    ]
    .concat();
    let mut command = here.command(&args);
    command
        .env("UTOFU_SWAP_PROTECT", "0")
        .env("FI_PROVIDER", "tcp")
        .env("LD_LIBRARY_PATH", "/x")
        .env("OTHER", "1")
        // The variables of a job around this command do not reach the ranks.
        .env("UNIPGAS_JOB", "1:2:3")
        .env("UNIPGAS_RANK", "0")
        .env("UNIPGAS_SIZE", "1")
        .current_dir("/");
    let mut child = with_pipes(&mut command);
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = output.out();
    assert_eq!(
        text,
        format!(
            "mpirun --host a.invalid:1,b.invalid:1 --map-by slot --bind-to core:overload-allowed --tag-output --enable-recovery \
             -x FI_PROVIDER -x LD_LIBRARY_PATH -x UNIPGAS_BACKEND -x UNIPGAS_BIND -x UNIPGAS_SEED -x UNIPGAS_TOFU_SHAPE \
             -x UTOFU_SWAP_PROTECT --mca plm_rsh_agent ssh -p 2222 -n 2 {}\n\
             environment chaos/5/core/1x1x1x2x3x2/none /\ninput\n",
            here.0.path("sh")
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
    let file = &here.0.path("hosts");
    std::fs::write(file, "a.invalid slots=2 # the big one\nb.invalid\n").unwrap();
    for (n, expected) in [("5", "b.invalid:3 "), ("3", "b.invalid:1 ")] {
        let told = here.told(&["--hostfile", file, "-n", n, "sh"]);
        has(&told, &[&format!("--host a.invalid:2,{expected}")]);
    }
    let told = here.told(&["--hostfile", file, "sh"]);
    has(&told, &["--host a.invalid:2,b.invalid:1 ", " -n 3 "]);
    std::fs::write(file, "a.invalid slots=2\nb.invalid:3\n").unwrap();
    let told = here.told(&["--hostfile", file, "sh"]);
    has(&told, &["--host a.invalid:2,b.invalid:3 ", " -n 5 "]);
    // The two entries of host a are not adjacent.
    let told = here.told(&["--hosts", "a.invalid,b.invalid,a.invalid", "-n", "3", "sh"]);
    has(
        &told,
        &["--host a.invalid,b.invalid,a.invalid --map-by seq"],
    );
}

#[test]
fn a_list_of_this_host_needs_no_launcher() {
    let here = Launchers::new("own", &[("mpirun", OPEN_MPI)]);
    let own = rustix::system::uname();
    let own = own.nodename().to_str().unwrap();
    for list in ["localhost", "127.0.0.1:2", &format!("{own},localhost")] {
        let output = here.run(&["--hosts", list, "-n", "2", "sh", "-c", "echo $UNIPGAS_SIZE"]);
        assert_eq!(output.out(), "2\n2\n", "{list}: {}", output.err());
    }
    let output = here.run(&["--hosts", "localhost:3", "sh", "-c", "echo $UNIPGAS_SIZE"]);
    assert_eq!(output.out(), "3\n3\n3\n", "{}", output.err());
    let output = here.run(&["--hosts", "localhost", "-n", "2", "--dry-run", "sh"]);
    assert!(
        output.out().starts_with("this host only: 2 processes"),
        "{}",
        output.out()
    );
    // A named launcher is used.
    let told = here.told(&words("--hosts localhost -n 2 --launcher mpirun sh"));
    assert!(told.starts_with("mpirun --host localhost:2 "), "{told}");
    // An allocation alone changes nothing.
    let mut command = here.command(&["-n", "2", "sh", "-c", "echo $UNIPGAS_SIZE"]);
    let output = command.env("SLURM_JOB_ID", "9").output().unwrap();
    assert_eq!(output.out(), "2\n2\n", "{}", output.err());
}

#[test]
fn a_dry_run_shows_what_a_shell_would_take() {
    let here = Launchers::new("dry", &[("mpirun", OPEN_MPI)]);
    let output = here.run(&[&HOSTS[..], &["-n", "2", "--dry-run", "sh", "a b"]].concat());
    assert_eq!(
        output.ok(),
        format!(
            "UNIPGAS_BIND=none UNIPGAS_TOFU_SHAPE=1x1x1x2x3x2 mpirun --host 'a.invalid:1,b.invalid:1' --map-by slot --bind-to none \
             -x UNIPGAS_BIND -x UNIPGAS_TOFU_SHAPE -n 2 {} 'a b'\n",
            here.0.path("sh")
        )
    );
}

#[test]
fn the_process_becomes_the_launcher() {
    let here = Launchers::new("signal", &[("mpirun", OPEN_MPI)]);
    let script = format!("#!/bin/sh\n{OPEN_MPI}\necho $$\nexec sleep 60\n");
    here.0.script("mpirun", &script);
    let args = [&HOSTS[..], &["-n", "2", "sh"]].concat();
    let mut child = here.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 16];
    let read = std::io::Read::read(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    let said = std::str::from_utf8(&said[..read]).unwrap();
    assert_eq!(said.trim(), child.id().to_string());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

/// A remote shell that runs all commands on this host. It prints the name of the host on standard error.
const RSH: &str = "echo \"to $1\" >&2\nshift\nexec sh -c \"$*\"";

fn with_rsh(name: &str) -> (Launchers, String) {
    let here = Launchers::new(name, &[("mpirun", OPEN_MPI)]);
    let rsh = here.0.script("rsh", &format!("#!/bin/sh\n{RSH}\n"));
    (here, rsh)
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
    assert_eq!(sorted(&output.ok()), expected);
    let told = output.err();
    let told = sorted(&told);
    assert_eq!(told[..3], ["[0] oops", "[1] oops", "[2] oops"]);
    assert_eq!(told[3..], ["to a.invalid", "to b.invalid"]);
    // Ranks know the number of hosts.
    let output = run(&["-n", "3", env!("CARGO_BIN_EXE_unipgas"), "info"]);
    let told = output.out();
    for (rank, here) in [(0, 2), (1, 2), (2, 1)] {
        let line = format!("rank {rank} of 3, {here} on this host of 2");
        assert!(told.contains(&line), "{told}{}", output.err());
    }
    // A failure ends the other ranks. Its status is the status of the job.
    let script = "[ $UNIPGAS_RANK = 2 ] && exit 5; exec sleep 600";
    let output = run(&["-n", "3", "sh", "-c", script]);
    let expected = "on b.invalid) exited with status 5; ending the others";
    has(&output.ends(5), &[expected]);
    // With a spare, the job continues.
    let script =
        "[ $UNIPGAS_RANK = 2 ] && [ -z \"$UNIPGAS_INCARNATION\" ] && exit 5; echo $UNIPGAS_RANK";
    let output = run(&["-n", "3", "--spares", "1", "sh", "-c", script]);
    assert_eq!(sorted(&output.ok()), ["0", "1", "2"]);
    let options = words("-n 3 --keep-going --spares 0 sh -c");
    let output = run(&[&options[..], &[script]].concat());
    output.ends(5);
    assert_eq!(sorted(&output.out()), ["0", "1"]);
    run(&words("-n 2 --timeout 0.2 sleep 600")).ends(124);
    let output = run(&["-n", "2", "--dry-run", "sh"]);
    let lines = output.out();
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
    let mut child = with_pipes(command.env("UNIPGAS_LAUNCHER", &rsh));
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
        let go = here.0.0.join(format!("go-{spares}-{}", whom.len()));
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
        // All ranks have begun, and the launcher knows it.
        let mut said: Vec<String> = lines.by_ref().take(4).collect();
        std::fs::write(&go, "").unwrap();
        said.extend(lines);
        said.sort_unstable();
        (said, child.wait_with_output().unwrap())
    };
    // The launcher is the parent of a rank. The keeper is the parent of the launcher.
    let keeper = "$(cut -d ' ' -f 4 /proc/$PPID/stat)";
    let launcher = "$PPID";
    for whom in [launcher, keeper] {
        let (said, output) = run("2", whom);
        let all = ["0:", "1:", "2:", "2:1", "3:", "3:1"];
        assert_eq!(said, all, "{}", output.err());
        let expected =
            "with ranks 2, 3; processes of other hosts take their places, spares left: 0";
        has(&output.ends(0), &[expected]);
    }
    let (said, output) = run("1", launcher);
    assert_eq!(said, ["0:", "1:", "2:", "3:"], "{}", output.err());
    has(&output.ends(137), &["host b.invalid is lost"]);
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
            "of the other processes on all hosts, as Debian's openmpi-bin or mpich",
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
        launchers.run(&args).refuses(2, expected);
    }
    let output = mpi.run(&[&HOSTS[..], &["-n", "2", "--dry-run", "./no-such-program"]].concat());
    assert!(
        output.out().ends_with(" -n 2 ./no-such-program\n"),
        "{}",
        output.err()
    );
    let missing = mpi.run(&[&HOSTS[..], &["-n", "2", "no-such-program"]].concat());
    assert_eq!(missing.status.code(), Some(127));
}
