//! The laws of a channel, over the loopback with chaos around it.

mod common;
mod disaster;
mod ends;
mod order;
mod walk;
