//! `segue log`: the changes that are not on the server yet.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_client::quantity;
use segue_client::replies::{LogRecord, LogReply};
use segue_client::unmounted::UnmountedCache;
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, output, unmounted};

/// List the changes that are not on the server yet
///
/// The oldest comes first. Each line says what the change waits for. Volumes that are not mounted
/// are named if their changes are on this host only; --all lists these changes too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// Also list the changes of volumes that are not mounted
    #[arg(long, conflicts_with = "mountpoint")]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue log
  segue log --all
  segue log ~/home --json";

/// Asks each mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mounts = control::chosen(arguments.mountpoint.as_deref())?;
    let (answers, exit) = control::each(&mounts, |mount| block_on(ask(mount, context)));
    if answers.is_empty() && exit != Exit::Done {
        return Ok(exit);
    }
    let mut records = answers.concat();
    let kept = match arguments.mountpoint {
        None => unmounted::caches(context)?,
        Some(_) => Vec::new(),
    };
    for cache in &kept {
        output::note(&unmounted::words(cache));
        if arguments.all {
            records.extend(kept_records(cache));
        }
    }
    if arguments.json {
        output::print_json(&json!({ "records": records }))?;
    } else if records.is_empty() && kept.is_empty() {
        output::print("no pending changes: the server has every change\n")?;
    } else if records.is_empty() && arguments.all {
        output::print("no pending changes can be listed\n")?;
    } else if records.is_empty() {
        output::print("no pending changes are listed; 'segue log --all' lists the kept ones\n")?;
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

/// The changes of a volume that is not mounted.
fn kept_records(cache: &UnmountedCache) -> impl Iterator<Item = LogRecord> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let name = unmounted::name(cache);
    cache.changes.iter().map(move |change| LogRecord {
        seq: change.seq,
        kind: change.kind.clone(),
        path: format!("{name}/{}", change.path),
        class: "-".to_owned(),
        bytes: change.bytes,
        age_seconds: (now - change.time as f64).max(0.0),
        waits_for: "the volume to be mounted".to_owned(),
    })
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
