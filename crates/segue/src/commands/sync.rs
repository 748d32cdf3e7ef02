//! `segue sync`: wait until changes are where they should be.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segue_client::control::types::{SyncReply, SyncRequest};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::mounts::Mount;
use crate::output::Progress;
use crate::pace::Pace;
use crate::{control, mounts, output, quantity};

/// How much later than asked a mount may answer that the time is up.
const ANSWER_SLACK: Duration = Duration::from_secs(10);

/// Wait until changes have reached the server
///
/// All changes made before the call are waited for. Without a path: those of the mount that the working directory is on, else of all mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories whose changes are waited for
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What the changes must have reached
    #[arg(long, value_enum, default_value_t = Level::Server)]
    level: Level,
    /// Give up after this time, with exit code 6
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    timeout: Option<Duration>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Level {
    /// This host's disk
    Host,
    /// The server's disk
    Server,
}

const EXAMPLES: &str = "\
Examples:
  segue sync && systemctl suspend
  segue sync ~/home/thesis.tex
  segue sync --timeout 30s --json     exit code 6: not everything is there yet";

/// Waits for each mount in turn; their write-backs go on side by side meanwhile.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let started = Instant::now();
    let mut total = SyncReply { ok: true, ..SyncReply::default() };
    let mut exit = Exit::Done;
    for (mount, paths) in targets(&arguments.paths)? {
        let left = arguments.timeout.map(|limit| limit.saturating_sub(started.elapsed()));
        let reply = block_on(sync_one(arguments.level, left, &mount, paths, context))?;
        total.ok &= reply.ok;
        total.pending_records += reply.pending_records;
        total.pending_bytes += reply.pending_bytes;
        if !reply.ok {
            let is_late = arguments.timeout.is_some_and(|limit| started.elapsed() >= limit);
            let (code, words) = not_safe(&reply, is_late);
            exit = exit.max(code);
            output::note(&format!("{}: {words}", mount.mountpoint.display()));
        }
    }
    if arguments.json {
        output::print_json(&json!({
            "ok": total.ok,
            "pending_records": total.pending_records,
            "pending_bytes": total.pending_bytes,
        }))?;
    }
    Ok(exit)
}

/// Each mount that is asked for, with the paths inside it; no paths means all of it.
fn targets(paths: &[PathBuf]) -> Result<Vec<(Mount, Vec<String>)>, Failure> {
    let all = mounts::list()?;
    if paths.is_empty() {
        let here = control::holding(&all, Path::new(".")).map(|(mount, _)| vec![mount]);
        let mounts = here.or_else(|_| control::chosen(None))?;
        return Ok(mounts.into_iter().map(|mount| (mount, Vec::new())).collect());
    }
    let mut targets: Vec<(Mount, Vec<String>)> = Vec::new();
    for path in paths {
        let real = path.canonicalize().map_err(|error| Failure::io(path.display(), &error))?;
        let (mount, inside) = control::holding(&all, &real)?;
        let inside = inside.to_string_lossy().into_owned();
        match targets.iter_mut().find(|(known, _)| *known == mount) {
            Some((_, insides)) => insides.push(inside),
            None => targets.push((mount, vec![inside])),
        }
    }
    Ok(targets)
}

async fn sync_one(
    level: Level,
    timeout: Option<Duration>,
    mount: &Mount,
    paths: Vec<String>,
    context: &Context,
) -> Result<SyncReply, Failure> {
    // Zero would mean "never" to the mount; one millisecond is what is left of a spent time.
    let millis = timeout.map_or(0, |left| left.as_millis().clamp(1, u64::MAX.into()));
    let level = match level {
        Level::Host => "host",
        Level::Server => "server",
    };
    let request = SyncRequest {
        paths,
        level: level.to_owned(),
        timeout_ms: u64::try_from(millis).unwrap_or(u64::MAX),
    };
    let unanswered = |error: HttpError| control::unanswered(mount, &error);
    let mut last = SyncReply::default();
    let (mut progress, mut pace) = (Progress::new(), Pace::default());
    let on_line = |reply: SyncReply| {
        progress.show(&to_go(&reply, &mut pace));
        last = reply;
    };
    let connection = control::reach(&context.places, mount).await?;
    let asking = connection.post_lines("/v1/sync", &request, on_line);
    match timeout {
        None => asking.await.map_err(unanswered)?,
        Some(left) => match tokio::time::timeout(left + ANSWER_SLACK, asking).await {
            Ok(answer) => answer.map_err(unanswered)?,
            // As far as its last line says, and not safe.
            Err(_) => return Ok(SyncReply { ok: false, done: true, ..last }),
        },
    }
    if last.done {
        return Ok(last);
    }
    Err(unanswered(HttpError::Broken("it did not finish its answer".to_owned())))
}

/// How far a wait has come.
pub(super) fn to_go(reply: &SyncReply, pace: &mut Pace) -> String {
    let (records, bytes) = (reply.pending_records, reply.pending_bytes);
    let more = match pace.words(Instant::now(), records, bytes) {
        _ if reply.offline => reply.error.clone(),
        words => words,
    };
    let separator = if more.is_empty() { "" } else { "; " };
    let size = quantity::bytes(bytes);
    format!("{} ({size}) to go{separator}{more}", quantity::count(records, "change"))
}

/// The exit code and the words for changes that are not where they should be.
fn not_safe(reply: &SyncReply, is_late: bool) -> (Exit, String) {
    let records = quantity::count(reply.pending_records, "change");
    let left = format!("{records} ({}) not there yet", quantity::bytes(reply.pending_bytes));
    let why = if reply.error.is_empty() { String::new() } else { format!(": {}", reply.error) };
    if is_late {
        return (Exit::NotYetSafe, format!("the time is up, {left}{why}"));
    }
    if reply.offline {
        return (
            Exit::Offline,
            format!("the server cannot be reached, {left}; they are kept here"),
        );
    }
    (Exit::DataAtRisk, format!("{left}{why}"))
}
