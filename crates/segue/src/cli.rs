//! The command line: its grammar and its help.

use std::ffi::OsString;
use std::path::Path;

use clap::{FromArgMatches, Parser, Subcommand};

use crate::logging::LogFormat;
use crate::{commands, help};

/// A network file system that keeps its cache and its unsent changes on this host's disk.
///
/// Segue mounts a volume of a server on a directory. Used files are cached on this host's disk.
/// Every change is logged on this host first, then sent to the server in order. Sending resumes
/// after a loss of the network and after a restart of this host.
#[derive(Debug, Parser)]
#[command(name = "segue", version, propagate_version = true, after_help = FIRST_STEPS)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Format of log lines, text or json (SEGUE_LOG=debug sets the level)
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    #[arg(env = "SEGUE_LOG_FORMAT", hide_env = true, hide_possible_values = true)]
    pub(crate) log_format: Option<LogFormat>,
}

const FIRST_STEPS: &str = "\
First steps:
  segue serve --detach               on the server: serve volume 'home' in the background
  segue invite                       on the server: print a URL that enrols one host, once
  segue mount 'segue://..' ~/home    on your host: mount the volume with that URL
  segue status                       show the mounts and the changes not yet on the server
  segue umount ~/home                send every change to the server, then unmount

Exit codes:
  0 done, 1 failed, 2 usage, 3 path not found, 4 offline (a retry helps), 5 conflict,
  6 not yet safe (a wait timed out), 7 data at risk, 8 not permitted

'segue help COMMAND' explains each command with examples.";

/// One variant for each file in `commands`; the help of each command is in its file.
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
    #[command(hide = true)]
    Guard(commands::guard::Arguments),
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    LoseLink(commands::lose_link::Arguments),
    Completions(commands::completions::Arguments),
}

impl Command {
    /// True if this process serves until it is stopped. An operator reads its log.
    pub(crate) fn is_daemon(&self) -> bool {
        match self {
            Command::Serve(arguments) => arguments.stays(),
            Command::Mount(arguments) => arguments.foreground,
            _ => false,
        }
    }

    /// True if a server or a mount begins with this command.
    pub(crate) fn begins_to_serve(&self) -> bool {
        match self {
            Command::Serve(arguments) => !arguments.stop,
            Command::Mount(_) => true,
            _ => false,
        }
    }

    /// True if stdout is a pipe on which a parent process waits for a report.
    pub(crate) fn ready_on_stdout(&self) -> bool {
        match self {
            Command::Serve(arguments) => arguments.ready_on_stdout,
            Command::Mount(arguments) => arguments.ready_on_stdout,
            _ => false,
        }
    }
}

/// The arguments that mount(8) gives to its helper for `mount -t segue` and fstab.
#[derive(Debug, Parser)]
#[command(name = "mount.segue", version, about = "Mount a Segue volume for mount(8) and fstab")]
struct MountHelper {
    /// Volume to mount: segue://HOST[:PORT]/VOLUME
    url: String,
    /// Existing directory to mount it on
    mountpoint: std::path::PathBuf,
    /// Check the options, the URL and the directory; do not mount
    #[arg(short = 'f')]
    fake: bool,
    /// Accepted without effect: Segue writes no mount table
    #[arg(short = 'n')]
    _no_table: bool,
    /// Accepted without effect: unknown options stay errors
    #[arg(short = 's')]
    _sloppy: bool,
    /// Accepted without effect
    #[arg(short = 'v')]
    _verbose: bool,
    /// Mount options
    #[arg(short = 'o', value_name = "OPT[,OPT..]")]
    options: Vec<String>,
    /// Accepted without effect: the type is always segue
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
}

/// Reads the command line; ends the process for `--help`, `--version` and mistakes.
pub(crate) fn parse(arguments: Vec<OsString>) -> Cli {
    let called_as = arguments.first().and_then(|program| Path::new(program).file_name());
    if called_as.is_none_or(|name| name != "mount.segue" && name != "mount.fuse.segue") {
        let matches = help::command().get_matches_from(arguments);
        return Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    }
    let helper = MountHelper::parse_from(arguments);
    let arguments = commands::mount::Arguments {
        url: helper.url,
        mountpoint: helper.mountpoint,
        options: helper.options,
        foreground: false,
        json: false,
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
