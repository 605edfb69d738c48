//! Environment variables of other launchers, and of `unipgas run`.

use super::environment::{Environment, neighbours};
use super::{foreign, pmix};
use crate::job::board::{MAX_SIZE, parse_token};
use crate::rendezvous::JobName;

/// The values of these variables by their names.
pub(crate) fn among(all: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    move |name| {
        let found = all.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

/// Variables, one in each line.
pub(crate) fn environment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let all: Vec<(&str, &str)> = lines.collect();
    let variable = among(&all);
    let _ = foreign::refuse(&variable);
    for (_, value) in &all {
        assert!(pmix::peers(value, 9).is_none_or(|ranks| ranks.len() <= 9));
        assert!(parse_token(value).is_none_or(|(pid, _, fd)| pid != 0 && fd >= 0));
    }
    let Ok(job) = JobName::from_variables(&variable, &|| ("proxy".into(), false)) else {
        return;
    };
    let _ = job.to_string();
    if let (Some(rank), Some(size)) = (job.rank(), job.size()) {
        assert!(rank < size);
        let _ = neighbours(&variable, size);
        let begun = Environment::new("a test", job, rank, size, None);
        assert_eq!(begun.is_ok(), size <= MAX_SIZE);
    }
}

pub(crate) fn environments() -> Vec<Vec<u8>> {
    let all = [
        "UNIPGAS_JOB=77:1234567:5\nUNIPGAS_RANK=1\nUNIPGAS_SIZE=4",
        "PMIX_NAMESPACE=a\nPMIX_RANK=0\nOMPI_COMM_WORLD_SIZE=3\nOMPI_COMM_WORLD_LOCAL_SIZE=3",
        "OMPI_MCA_ess_base_jobid=9\nOMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2",
        "PMI_RANK=3\nPMI_SIZE=65536\nPMI_JOBID=x\nMPI_LOCALNRANKS=4",
        "PMI_RANK=0\nPMI_SIZE=100000\nLIST=0,1, 3,8",
        "SLURM_JOB_ID=1\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_NTASKS=2\nSLURM_NNODES=1",
        "UNIPGAS_JOB_NAME=hand",
    ];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}
