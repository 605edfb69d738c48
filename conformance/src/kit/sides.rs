//! The two sides of a link between hosts.

use rustix::process::{Pid, Signal, getppid, kill_process};

use crate::law::Ctx;
use crate::stall::{LOOK, Looks};

/// The rank on the lost host.
const CUTTER: u32 = 1;

/// How the others lose a host: [`Sides::cut`] or [`Sides::kill_launcher`].
pub(crate) type Lose = fn(&Sides, &Ctx);

/// The ranks on each side when a host is lost.
pub(crate) struct Sides {
    /// Of this process, which may have children that are asked to kill it.
    launcher: Option<Pid>,
    here: Vec<u32>,
    lost: Vec<u32>,
    me: u32,
}

impl Sides {
    /// All ranks together find out.
    pub(crate) fn find(ctx: &Ctx) -> Result<Sides, String> {
        ctx.tell(&[u8::from(ctx.is_afar(CUTTER))]);
        ctx.sync();
        let side = |rank: u32| {
            ctx.told(rank)
                .ok_or(format!("rank {rank} has told nothing"))
        };
        let mine = side(ctx.rank)?;
        let (mut here, mut lost) = (Vec::new(), Vec::new());
        for rank in 0..ctx.size {
            match side(rank)? == mine {
                true => here.push(rank),
                false => lost.push(rank),
            }
        }
        let me = ctx.rank;
        Ok(Sides {
            launcher: getppid(),
            here,
            lost,
            me,
        })
    }

    /// This rank, and the ranks that it can reach after the cut.
    pub(crate) fn here(&self) -> &[u32] {
        &self.here
    }

    /// The others.
    pub(crate) fn lost(&self) -> &[u32] {
        &self.lost
    }

    /// The next one and the one before on this side.
    pub(crate) fn around(&self) -> (u32, u32) {
        let at = self.here.iter().position(|rank| *rank == self.me);
        let (at, len) = (at.unwrap_or(0), self.here.len());
        (self.here[(at + 1) % len], self.here[(at + len - 1) % len])
    }

    /// The link goes down.
    pub(crate) fn cut(&self, ctx: &Ctx) {
        if ctx.rank == CUTTER {
            ctx.cuts();
        }
    }

    /// The launcher of a host is killed, and the ranks of that side with it. The other side has then seen the last meeting of all ranks: a process that replaces
    /// a rank there counts its meetings from it.
    pub(crate) fn kill_launcher(&self, ctx: &Ctx) {
        const MET: &[u8] = b"met";
        if ctx.rank != CUTTER {
            ctx.tell(MET);
        } else if let Some(launcher) = self.launcher {
            let mut looks = Looks::for_the("the other side to have met");
            while self
                .lost
                .iter()
                .any(|rank| ctx.told(*rank).as_deref() != Some(MET))
            {
                looks.pause(LOOK);
            }
            // If the kill fails, the law waits for a loss that does not happen.
            let _ = kill_process(launcher, Signal::KILL);
        }
    }
}
