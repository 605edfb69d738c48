//! Peers that C programs of this project measure.

use std::path::PathBuf;
use std::process::Command;

use super::build::Workshop;
use super::{LIMIT, Peer, tool};
use crate::case::{Case, Metric};
use crate::network::hosts::Placement;

/// A library, its compiler wrapper and its launcher.
#[derive(Default)]
pub(super) struct PeerProgram {
    name: &'static str,
    packages: &'static str,
    compiler: &'static str,
    libraries: &'static [&'static str],
    launcher: Option<&'static str>,
    /// Arguments of the launcher before the program.
    options: &'static str,
    source: &'static str,
    /// Name of the provider of libfabric.
    provider: Option<&'static str>,
    metrics: &'static [Metric],
    /// Environment variables of its processes.
    variables: &'static [(&'static str, &'static str)],
    /// The place of its processes, if they share no memory.
    place: Option<Placement>,
    ours: Option<Ours>,
    path: PathBuf,
}

/// The provider `unipgas`, for the program that measures it.
struct Ours {
    /// Its backend.
    backend: String,
    /// The library, or the reason why it is missing.
    library: Result<PathBuf, String>,
}

/// The programs pin their processes themselves, like all measured processes. On one machine, the shared-memory component is the fastest for one-sided
/// communication.
const OPEN_MPI: &str = "--bind-to none --oversubscribe --mca osc sm,pt2pt";

/// Open MPI.
pub fn openmpi() -> PeerProgram {
    PeerProgram {
        name: "openmpi",
        packages: "openmpi-bin libopenmpi-dev",
        compiler: "mpicc.openmpi",
        launcher: Some("mpirun.openmpi"),
        options: OPEN_MPI,
        source: include_str!("../../peers/mpi.c"),
        metrics: &[
            Metric::PutNotice,
            Metric::FetchAdd,
            Metric::PutRate,
            Metric::PairRate,
            Metric::Bandwidth,
            Metric::Barrier,
            Metric::Allreduce,
            Metric::Message,
            Metric::MessageBandwidth,
            Metric::Start,
            Metric::Memory,
        ],
        ..PeerProgram::default()
    }
}

/// Forces TCP, as on machines without shared memory and other networks. The component rdma refuses to make windows over TCP.
const OVER_TCP: &str =
    "--bind-to none --oversubscribe --mca pml ob1 --mca btl tcp,self --mca osc pt2pt";

/// Open MPI's messages and barriers over TCP.
pub fn openmpi_tcp(place: &Placement) -> PeerProgram {
    PeerProgram {
        options: OVER_TCP,
        metrics: &[
            Metric::PutNotice,
            Metric::PutRate,
            Metric::Bandwidth,
            Metric::Barrier,
            Metric::Message,
        ],
        variables: &[("PEER_WINDOWS", "no")],
        place: Some(place.clone()),
        ..openmpi()
    }
}

/// Open MPI's windows over TCP.
pub fn openmpi_windows(place: &Placement) -> PeerProgram {
    PeerProgram {
        name: "openmpi_windows",
        metrics: &[
            Metric::PutNotice,
            Metric::FetchAdd,
            Metric::PutRate,
            Metric::Bandwidth,
        ],
        variables: &[("PEER_WINDOWS", "only")],
        ..openmpi_tcp(place)
    }
}

/// MPICH, for its messages.
pub fn mpich() -> PeerProgram {
    PeerProgram {
        name: "mpich",
        packages: "mpich libmpich-dev",
        compiler: "mpicc.mpich",
        launcher: Some("mpirun.mpich"),
        options: "-bind-to none",
        source: include_str!("../../peers/mpi.c"),
        metrics: &[
            Metric::Message,
            Metric::MessageBandwidth,
            Metric::Start,
            Metric::Memory,
        ],
        ..PeerProgram::default()
    }
}

/// Open MPI's OpenSHMEM.
pub fn oshmem() -> PeerProgram {
    PeerProgram {
        name: "oshmem",
        packages: "openmpi-bin libopenmpi-dev",
        compiler: "oshcc",
        launcher: Some("oshrun"),
        options: OPEN_MPI,
        source: include_str!("../../peers/oshmem.c"),
        metrics: &[
            Metric::PutNotice,
            Metric::FetchAdd,
            Metric::PutRate,
            Metric::Bandwidth,
            Metric::Barrier,
        ],
        ..PeerProgram::default()
    }
}

const FABRIC: &[Metric] = &[
    Metric::FiFetchAdd,
    Metric::FiCompareSwap,
    Metric::FiInjectAtomic,
    Metric::FiSum,
    Metric::FiWrite,
    Metric::FiWriteBandwidth,
    Metric::FiReadBandwidth,
    Metric::FiMessage,
    Metric::FiTagged,
];

/// libfabric's shm provider.
pub fn libfabric() -> PeerProgram {
    PeerProgram {
        metrics: &[
            Metric::PutNotice,
            Metric::FetchAdd,
            Metric::PutRate,
            Metric::Bandwidth,
            Metric::FiFetchAdd,
            Metric::FiCompareSwap,
            Metric::FiInjectAtomic,
            Metric::FiSum,
            Metric::FiWrite,
            Metric::FiWriteBandwidth,
            Metric::FiReadBandwidth,
            Metric::FiMessage,
            Metric::FiTagged,
        ],
        ..provider("ofi_shm", "shm")
    }
}

/// libfabric's tcp provider.
pub fn libfabric_tcp() -> PeerProgram {
    provider("ofi_tcp", "tcp;ofi_rxm")
}

/// The provider `unipgas`, which libfabric loads from `library`, on `backend`.
pub fn unipgas(backend: &str, library: Result<PathBuf, String>) -> PeerProgram {
    PeerProgram {
        ours: Some(Ours {
            backend: backend.into(),
            library,
        }),
        ..provider("libfabric", "unipgas")
    }
}

fn provider(name: &'static str, provider: &'static str) -> PeerProgram {
    PeerProgram {
        name,
        packages: "gcc libfabric-dev",
        compiler: "cc",
        libraries: &["-lfabric"],
        source: include_str!("../../peers/libfabric.c"),
        provider: Some(provider),
        metrics: FABRIC,
        ..PeerProgram::default()
    }
}

impl PeerProgram {
    fn command(&self, processes: u32) -> Command {
        let Some(launcher) = self.launcher else {
            let mut command = Command::new(&self.path);
            if let Some(provider) = self.provider {
                command.env("PEER_PROVIDER", provider);
                command.env("PEER_COLUMN", self.name);
            }
            if let (Some(ours), Some(folder)) = (&self.ours, self.path.parent()) {
                command.env("UNIPGAS_BACKEND", &ours.backend);
                command.env("FI_PROVIDER_PATH", folder);
            }
            return command;
        };
        let mut command = Command::new(launcher);
        command.args(["-np", &processes.to_string()]);
        command.args(self.options.split_whitespace());
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        if processes as usize > cores && self.name.starts_with("openmpi") {
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        if let Some(place) = &self.place {
            // The launcher's files must not collide with other runs, which may use the same host names.
            let program = self.path.parent();
            command.env("OMPI_MCA_orte_tmpdir_base", program.unwrap_or(&self.path));
            if let Placement::Hosts(hosts) = place {
                let ranks: Vec<&str> = (0..processes as usize).map(|rank| hosts.of(rank)).collect();
                command.args(["--host", &ranks.join(","), "--map-by", "seq"]);
                command.args(["--mca", "plm_rsh_agent"]).arg(hosts.shell());
            }
        }
        for (name, value) in self.variables {
            command.env(name, value).args(["-x", name]);
        }
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
            .env("UCX_TLS", "posix,sysv,self")
            .env("UCX_LOG_LEVEL", "error");
        command.arg(&self.path);
        command
    }
}

impl Peer for PeerProgram {
    fn name(&self) -> &'static str {
        self.name
    }

    fn packages(&self) -> &'static str {
        self.packages
    }

    fn prepare(&mut self, workshop: &Workshop) -> Result<(), String> {
        if let Some(launcher) = self.launcher.filter(|l| !tool::exists(l)) {
            return Err(format!("no {launcher}"));
        }
        if let Some(Ours { library, .. }) = &self.ours {
            workshop.link(library.as_ref().map_err(String::clone)?, "libunipgas-fi.so")?;
        }
        self.path = workshop.compile(self.compiler, self.name, self.source, self.libraries)?;
        Ok(())
    }

    fn measure(&self, cases: &[Case], quick: bool) -> (String, Option<String>) {
        let wanted: Vec<&Case> = cases
            .iter()
            .filter(|c| self.metrics.contains(&c.metric))
            .collect();
        let Some(processes) = wanted.first().map(|c| c.processes) else {
            return (String::new(), None);
        };
        if self.launcher.is_none() && processes != 2 {
            return (String::new(), None);
        }
        let mut command = self.command(processes);
        command.arg(if quick { "1" } else { "0" });
        command.args(wanted.iter().map(|c| c.to_string()));
        command.env("PEER_BEGUN", crate::ctx::now_ns().to_string());
        match tool::run(&mut command, LIMIT) {
            Err(why) => (String::new(), Some(why)),
            Ok(ended) => {
                let got = wanted
                    .iter()
                    .filter(|c| ended.out.contains(&format!("{c} ")))
                    .count();
                let failure = match () {
                    () if ended.success() => None,
                    () if got == wanted.len() => Some(format!(
                        "ends with {} after all its measurements",
                        ended.how()
                    )),
                    () => Some(format!(
                        "{processes} processes: after {got} of {} cases: {}",
                        wanted.len(),
                        ended.why()
                    )),
                };
                (ended.out, failure)
            }
        }
    }
}
