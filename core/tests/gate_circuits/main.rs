//! Circuits of barrier gates: every shape with every reduction, by one thread in any order, by many threads, and by
//! processes that are killed.

mod faults;
mod input;
mod order;
mod processes;
mod shape;
mod threads;
