//! Writes man pages and shell completions from the options, for `make install`.

use std::fs::{File, create_dir_all};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

use crate::{Cli, Ended, Failed, cc, failed};

/// The target directory, and descriptions of other programs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory for data that does not depend on the machine, such as /usr/local/share
    #[arg(value_name = "DIRECTORY")]
    to: PathBuf,
    /// The options of a subcommand that is a separate program, as that program prints them
    #[arg(long, value_name = "SUBCOMMAND=FILE")]
    options: Vec<String>,
}

/// The command with all subcommands and their options.
fn whole(options: &[String]) -> Result<Command, String> {
    let mut command = Cli::command()
        .mut_subcommand("cc", |_| cc::command(cc::Language::C))
        .mut_subcommand("c++", |_| cc::command(cc::Language::Cxx));
    for option in options {
        let (name, file) = option
            .split_once('=')
            .filter(|(name, _)| command.find_subcommand(name).is_some())
            .ok_or_else(|| format!("--options {option}: must be SUBCOMMAND=FILE"))?;
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        let program = unipgas_options::parse(&text).map_err(|e| format!("{file}: {e}"))?;
        let program = program
            .name(name.to_owned())
            .display_name(format!("unipgas-{name}"));
        command = command.mut_subcommand(name, move |_| program);
    }
    Ok(command)
}

fn write(to: &Path, whole: &Command) -> io::Result<()> {
    // `help` has no page.
    let mut command = whole.clone().disable_help_subcommand(true);
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
        let file = generate_to(shell, &mut whole.clone(), "unipgas", &place)?;
        if shell == Shell::Bash {
            // bash looks for the name of the command.
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
pub fn run(args: &Args) -> Ended {
    let whole = whole(&args.options).map_err(failed(2))?;
    let to = &args.to;
    write(to, &whole)
        .map_err(|error| Failed(1, format!("cannot write into {}: {error}", to.display())))?;
    Ok(ExitCode::SUCCESS)
}
