//! The two sides of a link between hosts.

use crate::law::Ctx;

/// The rank whose host is cut off.
const CUTTER: u32 = 1;

/// Who is on which side when a host's link is taken down.
pub(crate) struct Sides {
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
        Ok(Sides { here, lost, me })
    }

    /// This rank, and those that it can talk to after the cut.
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
}
