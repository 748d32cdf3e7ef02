//! From a URL to a mounted directory, and back.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::host::call::{Call, Owner};
use segue_core::host::log::{Bound, Lane};
use segue_core::host::{Host, Settings};
use segue_core::nouns::{Ino, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::Welcome;
use segue_fuse::{detach, unmount};
use segue_rpc::Incoming;
use segue_rpc::identity::MountUrl;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::ahead::UPLOADS;
use super::beside::CopiesBeside;
use super::conflicts::Conflicts;
use super::drain::Lanes;
use super::kernel::KernelCacheThreads;
use super::metrics::Metrics;
use super::notes::known;
use super::recover::Left;
use super::session::{MountSession, OpenCache, State, session};
use super::through::PassthroughState;
use super::told::AtHello;
use super::{KernelCache, Mount, NODE_LIMIT, Shared, lock};
use crate::error::MountError;
use crate::options::MountOptions;
use crate::paths::{Paths, socket_path};
use crate::rank::{Rank, Ranked};
use crate::remote::Remote;
use crate::state::{
    Containers, Index, Maps, Numbers, Preserved, mapped, remember_volume, sync_directory,
};
use crate::unmounted::{refused, remember_base};
use crate::{control, fuse};

/// After unmounting, this long is spent on sending what the last calls left; the rest stays
/// logged for the next mount.
pub(super) const PARTING: Duration = Duration::from_secs(2);

/// After a loss of power, the longest that a mount waits until the server has what is left.
const CATCH_UP: Duration = Duration::from_secs(60);

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
    // Before anything else changes their containers.
    let noted = mount.note_left_maps();
    noted.map_err(|refusal| MountError::state(&base, refusal.to_string()))?;
    // Until the last change is sent: a server that is not heard gives the connection up.
    let hearing = [
        tokio::spawn(Arc::clone(&mount).hear_breaks(breaks)),
        tokio::spawn(Arc::clone(&mount).start_calls(started)),
    ];
    if let Some(welcome) = welcome {
        let forgotten = mount.forget_lost(&welcome);
        forgotten.map_err(|refusal| MountError::state(&base, refusal.to_string()))?;
    }
    mount.tell_left(&tell);
    if lost_power {
        mount.catch_up_first().await;
    }
    let sweeper = Arc::clone(&mount);
    tokio::task::spawn_blocking(move || sweeper.sweep_left(first_container));
    let result = serve(&plan, &mount, (kernel, at_hello), ready, stop).await;
    mount.seal_all();
    mount.send_last_changes().await;
    // The next process would not know whose it is.
    mount.seal_all().into_iter().for_each(|ino| mount.seal_early(ino));
    if let Err(refusal) = mount.end().await {
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

/// What is in a cache directory beside the log.
struct Parts {
    containers: Containers,
    preserved: Preserved,
    index: Index,
    conflicts: Conflicts,
    refused_dir: PathBuf,
    maps: Maps,
}

impl Parts {
    fn open(path: &Path, lost_power: bool) -> Result<Parts, MountError> {
        let failed = |error: &dyn std::fmt::Display| MountError::state(path, error.to_string());
        let io = |error: io::Error| failed(&error);
        let index = Index::open(&path.join("index.db")).map_err(|error| failed(&error))?;
        let maps = Maps::at(path).map_err(io)?;
        if lost_power {
            // What was not synced when the host went down may be missing from the containers. Those
            // that maps may write to were synced before.
            let synced: Vec<Ino> = mapped(path).map_err(io)?.iter().map(|(ino, _)| *ino).collect();
            index.clear_files(&synced).map_err(|error| failed(&error))?;
        }
        let containers = Containers::at(path.join("containers")).map_err(io)?;
        maps.separate(&containers, lost_power).map_err(io)?;
        let refused_dir = path.join("refused");
        std::fs::create_dir_all(&refused_dir).map_err(io)?;
        let parts = Parts {
            containers,
            preserved: Preserved::at(path.join("preserved")).map_err(io)?,
            index,
            conflicts: Conflicts::open(path.join("conflicts")).map_err(io)?,
            refused_dir,
            maps,
        };
        sync_directory(path).map_err(io)?;
        Ok(parts)
    }
}

/// A mount, and what is left to start.
struct Assembled {
    mount: Shared,
    kernel: KernelCacheThreads,
    breaks: mpsc::Receiver<Incoming>,
    /// Calls that the host starts itself.
    started: mpsc::UnboundedReceiver<Call>,
    at_hello: AtHello,
    /// The number of its first container.
    first_container: u64,
}

/// Opens everything in the cache directory and puts the mount together.
fn assemble(plan: &MountPlan, url: String, session: MountSession) -> Result<Assembled, MountError> {
    let MountSession { link, welcome, state, .. } = session;
    let State { cache, acked_below, breaks, at_hello, limiter } = state;
    let OpenCache { directory, mut log, found } = cache;
    let (path, lost_power) = (directory.path.clone(), directory.lost_power);
    let Parts { containers, preserved, index, conflicts, refused_dir, maps } =
        Parts::open(&path, lost_power)?;
    let owner = owner(plan, directory.saved.role)?;
    let first_container = u64::from(directory.saved.starts) << 32;
    let mut numbers = Numbers::new(directory);
    let granted = welcome.as_ref().map(|welcome| numbers.set_grants(&welcome.grants));
    granted.transpose().map_err(|error| MountError::state(&path, error))?;
    let left = Left {
        log: &mut log,
        found,
        numbers: &mut numbers,
        index: &index,
        containers: &containers,
        preserved: &preserved,
        lost_power,
        refused_dir: &refused_dir,
    };
    let (calls_to_start, started) = mpsc::unbounded_channel();
    let mut core = recovered(left, first_container, welcome.as_deref())?;
    core.settings = settings(plan, owner);
    let (through, metrics) = (PassthroughState::new(maps), Metrics::default());
    let (cache, kernel) = KernelCache::new(&through.nodes);
    let mount = Mount {
        core: Ranked::new(Rank::Core, core),
        log: Ranked::new(Rank::Log, log),
        syncing: Ranked::new(Rank::Syncing, ()),
        noting: Ranked::new(Rank::Noting, ()),
        numbers: Mutex::new(numbers),
        containers,
        preserved,
        last_space: Mutex::new(known("index.db", index.spaces()).unwrap_or_default()),
        index,
        remote: Remote::new(link, plan.options.grace, metrics.clone()),
        metrics,
        options: plan.options.clone(),
        owner,
        url,
        mountpoint: plan.mountpoint.clone(),
        refused: AtomicU64::new(refused(&refused_dir)),
        refused_dir,
        conflicts: Mutex::new(conflicts),
        beside: CopiesBeside::open(path.join("beside.json")),
        slows: Default::default(),
        merges: Default::default(),
        acked_below,
        directories: Mutex::default(),
        lanes: Lanes::default(),
        unseen: Mutex::default(),
        limiter,
        slowed: Default::default(),
        calls: AtomicU64::new(1),
        space: super::space::Space::default(),
        kept: super::basis::Kept::default(),
        time: Notify::new(),
        calls_to_start,
        quit: Notify::new(),
        to_upload: Notify::new(),
        short_of_room: Notify::new(),
        to_clean: Notify::new(),
        fetched: Notify::new(),
        fetches: Default::default(),
        settled: watch::Sender::new(()),
        kernel: cache,
        through,
    };
    Ok(Assembled { mount: Arc::new(mount), kernel, breaks, started, at_hello, first_container })
}

fn settings(plan: &MountPlan, owner: Owner) -> Settings {
    let (lm, bound) = (plan.options.write_back, Bound(plan.options.log_max));
    let is_read_only = plan.options.read_only || owner.role == Role::Reader;
    let grace = plan.options.grace;
    Settings { lm, bound, owner, is_read_only, grace, ..Settings::default() }
}

/// Who mounts, and may do on the volume what `role` says, if anything.
fn owner(plan: &MountPlan, role: Option<Role>) -> Result<Owner, MountError> {
    let role = role.unwrap_or(Role::Reader);
    if (plan.options.dev || plan.options.suid) && role != Role::Host {
        let reason = "the options dev and suid need the role host, which this host's identity does \
                      not have; get an invite from the server: segue invite --role host";
        let host = plan.url.host().to_string();
        return Err(MountError::Denied { host, reason: reason.into() });
    }
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Ok(Owner { uid, gid, role })
}

/// What an earlier process knew, and what the first session begins with.
fn recovered(
    left: Left<'_>,
    first_container: u64,
    welcome: Option<&Welcome>,
) -> Result<Host, MountError> {
    let mut core = Host::new(NODE_LIMIT, left.numbers.first_seq());
    core.number_containers(first_container);
    if let Some(welcome) = welcome {
        core.tree.begin_connection(welcome.epoch, welcome.commit);
    }
    left.recover(&mut core)?;
    Ok(core)
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
    mount.tell_for_long(&at_hello);
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
    let mut chores = vec![
        tokio::spawn(Arc::clone(mount).drain(Lane::Metadata)),
        tokio::spawn(Arc::clone(mount).drain(Lane::Fast)),
        tokio::spawn(Arc::clone(mount).drain(Lane::Data)),
        tokio::spawn(Arc::clone(mount).tick()),
        tokio::spawn(Arc::clone(mount).watch_room()),
        tokio::spawn(Arc::clone(mount).keep_bounds()),
        tokio::spawn(Arc::clone(mount).keep_time()),
        tokio::spawn(Arc::clone(mount).keep_numbers()),
        tokio::spawn(Arc::clone(mount).keep_limits()),
        tokio::spawn(Arc::clone(mount).merge_what_was_made_twice()),
        tokio::spawn(Arc::clone(mount).hear_of_copies()),
    ];
    chores.extend((0..UPLOADS).map(|_| tokio::spawn(Arc::clone(mount).upload_ahead())));
    mount.measure_pending();
    ready(Ready { words: mount.ready_words() });
    tokio::select! {
        result = &mut ended => match result {
            Ok(Err(error)) => tracing::warn!("the FUSE session ended: {error}"),
            _ => {
                tracing::info!("unmounted");
                mount.all_unmapped();
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

impl Mount {
    fn ready_words(&self) -> String {
        let at = self.mountpoint.display();
        let url = self.url.strip_prefix("segue://").unwrap_or(&self.url);
        let (host, volume) = url.split_once('/').unwrap_or((url, ""));
        let offline = match self.remote.is_offline() {
            true => format!(
                "; offline, because the server cannot be reached ({}); {}",
                self.offline_reason(),
                self.cached_words()
            ),
            false => String::new(),
        };
        let note = match (self.owner.role, self.options.read_only) {
            (Role::Reader, _) => " (read only: this host has the role reader)",
            (_, true) => " (read only)",
            _ => "",
        };
        format!("segue: {host}:/{volume} is mounted at {at}{note}{offline}")
    }

    /// How much can be used without the server.
    fn cached_words(&self) -> String {
        let (inodes, files) = known("index.db", self.index.counts()).unwrap_or_default();
        format!(
            "this host has the names of {inodes} files and directories and the data of {files} \
             files; changes are sent once the server is reachable again"
        )
    }

    /// Tells of what an earlier process left to be sent.
    fn tell_left(&self, tell: &dyn Fn(String)) {
        let (records, bytes) = {
            let core = self.core();
            (core.queue.len(), core.queue.bytes())
        };
        if records > 0 {
            tell(format!(
                "{records} changes ({bytes} bytes) of an earlier mount are still pending"
            ));
        }
    }

    /// Leaves the cache directory in order: all of it durable.
    async fn end(self: &Shared) -> Result<(), Refusal> {
        let mount = Shared::clone(self);
        let end = move || {
            mount.log.lock().finish();
            mount.sync_disk_now()?;
            mount.note()?;
            mount.sweep();
            let synced = mount.containers.sync_all();
            synced.map_err(|error| mount.disk_refusal("containers", &error))?;
            mount.index.sync().map_err(|error| {
                tracing::error!("cannot sync index.db: {error}");
                Refusal::Io
            })?;
            let clean = lock(&mount.numbers).mark_clean();
            clean.map_err(|error| mount.disk_refusal("state.json", &error))
        };
        tokio::task::spawn_blocking(end).await.map_err(|_| Refusal::Io)?
    }

    /// After a loss of power the log may have forgotten what the server already has. While that is
    /// unknown what this host takes for its own truth is of the past: so what is left is sent
    /// before anybody looks, if the server is there.
    async fn catch_up_first(self: &Shared) {
        timeout(CATCH_UP, self.send_pending()).await.ok();
        let mut core = self.core();
        core.queue.put_all_back();
        core.tree.expire_all();
    }

    async fn send_last_changes(self: &Shared) {
        // Whatever is cut off here is sent again next time, and answered the same.
        timeout(PARTING, self.send_pending()).await.ok();
    }

    async fn send_pending(self: &Shared) {
        {
            // Whoever did so before does not any more. While the log is locked nobody makes a
            // change that waits another one, which would be sent as it was.
            let _log = self.log.lock();
            self.core().put_all_back();
        }
        while !self.remote.is_offline() {
            // What is open is still written to: what is in a batch is not changed any more.
            if self.send(Call::SendLast).await != Ok(true) {
                return;
            }
        }
    }

    /// Takes the mount out of the tree: with `now` whatever is in use, and the process ends;
    /// else only if nothing is, and the process ends when the kernel has let go.
    pub(crate) fn unmount(&self, now: bool) -> io::Result<()> {
        if !now {
            return unmount(&self.mountpoint);
        }
        detach(&self.mountpoint)?;
        self.quit.notify_one();
        Ok(())
    }
}
