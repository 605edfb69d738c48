//! Circuits of barrier gates: every shape with every reduction, by one thread in any order, by many threads, by packets, and by
//! processes that are killed.

mod faults;
mod input;
mod order;
mod packets;
mod processes;
mod shape;
mod threads;
