//! The double in front of the library of unipgas: refused arguments, rules that end the program, and failures on demand.

mod completions;
mod counts;
mod every_call;
mod kit;
mod limits;
mod process;
mod rules;
mod settings;
mod threads;
