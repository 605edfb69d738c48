//! Reader of the configuration, for tests and libFuzzer.

use crate::config::ChaosConfig;

/// A reader: its name, the function, and inputs to begin with.
pub type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All readers of this crate.
pub const READERS: &[Reader] = &[("chaos-config", config, configs)];

fn config(bytes: &[u8]) {
    if let Ok(config) = ChaosConfig::parse(3, 1, &String::from_utf8_lossy(bytes)) {
        assert_eq!((config.seed, config.rank), (3, 1));
    }
}

fn configs() -> Vec<Vec<u8>> {
    let all = [
        "kill=1@100, stall=1@7:250,delay=5,split=0,reorder=1,over=shm",
        "stall=2@0x10:1,kill=3@9",
    ];
    all.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
unipgas_fuzz::test_readers!();
