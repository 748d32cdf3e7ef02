//! `segue push`: sends the changes of some files before all others.

use std::path::PathBuf;

use segue_client::quantity;
use segue_client::replies::{AnyPath, PushReply, PushRequest};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output};

/// Send the changes of these files before all others
///
/// The changes go before all other pending data. The changes that they depend on go with them: the
/// creation of the directory, and earlier writes to the same file. The command does not wait for
/// the server; use 'segue sync PATH' for that.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue push ~/home/slides.pdf              before the photos that are still being sent
  segue push ~/home/report && segue sync ~/home/report
  segue log ~/home                          list all pending changes";

/// Asks the mount of each path.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let all = mounts::list()?;
    let mut pushed = Vec::new();
    for path in &arguments.paths {
        path.symlink_metadata().map_err(|error| Failure::io(path.display(), &error))?;
        let (mount, inside) = control::holding(&all, path)?;
        let request = PushRequest { paths: vec![AnyPath::from(&*inside)] };
        let asking = control::post(&context.places, &mount, "/v1/push", &request);
        let reply: PushReply = block_on(asking)?;
        if !arguments.json {
            output::print(&format!("{}: {}\n", output::path(path), words(&reply)))?;
        }
        pushed.push(json!({
            "path": path.to_string_lossy(),
            "records": reply.records,
            "bytes": reply.bytes,
            "offline": reply.offline,
            "denied": reply.denied,
        }));
    }
    if arguments.json {
        output::print_json(&json!({ "pushed": pushed }))?;
    }
    Ok(Exit::Done)
}

fn words(reply: &PushReply) -> String {
    let changes = quantity::count(reply.records, "change");
    let size = quantity::bytes(reply.bytes);
    match (reply.records, reply.offline) {
        (0, _) => "no pending changes: the server has every change".to_owned(),
        (_, false) => format!("{changes} ({size}) go first"),
        _ if reply.denied => {
            format!("{changes} ({size}) go first once the server accepts this host again")
        }
        (_, true) => format!("{changes} ({size}) go first once the server is reachable again"),
    }
}
