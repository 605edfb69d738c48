//! Time and machine of a measurement.

use serde::{Deserialize, Serialize};

use crate::worker::cores;

/// The machine at the time of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(crate) struct MachineInfo {
    /// The release of this program.
    pub version: String,
    /// The host of the command.
    pub host: String,
    /// Its processors.
    pub cpu: String,
    /// The cores to which processes are pinned, rank after rank, and again from the first.
    pub cores: Vec<usize>,
    /// When the measurement of the figure began, in UTC.
    pub date: String,
    /// The load average of one minute at that time. It includes measured processes.
    pub load: f64,
}

impl MachineInfo {
    /// The state at this moment. Errors: a text if the cores are unknown.
    pub fn now() -> Result<MachineInfo, String> {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        let now = jiff::Timestamp::now().round(jiff::Unit::Second);
        Ok(MachineInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            host: text(names.nodename()),
            cpu: model().unwrap_or_else(|| text(names.machine())),
            cores: cores()?,
            date: now.map_or(String::new(), |now| now.to_string()),
            load: load().unwrap_or(0.0),
        })
    }

    /// One line for people.
    pub fn about(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        format!(
            "unipgas {} on {} ({}), ranks pinned to the cores {} in turn, {}",
            self.version,
            self.host,
            self.cpu,
            cores.join(", "),
            self.date
        )
    }
}

/// The name of the first processor, if the kernel reports one.
fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

/// The load average of the last minute.
pub fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}
