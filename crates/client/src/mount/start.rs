//! From a URL to a mounted directory, and back.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use segue_core::host::call::Seals;
use segue_core::host::log::Lane;
use segue_core::host::send::UPLOADS;
use segue_core::nouns::Role;
use segue_fuse::{detach, unmount};
use segue_rpc::identity::MountUrl;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::assemble::{Assembled, assemble};
use super::merge::merge_what_was_made_twice;
use super::room::watch_room;
use super::tasks::{keep_numbers, tick};
use crate::control::conflicts::hear_of_copies;
use crate::control::status::offline_reason;
use crate::disk::files::remember_volume;
use crate::disk::notes::known;
use crate::error::MountError;
use crate::kernel::cache::KernelCacheThreads;
use crate::mount::session::session;
use crate::mount::{Mount, Shared};
use crate::options::MountOptions;
use crate::paths::{Paths, socket_path};
use crate::shell::told::AtHello;
use crate::unmounted::remember_base;
use crate::{control, fuse};

/// Threads that read requests: one serves a client fastest where processors do not sleep, as
/// measured (docs/decisions/0005-fuse.md): what needs no wait is answered on it, and what waits
/// leaves it.
const READERS: usize = 1;

/// What to mount, and where.
#[derive(Clone, Debug)]
pub struct MountPlan {
    /// The volume; with an invite the first time.
    pub url: MountUrl,
    /// The directory, absolute and without symbolic links.
    pub mountpoint: PathBuf,
    /// How.
    pub options: MountOptions,
    /// Where this host's files lie.
    pub paths: Paths,
    /// This host's name, for conflict copies and the server's list of identities.
    pub host: String,
}

/// The mount is usable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// What to tell the user.
    pub words: String,
}

/// Mounts, calls `ready` once the mount is usable, and serves until it is unmounted or `stop`
/// is ready. `tell` hears of progress before that.
///
/// With an invite in the URL the host is enrolled first. A volume that was mounted before comes up
/// without the server too, from what is cached, and with the changes that wait to be sent.
pub async fn mount(
    plan: MountPlan,
    tell: impl Fn(String),
    ready: impl FnOnce(Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), MountError> {
    check_mountpoint(&plan.mountpoint)?;
    let url = plain(&plan.url);
    let base = plan.options.cache_dir.clone();
    let base = base.unwrap_or_else(|| plan.paths.state_home.clone());
    let session = saying_so(&plan.url, &tell, session(&plan, &url, &base)).await?;
    remember_volume(&base, &url, &session.uuid)
        .and_then(|()| remember_base(&plan.paths.state_home, &base))
        .map_err(|error| MountError::state(&base, error))?;
    let lost_power = session.state.cache.directory.lost_power;
    let welcome = session.welcome.clone();
    let Assembled { mount, kernel, breaks, started, at_hello, first_container } =
        assemble(&plan, url, session)?;
    let refused = mount.shell.refuse_lost();
    refused.map_err(|refusal| MountError::state(&base, refusal.to_string()))?;
    // Before anything else changes their containers.
    let noted = mount.shell.note_left_maps();
    noted.map_err(|refusal| MountError::state(&base, refusal.to_string()))?;
    // Until the last change is sent: a server that is not heard gives the connection up.
    let hearing = [
        tokio::spawn(Arc::clone(&mount.shell).hear_breaks(breaks)),
        tokio::spawn(Arc::clone(&mount.shell).start_calls(started)),
    ];
    if let Some(welcome) = welcome {
        let forgotten = mount.shell.forget_lost(&welcome);
        forgotten.map_err(|refusal| MountError::state(&base, refusal.to_string()))?;
    }
    tell_left(&mount, &tell);
    if lost_power {
        mount.write_back.catch_up_first().await;
    }
    let sweeper = Arc::clone(&mount.disk);
    tokio::task::spawn_blocking(move || sweeper.sweep_left(first_container));
    let result = serve(&plan, &mount, (kernel, at_hello), ready, stop).await;
    mount.shell.seal_all(Seals::Decided).ok();
    mount.write_back.send_last_changes().await;
    if !mount.remote.is_offline() {
        mount.shell.announce_last().await;
    }
    // The next process would not know whose it is.
    mount.shell.seal_all(Seals::All).ok();
    if let Err(refusal) = mount.disk.end().await {
        tracing::error!("the last changes may not survive a crash of this host: {refusal}");
    }
    for task in hearing {
        task.abort();
        task.await.ok();
    }
    // Or it would keep the promises to this host for as long as for one that may be back.
    mount.remote.link().leave().await;
    result
}

/// Tells once a second that the server has not answered yet.
async fn saying_so<T>(
    url: &MountUrl,
    tell: impl Fn(String),
    connecting: impl Future<Output = T>,
) -> T {
    let began = Instant::now();
    tokio::pin!(connecting);
    loop {
        match timeout(Duration::from_secs(1), &mut connecting).await {
            Ok(session) => return session,
            Err(_) => tell(format!(
                "{}:{}: connecting, no answer for {} s",
                url.host(),
                url.port(),
                began.elapsed().as_secs()
            )),
        }
    }
}

/// The URL as users write it once they are enrolled.
fn plain(url: &MountUrl) -> String {
    url.plain().to_string()
}

fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    match path.metadata() {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(MountError::NotDirectory(path.into())),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            tracing::warn!("{}: detaching a mount whose process has ended", path.display());
            detach(path).map_err(|error| MountError::Fuse {
                mountpoint: path.into(),
                reason: format!(
                    "the mount there has no process and cannot be detached: {error}; try \
                     fusermount3 -uz {}",
                    path.display()
                ),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(MountError::NoMountpoint(path.into()))
        }
        Err(error) => Err(MountError::state(path, error)),
    }
}

/// Puts the mount into the tree and serves it.
async fn serve(
    plan: &MountPlan,
    mount: &Shared,
    (kernel, at_hello): (KernelCacheThreads, AtHello),
    ready: impl FnOnce(Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), MountError> {
    let io = |doing: &str, source: io::Error| MountError::Io { doing: doing.into(), source };
    let socket = socket_path(&plan.paths.runtime_dir, &plan.mountpoint);
    let (unmounted, mut ended) = oneshot::channel();
    let session = fuse::session(mount, plan.mountpoint.clone()).await?;
    kernel.start(session.notifier()).map_err(|error| io("cannot start a thread", error))?;
    mount.shell.tell_for_long(&at_hello);
    let control = control::serve(Arc::clone(mount), &socket)
        .map_err(|error| MountError::state(&socket, error))?;
    let run = move || {
        let result = session.run(READERS);
        // Nobody listens only when the mount is being stopped anyway.
        unmounted.send(result).ok();
    };
    std::thread::Builder::new()
        .name("fuse".into())
        .spawn(run)
        .map_err(|error| io("cannot start a thread", error))?;
    let drain = |lane| tokio::spawn(Arc::clone(&mount.write_back).drain(lane));
    let mut chores: Vec<_> = Lane::ALL.map(drain).into();
    chores.extend([
        tokio::spawn(tick(Arc::clone(mount))),
        tokio::spawn(watch_room(Arc::clone(mount))),
        tokio::spawn(Arc::clone(&mount.disk).keep_bounds()),
        tokio::spawn(Arc::clone(&mount.shell).keep_time()),
        tokio::spawn(keep_numbers(Arc::clone(mount))),
        tokio::spawn(mount.limiter.clone().keep(mount.remote.clone())),
        tokio::spawn(merge_what_was_made_twice(Arc::clone(mount))),
        tokio::spawn(hear_of_copies(Arc::clone(mount))),
    ]);
    chores.extend((0..UPLOADS).map(|_| tokio::spawn(Arc::clone(&mount.write_back).upload_ahead())));
    mount.disk.measure_pending();
    ready(Ready { words: ready_words(mount) });
    tokio::select! {
        result = &mut ended => match result {
            Ok(Err(error)) => tracing::warn!("the FUSE session ended: {error}"),
            _ => {
                tracing::info!("unmounted");
                mount.shell.all_unmapped();
            }
        },
        () = mount.quit.notified() => {}
        () = stop => detach(&plan.mountpoint).unwrap_or_else(|error| {
            tracing::warn!("{}: cannot unmount: {error}", plan.mountpoint.display());
        }),
    }
    // No two drains at once.
    for chore in chores {
        chore.abort();
        chore.await.ok();
    }
    control.end().await;
    Ok(())
}

fn ready_words(mount: &Mount) -> String {
    let at = mount.volume.mountpoint.display();
    let url = mount.volume.url.strip_prefix("segue://").unwrap_or(&mount.volume.url);
    let (host, volume) = url.split_once('/').unwrap_or((url, ""));
    let offline = match mount.remote.is_offline() {
        true => format!(
            "; offline, because the server cannot be reached ({}); {}",
            offline_reason(mount),
            cached_words(mount)
        ),
        false => String::new(),
    };
    let note = match (mount.volume.owner.role, mount.volume.options.read_only) {
        (Role::Reader, _) => " (read only: this host has the role reader)",
        (_, true) => " (read only)",
        _ => "",
    };
    format!("segue: {host}:/{volume} is mounted at {at}{note}{offline}")
}

/// How much can be used without the server.
fn cached_words(mount: &Mount) -> String {
    let (inodes, files) = known("index.db", mount.disk.index.counts()).unwrap_or_default();
    format!(
        "this host has the names of {inodes} files and directories and the data of {files} \
         files; changes are sent once the server is reachable again"
    )
}

/// Tells of what an earlier process left to be sent.
fn tell_left(mount: &Mount, tell: &dyn Fn(String)) {
    let (records, bytes) = {
        let core = mount.host.lock();
        (core.queue().len(), core.queue().bytes())
    };
    if records > 0 {
        tell(format!("{records} changes ({bytes} bytes) of an earlier mount are still pending"));
    }
}

impl Mount {
    /// Takes the mount out of the tree: with `now` whatever is in use, and the process ends;
    /// else only if nothing is, and the process ends when the kernel has let go.
    pub(crate) fn unmount(&self, now: bool) -> io::Result<()> {
        if !now {
            return unmount(&self.volume.mountpoint);
        }
        detach(&self.volume.mountpoint)?;
        self.quit.notify_one();
        Ok(())
    }
}
