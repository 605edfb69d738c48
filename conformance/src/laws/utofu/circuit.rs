//! Circuits of barrier gates: their shapes, their setup, and the waits of laws for them.

use super::kit::*;

/// `enum utofu_reduce_op`.
pub(super) const BAND: u32 = 2;

pub(super) const BOR: u32 = 3;

pub(super) const BXOR: u32 = 4;

pub(super) const MAX: u32 = 5;

pub(super) const MAXLOC: u32 = 6;

pub(super) const SUM: u32 = 7;

pub(super) const BFPSUM: u32 = 8;

/// The settings of a gate: the VBGs of its signals, from and to, then those of its packets.
pub(super) fn setting(
    vbg_id: u64,
    [src_lcl_vbg_id, dst_lcl_vbg_id]: [u64; 2],
    [src_rmt_vbg_id, dst_rmt_vbg_id]: [u64; 2],
) -> utofu_vbg_setting {
    utofu_vbg_setting {
        vbg_id,
        src_lcl_vbg_id,
        src_rmt_vbg_id,
        dst_lcl_vbg_id,
        dst_rmt_vbg_id,
        dst_path_coords: [u8::MAX; 3],
    }
}

/// The settings of a gate that signals to itself and exchanges packets with the peer, or with none.
pub(super) fn beside(id: u64, peer: u64) -> utofu_vbg_setting {
    setting(id, [id; 2], [peer; 2])
}

/// The code of setting these gates.
pub(super) fn set_code(settings: &[utofu_vbg_setting]) -> i32 {
    c!(utofu_set_vbg(settings.as_ptr().cast_mut(), settings.len()))
}

/// Sets these gates.
#[track_caller]
pub(super) fn set_gates(settings: &[utofu_vbg_setting]) -> Verdict {
    code_is(set_code(settings), SUCCESS, "utofu_set_vbg")
}

/// Frees these gates, the gates of one allocation.
pub(super) fn free_gates(ids: &[u64]) -> Verdict {
    ok!(utofu_free_vbg(ids.as_ptr().cast_mut(), ids.len()));
    Ok(())
}

/// Frees this gate, the only one of its allocation.
pub(super) fn free_gate(id: u64) -> Verdict {
    free_gates(&[id])
}

/// Polls a sum of integers until it succeeds.
pub(super) fn finish_uint64(end: u64, what: &str, data: &mut [u64]) -> Verdict {
    completed(what, || {
        c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr()))
    })
}

/// As [`finish_uint64`], of doubles.
pub(super) fn finish_double(end: u64, what: &str, data: &mut [f64]) -> Verdict {
    completed(what, || {
        c!(utofu_poll_reduce_double(end, 0, data.as_mut_ptr()))
    })
}

/// `UTOFU_VBG_ID_NULL`.
pub(super) const NULL: u64 = u64::MAX;

pub(super) const NOT_COMPLETED: i32 = UTOFU_ERR_NOT_COMPLETED;

/// Maximum number of VBGs of a participant.
pub(super) const ROW: usize = 16;

/// Maximum number of participants of a circuit.
pub(super) const ROWS: usize = 16;

/// Bytes of memory that [`Circuit::build`] uses.
pub(super) const TABLE: usize = ROWS * ROW * 8;

/// The inputs and outputs of a gate. Local ones are gates of the same participant; remote ones are gates of any participant.
#[derive(Clone, Copy, Default)]
pub(super) struct Links {
    src_signal: Option<usize>,
    src_packet: Option<(usize, usize)>,
    dst_signal: Option<usize>,
    dst_packet: Option<(usize, usize)>,
}

/// The plan of a circuit. Gate 0 of each participant starts and ends.
#[derive(Clone)]
pub(super) struct Plan(pub(super) Vec<Vec<Links>>);

impl Plan {
    pub(super) fn new(participants: usize) -> Plan {
        Plan(vec![vec![Links::default()]; participants])
    }

    pub(super) fn gate(&mut self, (who, gate): (usize, usize)) -> &mut Links {
        let gates = &mut self.0[who];
        if gates.len() <= gate {
            gates.resize(gate + 1, Links::default());
        }
        &mut gates[gate]
    }

    pub(super) fn signal(&mut self, who: usize, from: usize, to: usize) {
        assert!(self.gate((who, from)).dst_signal.replace(to).is_none());
        assert!(self.gate((who, to)).src_signal.replace(from).is_none());
    }

    pub(super) fn packet(&mut self, from: (usize, usize), to: (usize, usize)) {
        assert!(self.gate(from).dst_packet.replace(to).is_none());
        assert!(self.gate(to).src_packet.replace(from).is_none());
    }
}

/// A butterfly for a power of two, as the program of §5.2.1 sets it: the end gates take the last exchange.
pub(super) fn butterfly(participants: usize) -> Plan {
    let steps = participants.ilog2() as usize;
    let mut plan = Plan::new(participants);
    for who in 0..participants {
        for step in 0..steps {
            let next = (step + 1) % steps;
            plan.signal(who, step, next);
            plan.packet((who, step), (who ^ 1 << step, next));
        }
    }
    plan
}

/// Figure 2.17: each participant beyond the power of two sends its packet to one within, which sends the result back.
pub(super) fn folded(participants: usize) -> Plan {
    let steps = participants.ilog2() as usize;
    let within = 1 << steps;
    let mut plan = Plan::new(participants);
    for who in 0..within {
        let beyond = Some(who + within).filter(|beyond| *beyond < participants);
        // Gate 1 takes the packet from beyond; gates 2, 3, ... do the exchanges.
        let first = if beyond.is_some() { 1 } else { 0 };
        if let Some(beyond) = beyond {
            plan.packet((beyond, 0), (who, 1));
            plan.signal(who, 0, 1);
        }
        let sender = |step: usize| if step == 0 { first } else { step + 1 };
        for step in 0..steps {
            let other = who ^ 1 << step;
            plan.signal(who, sender(step), step + 2);
            plan.packet((who, sender(step)), (other, step + 2));
        }
        plan.signal(who, steps + 1, 0);
        if let Some(beyond) = beyond {
            plan.packet((who, steps + 1), (beyond, 0));
        }
    }
    // A participant without a partner beyond has no gate 1.
    for gates in &mut plan.0[..within] {
        if gates.len() > 1 && gates[1].src_packet.is_none() {
            let less = |gate: usize| if gate > 1 { gate - 1 } else { gate };
            gates.remove(1);
            for links in gates.iter_mut() {
                links.src_signal = links.src_signal.map(less);
                links.dst_signal = links.dst_signal.map(less);
            }
        }
    }
    let has_one = |who: usize| who < within && who + within < participants;
    let all: Vec<usize> = (0..participants).collect();
    for who in all {
        for links in &mut plan.0[who] {
            for (other, gate) in [&mut links.src_packet, &mut links.dst_packet]
                .into_iter()
                .flatten()
            {
                if *other < within && !has_one(*other) && *gate > 1 {
                    *gate -= 1;
                }
            }
        }
    }
    plan
}

/// The first pass around the ring collects, the second pass announces the result.
pub(super) fn ring(participants: usize) -> Plan {
    let mut plan = Plan::new(participants);
    let (collect, last) = (1, participants - 1);
    let tell = |who: usize| if who == 0 { 1 } else { 2 };
    plan.packet((0, 0), (1, collect));
    for who in 1..participants {
        plan.signal(who, 0, collect);
        if who < last {
            plan.packet((who, collect), (who + 1, collect));
        }
    }
    plan.signal(last, collect, 0);
    plan.packet((last, collect), (0, tell(0)));
    for who in 0..last {
        plan.signal(who, tell(who), 0);
        if who + 1 < last {
            plan.packet((who, tell(who)), (who + 1, tell(who + 1)));
        }
    }
    plan
}

/// Each participant sends to both neighbours in a ring, and waits for these two only.
pub(super) fn neighbours(participants: usize) -> Plan {
    let mut plan = Plan::new(participants);
    for who in 0..participants {
        let (left, right) = (
            (who + participants - 1) % participants,
            (who + 1) % participants,
        );
        plan.packet((who, 0), (right, 0));
        plan.signal(who, 0, 1);
        plan.packet((who, 1), (left, 2));
        plan.signal(who, 2, 0);
    }
    plan
}

/// Up a binary tree, and down again.
pub(super) fn tree(participants: usize) -> Plan {
    let mut plan = Plan::new(participants);
    let children =
        |who: usize| (2 * who + 1..2 * who + 3).filter(move |child| *child < participants);
    // Gates 1 and 2 collect from the children; the next ones send them the result.
    let top = |who: usize| children(who).count();
    for who in 0..participants {
        let down = 1 + top(who);
        for (nth, child) in children(who).enumerate() {
            let told = if top(child) == 0 { 0 } else { 1 + top(child) };
            plan.signal(who, nth, nth + 1);
            plan.packet((child, top(child)), (who, nth + 1));
            plan.packet((who, down + nth), (child, told));
            if nth > 0 {
                plan.signal(who, down + nth - 1, down + nth);
            }
        }
        if top(who) > 0 {
            plan.signal(who, 2 * top(who), 0);
        }
    }
    plan.signal(0, top(0), 1 + top(0));
    plan
}

/// A built circuit. Rank p modulo the number of ranks plays participant p.
pub(super) struct Circuit {
    pub(super) plan: Plan,
    pub(super) ranks: usize,
    /// Gate IDs by participant.
    pub(super) ids: Vec<Vec<u64>>,
    pub(super) mine: Vec<usize>,
}

impl Circuit {
    /// All ranks call this together. Participant p uses TNI `tni` plus p / ranks.
    pub(super) fn build(job: &Job<'_>, plan: Plan, tni: u16) -> Result<Circuit, String> {
        Circuit::build_spare(job, plan, tni, 0)
    }

    /// Like [`Circuit::build`], with spare VBGs.
    pub(super) fn build_spare(
        job: &Job<'_>,
        plan: Plan,
        tni: u16,
        spare: usize,
    ) -> Result<Circuit, String> {
        let ranks = job.size as usize;
        let participants = plan.0.len();
        assert!(participants <= ROWS);
        let mine: Vec<usize> = (0..participants)
            .filter(|who| who % ranks == job.rank as usize)
            .collect();
        for who in &mine {
            let gates = plan.0[*who].len() + spare;
            assert!(gates <= ROW);
            let mut ids = [0u64; ROW];
            let tni = tni + (who / ranks) as u16;
            ok!(utofu_alloc_vbg(tni, gates, 0, ids.as_mut_ptr()));
            let row = who * ROW * 8;
            for (i, id) in ids.iter().enumerate() {
                job.memory.set(row + i * 8, *id);
            }
            for other in (0..job.size).filter(|other| *other != job.rank) {
                job.put(other, row, row, ROW * 8).noticed(0, 0)?;
            }
        }
        job.meet();
        let ids = (0..participants)
            .map(|who| {
                let gates = plan.0[who].len() + spare;
                (0..gates)
                    .map(|gate| job.memory.get((who * ROW + gate) * 8))
                    .collect()
            })
            .collect();
        let circuit = Circuit {
            plan,
            ranks,
            ids,
            mine,
        };
        circuit.set(|_| {})?;
        job.meet();
        Ok(circuit)
    }

    /// Sets the own gates. `change` may reorder the settings, but the first one stays first.
    pub(super) fn set(&self, change: impl Fn(&mut Vec<utofu_vbg_setting>)) -> Verdict {
        for who in &self.mine {
            let id = |gate: Option<usize>| gate.map_or(NULL, |gate| self.ids[*who][gate]);
            let far =
                |end: Option<(usize, usize)>| end.map_or(NULL, |(who, gate)| self.ids[who][gate]);
            let mut settings: Vec<utofu_vbg_setting> = self.plan.0[*who]
                .iter()
                .enumerate()
                .map(|(gate, links)| utofu_vbg_setting {
                    vbg_id: self.ids[*who][gate],
                    src_lcl_vbg_id: id(links.src_signal),
                    src_rmt_vbg_id: far(links.src_packet),
                    dst_lcl_vbg_id: id(links.dst_signal),
                    dst_rmt_vbg_id: far(links.dst_packet),
                    dst_path_coords: [u8::MAX, 7, 7],
                })
                .collect();
            change(&mut settings);
            set_gates(&settings)?;
        }
        Ok(())
    }

    /// The start/end VBGs that this rank plays.
    pub(super) fn ends(&self) -> Vec<u64> {
        self.mine.iter().map(|who| self.ids[*who][0]).collect()
    }

    pub(super) fn participants(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn free(self) -> Verdict {
        self.mine
            .iter()
            .try_for_each(|who| free_gates(&self.ids[*who]))
    }

    /// One barrier.
    pub(super) fn barrier(&self) -> Verdict {
        for end in self.ends() {
            ok!(utofu_barrier(end, 0));
        }
        for end in self.ends() {
            completed("utofu_poll_barrier", || c!(utofu_poll_barrier(end, 0)))?;
        }
        Ok(())
    }

    /// One reduction; `input` and `check` get the participant.
    pub(super) fn integers(
        &self,
        op: u32,
        count: usize,
        input: impl Fn(usize) -> Vec<u64>,
        expected: &[u64],
    ) -> Verdict {
        for who in &self.mine {
            let data = input(*who);
            reduce_uint64(self.ids[*who][0], op, &data, count)?;
        }
        for who in &self.mine {
            let mut result = [UNTOUCHED; 8];
            let end = self.ids[*who][0];
            completed("utofu_poll_reduce_uint64", || {
                let code = c!(utofu_poll_reduce_uint64(end, 0, result.as_mut_ptr()));
                assert!(code == SUCCESS || result == [UNTOUCHED; 8]);
                code
            })?;
            ensure_eq!(
                result[..count],
                expected[..count],
                "operation {op} at participant {who}"
            );
            ensure!(
                result[count..].iter().all(|word| *word == UNTOUCHED),
                "operation {op} of {count} elements wrote behind them: {result:x?}"
            );
        }
        Ok(())
    }

    /// One sum. The bits of the result must be the expected ones; any NaN matches a NaN.
    pub(super) fn doubles(
        &self,
        count: usize,
        input: impl Fn(usize) -> Vec<f64>,
        expected: &[f64],
    ) -> Verdict {
        for who in &self.mine {
            let data = input(*who);
            reduce_double(self.ids[*who][0], BFPSUM, &data, count)?;
        }
        for who in &self.mine {
            let mut result = [f64::from_bits(UNTOUCHED); 4];
            let end = self.ids[*who][0];
            finish_double(end, "utofu_poll_reduce_double", &mut result)?;
            for (nth, (seen, expected)) in result.iter().zip(&expected[..count]).enumerate() {
                ensure!(
                    seen.to_bits() == expected.to_bits() || seen.is_nan() && expected.is_nan(),
                    "element {nth} of a sum at participant {who}: {seen:e} instead of {expected:e}"
                );
            }
            ensure!(
                result[count..]
                    .iter()
                    .all(|word| word.to_bits() == UNTOUCHED),
                "a sum of {count} elements wrote behind them"
            );
        }
        Ok(())
    }
}

/// Elements that no function may write.
pub(super) const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Polls until the code differs from NOT_COMPLETED.
pub(super) fn ended(what: &str, mut poll: impl FnMut() -> i32) -> Result<i32, String> {
    let mut looks = Looks::for_the(what);
    loop {
        match poll() {
            NOT_COMPLETED => looks.again(),
            code => return Ok(code),
        }
    }
}

/// Polls to the end, and expects success.
pub(super) fn completed(what: &str, poll: impl FnMut() -> i32) -> Verdict {
    match ended(what, poll)? {
        SUCCESS => Ok(()),
        code => Err(format!("{what} gave {}", code_name(code))),
    }
}
