//! Finds readers that do not come back.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::hex;

/// No reader takes so long for a call, however few processors there are.
const LONG: Duration = Duration::from_secs(120);

/// A thread that ends the process where a call takes too long: nothing else ends an endless loop.
pub(crate) struct Watchdog(Sender<Vec<u8>>);

impl Watchdog {
    /// Over the calls of this reader; until it is dropped.
    pub fn new(name: &str) -> Self {
        let (calls, begun) = channel();
        let name = name.to_owned();
        std::thread::spawn(move || {
            if let Some(bytes) = late(&begun, LONG) {
                eprintln!("{name} does not come back, given {}", hex(&bytes));
                std::process::abort();
            }
        });
        Watchdog(calls)
    }

    /// The next call begins, with these bytes.
    pub fn begins(&self, bytes: &[u8]) {
        let _ = self.0.send(bytes.to_vec());
    }
}

/// The bytes of the call that exceeded the time; `None`: there are no more calls.
fn late(begun: &Receiver<Vec<u8>>, long: Duration) -> Option<Vec<u8>> {
    let mut last = begun.recv().ok()?;
    loop {
        match begun.recv_timeout(long) {
            Ok(next) => last = next,
            Err(RecvTimeoutError::Timeout) => return Some(last),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_back_is_found() {
        let (calls, begun) = channel();
        for bytes in [vec![1], vec![2, 3]] {
            calls.send(bytes).unwrap();
        }
        assert_eq!(late(&begun, Duration::from_millis(10)), Some(vec![2, 3]));
        drop(calls);
        assert_eq!(late(&begun, LONG), None);
    }
}
