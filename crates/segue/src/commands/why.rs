//! `segue why`: the waits of the last operations on a file.

use std::path::PathBuf;
use std::time::Duration;

use segue_client::quantity;
use segue_client::replies::{AnyPath, WhereFile, WhyOperation, WhyReply, WhyRequest};
use serde_json::json;

use super::{Context, block_on, place};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output};

/// Most operations in the table; JSON has all.
const SHOWN: usize = 20;

/// Show the waits of the last operations on a file
///
/// Each line shows an operation and its waits: for an answer of the server, for data on their way,
/// for this host's disk, for room in the update log, for other hosts. Operations of less than 1 ms
/// are not listed, nor those that the kernel answered by itself. A mount remembers its last 4,096
/// operations that took longer.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// File or directory on a Segue mount
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue why ~/home/thesis.tex
  segue why ~/home/photos --json";

/// Asks the file's mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let (mount, inside) = control::holding(&mounts::list()?, &arguments.path)?;
    // Asked first: the request for the place may itself wait for the server.
    let request = WhyRequest { path: AnyPath::from(&*inside) };
    let asking = control::post(&context.places, &mount, "/v1/why", &request);
    let reply: WhyReply = block_on(asking)?;
    let shown = arguments.path.display();
    if !reply.error.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("{shown}: {}", reply.error)));
    }
    let path = mount.mountpoint.join(&inside).display().to_string();
    let file = WhereFile { path, ..block_on(place::ask(&mount, &inside, false, context))? };
    if arguments.json {
        output::print_json(&json!({ "operations": reply.operations, "where": file }))?;
        return Ok(Exit::Done);
    }
    output::print(&format!("{}: {}\n", output::path(&arguments.path), place_words(&file)))?;
    match reply.operations.is_empty() {
        true => output::print("no operation on it had to wait\n")?,
        false => output::print(&describe(&reply.operations))?,
    }
    Ok(Exit::Done)
}

fn place_words(file: &WhereFile) -> String {
    let cached = quantity::bytes(file.cached_bytes);
    let here = format!("{cached} of {} on this host", quantity::bytes(file.size));
    let safe = match file.level.as_str() {
        "host" => "not completely on the server yet",
        "other" => "changed on another host, and not completely on the server yet",
        _ => "on the server",
    };
    format!("{here}, {safe}")
}

fn describe(operations: &[WhyOperation]) -> String {
    let seconds = |seconds: f64| match seconds {
        long if long >= 10.0 => format!("{long:.0} s"),
        short if short < 1.0 => format!("{:.0} ms", short * 1000.0),
        other => format!("{other:.1} s"),
    };
    let row = |operation: &WhyOperation| {
        let age = Duration::try_from_secs_f64(operation.age_seconds).unwrap_or_default();
        let steps = operation.waited_for.iter();
        let steps = steps.map(|step| format!("{} {}", step.what, seconds(step.seconds)));
        let steps: Vec<String> = steps.collect();
        vec![
            operation.operation.clone(),
            seconds(operation.seconds),
            if operation.under_way { "goes on".to_owned() } else { quantity::age(age) },
            operation.pid.to_string(),
            if steps.is_empty() { "other work".to_owned() } else { steps.join("; ") },
        ]
    };
    let rows: Vec<Vec<String>> = operations.iter().take(SHOWN).map(row).collect();
    output::table(&["OPERATION", "TOOK", "AGE", "PROCESS", "WAITED FOR"], &rows)
}
