//! Benchmarks of unipgas beside the machine's limit and its peers.
