//! Queue groups (`GASPI_Queue_Group.h`): ranges of queues. Each call gets a queue of the range, in turn or by its processor.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use unipgas_core::calls::Call;
use unipgas_core::numa;

use crate::config::QUEUE_MAX;
use crate::process::GaspiProcess;
use crate::status::{Result, Status};

/// Most queue groups of a process (`gaspi_queue_group_max`).
pub const QUEUE_GROUP_MAX: usize = 16;

/// Most NUMA nodes of the kernel.
const NODES: u32 = 1 << 10;

/// Weight of a queue group for the reclaim threshold.
const WEIGHT: usize = 1;

/// The rule that selects the queue of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The next queue of the range.
    Default,
    /// The queue of the current processor. With enough queues, processors of different NUMA nodes share no queue.
    Processor,
}

/// A range of queues.
pub(crate) struct QueueGroup {
    first: u8,
    num: u8,
    next: AtomicU32,
    /// The queue of each processor, for [`Policy::Processor`].
    of_processors: Option<Box<[u8]>>,
}

impl QueueGroup {
    fn queue(&self) -> u8 {
        let nth = match &self.of_processors {
            None => self.next.fetch_add(1, Ordering::Relaxed) % u32::from(self.num),
            Some(table) => {
                let processor = rustix::thread::sched_getcpu();
                let known = table.get(processor).copied();
                known.map_or(processor as u32 % u32::from(self.num), u32::from)
            }
        };
        self.first + nth as u8
    }
}

/// The queue of each processor, from 0 to `num` - 1. `nodes`: the allowed processors of each NUMA node.
fn table(num: u8, nodes: &[Vec<u32>]) -> Box<[u8]> {
    let last = nodes.iter().flatten().max().map_or(0, |last| last + 1);
    let mut table: Box<[u8]> = (0..last).map(|cpu| (cpu % u32::from(num)) as u8).collect();
    let (num, count) = (usize::from(num), nodes.len());
    for (nth, processors) in nodes.iter().enumerate() {
        // Node `nth` has the queues `begin..end`. With fewer queues than nodes, neighbour nodes share a queue.
        let begin = nth * num / count;
        let end = ((nth + 1) * num / count).max(begin + 1);
        for (at, cpu) in processors.iter().enumerate() {
            table[*cpu as usize] = (begin + at % (end - begin)) as u8;
        }
    }
    table
}

/// The allowed processors of this thread, by NUMA node.
fn nodes() -> Vec<Vec<u32>> {
    let mut left = numa::current_affinity();
    let mut nodes = Vec::new();
    for node in 0..NODES {
        if left.is_empty() {
            break;
        }
        let all = numa::processors(node).unwrap_or_default();
        let (here, rest): (Vec<u32>, Vec<u32>) = left.iter().partition(|cpu| all.contains(cpu));
        left = rest;
        nodes.extend(Some(here).filter(|here| !here.is_empty()));
    }
    nodes.extend(Some(left).filter(|left| !left.is_empty()));
    nodes
}

impl GaspiProcess {
    fn queue_group(&self, group: u8) -> Result<&AtomicPtr<QueueGroup>> {
        let place = self.queue_groups.get(usize::from(group));
        place.ok_or(Status::ErrInvNum)
    }

    /// Creates a group of `num` queues from `first` on. The queues need not exist. Errors: [`Status::ErrInvNum`]: invalid group number, or 0
    /// queues; [`Status::ErrInvQueue`]: the range exceeds `gaspi_queue_max`; [`Status::Error`]: the group exists.
    pub fn queue_group_create(&self, group: u8, first: u8, num: u32, policy: Policy) -> Result<()> {
        let place = self.queue_group(group)?;
        if num == 0 {
            return Err(Status::ErrInvNum);
        }
        if u32::from(first) >= QUEUE_MAX || num > QUEUE_MAX - u32::from(first) {
            return Err(Status::ErrInvQueue);
        }
        let num = num as u8;
        let made = Box::into_raw(Box::new(QueueGroup {
            first,
            num,
            next: AtomicU32::new(0),
            of_processors: (policy == Policy::Processor).then(|| table(num, &nodes())),
        }));
        let stored = place.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Relaxed);
        if stored.is_err() {
            // SAFETY:
            // - from Box::into_raw above, and not stored.
            drop(unsafe { Box::from_raw(made) });
            return Err(Status::Error);
        }
        Ok(())
    }

    /// Deletes a queue group. Its queues stay. Errors: [`Status::ErrInvNum`]: invalid group number; [`Status::Error`]: no such group.
    pub fn queue_group_delete(&self, group: u8) -> Result<()> {
        let group = self.queue_group(group)?.swap(null_mut(), Ordering::AcqRel);
        if group.is_null() {
            return Err(Status::Error);
        }
        // SAFETY:
        // - from Box::into_raw in `queue_group_create`. Only this thread has it after the swap.
        self.reclaimer
            .retire(unsafe { Box::from_raw(group) }, WEIGHT);
        Ok(())
    }

    /// A queue of the group for the next request of this call. Errors: as [`GaspiProcess::queue_group_delete`].
    pub fn queue_group_get_queue(&self, group: u8) -> Result<u8> {
        let call = self.call();
        self.queue_in_group(&call, group)
    }

    /// As [`GaspiProcess::queue_group_get_queue`].
    #[inline]
    pub(crate) fn queue_in_group(&self, _call: &Call, group: u8) -> Result<u8> {
        let group = self.queue_group(group)?.load(Ordering::Acquire);
        // SAFETY:
        // - null, or from Box::into_raw. A deleted group is not freed before the calls end that may have found it.
        let group = unsafe { group.as_ref() };
        group.map(QueueGroup::queue).ok_or(Status::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_no_queue_where_there_are_enough() {
        let nodes = [vec![0, 1, 4], vec![2, 3]];
        assert_eq!(*table(4, &nodes), [0, 1, 2, 3, 0]);
        assert_eq!(*table(3, &nodes), [0, 0, 1, 2, 0]);
        assert_eq!(*table(1, &nodes), [0, 0, 0, 0, 0]);
        let four = [vec![0], vec![1], vec![2], vec![3]];
        assert_eq!(*table(2, &four), [0, 0, 1, 1]);
        assert!(table(3, &[]).is_empty());
    }

    #[test]
    fn each_processor_has_one_node() {
        let allowed = numa::current_affinity();
        let mut all: Vec<u32> = nodes().concat();
        all.sort_unstable();
        assert_eq!(all, allowed);
    }
}
