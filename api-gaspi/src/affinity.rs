//! Binding of threads to a NUMA node, and processor lists as text.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use unipgas_core::{Error, Result, numa};

/// Binds all threads of this process to the processors of a NUMA node. `node` is the number that the system uses.
///
/// # Errors
/// [`Error::InvalidArgument`] if the node has no processors. [`Error::Os`] if the system refuses.
pub fn bind_to_node(node: u32) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in numa::processors(node)? {
        if (cpu as usize) < CpuSet::MAX_CPU {
            set.set(cpu as usize);
        }
    }
    let nothing = || Error::InvalidArgument(format!("no NUMA node {node} with processors"));
    if set.count() == 0 {
        return Err(nothing());
    }
    let refused = |e| match e {
        // The control group excludes all processors of the node.
        Errno::INVAL => nothing(),
        e => Error::os("cannot bind to a NUMA node (sched_setaffinity)", e),
    };
    // The caller first: threads that it starts later inherit the binding.
    sched_setaffinity(None, &set).map_err(refused)?;
    let threads = std::fs::read_dir("/proc/self/task")
        .map_err(|e| Error::Os(format!("cannot list the threads (/proc/self/task): {e}")))?;
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok());
        let Some(id) = id.and_then(Pid::from_raw) else {
            continue;
        };
        match sched_setaffinity(Some(id), &set) {
            // A thread that has just ended needs no binding.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(e) => return Err(refused(e)),
        }
    }
    Ok(())
}

/// Ascending numbers as ranges, such as `0-3,8`; `unknown` for none.
pub fn ranges(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "unknown".into();
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unipgas_core::numa::{current_affinity, processors};

    #[test]
    fn ranges_join_neighbours() {
        assert_eq!(ranges(&[]), "unknown");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[0, 1, 2, 4, 6, 7]), "0-2,4,6-7");
    }

    #[test]
    fn binding_reaches_threads_that_run_already() {
        let allowed = current_affinity();
        let (node, pus) = (0..64)
            .map(|node| (node, processors(node).expect("/sys lists nodes")))
            .find(|(_, pus)| pus.iter().any(|cpu| allowed.contains(cpu)))
            .expect("this thread runs on some node");
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let (narrow, is_narrow) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // One processor is narrower than a node with several processors: the test can see the change.
            let mut one = CpuSet::new();
            one.set(current_affinity()[0] as usize);
            sched_setaffinity(None, &one).expect("an allowed processor");
            narrow.send(()).expect("the test waits");
            waits.recv().expect("a word");
            current_affinity()
        });
        assert!(bind_to_node(4096).is_err());
        assert_eq!(current_affinity(), allowed, "a refused call has no effect");
        is_narrow.recv().expect("a word");
        bind_to_node(node).expect("the node is there");
        go.send(()).expect("the thread waits");
        let bound = current_affinity();
        assert!(bound.iter().all(|cpu| pus.contains(cpu)));
        assert_eq!(other.join().expect("no panic"), bound);
    }
}
