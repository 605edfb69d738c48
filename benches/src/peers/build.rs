//! A directory in which the programs of the peers are compiled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::tool;

/// The directory; it goes away with this value.
pub struct Workshop {
    dir: PathBuf,
}

impl Workshop {
    /// A new one in that directory.
    pub fn new(place: PathBuf) -> Result<Workshop, String> {
        let dir = place.join(format!("unipgas-bench-{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        std::fs::create_dir_all(&dir).map_err(failed)?;
        std::fs::write(dir.join("peer.h"), include_str!("../../peers/peer.h")).map_err(failed)?;
        Ok(Workshop { dir })
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
}
