//! How a group comes into being: each member lists its arena, and those that the first barrier begins with are waited for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use once_cell::race::OnceBox;

use super::arena::{Arena, areas};
use super::gates::{self, Way};
use super::{FIRST, Group, Walk};
use crate::exclusive::Exclusive;
use crate::region::Rights;
use crate::schedule::{Shapes, Step};
use crate::world::World;
use crate::{Deadline, Error, Result};

/// Pauses between looks for the arena of a member, which does not ring when it lists it.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
/// Looks before the first pause.
const LOOKS: u32 = 64;

/// A group that is being formed; see [`Forming::advance`]. Dropping it gives up.
pub struct Forming {
    /// Until it is formed.
    group: Option<Box<Group>>,
    /// Members whose arenas the first barrier needs before it knows that all are there, the next one last.
    awaited: Vec<u32>,
    /// All have met.
    met: bool,
}

impl Forming {
    /// Begins to form the group of `members` (ranks in ascending order, this one among them). `name` tells this group from
    /// others that the same members form, and must be the same at all of them. Errors: [`Error::InvalidArgument`];
    /// [`Error::Exhausted`].
    pub fn new(world: &Arc<World>, members: &[u32], name: [u64; 2]) -> Result<Self> {
        let n = members.len() as u32;
        let (job, engine) = (world.job(), world.engine());
        let suggested = job.each_host().and_then(|each| engine.shapes(n, each));
        let shapes = suggested.unwrap_or_else(|| Shapes::usual(n, job.gathers(n)));
        Forming::shaped(world, members, name, shapes)
    }

    /// As [`Forming::new`], with shapes that suit the network between the members. All of them must give the same: what each decides from must be what
    /// all know, as the number of members and where the ranks are.
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
            group: Some(Box::new(Group {
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

    /// Goes on until all members have begun to form the group. Errors: [`Error::Timeout`]: call again; [`Error::RankDead`].
    pub fn advance(&mut self, deadline: Deadline) -> Result<Group> {
        let group = self.group.as_ref().ok_or_else(formed_already)?;
        let engine = group.world.engine();
        let mut since = None;
        while let Some(member) = self.awaited.last() {
            let (mut looks, mut pause) = (0, PAUSE.0);
            engine.wait(
                deadline,
                // Also of those that are not waited for here: who has seen one die gives up, and lists nothing any more.
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
        // Nobody may use it before everybody has listed an arena.
        if !self.met {
            group.barrier(deadline)?;
            self.met = true;
        }
        self.conclude()
    }

    /// Whether other processes have become members since.
    pub fn is_outdated(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_outdated())
    }

    /// The group, where all members have met since they began to form it: nobody has to be waited for, or connected to.
    pub fn conclude(&mut self) -> Result<Group> {
        self.group
            .take()
            .map(|group| *group)
            .ok_or_else(formed_already)
    }
}

fn formed_already() -> Error {
    Error::InvalidArgument("the group has been formed already".into())
}

/// Whose arena a barrier's step uses before the barrier can know that all members are there.
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
