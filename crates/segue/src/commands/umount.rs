//! `segue umount`: sends every change to the server, then unmounts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_client::quantity;
use segue_client::replies::{SyncReply, UmountRequest};
use serde_json::{Value, json};

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::{Connection, HttpError};
use crate::mounts::Mount;
use crate::output::Progress;
use crate::pace::Pace;
use crate::process::Process;
use crate::{control, mounts, output};

/// After the unmount the process closes its cache. A longer close means a hang.
const END_LIMIT: Duration = Duration::from_secs(60);
/// With --now, a process that takes longer to answer or to end is killed: acknowledged changes are
/// on disk.
const NOW_LIMIT: Duration = Duration::from_secs(5);

/// Unmount after every change has reached the server
///
/// If the server is unreachable and changes are pending, the volume stays mounted and the exit code
/// is 4.
///
/// --now unmounts at once, as umount(8) and fusermount3 -u do: pending changes stay on this host's
/// disk, and the next mount sends them. A process that does not answer within 5 s is killed.
///
/// --timeout waits for at most the given time, or until the server becomes unreachable, and then
/// unmounts like --now; the exit code is 6 if changes are pending.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Arguments {
    /// Directory on which the volume is mounted
    #[arg(group = "which")]
    mountpoint: Option<PathBuf>,
    /// Unmount all mounts of this user that are visible here; as root, of all users
    #[arg(long, group = "which")]
    all: bool,
    /// With --all, as root: also mounts that only other mount namespaces show
    #[arg(long, requires = "all")]
    everyone: bool,
    /// Wait until every change is on the server (the default)
    #[arg(long, conflicts_with = "now")]
    wait: bool,
    /// Unmount at once; keep pending changes for the next mount
    #[arg(long)]
    now: bool,
    /// Wait at most this time, then unmount in any case
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    #[arg(conflicts_with_all = ["now", "wait"])]
    timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue umount ~/home
  segue umount --now ~/home             without waiting for the server
  segue umount --all --everyone --timeout 60s      before the host shuts down";

/// The answer of the process behind a mount's socket.
struct Answered {
    process: Arc<Process>,
    /// The process serves this very mount.
    is_its: bool,
    /// The last line of the answer, if there is one.
    last: Option<SyncReply>,
}

/// What asking the process behind a mount led to.
enum Asked {
    Answered(Answered),
    /// No process answers.
    Nobody,
    /// It was killed, and hangs in the kernel.
    Killed,
}

/// What became of a mount.
struct Unmounted {
    exit: Exit,
    /// Changes, and bytes of them, that are kept for the next mount, if its process told.
    pending: Option<(u64, u64)>,
}

impl Unmounted {
    /// Its process did not tell what is pending.
    fn silently() -> Unmounted {
        Unmounted { exit: Exit::NotYetSafe, pending: None }
    }
}

/// Unmounts one after the other.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mounts = match &arguments.mountpoint {
        Some(mountpoint) => vec![control::at(&mounts::list()?, mountpoint)?],
        None if arguments.everyone => control::of_everyone()?,
        None => control::chosen(None)?,
    };
    let started = Instant::now();
    let (mut exit, mut failed, mut told) = (Exit::Done, None, Vec::new());
    for mount in mounts {
        let unmounted = match arguments.timeout {
            None => unmount(&mount, arguments.now, context),
            Some(limit) => within(&mount, limit.saturating_sub(started.elapsed()), context),
        };
        told.push(tell(&mount, unmounted.as_ref())?);
        match unmounted {
            // With --now, pending changes are no failure.
            Ok(_) if arguments.timeout.is_none() => {}
            Ok(Unmounted { exit: code, .. }) => exit = exit.max(code),
            // A failure does not keep the other mounts from being unmounted.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    output::note(&earlier.to_string());
                }
            }
        }
    }
    if arguments.json {
        output::print_json(&json!({ "mounts": told }))?;
    }
    failed.map_or(Ok(exit), Err)
}

/// What became of `mount`, as JSON.
fn tell(mount: &Mount, unmounted: Result<&Unmounted, &Failure>) -> Result<Value, Failure> {
    let pending = unmounted.ok().and_then(|unmounted| unmounted.pending);
    Ok(json!({
        "mountpoint": mount.mountpoint.display().to_string(),
        "unmounted": !mounts::list()?.contains(mount),
        "pending_records": pending.map(|(records, _)| records),
        "pending_bytes": pending.map(|(_, bytes)| bytes),
        "error": unmounted.err().map(ToString::to_string).unwrap_or_default(),
    }))
}

/// Unmounts once every change has reached the server, or after `limit` in any case.
fn within(mount: &Mount, limit: Duration, context: &Context) -> Result<Unmounted, Failure> {
    let waited = block_on(async {
        let waiting = answer(mount, false, context);
        tokio::time::timeout(limit, waiting).await.unwrap_or(Ok(Asked::Nobody))
    });
    match waited {
        Ok(Asked::Answered(answered)) if answered.last.as_ref().is_some_and(|last| last.ok) => {
            finish(mount, false, answered)
        }
        _ => unmount(mount, true, context),
    }
}

/// Unmounts; with `now` also if changes are pending.
fn unmount(mount: &Mount, now: bool, context: &Context) -> Result<Unmounted, Failure> {
    match block_on(answer(mount, now, context))? {
        Asked::Answered(answered) => finish(mount, now, answered),
        Asked::Nobody => clear(mount, now),
        Asked::Killed => detach_dead(mount),
    }
}

/// Asks the mount's process to unmount.
async fn answer(mount: &Mount, now: bool, context: &Context) -> Result<Asked, Failure> {
    match control::connect(&context.places, mount).await {
        Ok(connection) => {
            let request = UmountRequest { now };
            let process = Arc::clone(&connection.process);
            // Once it has unmounted, its table of mounts shows nothing any more.
            let is_its = control::serves(&process, mount) == Some(true);
            let asking = ask(connection, &request, mount);
            let last = match now {
                false => asking.await?,
                true => tokio::time::timeout(NOW_LIMIT, asking).await.unwrap_or(Ok(None))?,
            };
            Ok(Asked::Answered(Answered { process, is_its, last }))
        }
        Err(HttpError::Killed) => Ok(Asked::Killed),
        Err(HttpError::NobodyThere | HttpError::Elsewhere) => Ok(Asked::Nobody),
        // The process hangs and accepts no connections.
        Err(HttpError::Broken(_)) if now => Ok(Asked::Nobody),
        Err(error) => Err(control::unanswered(mount, &error)),
    }
}

fn pending_of(answered: &Answered) -> Option<(u64, u64)> {
    answered.last.as_ref().map(|last| (last.pending_records, last.pending_bytes))
}

/// Waits until the process has ended, and reports the pending changes that it kept. If it did not
/// say that there are none, there may be some.
fn finish(mount: &Mount, now: bool, answered: Answered) -> Result<Unmounted, Failure> {
    let mountpoint = mount.mountpoint.display();
    let exit = match &answered.last {
        Some(reply) if !reply.ok => return Err(refused(mount, reply)),
        Some(reply) if reply.pending_records > 0 => {
            output::note(&format!(
                "{mountpoint}: {} still pending, kept on this host for the next mount",
                to_go(reply)
            ));
            Exit::NotYetSafe
        }
        Some(reply) if reply.refused > 0 => {
            output::note(&format!("{mountpoint}: {}", super::sync::refused(reply)));
            Exit::Done
        }
        Some(_) => Exit::Done,
        None => {
            output::note(&format!(
                "{mountpoint}: its process said nothing of pending changes; if there are some, \
                 they are kept on this host for the next mount"
            ));
            Exit::NotYetSafe
        }
    };
    let limit = if now { NOW_LIMIT } else { END_LIMIT };
    if !answered.process.wait_for_end(limit) {
        if now {
            return end(mount, &answered);
        }
        let (pid, seconds) = (answered.process.pid(), limit.as_secs());
        return Err(Failure::failed(format!(
            "{mountpoint}: unmounted, but its process {pid} has not ended within {seconds} s"
        )));
    }
    match mounts::list()?.contains(mount) {
        true => Err(Failure::failed(format!("{mountpoint}: still mounted"))),
        false => Ok(Unmounted { exit, pending: pending_of(&answered) }),
    }
}

/// Detaches a mount whose process hangs, and kills the process. That ends every call that waits
/// for its answer.
fn end(mount: &Mount, Answered { process, is_its, .. }: &Answered) -> Result<Unmounted, Failure> {
    let (mountpoint, pid) = (mount.mountpoint.display(), process.pid());
    if mounts::list()?.contains(mount) {
        mounts::detach(mount)?;
    }
    if !is_its {
        let words = format!(
            "{mountpoint}: unmounted; process {pid} at its control socket does not answer and may \
             serve something else, so it was not killed"
        );
        return Err(Failure::failed(words));
    }
    if !process.kill() || !process.wait_for_end(NOW_LIMIT) {
        let words = format!("{mountpoint}: unmounted, but its process {pid} cannot be killed");
        return Err(Failure::failed(words));
    }
    output::note(&format!(
        "{mountpoint}: its process hung and was killed; acknowledged changes are kept on this host \
         for the next mount"
    ));
    Ok(Unmounted::silently())
}

/// Detaches a mount whose process does not answer.
fn clear(mount: &Mount, now: bool) -> Result<Unmounted, Failure> {
    let mountpoint = mount.mountpoint.display();
    // In this mount namespace the path may lead to another file system.
    if !mounts::list()?.contains(mount) {
        return Err(Failure::failed(format!(
            "{mountpoint}: its process does not answer, and this mount namespace shows no such \
             mount"
        )));
    }
    // A call on a mount whose process hangs would hang too.
    let is_dead = !now && mounts::is_dead(&mount.mountpoint);
    if !is_dead && !now {
        return Err(Failure::failed(format!(
            "{mountpoint}: its process does not answer, so its pending changes are unknown; to \
             unmount in any case: segue umount --now {mountpoint}"
        )));
    }
    if is_dead {
        return detach_dead(mount);
    }
    mounts::detach(mount)?;
    Ok(Unmounted::silently())
}

fn detach_dead(mount: &Mount) -> Result<Unmounted, Failure> {
    mounts::detach(mount)?;
    output::note(&format!(
        "{}: its process had ended; unmounted, and acknowledged changes are kept on this host for \
         the next mount",
        mount.mountpoint.display()
    ));
    Ok(Unmounted::silently())
}

/// Sends the request; returns the last line of the answer, if there is one.
async fn ask(
    connection: Connection,
    request: &UmountRequest,
    mount: &Mount,
) -> Result<Option<SyncReply>, Failure> {
    let (mut progress, mut pace) = (Progress::new(), Pace::default());
    let mut last = None;
    let on_line = |reply: SyncReply| {
        if reply.done {
            last = Some(reply);
        } else {
            let words = super::sync::to_go(&reply, &mut pace);
            progress.show(&words, pace.share());
        }
    };
    match connection.post_lines("/v1/umount", request, on_line).await {
        Ok(()) | Err(HttpError::Broken(_)) => Ok(last),
        Err(error) => Err(control::unanswered(mount, &error)),
    }
}

fn refused(mount: &Mount, reply: &SyncReply) -> Failure {
    let mountpoint = mount.mountpoint.display();
    if reply.denied {
        let words = format!(
            "{mountpoint}: stays mounted: {} still pending, {}; to keep them for the next mount: \
             segue umount --now {mountpoint}",
            to_go(reply),
            super::sync::denied(reply)
        );
        return Failure::new(Exit::NotPermitted, words);
    }
    if reply.offline {
        let words = format!(
            "{mountpoint}: stays mounted: the server cannot be reached, and {} still pending; try \
             again later, or keep them for the next mount: segue umount --now {mountpoint}",
            to_go(reply)
        );
        return Failure::new(Exit::Offline, words);
    }
    let exit = if reply.pending_records > 0 { Exit::DataAtRisk } else { Exit::Failed };
    Failure::new(exit, format!("{mountpoint}: not unmounted: {}", reply.error))
}

fn to_go(reply: &SyncReply) -> String {
    let records = quantity::count(reply.pending_records, "change");
    format!("{records} ({})", quantity::bytes(reply.pending_bytes))
}
