//! The program `segue`: it serves volumes, mounts them, and queries the daemons that do.
//!
//! Each subcommand is one file in `commands`. A daemon is this program in the background
//! (`daemon`); commands find it by the kernel's mount list (`mounts`) or the server's data
//! directory (`admin`) and talk to its control socket (`http`).

#![allow(rustdoc::broken_intra_doc_links, reason = "help texts, with [brackets], are doc comments")]

mod admin;
mod cli;
mod commands;
mod config;
mod control;
mod daemon;
mod exit;
mod glob;
mod help;
mod http;
mod log_file;
mod logging;
mod mounts;
mod output;
mod pace;
mod places;
mod process;
mod rates;
mod signals;
mod unmounted;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::commands::Context;
use crate::config::Config;
use crate::daemon::Announcer;
use crate::exit::Outcome;
use crate::log_file::LogFile;
use crate::places::Places;

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os().collect());
    let announcer = Announcer { detached: cli.command.ready_on_stdout() };
    match run(cli, announcer) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            // In the background, stderr is the log file: the log has the failure too.
            announcer.failed(&failure);
            output::note(&failure.to_string());
            failure.exit.into()
        }
    }
}

fn run(cli: Cli, announcer: Announcer) -> Outcome {
    if let Command::Completions(arguments) = &cli.command {
        return commands::completions::run(arguments);
    }
    let places = Places::from_environment()?;
    let config = Config::load(&places);
    match (config.check(), cli.command.begins_to_serve()) {
        (Err(failure), true) => return Err(failure),
        (Err(failure), false) => output::note(&format!("{failure}; the other settings are used")),
        (Ok(()), _) => {}
    }
    let wanted = std::env::var("SEGUE_LOG").ok().or_else(|| config.log.clone());
    let format = cli.log_format.or(config.log_format).unwrap_or_default();
    // A parent has made the log of a background process its stderr.
    let log = announcer.detached.then(LogFile::of_stderr).and_then(Result::ok);
    logging::start(wanted.as_deref(), format, cli.command.is_daemon(), log)?;
    let context = Context { places, config, log_format: format, announcer };
    match cli.command {
        Command::Serve(arguments) => commands::serve::run(&arguments, &context),
        Command::Volume(arguments) => commands::volume::run(&arguments, &context),
        Command::Invite(arguments) => commands::invite::run(&arguments, &context),
        Command::Identity(arguments) => commands::identity::run(&arguments, &context),
        Command::Mount(arguments) => commands::mount::run(&arguments, &context),
        Command::Umount(arguments) => commands::umount::run(&arguments, &context),
        Command::Status(arguments) => commands::status::run(&arguments, &context),
        Command::Sync(arguments) => commands::sync::run(&arguments, &context),
        Command::Where(arguments) => commands::place::run(&arguments, &context),
        Command::Why(arguments) => commands::why::run(&arguments, &context),
        Command::Push(arguments) => commands::push::run(&arguments, &context),
        Command::Conflicts(arguments) => commands::conflicts::run(&arguments, &context),
        Command::Resolve(arguments) => commands::resolve::run(&arguments, &context),
        Command::Persist(arguments) => commands::persist::run(&arguments, &context),
        Command::Watch(arguments) => commands::watch::run(&arguments, &context),
        Command::Bwlimit(arguments) => commands::bwlimit::run(&arguments, &context),
        Command::Log(arguments) => commands::log::run(&arguments, &context),
        Command::Recover(arguments) => commands::recover::run(&arguments, &context),
        Command::Metrics(arguments) => commands::metrics::run(&arguments, &context),
        Command::Guard(arguments) => commands::guard::run(&arguments),
        #[cfg(debug_assertions)]
        Command::LoseLink(arguments) => commands::lose_link::run(&arguments, &context),
        Command::Completions(arguments) => commands::completions::run(&arguments),
    }
}
