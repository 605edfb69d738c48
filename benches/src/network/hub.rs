//! Meeting point of measured processes that share no memory. The command that started them listens, and each process connects to it.
//!
//! The protocol is in lines. A process sends `join SECRET RANK`, `say WORDS` and `meet BYTES`, with bytes in hex. After the `meet` of all processes,
//! each gets `met` with the bytes of all, by rank.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use unipgas_core::random::random;

/// Time between two polls for connections.
const LOOK: Duration = Duration::from_millis(5);
/// Timeout for the first line of a connection.
const GREETING: Duration = Duration::from_secs(5);

/// The side of the command.
pub(crate) struct Hub {
    listener: TcpListener,
    at: SocketAddr,
    secret: u64,
}

/// State of the meeting.
struct Meeting {
    turns: Vec<Option<String>>,
    streams: Vec<Option<TcpStream>>,
    left: usize,
}

impl Hub {
    /// Listens at `address`, at which the processes reach this host.
    pub fn open(address: IpAddr) -> Result<Hub, String> {
        let failed = |e: std::io::Error| format!("cannot listen at {address}: {e}");
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let secret = random().map_err(|e| e.to_string())?;
        Ok(Hub {
            listener,
            at,
            secret: u64::from_ne_bytes(secret),
        })
    }

    /// Argument for [`HubConnection::join`] in a process.
    pub fn token(&self) -> String {
        format!("{}/{:x}", self.at, self.secret)
    }

    /// Serves `size` processes until all have left, or until `over` returns true. `said` gets their `say` lines. If a process leaves early, only its
    /// connection ends. The others learn of it when they meet.
    pub fn serve(
        &self,
        size: usize,
        over: &(dyn Fn() -> bool + Sync),
        said: &(dyn Fn(&str) + Sync),
    ) {
        let meeting = Mutex::new(Meeting {
            turns: vec![None; size],
            streams: (0..size).map(|_| None).collect(),
            left: 0,
        });
        std::thread::scope(|scope| {
            loop {
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        let meeting = &meeting;
                        scope.spawn(move || {
                            if let Some(rank) = self.hear(&stream, size, meeting, said) {
                                leave(meeting, rank);
                            }
                        });
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                    Err(_) => break,
                }
                if over() || meeting.lock().left == size {
                    break;
                }
            }
            // Processes that still wait for a missing one get an error.
            let all = &meeting.lock().streams;
            all.iter().flatten().for_each(close);
        });
    }

    /// Serves one connection until it ends. Returns its rank if it has joined.
    fn hear(
        &self,
        stream: &TcpStream,
        size: usize,
        meeting: &Mutex<Meeting>,
        said: &(dyn Fn(&str) + Sync),
    ) -> Option<usize> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(GREETING)).ok()?;
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let greeting = lines.next()?;
        stream.set_read_timeout(None).ok()?;
        let (secret, rank) = greeting.strip_prefix("join ")?.split_once(' ')?;
        if secret != format!("{:x}", self.secret) {
            return None;
        }
        let rank: usize = rank.parse().ok().filter(|rank| *rank < size)?;
        meeting.lock().streams[rank] = Some(stream.try_clone().ok()?);
        for line in lines {
            match line.split_once(' ') {
                Some(("say", words)) => said(words),
                Some(("meet", bytes)) => meet(meeting, rank, bytes),
                _ => break,
            }
        }
        Some(rank)
    }
}

fn close(stream: &TcpStream) {
    // An error is ignored: the peer may have closed it.
    let _ = stream.shutdown(Shutdown::Both);
}

fn meet(meeting: &Mutex<Meeting>, rank: usize, bytes: &str) {
    let mut meeting = meeting.lock();
    meeting.turns[rank] = Some(bytes.into());
    if meeting.turns.iter().any(Option::is_none) {
        // A process has left: the others would wait forever.
        if meeting.left > 0 {
            meeting.streams.iter().flatten().for_each(close);
        }
        return;
    }
    let all: Vec<String> = meeting.turns.iter_mut().filter_map(Option::take).collect();
    let line = format!("met {}\n", all.join(" "));
    for mut stream in meeting.streams.iter().flatten() {
        // An error is ignored: the reading thread notices a closed connection.
        let _ = stream.write_all(line.as_bytes());
    }
}

fn leave(meeting: &Mutex<Meeting>, rank: usize) {
    let mut meeting = meeting.lock();
    meeting.left += 1;
    meeting.streams[rank] = None;
    if meeting.turns.iter().any(Option::is_some) {
        meeting.streams.iter().flatten().for_each(close);
    }
}

/// A poll is a system call. It must not delay each call of `meanwhile`, which serves measured peers.
const BETWEEN_LOOKS: usize = 16;

/// The side of a process.
pub(crate) struct HubConnection {
    reader: RefCell<BufReader<TcpStream>>,
    /// The address of this host on the connection to the command.
    pub here: IpAddr,
}

impl HubConnection {
    /// Joins as `rank`. `token` is [`Hub::token`].
    pub fn join(token: &str, rank: usize) -> Result<HubConnection, String> {
        let (at, secret) = token
            .split_once('/')
            .ok_or_else(|| format!("'{token}' is not ADDRESS/SECRET"))?;
        let failed = |e: std::io::Error| format!("{at}, where the measurement is led: {e}");
        let to: SocketAddr = at.parse().map_err(|_| format!("'{at}' is no address"))?;
        let mut stream =
            TcpStream::connect_timeout(&to, Duration::from_secs(10)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream
            .write_all(format!("join {secret} {rank}\n").as_bytes())
            .map_err(failed)?;
        let here = stream.local_addr().map_err(failed)?.ip();
        Ok(HubConnection {
            reader: RefCell::new(BufReader::new(stream)),
            here,
        })
    }

    /// Sends a line of results.
    pub fn say(&self, line: &str) -> Result<(), String> {
        self.send(&format!("say {line}\n"))
    }

    /// Waits for all processes. Returns the data of each, by rank. It calls `meanwhile` several times between two polls.
    pub fn meet(&self, mine: &[u8], mut meanwhile: impl FnMut()) -> Result<Vec<Vec<u8>>, String> {
        self.send(&format!("meet {}\n", HEXLOWER.encode(mine)))?;
        let mut line = String::new();
        let mut reader = self.reader.borrow_mut();
        let blocks = |reader: &BufReader<TcpStream>, blocks: bool| {
            let set = reader.get_ref().set_nonblocking(!blocks);
            set.map_err(|e| format!("the measurement's connection: {e}"))
        };
        blocks(&reader, false)?;
        let read = loop {
            match reader.read_line(&mut line) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    (0..BETWEEN_LOOKS).for_each(|_| meanwhile())
                }
                read => break read,
            }
        };
        blocks(&reader, true)?;
        drop(reader);
        let all = read.ok().filter(|_| line.ends_with('\n')).and_then(|_| {
            let all = line.trim_end_matches('\n').strip_prefix("met ")?;
            all.split(' ')
                .map(|one| HEXLOWER.decode(one.as_bytes()).ok())
                .collect::<Option<Vec<_>>>()
        });
        all.ok_or("another process of the measurement has ended".into())
    }

    fn send(&self, line: &str) -> Result<(), String> {
        let reader = self.reader.borrow();
        reader
            .get_ref()
            .write_all(line.as_bytes())
            .map_err(|e| format!("the leader of the measurement has ended: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn hub() -> Hub {
        Hub::open([127, 0, 0, 1].into()).expect("a hub")
    }

    #[test]
    fn processes_share_what_they_bring_and_are_heard() {
        let hub = hub();
        let said = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let process = |rank: usize| {
                let wire = HubConnection::join(&hub.token(), rank).expect("a place");
                for turn in 0..3u8 {
                    let all = wire
                        .meet(&[turn, rank as u8], std::thread::yield_now)
                        .expect("the others");
                    assert_eq!(all, [[turn, 0], [turn, 1], [turn, 2]]);
                    assert_eq!(
                        wire.meet(&[], std::thread::yield_now).expect("the others"),
                        [[0u8; 0]; 3]
                    );
                }
                if rank == 0 {
                    wire.say("put_notice:2:8 gaspi 12").expect("the command");
                    wire.say("! gaspi: why").expect("the command");
                }
            };
            for rank in 0..3 {
                scope.spawn(move || process(rank));
            }
            hub.serve(3, &|| false, &|line| {
                said.lock().push(line.to_string());
            });
        });
        let said = said.into_inner();
        assert_eq!(said, ["put_notice:2:8 gaspi 12", "! gaspi: why"]);
    }

    #[test]
    fn who_meets_nobody_any_more_is_told() {
        let hub = hub();
        std::thread::scope(|scope| {
            let process = |rank: usize| {
                let wire = HubConnection::join(&hub.token(), rank).expect("a place");
                wire.meet(&[], std::thread::yield_now)
                    .expect("both are here");
                if rank == 0 {
                    assert!(wire.meet(&[], std::thread::yield_now).is_err());
                }
            };
            for rank in 0..2 {
                scope.spawn(move || process(rank));
            }
            hub.serve(2, &|| false, &|_| {});
        });
    }

    #[test]
    fn strangers_are_not_heard() {
        let hub = hub();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wrong = format!("{}/0", hub.at);
                for (token, rank) in [(wrong, 0), (hub.token(), 7)] {
                    let wire = HubConnection::join(&token, rank).expect("a connection");
                    assert!(wire.meet(&[], std::thread::yield_now).is_err());
                }
                over.store(true, Ordering::Release);
            });
            hub.serve(1, &|| over.load(Ordering::Acquire), &|line| {
                panic!("{line} is heard")
            });
        });
    }
}
