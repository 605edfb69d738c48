//! `unipgas bench` as a command of its own.

fn main() -> std::process::ExitCode {
    unipgas_bench::cli::run(std::env::args().skip(1))
}
