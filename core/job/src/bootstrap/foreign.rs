//! Launchers that start several processes without a known way to pass the ranks.
//!
//! Each process would be a job of one, with the result of one process, so the start is refused.

use unipgas_base::{Error, Result};

/// Variables with the number of processes.
const SIZES: [&str; 4] = [
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_LOCALNRANKS",
];

/// Slurm reserves step numbers from this one on, for a batch script or the shell of an allocation.
const SLURM_OWN_STEPS: u64 = 0xffff_fff0;

/// Refuses a job of one if the environment shows a launcher with several processes. `variable` returns the value of a variable.
///
/// # Errors
/// [`Error::InvalidArgument`] with the variables found, and the remedy.
pub(super) fn refuse(variable: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let Some(found) = several(variable) else {
        return Ok(());
    };
    let shown: Vec<String> = found
        .iter()
        .filter_map(|name| Some(format!("{name}={}", variable(name)?.escape_debug())))
        .collect();
    Err(Error::InvalidArgument(format!(
        "a launcher has started this process as one of several ({}), but tells no rank by PMIx or PMI: start the program by \
         `unipgas run -n N`, mpirun, mpiexec or srun --mpi=pmix, or a job of one by `unipgas run -n 1`",
        shown.join(", ")
    )))
}

/// The variables that show several processes. `None`: no such variables.
fn several(variable: &dyn Fn(&str) -> Option<String>) -> Option<Vec<&'static str>> {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok();
    if let Some(size) = SIZES
        .into_iter()
        .find(|name| number(name).is_some_and(|size| size > 1))
    {
        return Some(vec![size]);
    }
    // A PMIx server may set the rank, but not the size.
    if variable("PMIX_NAMESPACE").is_some() && number("PMIX_RANK").is_some_and(|rank| rank > 0) {
        return Some(vec!["PMIX_NAMESPACE", "PMIX_RANK"]);
    }
    // A shell in an allocation has a job, but is not a task of a step with several.
    let step = ["SLURM_STEP_ID", "SLURM_STEPID"]
        .into_iter()
        .find(|name| number(name).is_some_and(|step| step < SLURM_OWN_STEPS))?;
    number("SLURM_PROCID")?;
    let size = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]
        .into_iter()
        .find(|name| variable(name).is_some())?;
    (number(size)? > 1).then(|| vec![step, "SLURM_PROCID", size])
}

#[cfg(test)]
mod tests {
    use super::super::fuzz::among;
    use super::*;

    fn refused(variables: &[(&str, &str)]) -> Option<String> {
        let refused = refuse(&among(variables)).err()?;
        Some(refused.to_string())
    }

    #[test]
    fn launchers_of_several_are_named() {
        for variables in [
            &[("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")][..],
            &[("PMI_SIZE", "4"), ("PMI_RANK", "0")],
            &[("MPI_LOCALNRANKS", "3")],
            &[("PMIX_NAMESPACE", "x"), ("PMIX_RANK", "1")],
            &[
                ("SLURM_JOB_ID", "9"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_NUM_TASKS", "2"),
            ],
            &[
                ("SLURM_STEPID", "1"),
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "2"),
            ],
        ] {
            let text = refused(variables).expect("several processes");
            assert!(
                text.contains("unipgas run -n N") && text.lines().count() == 1,
                "{text}"
            );
            let named = variables
                .iter()
                .any(|(name, value)| text.contains(&format!("{name}={value}")));
            assert!(named, "{text}");
        }
    }

    #[test]
    fn jobs_of_one_and_shells_in_allocations_are_right() {
        for variables in [
            &[][..],
            &[
                ("OMPI_COMM_WORLD_SIZE", "1"),
                ("PMIX_NAMESPACE", "x"),
                ("PMIX_RANK", "0"),
            ],
            &[("PMI_SIZE", "1"), ("MPI_LOCALNRANKS", "1")],
            // salloc.
            &[("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "8")],
            // sbatch.
            &[
                ("SLURM_JOB_ID", "9"),
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "8"),
            ],
            // salloc with a shell on the first node.
            &[
                ("SLURM_STEP_ID", "4294967290"),
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "8"),
            ],
            // srun -n 1 in an allocation of more.
            &[
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_NTASKS", "8"),
                ("SLURM_STEP_NUM_TASKS", "1"),
            ],
        ] {
            assert_eq!(refused(variables), None, "{variables:?}");
        }
    }
}
