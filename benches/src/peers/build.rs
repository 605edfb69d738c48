//! A directory in which the programs of the peers are compiled.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::tool;

/// Prefix of the directories' names.
const PREFIX: &str = "unipgas-bench-";
/// File in each directory. It is locked while the process lives.
const HELD: &str = "held";

/// The directory. Dropping the value removes it. If the process was killed, the next workshop removes it.
pub(super) struct Workshop {
    dir: PathBuf,
    _held: File,
}

impl Workshop {
    /// Creates a directory in `place`.
    pub fn new(place: PathBuf) -> Result<Workshop, String> {
        sweep(&place);
        let dir = place.join(format!("{PREFIX}{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        std::fs::create_dir_all(&dir).map_err(failed)?;
        std::fs::write(dir.join("peer.h"), include_str!("../../peers/peer.h")).map_err(failed)?;
        // The file gets its final name once it is locked: no other process finds it unlocked.
        let new = dir.join("new");
        let held = File::create(&new).map_err(failed)?;
        lock(&held).map_err(|e| failed(e.into()))?;
        std::fs::rename(&new, dir.join(HELD)).map_err(failed)?;
        Ok(Workshop { dir, _held: held })
    }

    /// Compiles `source` as `name` with `compiler`. Returns the program's path.
    pub fn compile(
        &self,
        compiler: &str,
        name: &str,
        source: &str,
        libraries: &[&str],
    ) -> Result<PathBuf, String> {
        if !tool::exists(compiler) {
            return Err(format!("no {compiler}"));
        }
        let (from, to) = (self.dir.join(format!("{name}.c")), self.dir.join(name));
        std::fs::write(&from, source).map_err(|e| format!("{}: {e}", from.display()))?;
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-std=gnu11"])
            .arg(&from)
            .arg("-o")
            .arg(&to)
            .args(libraries);
        let ended = tool::run(&mut command, Duration::from_secs(60))?;
        if ended.success() {
            Ok(to)
        } else {
            Err(format!("its program does not compile, {}", ended.why()))
        }
    }

    /// Makes a symbolic link `name` to `file` in the directory.
    pub fn link(&self, file: &Path, name: &str) -> Result<(), String> {
        let link = self.dir.join(name);
        std::os::unix::fs::symlink(file, &link).map_err(|e| format!("{}: {e}", link.display()))
    }

    /// The path of the directory.
    #[cfg(test)]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Errors: `WOULDBLOCK` if another process has the lock.
fn lock(file: &File) -> rustix::io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes the directories of killed processes of all hosts.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // No other process removes it while it is locked here.
        if is_ours
            && let Ok(held) = File::open(entry.path().join(HELD))
            && lock(&held).is_ok()
        {
            remove(&entry.path());
        }
    }
}

fn remove(dir: &Path) {
    // An error is ignored: nothing depends on the removal.
    let _ = std::fs::remove_dir_all(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_compile_is_told_and_nothing_stays() {
        let workshop = Workshop::new(std::env::temp_dir()).expect("a directory");
        let dir = workshop.dir().to_path_buf();
        assert!(
            workshop
                .compile("cc", "bad", "int main(void) { return x; }", &[])
                .is_err()
        );
        assert!(
            workshop
                .compile(
                    "cc",
                    "good",
                    "#include \"peer.h\"\nint main(void) { return 0; }",
                    &[]
                )
                .is_ok()
        );
        assert!(
            workshop
                .compile("no-such-compiler", "bad", "", &[])
                .unwrap_err()
                .contains("no-such-compiler")
        );
        drop(workshop);
        assert!(!dir.exists());
    }

    #[test]
    fn what_killed_processes_have_left_goes_with_the_next_one() {
        let place = std::env::temp_dir().join(format!("unipgas-place-{}", std::process::id()));
        let other = |name: &str| {
            let dir = place.join(format!("{PREFIX}{name}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            let held = File::create(dir.join(HELD)).expect("a file");
            (dir, held)
        };
        let (dead, _) = other("dead");
        let (living, held) = other("living");
        lock(&held).expect("nobody has it");
        let workshop = Workshop::new(place.clone()).expect("a directory");
        assert!(!dead.exists() && living.exists());
        // Another workshop does not remove a directory that is in use.
        sweep(&place);
        assert!(workshop.dir().join("peer.h").exists());
        drop(held);
        sweep(&place);
        assert!(!living.exists());
        drop(workshop);
        std::fs::remove_dir(&place).expect("it is empty");
    }
}
