//! `segue identity`: the identities of the hosts that may use a server.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use clap::Subcommand;
use segue_server::admin::{AdminReply, AdminRequest, IdentityInfo, renew_identity};
use serde_json::json;

use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
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
  segue identity revoke laptop             end the access of a lost laptop, after a question
  segue identity revoke 3f9a12cd --yes     the same by the first digits of its ID, without";

/// Fewer digits of an ID may be a mistake.
const ID_MIN: usize = 8;

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
        /// Name of its host, or at least eight digits of its ID, from 'segue identity list'
        identity: String,
        /// Revoke it without a question
        #[arg(long)]
        yes: bool,
        /// Print the revoked identity as JSON
        #[arg(long)]
        json: bool,
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
    let (server, json) = match &arguments.action {
        Action::List { json, server } => (server, *json),
        Action::Revoke { identity, yes, json, server } => {
            return revoke(&server.resolve(context)?, identity, (*yes, *json));
        }
        Action::Renew { server } => return renew(&server.resolve(context)?),
    };
    let identities = list(&server.resolve(context)?)?;
    match json {
        true => output::print_json(&json!({ "identities": identities }))?,
        false => output::print(&describe(&identities))?,
    }
    Ok(Exit::Done)
}

fn list(data: &Path) -> Result<Vec<IdentityInfo>, Failure> {
    match admin::ask(data, AdminRequest::IdentityList)? {
        AdminReply::Identities { identities } => Ok(identities),
        _ => Err(admin::unexpected(data)),
    }
}

fn revoke(data: &Path, wanted: &str, (yes, json): (bool, bool)) -> Outcome {
    let identities = list(data)?;
    let identity = find(&identities, wanted)?;
    if !yes {
        confirm(identity)?;
    }
    match admin::ask(data, AdminRequest::IdentityRevoke { id: identity.id.clone() })? {
        AdminReply::Revoked { .. } if json => {
            let revoked = list(data)?.into_iter().find(|other| other.id == identity.id);
            output::print_json(&revoked.ok_or_else(|| admin::unexpected(data))?)?;
            Ok(Exit::Done)
        }
        AdminReply::Revoked { .. } => {
            output::print(&format!("segue: {} is revoked\n", called(identity)))?;
            Ok(Exit::Done)
        }
        _ => Err(admin::unexpected(data)),
    }
}

/// The one identity that `wanted` names. A name of a host means its identity that is valid.
fn find<'a>(identities: &'a [IdentityInfo], wanted: &str) -> Result<&'a IdentityInfo, Failure> {
    let is_id = wanted.len() >= ID_MIN && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = wanted.to_ascii_lowercase();
    let is_meant = |identity: &&IdentityInfo| {
        is_id && identity.id.starts_with(&digits)
            || identity.host == wanted && identity.revoked.is_none()
    };
    let found: Vec<&IdentityInfo> = identities.iter().filter(is_meant).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::new(
            Exit::NotFound,
            format!(
                "no valid identity has the host name '{wanted}', and no ID begins with it \
                 ({ID_MIN} digits or more); see: segue identity list"
            ),
        )),
        several => {
            let all: Vec<String> = several.iter().map(|identity| called(identity)).collect();
            Err(Failure::usage(format!(
                "'{wanted}' can mean {}: give digits of the ID",
                all.join(" or ")
            )))
        }
    }
}

/// `laptop (5acbefa37d2d0dce, writer of home)`.
fn called(identity: &IdentityInfo) -> String {
    let role = format!("{:?}", identity.role).to_lowercase();
    let words = format!("{} ({}, {role} of {})", identity.host, identity.id, identity.volume);
    output::printable(&words, &[])
}

fn confirm(identity: &IdentityInfo) -> Result<(), Failure> {
    let called = called(identity);
    if !io::stdin().is_terminal() {
        let words = format!(
            "{called} is not revoked: stdin is no terminal for the confirmation; use --yes"
        );
        return Err(Failure::usage(words));
    }
    // If stderr fails, the user sees no question and types nothing.
    let _ = write!(io::stderr(), "this ends the access of {called} for good; type yes: ");
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.map_err(|error| Failure::io("cannot read the confirmation from stdin", &error))?;
    match typed.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::failed(format!("{called} is not revoked"))),
    }
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
            Some(when) => format!("revoked {}", output::ago(Some(when))),
            None => "valid".to_owned(),
        };
        let (host, volume) = (identity.host.clone(), identity.volume.clone());
        let (id, since) = (identity.id.clone(), output::ago(Some(identity.created)));
        let used = match identity.connected {
            true => "now".to_owned(),
            false => output::ago(identity.last_used),
        };
        let address = identity.address.map_or_else(|| "-".to_owned(), |at| at.to_string());
        vec![id, host, volume, role, since, used, address, state]
    };
    let rows: Vec<Vec<String>> = identities.iter().map(row).collect();
    output::table(
        &["ID", "HOST", "VOLUME", "ROLE", "ENROLLED", "LAST USE", "ADDRESS", "STATE"],
        &rows,
    )
}
