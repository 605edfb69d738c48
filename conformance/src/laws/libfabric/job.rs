//! The argument of a body in [`with`]: an endpoint with the addresses of all ranks, and memory that all ranks may access.

use super::kit::*;

/// Another rank's endpoint and memory.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) base: u64,
}

/// The argument of a body in [`with`].
pub(crate) struct Job<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) station: Station,
    pub(crate) ep: *mut fid_ep,
    pub(crate) tx: Queue,
    pub(crate) rx: Queue,
    pub(crate) memory: Memory,
    pub(crate) registered: Registered,
    pub(crate) peers: Vec<Peer>,
}

impl Job<'_> {
    /// The next rank.
    pub(crate) fn right(&self) -> u32 {
        (self.rank + 1) % self.size
    }

    /// The previous rank.
    pub(crate) fn left(&self) -> u32 {
        (self.rank + self.size - 1) % self.size
    }

    pub(crate) fn peer(&self, rank: u32) -> Peer {
        self.peers[rank as usize]
    }

    /// Address, remote address and key of byte `at` of a rank's memory.
    pub(crate) fn place(&self, rank: u32, at: usize) -> (u64, u64, u64) {
        let peer = self.peer(rank);
        (peer.address, peer.base + at as u64, peer.key)
    }

    /// Waits for all ranks. Makes no libfabric call.
    pub(crate) fn meet(&self) {
        self.ctx.sync();
    }

    /// As [`meet`](Self::meet), with progress calls. Operations in flight without a completion need them under manual progress.
    pub(crate) fn meet_and_progress(&self) {
        self.ctx.sync_while(&mut || self.tx.progress());
    }

    /// The word at byte `at` of a rank's memory.
    pub(crate) fn words(&self, rank: u32, at: usize) -> Words {
        Words::new(self.ep, self.place(rank, at))
    }

    /// What a rank has published.
    pub(crate) fn heard(&self, rank: u32) -> Vec<u8> {
        self.ctx.told(rank).unwrap_or_default()
    }

    /// The address of the endpoint whose name a rank has published.
    pub(crate) fn known(&self, rank: u32) -> Result<u64, String> {
        self.station.insert(&self.heard(rank))
    }

    /// Removes an address.
    pub(crate) fn forget(&self, mut address: u64) -> Verdict {
        ok!(obj self.station.av, remove(&mut address, 1, 0));
        Ok(())
    }

    /// Posts an operation; retries on -FI_EAGAIN.
    pub(crate) fn post(&self, call: impl FnMut() -> isize) -> Verdict {
        post(call, || {
            self.tx.progress();
            Ok(())
        })
    }

    /// Sends a message to a rank.
    pub(crate) fn send(&self, to: u32, bytes: &[u8], context: usize) -> Verdict {
        let to = self.peer(to).address;
        self.post(|| send_as(None, (self.ep, to), bytes, context))
    }

    /// As [`send`](Self::send), to its completion.
    pub(crate) fn send_and_wait(&self, to: u32, bytes: &[u8], context: usize) -> Verdict {
        self.send(to, bytes, context)?;
        self.tx.of(context).map(drop)
    }

    /// Posts a receive from any sender.
    pub(crate) fn receive(&self, buffer: &mut [u8], context: usize) -> Verdict {
        self.post(|| receive_as(None, self.ep, buffer, context))
    }

    /// Posts an operation and waits for its completion.
    pub(crate) fn done(&self, call: impl FnMut() -> isize) -> Result<fi_cq_tagged_entry, String> {
        self.post(call)?;
        self.tx.next()
    }

    /// As [`done`](Self::done). The completion must have this context.
    pub(crate) fn told(
        &self,
        context: usize,
        call: impl FnMut() -> isize,
    ) -> Result<fi_cq_tagged_entry, String> {
        self.post(call)?;
        self.tx.of(context)
    }

    /// Posts an operation and waits for its failure, with this error number.
    pub(crate) fn fails(
        &self,
        errno: i32,
        what: &str,
        call: impl FnMut() -> isize,
    ) -> Result<fi_cq_err_entry, String> {
        self.post(call)?;
        self.tx.fails(errno, what)
    }

    /// Runs a fetching operation on a u64 until completion. Returns the value before.
    pub(crate) fn fetch(&self, rank: u32, at: usize, op: c_int, value: u64) -> Result<u64, String> {
        let mut before = 0u64;
        let words = self.words(rank, at).from(&value).into(&mut before);
        self.done(|| words.fetch(op))?;
        Ok(current(&before))
    }

    /// Runs a comparing operation on a u64 until completion.
    pub(crate) fn compare(
        &self,
        (rank, at): (u32, usize),
        op: c_int,
        value: u64,
        compare: u64,
    ) -> Result<u64, String> {
        let mut before = 0u64;
        let words = self.words(rank, at).from(&value).into(&mut before);
        self.done(|| words.compare(&compare, op))?;
        Ok(current(&before))
    }

    /// Runs an operation on a u64 until completion.
    pub(crate) fn update(&self, rank: u32, at: usize, op: c_int, value: u64) -> Verdict {
        let words = self.words(rank, at).from(&value);
        self.done(|| words.atomic(UINT64, op)).map(drop)
    }

    /// Writes bytes to a rank's memory and waits for the completion.
    pub(crate) fn write(&self, rank: u32, at: usize, bytes: &[u8]) -> Verdict {
        let (to, at, key) = self.place(rank, at);
        let (base, none) = (bytes.as_ptr().cast(), null_mut());
        self.done(|| call!(rma self.ep, write(base, bytes.len(), none, to, at, key, none)))
            .map(drop)
    }

    /// Reads bytes of a rank's memory.
    pub(crate) fn read(&self, rank: u32, at: usize, len: usize) -> Result<Vec<u8>, String> {
        let ((to, at, key), mut bytes) = (self.place(rank, at), vec![0u8; len]);
        let (base, none) = (bytes.as_mut_ptr().cast(), null_mut());
        self.done(|| call!(rma self.ep, read(base, len, none, to, at, key, none)))?;
        Ok(bytes)
    }

    /// Fails unless the u64 at byte `at` of this rank's memory has this value. Only this rank checks it.
    pub(crate) fn shows_at(&self, rank: u32, at: usize, value: u64, what: &str) -> Verdict {
        match self.rank == rank {
            true => self.memory.shows(at, value, what),
            false => Ok(()),
        }
    }

    /// Sends bytes to the next rank, which receives them into the buffer. The receive is posted before the message if `early`.
    pub(crate) fn exchange(
        &self,
        early: bool,
        (bytes, sent): (&[u8], usize),
        (buffer, received): (&mut [u8], usize),
    ) -> Verdict {
        if early {
            self.receive(buffer, received)?;
            self.meet();
        }
        self.send(self.right(), bytes, sent)?;
        if !early {
            self.meet();
            self.receive(buffer, received)?;
        }
        Ok(())
    }

    /// Waits until the word at byte `at` of the local memory has this value. Makes no libfabric call.
    pub(crate) fn await_word(&self, at: usize, value: u64) -> Verdict {
        until(&format!("{value:#x} in byte {at} of the memory"), || {
            self.memory.get(at) == value
        })
    }
}

/// Runs the body with the planned endpoint and `len` zeroed bytes that all ranks may access. At the end all ranks meet. Each close must succeed.
pub(crate) fn with<T>(
    ctx: &Ctx,
    plan: &Plan<'_>,
    len: usize,
    body: impl FnOnce(&Job<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let job = opened(ctx, plan, len)?;
    let result = body(&job)?;
    ctx.sync();
    close(job.registered.mr)?;
    job.station.close()?;
    job.memory.free();
    ctx.sync();
    Ok(result)
}

/// Runs [`with`] twice: with FI_MR_ALLOCATED (peers map the memory) and without (the kernel copies).
pub(crate) fn in_modes(ctx: &Ctx, len: usize, body: impl Fn(&Job<'_>) -> Verdict) -> Verdict {
    for mr_mode in [BASIC, 0] {
        with(ctx, &Plan::DEFAULT.mr_mode(mr_mode), len, |job| {
            body(job).map_err(|text| format!("mode {mr_mode:#x}: {text}"))
        })?;
    }
    Ok(())
}

/// Opens a [`Job`] without closing it, for laws in which some ranks die.
pub(crate) fn opened<'a>(ctx: &'a Ctx, plan: &Plan<'_>, len: usize) -> Result<Job<'a>, String> {
    opened_in(ctx, plan, Memory::new(len.next_multiple_of(256)))
}

/// As [`opened`], with this memory.
pub(crate) fn opened_in<'a>(
    ctx: &'a Ctx,
    plan: &Plan<'_>,
    memory: Memory,
) -> Result<Job<'a>, String> {
    let station = Station::open(plan)?;
    let registered = station.register(memory, 7 + u64::from(ctx.rank))?;
    let mut told = station.name()?.to_vec();
    told.extend(registered.key.to_le_bytes());
    told.extend(registered.base.to_le_bytes());
    ctx.tell(&told);
    ctx.sync();
    let mut peers = Vec::new();
    for rank in 0..ctx.size {
        let told = ctx.told(rank).unwrap_or_default();
        crate::ensure_eq!(told.len(), NAME + 16, "what rank {rank} tells");
        peers.push(Peer {
            address: station.insert(&told[..NAME])?,
            key: u64_of(&told[NAME..]),
            base: u64_of(&told[NAME + 8..]),
        });
    }
    ctx.sync();
    Ok(Job {
        ctx,
        rank: ctx.rank,
        size: ctx.size,
        ep: station.ep,
        tx: station.tx,
        rx: station.rx,
        station,
        memory,
        registered,
        peers,
    })
}

/// Posts an operation; calls `meanwhile` after each -FI_EAGAIN.
pub(crate) fn post(
    mut call: impl FnMut() -> isize,
    mut meanwhile: impl FnMut() -> Verdict,
) -> Verdict {
    found("room for an operation", || match accepted(call())? {
        true => Ok(Some(())),
        false => meanwhile().map(|()| None),
    })
}
