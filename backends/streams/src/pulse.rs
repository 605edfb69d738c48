//! Detection of dead hosts. TCP retransmits for a quarter of an hour. With a shorter TCP_USER_TIMEOUT it also ends streams to stopped processes,
//! although their hosts answer. So the agent looks at streams from time to time while data is in flight. For idle streams TCP keepalive suffices.

use std::os::fd::{AsFd, AsRawFd};

use unipgas_core::streams::TransitState;

/// Looks without an answer after which a host counts as dead.
const SILENT: u32 = 10;

/// The kernel's counters of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Segments of all kinds.
    sent: u32,
    heard: u32,
    /// There are bytes that are not sent, or not acknowledged.
    waits: bool,
    /// The peer's host has not answered the connection request.
    begins: bool,
}

impl Counted {
    /// The counters of a TCP socket, connected or not. `None`: another kind of socket, or an old kernel.
    fn of(socket: impl AsFd) -> Option<Self> {
        // Fields of struct tcp_info, in words. The struct of libc lacks some.
        const UNACKED: usize = 6;
        const SEGS_OUT: usize = 34;
        const SEGS_IN: usize = 35;
        const NOTSENT_BYTES: usize = 36;
        let mut info = [0u32; NOTSENT_BYTES + 1];
        let whole = size_of_val(&info) as libc::socklen_t;
        let mut len = whole;
        // SAFETY:
        // - the kernel writes at most `len` bytes to `info`, which has this length.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        // Defined in the kernel's tcp_states.h.
        const SYN_SENT: u8 = 2;
        (failed == 0 && len == whole).then(|| Counted {
            begins: info[0].to_ne_bytes()[0] == SYN_SENT,
            sent: info[SEGS_OUT],
            heard: info[SEGS_IN],
            waits: info[UNACKED] > 0 || info[NOTSENT_BYTES] > 0,
        })
    }
}

/// State of the looks at one stream.
#[derive(Default)]
pub(crate) struct Pulse {
    /// Counters of the last look with received segments, or without waiting bytes.
    last: Counted,
    silent: u32,
}

impl Pulse {
    /// Whether the peer's host has not answered the connection request.
    pub fn begins(&self, socket: impl AsFd) -> bool {
        Counted::of(socket).is_some_and(|now| now.begins)
    }

    /// Looks again, some time after the previous look.
    pub fn look(&mut self, socket: impl AsFd) -> TransitState {
        Counted::of(socket).map_or(TransitState::Nothing, |now| self.judge(now))
    }

    fn judge(&mut self, now: Counted) -> TransitState {
        if now.heard != self.last.heard || !now.waits {
            self.last = now;
            self.silent = 0;
        } else if now.sent != self.last.sent || now.begins {
            // A segment with data, a window probe, or a connection request: each host answers them.
            self.silent += 1;
        }
        match now.waits {
            false => TransitState::Nothing,
            true if self.silent < SILENT => TransitState::Waits,
            true => TransitState::Silence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sent: u32, heard: u32, waits: bool) -> Counted {
        Counted {
            sent,
            heard,
            waits,
            begins: false,
        }
    }

    #[test]
    fn who_never_answers_is_asked_so_often_only() {
        let begins = Counted {
            begins: true,
            ..counted(1, 0, true)
        };
        let mut pulse = Pulse::default();
        pulse.judge(begins);
        for _ in 1..SILENT - 1 {
            assert_eq!(pulse.judge(begins), TransitState::Waits);
        }
        assert_eq!(pulse.judge(begins), TransitState::Silence);
    }

    #[test]
    fn who_answers_nothing_for_long_has_gone() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.judge(counted(5, 5, false)), TransitState::Nothing);
        for sent in 0..SILENT - 1 {
            assert_eq!(pulse.judge(counted(6 + sent, 5, true)), TransitState::Waits);
        }
        assert_eq!(pulse.judge(counted(20, 5, true)), TransitState::Silence);
    }

    #[test]
    fn one_answer_is_enough_and_nobody_need_answer_what_was_not_sent() {
        let mut pulse = Pulse::default();
        let mut sent = 1;
        for heard in 1..5 {
            // A stopped process: its host answers each probe, and the probes become less frequent.
            sent += 1;
            for _ in 0..SILENT - 1 {
                assert_eq!(
                    pulse.judge(counted(sent, heard - 1, true)),
                    TransitState::Waits
                );
            }
            for _ in 0..10 * SILENT {
                assert_eq!(pulse.judge(counted(sent, heard, true)), TransitState::Waits);
            }
        }
        for _ in 0..2 * SILENT {
            assert_eq!(
                pulse.judge(counted(sent + 9, 4, false)),
                TransitState::Nothing
            );
        }
    }

    #[test]
    fn only_tcp_is_looked_at() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Pulse::default().look(&one), TransitState::Nothing);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let counted = Counted::of(&stream).expect("a kernel that counts segments");
        assert!(counted.sent >= 2 && counted.heard >= 1 && !counted.waits);
    }
}
