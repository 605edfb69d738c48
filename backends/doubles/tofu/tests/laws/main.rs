//! The double in front of our own library: what is refused, what ends the program, and what fails on demand.

mod completions;
mod counts;
mod every_call;
mod kit;
mod limits;
mod process;
mod rules;
mod settings;
mod threads;
