//! Man pages, and what shells complete by: made from the options themselves, for `make install`.

use std::fs::{File, create_dir_all};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

use crate::{Cli, cc, fail};

/// Where they go.
#[derive(clap::Args)]
pub struct Args {
    /// The directory for data that does not depend on the machine, such as /usr/local/share
    #[arg(value_name = "DIRECTORY")]
    to: PathBuf,
}

/// The whole command: what others parse is theirs.
fn whole() -> Command {
    let theirs = |name: &'static str, command: Command| {
        command.name(name).display_name(format!("unipgas-{name}"))
    };
    let conform = theirs("conform", unipgas_conformance::cli::command());
    let bench = theirs("bench", unipgas_bench::cli::command());
    Cli::command()
        .mut_subcommand("cc", |_| cc::command(cc::Language::C))
        .mut_subcommand("c++", |_| cc::command(cc::Language::Cxx))
        .mut_subcommand("conform", move |_| conform)
        .mut_subcommand("bench", move |_| bench)
}

fn write(to: &Path) -> io::Result<()> {
    // There is no page of `help`.
    let mut command = whole().disable_help_subcommand(true);
    command.build();
    let pages = to.join("man/man1");
    create_dir_all(&pages)?;
    page(&command, "unipgas", &pages)?;
    for one in command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
    {
        page(one, &format!("unipgas-{}", one.get_name()), &pages)?;
    }
    for (shell, place) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let place = to.join(place);
        create_dir_all(&place)?;
        let file = generate_to(shell, &mut whole(), "unipgas", &place)?;
        if shell == Shell::Bash {
            // Found there under the command's own name.
            std::fs::rename(file, place.join("unipgas"))?;
        }
    }
    Ok(())
}

fn page(command: &Command, name: &str, to: &Path) -> io::Result<()> {
    let mut file = File::create(to.join(format!("{name}.1")))?;
    let page = clap_mangen::Man::new(command.clone().name(name.to_owned()));
    page.manual("unipgas").render(&mut file)
}

/// `unipgas pages DIRECTORY`.
pub fn run(args: &Args) -> ExitCode {
    match write(&args.to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(
            1,
            &format!("cannot write into {}: {error}", args.to.display()),
        ),
    }
}
