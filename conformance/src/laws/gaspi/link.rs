//! §3.9, §5.5: the link between hosts goes down during calls, or the launcher of a host is killed, and its ranks with it. Calls that need
//! the other side end with an error. The ranks of one side go on.

use super::kit::*;
use crate::kit::{Lose, Sides};

laws! {
    barrier_loses given(Sides::cut as Lose): "link.barrier", "§3.9, §5.5.1, §11.2", 4,
        [gaspi_barrier, gaspi_state_vec_get, gaspi_notify, gaspi_notify_waitsome] + needs_kill + needs_cut,
        "a barrier without end is an error when the link to some of the group goes down; the ranks of one host go on";
    wait_ends: "link.wait", "§3.9, §5.5.1, §8.3.2", 4,
        [gaspi_notify_waitsome, gaspi_state_vec_get, gaspi_notify] + needs_kill + needs_cut,
        "a wait without end for a notification is an error when the link between hosts goes down; the ranks of one host go on";
    writes_lose given(Sides::cut as Lose): "link.writes", "§3.6, §8.2.3", 4,
        [gaspi_write, gaspi_wait, gaspi_proc_ping, gaspi_queue_purge, gaspi_state_vec_get] + needs_kill + needs_cut,
        "requests across a link that goes down, or the wait for them, fail; a queue of requests to ranks of this side goes on, before gaspi_state_vec_get, too";
    barrier_loses given(Sides::kill_launcher as Lose): "link.launcher.barrier", "§3.9, §5.5.1, §11.2", 4,
        [gaspi_barrier, gaspi_state_vec_get, gaspi_notify, gaspi_notify_waitsome] + needs_kill + kills_launcher,
        "a barrier without end is an error when the launcher of a host is killed; the ranks of the other one go on, and nothing is left behind";
    writes_lose given(Sides::kill_launcher as Lose): "link.launcher.writes", "§3.6, §8.2.3", 4,
        [gaspi_write, gaspi_wait, gaspi_proc_ping, gaspi_queue_purge, gaspi_state_vec_get] + needs_kill + kills_launcher,
        "requests to ranks of a killed launcher, or the wait for them, fail; a queue of requests to others goes on";
}

const QUEUE: u8 = 1;

/// The ranks of the other side are corrupt, the ranks of this side are healthy, and notifications within this side arrive.
fn go_on(ctx: &Ctx, sides: &Sides) -> Verdict {
    for_all(sides.lost(), |lost| until_corrupt(ctx, *lost))?;
    let states = states(ctx)?;
    for here in sides.here() {
        ensure_eq!(states[*here as usize], 0, "state of rank {here}");
    }
    let (next, before) = sides.around();
    for number in 1..=50 {
        post::notify(0, next as u16, 2 + ctx.rank, number).ok(QUEUE, LONG)?;
        flush(QUEUE)?;
        ensure_eq!(notified(0, 2 + before)?, number, "a notification");
        // All ranks have reset their notification before the next one.
        ctx.sync();
    }
    Ok(())
}

fn begin(ctx: &Ctx, lose: Lose) -> Result<Sides, String> {
    let sides = Sides::find(ctx)?;
    segment(0, 4096)?;
    barrier()?;
    for other in others(ctx) {
        ok!(gaspi_write(0, 0, other, 0, 8, 8, QUEUE, LONG));
    }
    flush(QUEUE)?;
    barrier()?;
    ctx.sync();
    lose(&sides, ctx);
    Ok(sides)
}

fn barrier_loses(ctx: &Ctx, lose: Lose) -> Verdict {
    let sides = begin(ctx, lose)?;
    let mut code = SUCCESS;
    while code == SUCCESS {
        code = c!(gaspi_barrier(ALL, BLOCK));
    }
    must_fail(code, "gaspi_barrier")?;
    go_on(ctx, &sides)
}

fn wait_ends(ctx: &Ctx) -> Verdict {
    let sides = begin(ctx, Sides::cut)?;
    must_fail(waitsome(0, 0, 1, BLOCK), "gaspi_notify_waitsome")?;
    go_on(ctx, &sides)
}

fn writes_lose(ctx: &Ctx, lose: Lose) -> Verdict {
    let sides = begin(ctx, lose)?;
    let (next, _) = sides.around();
    let near = || -> Verdict {
        ok!(gaspi_write(0, 0, next as u16, 0, 16, 8, QUEUE, LONG));
        done!(gaspi_wait(QUEUE, BLOCK))
    };
    // Requests to the lost ranks use a separate queue, which is purged after each failure.
    const FAR: u8 = 2;
    for lost in sides.lost() {
        until_ok("requests across the link to fail", || {
            near()?;
            let posted = c!(gaspi_write(0, 0, *lost as u16, 0, 16, 8, FAR, LONG));
            let waited = c!(gaspi_wait(FAR, BLOCK));
            for code in [posted, waited] {
                let ended = code == SUCCESS || is_error(code);
                ensure!(ended, "a write to {lost} gave {}", code_name(code));
            }
            Ok(is_error(posted) || is_error(waited))
        })?;
        ok!(gaspi_queue_purge(FAR, LONG));
        ok!(gaspi_wait(FAR, LONG));
    }
    for lost in sides.lost() {
        let known = || Ok(is_error(c!(gaspi_proc_ping(*lost as u16, LONG))));
        until_ok("all that are lost to be known", known)?;
    }
    for_all(0..100, |_| near())?;
    // The other ranks of this side have finished their writes.
    ctx.sync();
    go_on(ctx, &sides)
}
