//! The Rust interface: VCQs and circuits that free themselves when dropped. Their types allow one thread at a time.

use std::marker::PhantomData;

use unipgas_core::gate::Payload;
use unipgas_core::port::{Command, CommandKind, PortNotice, Rmw};

use crate::command::CommandTarget;
use crate::process::{UtofuProcess, current};
use crate::status::{Result, ReturnCode, from_fault};
use crate::vbg::{GateKind, VbgSetting, doubles, integers};
use crate::vcq::{InCall, Vcq, VcqFlags, vcq};
use crate::{VbgId, VcqId};

/// A VCQ of this process (guide §3.3). Freed when dropped.
///
/// ```no_run
/// use unipgas_utofu::command::CommandTarget;
/// use unipgas_utofu::owned::VcqHandle;
/// use unipgas_utofu::vcq::VcqFlags;
///
/// # fn main() -> unipgas_utofu::Result<()> {
/// let mut vcq = VcqHandle::create(0, Some(0), VcqFlags::empty())?;
/// let memory: &'static mut [u64] = Box::leak(vec![0u64; 512].into_boxed_slice());
/// // SAFETY: the memory is never freed, and read by volatile loads only.
/// let stadd = unsafe { vcq.reg_mem(memory.as_mut_ptr().cast(), 4096, false)? };
/// let target = CommandTarget { vcq_id: vcq.id().bits(), stadd, edata: 1, flags: 1 << 15 };
/// vcq.put_piggyback(&target, b"hello", 0)?;
/// while vcq.poll_mrq()?.is_none() {}
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VcqHandle {
    handle: usize,
    /// Not `Sync`: one thread at a time uses it. It may move to another thread.
    alone: PhantomData<std::cell::Cell<()>>,
}

impl VcqHandle {
    /// Creates a VCQ, with component `cmp` if it is given (§3.3.1.1, §3.3.1.2). Errors: as [`UtofuProcess::create_vcq`].
    pub fn create(tni: u16, cmp: Option<u16>, flags: VcqFlags) -> Result<Self> {
        let handle = current()?.for_changes()?.create_vcq(tni, cmp, flags)?;
        Ok(VcqHandle {
            handle,
            alone: PhantomData,
        })
    }

    fn vcq(&self) -> InCall {
        vcq(self.handle).expect("a VCQ lives as long as its handle")
    }

    /// Its id (§3.3.2.1).
    pub fn id(&self) -> VcqId {
        self.vcq().id()
    }

    /// Registers memory, and returns its STADD (§3.6.1.1). Errors: as [`Vcq::reg_mem`].
    ///
    /// # Safety
    /// `len` bytes at `addr` stay valid until [`VcqHandle::dereg_mem`] or the drop of the handle. The program expects peers to change them.
    pub unsafe fn reg_mem(&mut self, addr: *mut u8, len: usize, read_only: bool) -> Result<u64> {
        // SAFETY:
        // - contract of this call: the memory is valid until its deregistration.
        unsafe { self.vcq().reg_mem(addr, len, read_only) }
    }

    /// Registers memory under a STag (§3.6.1.2). Errors: as [`Vcq::reg_mem_with_stag`].
    ///
    /// # Safety
    /// As [`VcqHandle::reg_mem`].
    pub unsafe fn reg_mem_with_stag(
        &mut self,
        addr: *mut u8,
        len: usize,
        stag: u32,
        read_only: bool,
    ) -> Result<u64> {
        // SAFETY:
        // - contract of this call: the memory is valid until its deregistration.
        unsafe { self.vcq().reg_mem_with_stag(addr, len, stag, read_only) }
    }

    /// Deregisters memory (§3.6.1.4). Errors: [`ReturnCode::InvalidStadd`].
    pub fn dereg_mem(&mut self, stadd: u64) -> Result<()> {
        self.vcq().dereg_mem(stadd)
    }

    fn post_one(&mut self, command: Result<Command>, cbdata: u64) -> Result<()> {
        // SAFETY:
        // - in a call, and this thread alone has the handle.
        unsafe { self.vcq().post(&command?, false, cbdata) }
    }

    /// Puts `len` bytes from STADD `local` (§3.7.1.1). Errors: [`ReturnCode::Busy`]: poll the TCQ; as [`Vcq::transfer`].
    pub fn put(
        &mut self,
        target: &CommandTarget,
        local: u64,
        len: usize,
        cbdata: u64,
    ) -> Result<()> {
        let command = self.vcq().transfer(CommandKind::Put, target, local, len);
        self.post_one(command, cbdata)
    }

    /// Gets `len` bytes to STADD `local` (§3.7.1.7). Errors: as [`VcqHandle::put`].
    pub fn get(
        &mut self,
        target: &CommandTarget,
        local: u64,
        len: usize,
        cbdata: u64,
    ) -> Result<()> {
        let command = self.vcq().transfer(CommandKind::Get, target, local, len);
        self.post_one(command, cbdata)
    }

    /// Puts up to 32 bytes (§3.7.1.5). Errors: as [`VcqHandle::put`].
    pub fn put_piggyback(
        &mut self,
        target: &CommandTarget,
        bytes: &[u8],
        cbdata: u64,
    ) -> Result<()> {
        let mut data = [0u8; 32];
        data.get_mut(..bytes.len())
            .ok_or(ReturnCode::InvalidSize)?
            .copy_from_slice(bytes);
        let words = std::array::from_fn(|i| {
            u64::from_ne_bytes(data[8 * i..8 * i + 8].try_into().expect("eight bytes"))
        });
        let command = self.vcq().piggyback(target, words, bytes.len());
        self.post_one(command, cbdata)
    }

    /// ARMW on 8 bytes (`wide`) or 4 bytes (§3.7.1.11 to §3.7.1.14). Only [`Rmw::CompareSwap`] uses `compare`. Errors: as [`VcqHandle::put`].
    pub fn armw(
        &mut self,
        target: &CommandTarget,
        wide: bool,
        op: Rmw,
        operand: u64,
        compare: u64,
        cbdata: u64,
    ) -> Result<()> {
        let command = self.vcq().armw(target, wide, op, operand, compare);
        self.post_one(command, cbdata)
    }

    /// Posts all commands, or none of them (§3.7.3.1). [`VcqHandle::maker`] makes commands. Errors: as [`Vcq::post_descriptors`].
    pub fn post(&mut self, commands: &[Command], cbdata: u64) -> Result<()> {
        // SAFETY:
        // - in a call, and this thread alone has the handle.
        unsafe { self.vcq().post_descriptors(commands, cbdata) }
    }

    /// The VCQ, to make commands: see [`Vcq::transfer`], [`Vcq::piggyback`], [`Vcq::armw`], [`Vcq::nop`].
    pub fn maker(&self) -> &Vcq {
        // The VCQ lives as long as the handle, which the result borrows.
        self.vcq().outside()
    }

    /// The context of the next completion (§3.7.4.1). `None`: no completion. Errors: `UTOFU_ERR_TCQ_*` of the command.
    pub fn poll_tcq(&mut self) -> Result<Option<u64>> {
        let vcq = self.vcq();
        // SAFETY:
        // - in a call, and this thread alone has the handle.
        let mut queues = unsafe { vcq.port().hold() };
        match vcq.port().poll_completion(&mut queues) {
            None => Ok(None),
            Some(taken) => match taken.fault {
                None => Ok(Some(taken.context)),
                Some(fault) => Err(from_fault(fault)),
            },
        }
    }

    /// The next notice (§3.7.4.2). `None`: no notice. The notice has the fault of a failed operation. An overflow ends the program, as in C.
    pub fn poll_mrq(&mut self) -> Result<Option<PortNotice>> {
        let vcq = self.vcq();
        // SAFETY:
        // - in a call, and this thread alone has the handle.
        let mut queues = unsafe { vcq.port().hold() };
        match vcq.port().poll_notice(&mut queues) {
            Ok(notice) => Ok(notice),
            Err(_) => vcq.overflow(),
        }
    }
}

impl Drop for VcqHandle {
    fn drop(&mut self) {
        if let Ok(process) = current() {
            let _ = process.free_vcq(self.handle);
        }
    }
}

/// VBGs of one allocation, and this process's part of a circuit (guide §3.4). Freed when dropped.
#[derive(Debug)]
pub struct OwnedVbgs {
    ids: Vec<u64>,
}

impl OwnedVbgs {
    /// Allocates `number` VBGs. The first of them starts and ends a circuit (§3.4.1.1). Errors: as [`UtofuProcess::alloc_vbg`].
    pub fn alloc(tni: u16, number: usize) -> Result<Self> {
        Ok(OwnedVbgs {
            ids: current()?.for_changes()?.alloc_vbg(tni, number)?,
        })
    }

    /// Their ids.
    pub fn ids(&self) -> Vec<VbgId> {
        self.ids
            .iter()
            .filter_map(|bits| VbgId::from_bits(*bits))
            .collect()
    }

    fn process(&self) -> Result<&'static UtofuProcess> {
        current()
    }

    /// Sets the circuit (§3.4.2.1). Errors: as [`UtofuProcess::set_vbg`].
    pub fn set(&mut self, settings: &[VbgSetting]) -> Result<()> {
        self.process()?.set_vbg(settings)
    }

    /// Starts a barrier (§3.8.1.1). Errors: as [`UtofuProcess::start_barrier`].
    pub fn barrier(&mut self) -> Result<()> {
        let payload = Payload::barrier(0);
        self.process()?.start_barrier(self.ids[0], &payload)
    }

    /// Whether the barrier has ended (§3.8.2.1). Errors: [`ReturnCode::Busy`] if none was started, `UTOFU_ERR_BARRIER_*`.
    pub fn poll_barrier(&mut self) -> Result<bool> {
        self.poll(GateKind::Barrier, |_| ())
            .map(|ended| ended.is_some())
    }

    /// Starts a reduction of integers by `enum utofu_reduce_op` (§3.8.1.2).
    pub fn reduce_uint64(&mut self, op: u32, data: &[u64]) -> Result<()> {
        let payload = integers(op, data)?;
        self.process()?.start_barrier(self.ids[0], &payload)
    }

    /// The result of the reduction (§3.8.2.2). `None`: it has not ended. Errors: as [`OwnedVbgs::poll_barrier`].
    pub fn poll_reduce_uint64(&mut self) -> Result<Option<Vec<u64>>> {
        self.poll(GateKind::Uint64, |result| result.as_integers().to_vec())
    }

    /// Starts a reduction of floating-point numbers (§3.8.1.3).
    pub fn reduce_double(&mut self, op: u32, data: &[f64]) -> Result<()> {
        let payload = doubles(op, data)?;
        self.process()?.start_barrier(self.ids[0], &payload)
    }

    /// The result of the reduction (§3.8.2.3). `None`: it has not ended. Errors: as [`OwnedVbgs::poll_barrier`].
    pub fn poll_reduce_double(&mut self) -> Result<Option<Vec<f64>>> {
        self.poll(GateKind::Double, |result| {
            (0..result.count())
                .filter_map(|i| result.double(i))
                .collect()
        })
    }

    fn poll<T>(&mut self, kind: GateKind, take: impl FnOnce(&Payload) -> T) -> Result<Option<T>> {
        let mut result = Payload::default();
        match self.process()?.poll_barrier(self.ids[0], kind, &mut result) {
            Ok(()) => Ok(Some(take(&result))),
            Err(ReturnCode::NotCompleted) => Ok(None),
            Err(code) => Err(code),
        }
    }
}

impl Drop for OwnedVbgs {
    fn drop(&mut self) {
        if let Ok(process) = current() {
            let _ = process.free_vbg(&self.ids);
        }
    }
}
