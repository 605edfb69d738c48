//! The words of PMI-1 on the descriptor of PMI_FD: lines of `key=value` with blanks between them; each request has one answer.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::{Deadline, Error, Result};

/// No answer is longer.
const MAX_LINE: usize = 64 << 10;
/// How long an answer may take that waits for nobody else.
const PATIENCE: Duration = Duration::from_secs(10);

/// The connection to a server.
pub(super) struct Connection {
    fd: OwnedFd,
    /// What has come after the last line that was read.
    rest: Vec<u8>,
    space: String,
    /// A barrier has been entered, and its end has not come yet.
    in_barrier: bool,
    /// What the server takes.
    longest: usize,
}

impl Connection {
    /// Begins on the descriptor that the server has left open here, which stays open.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where there is no server behind it that speaks PMI-1.
    pub fn begin(fd: RawFd) -> Result<Self> {
        let own = match fd {
            ..0 => Err(Errno::BADF),
            // SAFETY:
            // - borrowed for one call, which refuses what is not open.
            fd => rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 3),
        };
        let own = own.map_err(|e| Error::Unreachable(format!("PMI_FD={fd}: {e}")))?;
        Connection::over(own)
    }

    fn over(fd: OwnedFd) -> Result<Self> {
        let mut connection = Connection {
            fd,
            rest: Vec::new(),
            space: String::new(),
            in_barrier: false,
            longest: 0,
        };
        let answer = connection.ask(
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        )?;
        if answer.get("pmi_version") != Some("1") {
            return Err(refused("it speaks another version"));
        }
        let most = connection.ask("cmd=get_maxes", "maxes")?;
        connection.longest = most.number("vallen_max")?;
        let space = connection.ask("cmd=get_my_kvsname", "my_kvsname")?;
        space
            .get("kvsname")
            .ok_or_else(|| refused("it names no space"))?
            .clone_into(&mut connection.space);
        Ok(connection)
    }

    /// Publishes: others find it after the next barrier.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let value = hex(value);
        if value.len() >= self.longest {
            return Err(Error::InvalidArgument(format!(
                "the PMI server takes values of less than {} characters, not {}",
                self.longest,
                value.len()
            )));
        }
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        let answer = self.ask(&line, "put_result")?;
        answer.check()
    }

    /// What somebody has published; nothing while the end of a barrier is awaited.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        if self.in_barrier {
            return Ok(None);
        }
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        bytes(&text).map(Some).ok_or_else(|| {
            Error::Unreachable(format!(
                "the PMI server gives {text:?} for {key}, which is not ours"
            ))
        })
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        let line = format!("cmd=get kvsname={} key={key}", self.space);
        let answer = self.ask(&line, "get_result")?;
        if answer.check().is_err() {
            return Ok(None);
        }
        Ok(answer.get("value").map(str::to_owned))
    }

    /// The ranks on the host of `rank`, ascending: from the server's map of hosts.
    pub fn neighbours(&mut self, rank: u32, size: u32) -> Result<Vec<u32>> {
        let map = self.text("PMI_process_mapping")?;
        let hosts = map.as_deref().and_then(|map| hosts(map, size));
        let Some(hosts) = hosts else {
            return Err(Error::Unreachable(format!(
                "the PMI server does not tell which ranks share a host (PMI_process_mapping={:?})",
                map.unwrap_or_default()
            )));
        };
        let mine = hosts[rank as usize];
        Ok((0..size)
            .filter(|rank| hosts[*rank as usize] == mine)
            .collect())
    }

    /// Enters a barrier of all ranks, or goes on with one, and waits for its end.
    pub fn barrier(&mut self, deadline: Deadline) -> Result<()> {
        if !self.in_barrier {
            self.say("cmd=barrier_in")?;
            self.in_barrier = true;
        }
        let line = self.line(deadline)?;
        self.in_barrier = false;
        Answer::read(&line, "barrier_out").map(drop)
    }

    /// Leaves; what the server says to it changes nothing.
    pub fn finalize(&mut self) {
        let _ = self.ask("cmd=finalize", "finalize_ack");
    }

    /// Whether the server still holds its end.
    pub fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(1) => !fds[0].revents().intersects(ended),
            _ => true,
        }
    }

    fn ask(&mut self, line: &str, answer: &str) -> Result<Answer> {
        if self.in_barrier {
            return Err(Error::Busy);
        }
        self.say(line)?;
        let line = self.line(Deadline::after(PATIENCE)).map_err(|e| match e {
            Error::Timeout => refused("it does not answer"),
            other => other,
        })?;
        Answer::read(&line, answer)
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let mut bytes = format!("{line}\n").into_bytes();
        while !bytes.is_empty() {
            match send(&self.fd, &bytes) {
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(_) => return Err(gone()),
            }
        }
        Ok(())
    }

    fn line(&mut self, deadline: Deadline) -> Result<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=end).collect();
                line.pop();
                return String::from_utf8(line).map_err(|_| refused("it does not answer in text"));
            }
            if self.rest.len() > MAX_LINE {
                self.rest.clear();
                return Err(refused("it answers without end"));
            }
            let limit = deadline.remaining().map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, limit.as_ref()) {
                Ok(0) => return Err(Error::Timeout),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => return Err(Error::os("cannot wait for the PMI server (poll)", e)),
            }
            let mut chunk = [0; 1024];
            match rustix::io::read(&self.fd, &mut chunk) {
                Ok(0) => return Err(gone()),
                Ok(count) => self.rest.extend_from_slice(&chunk[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Err(gone()),
            }
        }
    }
}

/// A server that has gone is an error, not a signal.
fn send(fd: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    use std::os::fd::AsRawFd;
    // SAFETY:
    // - an open descriptor, and bytes that are only read.
    let sent = unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        // Some servers give a pipe.
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOTSOCK) => rustix::io::write(fd, bytes),
            code => Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO))),
        },
    }
}

fn gone() -> Error {
    Error::Unreachable("the launcher of this job (its PMI server) has ended".into())
}

fn refused(why: &str) -> Error {
    Error::Unreachable(format!(
        "the PMI server that has started this process does not do what it should: {why}"
    ))
}

/// The pairs of a line.
#[derive(Debug)]
struct Answer(Vec<(String, String)>);

impl Answer {
    /// Errors: [`Error::Unreachable`] for what is no such line, or the answer to something else.
    fn read(line: &str, wanted: &str) -> Result<Self> {
        let other = || refused(&format!("{line:?} instead of {wanted}"));
        let pairs: Option<Vec<_>> = line
            .split_ascii_whitespace()
            .map(|pair| {
                let (key, value) = pair.split_once('=')?;
                Some((key.to_owned(), value.to_owned()))
            })
            .collect();
        let answer = Answer(pairs.ok_or_else(other)?);
        if answer.get("cmd") != Some(wanted) {
            return Err(other());
        }
        Ok(answer)
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, key: &str) -> Result<usize> {
        let number = self.get(key).and_then(|text| text.parse().ok());
        number.ok_or_else(|| refused(&format!("no number for {key}")))
    }

    /// Whether the server has done what it was asked for.
    fn check(&self) -> Result<()> {
        match self.get("rc") {
            Some("0") | None => Ok(()),
            Some(code) => Err(refused(&format!(
                "error {code} ({})",
                self.get("msg").unwrap_or("without a word")
            ))),
        }
    }
}

/// The host of each rank by a map such as `(vector,(0,2,1))`: from host 0 on, on 2 hosts, 1 rank each, and again from the beginning as
/// long as there are ranks. None for another form, or a map that leads nowhere.
fn hosts(map: &str, size: u32) -> Option<Vec<u32>> {
    let blocks = map.strip_prefix("(vector,")?.strip_suffix(')')?;
    let numbers = |block: &str| -> Option<[u32; 3]> {
        let mut numbers = block.split(',').map(|number| number.trim().parse().ok());
        let three = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(three)
    };
    let blocks: Vec<[u32; 3]> = blocks
        .strip_prefix('(')?
        .strip_suffix(')')?
        .split("),(")
        .map(numbers)
        .collect::<Option<_>>()?;
    if !blocks
        .iter()
        .any(|[_, hosts, each]| *hosts > 0 && *each > 0)
    {
        return None;
    }
    let mut found = Vec::new();
    while found.len() < size as usize {
        for [first, count, each] in &blocks {
            for host in 0..*count {
                for _ in 0..*each {
                    if found.len() == size as usize {
                        return Some(found);
                    }
                    found.push(first.checked_add(host)?);
                }
                if *each == 0 {
                    break;
                }
            }
        }
    }
    Some(found)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
