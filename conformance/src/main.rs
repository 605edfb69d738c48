//! `unipgas-conform`: the laws of the specifications, which `unipgas conform` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    unipgas_backends::init();
    unipgas_conformance::cli::run(std::env::args().skip(1))
}
