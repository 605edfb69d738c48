//! The job of this process, from the environment variables of launchers.

use std::fmt;

use unipgas_base::{Error, Result, descriptor, variables};

/// Variable for tests of the library, in which a second copy of the library acts as a network. Its processes use a separate job name.
pub const NETWORK: &str = "UNIPGAS_TEST_NETWORK";

/// The launcher of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launcher {
    /// `unipgas run`.
    Unipgas,
    /// A launcher with a PMIx server: `mpirun` of Open MPI, `prterun`, `srun --mpi=pmix`.
    Pmix,
    /// `mpirun` of an Open MPI without PMIx.
    OpenMpi,
    /// Hydra (`mpiexec` of MPICH and its relatives), or another server of the PMI protocol.
    Pmi,
    /// `srun`.
    Slurm,
    /// No launcher that assigns ranks: a shell, a debugger, a script.
    Hand,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Unipgas => "unipgas",
            Launcher::Pmix => "pmix",
            Launcher::OpenMpi => "ompi",
            Launcher::Pmi => "pmi",
            Launcher::Slurm => "slurm",
            Launcher::Hand => "hand",
        })
    }
}

/// A job's name, and the rank of this process and the number of ranks if the launcher provides them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobName {
    launcher: Launcher,
    name: String,
    rank: Option<u32>,
    size: Option<u32>,
}

impl fmt::Display for JobName {
    /// One line for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.launcher, self.name.escape_debug())
    }
}

impl JobName {
    /// A job of any name, for processes without ranks.
    pub fn by_hand(name: &str) -> Self {
        JobName {
            launcher: Launcher::Hand,
            name: name.into(),
            rank: None,
            size: None,
        }
    }

    /// The job with this name from `unipgas run`, without a rank.
    pub(super) fn by_launcher(job: &str) -> Self {
        JobName {
            launcher: Launcher::Unipgas,
            ..Self::by_hand(job)
        }
    }

    /// The same job under a derived name, for a further file of the job.
    pub(crate) fn with(&self, what: &str) -> Self {
        JobName {
            name: format!("{}\0{what}", self.name),
            ..self.clone()
        }
    }

    /// The job of the environment. The first launcher in this list with variables counts:
    ///
    /// 1. `unipgas run`: UNIPGAS_JOB, UNIPGAS_RANK, UNIPGAS_SIZE;
    /// 2. PMIx: PMIX_NAMESPACE, PMIX_RANK, and OMPI_COMM_WORLD_SIZE or the size of the Slurm step;
    /// 3. Open MPI: OMPI_MCA_ess_base_jobid, OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE;
    /// 4. PMI: PMI_RANK, PMI_SIZE, and PMI_JOBID or, as Hydra does not name its jobs, the nearest `hydra_pmi_proxy` above
    ///    this process (failing that, the step of Slurm, or the parent);
    /// 5. Slurm: SLURM_JOB_ID, SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS;
    /// 6. no launcher: one job per user, or the job that UNIPGAS_JOB_NAME names; no rank, and an unknown size.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a variable of the library is not text, a rank or size is not a number, or the rank is not below the size.
    pub fn from_env() -> Result<Self> {
        variables::check()?;
        let job = Self::from_variables(&|key| std::env::var(key).ok(), &hydra_proxy)?;
        Ok(match variables::get(NETWORK)? {
            None => job,
            Some(network) => job.with(&network),
        })
    }

    /// The rank that the environment names, if it names a job with ranks.
    pub fn rank_from_env() -> Option<u32> {
        JobName::from_env().ok()?.rank()
    }

    /// [`from_env`](Self::from_env) with the environment and the name of Hydra's proxy as parameters.
    pub(crate) fn from_variables(
        variable: &dyn Fn(&str) -> Option<String>,
        proxy: &dyn Fn() -> (String, bool),
    ) -> Result<Self> {
        let text = |key: &str| variable(key).filter(|value| !value.is_empty());
        let number = |key: &str| -> Result<Option<u32>> {
            text(key)
                .map(|value| {
                    value.trim().parse().map_err(|_| {
                        Error::InvalidArgument(format!(
                            "the environment says {key}={value:?}, which is no number: unset it, or start anew"
                        ))
                    })
                })
                .transpose()
        };
        let first = |keys: &[&str]| -> Result<Option<u32>> {
            for key in keys {
                if let Some(value) = number(key)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        };
        let made = |launcher, name: String, rank: u32, size: Option<u32>| {
            if size.is_some_and(|size| rank >= size) {
                return Err(Error::InvalidArgument(format!(
                    "the environment says rank {rank} of {} (launcher {launcher}): unset it, or start anew",
                    size.unwrap_or(0)
                )));
            }
            Ok(JobName {
                launcher,
                name,
                rank: Some(rank),
                size,
            })
        };
        let step = || {
            let job = text("SLURM_JOB_ID").or_else(|| text("SLURM_JOBID"))?;
            // A batch script has a job, but is not a step: programs that it starts by hand have no rank.
            let step = text("SLURM_STEP_ID").or_else(|| text("SLURM_STEPID"))?;
            Some(format!("{job}.{step}"))
        };
        let step_size = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

        if let Some(job) = text("UNIPGAS_JOB") {
            let rank = number("UNIPGAS_RANK")?.ok_or_else(|| {
                Error::InvalidArgument(
                    "UNIPGAS_JOB is set without UNIPGAS_RANK: start the program by `unipgas run`"
                        .into(),
                )
            })?;
            return made(Launcher::Unipgas, job, rank, number("UNIPGAS_SIZE")?);
        }
        // Open MPI derives job numbers from 16 bits of host name and pid. This key is random, and equal in all ranks.
        let key = text("OMPI_MCA_orte_precondition_transports").unwrap_or_default();
        if let (Some(space), Some(rank)) = (text("PMIX_NAMESPACE"), number("PMIX_RANK")?) {
            let size = first(&["OMPI_COMM_WORLD_SIZE", step_size[0], step_size[1]])?;
            return made(Launcher::Pmix, format!("{space} {key}"), rank, size);
        }
        if let (Some(job), Some(rank)) = (
            text("OMPI_MCA_ess_base_jobid"),
            number("OMPI_COMM_WORLD_RANK")?,
        ) {
            let size = number("OMPI_COMM_WORLD_SIZE")?;
            return made(Launcher::OpenMpi, format!("{job} {key}"), rank, size);
        }
        if let Some(rank) = number("PMI_RANK")? {
            let name = text("PMI_JOBID").unwrap_or_else(|| match (proxy(), step()) {
                ((name, true), _) | ((name, false), None) => name,
                (_, Some(step)) => step,
            });
            return made(Launcher::Pmi, name, rank, number("PMI_SIZE")?);
        }
        if let (Some(step), Some(rank)) = (step(), number("SLURM_PROCID")?) {
            return made(Launcher::Slurm, step, rank, first(&step_size)?);
        }
        Ok(Self::by_hand(
            &text("UNIPGAS_JOB_NAME").unwrap_or_else(|| "hand".into()),
        ))
    }

    /// The launcher of this process.
    pub(crate) fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// The name from the launcher.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Rank of this process, if the launcher provides it.
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Number of ranks, if the launcher provides it.
    pub fn size(&self) -> Option<u32> {
        self.size
    }

    /// Equal in all processes of the job on this machine that share a pid namespace, and different in other jobs.
    pub(super) fn hash(&self) -> u64 {
        let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        hash(&format!(
            "{}\0{}\0{}",
            self.launcher,
            self.name,
            pids.display()
        ))
    }
}

/// FNV-1a. A fixed function: the programs of a job may be built by different compilers.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Name of the nearest `hydra_pmi_proxy` above this process, otherwise of the parent; true for a proxy. All ranks of one machine have the same proxy, perhaps
/// with a shell or debugger in between. Sessions and process groups differ between ranks.
fn hydra_proxy() -> (String, bool) {
    if let Some((pid, start)) = launcher_above() {
        return (format!("hydra {pid} {start}"), true);
    }
    let parent = parent_of("self").map_or(0, |(_, parent, _)| parent);
    let start = parent_of(&parent.to_string()).map_or(0, |(_, _, start)| start);
    (format!("parent {parent} {start}"), false)
}

/// Pid and start time of the nearest `hydra_pmi_proxy` above this process.
pub(crate) fn launcher_above() -> Option<(u32, u64)> {
    /// The name as the kernel cuts it, to 15 characters.
    const PROXY: &str = "hydra_pmi_proxy";
    let parent = parent_of("self").map_or(0, |(_, parent, _)| parent);
    let mut above = parent;
    // Deeper than any real nesting. The limit is needed because the reads are not one consistent state.
    for _ in 0..256 {
        if above <= 1 {
            break;
        }
        let Some((command, next, start)) = parent_of(&above.to_string()) else {
            break;
        };
        if command == PROXY {
            return Some((above, start));
        }
        above = next;
    }
    None
}

/// Command, parent and start time of a process.
fn parent_of(process: &str) -> Option<(String, u32, u64)> {
    let stat = descriptor::proc_text(&format!("/proc/{process}/stat")).ok()??;
    let (before, _) = stat.rsplit_once(") ")?;
    let command = before.split_once('(')?.1.to_owned();
    let field = |nth| descriptor::field_in(&stat, nth);
    Some((command, field(4)?.try_into().ok()?, field(22)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::fuzz::among;

    fn named(variables: &[(&str, &str)]) -> Result<JobName> {
        JobName::from_variables(&among(variables), &|| ("hydra 7 8".into(), true))
    }

    fn parts(variables: &[(&str, &str)]) -> (String, Option<u32>, Option<u32>) {
        let job = named(variables).unwrap();
        (job.to_string(), job.rank(), job.size())
    }

    /// The variables that Open MPI 4.1 sets for its processes.
    const OMPI: [(&str, &str); 6] = [
        ("PMIX_NAMESPACE", "718733313"),
        ("PMIX_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_MCA_ess_base_jobid", "718733313"),
        ("OMPI_MCA_orte_precondition_transports", "b89-4ef"),
    ];

    #[test]
    fn each_launcher_is_understood() {
        let unipgas = [
            ("UNIPGAS_JOB", "1:2:3"),
            ("UNIPGAS_RANK", "0"),
            ("UNIPGAS_SIZE", "4"),
        ];
        assert_eq!(parts(&unipgas), ("unipgas:1:2:3".into(), Some(0), Some(4)));
        assert_eq!(
            parts(&OMPI),
            ("pmix:718733313 b89-4ef".into(), Some(1), Some(2))
        );
        assert_eq!(
            parts(&OMPI[2..]),
            ("ompi:718733313 b89-4ef".into(), Some(1), Some(2))
        );
        let hydra = [("PMI_RANK", "3"), ("PMI_SIZE", "4")];
        assert_eq!(parts(&hydra), ("pmi:hydra 7 8".into(), Some(3), Some(4)));
        let slurm = [
            ("SLURM_JOB_ID", "9"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "6"),
        ];
        assert_eq!(parts(&slurm), ("slurm:9.0".into(), Some(5), Some(6)));
        assert_eq!(parts(&[]), ("hand:hand".into(), None, None));
        assert_eq!(
            parts(&[("UNIPGAS_JOB_NAME", "two\nlines"), ("PMI_RANK", "")]),
            ("hand:two\\nlines".into(), None, None)
        );
    }

    #[test]
    fn the_first_launcher_counts() {
        let mut both = vec![("UNIPGAS_JOB", "1:2:3"), ("UNIPGAS_RANK", "0")];
        both.extend(OMPI);
        assert_eq!(named(&both).unwrap().launcher(), Launcher::Unipgas);
        let batch = [("SLURM_JOB_ID", "9"), ("SLURM_PROCID", "0")];
        assert_eq!(named(&batch).unwrap().launcher(), Launcher::Hand);
        let mut ompi = vec![("UNIPGAS_JOB_NAME", "x"), ("PMI_RANK", "8")];
        ompi.extend(OMPI);
        assert_eq!(named(&ompi).unwrap().launcher(), Launcher::Pmix);
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for variables in [
            &[("PMI_RANK", "x")][..],
            &[("PMI_RANK", "4"), ("PMI_SIZE", "4")],
            &[("PMI_RANK", "-1")],
            &[("PMI_RANK", "1\n2")],
            &[("UNIPGAS_JOB", "1:2:3")],
        ] {
            let error = named(variables).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn hashes_tell_jobs_apart() {
        let (one, two) = (JobName::by_hand("one"), JobName::by_hand("two"));
        assert_eq!(one.hash(), JobName::by_hand("one").hash());
        assert_ne!(one.hash(), two.hash());
        let ranked = named(&[
            ("SLURM_JOB_ID", "one"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "0"),
        ]);
        assert_ne!(ranked.unwrap().hash(), one.hash());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks for the parent process")]
    fn the_parent_has_a_start_time() {
        let (command, parent, start) = parent_of("self").unwrap();
        assert!(!command.is_empty() && start > 0);
        assert_eq!(parent, std::os::unix::process::parent_id());
        let me = crate::job::board::process_start_time(std::process::id()).unwrap();
        assert_eq!(start, me);
    }
}
