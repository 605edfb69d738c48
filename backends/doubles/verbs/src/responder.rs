//! The responding half of queue pairs: executes requests of peers after the checks of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unipgas_verbs_sys::*;

use crate::atomics;
use crate::engine::NicEngine;
use crate::nic::Subject;
use crate::packet::{self, *};
use crate::qp::{Qp, QpState, Receiver};
use crate::words;

/// A response that waits until it is due.
pub(crate) struct PendingResponse {
    due: Instant,
    link: u64,
    /// The header of the response. The data of a read follow it.
    header: Header,
}

/// The reason that a request is not executed.
enum Refusal {
    NotReady,
    /// The status for the requester. Both queue pairs enter the error state.
    Wrong(u32),
}

use Refusal::{NotReady, Wrong};

const INVALID: Refusal = Wrong(IBV_WC_REM_INV_REQ_ERR);
const DENIED: Refusal = Wrong(IBV_WC_REM_ACCESS_ERR);

fn reply(to: &Header, kind: u8, status: u8) -> Header {
    Header {
        dest: to.source,
        source: to.dest,
        kind,
        flags: LAST,
        status,
        sequence: to.sequence,
        epoch: to.epoch,
        ..Header::default()
    }
}

/// Whether the packet is the next one in the receiver's sequence.
fn is_next(receiver: &Receiver, header: &Header) -> bool {
    header.sequence == receiver.expected && header.offset == receiver.at
}

impl NicEngine {
    /// Handles a packet of a requester.
    pub fn request(&mut self, link: u64, header: &Header, data: &[u8]) {
        let Some(qp) = self.nic.qp(header.dest) else {
            return self.tell(link, &reply(header, LOST, 0));
        };
        let mut guard = qp.state.lock();
        let state = &mut *guard;
        let port = state.attr.port_num;
        let device = qp.nic.device;
        let is_taken = !state.is_over
            && matches!(state.state, IBV_QPS_RTR | IBV_QPS_RTS)
            && state.attr.dest_qp_num == header.source
            && !device.is_cut(port)
            && device.is_at(port, header.route);
        if !is_taken {
            return self.answer(link, &qp, state, reply(header, LOST, 0));
        }
        let receiver = &mut state.receiver;
        if header.epoch < receiver.epoch {
            return;
        }
        if header.epoch > receiver.epoch {
            receiver.epoch = header.epoch;
            receiver.at = 0;
        }
        if !is_next(receiver, header) {
            return self.answer(link, &qp, state, reply(header, LOST, 0));
        }
        if state.state == IBV_QPS_RTR && !std::mem::replace(&mut receiver.is_established, true) {
            qp.nic.raise(IBV_EVENT_COMM_EST, Subject::Qp(qp.clone()));
        }
        match self.carry_out(&qp, state, header, data) {
            Ok(answer) if header.flags & LAST != 0 => {
                state.receiver.expected = packet::next(header.sequence);
                state.receiver.at = 0;
                self.answer(link, &qp, state, answer);
            }
            Ok(_) => state.receiver.at += header.len,
            Err(NotReady) => {
                state.receiver.at = 0;
                let answer = reply(header, RNR, state.attr.min_rnr_timer);
                self.answer(link, &qp, state, answer);
            }
            Err(Wrong(status)) => {
                let answer = reply(header, NAK, status as u8);
                self.answer(link, &qp, state, answer);
                let event = match status {
                    IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
                    IBV_WC_REM_INV_REQ_ERR => IBV_EVENT_QP_REQ_ERR,
                    _ => IBV_EVENT_QP_FATAL,
                };
                qp.break_down(state, IBV_WC_WR_FLUSH_ERR);
                qp.nic.raise(event, Subject::Qp(qp.clone()));
            }
        }
    }

    /// Returns the response once the whole message has arrived.
    fn carry_out(
        &mut self,
        qp: &Arc<Qp>,
        state: &mut QpState,
        header: &Header,
        data: &[u8],
    ) -> Result<Header, Refusal> {
        match u32::from(header.kind) {
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => write(qp, state, header, data)?,
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM => send(qp, state, header, data)?,
            IBV_WR_RDMA_READ => {
                is_readable(qp, state, header)?;
                return Ok(Header {
                    total: header.total,
                    rkey: header.rkey,
                    remote: header.remote,
                    ..reply(header, READ_DATA, 0)
                });
            }
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                return Ok(Header {
                    operand: atomic(qp, state, header)?,
                    ..reply(header, ATOMIC_RESULT, 0)
                });
            }
            _ => return Err(INVALID),
        }
        Ok(reply(header, ACK, 0))
    }

    /// Sends a response behind earlier ones. Only responses to reads are delayed: later requests overtake a read unless they have a fence.
    fn answer(&mut self, link: u64, qp: &Qp, state: &mut QpState, header: Header) {
        let now = Instant::now();
        let delay = match header.kind {
            READ_DATA => self.delay(),
            _ => Duration::ZERO,
        };
        state.receiver.answers.push_back(PendingResponse {
            due: now + delay,
            link,
            header,
        });
        self.send_answers(qp, state, now);
    }

    pub fn send_answers(&mut self, qp: &Qp, state: &mut QpState, now: Instant) {
        while let Some(answer) = state.receiver.answers.front() {
            if answer.due > now {
                return self.wake_at(answer.due, qp.number);
            }
            let (link, header) = (answer.link, answer.header);
            state.receiver.answers.pop_front();
            match header.kind {
                READ_DATA => self.send_data(link, qp, &header),
                _ => self.tell(link, &header),
            }
        }
    }

    fn send_data(&mut self, link: u64, qp: &Qp, header: &Header) {
        let mut offset = 0;
        loop {
            let len = CHUNK.min(header.total - offset);
            let is_last = offset + len == header.total;
            let packet = Header {
                flags: if is_last { LAST } else { 0 },
                offset,
                len,
                ..*header
            };
            let memory = qp.nic.memory.hold();
            let at = header.remote + u64::from(offset);
            let need = IBV_ACCESS_REMOTE_READ;
            let from = memory.remote(header.rkey, qp.pd.number, at, len.into(), need);
            match from {
                // SAFETY:
                // - the range is registered, and stays registered while `memory` is held.
                Some(from) => unsafe { words::load(self.begin(link, &packet), from, len as usize) },
                None if len == 0 => self.tell(link, &packet),
                None => {
                    // The region was deregistered meanwhile.
                    let denied = Header {
                        kind: NAK,
                        status: IBV_WC_REM_ACCESS_ERR as u8,
                        ..*header
                    };
                    return self.tell(link, &denied);
                }
            }
            if is_last {
                return;
            }
            offset += len;
        }
    }
}

/// Takes a receive buffer for the message. A resent message keeps its buffer.
fn take_buffer(qp: &Qp, state: &mut QpState) -> Result<(), Refusal> {
    if state.receiver.buffer.is_none() {
        state.receiver.buffer = Some(qp.recv.take().ok_or(NotReady)?);
    }
    Ok(())
}

/// The whole message has arrived.
fn received(qp: &Arc<Qp>, state: &mut QpState, header: &Header, opcode: u32) {
    let Some(buffer) = state.receiver.buffer.take() else {
        return;
    };
    let mut wc = qp.completion(buffer.wr_id, IBV_WC_SUCCESS, opcode);
    wc.byte_len = header.total;
    wc.src_qp = header.source;
    wc.slid = header.slid as u16;
    if header.flags & IMMEDIATE != 0 {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = header.immediate;
    }
    qp.push_received(wc, header.flags & SOLICITED != 0);
}

fn write(qp: &Arc<Qp>, state: &mut QpState, header: &Header, data: &[u8]) -> Result<(), Refusal> {
    let has_immediate = header.flags & IMMEDIATE != 0;
    if has_immediate {
        take_buffer(qp, state)?;
    }
    if header.total > 0 {
        if state.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE == 0 {
            return Err(DENIED);
        }
        let memory = qp.nic.memory.hold();
        let left = u64::from(header.total - header.offset);
        let at = header.remote.wrapping_add(header.offset.into());
        let to = memory.remote(header.rkey, qp.pd.number, at, left, IBV_ACCESS_REMOTE_WRITE);
        // SAFETY:
        // - the range is registered, and stays registered while `memory` is held; the data are not longer than the rest of the message.
        unsafe { words::store(to.ok_or(DENIED)?, data) };
    }
    if has_immediate && header.flags & LAST != 0 {
        received(qp, state, header, IBV_WC_RECV_RDMA_WITH_IMM);
    }
    Ok(())
}

/// The message cannot be written to its buffer: the receiver gets an error completion.
fn spoilt(qp: &Arc<Qp>, state: &mut QpState, status: u32) {
    if let Some(buffer) = state.receiver.buffer.take() {
        qp.push_received(qp.completion(buffer.wr_id, status, 0), false);
    }
}

fn send(qp: &Arc<Qp>, state: &mut QpState, header: &Header, data: &[u8]) -> Result<(), Refusal> {
    take_buffer(qp, state)?;
    let Some(buffer) = &state.receiver.buffer else {
        return Err(NotReady);
    };
    if u64::from(header.total) > buffer.len {
        spoilt(qp, state, IBV_WC_LOC_LEN_ERR);
        return Err(INVALID);
    }
    // Buffers of a shared queue belong to the domain of that queue.
    let pd = qp.recv.pd.number;
    let memory = qp.nic.memory.hold();
    let written = memory.scatter(&buffer.list, pd, header.offset, data);
    drop(memory);
    if written.is_none() {
        spoilt(qp, state, IBV_WC_LOC_PROT_ERR);
        return Err(Wrong(IBV_WC_REM_OP_ERR));
    }
    if header.flags & LAST != 0 {
        received(qp, state, header, IBV_WC_RECV);
    }
    Ok(())
}

/// Refuses more outstanding reads and atomic operations than max_dest_rd_atomic.
fn is_within_depth(state: &QpState, header: &Header) -> Result<(), Refusal> {
    match header.depth > state.attr.max_dest_rd_atomic {
        true => Err(INVALID),
        false => Ok(()),
    }
}

fn is_readable(qp: &Qp, state: &QpState, header: &Header) -> Result<(), Refusal> {
    is_within_depth(state, header)?;
    if header.total == 0 {
        return Ok(());
    }
    if state.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ == 0 {
        return Err(DENIED);
    }
    let memory = qp.nic.memory.hold();
    let len = header.total.into();
    let need = IBV_ACCESS_REMOTE_READ;
    let from = memory.remote(header.rkey, qp.pd.number, header.remote, len, need);
    from.map(|_| ()).ok_or(DENIED)
}

fn atomic(qp: &Qp, state: &QpState, header: &Header) -> Result<u64, Refusal> {
    is_within_depth(state, header)?;
    if !header.remote.is_multiple_of(8) {
        return Err(INVALID);
    }
    if state.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC == 0 {
        return Err(DENIED);
    }
    let memory = qp.nic.memory.hold();
    let need = IBV_ACCESS_REMOTE_ATOMIC;
    let at = memory.remote(header.rkey, qp.pd.number, header.remote, 8, need);
    let at = at.ok_or(DENIED)?;
    if !at.addr().is_multiple_of(8) {
        return Err(INVALID);
    }
    // SAFETY:
    // - the word is aligned, and registered for atomic operations while `memory` is held.
    Ok(unsafe { atomics::carry_out(qp.nic.device, at.cast(), header) })
}
