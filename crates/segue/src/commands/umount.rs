//! `segue umount`: everything to the server, then away.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use segue_client::control::types::{SyncReply, UmountRequest};

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::{Connection, HttpError};
use crate::mounts::Mount;
use crate::output::Progress;
use crate::pace::Pace;
use crate::{control, mounts, output, process, quantity};

/// After the file system is gone the process closes its cache. Longer means stuck.
const END_LIMIT: Duration = Duration::from_secs(60);
/// With --now a process that takes longer, to answer or to end, is ended: what it has accepted
/// is on disk.
const NOW_LIMIT: Duration = Duration::from_secs(5);

/// Unmount, after everything has reached the server
///
/// Without a network, and with changes that are not on the server, nothing happens and the
/// exit code is 4. --now unmounts at once, as umount(8) and fusermount3 -u do: changes stay
/// on this host's disk and are sent after the next mount. A process that hangs is ended after
/// some seconds. --timeout waits as long as it says, or until the server cannot be reached, and then
/// unmounts as --now does; the exit code is 6 if changes are left.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Arguments {
    /// The directory where the volume is mounted
    #[arg(group = "which")]
    mountpoint: Option<PathBuf>,
    /// All mounts of this user; root: of all users
    #[arg(long, group = "which")]
    all: bool,
    /// First wait until everything is on the server (the default)
    #[arg(long, conflicts_with = "now")]
    wait: bool,
    /// Unmount at once; unsent changes are kept for the next mount
    #[arg(long)]
    now: bool,
    /// Wait no longer than this, and unmount then all the same
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, conflicts_with_all = ["now", "wait"])]
    timeout: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  segue umount ~/home
  segue umount --now ~/home             no time, or no network
  segue umount --all --timeout 60s      before the host goes down";

/// Unmounts one after the other.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mounts = match &arguments.mountpoint {
        Some(mountpoint) => vec![control::at(&mounts::list()?, mountpoint)?],
        None => control::chosen(None)?,
    };
    let started = Instant::now();
    let (mut exit, mut failed) = (Exit::Done, None);
    for mount in mounts {
        let unmounted = match arguments.timeout {
            // Who asks for it at once knows what that means.
            None => unmount(&mount, arguments.now, context).map(|_| Exit::Done),
            Some(limit) => within(&mount, limit.saturating_sub(started.elapsed()), context),
        };
        match unmounted {
            Ok(code) => exit = exit.max(code),
            // The others are to go all the same.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    output::note(&earlier.to_string());
                }
            }
        }
    }
    failed.map_or(Ok(exit), Err)
}

/// Unmounts after everything has reached the server, or after `limit` all the same.
fn within(mount: &Mount, limit: Duration, context: &Context) -> Outcome {
    let waited = block_on(async {
        let waiting = answer(mount, false, context);
        tokio::time::timeout(limit, waiting).await.unwrap_or(Ok(None))
    });
    match waited {
        Ok(Some((pid, Some(last)))) if last.ok => finish(mount, false, (pid, Some(last))),
        _ => unmount(mount, true, context),
    }
}

/// Unmounts; with `now` whatever has not reached the server.
fn unmount(mount: &Mount, now: bool, context: &Context) -> Outcome {
    match block_on(answer(mount, now, context))? {
        Some(answered) => finish(mount, now, answered),
        None => clear(mount, now),
    }
}

/// What the mount's process answers, and its id; `None` if there is none.
async fn answer(
    mount: &Mount,
    now: bool,
    context: &Context,
) -> Result<Option<(i32, Option<SyncReply>)>, Failure> {
    match control::connect(&context.places, mount).await {
        Ok(connection) => {
            let request = UmountRequest { now };
            let (pid, asking) = (connection.pid, ask(connection, &request, mount));
            if !now {
                return asking.await.map(Some);
            }
            let answered = tokio::time::timeout(NOW_LIMIT, asking).await;
            answered.unwrap_or(Ok((pid, None))).map(Some)
        }
        Err(HttpError::NobodyThere) => Ok(None),
        // Its process hangs for so long that it does not even take calls any more.
        Err(HttpError::Broken(_)) if now => Ok(None),
        Err(error) => Err(control::unanswered(mount, &error)),
    }
}

/// Waits until the process has ended, and says what it has kept.
fn finish(mount: &Mount, now: bool, (pid, last): (i32, Option<SyncReply>)) -> Outcome {
    let mountpoint = mount.mountpoint.display();
    let mut exit = Exit::Done;
    match last {
        Some(reply) if !reply.ok => return Err(refused(mount, &reply)),
        Some(reply) if reply.pending_records > 0 => {
            exit = Exit::NotYetSafe;
            output::note(&format!(
                "{mountpoint}: {} not on the server yet, kept here for the next mount",
                to_go(&reply)
            ));
        }
        _ => {}
    }
    let limit = if now { NOW_LIMIT } else { END_LIMIT };
    if !process::wait_for_end(pid, limit) {
        if now {
            return end(mount, pid);
        }
        let words = format!("{mountpoint}: unmounted, but its process does not end");
        return Err(Failure::failed(words));
    }
    match mounts::list()?.contains(mount) {
        true => Err(Failure::failed(format!("{mountpoint}: still mounted"))),
        false => Ok(exit),
    }
}

/// Takes away a mount whose process hangs, and ends the process: with it everybody who waits
/// for an answer is let go.
fn end(mount: &Mount, pid: i32) -> Outcome {
    let mountpoint = mount.mountpoint.display();
    if mounts::list()?.contains(mount) {
        mounts::detach(&mount.mountpoint)?;
    }
    if !process::kill(pid) || !process::wait_for_end(pid, NOW_LIMIT) {
        let words = format!("{mountpoint}: unmounted, but its process {pid} cannot be ended");
        return Err(Failure::failed(words));
    }
    output::note(&format!(
        "{mountpoint}: its process hung and was ended; what it had accepted is kept here for the \
         next mount"
    ));
    Ok(Exit::Done)
}

/// Takes away a mount whose process does not answer.
fn clear(mount: &Mount, now: bool) -> Outcome {
    let mountpoint = mount.mountpoint.display();
    // To look at a mount whose process hangs is to hang.
    let is_dead = !now && mounts::is_dead(&mount.mountpoint);
    if !is_dead && !now {
        return Err(Failure::failed(format!(
            "{mountpoint}: its process does not answer, so nothing is known of what it has not \
             sent: 'segue umount --now {mountpoint}' unmounts all the same"
        )));
    }
    mounts::detach(&mount.mountpoint)?;
    if is_dead {
        output::note(&format!(
            "{mountpoint}: its process had ended; the mountpoint is cleared, mounting again \
             brings everything back that it had accepted"
        ));
    }
    Ok(Exit::Done)
}

/// Sends the request; the process's id, and its last line unless it ended without one.
async fn ask(
    connection: Connection,
    request: &UmountRequest,
    mount: &Mount,
) -> Result<(i32, Option<SyncReply>), Failure> {
    let pid = connection.pid;
    let (mut progress, mut pace) = (Progress::new(), Pace::default());
    let mut last = None;
    let on_line = |reply: SyncReply| {
        if reply.done {
            last = Some(reply);
        } else {
            progress.show(&super::sync::to_go(&reply, &mut pace));
        }
    };
    match connection.post_lines("/v1/umount", request, on_line).await {
        Ok(()) | Err(HttpError::Broken(_)) => Ok((pid, last)),
        Err(error) => Err(control::unanswered(mount, &error)),
    }
}

fn refused(mount: &Mount, reply: &SyncReply) -> Failure {
    let mountpoint = mount.mountpoint.display();
    if reply.offline {
        let words = format!(
            "{mountpoint}: the server cannot be reached and {} are not there yet, so it stays \
             mounted: try again later, or 'segue umount --now {mountpoint}' keeps them for the \
             next mount",
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
