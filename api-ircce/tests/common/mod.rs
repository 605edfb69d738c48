//! Compilers and the names that the headers declare. The command's tests share this file.

#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

#[path = "../../../tests/c/mod.rs"]
pub mod c;
use c::demand;

/// The folder of the interface's crate.
pub fn crate_dir() -> PathBuf {
    c::crate_dir("api-ircce")
}

/// The C compiler with the headers' directory.
pub fn compiler() -> Command {
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.arg("-I").arg(crate_dir().join("include"));
    command
}

/// Names that the headers declare, or bind to others by an assembler name: names with RCCE's prefixes before a parenthesis. `gory`: for
/// programs of the GORY interface, not of the simple one.
pub fn declared(gory: bool) -> BTreeSet<String> {
    let mut preprocess = compiler();
    preprocess.args([
        "-E",
        "-P",
        "-DRC_POWER_MANAGEMENT",
        "-DUNIPGAS_IRCCE_NO_SIZES",
        "-x",
        "c",
    ]);
    if gory {
        preprocess.arg("-DGORY");
    }
    let all = crate_dir().join("include/iRCCE.h");
    let more = crate_dir().join("include/iRCCE_lib.h");
    let text = demand(preprocess.arg("-include").arg(all).arg(more));
    let mut names = BTreeSet::new();
    for declaration in text.split(';') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = declaration.split_once('(').map(|(before, _)| {
            before
                .trim_end()
                .rsplit(|c| !is_name(c))
                .next()
                .unwrap_or_default()
        });
        let bound = declaration
            .split_once("__asm__(\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let name = bound.map(|(name, _)| name).or(name).unwrap_or_default();
        if ["RCCE_", "iRCCE_", "RC_"]
            .iter()
            .any(|begin| name.starts_with(begin))
        {
            names.insert(name.to_owned());
        }
    }
    names
}
