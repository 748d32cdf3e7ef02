//! `segue sync`: waits until changes have reached a level.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use segue_client::quantity;
use segue_client::replies::{AnyPath, SyncReply, SyncRequest};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::mounts::Mount;
use crate::output::Progress;
use crate::pace::Pace;
use crate::{control, mounts, output, unmounted};

/// Extra time for the answer of a mount after the timeout. A host that is about to sleep waits for
/// this command, so it is short.
const ANSWER_SLACK: Duration = Duration::from_secs(1);

/// Wait until changes have reached the server
///
/// The command waits for all changes made before the call. Without a path, it waits for the mount
/// of the working directory or, if that is on no mount, for all mounts. It waits for all of them at
/// the same time: a mount that does not answer delays no other. Then it also names the volumes that
/// are not mounted and whose changes are on this host only, and exits with 6.
///
/// Changes stay in the update log of this host until the server has them. If a server cannot be
/// reached, the command exits with 4; if the server refuses this host, with 8. If the server
/// refused some of the changes, as when its disk was full, the command exits with 7 until these are
/// resolved.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories with the changes to wait for
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Level that the changes must reach
    #[arg(long, value_enum, default_value_t = Level::Server)]
    level: Level,
    /// Give up after this time with exit code 6; until then, also wait for a server that cannot be
    /// reached
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    timeout: Option<Duration>,
    /// Wait for a server that cannot be reached; without this the command exits with 4
    #[arg(long)]
    wait: bool,
    /// As root: also mounts that only other mount namespaces show
    #[arg(long, conflicts_with = "paths")]
    everyone: bool,
    /// Print JSON
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
  segue sync --timeout 30s --json     exit code 6: changes are still pending";

/// The state of the wait, from the answers so far.
struct PendingSync {
    /// The last line of each mount.
    of: Vec<SyncReply>,
    progress: Progress,
    pace: Pace,
}

impl PendingSync {
    /// Takes `reply` of mount `number`, and shows the pending changes of all mounts.
    fn told(&mut self, number: usize, reply: SyncReply) {
        if let Some(last) = self.of.get_mut(number) {
            *last = reply;
        }
        let words = to_go(&sum(&self.of), &mut self.pace);
        self.progress.show(&words, self.pace.share());
    }
}

/// The pending changes of all mounts together.
fn sum(replies: &[SyncReply]) -> SyncReply {
    let unreachable = replies.iter().find(|reply| reply.offline);
    SyncReply {
        pending_records: replies.iter().map(|reply| reply.pending_records).sum(),
        pending_bytes: replies.iter().map(|reply| reply.pending_bytes).sum(),
        refused: replies.iter().map(|reply| reply.refused).sum(),
        offline: unreachable.is_some(),
        error: unreachable.map_or_else(String::new, |reply| reply.error.clone()),
        ..SyncReply::default()
    }
}

/// Asks all mounts at once: a mount that answers late or not at all delays no other.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let started = Instant::now();
    let (targets, are_all) = targets(arguments)?;
    let waiting = Mutex::new(PendingSync {
        of: vec![SyncReply::default(); targets.len()],
        progress: Progress::new(),
        pace: Pace::default(),
    });
    // The flag of each answer: true if the answer came after the timeout.
    let answers: Vec<(Result<SyncReply, Failure>, bool)> = std::thread::scope(|scope| {
        let mut asked = Vec::new();
        for (number, (mount, paths)) in targets.iter().enumerate() {
            let waiting = &waiting;
            let tell = move |reply| {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.told(number, reply);
            };
            let ask = move || {
                let answer = block_on(sync_one(arguments, mount, paths, context, tell));
                (answer, arguments.timeout.is_some_and(|limit| started.elapsed() >= limit))
            };
            asked.push(scope.spawn(ask));
        }
        let ended = |_| (Err(Failure::failed("a thread of this command panicked")), false);
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(ended)).collect()
    });
    drop(waiting);
    let (mut replies, mut exit) = (Vec::new(), Exit::Done);
    for ((mount, _), (answer, is_late)) in targets.iter().zip(answers) {
        match answer {
            Ok(reply) if reply.ok && reply.refused == 0 => replies.push(reply),
            Ok(reply) => {
                let (code, words) = not_safe(&reply, is_late);
                exit = exit.max(code);
                output::note(&format!("{}: {words}", mount.mountpoint.display()));
                replies.push(reply);
            }
            Err(failure) => {
                exit = exit.max(failure.exit);
                output::note(&failure.to_string());
            }
        }
    }
    let kept = match (are_all, arguments.level) {
        (true, Level::Server) => unmounted::caches(context)?,
        _ => Vec::new(),
    };
    for cache in &kept {
        exit = exit.max(Exit::NotYetSafe);
        output::note(&unmounted::words(cache));
    }
    if arguments.json && (!replies.is_empty() || exit == Exit::Done || !kept.is_empty()) {
        let total = sum(&replies);
        output::print_json(&json!({
            "ok": exit == Exit::Done,
            "pending_records": total.pending_records,
            "pending_bytes": total.pending_bytes,
            "refused": total.refused,
            "unmounted": kept,
        }))?;
    }
    Ok(exit)
}

/// Mounts to wait for, each with the paths inside it; no paths mean the whole mount.
type Targets = Vec<(Mount, Vec<AnyPath>)>;

/// The mounts to wait for, and true if these are all.
fn targets(arguments: &Arguments) -> Result<(Targets, bool), Failure> {
    let (all, paths) = (mounts::list()?, &arguments.paths);
    if paths.is_empty() {
        let here = control::holding(&all, Path::new("."));
        let (mounts, are_all) = match here {
            _ if arguments.everyone => (control::of_everyone()?, true),
            Ok((mount, _)) => (vec![mount], false),
            Err(_) => (control::chosen(None)?, true),
        };
        return Ok((mounts.into_iter().map(|mount| (mount, Vec::new())).collect(), are_all));
    }
    let mut targets = Targets::new();
    for path in paths {
        let real = path.canonicalize().map_err(|error| Failure::io(path.display(), &error))?;
        let (mount, inside) = control::holding(&all, &real)?;
        let inside = AnyPath::from(&*inside);
        match targets.iter_mut().find(|(known, _)| *known == mount) {
            Some((_, insides)) => insides.push(inside),
            None => targets.push((mount, vec![inside])),
        }
    }
    Ok((targets, false))
}

/// The last line of the answer of `mount`; `tell` gets every line.
async fn sync_one(
    arguments: &Arguments,
    mount: &Mount,
    paths: &[AnyPath],
    context: &Context,
    tell: impl Fn(SyncReply),
) -> Result<SyncReply, Failure> {
    // The mount takes zero as "no timeout", so an expired timeout is sent as one millisecond.
    let millis = arguments.timeout.map_or(0, |limit| limit.as_millis().clamp(1, u64::MAX.into()));
    let level = match arguments.level {
        Level::Host => "host",
        Level::Server => "server",
    };
    let request = SyncRequest {
        paths: paths.to_vec(),
        level: level.to_owned(),
        timeout_ms: u64::try_from(millis).unwrap_or(u64::MAX),
        waits_offline: arguments.wait || arguments.timeout.is_some(),
    };
    let unanswered = |error: HttpError| control::unanswered(mount, &error);
    let mut last = SyncReply::default();
    let asking = async {
        let on_line = |reply: SyncReply| {
            tell(reply.clone());
            last = reply;
        };
        let connection = control::reach(&context.places, mount).await?;
        connection.post_lines("/v1/sync", &request, on_line).await.map_err(unanswered)
    };
    match arguments.timeout {
        None => asking.await?,
        Some(limit) => match tokio::time::timeout(limit + ANSWER_SLACK, asking).await {
            Ok(answer) => answer?,
            // The last line has the latest counts; the changes are not safe.
            Err(_) => {
                let error = "its process does not answer".to_owned();
                return Ok(SyncReply { ok: false, error, ..last });
            }
        },
    }
    if last.done {
        return Ok(last);
    }
    Err(unanswered(HttpError::Broken("the answer ends early".to_owned())))
}

/// The progress of a wait as text.
pub(super) fn to_go(reply: &SyncReply, pace: &mut Pace) -> String {
    let (records, bytes) = (reply.pending_records, reply.pending_bytes);
    let more = match pace.words(Instant::now(), records, bytes) {
        _ if reply.offline => reply.error.clone(),
        words => words,
    };
    let size = quantity::bytes(bytes);
    output::joined(&format!("{} ({size}) to go", quantity::count(records, "change")), &more)
}

/// What to do about changes that the server refused.
pub(super) fn refused(reply: &SyncReply) -> String {
    let refused = quantity::count(reply.refused, "change");
    format!(
        "{refused} refused by the server, or lost: 'segue conflicts' tells why, and \
         'segue resolve' writes again what is kept of them on this host, or drops it"
    )
}

/// What to do about changes of a host that its server refuses.
pub(super) fn denied(reply: &SyncReply) -> String {
    format!("kept on this host: {}; or extract them with 'segue recover'", reply.error)
}

/// The exit code and the message for changes that have not reached the level.
fn not_safe(reply: &SyncReply, is_late: bool) -> (Exit, String) {
    let records = quantity::count(reply.pending_records, "change");
    let left = match reply.pending_records {
        // The missing changes have no record yet, or their number is unknown.
        0 => "changes are still pending".to_owned(),
        _ => format!("{records} ({}) still pending", quantity::bytes(reply.pending_bytes)),
    };
    if reply.ok {
        return (Exit::DataAtRisk, refused(reply));
    }
    let why = if reply.error.is_empty() { String::new() } else { format!(": {}", reply.error) };
    if is_late {
        return (Exit::NotYetSafe, format!("the timeout has expired, {left}{why}"));
    }
    if reply.denied {
        return (Exit::NotPermitted, format!("{left}, {}", denied(reply)));
    }
    if reply.offline {
        let words = format!(
            "the server cannot be reached, {left}; they are kept on this host and sent once it \
             answers ('segue sync --wait' waits for that)"
        );
        return (Exit::Offline, words);
    }
    (Exit::DataAtRisk, format!("{left}{why}"))
}
