use std::mem::MaybeUninit;
use std::ptr::null_mut;

use super::*;
use crate::laws::rcce::kit::{
    Bytes, Recv, Send, barrier, c, gives, iRCCE_WAIT_LIST, irecv, isend, ok,
};

/// Blocks are messages. All receives of a round are posted first and taken as they end.
struct Messages<'a> {
    ctx: &'a Ctx,
    places: Bytes,
    list: *mut iRCCE_WAIT_LIST,
    receiving: Vec<(u32, Recv)>,
    sending: Vec<(Bytes, Send)>,
}

impl Messages<'_> {
    fn receive(&mut self, round: usize) -> Verdict {
        for from in others(self.ctx) {
            let len = block(self.ctx, round, from, self.ctx.rank).len();
            let room = self.places.part(place(self.ctx, round, from), len);
            let receive = irecv(&room, from as i32)?.0;
            c!(iRCCE_add_recv_to_wait_list(self.list, receive.0));
            self.receiving.push((from, receive));
        }
        Ok(())
    }
}

impl Mesh for Messages<'_> {
    fn send(&mut self, round: usize, to: u32, block: &[u8]) -> Verdict {
        if self.receiving.is_empty() {
            self.receive(round)?;
        }
        let bytes = Bytes::of(block);
        self.sending.push((bytes, isend(&bytes, to as i32)?.0));
        Ok(())
    }

    fn come(&mut self, round: usize) -> Result<(u32, usize), String> {
        let (mut send, mut receive) = (null_mut(), null_mut());
        ok!(iRCCE_wait_any(self.list, &mut send, &mut receive));
        let nth = self.receiving.iter().position(|(_, open)| open.0 == receive);
        let nth = nth.ok_or("iRCCE_wait_any gave a request of nobody")?;
        let (from, _) = self.receiving.swap_remove(nth);
        Ok((from, block(self.ctx, round, from, self.ctx.rank).len()))
    }

    fn load(&self, at: usize, len: usize) -> Vec<u8> {
        self.places.part(at, len).get()
    }

    fn gone(&mut self) -> Verdict {
        for (bytes, send) in self.sending.drain(..) {
            send.wait()?;
            bytes.free();
        }
        Ok(())
    }
}

pub(super) fn run(ctx: &Ctx) -> Left {
    let list = Box::into_raw(Box::new(MaybeUninit::<iRCCE_WAIT_LIST>::uninit())).cast();
    c!(iRCCE_init_wait_list(list));
    let mut messages = Messages {
        ctx,
        places: Bytes::filled(places(ctx), 0),
        list,
        receiving: Vec::new(),
        sending: Vec::new(),
    };
    let left = rounds(ctx, &mut messages)?;
    barrier()?;
    messages.places.free();
    Ok(left)
}
