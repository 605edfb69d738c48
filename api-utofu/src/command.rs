//! One-sided communication (guide §3.7): translates arguments and flags to the engine's commands, and posts these.

use unipgas_core::Error;
use unipgas_core::port::{Aim, Command, CommandFlags, CommandKind, DEPTH, Parts, Rmw, ShortKey};
use unipgas_utofu_sys::*;

use crate::asynchronous::asynchronous_error;
use crate::caps::{MAX_GAP, MAX_MTU, MAX_PIGGYBACK, MAX_PUTGET};
use crate::ids::{VcqId, path_coords};
use crate::status::{Result, ReturnCode, from_engine};
use crate::vcq::Vcq;

const ALL: u64 = UTOFU_ONESIDED_FLAG_STRONG_ORDER
    | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE
    | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
    | UTOFU_ONESIDED_FLAG_PADDING
    | UTOFU_ONESIDED_FLAG_CACHE_INJECTION
    | UTOFU_ONESIDED_FLAG_DELAY_START
    | UTOFU_ONESIDED_FLAG_TCQ_NOTICE
    | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE
    | UTOFU_ONESIDED_SPS_MASK
    | UTOFU_ONESIDED_PATH_MASK;

/// Flags that the fast path implements, or that have no effect on copies in memory.
const SIMPLE: u64 = UTOFU_ONESIDED_FLAG_STRONG_ORDER
    | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE
    | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
    | UTOFU_ONESIDED_FLAG_PADDING
    | UTOFU_ONESIDED_FLAG_CACHE_INJECTION
    | UTOFU_ONESIDED_FLAG_TCQ_NOTICE
    | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

/// Target and options of a command.
#[derive(Debug, Clone, Copy)]
pub struct CommandTarget {
    /// VCQ id of the target.
    pub vcq_id: u64,
    /// STADD at the target.
    pub stadd: u64,
    /// The byte in the command's notices.
    pub edata: u64,
    /// `UTOFU_ONESIDED_FLAG_*`.
    pub flags: u64,
}

/// MTU and transmission gap (§2.2.9). They are checked, and have no other effect: copies in memory have no packets.
#[derive(Debug, Clone, Copy)]
pub struct Packets {
    /// Greatest packet, in bytes.
    pub mtu: usize,
    /// Pause between two packets.
    pub gap: usize,
}

/// Repetition of a command, with the same distance at both ends.
#[derive(Debug, Clone, Copy)]
pub struct Stride {
    /// Bytes between the beginnings of two blocks.
    pub bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
}

/// Whether the command may wait until the next one is posted (§3.7.9.1).
#[inline(always)]
pub fn is_delayed(flags: u64) -> bool {
    flags & UTOFU_ONESIDED_FLAG_DELAY_START != 0
}

#[inline(always)]
fn flags_of(flags: u64) -> Result<CommandFlags> {
    if flags & !ALL != 0 {
        return Err(ReturnCode::InvalidFlags);
    }
    let path = path_id_of(flags);
    if path != 0 && path_coords(path).is_none() {
        return Err(ReturnCode::InvalidPathId);
    }
    Ok(wanted(flags))
}

/// Errors: [`ReturnCode::InvalidFlags`]: an SPS is defined for Put alone (§2.2.8.1).
#[inline(always)]
fn without_sps(flags: u64) -> Result<()> {
    match sps_of(flags) {
        0 => Ok(()),
        _ => Err(ReturnCode::InvalidFlags),
    }
}

#[inline(always)]
fn wanted(flags: u64) -> CommandFlags {
    let mut wanted = CommandFlags::empty();
    wanted.set(
        CommandFlags::COMPLETION,
        flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE != 0,
    );
    wanted.set(
        CommandFlags::LOCAL_NOTICE,
        flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE != 0,
    );
    wanted.set(
        CommandFlags::REMOTE_NOTICE,
        flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE != 0,
    );
    wanted.set(
        CommandFlags::ORDERED,
        flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER != 0,
    );
    wanted
}

impl Vcq {
    /// Makes a command to `target`. Errors: [`ReturnCode::InvalidVcqId`], [`ReturnCode::InvalidEdata`], [`ReturnCode::InvalidFlags`],
    /// [`ReturnCode::InvalidPathId`].
    #[inline(always)]
    fn command(
        &self,
        kind: CommandKind,
        rmw: Option<Rmw>,
        target: &CommandTarget,
        len: usize,
        data: [u64; 4],
    ) -> Result<Command> {
        let remote = VcqId::from_bits(target.vcq_id).ok_or(ReturnCode::InvalidVcqId)?;
        let edata = u8::try_from(target.edata).map_err(|_| ReturnCode::InvalidEdata)?;
        if kind != CommandKind::Put {
            without_sps(target.flags)?;
        }
        let parts = Parts {
            kind,
            rmw,
            flags: flags_of(target.flags)?,
            edata,
            steps: sps_of(target.flags),
            place: self.place_of(remote)?,
            port: remote.port(),
            owner: self.id().port(),
            len: len as u32,
        };
        Ok(Command::new(parts, remote.plain(), target.stadd, data))
    }

    /// Put or get of `len` bytes at STADD `local`. Errors: [`ReturnCode::InvalidSize`], [`ReturnCode::InvalidVcqId`], [`ReturnCode::InvalidEdata`],
    /// [`ReturnCode::InvalidFlags`], [`ReturnCode::InvalidPathId`].
    #[inline(always)]
    pub fn transfer(
        &self,
        kind: CommandKind,
        target: &CommandTarget,
        local: u64,
        len: usize,
    ) -> Result<Command> {
        if len > MAX_PUTGET {
            return Err(ReturnCode::InvalidSize);
        }
        self.command(kind, None, target, len, [local, 0, 0, 0])
    }

    /// Put of the first `len` bytes of `bytes`.
    #[inline(always)]
    pub fn piggyback(
        &self,
        target: &CommandTarget,
        bytes: [u64; 4],
        len: usize,
    ) -> Result<Command> {
        if len > MAX_PIGGYBACK {
            return Err(ReturnCode::InvalidSize);
        }
        self.command(CommandKind::Inline, None, target, len, bytes)
    }

    /// ARMW on a word of 8 bytes (`wide`) or 4 bytes.
    #[inline(always)]
    pub fn armw(
        &self,
        target: &CommandTarget,
        wide: bool,
        rmw: Rmw,
        operand: u64,
        compare: u64,
    ) -> Result<Command> {
        let kind = if wide {
            CommandKind::Atomic8
        } else {
            CommandKind::Atomic4
        };
        self.command(kind, Some(rmw), target, 0, [operand, compare, 0, 0])
    }

    /// NOP.
    pub fn nop(&self, flags: u64) -> Result<Command> {
        without_sps(flags)?;
        let parts = Parts {
            kind: CommandKind::Nop,
            rmw: None,
            flags: flags_of(flags)?,
            edata: 0,
            steps: 0,
            place: 0,
            port: 0,
            owner: self.id().port(),
            len: 0,
        };
        Ok(Command::new(parts, 0, 0, [0; 4]))
    }

    /// Errors: [`ReturnCode::NotSupported`]: session mode VCQs take Put and NOP only (§2.2.8.1).
    #[inline(always)]
    fn accepts(&self, command: &Command) -> Result<()> {
        if self.port().options().session
            && !matches!(command.kind(), Some(CommandKind::Put | CommandKind::Nop))
        {
            return Err(ReturnCode::NotSupported);
        }
        Ok(())
    }

    /// The target, if the fast path knows it and implements all of its flags.
    ///
    /// # Safety
    /// As [`Vcq::port_fast`].
    #[inline(always)]
    unsafe fn aim(&self, target: &CommandTarget) -> Option<Aim<'_>> {
        // SAFETY:
        // - contract of this call: the caller holds the queues, and remembers no port while it uses the result.
        let (port, peer) = unsafe { self.port_fast(target.vcq_id) }?;
        ((target.flags & !SIMPLE == 0) & (target.edata <= 0xff)).then_some(Aim {
            target: port,
            peer,
            key: ShortKey(target.stadd),
            flags: wanted(target.flags),
            edata: target.edata as u8,
        })
    }

    /// Puts registered memory on the fast path. `None`: the fast path cannot do it, and has done nothing.
    ///
    /// # Safety
    /// As [`Vcq::post`].
    #[inline(always)]
    pub unsafe fn put_fast(
        &self,
        target: &CommandTarget,
        local: u64,
        len: usize,
        cbdata: u64,
    ) -> Option<Result<()>> {
        if len > MAX_PUTGET {
            return None;
        }
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        let mut queues = unsafe { self.port().hold() };
        // SAFETY:
        // - this thread holds the queues, and remembers no port while it uses the result.
        let aim = unsafe { self.aim(target) }?;
        let key = ShortKey(local);
        let posted = self
            .port()
            .put_key_fast(&mut queues, &aim, key, len, cbdata)?;
        drop(queues);
        Some(self.answer(posted))
    }

    /// Puts bytes on the fast path. `None`: as [`Vcq::put_fast`].
    ///
    /// # Safety
    /// As [`Vcq::post`]; `len` bytes at `data` are valid.
    #[inline(always)]
    pub unsafe fn piggyback_fast(
        &self,
        target: &CommandTarget,
        data: *const u8,
        len: usize,
        cbdata: u64,
    ) -> Option<Result<()>> {
        if (len > MAX_PIGGYBACK) | data.is_null() {
            return None;
        }
        // SAFETY:
        // - contract of this call: see `Vcq::post`; the bytes are valid.
        // - this thread holds the queues, and remembers no port while it uses the aim.
        let posted = unsafe {
            let mut queues = self.port().hold();
            let aim = self.aim(target)?;
            self.port().put_fast(&mut queues, &aim, data, len, cbdata)?
        };
        Some(self.answer(posted))
    }

    /// Puts a word to an aligned address on the fast path. `None`: as [`Vcq::put_fast`].
    ///
    /// # Safety
    /// As [`Vcq::post`].
    #[inline(always)]
    pub unsafe fn word_fast(
        &self,
        target: &CommandTarget,
        word: u64,
        cbdata: u64,
    ) -> Option<Result<()>> {
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        let mut queues = unsafe { self.port().hold() };
        // SAFETY:
        // - this thread holds the queues, and remembers no port while it uses the result.
        let aim = unsafe { self.aim(target) }?;
        let posted = self.port().put_word_fast(&mut queues, &aim, word, cbdata)?;
        drop(queues);
        Some(self.answer(posted))
    }

    /// ARMW on 8 bytes on the fast path. `None`: as [`Vcq::put_fast`].
    ///
    /// # Safety
    /// As [`Vcq::post`].
    #[inline(always)]
    pub unsafe fn armw8_fast(
        &self,
        target: &CommandTarget,
        rmw: Rmw,
        operands: [u64; 2],
        cbdata: u64,
    ) -> Option<Result<()>> {
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        let mut queues = unsafe { self.port().hold() };
        // SAFETY:
        // - this thread holds the queues, and remembers no port while it uses the result.
        let aim = unsafe { self.aim(target) }?;
        let posted = self
            .port()
            .change_fast(&mut queues, &aim, rmw, operands, cbdata)?;
        drop(queues);
        Some(self.answer(posted))
    }

    /// Posts a command. Errors: [`ReturnCode::Busy`]: poll the TCQ; [`ReturnCode::NotSupported`] for a command that the VCQ's mode excludes.
    ///
    /// # Safety
    /// This thread is in the call that [`vcq`](crate::vcq::vcq) began. Unless the VCQ is thread-safe, no other thread uses it at the same time (§2.5).
    pub unsafe fn post(&self, command: &Command, delayed: bool, cbdata: u64) -> Result<()> {
        self.accepts(command)?;
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        let mut queues = unsafe { self.port().hold() };
        let posted = if delayed {
            self.port().post_delayed(&mut queues, command, cbdata)
        } else {
            self.port().post(&mut queues, command, cbdata)
        };
        // SAFETY:
        // - this thread holds the queues, and only reads the table.
        if posted.is_ok() && unsafe { self.port_fast(command.peer) }.is_none() {
            // SAFETY:
            // - as above; no result of `port_fast` is in use.
            unsafe { self.remember(&queues, command.peer) };
        }
        drop(queues);
        self.answer(posted)
    }

    /// Posts the command once for each block, or none of them (§3.7.1.3). Errors: [`ReturnCode::InvalidNumber`] for 0 blocks, or for more than the queue can
    /// hold; [`ReturnCode::Busy`]: poll the TCQ; [`ReturnCode::NotSupported`].
    ///
    /// # Safety
    /// As [`Vcq::post`].
    pub unsafe fn post_stride(&self, first: &Command, stride: Stride, cbdata: u64) -> Result<()> {
        self.accepts(first)?;
        if stride.blocks > DEPTH {
            return Err(ReturnCode::InvalidNumber);
        }
        let commands: Vec<Command> = blocks(first, stride)?.collect();
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        unsafe { self.post_all(&commands, cbdata) }
    }

    /// Posts all descriptors, or none of them (§3.7.3.1). Errors: [`ReturnCode::InvalidDesc`] for an invalid descriptor, or one of another VCQ; [`ReturnCode::Busy`];
    /// [`ReturnCode::NotSupported`].
    ///
    /// # Safety
    /// As [`Vcq::post`].
    pub unsafe fn post_descriptors(&self, commands: &[Command], cbdata: u64) -> Result<()> {
        for command in commands {
            if !command.is_valid() || command.owner() != self.id().port() {
                return Err(ReturnCode::InvalidDesc);
            }
            self.accepts(command)?;
        }
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        unsafe { self.post_all(commands, cbdata) }
    }

    /// # Safety
    /// As [`Vcq::post`].
    unsafe fn post_all(&self, commands: &[Command], cbdata: u64) -> Result<()> {
        let port = self.port();
        // SAFETY:
        // - contract of this call: see `Vcq::post`.
        let mut queues = unsafe { port.hold() };
        let posted = port.post_all(&mut queues, commands, cbdata);
        drop(queues);
        self.answer(posted)
    }

    #[inline(always)]
    pub(crate) fn answer(&self, posted: unipgas_core::Result<()>) -> Result<()> {
        match posted {
            Ok(()) => Ok(()),
            Err(Error::InboxFull) => self.overflow(),
            Err(error) => Err(from_engine(error)),
        }
    }

    #[cold]
    pub(crate) fn overflow(&self) -> ! {
        let (tni, cq) = (self.id().tni(), self.id().cq());
        asynchronous_error(format_args!("MRQ Overflow on TNI {tni} CQ {cq}"))
    }
}

/// The commands of all blocks. Errors: [`ReturnCode::InvalidNumber`] for 0 blocks.
pub fn blocks(first: &Command, stride: Stride) -> Result<impl Iterator<Item = Command>> {
    if stride.blocks == 0 {
        return Err(ReturnCode::InvalidNumber);
    }
    let first = *first;
    Ok((0..stride.blocks as u64).map(move |block| {
        let by = block.wrapping_mul(stride.bytes as u64);
        let mut command = first;
        command.remote = command.remote.wrapping_add(by);
        command.data[0] = command.data[0].wrapping_add(by);
        command
    }))
}

/// Errors: [`ReturnCode::InvalidSize`] if the MTU is out of range, [`ReturnCode::InvalidArg`] if the gap is.
pub fn check_packets(packets: Packets) -> Result<()> {
    if packets.mtu == 0 || packets.mtu > MAX_MTU {
        return Err(ReturnCode::InvalidSize);
    }
    if packets.gap > MAX_GAP {
        return Err(ReturnCode::InvalidArg);
    }
    Ok(())
}

/// `enum utofu_armw_op` (§3.7.7.1). Errors: [`ReturnCode::InvalidOp`].
#[inline(always)]
pub fn armw_op(op: u32) -> Result<Rmw> {
    Ok(match op {
        UTOFU_ARMW_OP_SWAP => Rmw::Swap,
        UTOFU_ARMW_OP_ADD => Rmw::Add,
        UTOFU_ARMW_OP_XOR => Rmw::Xor,
        UTOFU_ARMW_OP_AND => Rmw::And,
        UTOFU_ARMW_OP_OR => Rmw::Or,
        _ => return Err(ReturnCode::InvalidOp),
    })
}
