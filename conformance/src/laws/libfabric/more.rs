//! FI_MORE: the provider may defer an operation until the next one, but must not defer it while the program waits.

use super::flags::One;
use super::kit::*;

laws! {
    polled with(&Plan::DEFAULT, 4096): "rma.more.poll", "fi_rma(3)", 2, [writemsg, readmsg, cq_read] + ordering,
        "reads and writes with FI_MORE that nothing follows are done when the queue is polled";
    peers with(&Plan::DEFAULT, 4096): "rma.more.peers", "fi_rma(3)", 3, [writemsg, atomicmsg, write, cq_read] + ordering,
        "each of several operations to several peers, all but the last with FI_MORE, is done and reported";
    mixed with(&Plan::DEFAULT, 256):
        "rma.more.mixed", "fi_rma(3), fi_msg(3), fi_atomic(3) §5", 2, [writemsg, readmsg, atomicmsg, sendmsg, recv, cq_read] + ordering,
        "so are operations of all kinds to one peer";
    sent with(&Plan::DEFAULT.order(FI_ORDER_SAS), 256): "msg.more", "fi_msg(3)", 2, [sendmsg, recv, cq_read] + ordering,
        "messages with FI_MORE that nothing follows are received, in order";
}

/// A piece of local memory and its remote place.
pub(super) struct Piece {
    part: libc::iovec,
    there: fi_rma_iov,
    to: u64,
    context: usize,
}

impl Piece {
    pub(super) fn new(bytes: &mut [u8], (to, addr, key): (u64, u64, u64), context: usize) -> Piece {
        let len = bytes.len();
        Piece {
            part: iovec(bytes.as_mut_ptr(), len),
            there: fi_rma_iov { addr, len, key },
            to,
            context,
        }
    }

    fn message(&self) -> fi_msg_rma {
        rma_msg(&self.part, self.to, &self.there, cx(self.context))
    }

    pub(super) fn write(&self, ep: *mut fid_ep, flags: u64) -> isize {
        call!(rma ep, writemsg(&self.message(), flags))
    }

    pub(super) fn read(&self, ep: *mut fid_ep, flags: u64) -> isize {
        call!(rma ep, readmsg(&self.message(), flags))
    }

    pub(super) fn send(&self, ep: *mut fid_ep, flags: u64) -> isize {
        let msg = plain_msg(&self.part, self.to, cx(self.context));
        call!(msg ep, sendmsg(&msg, flags))
    }
}

/// Waits for `count` completions, one for each context from 0.
fn told(job: &Job<'_>, count: usize) -> Verdict {
    let mut told = vec![false; count];
    for _ in 0..count {
        let context = job.tx.next()?.context();
        let seen = told.get(context);
        ensure_eq!(seen, Some(&false), "the completion of {context}");
        told[context] = true;
    }
    job.tx.is_empty()
}

fn polled(job: &Job<'_>) -> Verdict {
    let (rank, mut random) = (job.right(), job.ctx.random(job.rank.into()));
    for round in 0..many(job.ctx, 3) {
        // The larger counts exceed the number of deferred operations.
        let count = [1, 2, 16, 40][round as usize % 4];
        let mut bytes = random_bytes(&mut random, 64 * count);
        let pieces = |bytes: &mut [u8]| -> Vec<Piece> {
            let parts = bytes.chunks_mut(64).enumerate();
            parts
                .map(|(nth, part)| Piece::new(part, job.place(rank, 64 * nth), nth))
                .collect()
        };
        for piece in pieces(&mut bytes) {
            job.post(|| piece.write(job.ep, FI_MORE))?;
        }
        told(job, count)?;
        let mut back = vec![0u8; 64 * count];
        for piece in pieces(&mut back) {
            job.post(|| piece.read(job.ep, FI_MORE))?;
        }
        told(job, count)?;
        same(&back, &bytes, "what is read back")?;
    }
    Ok(())
}

fn peers(job: &Job<'_>) -> Verdict {
    let me = 64 * job.rank as usize;
    for round in 1..=many(job.ctx, 4) {
        let mut words: Vec<_> = (0..8u64)
            .map(|nth| (round << 8 | nth).to_le_bytes())
            .collect();
        let ranks = (0..8u32).map(|nth| (job.rank + 1 + nth) % job.size);
        let all = words.iter_mut().zip(ranks).enumerate();
        let all: Vec<_> = all
            .map(|(nth, (word, rank))| Piece::new(word, job.place(rank, 512 * nth + me), nth))
            .collect();
        for (nth, piece) in all.iter().enumerate() {
            let more = if nth < 7 { FI_MORE } else { 0 };
            job.post(|| piece.write(job.ep, more))?;
        }
        told(job, 8)?;
        job.meet();
        for nth in 0..8u32 {
            // The rank that writes word `nth` here.
            let from = (job.rank + 8 * job.size - 1 - nth) % job.size;
            let seen = job.memory.get(512 * nth as usize + 64 * from as usize);
            ensure_eq!(seen, round << 8 | u64::from(nth), "word {nth}");
        }
        job.meet();
    }
    Ok(())
}

fn mixed(job: &Job<'_>) -> Verdict {
    let rank = job.right();
    for round in 1..=many(job.ctx, 4) {
        let (mut written, mut sent) = (round.to_le_bytes(), (2 * round).to_le_bytes());
        let (mut read, mut received) = ([0; 8], [0; 8]);
        job.receive(&mut received, 9)?;
        let write = Piece::new(&mut written, job.place(rank, 8), 0);
        let send = Piece::new(&mut sent, job.place(rank, 0), 1);
        let mut add = One::told(2, job.place(rank, 16), SUM, round);
        let read_back = Piece::new(&mut read, job.place(rank, 8), 3);
        job.post(|| write.write(job.ep, FI_MORE))?;
        job.post(|| send.send(job.ep, FI_MORE))?;
        job.post(|| add.write(job.ep, FI_MORE))?;
        told(job, 3)?;
        job.post(|| read_back.read(job.ep, FI_MORE))?;
        let mut fetch = One::told(4, job.place(rank, 16), READ, 0);
        job.post(|| fetch.fetch(job.ep, 0))?;
        let mut contexts = [job.tx.next()?, job.tx.next()?].map(|one| one.context());
        contexts.sort_unstable();
        ensure_eq!(contexts, [3, 4], "the contexts");
        ensure_eq!(u64::from_le_bytes(read), round, "what is read back");
        ensure_eq!(fetch.result(), round * (round + 1) / 2, "the sum");
        job.rx.of(9)?;
        ensure_eq!(u64::from_le_bytes(received), 2 * round, "the message");
        job.meet();
    }
    Ok(())
}

fn sent(job: &Job<'_>) -> Verdict {
    for len in [8, 200, 5000] {
        let mut into = vec![vec![0u8; len]; 16];
        for (nth, buffer) in into.iter_mut().enumerate() {
            job.receive(buffer, nth)?;
        }
        job.meet();
        let mut bytes: Vec<_> = (0..16)
            .map(|nth| super::message::pattern(nth, len))
            .collect();
        for (nth, bytes) in bytes.iter_mut().enumerate() {
            let piece = Piece::new(bytes, job.place(job.right(), 0), nth);
            job.post(|| piece.send(job.ep, FI_MORE))?;
        }
        told(job, 16)?;
        for (nth, buffer) in into.iter().enumerate() {
            job.rx.of(nth)?;
            let expected = super::message::pattern(nth, len);
            same(buffer, &expected, &format!("message {nth} of {len} bytes"))?;
        }
        job.meet_and_progress();
    }
    Ok(())
}
