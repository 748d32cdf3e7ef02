//! The command line: what can be typed, and the help that teaches it.

use std::ffi::OsString;
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::commands;
use crate::logging::LogFormat;

/// A network file system with its cache, and its unsent changes, on this host's disk.
///
/// Segue mounts a volume of a server as a directory. Files that were used are on this host's
/// disk; every change is logged here first and sent to the server in order, also after the
/// network was gone or the machine was switched off.
#[derive(Debug, Parser)]
#[command(name = "segue", version, propagate_version = true, after_help = FIRST_STEPS)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// How log lines are written (which ones: SEGUE_LOG, for example SEGUE_LOG=debug)
    #[arg(long, global = true, value_enum, env = "SEGUE_LOG_FORMAT", hide_env_values = true)]
    pub(crate) log_format: Option<LogFormat>,
}

const FIRST_STEPS: &str = "\
First steps:
  segue serve --detach               on the server: start serving volume 'home'
  segue invite                       there: print a line that lets one host in, once
  segue mount 'segue://..' ~/home    on your host: mount it, with that line
  segue status                       what is mounted, and what is not on the server yet
  segue umount ~/home                send everything, then unmount

Exit codes:
  0 done, 1 failed, 2 usage, 3 path not found, 4 offline (a retry helps), 5 conflict,
  6 not yet safe (a wait timed out), 7 data at risk, 8 not permitted

'segue help COMMAND' explains each command with examples.";

/// One for each file in `commands`, where the words for the help are too.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(commands::serve::Arguments),
    Volume(commands::volume::Arguments),
    Invite(commands::invite::Arguments),
    Identity(commands::identity::Arguments),
    Mount(commands::mount::Arguments),
    Umount(commands::umount::Arguments),
    Status(commands::status::Arguments),
    Sync(commands::sync::Arguments),
    Where(commands::place::Arguments),
    Persist(commands::persist::Arguments),
    Log(commands::log::Arguments),
    Push(commands::push::Arguments),
    Why(commands::why::Arguments),
    Conflicts(commands::conflicts::Arguments),
    Resolve(commands::resolve::Arguments),
    Watch(commands::watch::Arguments),
    Bwlimit(commands::bwlimit::Arguments),
    Recover(commands::recover::Arguments),
    Metrics(commands::metrics::Arguments),
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    LoseLink(commands::lose_link::Arguments),
    Completions(commands::completions::Arguments),
}

impl Command {
    /// True if this process will stay and serve, so that its log is an operator's.
    pub(crate) fn is_daemon(&self) -> bool {
        match self {
            Command::Serve(arguments) => arguments.stays(),
            Command::Mount(arguments) => arguments.foreground,
            _ => false,
        }
    }

    /// True if a parent process waits on stdout for a report.
    pub(crate) fn ready_on_stdout(&self) -> bool {
        match self {
            Command::Serve(arguments) => arguments.ready_on_stdout,
            Command::Mount(arguments) => arguments.ready_on_stdout,
            _ => false,
        }
    }
}

/// What mount(8) gives to its helper for `mount -t segue` and fstab.
#[derive(Debug, Parser)]
#[command(name = "mount.segue", version, about = "Mount a Segue volume for mount(8) and fstab")]
struct MountHelper {
    /// What to mount: segue://HOST[:PORT]/VOLUME
    url: String,
    /// Where to mount it
    mountpoint: std::path::PathBuf,
    /// Check only, do not mount
    #[arg(short = 'f')]
    fake: bool,
    /// Accepted: there is no mount table to leave alone
    #[arg(short = 'n')]
    _no_table: bool,
    /// Accepted: unknown options are errors all the same
    #[arg(short = 's')]
    _sloppy: bool,
    /// Say what is done
    #[arg(short = 'v')]
    _verbose: bool,
    /// Mount options
    #[arg(short = 'o', value_name = "OPT[,OPT..]")]
    options: Vec<String>,
    /// Accepted: mount(8) names the type
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
}

/// Reads the command line; ends the process for `--help`, `--version` and mistakes.
pub(crate) fn parse(arguments: Vec<OsString>) -> Cli {
    let called_as = arguments.first().and_then(|program| Path::new(program).file_name());
    if called_as.is_none_or(|name| name != "mount.segue") {
        return Cli::parse_from(arguments);
    }
    let helper = MountHelper::parse_from(arguments);
    let arguments = commands::mount::Arguments {
        url: helper.url,
        mountpoint: helper.mountpoint,
        options: helper.options,
        foreground: false,
        check_only: helper.fake,
        ready_on_stdout: false,
    };
    Cli { command: Command::Mount(arguments), log_format: None }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        MountHelper::command().debug_assert();
    }

    #[test]
    fn mount_calls_its_helper_in_either_order() {
        for line in ["segue://h/v /mnt -n -o rw,_netdev", "-v -o rw,_netdev segue://h/v /mnt"] {
            let words = std::iter::once("/sbin/mount.segue").chain(line.split(' '));
            let cli = parse(words.map(OsString::from).collect());
            let Command::Mount(arguments) = cli.command else { panic!("{line}") };
            assert_eq!(arguments.url, "segue://h/v");
            assert_eq!(arguments.options, ["rw,_netdev"]);
        }
    }
}
