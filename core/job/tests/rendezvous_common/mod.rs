//! Common parts of the rendezvous tests: directories that must be empty at the end, and bundles to publish.

use std::path::{Path, PathBuf};

use unipgas_base::Result;
use unipgas_engine::Address;
use unipgas_engine::bundle::BUNDLE_LEN;
use unipgas_job::rendezvous::{JobName, Layout, Rendezvous};

/// Places of a job, in groups of 64.
pub const PLACES: u32 = 128;

/// Joins `job` in `directory`. The first property of the job is `property`.
pub fn join(directory: &str, job: &str, property: u8, words: u32) -> Result<Rendezvous> {
    let layout = Layout {
        places: PLACES,
        places_per_group: 64,
        words_per_group: words,
        properties: [property; 64],
    };
    Rendezvous::join_in(Path::new(directory), &JobName::by_hand(job), &layout)
}

/// An address or key full of `number`.
pub fn bundle(number: u32) -> Address {
    let bytes: Vec<u8> = number.to_ne_bytes().repeat(BUNDLE_LEN / 4);
    Address::from_bytes(&bytes).unwrap()
}

/// The number that a bundle is full of.
pub fn number(bundle: &Address) -> u32 {
    let mut words = bundle
        .as_bytes()
        .chunks(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
    let first = words.next().unwrap();
    assert!(words.all(|word| word == first), "torn: {bundle:?}");
    first
}

/// A directory of a test, in memory. When dropped it must be empty.
pub struct TestDirectory(PathBuf);

impl TestDirectory {
    pub fn new(name: &str) -> Self {
        let path = format!("/dev/shm/rendezvous-test-{}-{name}", std::process::id());
        std::fs::create_dir(&path).unwrap();
        TestDirectory(path.into())
    }

    pub fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        } else {
            std::fs::remove_dir(&self.0).expect("a rendezvous file is left");
        }
    }
}
