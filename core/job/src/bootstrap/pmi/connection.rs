//! The requests of PMI-1 and PMI-2. Each request has one answer. Client and server agree on one version first.

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::time::Duration;

use super::answer::Answer;
use super::mapping::hosts;
use super::stream::{Stream, refused};
use unipgas_base::{Deadline, Error, Result};

/// Time limit for an answer that does not depend on other ranks.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length limit of values for servers of PMI-2, including the terminating zero. The servers do not report it.
const LONGEST_OF_TWO: usize = 1024;

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Lines.
    One,
    /// Messages with a length prefix.
    Two,
}

/// The connection to a server.
pub(super) struct Connection {
    stream: Stream,
    version: Version,
    /// The name of the job's values.
    space: String,
    /// A barrier is in progress.
    in_barrier: bool,
    /// A request had no answer in time. A late answer must not become that of another request, so there are no more requests.
    silent: bool,
    /// Longest wait for an answer.
    patience: Duration,
    /// Length limit of values.
    longest: usize,
}

impl Connection {
    /// Begins on descriptor `fd`, as rank `rank` of job `job`. Uses version `first`, if the server speaks it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if there is no PMI server at the other end.
    pub(crate) fn begin(fd: RawFd, first: Version, rank: u32, job: Option<&str>) -> Result<Self> {
        Connection::over(Stream::of(fd)?, first, rank, job)
    }

    /// The name of the job's values.
    pub(crate) fn space(&self) -> &str {
        &self.space
    }

    fn over(stream: Stream, first: Version, rank: u32, job: Option<&str>) -> Result<Self> {
        let mut connection = Connection {
            stream,
            version: Version::One,
            space: String::new(),
            in_barrier: false,
            silent: false,
            patience: PATIENCE,
            longest: 0,
        };
        connection.version = connection.agree(first)?;
        match connection.version {
            Version::One => connection.begin_one()?,
            Version::Two => connection.begin_two(rank, job)?,
        }
        Ok(connection)
    }

    /// Agrees on a version. All servers understand the first line. A server of one version may refuse the other.
    fn agree(&mut self, first: Version) -> Result<Version> {
        let wishes = match first {
            Version::One => [(1, 1), (2, 0)],
            Version::Two => [(2, 0), (1, 1)],
        };
        for (version, subversion) in wishes {
            let (version, subversion) = (version.to_string(), subversion.to_string());
            let wish = [
                ("cmd", "init"),
                ("pmi_version", &version),
                ("pmi_subversion", &subversion),
            ];
            let answer = self.ask(&wish, "response_to_init")?;
            match (answer.check(), answer.get("pmi_version")) {
                (Ok(()), Some("1")) => return Ok(Version::One),
                (Ok(()), Some("2")) if version == "2" => return Ok(Version::Two),
                _ => {}
            }
        }
        Err(refused("it speaks another version"))
    }

    fn begin_one(&mut self) -> Result<()> {
        let most = self.ask(&[("cmd", "get_maxes")], "maxes")?;
        self.longest = most.number("vallen_max")?;
        let space = self.ask(&[("cmd", "get_my_kvsname")], "my_kvsname")?;
        self.space = named(&space, "kvsname")?;
        Ok(())
    }

    fn begin_two(&mut self, rank: u32, job: Option<&str>) -> Result<()> {
        let rank = rank.to_string();
        let mut wish = vec![("cmd", "fullinit")];
        wish.extend(job.map(|job| ("pmijobid", job)));
        wish.extend([("pmirank", rank.as_str()), ("threaded", "TRUE")]);
        let answer = self.ask(&wish, "fullinit-response")?;
        answer.check()?;
        if answer.get("rank").map(str::trim) != Some(&rank) {
            return Err(refused(&format!(
                "it takes rank {rank} for {:?}",
                answer.get("rank").unwrap_or("none")
            )));
        }
        let space = self.ask(&[("cmd", "job-getid")], "job-getid-response")?;
        space.check()?;
        self.space = named(&space, "jobid")?;
        self.longest = LONGEST_OF_TWO;
        Ok(())
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Publishes a value. Others find it after the next barrier.
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let value = hex(value);
        if value.len() >= self.longest {
            return Err(Error::InvalidArgument(format!(
                "the PMI server takes values of less than {} characters, not {}",
                self.longest,
                value.len()
            )));
        }
        let what = [("key", key), ("value", &value)];
        let answer = match self.version {
            Version::One => {
                let space = self.space.clone();
                let one = [("cmd", "put"), ("kvsname", &space), what[0], what[1]];
                self.ask(&one, "put_result")?
            }
            Version::Two => {
                let two = [("cmd", "kvs-put"), what[0], what[1]];
                self.ask(&two, "kvs-put-response")?
            }
        };
        answer.check()
    }

    /// A published value. `None` while a barrier is in progress.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        if self.in_barrier {
            return Ok(None);
        }
        let space = self.space.clone();
        let wish = [
            ("cmd", "kvs-get"),
            ("jobid", space.as_str()),
            ("srcid", "-1"),
            ("key", key),
        ];
        let text = self.value(key, &wish, "kvs-get-response")?;
        let value = text.map(|text| {
            bytes(&text).ok_or_else(|| {
                Error::Unreachable(format!(
                    "the PMI server gives {text:?} for {key}, which is not ours"
                ))
            })
        });
        value.transpose()
    }

    /// The value of a key, by PMI-1's request for it, or by the request `two` of PMI-2 with this response.
    fn value(&mut self, key: &str, two: &[(&str, &str)], response: &str) -> Result<Option<String>> {
        let space = self.space.clone();
        let one = [("cmd", "get"), ("kvsname", &*space), ("key", key)];
        let (answer, found) = match self.version {
            Version::One => (self.ask(&one, "get_result")?, true),
            Version::Two => {
                let answer = self.ask(two, response)?;
                let found = answer.get("found") == Some("TRUE");
                (answer, found)
            }
        };
        let value = answer.get("value");
        let value = value.filter(|_| found && answer.check().is_ok());
        Ok(value.map(str::to_owned))
    }

    /// The ranks on the host of `rank`, ascending, and the number of hosts, by the server's process mapping.
    pub(crate) fn neighbours(&mut self, rank: u32, size: u32) -> Result<(Vec<u32>, u32)> {
        let key = "PMI_process_mapping";
        let wish = [("cmd", "info-getjobattr"), ("key", key)];
        let map = self.value(key, &wish, "info-getjobattr-response")?;
        let hosts = map.as_deref().and_then(|map| hosts(map, size));
        let Some(hosts) = hosts else {
            return Err(Error::Unreachable(format!(
                "the PMI server does not tell which ranks share a host (PMI_process_mapping={:?})",
                map.unwrap_or_default()
            )));
        };
        let mine = hosts[rank as usize];
        let here = (0..size).filter(|rank| hosts[*rank as usize] == mine);
        let all: HashSet<&u32> = hosts.iter().collect();
        Ok((here.collect(), all.len() as u32))
    }

    /// Enters a barrier of all ranks, or continues one, and waits for its end.
    pub(crate) fn barrier(&mut self, deadline: Deadline) -> Result<()> {
        let (wish, out) = match self.version {
            Version::One => ("barrier_in", "barrier_out"),
            Version::Two => ("kvs-fence", "kvs-fence-response"),
        };
        if !self.in_barrier {
            self.say(&[("cmd", wish)])?;
            self.in_barrier = true;
        }
        let text = self.hear(deadline)?;
        self.in_barrier = false;
        self.read(&text, out)?.check()
    }

    /// Leaves. Errors are ignored.
    pub(crate) fn finalize(&mut self) {
        let out = match self.version {
            Version::One => "finalize_ack",
            Version::Two => "finalize-response",
        };
        let _ = self.ask(&[("cmd", "finalize")], out);
    }

    /// Whether the server keeps its end open.
    pub(crate) fn is_open(&self) -> bool {
        self.stream.is_open()
    }

    fn ask(&mut self, pairs: &[(&str, &str)], answer: &str) -> Result<Answer> {
        if self.in_barrier {
            return Err(Error::Busy);
        }
        if self.silent {
            return Err(refused("it does not answer"));
        }
        self.say(pairs)?;
        match self.hear(Deadline::after(self.patience)) {
            Ok(text) => self.read(&text, answer),
            Err(Error::Timeout) => {
                self.silent = true;
                Err(refused("it does not answer"))
            }
            Err(error) => Err(error),
        }
    }

    fn say(&self, pairs: &[(&str, &str)]) -> Result<()> {
        let pairs = pairs.iter().map(|(key, value)| (*key, *value));
        match self.version {
            Version::One => {
                let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
                self.stream.say_line(&pairs.join(" "))
            }
            Version::Two => {
                let pairs =
                    pairs.map(|(key, value)| format!("{key}={};", value.replace(';', ";;")));
                self.stream.say_counted(&pairs.collect::<String>())
            }
        }
    }

    fn hear(&mut self, deadline: Deadline) -> Result<String> {
        match self.version {
            Version::One => self.stream.line(deadline),
            Version::Two => self.stream.counted(deadline),
        }
    }

    fn read(&self, text: &str, wanted: &str) -> Result<Answer> {
        match self.version {
            Version::One => Answer::of_line(text, wanted),
            Version::Two => Answer::of_message(text, wanted),
        }
    }
}

fn named(answer: &Answer, key: &str) -> Result<String> {
    let name = answer
        .get(key)
        .ok_or_else(|| refused(&format!("it tells no {key}")))?;
    Ok(name.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
