//! All readers under libFuzzer; the variable FUZZ_READER names the one that is called. FUZZ_SEEDS is a folder that gets its seeds, FUZZ_LIST prints all names.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

type Reader = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

static READ: OnceLock<fn(&[u8])> = OnceLock::new();

fn all() -> impl Iterator<Item = &'static Reader> {
    let of_crates: &[&[Reader]] = &[
        unipgas_chaos::fuzz::READERS,
        unipgas_engine::fuzz::READERS,
        unipgas_streams::fuzz::READERS,
        unipgas_job::fuzz::READERS,
        unipgas_message::fuzz::READERS,
        unipgas_port::fuzz::READERS,
        unipgas_world::fuzz::READERS,
        unipgas_gaspi::fuzz::READERS,
        unipgas_ircce::fuzz::READERS,
        unipgas_launcher::fuzz::READERS,
        unipgas_libfabric::fuzz::READERS,
        unipgas_ofi::fuzz::READERS,
        unipgas_streams_backend::fuzz::READERS,
        unipgas_shm::fuzz::READERS,
        unipgas_tofu::fuzz::READERS,
        unipgas_utofu::fuzz::READERS,
        unipgas_verbs::fuzz::READERS,
    ];
    of_crates.iter().copied().flatten()
}

fn begin() {
    if std::env::var_os("FUZZ_LIST").is_some() {
        all().for_each(|(name, ..)| println!("{name}"));
        std::process::exit(0);
    }
    let wanted = std::env::var("FUZZ_READER").unwrap_or_default();
    let Some((_, read, seeds)) = all().find(|(name, ..)| *name == wanted) else {
        eprintln!("FUZZ_READER={wanted:?} is no reader; FUZZ_LIST=1 lists them");
        std::process::exit(2);
    };
    let _ = READ.set(*read);
    let Some(folder) = std::env::var_os("FUZZ_SEEDS") else {
        return;
    };
    for (number, seed) in seeds().into_iter().enumerate() {
        let file = std::path::Path::new(&folder).join(format!("seed-{number}"));
        if let Err(error) = std::fs::write(&file, seed) {
            eprintln!("cannot write {}: {error}", file.display());
            std::process::exit(2);
        }
    }
}

fuzz_target!(init: begin(), |bytes: &[u8]| {
    if let Some(read) = READ.get() {
        read(bytes);
    }
});
