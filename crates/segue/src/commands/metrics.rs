//! `segue metrics`: metrics for Prometheus.

use std::path::PathBuf;

use super::{Context, ServerData, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::{admin, control, http, output};

/// Print metrics in the Prometheus text format
///
/// Prints the metrics of a mount, or with --server those of a server. A scraper can also read them
/// from the control socket: GET /v1/metrics.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: this user's only mount]
    #[arg(conflicts_with = "server")]
    mountpoint: Option<PathBuf>,
    /// Print the metrics of the server on this host
    #[arg(long)]
    server: bool,
    #[command(flatten)]
    data: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue metrics ~/home
  segue metrics --server --data /srv/segue";

/// Prints the metrics.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let text =
        if arguments.server || arguments.data.data.is_some() && arguments.mountpoint.is_none() {
            of_server(arguments, context)?
        } else {
            of_mount(arguments, context)?
        };
    output::print(&text)?;
    Ok(Exit::Done)
}

fn of_mount(arguments: &Arguments, context: &Context) -> Result<String, Failure> {
    let mounts = control::chosen(arguments.mountpoint.as_deref())?;
    let [mount] = mounts.as_slice() else {
        let words = match mounts.len() {
            0 => "no volume is mounted by this user",
            _ => "several volumes are mounted: name one of them ('segue status' lists them)",
        };
        return Err(Failure::usage(words));
    };
    block_on(control::get_text(&context.places, mount, "/v1/metrics"))
}

fn of_server(arguments: &Arguments, context: &Context) -> Result<String, Failure> {
    let data = arguments.data.resolve(context)?;
    admin::require_data(&data)?;
    let socket = segue_server::socket_path(&data);
    block_on(async {
        let unreachable = |error: HttpError| admin::unreachable_server(&data, &error);
        let connection = http::connect(&socket).await.map_err(unreachable)?;
        connection.get_text("/v1/metrics").await.map_err(unreachable)
    })
}
