//! [`Channel::atomic`](unipgas_core::transport::Channel::atomic).

use unipgas_core::atomic::{AtomicForm, apply_vector, supported};
use unipgas_core::{AtomicRequest, Error, Flags};

use super::super::atomics::{COUNT, Elements, SIZE, elements, results};
use super::super::rank::{Says, cells, update};
use super::node::on_nodes;
use crate::kit::same;
use crate::law::{Ctx, Verdict, not_offered};
use crate::{ensure, ensure_eq};

laws! {
    "core.transport.atomic.table", "unipgas core: Channel::atomic; Limits::atomics", 2,
        "every operation on every type gives the result of the local operation, on one element and on several; undefined ones are refused" => table;
    "core.transport.atomic.distinct", "unipgas core: Channel::atomic", 4 + ordering,
        "numbers that all processes fetch by adding 1 are each given once" => distinct;
}

fn table(ctx: &Ctx) -> Verdict {
    on_nodes(ctx, 4096, |node| {
        let mut random = ctx.random(ctx.rank.into());
        let dst = node.at(node.right(), 128);
        for (op, ty) in cells() {
            for nth in 0..4 {
                let what = format!("{op:?} on {ty:?}");
                let mut mirror = Elements(elements(ty, &mut random));
                node.source().store(0, &mirror.0);
                node.put(0, dst, SIZE * COUNT, Flags::empty())?;
                let (operand, compare) = (elements(ty, &mut random), elements(ty, &mut random));
                let count = if nth % 2 == 0 { 1 } else { COUNT };
                let fetches = op.form() == AtomicForm::FetchOnly || nth >= 2;
                let (mut fetched, mut expected) = ([0x3cu8; SIZE * COUNT], [0x3cu8; SIZE * COUNT]);
                let request = AtomicRequest {
                    compare: compare.as_ptr(),
                    result: results(fetches, &mut fetched),
                    ..update(op, ty, count, operand.as_ptr())
                };
                let result = node.atomic(dst, &request)?;
                if supported(op, ty) && node.limits().atomics {
                    result.says(&what)?;
                    let (target, place) = (mirror.0.as_mut_ptr(), results(fetches, &mut expected));
                    let (operand, compare) = (operand.as_ptr(), compare.as_ptr());
                    // SAFETY:
                    // - room for COUNT elements of SIZE bytes each; the mirror is aligned to 32 bytes and belongs to this call.
                    unsafe { apply_vector(op, ty, target, count, operand, compare, place) }
                        .says("the mirror")?;
                } else {
                    ensure_eq!(result, Err(Error::Unsupported), "{what}");
                }
                // SAFETY:
                // - a plain local; the operation may have written it through a pointer.
                let fetched = unsafe { (&raw const fetched).read_volatile() };
                ensure!(fetched == expected, "{what}: fetched something else");
                let seen = node.get(dst, SIZE * COUNT)?;
                same(&seen, &mirror.0, &what)?;
            }
        }
        ctx.sync();
        node.own().all(0, 128, 0, "before the elements")?;
        let behind = 128 + SIZE * COUNT;
        node.own()
            .all(behind, 4096 - behind, 0, "behind the elements")
    })
}

fn distinct(ctx: &Ctx) -> Verdict {
    const EACH: usize = 40;
    let others = ctx.size as usize - 1;
    on_nodes(ctx, 64 + others * EACH * 8, |node| {
        if !node.limits().atomics {
            return not_offered("the engine asks the owner by active messages");
        }
        if ctx.rank != 0 {
            for _ in 0..EACH {
                let number = node.add(node.at(0, 8), 1)? as usize;
                ensure!(number < others * EACH, "number {number}");
                node.add(node.at(0, 64 + number * 8), 1)?;
            }
        }
        ctx.sync();
        if ctx.rank == 0 {
            for number in 0..others * EACH {
                let times = node.own().get(64 + number * 8);
                ensure_eq!(times, 1, "how often {number} was given");
            }
        }
        Ok(())
    })
}
