//! `segue conflicts`: lists the changes of this host that became conflict copies or were refused.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use segue_client::quantity;
use segue_client::replies::{Conflict, ConflictKind, ConflictsReply};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, output};

/// List the conflicts of this host's changes
///
/// If another host changed a file first, this host's change does not overwrite that change. It
/// becomes a conflict copy beside the file: NAME.conflict-HOST-TIME, with the time in UTC. A change
/// that the server refused after its call had returned (no space, permission revoked) stays on this
/// host with its data. 'segue resolve' resolves both kinds. A copy of another host's change beside
/// a file of this host is listed as "beside". That host resolves it, or this one by the name of the
/// copy. The exit code is 5 if there are any.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// Print JSON
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
    let mounts = control::chosen(arguments.mountpoint.as_deref())?;
    let (answers, exit) = control::each(&mounts, |mount| block_on(ask(mount, context)));
    if answers.is_empty() && exit != Exit::Done {
        return Ok(exit);
    }
    let conflicts = answers.concat();
    if arguments.json {
        output::print_json(&json!({ "conflicts": conflicts }))?;
    } else if conflicts.is_empty() {
        output::print("no conflicts\n")?;
    } else {
        output::print(&describe(&conflicts))?;
    }
    Ok(if conflicts.is_empty() { exit } else { exit.max(Exit::Conflict) })
}

/// The conflicts that `mount` knows, with absolute paths.
pub(super) async fn ask(mount: &Mount, context: &Context) -> Result<Vec<Conflict>, Failure> {
    let reply: ConflictsReply = control::get(&context.places, mount, "/v1/conflicts").await?;
    Ok(reply.conflicts.into_iter().map(|conflict| shown(conflict, mount)).collect())
}

fn shown(conflict: Conflict, mount: &Mount) -> Conflict {
    if !conflict.note.is_empty() {
        let (mountpoint, note) = (mount.mountpoint.display(), &conflict.note);
        let why = format!(
            "{}: find {mountpoint} -name '*.conflict-*' lists the conflict copies; 'segue resolve \
             {note} --both' drops this note",
            conflict.why
        );
        return Conflict { path: note.clone(), why, ..conflict };
    }
    Conflict {
        // An object without a name is shown by its number, or by the ID under which it is kept.
        path: mount.absolute(if conflict.path.is_empty() { &conflict.id } else { &conflict.path }),
        of: mount.absolute(&conflict.of),
        ..conflict
    }
}

fn describe(conflicts: &[Conflict]) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let row = |conflict: &Conflict| {
        let made = Duration::try_from_secs_f64(conflict.time_seconds).unwrap_or_default();
        let (kind, why) = match conflict.kind {
            ConflictKind::Copy if !conflict.note.is_empty() => ("copy", conflict.why.clone()),
            ConflictKind::Copy => ("copy", format!("beside {}", conflict.of)),
            ConflictKind::Beside => {
                ("beside", format!("another host's change, beside {} of this host", conflict.of))
            }
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
