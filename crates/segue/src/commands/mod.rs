//! One file for each subcommand: its arguments, its help and its action.

pub(crate) mod backup;
pub(crate) mod bwlimit;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod conflicts;
pub(crate) mod delete;
pub(crate) mod guard;
pub(crate) mod identity;
pub(crate) mod invite;
pub(crate) mod log;
#[cfg(debug_assertions)]
pub(crate) mod lose_link;
pub(crate) mod metrics;
pub(crate) mod mount;
pub(crate) mod persist;
pub(crate) mod place;
pub(crate) mod push;
pub(crate) mod recover;
pub(crate) mod remount;
pub(crate) mod repair;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod umount;
pub(crate) mod volume;
pub(crate) mod watch;
pub(crate) mod why;
mod work;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::Config;
use crate::daemon::{self, Announcer};
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::places::Places;

/// The environment of a command.
#[derive(Debug)]
pub(crate) struct Context {
    /// The directories of this user's files.
    pub(crate) places: Places,
    /// The settings of the file and the environment.
    pub(crate) config: Config,
    /// The format of log lines.
    pub(crate) log_format: LogFormat,
    /// The reports of a daemon.
    pub(crate) announcer: Announcer,
}

impl Context {
    /// Starts `segue ARGUMENTS` in the background, with `input` on its stdin and its log named
    /// `log`; prints the message of its "ready" report.
    pub(crate) fn launch(
        &self,
        mut arguments: Vec<OsString>,
        input: Option<&str>,
        log: &str,
    ) -> Result<String, Failure> {
        let format = self.log_format.to_possible_value().map(|value| value.get_name().to_owned());
        arguments.splice(0..0, ["--log-format".into(), format.unwrap_or_default().into()]);
        daemon::launch(&arguments, input, &self.places.log_file(log))
    }
}

/// The server of a command.
#[derive(Debug, Args)]
pub(crate) struct ServerData {
    /// Data directory of the server [default: ~/.local/share/segue]
    #[arg(long, value_name = "DIR", env = "SEGUE_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,
}

impl ServerData {
    /// The absolute path of the directory; precedence: flag, environment, file, default.
    pub(crate) fn resolve(&self, context: &Context) -> Result<PathBuf, Failure> {
        let path = match &self.data {
            Some(path) => path,
            None => context.config.data()?.unwrap_or(&context.places.data),
        };
        Ok(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
    }
}

/// Runs a request to a daemon to its end.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?
        .block_on(work)
}

/// Runs a daemon to its end.
pub(crate) fn block_on_daemon<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?
        .block_on(work)
}
