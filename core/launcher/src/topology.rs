//! The machine as hwloc sees it: processing units, cores, packages, NUMA nodes, caches; and binding to them.
//!
//! Only this module uses hwloc2. Some calls of that crate are unsound: `clippy.toml` forbids them. `Display` of a `TopologyObject` is unsound too. This
//! module copies its data out of hwloc once.

use std::fmt;

use hwloc2::{Bitmap, ObjectType, TopologyObject};
use rustix::thread::CpuSet;

use unipgas_core::descriptor::Reserved;
use unipgas_core::numa::current_affinity;
use unipgas_core::{Error, Result};

/// The processors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// No binding: the scheduler decides.
    None,
    /// The processing units of one core, by its index among [`Topology::usable_cores`].
    Core(usize),
    /// The processing units of one NUMA node, by its index among `Topology::usable_nodes`.
    Numa(usize),
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// The system's number of the node.
    pub os_index: u32,
    /// The system's numbers of its processing units, ascending; none for a node that is memory only.
    pub pus: Vec<u32>,
}

/// The part of the machine that this process's control group allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The system's numbers of all processing units (hardware threads), ascending.
    pub pus: Vec<u32>,
    /// The system's numbers of the processing units of each core.
    pub cores: Vec<Vec<u32>>,
    /// Number of packages (sockets).
    pub packages: usize,
    /// The NUMA nodes; at least one.
    pub nodes: Vec<NumaNode>,
    /// Number of level-3 caches.
    pub l3_count: usize,
    /// Bytes of one level-3 cache, if there is one.
    pub l3_bytes: Option<u64>,
    /// The processing units that the affinity of the calling thread allows, ascending.
    allowed: Vec<u32>,
}

impl Topology {
    /// Reads the machine. It takes milliseconds, so a start-up path should not call it without need. With the environment variable `HWLOC_SYNTHETIC` hwloc
    /// describes the machine given there.
    ///
    /// # Errors
    /// [`Error::Os`] if hwloc cannot read the machine.
    pub fn load() -> Result<Topology> {
        // hwloc keeps the root directory open, and more descriptors for a short time.
        let _reserved = Reserved::take();
        let topology = hwloc2::Topology::new()
            .ok_or_else(|| Error::Os("hwloc cannot read this machine".into()))?;
        let objects = |kind: ObjectType| -> Vec<&TopologyObject> {
            topology
                .depth_for_type(&kind)
                .map_or_else(|_| Vec::new(), |depth| topology.objects_at_depth(depth))
        };
        let mut pus: Vec<u32> = Vec::new();
        let mut nodes: Vec<NumaNode> = topology
            .object_at_root()
            .nodeset()
            .map_or_else(Vec::new, |set| members(&set))
            .into_iter()
            .map(|os_index| NumaNode {
                os_index,
                pus: Vec::new(),
            })
            .collect();
        if nodes.is_empty() {
            nodes.push(NumaNode {
                os_index: 0,
                pus: Vec::new(),
            });
        }
        for pu in objects(ObjectType::PU) {
            pus.push(pu.os_index());
            // A unit may be near several nodes (fast and large memory). It belongs to the first of them.
            let home = pu.nodeset().and_then(|set| members(&set).first().copied());
            let node = nodes
                .iter()
                .position(|node| Some(node.os_index) == home)
                .unwrap_or(0);
            nodes[node].pus.push(pu.os_index());
        }
        if pus.is_empty() {
            return Err(Error::Os(
                "hwloc finds no processing unit on this machine".into(),
            ));
        }
        pus.sort_unstable();
        for node in &mut nodes {
            node.pus.sort_unstable();
        }
        let mut cores: Vec<Vec<u32>> = objects(ObjectType::Core)
            .into_iter()
            .map(|core| core.cpuset().map_or_else(Vec::new, |set| members(&set)))
            .filter(|core| !core.is_empty())
            .collect();
        if cores.is_empty() {
            cores = pus.iter().map(|&pu| vec![pu]).collect();
        }
        let l3 = objects(ObjectType::L3Cache);
        let allowed = current_affinity()
            .into_iter()
            .filter(|cpu| pus.binary_search(cpu).is_ok())
            .collect();
        Ok(Topology {
            pus,
            cores,
            packages: objects(ObjectType::Package).len().max(1),
            nodes,
            l3_count: l3.len(),
            l3_bytes: l3
                .first()
                .and_then(|cache| cache.cache_attributes())
                .map(|attributes| attributes.size()),
            allowed,
        })
    }

    /// The cores that have a processing unit in the calling thread's affinity, reduced to those units. All cores, if the affinity has none of them (a
    /// synthetic machine).
    pub fn usable_cores(&self) -> Vec<Vec<u32>> {
        self.usable(self.cores.iter())
    }

    /// As [`usable_cores`](Topology::usable_cores), for NUMA nodes that have processing units.
    pub(crate) fn usable_nodes(&self) -> Vec<Vec<u32>> {
        self.usable(self.nodes.iter().map(|node| &node.pus))
    }

    fn usable<'a>(&'a self, groups: impl Iterator<Item = &'a Vec<u32>> + Clone) -> Vec<Vec<u32>> {
        let reduced: Vec<Vec<u32>> = groups
            .clone()
            .map(|group| {
                group
                    .iter()
                    .copied()
                    .filter(|cpu| self.allowed.binary_search(cpu).is_ok())
                    .collect()
            })
            .filter(|group: &Vec<u32>| !group.is_empty())
            .collect();
        if reduced.is_empty() {
            groups.filter(|group| !group.is_empty()).cloned().collect()
        } else {
            reduced
        }
    }

    /// The processing units of a binding; `None` for [`Binding::None`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a core or node that does not exist.
    pub(crate) fn cpus_of(&self, binding: Binding) -> Result<Option<Vec<u32>>> {
        let (groups, index, what) = match binding {
            Binding::None => return Ok(None),
            Binding::Core(index) => (self.usable_cores(), index, "cores"),
            Binding::Numa(index) => (self.usable_nodes(), index, "NUMA nodes with processors"),
        };
        let count = groups.len();
        groups.into_iter().nth(index).map(Some).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "cannot bind to number {index} of {what}: there are {count} (0 to {})",
                count - 1
            ))
        })
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(
            f,
            "{}, {}, {}, {}",
            plural(self.packages, "package"),
            plural(self.cores.len(), "core"),
            plural(self.pus.len(), "processing unit"),
            plural(self.nodes.len(), "NUMA node"),
        )?;
        if let Some(bytes) = self.l3_bytes {
            let each = if self.l3_count > 1 { " each" } else { "" };
            write!(
                f,
                ", {} of {} KiB{each}",
                plural(self.l3_count, "L3 cache"),
                bytes / 1024
            )?;
        }
        Ok(())
    }
}

/// A list of processing units as a set for system calls.
///
/// # Errors
/// [`Error::Exhausted`] for a unit beyond the fixed size of the set.
pub(crate) fn cpu_set(cpus: &[u32]) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(Error::Exhausted(format!(
                "processor numbers: binding reaches {} of them",
                CpuSet::MAX_CPU
            )));
        }
        set.set(cpu as usize);
    }
    Ok(set)
}

/// The members of a set, ascending. An infinite set (hwloc's "everything") gives an empty list.
fn members(set: &Bitmap) -> Vec<u32> {
    let Ok(last) = u32::try_from(set.last()) else {
        return Vec::new();
    };
    (0..=last).filter(|&id| set.is_set(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_consistent() {
        let topology = Topology::load().unwrap();
        assert!(!topology.usable_cores().is_empty() && !topology.usable_nodes().is_empty());
        let in_cores: usize = topology.cores.iter().map(Vec::len).sum();
        let in_nodes: usize = topology.nodes.iter().map(|node| node.pus.len()).sum();
        assert_eq!(
            (in_cores, in_nodes),
            (topology.pus.len(), topology.pus.len())
        );
        assert_eq!(topology.cpus_of(Binding::None), Ok(None));
        let beyond = topology.cpus_of(Binding::Core(topology.cores.len()));
        assert!(
            matches!(beyond, Err(Error::InvalidArgument(_))),
            "{beyond:?}"
        );
        assert!(matches!(
            topology.cpus_of(Binding::Numa(4096)),
            Err(Error::InvalidArgument(_))
        ));
    }

    #[test]
    fn nodes_are_those_of_the_kernel() {
        let topology = Topology::load().unwrap();
        for node in topology.nodes {
            let mut found = unipgas_core::numa::processors(node.os_index).unwrap();
            // hwloc omits units that the control group excludes.
            found.retain(|pu| topology.pus.contains(pu));
            assert_eq!(found, node.pus, "node {}", node.os_index);
        }
    }

    #[test]
    fn binding_narrows_the_affinity() {
        std::thread::spawn(|| {
            let first = Topology::load().unwrap().usable_cores()[0].clone();
            let topology = Topology::load().unwrap();
            let cpus = topology.cpus_of(Binding::Core(0)).unwrap().unwrap();
            rustix::thread::sched_setaffinity(None, &cpu_set(&cpus).unwrap()).unwrap();
            assert_eq!(current_affinity(), first);
            assert_eq!(Topology::load().unwrap().usable_cores(), [first]);
            assert!(
                (Topology::load().unwrap().cpus_of(Binding::Core(1))).is_err(),
                "a core outside the affinity is not usable"
            );
        })
        .join()
        .unwrap();
    }

    /// Checks the machine that `HWLOC_SYNTHETIC` names. Runs the test in a second process for that.
    fn on_machine(machine: &str, test: &str, check: impl FnOnce(Topology)) {
        if std::env::var_os("HWLOC_SYNTHETIC").is_some() {
            return check(Topology::load().unwrap());
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("topology::tests::{test}")])
            .env("HWLOC_SYNTHETIC", machine)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    fn two_packages_with_threads_and_nodes() {
        let machine = "pack:2 [numa] l3:1(size=33554432) core:4 pu:2";
        on_machine(machine, "two_packages_with_threads_and_nodes", |topology| {
            let count = (topology.pus.len(), topology.cores.len(), topology.packages);
            assert_eq!(count, (16, 8, 2));
            assert_eq!((topology.l3_count, topology.l3_bytes), (2, Some(32 << 20)));
            assert_eq!(topology.cores[3], [6, 7]);
            let os_index = topology.nodes.iter().map(|node| node.os_index);
            assert!(os_index.eq([0, 1]));
            assert!(topology.nodes[1].pus.iter().copied().eq(8..16));
            assert_eq!(
                topology.to_string(),
                "2 packages, 8 cores, 16 processing units, 2 NUMA nodes, 2 L3 caches of 32768 KiB each"
            );
        });
    }

    #[test]
    fn one_node_without_l3() {
        on_machine("pack:1 core:3 pu:1", "one_node_without_l3", |topology| {
            assert_eq!((topology.l3_count, topology.l3_bytes), (0, None));
            let node = NumaNode {
                os_index: 0,
                pus: vec![0, 1, 2],
            };
            assert_eq!(topology.nodes, [node]);
            assert_eq!(
                topology.to_string(),
                "1 package, 3 cores, 3 processing units, 1 NUMA node"
            );
        });
    }

    #[test]
    fn several_nodes_in_a_package() {
        let machine = "pack:2 group:2 [numa] core:2 pu:1";
        on_machine(machine, "several_nodes_in_a_package", |topology| {
            let pus: Vec<_> = topology.nodes.iter().map(|node| node.pus.clone()).collect();
            assert_eq!(pus, [[0, 1], [2, 3], [4, 5], [6, 7]]);
        });
    }
}
