//! GASPI for Rust programs: what the compiler can check of the rules of the specification, it checks.
//!
//! | what there is | type |
//! |---|---|
//! | the process, from init to term | [`Gaspi`] |
//! | memory that other processes use | [`Segment`]; at another process [`Remote`] |
//! | memory for the own side of operations, as a plain slice | [`Buffer`] |
//! | what an operation borrows of either | [`Slice`], [`SliceMut`] |
//! | one-sided requests, and the wait for them | [`Queue::scope`], [`Scope`] |
//! | requests that end one by one | [`Scope::tagged`], [`Scope::ended`] |
//! | waiting for what others write | [`Notifications`] |
//! | groups, barriers, reductions | [`Group`] |
//! | messages | [`Buffer::send`], [`Gaspi::receive`] |
//! | global atomics | [`Remote::fetch_add`], [`Remote::compare_swap`] |
//! | operations with time-outs, which have to be continued | [`Pending`] |
//! | statistics of all that | [`crate::statistics`] |
//!
//! # Example
//!
//! Each process has a part of a ring of numbers, with a copy of its neighbours' next ones at either end (a halo), and smooths it.
//!
//! ```
//! use unipgas::gaspi::Operation;
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
//! // with the same number says that it is there.
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
//! let sum = all.allreduce(&[now.iter().sum::<f64>()], Operation::Sum)?[0];
//! assert!((sum - f64::from(size)).abs() < 1e-9);
//! // Nobody leaves while others may still write to it.
//! all.barrier()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! It runs as it is, as a job of one; `unipgas run -n 4 PROGRAM` starts four processes. A longer one is `api-gaspi/examples/heat.rs`.
//!
//! # Whose memory it is
//!
//! Segments may be written by other processes at any time. Rust's `&[T]` promises that nobody writes, `&mut [T]` that nobody reads either, and what breaks that is
//! undefined behaviour. So there are two kinds of memory:
//!
//! - A [`Segment`] is shared. Its elements are of types without invalid values ([`Element`]), and are copied out and in by atomic accesses. Who looks at them too early
//!   gets old elements, or a mixture of old and new ones (§8.2.1), and nothing worse. A plain slice of it is `unsafe` to get, with a contract
//!   ([`Segment::as_slice`]).
//! - A [`Buffer`] is this process's alone: no other process is let in, and a [`Remote`] of the own rank does not lead there. It derefs to `[T]`.
//!
//! Within the process both follow the rules of borrowing, also while requests are under way: the network reads what has been lent to it by a [`Slice`], and
//! writes what it has been lent by a [`SliceMut`]. What is lent to a request stays so until its [`Queue::scope`] has ended, and that waits for the
//! request, also when the closure returns an error or panics. A handle that waits when it is dropped would not do: it can be forgotten.
//!
//! The order of accesses is that of the specification: who has taken a notification sees what was written before it (§8.3), and after a barrier
//! whatever had been waited for and notified before. The compiler does not know about it: to look at a segment too early is a mistake of the program, as ever.
//!
//! What is not checked: that all members of a group call the same operations with the same sizes; that the processes agree on the types of
//! segments; that a process does not leave while others need it. The engine copies between segments by plain loads and stores, as other processes
//! and network adapters do: what this process's own thread or the progress thread moves into a segment that is being looked at counts as
//! theirs.
//!
//! # Time-outs
//!
//! Calls that need other processes are there twice: one waits, also if that takes for ever, and one begins the operation and gives a [`Pending`], which goes
//! on with it. Waits end with [`Error::Failed`] when a process has died; [`Gaspi::states`] tells which one. A queue that is full is waited for.
//!
//! # Threads
//!
//! All of it may be shared with other threads, and what gives out memory follows the rules of `&` and `&mut`. A [`Queue`] has one scope at a time, where
//! all threads may post.
//!
//! # With C
//!
//! A program has one process of GASPI: either this one, or that of `gaspi_proc_init`. They refuse to be initialised beside each other.

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
pub use remote::Remote;
pub use scope::{Reading, Scope};
pub use segment::{Cell, Segment};
pub use slice::{Slice, SliceMut};
pub use tagged::{Ended, Tagged};
pub use timeout::Timeout;

use crate::{statistics, status};

/// What segments and buffers consist of: types without padding and invalid values, as numbers and arrays of them are. Others get there by
/// `#[derive(bytemuck::Pod)]`.
pub trait Element: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Element for T {}

/// Runs a procedure, and counts it if statistics are wanted.
#[inline(always)]
fn counted<R>(number: Option<usize>, run: impl FnOnce() -> status::Result<R>) -> status::Result<R> {
    match number.filter(|_| statistics::is_on()) {
        Some(number) => statistics::counted(number, run),
        None => run(),
    }
}
