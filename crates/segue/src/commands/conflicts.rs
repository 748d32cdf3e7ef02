//! `segue conflicts`: what of this host's changes stands beside what it was meant for, or was
//! refused.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use segue_client::control::types::{Conflict, ConflictKind, ConflictsReply};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, output, quantity};

/// Show the conflicts of this host's changes with others'
///
/// A change that was made on a state which another host has changed meanwhile overwrites nothing: it
/// stands beside, as NAME.conflict-HOST-TIME (in UTC). What the server refused after the
/// call had returned (no room, rights revoked) is kept on this host with its data. 'segue resolve'
/// deals with either. Exit code 5 if there is any.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue conflicts
  segue conflicts ~/home --json
  diff ~/home/notes.txt ~/home/notes.txt.conflict-tin-20261123-101500
  segue resolve ~/home/notes.txt --ours";

/// Asks each mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mut conflicts = Vec::new();
    for mount in control::chosen(arguments.mountpoint.as_deref())? {
        conflicts.extend(block_on(ask(&mount, context))?);
    }
    if arguments.json {
        output::print_json(&json!({ "conflicts": conflicts }))?;
    } else if conflicts.is_empty() {
        output::print("no conflicts\n")?;
    } else {
        output::print(&describe(&conflicts))?;
    }
    Ok(if conflicts.is_empty() { Exit::Done } else { Exit::Conflict })
}

/// What `mount` knows of, with absolute paths.
pub(super) async fn ask(mount: &Mount, context: &Context) -> Result<Vec<Conflict>, Failure> {
    let unanswered = |error| control::unanswered(mount, &error);
    let connection = control::connect(&context.places, mount).await.map_err(unanswered)?;
    let reply: ConflictsReply = connection.get("/v1/conflicts").await.map_err(unanswered)?;
    let absolute =
        |path: &str| mount.mountpoint.join(path.trim_start_matches('/')).display().to_string();
    let conflicts = reply.conflicts.into_iter().map(|conflict| Conflict {
        // What has no name any more is called by its number, or by what it is kept as.
        path: absolute(if conflict.path.is_empty() { &conflict.id } else { &conflict.path }),
        of: absolute(&conflict.of),
        ..conflict
    });
    Ok(conflicts.collect())
}

fn describe(conflicts: &[Conflict]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let row = |conflict: &Conflict| {
        let made = Duration::try_from_secs_f64(conflict.time_seconds).unwrap_or_default();
        let (kind, why) = match conflict.kind {
            ConflictKind::Copy => ("copy", format!("beside {}", conflict.of)),
            ConflictKind::Refused => ("refused", format!("{}: {}", conflict.change, conflict.why)),
        };
        let age = match made.is_zero() {
            true => "-".to_owned(),
            false => quantity::age(now.saturating_sub(made)),
        };
        vec![kind.to_owned(), quantity::bytes(conflict.bytes), age, conflict.path.clone(), why]
    };
    let rows: Vec<Vec<String>> = conflicts.iter().map(row).collect();
    output::table(&["KIND", "SIZE", "AGE", "PATH", "WHY"], &rows)
}
