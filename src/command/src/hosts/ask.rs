//! Runs this command on other hosts by a remote shell, and collects its output.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use unipgas::core::variables;
use unipgas_launcher::{find_program, shell_line};

use super::{Shell, is_here, named, words};

/// The hosts to query, and the remote shell.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// Asks these hosts, a,b or n[01-04], by a remote shell
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// Asks the hosts of this file, one on each line
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// The remote shell: ssh, rsh or srun, a name or path; default: UNIPGAS_LAUNCHER if it names one, else srun in a Slurm allocation, else ssh
    #[arg(long, value_name = "NAME")]
    launcher: Option<OsString>,
    /// Arguments for the remote shell, as "-p 2222"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    launcher_args: Option<String>,
}

/// The hosts, the remote shell, and the command line to run.
pub(crate) struct Asking {
    hosts: Vec<String>,
    shell: Shell,
    more: Vec<String>,
    line: OsString,
}

impl Asked {
    /// The hosts on which to run this command with these arguments. `None`: the options name no host. Errors: a line.
    pub fn for_what(&self, arguments: &[&str]) -> Result<Option<Asking>, String> {
        let Some(all) = named(&self.hosts, &self.hostfile)? else {
            return match (&self.launcher, &self.launcher_args) {
                (None, None) => Ok(None),
                (Some(_), _) => Err("--launcher needs --hosts or --hostfile".into()),
                _ => Err("--launcher-args needs --hosts or --hostfile".into()),
            };
        };
        let mut hosts: Vec<String> = Vec::new();
        for one in all {
            if !hosts.contains(&one.host) {
                hosts.push(one.host);
            }
        }
        let myself =
            std::env::current_exe().map_err(|e| format!("cannot find where unipgas is: {e}"))?;
        let line: Vec<OsString> = std::iter::once(myself.into())
            .chain(arguments.iter().map(OsString::from))
            .collect();
        Ok(Some(Asking {
            hosts,
            shell: self.shell()?,
            more: words(&self.launcher_args)?,
            line: shell_line(&line),
        }))
    }

    fn shell(&self) -> Result<Shell, String> {
        if let Some(name) = &self.launcher {
            return shell(name)
                .ok_or_else(|| format!("--launcher {}: want ssh, rsh or srun", name.display()));
        }
        let wish = variables::get("UNIPGAS_LAUNCHER").map_err(|e| e.to_string())?;
        if let Some(shell) = wish.and_then(|name| shell(name.as_ref())) {
            return Ok(shell);
        }
        let allocation = std::env::var_os("SLURM_JOB_ID").is_some_and(|id| !id.is_empty());
        Ok(match allocation && find_program("srun".as_ref()).is_ok() {
            true => Shell::Srun("srun".into()),
            false => Shell::Remote("ssh".into()),
        })
    }
}

fn shell(name: &OsStr) -> Option<Shell> {
    let is_srun = std::path::Path::new(name).file_name() == Some(OsStr::new("srun"));
    match is_srun {
        true => Some(Shell::Srun(name.to_owned())),
        false => Shell::named(name),
    }
}

impl Asking {
    /// The hosts, for messages.
    pub fn place(&self) -> String {
        self.hosts.join(", ")
    }

    /// The answers of the hosts, in the order of the list. It queries all hosts at the same time; `here` answers for this host. Errors: a line for each host.
    pub fn ask<T: Send>(
        &self,
        here: impl Fn() -> T + Sync,
        read: impl Fn(&str) -> Option<T> + Sync,
    ) -> Vec<(String, Result<T, String>)> {
        let one = |host: &String| match is_here(host) {
            true => Ok(here()),
            false => self.afar(host).and_then(|said| {
                read(&said).ok_or_else(|| format!("{host}: the unipgas there is another version"))
            }),
        };
        std::thread::scope(|scope| {
            let asked = self
                .hosts
                .iter()
                .map(|host| (host, scope.spawn(|| one(host))));
            let asked: Vec<_> = asked.collect();
            let heard = asked.into_iter().map(|(host, thread)| {
                let said = thread.join();
                (
                    host.clone(),
                    said.unwrap_or_else(|_| Err(format!("{host}: cannot be asked"))),
                )
            });
            heard.collect()
        })
    }

    fn afar(&self, host: &str) -> Result<String, String> {
        let words = self.shell.command(host, &self.more, self.line.clone());
        let (program, words) = words.split_first().ok_or("no remote shell")?;
        let output = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{host}: cannot start {}: {e}", program.display()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{host}: {}", why(program, &output))),
        }
    }
}

/// The reason of a failure, in one line.
fn why(program: &OsStr, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    match last {
        Some(last) => last.replace(char::is_control, " "),
        None => format!("{} ends with {}", program.display(), output.status),
    }
}
