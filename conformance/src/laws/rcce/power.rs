//! Voltage and frequency, simulated: requests are checked and recorded.

use super::kit::*;
use crate::kit::printed;

laws! {
    domains: "power.domains", "RCCE RCCE_power_domain", 6, [RCCE_power_domain, RCCE_power_domain_master, RCCE_power_domain_size],
        "cores 0 to 3 are in domain 0 and 4 to 5 in domain 1; the master is the first UE of the domain";
    request: "power.request", "RCCE RCCE_iset_power", 2, [RCCE_iset_power, RCCE_wait_power],
        "the master's request says what will be, and is ended by its wait; others' do nothing";
    one_at_a_time: "power.one-at-a-time", "RCCE RCCE_iset_power", 1, [RCCE_iset_power, RCCE_wait_power],
        "there is one request at a time, and none is waited for twice";
    divider: "power.divider", "RCCE RCCE_set_frequency_divider", 1, [RCCE_set_frequency_divider, RCCE_iset_power],
        "dividers are 2 to 16; a divider that the voltage does not allow gives ERROR_FREQUENCY_EXCEEDED";
    tiles: "power.tiles", "RCCE print_dividers", 1, [RCCE_set_frequency_divider, print_dividers],
        "the tiles of this UE's domain have its divider, the others what they had at first";
}

fn tiles(_: &Ctx) -> Verdict {
    let shown = || {
        printed(|| {
            c!(print_dividers());
            Ok(())
        })
    };
    let lines = |divider: fn(usize) -> i32| {
        let line = |tile| format!("Clock divider for tile {tile} is {}\n", divider(tile));
        (0..24).map(line).collect::<String>()
    };
    ensure_eq!(shown()?, lines(|_| 3), "the dividers at first");
    let divider: i32 = got!(RCCE_set_frequency_divider(7));
    ensure_eq!(divider, 7, "the divider");
    // Core 0 is in the domain of the first two tiles of the first two rows of 6.
    let mine = |tile| if tile % 6 < 2 && tile / 6 < 2 { 7 } else { 3 };
    equal!(shown()?, lines(mine), "the dividers then")
}

fn domains(ctx: &Ctx) -> Verdict {
    let me = ctx.rank as i32;
    let (domain, master, size) = if me < 4 { (0, 0, 4) } else { (1, 4, 2) };
    ensure_eq!(c!(RCCE_power_domain()), domain, "the domain");
    ensure_eq!(c!(RCCE_power_domain_master()), master, "the master");
    equal!(c!(RCCE_power_domain_size()), size, "the size")
}

fn request(ctx: &Ctx) -> Verdict {
    let mut request = RCCE_REQUEST::default();
    let (mut divider, mut level) = (-7, -7);
    ok!(RCCE_iset_power(4, &mut request, &mut divider, &mut level));
    if ctx.rank == 1 {
        ensure_eq!((divider, level), (-7, -7), "at a UE that is no master");
        ok!(RCCE_wait_power(&mut request));
        ok!(RCCE_set_frequency_divider(2, &mut divider));
        ensure_eq!(divider, -7, "its divider");
        return Ok(());
    }
    ensure_eq!((divider, level), (4, 0), "divider and level");
    let asked = (request.new_frequency_divider, request.new_voltage_level);
    ensure_eq!((asked, request.release), ((4, 0), 0), "the request");
    ok!(RCCE_wait_power(&mut request));
    ensure_eq!(request.release, 1, "the request after the wait");
    let mut next = RCCE_REQUEST::default();
    ok!(RCCE_iset_power(2, &mut next, null_mut(), null_mut()));
    let before = (next.old_frequency_divider, next.old_voltage_level);
    ensure_eq!(before, (4, 0), "what was before");
    done!(RCCE_wait_power(&mut next))
}

fn one_at_a_time(_: &Ctx) -> Verdict {
    let (mut request, mut other) = (RCCE_REQUEST::default(), RCCE_REQUEST::default());
    gives! {
        RCCE_wait_power(&mut request) => RCCE_ERROR_NO_ACTIVE_RPC_REQUEST;
        RCCE_iset_power(8, &mut request, null_mut(), null_mut()) => SUCCESS;
        RCCE_iset_power(8, &mut other, null_mut(), null_mut()) => RCCE_ERROR_MULTIPLE_RPC_REQUESTS;
        RCCE_wait_power(&mut request) => SUCCESS;
        RCCE_wait_power(&mut request) => RCCE_ERROR_NO_ACTIVE_RPC_REQUEST;
        RCCE_iset_power(8, &mut other, null_mut(), null_mut()) => SUCCESS;
        RCCE_wait_power(&mut request) => RCCE_ERROR_STALE_RPC_REQUEST;
        RCCE_iset_power(8, null_mut(), null_mut(), null_mut()) => RCCE_ERROR_RPC_NOT_ALLOCATED;
        RCCE_wait_power(null_mut()) => RCCE_ERROR_RPC_NOT_ALLOCATED;
    }
    Ok(())
}

fn divider(_: &Ctx) -> Verdict {
    let mut seen = -7;
    for wanted in [-5, 0, 2, 7, 16, 17, i32::MAX] {
        let given = wanted.clamp(2, 16);
        let mut request = RCCE_REQUEST::default();
        ok!(RCCE_iset_power(wanted, &mut request, &mut seen, null_mut()));
        ensure_eq!(seen, given, "the divider for {wanted}");
        ok!(RCCE_wait_power(&mut request));
    }
    // The voltage is at its lowest now.
    let code = c!(RCCE_set_frequency_divider(2, &mut seen));
    ensure_eq!(code, RCCE_ERROR_FREQUENCY_EXCEEDED, "divider 2");
    ok!(RCCE_set_frequency_divider(16, &mut seen));
    ensure_eq!(seen, 16, "the divider");
    ok!(RCCE_set_frequency_divider(99, null_mut()));
    ensure!(c!(RCCE_power_domain_size()) == 1, "a job of one UE");
    Ok(())
}
