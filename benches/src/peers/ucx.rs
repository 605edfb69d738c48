//! UCX, measured by its own ucx_perftest: over shared memory, or over TCP between hosts.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use super::build::Workshop;
use super::{LIMIT, Peer, tool};
use crate::case::{Case, Metric};
use crate::network::hosts::Placement;

/// ucx_perftest, and the cores of its two processes.
#[derive(Default)]
pub(super) struct Ucx {
    cores: Vec<usize>,
    /// The place of its processes, if they share no memory.
    place: Option<Placement>,
}

/// UCX over TCP.
pub fn tcp(place: &Placement) -> Ucx {
    Ucx {
        place: Some(place.clone()),
        ..Ucx::default()
    }
}

impl Peer for Ucx {
    fn name(&self) -> &'static str {
        "ucx"
    }

    fn packages(&self) -> &'static str {
        "ucx-utils"
    }

    fn prepare(&mut self, _: &Workshop) -> Result<(), String> {
        if !tool::exists("ucx_perftest") {
            return Err("no ucx_perftest".into());
        }
        self.cores = crate::worker::cores()?;
        Ok(())
    }

    fn measure(&self, cases: &[Case], quick: bool) -> (String, Option<String>) {
        let (mut text, mut failure) = (String::new(), None);
        for case in cases {
            let Some((test, iterations)) = test(case, quick, self.place.is_some()) else {
                continue;
            };
            match self
                .perftest(test, case.bytes, iterations)
                .and_then(|out| value(case, &out))
            {
                Ok(value) => text.push_str(&format!("{case} ucx {value}\n")),
                Err(why) => failure = Some(format!("{case}: {why}")),
            }
        }
        (text, failure)
    }
}

/// Test and number of iterations for a case.
fn test(case: &Case, quick: bool, network: bool) -> Option<(&'static str, u64)> {
    let less = if quick { 4 } else { 1 } * if network { 5 } else { 1 };
    match case.metric {
        Metric::PutNotice => Some((
            "ucp_put_lat",
            (100_000_000 / (case.bytes + 1000) / less).min(50_000),
        )),
        Metric::FetchAdd => Some(("ucp_fadd", 100_000 / less)),
        Metric::PutRate => Some(("ucp_put_bw", 1_000_000 / less)),
        Metric::Bandwidth => Some((
            "ucp_put_bw",
            ((1 << 30) / case.bytes / less).clamp(4, 20_000),
        )),
        Metric::Message => Some(("tag_lat", 50_000 / less)),
        _ => None,
    }
}

/// The value of a case from the last line of `-f -v`. Its fields are:
/// - iterations
/// - latency in us: median, average, overall
/// - bandwidth in MiB/s: average, overall
/// - messages per second: average, overall
fn value(case: &Case, out: &str) -> Result<f64, String> {
    let line = out
        .lines()
        .map(str::trim)
        .rfind(|l| !l.is_empty())
        .unwrap_or_default();
    let fields: Vec<f64> = line
        .split(',')
        .filter_map(|f| f.trim().parse().ok())
        .collect();
    let [_, median, _, _, _, bandwidth, _, rate] = fields[..] else {
        return Err(format!(
            "'{line}' is not what ucx_perftest is known to print"
        ));
    };
    Ok(match case.metric {
        Metric::PutRate => rate / 1e6,
        Metric::Bandwidth => bandwidth * f64::from(1 << 20) / 1e9,
        _ => median * 1e3,
    })
}

impl Ucx {
    /// The command that starts the process `rank`.
    fn command(&self, rank: usize) -> Command {
        let transports = match self.place {
            Some(_) => "UCX_TLS=tcp,self",
            None => "UCX_TLS=posix,sysv,self",
        };
        let mut command = match &self.place {
            Some(Placement::Hosts(hosts)) => {
                let mut command = Command::new(hosts.shell());
                command.arg(hosts.of(rank)).arg("env");
                command
            }
            _ => Command::new("env"),
        };
        command.args([transports, "UCX_LOG_LEVEL=error", "ucx_perftest"]);
        let core = self.cores[rank % self.cores.len()];
        command.args(["-c", &core.to_string()]);
        command
    }

    fn perftest(&self, test: &str, bytes: u64, iterations: u64) -> Result<String, String> {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .map_err(|e| format!("no free port: {e}"))?
            .port()
            .to_string();
        let server = match &self.place {
            Some(Placement::Hosts(hosts)) => hosts.of(1),
            _ => "127.0.0.1",
        };
        let listening = tool::start(self.command(1).args(["-p", &port]))?;
        let mut last = String::new();
        // The server takes some time before it listens.
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(50));
            let mut client = self.command(0);
            client.args([server, "-f", "-v", "-t", test, "-p", &port]);
            client.args(["-s", &bytes.to_string(), "-n", &iterations.to_string()]);
            client.args(["-w", &(iterations / 10).max(2).to_string()]);
            if test == "ucp_fadd" {
                // One operation in flight. With more, the reported latency is the time between two completions.
                client.args(["-O", "1"]);
            }
            let ended = tool::run(&mut client, LIMIT)?;
            if ended.success() {
                listening.end(Duration::from_secs(5));
                return Ok(ended.out);
            }
            last = ended.why();
            if ended.status.is_none() {
                break;
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_the_unit_of_the_metric() {
        let out = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n2000,77.016,82.924,82.924,12059.23,12000.00,18.5e6,17500000\n";
        let case = |metric| Case::new(metric, 2, 1 << 20);
        assert_eq!(value(&case(Metric::PutNotice), out), Ok(77016.0));
        assert_eq!(value(&case(Metric::PutRate), out), Ok(17.5));
        assert!((value(&case(Metric::Bandwidth), out).expect("a value") - 12.582_912).abs() < 1e-9);
        assert!(value(&case(Metric::PutRate), "connect: refused").is_err());
        // Output of 1.13.1 for a fetch-and-add over TCP.
        let out = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n5000,7.191,332.072,830.591,0.02,0.01,3011,1204\n";
        assert_eq!(value(&case(Metric::FetchAdd), out), Ok(7191.0));
        assert_eq!(value(&case(Metric::PutRate), out), Ok(0.001_204));
    }
}
