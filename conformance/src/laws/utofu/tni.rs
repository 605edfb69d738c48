//! §3.2 TNI query, §3.9 supplemental features, tables 6.1 to 6.5.

use super::circuit::{free_gates, gates};
use super::kit::*;

laws! {
    onesided_tnis: "tni.onesided", "§3.2.1.1", 2, [get_onesided_tnis, query_onesided_caps, create_vcq],
        "every TNI that is returned has capabilities and takes a VCQ; the array is freed by free()";
    barrier_tnis: "tni.barrier", "§3.2.1.2", 2, [get_barrier_tnis, query_barrier_caps, alloc_vbg],
        "every TNI that is returned has capabilities and gives a VBG; the array is freed by free()";
    onesided_caps: "tni.onesided.caps", "§3.2.2.1, table 6.4", 1, [query_onesided_caps],
        "the capabilities of one-sided communication agree with the table, for each TNI";
    barrier_caps: "tni.barrier.caps", "§3.2.2.2, table 6.5", 1, [query_barrier_caps],
        "the capabilities of barrier communication agree with the table, for each TNI";
    managed: "tni.caps.managed", "§3.2.1.3, §3.2.1.4", 1, [query_onesided_caps, query_barrier_caps],
        "capabilities are memory of the implementation: asking again gives the same place";
    versions: "version", "§3.9.1, table 6.1", 1, [query_tofu_version, query_utofu_version],
        "versions agree with the system and the header, and either pointer may come first";
    own_coordinates: "coordinates", "§3.9.2.1", 4, [query_my_coords, construct_vcq_id, query_vcq_info],
        "each process has unique coordinates, which the ids of its VCQs contain";
}

/// The TNIs. Frees the array.
pub(super) fn tnis(barrier: bool) -> Result<Vec<u16>, String> {
    let (mut ids, mut number) = (null_mut(), usize::MAX);
    if barrier {
        ok!(utofu_get_barrier_tnis(&mut ids, &mut number));
    } else {
        ok!(utofu_get_onesided_tnis(&mut ids, &mut number));
    }
    ensure!(!ids.is_null() && number > 0, "no TNI: {number}");
    // SAFETY:
    // - the function returned this number of elements.
    let tnis = unsafe { std::slice::from_raw_parts(ids, number) }.to_vec();
    // SAFETY:
    // - §3.2.1.1: the caller frees the array; it is not used after this.
    unsafe { libc::free(ids.cast()) };
    let mut different = tnis.clone();
    different.sort();
    different.dedup();
    ensure_eq!(different.len(), tnis.len(), "number of different TNIs");
    Ok(tnis)
}

/// The capabilities of one-sided communication.
fn onesided(tni: u16) -> Result<&'static utofu_onesided_caps, String> {
    let mut caps = null_mut();
    ok!(utofu_query_onesided_caps(tni, &mut caps));
    // SAFETY:
    // - memory that the implementation manages and keeps (see `managed`).
    Ok(unsafe { &*caps })
}

/// The capabilities of barrier communication.
fn barrier(tni: u16) -> Result<&'static utofu_barrier_caps, String> {
    let mut caps = null_mut();
    ok!(utofu_query_barrier_caps(tni, &mut caps));
    // SAFETY:
    // - as in `onesided`.
    Ok(unsafe { &*caps })
}

/// The TNIs of a process with a node to itself.
fn all_tnis(barrier: bool) -> Result<Vec<u16>, String> {
    let tnis = tnis(barrier)?;
    ensure_eq!(tnis.len(), 6, "number of TNIs (table 6.2)");
    Ok(tnis)
}

fn onesided_tnis(_: &Ctx) -> Verdict {
    for tni in all_tnis(false)? {
        onesided(tni)?;
        Queue::create(tni, 0)?.free()?;
    }
    Ok(())
}

fn barrier_tnis(_: &Ctx) -> Verdict {
    for tni in all_tnis(true)? {
        barrier(tni)?;
        free_gates(&gates::<1>(tni, 0)?)?;
    }
    Ok(())
}

fn onesided_caps(_: &Ctx) -> Verdict {
    for tni in all_tnis(false)? {
        let caps = onesided(tni)?;
        ensure_eq!(caps.flags, 0b11, "flags: session mode and ARMW");
        ensure_eq!(caps.armw_ops, 0b11_1111, "ARMW operations");
        ensure_eq!(caps.num_cmp_ids, 8, "component ids");
        ensure_eq!(caps.num_reserved_stags, 256, "reserved STags");
        ensure_eq!(caps.cache_line_size, 256, "cache line");
        ensure_eq!(caps.stag_address_alignment, 256, "alignment");
        ensure_eq!(caps.max_toq_desc_size, 64, "descriptor");
        ensure_eq!(caps.max_putget_size, 16_777_215, "put and get");
        ensure_eq!(caps.max_piggyback_size, 32, "piggyback");
        ensure_eq!(caps.max_edata_size, 1, "EDATA");
        ensure_eq!(caps.max_mtu, 1920, "MTU");
        ensure_eq!(caps.max_gap, 255, "gap");
    }
    Ok(())
}

fn barrier_caps(_: &Ctx) -> Verdict {
    for tni in all_tnis(true)? {
        let caps = barrier(tni)?;
        ensure_eq!(caps.flags, 0, "flags");
        ensure_eq!(caps.reduce_ops, 0b1_1111_1110, "reductions");
        ensure_eq!(caps.max_uint64_reduction, 6, "integers");
        ensure_eq!(caps.max_double_reduction, 3, "floating-point numbers");
    }
    Ok(())
}

fn managed(_: &Ctx) -> Verdict {
    let same = std::ptr::eq(onesided(TNI)?, onesided(TNI)?);
    ensure!(same, "capabilities of one-sided communication");
    let same = std::ptr::eq(barrier(TNI)?, barrier(TNI)?);
    ensure!(same, "capabilities of barrier communication");
    Ok(())
}

fn versions(_: &Ctx) -> Verdict {
    let (mut major, mut minor) = (-1, -1);
    c!(utofu_query_tofu_version(&mut major, &mut minor));
    ensure_eq!((major, minor), (3, 0), "version of the Tofu interconnect");
    c!(utofu_query_utofu_version(&mut major, &mut minor));
    equal!((major, minor), (1, 0), "version of uTofu")
}

fn own_coordinates(ctx: &Ctx) -> Verdict {
    let own = my_coords()?;
    ensure_eq!(own, coords(ctx.rank)?, "coordinates of the process");
    for rank in (0..ctx.size).filter(|rank| *rank != ctx.rank) {
        ensure!(coords(rank)? != own, "rank {rank} is at the same {own:?}");
    }
    let queue = Queue::create(TNI, 0)?;
    let seen = vcq_info(queue.id)?.0;
    ensure_eq!(seen, own, "coordinates that the id of a VCQ names");
    queue.free()
}
