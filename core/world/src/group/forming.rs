//! Formation of a group: each member lists its arena, waits for the arenas that the first barrier needs first, and enters that barrier.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use once_cell::race::OnceBox;

use super::arena::{Arena, areas};
use super::gates::{self, Way};
use super::{FIRST, RankGroup, Walk};
use crate::world::World;
use unipgas_base::exclusive::Exclusive;
use unipgas_base::{Deadline, Error, Result, Rights};
use unipgas_schedule::{Shapes, Step};

/// Pauses between looks for a member's arena. The member does not ring when it lists the arena.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
/// Looks before the first pause.
const LOOKS: u32 = 64;

/// A group that is being formed; see [`Forming::advance`]. A drop gives the group up.
pub struct Forming {
    /// `None`: the group is formed.
    group: Option<Box<RankGroup>>,
    /// Members with arenas that the first barrier needs before it knows that all members exist. The next one is last.
    awaited: Vec<u32>,
    /// All members have met.
    met: bool,
}

impl Forming {
    /// Begins to form the group of `members`: ranks in ascending order, with this one. `name` distinguishes it from other groups of the same members, and must
    /// be the same at all of them. Errors: [`Error::InvalidArgument`]; [`Error::Exhausted`].
    pub fn new(world: &Arc<World>, members: &[u32], name: [u64; 2]) -> Result<Self> {
        let n = members.len() as u32;
        let (job, engine) = (world.job(), world.engine());
        let suggested = job.each_host().and_then(|each| engine.shapes(n, each));
        let shapes = suggested.unwrap_or_else(|| Shapes::usual(n, job.gathers(n)));
        Forming::shaped(world, members, name, shapes)
    }

    /// As [`Forming::new`], with shapes that suit the network between the members. All members must pass the same shapes. So the shapes may depend only on
    /// common knowledge: the number of members, and the hosts of the ranks.
    pub fn shaped(
        world: &Arc<World>,
        members: &[u32],
        name: [u64; 2],
        shapes: Shapes,
    ) -> Result<Self> {
        let me = members
            .iter()
            .position(|rank| *rank == world.rank())
            .ok_or_else(|| {
                Error::InvalidArgument("this process is not a member of the group".into())
            })?;
        if members.iter().any(|rank| *rank >= world.size()) || !members.is_sorted_by(|a, b| a < b) {
            return Err(Error::InvalidArgument(
                "members must be distinct ranks in ascending order".into(),
            ));
        }
        let n = members.len() as u32;
        let (all, len) = areas(n, me as u32, shapes);
        let arena = world
            .engine()
            .allocate(len + 2 * gates::ROOM, Rights::FULL)?;
        let key = arena.key();
        let arena = Arena::new(arena)?;
        let endpoint = world.engine().endpoint(u32::MAX)?;
        let place = world.directory().list_group(name, &key)?;
        let mut awaited: Vec<u32> = all[0].0.steps.iter().filter_map(first_needed).collect();
        awaited.reverse();
        let has_gates = n > 1 && world.engine().gates().is_some();
        let way = |at| match has_gates {
            true => Way::Later(at),
            false => Way::Schedule,
        };
        let ways = [way(len), way(len + gates::ROOM), Way::Schedule];
        let mut ways = ways.into_iter();
        let [barrier, reduce, broadcast] = all.map(|(schedule, area)| {
            Exclusive::new(Walk {
                schedule,
                area,
                number: FIRST,
                at: 0,
                begun: false,
                running: false,
                counting: None,
                met: false,
                tells: None,
                passed: 0,
                way: ways.next().unwrap_or(Way::Schedule),
                held: Vec::new(),
                kept: Vec::new(),
            })
        });
        Ok(Forming {
            group: Some(Box::new(RankGroup {
                world: world.clone(),
                members: members.into(),
                incarnations: members
                    .iter()
                    .map(|rank| world.incarnation_of(*rank))
                    .collect(),
                name,
                shapes,
                arena,
                peers: members.iter().map(|_| OnceBox::new()).collect(),
                endpoint,
                place,
                listed: AtomicBool::new(true),
                barrier,
                reduce,
                broadcast,
            })),
            awaited,
            met: false,
        })
    }

    /// Continues until all members have begun to form the group. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`].
    pub fn advance(&mut self, deadline: Deadline) -> Result<RankGroup> {
        let group = self.group.as_ref().ok_or_else(formed_already)?;
        let engine = group.world.engine();
        let mut since = None;
        while let Some(member) = self.awaited.last() {
            let (mut looks, mut pause) = (0, PAUSE.0);
            engine.wait(
                deadline,
                // Checks all members, not only the awaited one: a member that sees a death gives up, and lists no arena.
                &mut || group.check(&mut since),
                || {
                    looks += 1;
                    if looks > LOOKS {
                        std::thread::sleep(pause);
                        pause = (pause * 2).min(PAUSE.1);
                    }
                    Ok(group.find(*member, deadline)?.map(|_| ()))
                },
            )?;
            self.awaited.pop();
        }
        // The group is usable only after all members have listed an arena.
        if !self.met {
            group.barrier(deadline)?;
            self.met = true;
        }
        self.conclude()
    }

    /// Whether a member's process has been replaced.
    pub fn is_outdated(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_outdated())
    }

    /// Returns the group. All members must have met since they began to form it. The call does not wait, or connect to a member.
    pub fn conclude(&mut self) -> Result<RankGroup> {
        self.group
            .take()
            .map(|group| *group)
            .ok_or_else(formed_already)
    }
}

fn formed_already() -> Error {
    Error::InvalidArgument("the group has been formed already".into())
}

/// The member with an arena that the step needs before the barrier knows that all members exist.
fn first_needed(step: &Step) -> Option<u32> {
    match step {
        Step::Signal { to, .. } | Step::Send { to, .. } => Some(*to),
        Step::Meet { .. } => Some(0),
        Step::Await { .. }
        | Step::Combine { .. }
        | Step::Take { .. }
        | Step::Keep
        | Step::CombineKept => None,
    }
}
