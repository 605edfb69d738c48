//! Finds the headers and the library.

use std::path::{Path, PathBuf};

use super::Api;

/// Paths and library for compiling programs of one interface.
pub(super) struct CompilePaths {
    /// The folder with its headers.
    pub include: PathBuf,
    /// The folder with the library.
    pub lib: PathBuf,
    /// The name of the library for `-l`.
    pub library: &'static str,
    /// Whether programs need an rpath, because the loader does not search `lib`.
    pub rpath: bool,
}

/// Files of a build, and the names that compilers and programs look for.
const BUILT: [(&str, &str); 3] = [
    ("libunipgas_c.so", "libunipgas.so.0"),
    ("libunipgas_c.so", "libunipgas.so"),
    ("libunipgas_c.a", "libunipgas.a"),
];

/// Finds the installed files beside this program; in a build directory, the files of the build.
///
/// Errors: a line that tells the user to install or to build.
pub fn find(api: &Api) -> Result<CompilePaths, String> {
    let exe = std::env::current_exe()
        .map_err(|e| format!("cannot find out where this program is: {e}"))?;
    let bin = exe.parent().unwrap_or(Path::new("/"));
    let prefix = bin.parent().unwrap_or(Path::new("/"));
    // Packages of distributions use the folder `unipgas`, because other packages may have headers of these names.
    let includes = ["include/unipgas", "include"].map(|folder| prefix.join(folder));
    if let Some(include) = includes
        .iter()
        .find(|folder| folder.join(api.header).is_file())
    {
        return installed(api, prefix, include);
    }
    let built = bin.join(BUILT[0].0);
    match source(bin).map(|root| root.join(format!("api-{}/include", api.source))) {
        Some(include) if include.is_dir() && built.is_file() => in_build(include, bin),
        _ => Err(format!(
            "neither {} nor {} exists: install (make install PREFIX=..., or the package libunipgas-dev) or build the library (cargo build -p unipgas-c)",
            includes[1].join(api.header).display(),
            built.display()
        )),
    }
}

fn installed(api: &Api, prefix: &Path, include: &Path) -> Result<CompilePaths, String> {
    let places = [
        "lib",
        "lib64",
        &format!("lib/{}-linux-gnu", std::env::consts::ARCH),
    ]
    .map(|lib| prefix.join(lib));
    // A separate package, which may be missing, has the names of other libraries.
    for library in [api.library, "unipgas"] {
        let file = format!("lib{library}.so");
        if let Some(lib) = places.iter().find(|lib| lib.join(&file).exists()) {
            return Ok(CompilePaths {
                include: include.to_owned(),
                lib: lib.clone(),
                library,
                rpath: needs_rpath(lib),
            });
        }
    }
    Err(format!(
        "{} has no lib/lib{}.so: install again (make install PREFIX=..., or the package libunipgas-dev)",
        prefix.display(),
        api.library
    ))
}

/// The installation checks whether the loader finds the library, and writes the result into `unipgas.pc`.
fn needs_rpath(lib: &Path) -> bool {
    std::fs::read_to_string(lib.join("pkgconfig/unipgas.pc"))
        .map_or(true, |text| text.contains("-rpath"))
}

fn in_build(include: PathBuf, bin: &Path) -> Result<CompilePaths, String> {
    for (built, name) in BUILT {
        let link = bin.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(built, &link)
                .or_else(|e| if link.exists() { Ok(()) } else { Err(e) })
                .map_err(|e| format!("cannot make {}: {e}", link.display()))?;
        }
    }
    Ok(CompilePaths {
        include,
        lib: bin.to_owned(),
        library: "unipgas",
        rpath: true,
    })
}

/// The folder with the source of a program in a build directory. The program contains no path of the build machine. Cargo lists its source files in
/// a file beside it.
fn source(bin: &Path) -> Option<PathBuf> {
    let made_of = std::fs::read_to_string(bin.join("unipgas.d")).ok()?;
    source_in(&made_of)
}

/// The same, from the text of that file. It is a make rule: a blank in a name has a backslash.
fn source_in(made_of: &str) -> Option<PathBuf> {
    made_of
        .replace("\\ ", "\0")
        .split_whitespace()
        .find_map(|file| file.strip_suffix("/src/command/src/main.rs"))
        .map(|root| root.replace('\0', " ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_found_in_cargos_rule() {
        let rule = "/t/debug/unipgas: /my\\ work/src/lib.rs /my\\ work/src/command/src/main.rs\n";
        assert_eq!(source_in(rule), Some("/my work".into()));
        assert_eq!(source_in("/t/debug/unipgas: src/main.rs\n"), None);
    }
}
