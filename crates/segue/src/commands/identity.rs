//! `segue identity`: the identities of the hosts that may use a server.

use std::path::Path;

use clap::Subcommand;
use segue_server::admin::{AdminReply, AdminRequest, IdentityInfo, renew_identity};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Context, ServerData};
use crate::exit::{Exit, Outcome};
use crate::{admin, output};

/// List and revoke the identities of hosts on a server
///
/// A host gets its identity at its first mount with an invite.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  segue identity list
  segue identity revoke 3f9a..     end the access of a lost laptop";

#[derive(Debug, Subcommand)]
enum Action {
    /// List the identities, also revoked ones
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerData,
    },
    /// Revoke an identity at once and for good
    Revoke {
        /// Its ID from 'segue identity list', or the beginning of the ID
        id: String,
        #[command(flatten)]
        server: ServerData,
    },
    /// Make a new identity of the server, after its old one was lost
    ///
    /// The server must be stopped. Afterwards every host needs a new invite. Volumes, and the
    /// unsent changes of hosts, stay as they are.
    Renew {
        #[command(flatten)]
        server: ServerData,
    },
}

/// Executes the action on a running or stopped server.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let (request, server, json) = match &arguments.action {
        Action::List { json, server } => (AdminRequest::IdentityList, server, *json),
        Action::Revoke { id, server } => {
            (AdminRequest::IdentityRevoke { id: id.clone() }, server, false)
        }
        Action::Renew { server } => return renew(&server.resolve(context)?),
    };
    let data = server.resolve(context)?;
    match admin::ask(&data, request)? {
        AdminReply::Identities { identities } if json => {
            output::print_json(&json!({ "identities": identities }))?;
        }
        AdminReply::Identities { identities } => output::print(&describe(&identities))?,
        AdminReply::Revoked { id, .. } => output::print(&format!("segue: {id} is revoked\n"))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}

fn renew(data: &Path) -> Outcome {
    admin::patiently(|| renew_identity(data).map(Ok))?;
    let words = format!(
        "segue: the server with data directory {} has a new identity; every host needs a new \
         invite: segue invite\n",
        data.display()
    );
    output::print(&words)?;
    Ok(Exit::Done)
}

fn describe(identities: &[IdentityInfo]) -> String {
    if identities.is_empty() {
        return "no host is enrolled: 'segue invite' prints a URL that enrols one\n".into();
    }
    let row = |identity: &IdentityInfo| {
        let role = format!("{:?}", identity.role).to_lowercase();
        let state = match identity.revoked {
            Some(when) => format!("revoked {}", date(when)),
            None => "valid".to_owned(),
        };
        let since = date(identity.created);
        let (host, volume) = (identity.host.clone(), identity.volume.clone());
        vec![identity.id.clone(), host, volume, role, since, state]
    };
    let rows: Vec<Vec<String>> = identities.iter().map(row).collect();
    output::table(&["ID", "HOST", "VOLUME", "ROLE", "SINCE", "STATE"], &rows)
}

fn date(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
}
