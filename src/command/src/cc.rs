//! `unipgas cc`: a compiler wrapper like mpicc. Links to this program with names such as gaspicc select the interface and need no option.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use unipgas::core::variables;

use crate::{Ended, fail, failed, shown};

mod place;

/// The language of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cxx,
}

/// An interface that programs can be compiled for.
struct Api {
    name: &'static str,
    header: &'static str,
    /// The original library that programs link, besides libunipgas.
    library: &'static str,
    /// Directory of its source: `api-…`.
    source: &'static str,
    /// A folder of headers that precedes the folders of other interfaces.
    beside: Option<&'static str>,
}

const APIS: [Api; 4] = [
    Api {
        name: "gaspi",
        header: "GASPI.h",
        library: "GPI2",
        source: "gaspi",
        beside: None,
    },
    Api {
        name: "utofu",
        header: "utofu.h",
        library: "tofucom",
        source: "utofu",
        beside: Some("fjmpi"),
    },
    Api {
        name: "rcce",
        header: "RCCE.h",
        library: "RCCE",
        source: "ircce",
        beside: None,
    },
    Api {
        name: "ircce",
        header: "iRCCE.h",
        library: "iRCCE",
        source: "ircce",
        beside: None,
    },
];

const MORE: &str = "\
-static (or -static-pie) among ARGS links the interface's static archive and its dependencies.

As one word, for build files: gaspicc, utofucc, rccecc, irccecc and, for C++, gaspicxx, utofucxx, rccecxx, irccecxx. Their options are the compiler's, \
and --showme.";

/// For help, man pages and completions. It does not parse the arguments: unknown ones go to the compiler, in any position.
pub fn command(language: Language) -> clap::Command {
    let (name, ours, about) = match language {
        Language::C => (
            "cc",
            "--api API [--cxx] [--showme[:compile|:link]] ARGS",
            "Runs the C compiler ($UNIPGAS_CC, $CC or cc) with ARGS and what programs of the interface need: a wrapper like mpicc",
        ),
        Language::Cxx => (
            "c++",
            "--api API [--showme[:compile|:link]] ARGS",
            "As cc, for C++: runs $UNIPGAS_CXX, $CXX or c++",
        ),
    };
    let flag = |name: &'static str, help: &'static str| {
        let flag = clap::Arg::new(name).long(name).help(help);
        flag.action(clap::ArgAction::SetTrue)
    };
    let api = clap::Arg::new("api")
        .long("api")
        .value_name("API")
        .help("The interface")
        .value_parser(APIS.map(|api| api.name));
    let cxx = flag("cxx", "Runs the C++ compiler ($UNIPGAS_CXX, $CXX or c++)");
    let show = flag(
        "showme",
        "Prints the command instead of running it; --showme:compile and --showme:link print the options for compiling or linking",
    );
    let args = clap::Arg::new("args")
        .value_name("ARGS")
        .help("All other options and files, for the compiler")
        .num_args(0..)
        .value_hint(clap::ValueHint::FilePath);
    clap::Command::new(name)
        .about(about)
        .override_usage(format!("unipgas {name} {ours}"))
        .after_help(MORE)
        .arg(api)
        .args((language == Language::C).then_some(cxx))
        .args([show, args])
        .disable_help_flag(true)
        .arg(flag(
            "help",
            "Prints this help, if it is the first argument",
        ))
}

/// Libraries that the static archive requires. Since glibc 2.34, libc contains all of them but libm.
const NATIVE: [&str; 6] = ["-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// The kinds of `--showme`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Nothing,
    Command,
    Compile,
    Link,
}

/// The language and the interface in the name of a link to this program, such as `gaspicxx`.
pub fn named(program: &OsStr) -> Option<(Language, &'static str)> {
    let name = Path::new(program).file_name()?.to_str()?;
    let (api, language) = match (name.strip_suffix("cc"), name.strip_suffix("cxx")) {
        (Some(api), _) => (api, Language::C),
        (_, Some(api)) => (api, Language::Cxx),
        _ => return None,
    };
    let known = APIS.iter().find(|known| known.name == api)?;
    Some((language, known.name))
}

/// Compiles. `api`: the interface if no argument names one.
pub fn run(language: Language, api: Option<&str>, args: Vec<OsString>) -> Ended {
    let mut language = language;
    let mut show = Show::Nothing;
    let own_options = api.is_none();
    let mut wish = api.map(str::to_owned);
    let mut rest = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--api") if own_options => match args.next() {
                Some(name) => wish = Some(name.to_string_lossy().into_owned()),
                None => return fail(2, format!("--api needs a name: {}", names())),
            },
            Some(text) if own_options && text.starts_with("--api=") => {
                wish = Some(text["--api=".len()..].to_owned())
            }
            Some("--cxx") if own_options => language = Language::Cxx,
            Some("--showme" | "-showme" | "-show") => show = Show::Command,
            Some("--showme:compile" | "-showme:compile") => show = Show::Compile,
            Some("--showme:link" | "-showme:link") => show = Show::Link,
            Some("--help") if own_options && rest.is_empty() => {
                return shown(&command(language).render_help().to_string());
            }
            _ => rest.push(arg),
        }
    }
    let Some(wish) = wish else {
        return fail(
            2,
            format!(
                "say for which interface to compile: --api with one of: {}",
                names()
            ),
        );
    };
    let Some(api) = APIS.iter().find(|api| api.name == wish) else {
        return fail(
            2,
            format!("there is no interface {wish:?}; there are: {}", names()),
        );
    };
    let compiler = compiler(language).map_err(failed(2))?;
    let place = place::find(api).map_err(failed(1))?;
    let beside = api.beside.map(|folder| place.include.join(folder));
    let compile: Vec<OsString> = std::iter::once(&place.include)
        .chain(&beside)
        .map(|folder| joined("-I", folder))
        .collect();
    let mut link = vec![joined("-L", &place.lib)];
    if place.rpath {
        link.push(joined("-Wl,-rpath,", &place.lib));
    }
    link.push(format!("-l{}", place.library).into());
    if rest
        .iter()
        .any(|arg| arg == "-static" || arg == "-static-pie")
    {
        link.extend(NATIVE.map(OsString::from));
    }
    if rest.is_empty() && show == Show::Nothing {
        return fail(2, "nothing to compile; unipgas cc --help tells more");
    }
    let mut words = compiler.split_whitespace().map(OsString::from);
    let program = words.next().unwrap_or_else(|| "cc".into());
    let links = links(&rest);
    let mut line: Vec<OsString> = words.collect();
    line.extend(compile.iter().cloned());
    line.extend(rest);
    if links || show == Show::Command && line.len() == compile.len() {
        line.extend(link.iter().cloned());
    }
    match show {
        Show::Nothing => {
            let error = Command::new(&program).args(&line).exec();
            let shown = program.to_string_lossy();
            fail(
                127,
                format!(
                    "cannot run the compiler {shown}: {error} (install it, or name another in UNIPGAS_CC or UNIPGAS_CXX)"
                ),
            )
        }
        Show::Command => print(std::iter::once(&program).chain(&line)),
        Show::Compile => print(compile.iter()),
        Show::Link => print(link.iter()),
    }
}

fn names() -> String {
    APIS.map(|api| api.name).join(", ")
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}

/// Errors: a variable is not UTF-8.
fn compiler(language: Language) -> unipgas::core::Result<String> {
    let (names, default) = match language {
        Language::C => (["UNIPGAS_CC", "CC"], "cc"),
        Language::Cxx => (["UNIPGAS_CXX", "CXX"], "c++"),
    };
    for name in names {
        match variables::get(name)? {
            Some(wish) if !names_this_program(&wish) => return Ok(wish),
            _ => {}
        }
    }
    Ok(default.into())
}

/// Whether a command is this program itself: `make CC=gaspicc` passes CC to this program, too.
fn names_this_program(command: &str) -> bool {
    let Ok(this) = std::env::current_exe().and_then(|path| path.canonicalize()) else {
        return false;
    };
    let is_this = |path: PathBuf| path.canonicalize().is_ok_and(|path| path == this);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command
        .split_whitespace()
        .any(|word| match word.contains('/') {
            true => is_this(word.into()),
            false => std::env::split_paths(&path)
                .map(|folder| folder.join(word))
                .find(|file| file.is_file())
                .is_some_and(is_this),
        })
}

/// Whether these arguments make the compiler link: there is an input, and no option ends the work earlier.
fn links(args: &[OsString]) -> bool {
    let ends_before = |arg: &OsString| {
        matches!(
            arg.to_str(),
            Some("-c" | "-E" | "-S" | "-M" | "-MM" | "-fsyntax-only")
        )
    };
    let is_input = |arg: &OsString| !arg.to_string_lossy().starts_with('-') || arg == "-";
    args.iter().any(is_input) && !args.iter().any(ends_before)
}

/// Prints words in the quotes of a shell.
fn print<'a>(words: impl Iterator<Item = &'a OsString>) -> Ended {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+,:@%".contains(c);
    let quoted: Vec<String> = words
        .map(|word| word.to_string_lossy())
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        })
        .collect();
    shown(&format!("{}\n", quoted.join(" ")))
}
