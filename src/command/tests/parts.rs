//! Jobs of several programs: `unipgas run -n 2 ./a x : -n 3 ./b y`.

use std::io::{BufRead, BufReader, Write};
use std::process::Output;

mod common;

use common::{Folder, RSH, Said, has, sorted, unipgas, with_pipes, words};

fn run(args: &[&str]) -> Output {
    unipgas(&[&["run"], args].concat()).output().unwrap()
}

/// A directory with launchers and two programs, which print their rank, name and arguments.
struct Programs(Folder);

const SAYS: &str = "#!/bin/sh
echo \"${UNIPGAS_RANK-$PMI_RANK}/$UNIPGAS_SIZE $0 $* $GIVEN $(pwd -P)\"
[ \"$1\" != fail ] || exit 7
";
/// Acts as an MPI launcher with a job of two: it starts two processes that know their ranks.
const MPIRUN: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo 'HYDRA build details:'; exit; }
while [ \"$1\" != -n ]; do shift; done
echo \"-n $2\"
shift 2
# Whatever comes, this is another part to it.
for word; do [ \"$word\" != : ] || exit 9; done
PMI_RANK=0 \"$@\" && PMI_RANK=1 \"$@\"
";

impl Programs {
    fn new(name: &str) -> Programs {
        let folder = Folder::new(&format!("parts-{name}"));
        std::fs::create_dir_all(folder.0.join("sub")).unwrap();
        folder.script("a", SAYS);
        folder.script("sub/b", SAYS);
        folder.script("rsh", RSH);
        folder.script("mpirun", MPIRUN);
        Programs(folder)
    }

    fn run(&self, args: &str) -> Output {
        let mut command = unipgas(&[&["run"], &words(args)[..]].concat());
        command.current_dir(&self.0.0).output().unwrap()
    }

    fn text(&self) -> String {
        self.0.path("").trim_end_matches('/').into()
    }
}

#[test]
fn ranks_are_counted_on_from_part_to_part() {
    let programs = Programs::new("ranks");
    let here = programs.text();
    let rsh = format!("--launcher {here}/rsh --hosts a.invalid:3,b.invalid:1");
    for hosts in ["", &rsh] {
        let output = programs.run(&format!(
            "{hosts} -n 1 ./a -n 3 : -np 2 -x GIVEN=it -wdir sub ./b y : -n 1 -- ./a : z"
        ));
        assert_eq!(
            sorted(&output.ok()),
            [
                format!("0/4 ./a -n 3  {here}"),
                format!("1/4 ./b y it {here}/sub"),
                format!("2/4 ./b y it {here}/sub"),
                format!("3/4 ./a : z  {here}"),
            ]
        );
        // Options of one part have no effect on the other.
        let output = programs.run(&format!(
            "{hosts} -n 2 -x GIVEN=it --wdir sub ./b : -n 2 ./a"
        ));
        let text = output.out();
        assert_eq!(text.lines().filter(|line| line.contains(" it ")).count(), 2);
        assert_eq!(text.lines().filter(|line| line.contains("/sub")).count(), 2);
    }
    let output = programs.run("-n 1 ./a : -n 1 ./a fail");
    has(&output.ends(7), &["rank 1 (pid "]);
}

#[test]
fn other_launchers_start_them_too() {
    let programs = Programs::new("launchers");
    let here = programs.text();
    let hosts = format!("--hosts a.invalid,b.invalid --launcher {here}/mpirun");
    let output = programs.run(&format!("{hosts} -n 1 ./a x : -n 1 -wdir sub ./b y"));
    let expected = format!("-n 2\n0/ ./a x  {here}\n1/ ./b y  {here}/sub\n");
    assert_eq!(output.out(), expected, "{}", output.err());
    let output = programs.run(&format!("{hosts} --dry-run -n 1 ./a x : -n 1 no-such y"));
    let line = output.out();
    assert!(
        line.ends_with("unipgas each -n 1 ./a x :: -n 1 -- no-such y\n"),
        "{line}{}",
        output.err()
    );
}

#[test]
fn a_spare_runs_the_program_of_its_rank() {
    let script = |word| {
        format!(
            "echo $UNIPGAS_RANK {word} $UNIPGAS_INCARNATION; [ $UNIPGAS_RANK = 0 ] || [ -n \"$UNIPGAS_INCARNATION\" ]"
        )
    };
    let first = ["-n", "1", "--spares", "1", "sh", "-c", &script("a")];
    let second = [":", "-n", "1", "sh", "-c", &script("b")];
    let output = run(&[&first[..], &second].concat());
    assert_eq!(sorted(&output.ok()), ["0 a", "1 b", "1 b 1"]);
}

#[test]
fn the_list_of_jobs_shows_all_parts() {
    let mut job = unipgas(&words("run -n 1 cat - : -n 1 sh -c"));
    let mut child = with_pipes(job.arg("echo ready"));
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let listed = unipgas(&["ps"]).output().unwrap().ok();
    has(&listed, &["run -n 1 cat - : -n 1 sh -c echo ready"]);
    child.stdin.take().unwrap().write_all(b"end").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_a_part_cannot_be_is_said_in_a_line() {
    for (args, status, expected) in [
        (
            "-n 2 true : true",
            2,
            "part 2 of the job (true) has no number of processes: -n N",
        ),
        (
            "true : -n 2 true",
            2,
            "part 1 of the job (true) has no number",
        ),
        (
            "-n 2 true : -n 2",
            2,
            "part 2 of the job: there is no program",
        ),
        ("-n 2 true :", 2, "part 2 of the job: there is no program"),
        (
            "-n 2 : -n 2 true",
            2,
            "run needs a number of processes and a program",
        ),
        (
            "-n 2 true : -n 2 --tag true",
            2,
            "part 2 of the job: --tag is for the whole job, and comes before the first program",
        ),
        (
            "-n 2 true : -n 2 --timeout=3 true",
            2,
            "--timeout is for the whole job",
        ),
        (
            "-n 2 true : -n 2 true : -n 2 --tagg true",
            2,
            "part 3 of the job: unexpected argument '--tagg'",
        ),
        ("-n 2 true : -n 0 true", 2, "part 2 of the job: "),
        ("-n 65536 true : -n 1 true", 2, "not 65537"),
        ("-n 1 true : -n 1 no-such-program", 127, "no-such-program"),
        (
            "-n 1 true : -n 1 /etc/passwd",
            126,
            "/etc/passwd is not executable",
        ),
        (
            "-n 1 true : -n 1 --wdir /no/such true",
            2,
            "--wdir /no/such",
        ),
        (
            "--rank 1 --job 1 true : -n 1 true",
            2,
            "--rank starts one process",
        ),
        (
            "--hosts localhost:1 -n 1 true : -n 1 true",
            2,
            "-n 2 does not fit",
        ),
    ] {
        let text = run(&words(args)).refuses(status, expected);
        assert!(text.starts_with("unipgas: "), "{args} {text}");
    }
}
