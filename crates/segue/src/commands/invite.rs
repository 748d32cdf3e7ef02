//! `segue invite`: a URL that enrols one host, once.

use std::time::Duration;

use segue_client::quantity;
use segue_server::admin::{AdminReply, AdminRequest};
use serde_json::json;
use time::OffsetDateTime;

use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, output};

/// Print an invite: a URL with which one host can mount a volume
///
/// The URL names the server, pins its certificate authority, and holds a code that works once and
/// expires. The first mount with the URL enrols the host. Later mounts need no invite. Keep the URL
/// secret: until it is used or expires, it lets in any host.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Volume that the host can mount
    #[arg(long, value_name = "NAME", default_value = "home")]
    volume: String,
    /// Permissions of the host
    #[arg(long, value_enum, default_value_t = RoleName::Writer)]
    role: RoleName,
    /// Time until the invite expires, from 1s to 366d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = quantity::parse_duration)]
    ttl: Duration,
    /// Name or address under which hosts reach the server, with :PORT if a router forwards another
    /// port [default: its listen address if that is a single address, else its first address that
    /// is not loopback]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// With --role host: root on that host is root on the volume
    #[arg(long)]
    no_root_squash: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

/// The role of an invited host, spelt as in the server's administration.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum RoleName {
    /// Reads everything, changes nothing
    Reader,
    /// Reads and writes as the owner of the volume
    Writer,
    /// Acts for all users of the host
    Host,
}

const EXAMPLES: &str = "\
Examples:
  segue invite                            a writer for volume home; expires in one hour
  segue invite --role reader --ttl 7d     a reader; expires in a week
  segue invite --volume src --host build.example.org
  segue invite | ssh laptop segue mount - work
  segue invite --json | jq -r .url";

/// Prints the URL, and nothing else, on stdout.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context)?;
    let request = AdminRequest::Invite {
        volume: arguments.volume.clone(),
        role: serde_json::from_value(serde_json::json!(arguments.role))
            .map_err(|error| Failure::usage(format!("--role: {error}")))?,
        ttl_seconds: arguments.ttl.as_secs(),
        host: arguments.host.clone(),
        no_root_squash: arguments.no_root_squash,
    };
    match admin::ask(&data, request)? {
        AdminReply::Invite { url } if arguments.json => {
            let Arguments { volume, role, ttl, .. } = arguments;
            let expires = OffsetDateTime::now_utc().unix_timestamp() + ttl.as_secs().cast_signed();
            output::print_json(&json!({
                "url": url, "volume": volume, "role": role, "expires": expires,
            }))?;
        }
        AdminReply::Invite { url } => output::print(&format!("{url}\n"))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}
