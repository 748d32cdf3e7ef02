//! Log lines go to stderr. The stderr of a background process is its log file.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. `wanted` is a filter as in SEGUE_LOG (`info`, `segue_client=debug`). The
/// default is `info` for daemons and `warn` for commands.
pub(crate) fn start(
    wanted: Option<&str>,
    format: LogFormat,
    is_daemon: bool,
) -> Result<(), Failure> {
    let default = if is_daemon { "info" } else { "warn" };
    let wanted = wanted.filter(|text| !text.is_empty()).unwrap_or(default);
    let filter = EnvFilter::try_new(wanted).map_err(|error| {
        Failure::usage(format!("SEGUE_LOG '{wanted}' is not a log filter such as 'info': {error}"))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::failed(format!("cannot start logging: {error}")))
}
