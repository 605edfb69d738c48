//! The program `unipgas-bench`, which `unipgas bench` executes.

use std::process::ExitCode;

fn main() -> ExitCode {
    unipgas_backends::init();
    unipgas_options::run(unipgas_bench::cli::command, |args| {
        unipgas_bench::cli::run(args.into_iter())
    })
}
