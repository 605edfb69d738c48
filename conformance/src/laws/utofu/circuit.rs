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
    done!(utofu_free_vbg(ids.as_ptr().cast_mut(), ids.len()))
}

/// Frees this gate, the only one of its allocation.
pub(super) fn free_gate(id: u64) -> Verdict {
    free_gates(&[id])
}

/// Allocates the gates of one allocation.
pub(super) fn gates<const N: usize>(tni: u16, flags: u64) -> Result<[u64; N], String> {
    let mut ids = [0; N];
    ok!(utofu_alloc_vbg(tni, N, flags, ids.as_mut_ptr()));
    Ok(ids)
}

/// A barrier of the circuit of this gate.
pub(super) fn one_barrier(end: u64) -> Verdict {
    ok!(utofu_barrier(end, 0));
    completed("a barrier", || c!(utofu_poll_barrier(end, 0)))
}

/// Starts an operation, as [`start`]; fails unless that succeeds.
#[track_caller]
pub(super) fn begin(end: u64, op: u32, data: &[u64]) -> Verdict {
    code_is(start(end, op, data), SUCCESS, format!("starting {op}"))
}

/// Polls until the operation succeeds.
pub(super) fn finish(end: u64, op: u32, data: &mut [u64]) -> Verdict {
    completed("a reduction", || poll(end, op, data))
}

/// A reduction of the first `count` elements, in place.
pub(super) fn reduce(end: u64, op: u32, data: &mut [u64], count: usize) -> Verdict {
    begin(end, op, &data[..count])?;
    finish(end, op, data)
}

/// `UTOFU_VBG_ID_NULL`.
pub(super) const NULL: u64 = u64::MAX;

pub(super) const NOT_COMPLETED: i32 = UTOFU_ERR_NOT_COMPLETED;

/// Maximum number of VBGs of a participant.
pub(super) const ROW: usize = 16;

/// Maximum number of participants of a circuit.
pub(super) const ROWS: usize = 16;

/// Bytes of memory that [`Circuit::build`] uses, at its begin.
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
pub(super) struct Plan {
    name: String,
    /// By participant.
    pub(super) gates: Vec<Vec<Links>>,
}

impl Plan {
    fn new(shape: &str, participants: usize) -> Plan {
        Plan {
            name: format!("{shape} of {participants}"),
            gates: vec![vec![Links::default()]; participants],
        }
    }

    fn gate(&mut self, (who, gate): (usize, usize)) -> &mut Links {
        let gates = &mut self.gates[who];
        if gates.len() <= gate {
            gates.resize(gate + 1, Links::default());
        }
        &mut gates[gate]
    }

    fn signal(&mut self, who: usize, from: usize, to: usize) {
        assert!(self.gate((who, from)).dst_signal.replace(to).is_none());
        assert!(self.gate((who, to)).src_signal.replace(from).is_none());
    }

    fn packet(&mut self, from: (usize, usize), to: (usize, usize)) {
        assert!(self.gate(from).dst_packet.replace(to).is_none());
        assert!(self.gate(to).src_packet.replace(from).is_none());
    }
}

/// A butterfly for a power of two, as the program of §5.2.1 sets it: the end gates take the last exchange.
pub(super) fn butterfly(participants: usize) -> Plan {
    let steps = participants.ilog2() as usize;
    let mut plan = Plan::new("butterfly", participants);
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
    let mut plan = Plan::new("folded butterfly", participants);
    // Gate 1 of a participant with a partner beyond takes its packet. The next gates do the exchanges.
    let sender = |who: usize, step: usize| step + usize::from(who + within < participants);
    for who in 0..within {
        for step in 0..steps {
            let (other, next) = (who ^ 1 << step, step + 1);
            plan.signal(who, sender(who, step), sender(who, next));
            plan.packet((who, sender(who, step)), (other, sender(other, next)));
        }
        let last = sender(who, steps);
        plan.signal(who, last, 0);
        let beyond = who + within;
        if beyond < participants {
            plan.packet((beyond, 0), (who, 1));
            plan.signal(who, 0, 1);
            plan.packet((who, last), (beyond, 0));
        }
    }
    plan
}

/// The first pass around the ring collects, the second pass announces the result.
pub(super) fn ring(participants: usize) -> Plan {
    let mut plan = Plan::new("ring", participants);
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
    let mut plan = Plan::new("neighbours", participants);
    for who in 0..participants {
        let [left, right] = [participants - 1, 1].map(|far| (who + far) % participants);
        plan.packet((who, 0), (right, 0));
        plan.signal(who, 0, 1);
        plan.packet((who, 1), (left, 2));
        plan.signal(who, 2, 0);
    }
    plan
}

/// Up a binary tree, and down again.
pub(super) fn tree(participants: usize) -> Plan {
    let mut plan = Plan::new("tree", participants);
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

/// Runs the body with a circuit of this plan, and with memory of [`TABLE`] plus 256 bytes. The last argument is a gate to start with.
pub(super) fn circuit(
    ctx: &Ctx,
    plan: Plan,
    body: impl FnOnce(&Job<'_>, &Circuit, u64) -> Verdict,
) -> Verdict {
    with(ctx, TABLE + 256, |job| {
        let name = plan.name.clone();
        let circuit = Circuit::build(job, plan, TNI)?;
        let end = circuit.ends().first().copied().unwrap_or(NULL);
        body(job, &circuit, end).map_err(|e| format!("{name}: {e}"))?;
        job.meet();
        circuit.free()
    })
}

/// As [`circuit`], for one plan after the other.
pub(super) fn circuits(
    ctx: &Ctx,
    plans: impl IntoIterator<Item = Plan>,
    body: impl Fn(&Job<'_>, &Circuit, u64) -> Verdict,
) -> Verdict {
    for_all(plans, |plan| circuit(ctx, plan, &body))
}

/// The usual plans for four ranks.
pub(super) fn of_four() -> [Plan; 3] {
    [butterfly(4), ring(4), tree(4)]
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
        let participants = plan.gates.len();
        assert!(participants <= ROWS);
        let mine: Vec<usize> = (0..participants)
            .filter(|who| who % ranks == job.rank as usize)
            .collect();
        for who in &mine {
            let gates = plan.gates[*who].len() + spare;
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
                let gates = plan.gates[who].len() + spare;
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
            let mut settings: Vec<utofu_vbg_setting> = self.plan.gates[*who]
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
        for_all(self.ends(), |end| {
            completed("utofu_poll_barrier", || c!(utofu_poll_barrier(end, 0)))
        })
    }

    /// One reduction; `input` gets the participant. Any NaN matches a NaN.
    pub(super) fn integers(
        &self,
        op: u32,
        count: usize,
        input: impl Fn(usize) -> Vec<u64>,
        expected: &[u64],
    ) -> Verdict {
        for who in &self.mine {
            begin(self.ids[*who][0], op, &input(*who)[..count])?;
        }
        let is_nan = |bits: u64| op == BFPSUM && f64::from_bits(bits).is_nan();
        for who in &self.mine {
            let (end, mut result) = (self.ids[*who][0], [UNTOUCHED; 8]);
            completed("polling a reduction", || {
                let code = poll(end, op, &mut result);
                assert!(code == SUCCESS || result == [UNTOUCHED; 8]);
                code
            })?;
            let behind = std::iter::repeat(&UNTOUCHED);
            let expected = expected[..count].iter().chain(behind);
            for (nth, (seen, expected)) in result.iter().zip(expected).enumerate() {
                ensure!(
                    seen == expected || is_nan(*seen) && is_nan(*expected),
                    "operation {op} of {count} at participant {who}: element {nth} is {seen:#x} instead of {expected:#x}"
                );
            }
        }
        Ok(())
    }

    /// One sum, by the bits of the doubles.
    pub(super) fn doubles(
        &self,
        count: usize,
        input: impl Fn(usize) -> Vec<f64>,
        expected: &[f64],
    ) -> Verdict {
        let bits = |doubles: &[f64]| doubles.iter().map(|double| double.to_bits()).collect();
        let expected: Vec<u64> = bits(expected);
        self.integers(BFPSUM, count, |who| bits(&input(who)), &expected)
    }
}

/// Starts an operation on these elements: 0 is a barrier, [`BFPSUM`] takes the bits of doubles.
pub(super) fn start(end: u64, op: u32, data: &[u64]) -> i32 {
    let (at, count) = (data.as_ptr().cast_mut(), data.len());
    match op {
        0 => c!(utofu_barrier(end, 0)),
        BFPSUM => c!(utofu_reduce_double(end, op, at.cast(), count, 0)),
        _ => c!(utofu_reduce_uint64(end, op, at, count, 0)),
    }
}

/// Polls for the end of an operation that [`start`] has started; there is room for its elements.
pub(super) fn poll(end: u64, op: u32, data: &mut [u64]) -> i32 {
    match op {
        0 => c!(utofu_poll_barrier(end, 0)),
        BFPSUM => c!(utofu_poll_reduce_double(end, 0, data.as_mut_ptr().cast())),
        _ => c!(utofu_poll_reduce_uint64(end, 0, data.as_mut_ptr())),
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
