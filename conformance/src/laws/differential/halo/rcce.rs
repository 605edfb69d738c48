use super::*;
use crate::laws::rcce::kit::*;

pub(super) fn run(ctx: &Ctx) -> Left {
    let [(before, _), (after, _)] = neighbours(ctx).map(|(peer, side)| (peer as i32, side));
    let left = steps(ctx, |_, edges| {
        let sent = edges.map(Bytes::of);
        let [above, below] = [ABOVE, BELOW].map(|_| Bytes::filled(EDGE, 0xee));
        // With two ranks both neighbours are the same rank. It sends its first row first, and that row belongs below.
        let receives = [irecv(&below, after)?.0, irecv(&above, before)?.0];
        let sends = [isend(&sent[0], before)?.0, isend(&sent[1], after)?.0];
        for receive in receives {
            receive.wait()?;
        }
        for send in sends {
            send.wait()?;
        }
        sent.into_iter().for_each(Bytes::free);
        let come = [above.get(), below.get()];
        above.free();
        below.free();
        Ok(come)
    })?;
    barrier()?;
    Ok(left)
}
