//! The cluster's launcher on this machine, and its arguments.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::list::HostShare;
use crate::run::{Bind, KeepGoing};

/// The kind of launcher, which decides the spelling of its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LauncherKind {
    /// Slurm's `srun`.
    Srun,
    /// PRRTE's `prterun`, which is Open MPI's `mpirun` since version 5.
    Prte,
    /// `mpirun` of Open MPI up to 4.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Hydra,
}

/// A launcher that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostLauncher {
    pub kind: LauncherKind,
    /// The program's name. Open MPI reads a path as a prefix for the other hosts.
    pub name: OsString,
    pub path: PathBuf,
}

/// The programs of a machine, by name or path, and their version texts.
pub(super) struct InstalledPrograms<'a> {
    pub find: &'a dyn Fn(&OsStr) -> Result<PathBuf, String>,
    pub version: &'a dyn Fn(&PathBuf) -> String,
    /// Whether the process runs in an allocation of Slurm.
    pub allocation: bool,
}

/// The launcher to use. `wish` names one.
///
/// Errors: one line.
pub fn choose(
    wish: Option<&OsStr>,
    machine: &InstalledPrograms<'_>,
) -> Result<HostLauncher, String> {
    let known = |name: &OsStr| -> Result<HostLauncher, String> {
        let path = (machine.find)(name)?;
        let kind = kind(&path, machine).ok_or_else(|| {
            format!(
                "{} is none of srun, prterun, and mpirun or mpiexec of Open MPI and MPICH",
                name.display()
            )
        })?;
        let name = name.to_owned();
        Ok(HostLauncher { kind, name, path })
    };
    if let Some(name) = wish {
        return known(name);
    }
    let mut stranger = None;
    for name in ["srun", "prterun", "mpirun", "mpiexec"].map(OsStr::new) {
        if name == "srun" && !machine.allocation || (machine.find)(name).is_err() {
            continue;
        }
        match known(name) {
            Ok(launcher) => return Ok(launcher),
            Err(why) => stranger = Some(why),
        }
    }
    Err(stranger.unwrap_or_else(|| {
        "no launcher for several hosts is here (srun in an allocation of Slurm, prterun, mpirun, mpiexec, or ssh): install ssh, or one \
         of the other processes on all hosts, as Debian's openmpi-bin or mpich"
            .into()
    }))
}

fn kind(path: &PathBuf, machine: &InstalledPrograms<'_>) -> Option<LauncherKind> {
    match path.file_name().and_then(OsStr::to_str) {
        Some("srun") => return Some(LauncherKind::Srun),
        Some("prterun") => return Some(LauncherKind::Prte),
        _ => {}
    }
    of_version(&(machine.version)(path))
}

fn of_version(text: &str) -> Option<LauncherKind> {
    if text.contains("HYDRA") {
        return Some(LauncherKind::Hydra);
    }
    if text.contains("PRRTE") {
        return Some(LauncherKind::Prte);
    }
    let (_, version) = text
        .split_once("(Open MPI) ")
        .or_else(|| text.split_once("(OpenRTE) "))?;
    let major: u32 = version.split('.').next()?.trim().parse().ok()?;
    Some(if major < 5 {
        LauncherKind::OpenMpi
    } else {
        LauncherKind::Prte
    })
}

/// The MPI plugin of `srun --mpi=list` that programs of this library understand.
pub fn slurm_protocol(list: &str) -> Option<&'static str> {
    let offered = |name: &str| list.split_whitespace().any(|word| word == name);
    ["pmix", "pmi2"].into_iter().find(|name| offered(name))
}

/// The job to start.
pub(super) struct LaunchPlan<'a> {
    pub shares: &'a [HostShare],
    pub bind: Bind,
    pub tag: bool,
    pub keep_going: KeepGoing,
    /// Variables that all processes need, in addition to the variables of the launcher.
    pub variables: &'a [(String, OsString)],
    /// For srun: the MPI plugin, if it must be named.
    pub protocol: Option<&'a str>,
    /// The user's own arguments for the launcher.
    pub more: &'a [String],
    pub program: &'a [OsString],
}

/// The launcher's arguments that start the job.
///
/// Errors: one line that names an option without support in the launcher.
pub fn arguments(kind: LauncherKind, job: &LaunchPlan<'_>) -> Result<Vec<OsString>, String> {
    let mut words = Words(Vec::new());
    match kind {
        LauncherKind::Srun => srun(job, &mut words),
        LauncherKind::Prte | LauncherKind::OpenMpi => mpirun(kind, job, &mut words),
        LauncherKind::Hydra => hydra(job, &mut words)?,
    }
    let processes: u32 = job.shares.iter().map(|share| share.processes).sum();
    let mut words = words.0;
    words.extend(job.more.iter().map(OsString::from));
    words.extend(["-n".into(), processes.to_string().into()]);
    words.extend(job.program.iter().cloned());
    Ok(words)
}

struct Words(Vec<OsString>);

impl Words {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn add_if(&mut self, wanted: bool, words: &[&str]) {
        if wanted {
            self.add(words);
        }
    }
}

/// `a:4,b:4`.
fn numbered(shares: &[HostShare]) -> String {
    let one = |share: &HostShare| format!("{}:{}", share.host, share.processes);
    shares.iter().map(one).collect::<Vec<_>>().join(",")
}

/// `a,a,b`: the host of each rank.
fn rank_by_rank(shares: &[HostShare]) -> String {
    let hosts = shares
        .iter()
        .flat_map(|share| std::iter::repeat_n(share.host.as_str(), share.processes as usize));
    hosts.collect::<Vec<_>>().join(",")
}

/// The hosts without repetition.
fn hosts(shares: &[HostShare]) -> Vec<&str> {
    let mut hosts: Vec<_> = shares.iter().map(|share| share.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn srun(job: &LaunchPlan<'_>, words: &mut Words) {
    let nodes = hosts(job.shares).len().to_string();
    words.add(&["-N", &nodes, "-w", &rank_by_rank(job.shares)]);
    // Ranks follow the list, not the cluster's order of nodes.
    words.add(&["--distribution=arbitrary", "--export=ALL", "--input=0"]);
    words.add(&[match job.keep_going {
        KeepGoing::Never => "--kill-on-bad-exit=1",
        KeepGoing::WherePossible | KeepGoing::Always => "--kill-on-bad-exit=0",
    }]);
    match job.bind {
        // Clusters without binding report an error for "none" as well.
        Bind::None => {}
        Bind::Core => words.add(&["--cpu-bind=cores"]),
        Bind::Numa => words.add(&["--cpu-bind=ldoms"]),
    }
    words.add_if(job.tag, &["--label"]);
    if let Some(protocol) = job.protocol {
        words.add(&[&format!("--mpi={protocol}")]);
    }
}

fn mpirun(kind: LauncherKind, job: &LaunchPlan<'_>, words: &mut Words) {
    if hosts(job.shares).len() == job.shares.len() {
        words.add(&["--host", &numbered(job.shares), "--map-by", "slot"]);
    } else {
        // The list returns to an earlier host.
        words.add(&["--host", &rank_by_rank(job.shares), "--map-by", "seq"]);
    }
    let bind = match job.bind {
        // The default binds to cores, which leaves no core to the progress thread.
        Bind::None => "none",
        Bind::Core => "core:overload-allowed",
        Bind::Numa => "numa:overload-allowed",
    };
    words.add(&["--bind-to", bind]);
    let is_prte = kind == LauncherKind::Prte;
    words.add_if(job.tag && is_prte, &["--output", "tag"]);
    words.add_if(job.tag && !is_prte, &["--tag-output"]);
    let continuous: &[&str] = &["--runtime-options", "continuous"];
    let keep_going = job.keep_going != KeepGoing::Never;
    words.add_if(keep_going && is_prte, continuous);
    words.add_if(keep_going && !is_prte, &["--enable-recovery"]);
    for (name, _) in job.variables {
        words.add(&["-x", name]);
    }
}

fn hydra(job: &LaunchPlan<'_>, words: &mut Words) -> Result<(), String> {
    if job.keep_going == KeepGoing::Always {
        return Err(
            "--keep-going: MPICH's launcher ends all when one fails; Open MPI's and srun can do it (--launcher)"
                .into(),
        );
    }
    words.add(&["-hosts", &numbered(job.shares)]);
    match job.bind {
        Bind::None => {}
        Bind::Core => words.add(&["-bind-to", "core"]),
        Bind::Numa => words.add(&["-bind-to", "numa"]),
    }
    words.add_if(job.tag, &["-prepend-rank"]);
    for (name, value) in job.variables {
        words.add(&["-genv", name]);
        words.0.push(value.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::LauncherKind::*;
    use super::*;

    const OPEN_MPI_4: &str = "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...";
    const OPEN_MPI_5: &str = "mpirun (Open MPI) 5.0.8";
    const MPICH: &str = "HYDRA build details:\n    Version:    4.0.2";

    fn chosen(
        wish: Option<&str>,
        allocation: bool,
        there: &[(&str, &str)],
    ) -> Result<HostLauncher, String> {
        let machine = InstalledPrograms {
            find: &|name| {
                let found = there.iter().find(|(known, _)| *known == name);
                found
                    .map(|(name, _)| PathBuf::from("/bin").join(name))
                    .ok_or_else(|| format!("there is no {}", name.display()))
            },
            version: &|path| {
                let found = there.iter().find(|(known, _)| path.ends_with(known));
                found.map_or(String::new(), |(_, version)| (*version).into())
            },
            allocation,
        };
        choose(wish.map(OsStr::new), &machine)
    }

    #[test]
    fn the_launcher_that_is_there_is_chosen() {
        let all = [
            ("srun", ""),
            ("prterun", ""),
            ("mpirun", OPEN_MPI_4),
            ("mpiexec", MPICH),
        ];
        let (newer, mpich) = ([("mpirun", OPEN_MPI_5)], [("mpirun", MPICH)]);
        let strange = [("mpirun", "Strange MPI 1.0"), ("mpiexec", OPEN_MPI_4)];
        for (wish, allocation, there, kind, name) in [
            (None, true, &all[..], Srun, "srun"),
            (None, false, &all, Prte, "prterun"),
            (None, true, &all[1..], Prte, "prterun"),
            (None, false, &all[2..], OpenMpi, "mpirun"),
            (None, false, &all[3..], Hydra, "mpiexec"),
            (None, false, &newer, Prte, "mpirun"),
            (None, false, &mpich, Hydra, "mpirun"),
            (None, false, &strange, OpenMpi, "mpiexec"),
            (Some("mpiexec"), true, &all, Hydra, "mpiexec"),
            (Some("srun"), false, &all, Srun, "srun"),
        ] {
            let found = chosen(wish, allocation, there).unwrap();
            assert_eq!((found.kind, found.name.to_str()), (kind, Some(name)));
        }
        let none = chosen(None, false, &all[..1]).unwrap_err();
        assert!(none.contains("openmpi-bin or mpich"), "{none}");
        let strange = chosen(None, false, &strange[..1]).unwrap_err();
        assert!(strange.contains("mpirun is none of"), "{strange}");
        assert!(chosen(Some("x"), true, &all).unwrap_err().contains("no x"));
    }

    #[test]
    fn ways_of_slurm_are_found_in_its_list() {
        let list = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4";
        assert_eq!(slurm_protocol(list), Some("pmix"));
        let old = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";
        assert_eq!(slurm_protocol(old), Some("pmi2"));
        assert_eq!(slurm_protocol("MPI plugin types are...\n\tnone"), None);
    }

    struct Wish {
        hosts: &'static [(&'static str, u32)],
        bind: Bind,
        tag: bool,
        keep_going: KeepGoing,
    }

    fn told(kind: LauncherKind, wish: &Wish) -> Result<String, String> {
        let share = |(host, processes): &(&str, u32)| HostShare {
            host: (*host).into(),
            processes: *processes,
        };
        let shares: Vec<HostShare> = wish.hosts.iter().map(share).collect();
        let job = LaunchPlan {
            shares: &shares,
            bind: wish.bind,
            tag: wish.tag,
            keep_going: wish.keep_going,
            variables: &[("UNIPGAS_SEED".into(), "7".into())],
            protocol: Some("pmix"),
            more: &["--more".into(), "x y".into()],
            program: &["./p".into(), "-n".into()],
        };
        let words = arguments(kind, &job)?;
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn each_launcher_is_told_in_its_own_words() {
        let plain = Wish {
            hosts: &[("b", 2), ("a", 1)],
            bind: Bind::None,
            tag: false,
            keep_going: KeepGoing::Never,
        };
        let full = Wish {
            hosts: &[("a", 1), ("b", 1), ("a", 1)],
            bind: Bind::Core,
            tag: true,
            keep_going: KeepGoing::Always,
        };
        for (kind, of_plain, of_full) in [
            (
                LauncherKind::Srun,
                "-N 2 -w b,b,a --distribution=arbitrary --export=ALL --input=0 --kill-on-bad-exit=1 --mpi=pmix",
                "-N 2 -w a,b,a --distribution=arbitrary --export=ALL --input=0 --kill-on-bad-exit=0 --cpu-bind=cores --label --mpi=pmix",
            ),
            (
                LauncherKind::OpenMpi,
                "--host b:2,a:1 --map-by slot --bind-to none -x UNIPGAS_SEED",
                "--host a,b,a --map-by seq --bind-to core:overload-allowed --tag-output --enable-recovery -x UNIPGAS_SEED",
            ),
            (
                LauncherKind::Prte,
                "--host b:2,a:1 --map-by slot --bind-to none -x UNIPGAS_SEED",
                "--host a,b,a --map-by seq --bind-to core:overload-allowed --output tag --runtime-options continuous -x UNIPGAS_SEED",
            ),
            (
                LauncherKind::Hydra,
                "-hosts b:2,a:1 -genv UNIPGAS_SEED 7",
                "",
            ),
        ] {
            let rest = "--more x y -n 3 ./p -n";
            assert_eq!(told(kind, &plain).unwrap(), format!("{of_plain} {rest}"));
            match told(kind, &full) {
                Ok(text) => assert_eq!(text, format!("{of_full} {rest}")),
                Err(why) => assert!(of_full.is_empty() && why.contains("--keep-going"), "{why}"),
            }
        }
        let numa = Wish {
            keep_going: KeepGoing::WherePossible,
            bind: Bind::Numa,
            ..full
        };
        assert_eq!(
            told(LauncherKind::Hydra, &numa).unwrap(),
            "-hosts a:1,b:1,a:1 -bind-to numa -prepend-rank -genv UNIPGAS_SEED 7 --more x y -n 3 ./p -n"
        );
        assert!(
            told(LauncherKind::Srun, &numa)
                .unwrap()
                .contains("--cpu-bind=ldoms")
        );
    }
}
