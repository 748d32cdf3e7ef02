//! `segue invite`: one line that lets one host in, once.

use std::time::Duration;

use segue_server::admin::{AdminReply, AdminRequest};

use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, output, quantity};

/// Print a line with which one host may mount a volume
///
/// The line names the server, pins its certificate authority, and holds a code that works
/// once and expires. The first mount with it enrols the host; afterwards the host mounts
/// without it. Give the line only to whom it is for: until it is used, it is the permission.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Volume to invite to
    #[arg(long, value_name = "NAME", default_value = "home")]
    volume: String,
    /// What the host may do
    #[arg(long, value_enum, default_value_t = RoleName::Writer)]
    role: RoleName,
    /// How long the line works
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = quantity::parse_duration)]
    ttl: Duration,
    /// Name or address by which hosts reach the server [default: the address it listens on,
    /// else its first one that is not loopback]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// With --role host: root on that host is root on the volume
    #[arg(long)]
    no_root_squash: bool,
    #[command(flatten)]
    server: ServerData,
}

/// What an invited host may do, as the server's administration spells it.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum RoleName {
    /// Read everything, change nothing
    Reader,
    /// Read and write as the volume's owner
    Writer,
    /// Speak for all users of the host
    Host,
}

const EXAMPLES: &str = "\
Examples:
  segue invite                            a writer for volume home, within the hour
  segue invite --role reader --ttl 7d     someone who only reads, within a week
  segue invite --volume src --host build.example.org
  segue invite | ssh laptop segue mount - work";

/// Prints the line, and only it, on stdout.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context);
    let request = AdminRequest::Invite {
        volume: arguments.volume.clone(),
        role: serde_json::from_value(serde_json::json!(arguments.role))
            .map_err(|error| Failure::usage(format!("--role: {error}")))?,
        ttl_seconds: arguments.ttl.as_secs().max(1),
        host: arguments.host.clone(),
        no_root_squash: arguments.no_root_squash,
    };
    match admin::ask(&data, request)? {
        AdminReply::Invite { url } => output::print(&format!("{url}\n"))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}
