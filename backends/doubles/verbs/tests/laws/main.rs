//! The library behaves as with a real device.

mod access;
mod api;
mod channels;
mod data;
mod death;
mod faults;
mod flow;
mod forks;
mod limits;
mod order;
mod process;
mod requests;
mod side;
mod states;
