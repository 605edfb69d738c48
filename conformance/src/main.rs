//! `unipgas-conform`: checks the laws of the specifications; `unipgas conform` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    unipgas_backends::init();
    unipgas_options::run(unipgas_conformance::cli::command, |args| {
        unipgas_conformance::cli::run(args.into_iter())
    })
}
