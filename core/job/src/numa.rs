//! NUMA nodes and processors, from the kernel's lists. Only the launcher uses hwloc, since the libraries do not link it.

use std::path::Path;

use rustix::thread::CpuSet;

use unipgas_base::{Error, Result, descriptor};

const NODES: &str = "/sys/devices/system/node";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The processing units of the NUMA node with the system's number `node`, ascending. Empty: no such node, or a node with memory only. A machine that lists
/// no nodes has one, 0.
///
/// # Errors
/// [`Error::Os`] if /sys cannot be read, or is malformed.
pub fn processors(node: u32) -> Result<Vec<u32>> {
    let list = if Path::new(NODES).exists() {
        Path::new(NODES).join(format!("node{node}/cpulist"))
    } else if node == 0 {
        ONLINE.into()
    } else {
        return Ok(Vec::new());
    };
    match descriptor::read_text(&list) {
        Ok(text) => parse(&text).ok_or_else(|| {
            Error::Os(format!(
                "{} is no list of processors: {text:?}",
                list.display()
            ))
        }),
        Err(rustix::io::Errno::NOENT) if list != Path::new(ONLINE) => Ok(Vec::new()),
        Err(e) => Err(Error::Os(format!("cannot read {}: {e}", list.display()))),
    }
}

/// Limit of the number of processors, above each kernel's.
const MOST: usize = 1 << 16;

/// A list such as `0-3,8`.
pub(super) fn parse(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last.saturating_sub(first) as usize >= MOST - all.len().min(MOST) {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// The processing units that the calling thread may run on, ascending.
pub fn current_affinity() -> Vec<u32> {
    rustix::thread::sched_getaffinity(None).map_or_else(
        |_| Vec::new(),
        |set| {
            (0..CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .map(|cpu| cpu as u32)
                .collect()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse("\n"), Some(vec![]));
        assert_eq!(parse("1-x"), None);
        assert_eq!(parse("0-30003000"), None);
    }

    #[test]
    fn a_node_that_is_not_there_has_no_processors() {
        assert_eq!(processors(4096), Ok(vec![]));
    }
}
