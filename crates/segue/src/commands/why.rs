//! `segue why`: what the last operations on a file waited for.

use std::path::PathBuf;
use std::time::Duration;

use segue_client::control::types::{WhereFile, WhyOperation, WhyReply, WhyRequest};
use serde_json::json;

use super::{Context, block_on, place};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output, quantity};

/// Most operations that a person is shown.
const SHOWN: usize = 20;

/// Say why the last operations on a file took as long as they did
///
/// Each with what it waited for: the server's answer, data on their way, this host's disk, room in the
/// update log, other hosts. What was answered at once, as nearly everything is whose data are here, is not
/// listed; nor is what the kernel answered by itself. Some thousand operations are remembered.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A file or directory on a Segue mount
    path: PathBuf,
    /// Answer in JSON
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
    // First: to ask where it is may take a question.
    let request = WhyRequest { path: inside.to_string_lossy().into_owned() };
    let asking = control::post(&context.places, &mount, "/v1/why", &request);
    let reply: WhyReply = block_on(asking)?;
    let shown = arguments.path.display();
    if !reply.error.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("{shown}: {}", reply.error)));
    }
    let file = block_on(place::ask(&mount, &inside, context))?;
    if arguments.json {
        output::print_json(&json!({ "operations": reply.operations, "where": file }))?;
        return Ok(Exit::Done);
    }
    output::print(&format!("{shown}: {}\n", place_words(&file)))?;
    match reply.operations.is_empty() {
        true => output::print("no operation on it had to wait\n")?,
        false => output::print(&describe(&reply.operations))?,
    }
    Ok(Exit::Done)
}

fn place_words(file: &WhereFile) -> String {
    let cached = quantity::bytes(file.cached_bytes);
    let here = format!("{cached} of {} on this host", quantity::bytes(file.size));
    let safe = match file.dirty {
        true => "not all of it on the server yet",
        false => "on the server",
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
            quantity::age(age),
            operation.pid.to_string(),
            if steps.is_empty() { "others' work".to_owned() } else { steps.join("; ") },
        ]
    };
    let rows: Vec<Vec<String>> = operations.iter().take(SHOWN).map(row).collect();
    output::table(&["OPERATION", "TOOK", "AGE", "PROCESS", "WAITED FOR"], &rows)
}
