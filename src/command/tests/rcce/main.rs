//! Programs of RCCE and iRCCE in C, started by the command and by the launchers of those libraries.

#[path = "../../../../api-ircce/tests/common/mod.rs"]
mod common;
mod launchers;
mod programs;

/// The command.
const UNIPGAS: &str = env!("CARGO_BIN_EXE_unipgas");
