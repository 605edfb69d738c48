//! GASPI for Rust programs. The compiler checks many rules of the specification.
//!
//! | object | type |
//! |---|---|
//! | the process, from init to term | [`Gaspi`] |
//! | memory that other processes use | [`Segment`]; in another process [`RemoteElement`] |
//! | memory for the local side of operations, as a plain slice | [`Buffer`] |
//! | memory that an operation borrows | [`Slice`], [`SliceMut`] |
//! | one-sided requests and their completion | [`Queue::scope`], [`QueueScope`] |
//! | requests that complete one by one | [`QueueScope::tagged`], [`QueueScope::ended`] |
//! | waits for data from other processes | [`Notifications`] |
//! | groups, barriers, reductions | [`Group`] |
//! | messages | [`Buffer::send`], [`Gaspi::receive`] |
//! | global atomics | [`RemoteElement::fetch_add`], [`RemoteElement::compare_swap`] |
//! | operations with timeouts | [`Pending`] |
//! | statistics | [`crate::statistics`] |
//!
//! # Example
//!
//! The processes smooth a ring of numbers. Each process has a part of the ring, and a halo: copies of the next numbers of both neighbours.
//!
//! ```
//! use unipgas::gaspi::ReductionOperation;
//! use unipgas::gaspi::safe::{Error, Gaspi, Notification, Timeout};
//!
//! const LEN: usize = 1000;
//!
//! unipgas::init();
//! let gaspi = Gaspi::init()?;
//! let (rank, size) = (gaspi.rank(), gaspi.size());
//! let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
//! let all = gaspi.group_all();
//!
//! // The halo: a value from the left and one from the right, for even and for odd steps, as a neighbour may be a step ahead. The notification
//! // with the same number announces it.
//! let halo = all.create_segment::<f64>(0, 4)?;
//! // The part, twice. Nobody else sees it, so these are plain slices.
//! let (mut now, mut next) = (gaspi.buffer::<f64>(LEN)?, gaspi.buffer::<f64>(LEN)?);
//! now[LEN / 2] = 1.0;
//! let mut queue = gaspi.queue()?;
//!
//! for step in 0..100 {
//!     let from_left = 2 * (step % 2);
//!     let from_right = from_left + 1;
//!     queue.scope(|q| {
//!         // The ends, to the neighbours.
//!         for (part, neighbour, at) in [(0..1, left, from_right), (LEN - 1..LEN, right, from_left)] {
//!             let there = halo.remote(neighbour).at(at);
//!             q.write_notify(now.slice(part), there, Notification::plain(at as u32))?;
//!         }
//!         // Meanwhile the inner part. `now` may be read: requests do, too.
//!         for i in 1..LEN - 1 {
//!             next[i] = (now[i - 1] + now[i] + now[i + 1]) / 3.0;
//!         }
//!         halo.notification(from_left as u32).wait(Timeout::Block)?;
//!         halo.notification(from_right as u32).wait(Timeout::Block)?;
//!         next[0] = (halo.get(from_left) + now[0] + now[1]) / 3.0;
//!         next[LEN - 1] = (now[LEN - 2] + now[LEN - 1] + halo.get(from_right)) / 3.0;
//!         Ok(())
//!     })?;
//!     // The requests are complete, and nothing is borrowed any more.
//!     std::mem::swap(&mut now, &mut next);
//! }
//! let sum = all.allreduce(&[now.iter().sum::<f64>()], ReductionOperation::Sum)?[0];
//! assert!((sum - f64::from(size)).abs() < 1e-9);
//! // Nobody leaves while others may still write to it.
//! all.barrier()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Without a launcher, it runs as a job of one process. `unipgas run -n 4 PROGRAM` starts four processes. `api-gaspi/examples/heat.rs` is a
//! longer example.
//!
//! # Memory
//!
//! Other processes may write to segments at any time. In Rust, `&[T]` excludes writes, and `&mut [T]` also excludes other reads; a violation is
//! undefined behaviour. So there are two kinds of memory:
//!
//! - A [`Segment`] is shared. Its element types have no invalid values ([`Element`]). Elements are copied out and in with atomic accesses. An
//!   early read gets old elements, or a mixture of old and new elements (§8.2.1), but is not undefined behaviour. A plain slice of a segment is
//!   `unsafe`, with a contract ([`Segment::as_slice`]).
//! - A [`Buffer`] is private: no other process may use it, and a [`RemoteElement`] of the own rank is refused. It derefs to `[T]`.
//!
//! Within the process both follow the borrow rules, also while requests are in progress. The network reads from a borrowed [`Slice`], and writes
//! to a borrowed [`SliceMut`]. A request borrows until its [`Queue::scope`] ends. The scope waits for the request, also if the closure returns an
//! error or panics. A handle that waits in its drop is not enough: programs can forget it.
//!
//! The specification defines the order of accesses. After a notification, a process sees the writes before it (§8.3). After a barrier, it sees
//! all writes that were complete and notified before. The compiler does not check this order: an early read of a segment is a fault of the
//! program.
//!
//! The library does not check:
//!
//! - All members of a group call the same operations with the same sizes.
//! - The processes agree on the types of segments.
//! - A process does not leave while other processes need it.
//!
//! The engine copies between segments with plain loads and stores, as other processes and network adapters do. Such a copy by a thread of this
//! process counts as an access of another process.
//!
//! # Timeouts
//!
//! Calls that need other processes have two forms. The first waits without a limit. The second begins the operation and returns a [`Pending`],
//! and its calls resume the operation. After the death of a process, waits end with [`Error::Failed`], and [`Gaspi::states`] shows the dead
//! process. Requests wait for room in a full queue, except [tagged](QueueScope::tagged) ones.
//!
//! # Threads
//!
//! Threads may share all objects. Access to memory follows the rules of `&` and `&mut`. A [`Queue`] has one scope at a time, and all threads may
//! post in it.
//!
//! # With C
//!
//! A program has one GASPI process: either this one, or the process of `gaspi_proc_init`. The second initialisation is refused.

mod buffer;
mod error;
mod gaspi;
mod group;
mod memory;
mod notification;
mod passive;
mod pending;
mod queue;
mod remote;
mod scope;
mod segment;
mod slice;
mod tagged;
mod timeout;

pub use buffer::Buffer;
pub use error::{Error, Result};
pub use gaspi::Gaspi;
pub use group::{Group, Reducible};
pub use notification::{Notification, Notifications};
pub use pending::Pending;
pub use queue::Queue;
pub use remote::RemoteElement;
pub use scope::{QueueScope, Reading};
pub use segment::{AtomicElement, Segment};
pub use slice::{Slice, SliceMut};
pub use tagged::{CompletedRequest, Tagged};
pub use timeout::Timeout;

use crate::{statistics, status};

/// Element types of segments and buffers: types without padding and without invalid values, as numbers and arrays of numbers. A program adds
/// its own types with `#[derive(bytemuck::Pod)]`.
pub trait Element: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Element for T {}

/// Runs a procedure, and counts it if statistics are on.
#[inline(always)]
fn counted<R>(number: Option<usize>, run: impl FnOnce() -> status::Result<R>) -> status::Result<R> {
    match number.filter(|_| statistics::is_on()) {
        Some(number) => statistics::counted(number, run),
        None => run(),
    }
}
