//! Requests to the process behind a mount, and the failures if it does not answer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::block_on;
use crate::exit::{Exit, Failure};
use crate::http::{self, Connection, HttpError};
use crate::mounts::{self, Mount};
use crate::output;
use crate::places::{self, Places};
use crate::process::Process;

/// A look at the root of a mount takes no longer, unless it waits for a server.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The process behind a mount needs less time to list a million pending changes.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Connects to the process that serves `mount`.
pub(crate) async fn connect(places: &Places, mount: &Mount) -> Result<Connection, HttpError> {
    let mut last = HttpError::NobodyThere;
    for socket in places.sockets(mount) {
        match http::connect(&socket).await {
            Ok(connection) if connection.process.has_died() => last = HttpError::Killed,
            Ok(connection) if serves(&connection.process, mount) != Some(false) => {
                return Ok(connection);
            }
            // A mount at the same path in another mount namespace, or somebody else's process.
            Ok(_) => last = HttpError::Elsewhere,
            Err(HttpError::NobodyThere) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// True if `process`, which listens at the socket of `mount`, belongs to the owner of the mount and
/// has it in its table of mounts. `None` if this cannot be told.
///
/// Such a process may still be asked: its socket belongs to the owner. But it is not to be killed.
pub(crate) fn serves(process: &Process, mount: &Mount) -> Option<bool> {
    let (user, table) = (process.user().ok()?, process.mount_table().ok()?);
    let mut served = mounts::in_table(&table).into_iter();
    Some(user == mount.owner && served.any(|served| served.device == mount.device))
}

/// [`connect`] with the error as a failure of the command.
pub(crate) async fn reach(places: &Places, mount: &Mount) -> Result<Connection, Failure> {
    connect(places, mount).await.map_err(|error| unanswered(mount, &error))
}

/// The answer of the process that serves `mount` to `GET path`.
pub(crate) async fn get<T: DeserializeOwned>(
    places: &Places,
    mount: &Mount,
    path: &str,
) -> Result<T, Failure> {
    soon(places, mount, async |connection| connection.get(path).await).await
}

/// The same, as text.
pub(crate) async fn get_text(
    places: &Places,
    mount: &Mount,
    path: &str,
) -> Result<String, Failure> {
    soon(places, mount, async |connection| connection.get_text(path).await).await
}

/// The outcome of `asking` the process that serves `mount` for something that it knows itself.
async fn soon<T>(
    places: &Places,
    mount: &Mount,
    asking: impl AsyncFnOnce(Connection) -> Result<T, HttpError>,
) -> Result<T, Failure> {
    within(mount, ANSWER_LIMIT, async {
        let connection = reach(places, mount).await?;
        asking(connection).await.map_err(|error| unanswered(mount, &error))
    })
    .await
}

/// The outcome of `asking` the process that serves `mount`, if it comes within `limit`.
pub(crate) async fn within<T>(
    mount: &Mount,
    limit: Duration,
    asking: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| {
        let (mountpoint, seconds) = (mount.mountpoint.display(), limit.as_secs());
        Err(Failure::failed(format!(
            "{mountpoint}: its process does not answer within {seconds} s; acknowledged changes \
             are kept if you end it: segue umount --now {mountpoint}"
        )))
    })
}

/// The answer of the process that serves `mount` to `POST path` with `request`.
pub(crate) async fn post<T: DeserializeOwned>(
    places: &Places,
    mount: &Mount,
    path: &str,
    request: &impl Serialize,
) -> Result<T, Failure> {
    let connection = reach(places, mount).await?;
    connection.post(path, request).await.map_err(|error| unanswered(mount, &error))
}

/// The failure for a mount whose process did not answer.
pub(crate) fn unanswered(mount: &Mount, error: &HttpError) -> Failure {
    let mountpoint = mount.mountpoint.display();
    match error {
        HttpError::NobodyThere if has_died(mount) => Failure::failed(format!(
            "{mountpoint}: the process of this mount has ended; acknowledged changes are kept: run \
             'segue umount {mountpoint}', then mount again"
        )),
        HttpError::Killed => Failure::failed(format!(
            "{mountpoint}: the process of this mount has ended, and calls on it wait; acknowledged \
             changes are kept: run 'segue umount {mountpoint}', then mount again"
        )),
        HttpError::NobodyThere => Failure::failed(format!(
            "{mountpoint}: no process answers for this mount; if it was mounted from a session \
             with another XDG_RUNTIME_DIR, run the command there; if its process hangs, \
             acknowledged changes are kept: segue umount --now {mountpoint}"
        )),
        HttpError::NotPermitted => {
            let words = format!(
                "{mountpoint}: this mount belongs to uid {}; run the command as that user or root",
                mount.owner
            );
            Failure::new(Exit::NotPermitted, words)
        }
        error => Failure::failed(format!("{mountpoint}: {error}")),
    }
}

/// True if the mount is known to have no process. A call on a mount whose process hangs would hang,
/// too, so it is not waited for longer than a healthy mount needs.
fn has_died(mount: &Mount) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let mountpoint = mount.mountpoint.clone();
    std::thread::spawn(move || tell.send(mounts::is_dead(&mountpoint)).ok());
    told.recv_timeout(LOOK_LIMIT).unwrap_or(false)
}

/// The answers of `mounts` to `ask`. A failure is printed and sets the exit code, and the other
/// mounts are still asked.
pub(crate) fn each<T>(
    mounts: &[Mount],
    mut ask: impl FnMut(&Mount) -> Result<T, Failure>,
) -> (Vec<T>, Exit) {
    let (mut answers, mut exit) = (Vec::new(), Exit::Done);
    for mount in mounts {
        match ask(mount) {
            Ok(answer) => answers.push(answer),
            Err(failure) => {
                output::note(&failure.to_string());
                exit = exit.max(failure.exit);
            }
        }
    }
    (answers, exit)
}

/// The mounts of a command: the one that holds `path`, or all of this user's that this process
/// sees; as root of all users'.
pub(crate) fn chosen(path: Option<&Path>) -> Result<Vec<Mount>, Failure> {
    let mut all = mounts::list()?;
    if let Some(path) = path {
        return Ok(vec![holding(&all, path)?.0]);
    }
    all.retain(|mount| places::is_root() || mount.owner == places::user());
    Ok(all)
}

/// Every mount of this host that has a process, also those that only another mount namespace
/// shows, and those that this process sees.
pub(crate) fn of_everyone() -> Result<Vec<Mount>, Failure> {
    if !places::is_root() {
        let words = "--everyone is for root: other users' mounts do not answer you";
        return Err(Failure::new(Exit::NotPermitted, words));
    }
    let mut all = chosen(None)?;
    for socket in places::all_sockets() {
        let Ok(connection) = block_on(async { Ok(http::connect(&socket).await.ok()) }) else {
            continue;
        };
        let table = connection.and_then(|connection| connection.process.mount_table().ok());
        let served = mounts::in_table(&table.unwrap_or_default());
        all.extend(served.into_iter().filter(|mount| places::is_socket_of(&socket, mount)));
    }
    let mut devices = HashSet::new();
    all.retain(|mount| devices.insert(mount.device.clone()));
    Ok(all)
}

/// The mount that `path` lies in, and the path inside it, "" for the mountpoint itself.
///
/// A symbolic link at the end of `path` is followed only if the link itself is on no mount.
pub(crate) fn holding(all: &[Mount], path: &Path) -> Result<(Mount, PathBuf), Failure> {
    let resolved = mounts::resolve(path);
    let candidates = [Some(resolved.clone()), resolved.canonicalize().ok()];
    for candidate in candidates.into_iter().flatten() {
        if let Some(mount) = mounts::holding(all, &candidate) {
            let inside = candidate.strip_prefix(&mount.mountpoint).unwrap_or(&candidate);
            return Ok((mount.clone(), inside.to_owned()));
        }
    }
    Err(not_ours(&resolved))
}

/// The mount whose mountpoint is `path`.
pub(crate) fn at(all: &[Mount], path: &Path) -> Result<Mount, Failure> {
    let resolved = mounts::resolve(path);
    let followed = || mounts::at(all, &resolved.canonicalize().ok()?);
    mounts::at(all, &resolved).or_else(followed).ok_or_else(|| not_ours(&resolved))
}

fn not_ours(path: &Path) -> Failure {
    match std::fs::symlink_metadata(path) {
        Err(error) => Failure::io(path.display(), &error),
        Ok(_) => Failure::failed(format!(
            "{}: not on a Segue mount ('segue status' lists the mounts)",
            path.display()
        )),
    }
}
