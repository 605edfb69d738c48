//! Where the headers and the library are.

use std::path::{Path, PathBuf};

use super::Api;

/// What programs of an interface are compiled with.
pub(super) struct CompilePaths {
    /// The folder with its headers.
    pub include: PathBuf,
    /// The folder with the library.
    pub lib: PathBuf,
    /// The name by which it is linked.
    pub library: &'static str,
    /// Whether programs must be told where the library is: the loader does not look there by itself.
    pub rpath: bool,
}

/// Files of a build, and the names by which compilers and programs look for them.
const BUILT: [(&str, &str); 3] = [
    ("libunipgas_c.so", "libunipgas.so.0"),
    ("libunipgas_c.so", "libunipgas.so"),
    ("libunipgas_c.a", "libunipgas.a"),
];

/// The installed files beside this program; or, in a build directory, those of the build.
///
/// Errors: a line that says what to install or to build.
pub fn find(api: &Api) -> Result<CompilePaths, String> {
    let exe = std::env::current_exe()
        .map_err(|e| format!("cannot find out where this program is: {e}"))?;
    let bin = exe.parent().unwrap_or(Path::new("/"));
    let prefix = bin.parent().unwrap_or(Path::new("/"));
    // Packages of distributions have a folder of their own: others may have headers of these names.
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
    // The names of other libraries are in a package of their own, which may be missing.
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

/// Whoever installed has asked the loader, and written into `unipgas.pc` what came of it.
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

/// The folder with the source of a program in a build directory. The program itself carries no path of the machine that built it;
/// cargo writes what it was made of into a file beside it.
fn source(bin: &Path) -> Option<PathBuf> {
    let made_of = std::fs::read_to_string(bin.join("unipgas.d")).ok()?;
    source_in(&made_of)
}

/// The same of that file's text: a rule of make, where blanks in names have a backslash.
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
