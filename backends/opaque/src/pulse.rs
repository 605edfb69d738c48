//! Whether the hosts of peers answer. TCP sends for a quarter of an hour what nobody takes, and where it is given less (TCP_USER_TIMEOUT) it also ends
//! streams to processes that have stopped, whose hosts do answer. So the agent looks by itself, from time to time, while something is on its
//! way; while nothing is, keepalive does.

use std::os::fd::{AsFd, AsRawFd};

use unipgas_core::streams::Found;

/// A host that has answered nothing in so many looks has gone.
const SILENT: u32 = 10;

/// What the kernel has counted of a stream since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Segments, of all kinds.
    sent: u32,
    heard: u32,
    /// Bytes that have not left or are not acknowledged.
    waits: bool,
    /// Nobody has answered ever.
    begins: bool,
}

impl Counted {
    /// Of a TCP socket, also of one that is not connected yet; `None` for others.
    fn of(socket: impl AsFd) -> Option<Self> {
        // Of struct tcp_info, in words; libc does not have all of it.
        const UNACKED: usize = 6;
        const SEGS_OUT: usize = 34;
        const SEGS_IN: usize = 35;
        const NOTSENT_BYTES: usize = 36;
        let mut info = [0u32; NOTSENT_BYTES + 1];
        let whole = size_of_val(&info) as libc::socklen_t;
        let mut len = whole;
        // SAFETY:
        // - the kernel writes at most `len` bytes to `info`, which is that long.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        // As in the kernel's tcp_states.h.
        const SYN_SENT: u8 = 2;
        (failed == 0 && len == whole).then(|| Counted {
            begins: info[0].to_ne_bytes()[0] == SYN_SENT,
            sent: info[SEGS_OUT],
            heard: info[SEGS_IN],
            waits: info[UNACKED] > 0 || info[NOTSENT_BYTES] > 0,
        })
    }
}

/// What the looks at one stream have found.
#[derive(Default)]
pub struct Pulse {
    /// When something was heard last.
    last: Counted,
    silent: u32,
}

impl Pulse {
    /// Whether nobody has answered since the stream began.
    pub fn begins(&self, socket: impl AsFd) -> bool {
        Counted::of(socket).is_some_and(|now| now.begins)
    }

    /// Another look, some time after the one before.
    pub fn look(&mut self, socket: impl AsFd) -> Found {
        Counted::of(socket).map_or(Found::Nothing, |now| self.judge(now))
    }

    fn judge(&mut self, now: Counted) -> Found {
        if now.heard != self.last.heard || !now.waits {
            self.last = now;
            self.silent = 0;
        } else if now.sent != self.last.sent || now.begins {
            // Data, or the question whether there is room for it, or for a stream: any host answers.
            self.silent += 1;
        }
        match now.waits {
            false => Found::Nothing,
            true if self.silent < SILENT => Found::Waits,
            true => Found::Silence,
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
            assert_eq!(pulse.judge(begins), Found::Waits);
        }
        assert_eq!(pulse.judge(begins), Found::Silence);
    }

    #[test]
    fn who_answers_nothing_for_long_has_gone() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.judge(counted(5, 5, false)), Found::Nothing);
        for sent in 0..SILENT - 1 {
            assert_eq!(pulse.judge(counted(6 + sent, 5, true)), Found::Waits);
        }
        assert_eq!(pulse.judge(counted(20, 5, true)), Found::Silence);
    }

    #[test]
    fn one_answer_is_enough_and_nobody_need_answer_what_was_not_sent() {
        let mut pulse = Pulse::default();
        let mut sent = 1;
        for heard in 1..5 {
            // A process that has stopped: its host answers each question, and those come ever more seldom.
            sent += 1;
            for _ in 0..SILENT - 1 {
                assert_eq!(pulse.judge(counted(sent, heard - 1, true)), Found::Waits);
            }
            for _ in 0..10 * SILENT {
                assert_eq!(pulse.judge(counted(sent, heard, true)), Found::Waits);
            }
        }
        for _ in 0..2 * SILENT {
            assert_eq!(pulse.judge(counted(sent + 9, 4, false)), Found::Nothing);
        }
    }

    #[test]
    fn only_tcp_is_looked_at() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Pulse::default().look(&one), Found::Nothing);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let counted = Counted::of(&stream).expect("a kernel that counts segments");
        assert!(counted.sent >= 2 && counted.heard >= 1 && !counted.waits);
    }
}
