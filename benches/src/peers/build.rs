//! A directory in which the programs of the peers are compiled.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::tool;

/// What the directories begin with.
const PREFIX: &str = "unipgas-bench-";
/// In each of them: locked as long as its process lives.
const HELD: &str = "held";

/// The directory; it goes away with this value, or, where the process was killed, when another one makes its own.
pub struct Workshop {
    dir: PathBuf,
    _held: File,
}

impl Workshop {
    /// A new one in that directory.
    pub fn new(place: PathBuf) -> Result<Workshop, String> {
        sweep(&place);
        let dir = place.join(format!("{PREFIX}{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        std::fs::create_dir_all(&dir).map_err(failed)?;
        std::fs::write(dir.join("peer.h"), include_str!("../../peers/peer.h")).map_err(failed)?;
        // It has its name when it is locked: nobody else finds it without a lock.
        let new = dir.join("new");
        let held = File::create(&new).map_err(failed)?;
        lock(&held).map_err(|e| failed(e.into()))?;
        std::fs::rename(&new, dir.join(HELD)).map_err(failed)?;
        Ok(Workshop { dir, _held: held })
    }

    /// Compiles `source` as `name` with `compiler`; gives the program's path.
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

    /// Has `file` in the directory, too, by this name.
    pub fn link(&self, file: &Path, name: &str) -> Result<(), String> {
        let link = self.dir.join(name);
        std::os::unix::fs::symlink(file, &link).map_err(|e| format!("{}: {e}", link.display()))
    }

    /// Where it is.
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

/// Errors: another process has it.
fn lock(file: &File) -> rustix::io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes what is left of processes that were killed, on whichever host.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // While it is locked here, nobody else removes it.
        if is_ours
            && let Ok(held) = File::open(entry.path().join(HELD))
            && lock(&held).is_ok()
        {
            remove(&entry.path());
        }
    }
}

fn remove(dir: &Path) {
    // Nothing depends on it being gone.
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
        // Nor does another one take this one's.
        sweep(&place);
        assert!(workshop.dir().join("peer.h").exists());
        drop(held);
        sweep(&place);
        assert!(!living.exists());
        drop(workshop);
        std::fs::remove_dir(&place).expect("it is empty");
    }
}
