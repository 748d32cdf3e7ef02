//! `segue push`: what the server is to have first.

use std::path::PathBuf;

use segue_client::control::types::{PushReply, PushRequest};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output, quantity};

/// Send the changes of these files first
///
/// They go before all other data that waits, with what they have to follow: the directory they are in,
/// and what was written to them before. Nothing is waited for: 'segue sync PATH' does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue push ~/home/slides.pdf              ahead of the photos that are on their way
  segue push ~/home/report && segue sync ~/home/report
  segue log ~/home                          in which order the rest goes";

/// Asks each mount that a path is on.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let all = mounts::list()?;
    let mut pushed = Vec::new();
    for path in &arguments.paths {
        path.symlink_metadata().map_err(|error| Failure::io(path.display(), &error))?;
        let (mount, inside) = control::holding(&all, path)?;
        let request = PushRequest { paths: vec![inside.to_string_lossy().into_owned()] };
        let asking = control::post(&context.places, &mount, "/v1/push", &request);
        let reply: PushReply = block_on(asking)?;
        if !arguments.json {
            output::print(&format!("{}: {}\n", path.display(), words(&reply)))?;
        }
        pushed.push(json!({
            "path": path,
            "records": reply.records,
            "bytes": reply.bytes,
            "offline": reply.offline,
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
        (0, _) => "nothing of it waits: the server has every change".to_owned(),
        (_, false) => format!("{changes} ({size}) go first"),
        (_, true) => format!("{changes} ({size}) go first when the server can be reached again"),
    }
}
