//! The laws of a channel, over the loopback with chaos around it.

mod common;
mod disaster;
mod ends;
mod hidden;
mod order;
mod walk;
