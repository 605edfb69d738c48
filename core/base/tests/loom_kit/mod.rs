//! Common parts of the tests under the model checker.

use std::ops::Deref;

use loom::thread::{JoinHandle, spawn};

/// Checks the executions of `body` with at most this many preemptions.
pub fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// Starts a thread with a reference to the shared object.
pub fn beside<S: Deref + Clone + 'static, T: 'static>(
    shared: &S,
    body: impl FnOnce(&S::Target) -> T + 'static,
) -> JoinHandle<T> {
    let shared = shared.clone();
    spawn(move || body(&shared))
}
