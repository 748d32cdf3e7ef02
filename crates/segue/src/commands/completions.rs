//! `segue completions`: the completion script of a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(segue completions bash)                       for the running bash
  segue completions fish > ~/.config/fish/completions/segue.fish
  segue completions zsh > ~/.zfunc/_segue                if ~/.zfunc is in zsh's fpath";

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "segue", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
