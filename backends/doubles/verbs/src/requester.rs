//! The requesting half of queue pairs: sends posted requests, and completes answered ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unipgas_verbs_sys::*;

use crate::counters::{self, Count};
use crate::engine::{NicEngine, Path};
use crate::packet::{self, *};
use crate::qp::{Qp, QpState, Trouble};

/// Shortest and longest time between two attempts to reach a peer that does not accept packets.
const AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Longest time between two attempts after the peer had no buffer. The slowest timer of the specification would delay tests.
const RNR_AGAIN: Duration = Duration::from_millis(20);

/// How long a queue pair may retry by the specification, at most `most`. `None`: without limit.
fn patience(attr: &ibv_qp_attr, most: Duration) -> Option<Duration> {
    let timeout = Duration::from_nanos(4096) * 2u32.checked_pow(attr.timeout.into())?;
    let tries = u32::from(attr.retry_cnt) + 1;
    (attr.timeout > 0).then(|| timeout.saturating_mul(tries).min(most))
}

/// The delay that the responder's timer stands for. The specification counts in units of 10 us.
fn rnr_delay(timer: u8) -> Duration {
    let units = match timer {
        0 => 65536,
        1..=4 => u64::from(timer),
        _ => {
            // Each octave has two values: 6, 8, 12, 16, 24, ...
            let octave = u32::from(timer - 5) / 2;
            (if timer % 2 == 1 { 6 } else { 8 }) << octave
        }
    };
    Duration::from_micros(units * 10).min(RNR_AGAIN)
}

impl NicEngine {
    /// Sends the requests that may be sent now.
    pub fn send(&mut self, qp: &Arc<Qp>, state: &mut QpState) {
        if state.is_over || state.state != IBV_QPS_RTS || state.sender.queue.is_empty() {
            return;
        }
        let now = Instant::now();
        let cut = qp.nic.device.is_cut(state.attr.port_num);
        let path = if cut {
            Path::Dead
        } else {
            self.path(qp, state)
        };
        let link = match path {
            Path::Link(link) => link,
            Path::Later => return self.wake_at(now + AGAIN.1, qp.number),
            Path::Dead => return self.despair(qp, state, cut, now),
        };
        if matches!(state.sender.trouble, Trouble::Cut(_)) {
            state.sender.trouble = Trouble::None;
        }
        match state.sender.wait {
            Some(until) if until > now => self.wake_at(until, qp.number),
            _ => self.send_on(link, qp, state),
        }
    }

    /// The peer is not reachable. The queue pair fails when its retry time is over.
    fn despair(&mut self, qp: &Arc<Qp>, state: &mut QpState, cut: bool, now: Instant) {
        let since = match (state.sender.trouble, cut) {
            (Trouble::Cut(since), true) | (Trouble::Dead(since), false) => since,
            _ => now,
        };
        state.sender.trouble = if cut {
            Trouble::Cut(since)
        } else {
            Trouble::Dead(since)
        };
        let Some(patience) = patience(&state.attr, qp.nic.device.config.retry) else {
            return;
        };
        if now >= since + patience {
            qp.break_down(state, IBV_WC_RETRY_EXC_ERR);
        } else {
            self.wake_at(since + patience, qp.number);
        }
    }

    fn send_on(&mut self, link: u64, qp: &Arc<Qp>, state: &mut QpState) {
        state.sender.wait = None;
        while state.sender.next < state.sender.queue.len() {
            if self.wait_if_full(link, qp) {
                return;
            }
            let index = state.sender.next;
            let error = match self.may_begin(qp, state) {
                Ok(true) => self.send_packet(link, qp, state).err(),
                Ok(false) => return,
                Err(status) => Some(status),
            };
            if let Some(status) = error {
                // Earlier requests complete first.
                if index == 0 {
                    qp.break_down(state, status);
                } else {
                    state.sender.queue[index].error = Some(status);
                    state.sender.offset = 0;
                }
                return;
            }
        }
    }

    /// False: the request must wait for earlier ones. Errors: it can never be sent.
    fn may_begin(&self, qp: &Qp, state: &QpState) -> Result<bool, u32> {
        let sender = &state.sender;
        let request = &sender.queue[sender.next];
        if sender.offset > 0 {
            return Ok(true);
        }
        if request.is_fenced && sender.reading > 0 {
            return Ok(false);
        }
        if let Some(status) = request.error {
            return Err(status);
        }
        if request.is_reading() {
            let most = u32::from(state.attr.max_rd_atomic);
            if most == 0 {
                return Err(IBV_WC_LOC_QP_OP_ERR);
            }
            let memory = qp.nic.memory.hold();
            let mut filled = request.list.iter().filter(|sge| sge.length > 0);
            if filled.any(|sge| memory.local(sge, qp.pd.number, true).is_none()) {
                return Err(IBV_WC_LOC_PROT_ERR);
            }
            return Ok(sender.reading < most);
        }
        Ok(true)
    }

    fn send_packet(&mut self, link: u64, qp: &Qp, state: &mut QpState) -> Result<(), u32> {
        let route = state.route();
        let sender = &mut state.sender;
        let request = &sender.queue[sender.next];
        let is_reading = request.is_reading();
        let len = match is_reading {
            true => 0,
            false => CHUNK.min(request.len - sender.offset),
        };
        let is_last = is_reading || sender.offset + len == request.len;
        let mut flags = if sender.offset == 0 { FIRST } else { 0 };
        flags |= if is_last { LAST } else { 0 };
        flags |= if request.is_solicited { SOLICITED } else { 0 };
        flags |= if request.has_immediate() {
            IMMEDIATE
        } else {
            0
        };
        let header = Header {
            dest: state.attr.dest_qp_num,
            source: qp.number,
            kind: request.opcode as u8,
            flags,
            depth: if is_reading {
                sender.reading as u8 + 1
            } else {
                0
            },
            status: 0,
            route,
            sequence: (sender.first + sender.next as u32) % SEQUENCE,
            epoch: sender.epoch,
            offset: sender.offset,
            len,
            total: request.len,
            rkey: request.rkey,
            immediate: request.immediate,
            slid: qp.nic.device.lid(state.attr.port_num).into(),
            remote: request.remote,
            operand: request.operand,
            swap: request.swap,
        };
        let out = self.begin(link, &header);
        let begun = out.len();
        match &request.inline {
            Some(data) => out.extend_from_slice(&data[header.offset as usize..][..len as usize]),
            None if len > 0 => {
                let memory = qp.nic.memory.hold();
                let gathered = memory.gather(&request.list, qp.pd.number, header.offset, len, out);
                if gathered.is_none() {
                    out.truncate(begun - HEADER);
                    return Err(IBV_WC_LOC_PROT_ERR);
                }
            }
            None => {}
        }
        if is_last {
            sender.offset = 0;
            sender.next += 1;
            sender.reading += u32::from(is_reading);
        } else {
            sender.offset += len;
        }
        Ok(())
    }

    /// Handles the answer of a responder.
    pub fn response(&mut self, header: &Header, data: &[u8]) {
        let Some(qp) = self.nic.qp(header.dest) else {
            return;
        };
        let mut guard = qp.state.lock();
        let state = &mut *guard;
        let is_for_it =
            !state.is_over && state.state == IBV_QPS_RTS && state.attr.dest_qp_num == header.source;
        let ahead = header.sequence + SEQUENCE - state.sender.first;
        let index = (ahead % SEQUENCE) as usize;
        let sent = state.sender.next + usize::from(state.sender.offset > 0);
        if !is_for_it || index >= sent {
            return;
        }
        match header.kind {
            // The answer is to a packet sent before the last restart.
            LOST | RNR if header.epoch != state.sender.epoch => return,
            ACK => carried_out(&qp, state, index + 1),
            _ => carried_out(&qp, state, index),
        }
        let is_oldest = state.sender.first == header.sequence;
        match header.kind {
            LOST => self.lost(&qp, state),
            _ if !is_oldest => {}
            RNR => self.not_ready(&qp, state, header.status),
            NAK => qp.break_down(state, header.status.into()),
            READ_DATA => arrived(&qp, state, header, data),
            ATOMIC_RESULT => {
                let header = Header {
                    flags: LAST,
                    ..*header
                };
                arrived(&qp, state, &header, &header.operand.to_ne_bytes());
            }
            _ => {}
        }
        self.send(&qp, state);
    }

    /// The peer did not accept the oldest request.
    fn lost(&mut self, qp: &Arc<Qp>, state: &mut QpState) {
        counters::count(Count::Retries);
        let now = Instant::now();
        let patience = patience(&state.attr, qp.nic.device.config.retry);
        let since = match state.sender.trouble {
            Trouble::Lost(since) => since,
            _ => now,
        };
        state.sender.trouble = Trouble::Lost(since);
        if patience.is_some_and(|patience| now - since >= patience) {
            return qp.break_down(state, IBV_WC_RETRY_EXC_ERR);
        }
        let tries = u32::from(state.attr.retry_cnt) + 1;
        let pause = patience.map_or(AGAIN.1, |all| (all / tries).clamp(AGAIN.0, AGAIN.1));
        self.begin_again(qp, state, now + pause);
    }

    /// The peer had no buffer for the oldest request.
    fn not_ready(&mut self, qp: &Arc<Qp>, state: &mut QpState, timer: u8) {
        counters::count(Count::Rnr);
        state.sender.trouble = Trouble::None;
        let most = u32::from(state.attr.rnr_retry);
        if most < 7 && state.sender.rnr >= most {
            return qp.break_down(state, IBV_WC_RNR_RETRY_EXC_ERR);
        }
        state.sender.rnr += 1;
        self.begin_again(qp, state, Instant::now() + rnr_delay(timer));
    }

    fn begin_again(&mut self, qp: &Qp, state: &mut QpState, at: Instant) {
        let sender = &mut state.sender;
        sender.next = 0;
        sender.offset = 0;
        sender.reading = 0;
        sender.epoch += 1;
        sender.wait = Some(at);
        self.wake_at(at, qp.number);
    }
}

/// The peer has executed the `count` oldest requests. Completes them up to the first read or atomic operation: it needs its own answer, which may be lost.
fn carried_out(qp: &Arc<Qp>, state: &mut QpState, count: usize) {
    let mut oldest = state.sender.queue.iter().take(count);
    let count = oldest
        .position(|request| request.is_reading())
        .unwrap_or(count);
    complete(qp, state, count);
}

fn complete(qp: &Arc<Qp>, state: &mut QpState, count: usize) {
    for _ in 0..count {
        let sender = &mut state.sender;
        let Some(request) = sender.queue.pop_front() else {
            return;
        };
        sender.next = sender.next.saturating_sub(1);
        sender.first = packet::next(sender.first);
        sender.reading -= u32::from(request.is_reading());
        sender.rnr = 0;
        sender.trouble = Trouble::None;
        if request.is_signaled {
            let mut wc = qp.completion(request.wr_id, IBV_WC_SUCCESS, request.completes_as());
            wc.byte_len = request.len;
            qp.push_sent(wc, request.slot);
        }
    }
}

/// Data for the oldest request have arrived.
fn arrived(qp: &Arc<Qp>, state: &mut QpState, header: &Header, data: &[u8]) {
    let Some(request) = state.sender.queue.front().filter(|of| of.is_reading()) else {
        return;
    };
    let memory = qp.nic.memory.hold();
    let written = memory.scatter(&request.list, qp.pd.number, header.offset, data);
    drop(memory);
    match written {
        None => qp.break_down(state, IBV_WC_LOC_PROT_ERR),
        Some(()) if header.flags & LAST != 0 => complete(qp, state, 1),
        Some(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_those_of_the_specification() {
        let micros = |timer| rnr_delay(timer).as_micros();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 8].map(micros),
            [10, 20, 30, 40, 60, 80, 120, 160]
        );
        assert_eq!([12, 14, 16].map(micros), [640, 1280, 2560]);
        assert_eq!([0, 31].map(micros), [20_000, 20_000]);
    }
}
