//! `segue log`: the changes that are not on the server yet.

use std::path::PathBuf;
use std::time::Duration;

use segue_client::control::types::{LogRecord, LogReply};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, output, quantity};

/// List the changes that are not on the server yet
///
/// The oldest comes first. Each line says what the change waits for.
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
  segue log
  segue log ~/home --json";

/// Asks each mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mounts = control::chosen(arguments.mountpoint.as_deref())?;
    let (answers, exit) = control::each(&mounts, |mount| block_on(ask(mount, context)));
    if answers.is_empty() && exit != Exit::Done {
        return Ok(exit);
    }
    let records = answers.concat();
    if arguments.json {
        output::print_json(&json!({ "records": records }))?;
    } else if records.is_empty() {
        output::print("no pending changes: the server has every change\n")?;
    } else {
        output::print(&describe(&records))?;
    }
    Ok(exit)
}

async fn ask(mount: &Mount, context: &Context) -> Result<Vec<LogRecord>, Failure> {
    let reply: LogReply = control::get(&context.places, mount, "/v1/log").await?;
    let mut records = reply.records;
    // An inode without a known name has the path `#INO`.
    for record in records.iter_mut().filter(|record| !record.path.starts_with('#')) {
        record.path = mount.absolute(&record.path);
    }
    Ok(records)
}

fn describe(records: &[LogRecord]) -> String {
    let row = |record: &LogRecord| {
        let age = Duration::try_from_secs_f64(record.age_seconds).unwrap_or_default();
        vec![
            // Dirty data of an open file have no sequence number yet.
            if record.seq == 0 { "-".to_owned() } else { record.seq.to_string() },
            record.kind.clone(),
            record.class.clone(),
            quantity::bytes(record.bytes),
            quantity::age(age),
            record.waits_for.clone(),
            record.path.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    output::table(&["SEQ", "KIND", "CLASS", "SIZE", "AGE", "WAITS FOR", "PATH"], &rows)
}
