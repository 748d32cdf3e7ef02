//! The rooms of a mount, made from its cache directory.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use segue_core::host::call::{Call, Owner};
use segue_core::host::log::Bound;
use segue_core::host::{Host, Settings};
use segue_core::nouns::{Ino, Role};
use segue_core::wire::{Space, Welcome};
use segue_rpc::Incoming;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::start::MountPlan;
use crate::disk::beside::CopiesBeside;
use crate::disk::conflicts::Conflicts;
use crate::disk::files::{Containers, Index, Maps, Numbers, Preserved, mapped, sync_directory};
use crate::disk::notes::known;
use crate::disk::recover::Left;
use crate::disk::*;
use crate::error::MountError;
use crate::host::SharedHost;
use crate::kernel::KernelView;
use crate::kernel::cache::{KernelCache, KernelCacheThreads};
use crate::kernel::through::PassthroughState;
use crate::metrics::Metrics;
use crate::mount::session::{MountSession, OpenCache, State};
use crate::mount::{Mount, NODE_LIMIT, Shared};
use crate::net::limits::Limiter;
use crate::net::{Fetcher, Remote};
use crate::options::FsyncLevel;
use crate::rank::{Rank, Ranked};
use crate::shell::Shell;
use crate::shell::promises::PULLS;
use crate::shell::told::AtHello;
use crate::volume::Volume;
use crate::wakes::Wakes;
use crate::write_back::WriteBack;

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
pub(super) struct Assembled {
    pub(super) mount: Shared,
    pub(super) kernel: KernelCacheThreads,
    pub(super) breaks: mpsc::Receiver<Incoming>,
    /// Calls that the host starts itself.
    pub(super) started: mpsc::UnboundedReceiver<Call>,
    pub(super) at_hello: AtHello,
    /// The number of its first container.
    pub(super) first_container: u64,
}

/// Opens everything in the cache directory and puts the mount together.
pub(super) fn assemble(
    plan: &MountPlan,
    url: String,
    session: MountSession,
) -> Result<Assembled, MountError> {
    let MountSession { link, welcome, state, .. } = session;
    let State { cache, acked_below, breaks, at_hello, limiter } = state;
    let OpenCache { directory, mut log, found } = cache;
    let (path, lost_power) = (directory.path.clone(), directory.lost_power);
    let Parts { containers, preserved, index, conflicts, refused_dir, maps } =
        Parts::open(&path, lost_power)?;
    let owner = owner(plan, directory.saved.role)?;
    let first_container = u64::from(directory.saved.starts) << 32;
    containers.number_from(first_container);
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
    core.configure(settings(plan, owner));
    let (through, metrics) = (PassthroughState::new(maps), Metrics::default());
    let remote = Remote::new(link, plan.options.grace, metrics.clone());
    let host = Arc::new(SharedHost::new(core, remote.clone()));
    let (cache, kernel) = KernelCache::new(&host);
    let volume =
        Volume { url, mountpoint: plan.mountpoint.clone(), options: plan.options.clone(), owner };
    let volume = Arc::new(volume);
    let last_space = known("index.db", index.spaces()).unwrap_or_default();
    let for_user = ForUser {
        refused: RefusedChanges::at(refused_dir),
        conflicts: Ranked::leaf(conflicts),
        beside: CopiesBeside::open(path.join("beside.json")),
    };
    let disk = Arc::new(CacheDisk {
        host: Arc::clone(&host),
        volume: Arc::clone(&volume),
        metrics: metrics.clone(),
        log: Ranked::new(Rank::Log, log),
        measured: Ranked::leaf(None),
        is_log_quiet: Default::default(),
        syncing: Ranked::new(Rank::Syncing, ()),
        overwriting: Ranked::new(Rank::Overwriting, false),
        noting: Ranked::new(Rank::Noting, ()),
        numbers: Ranked::leaf(numbers),
        containers,
        preserved,
        index,
        for_user,
        acked_below,
        space: Default::default(),
        bases: Default::default(),
    });
    let mount = together(disk, (cache, through), remote, limiter, (calls_to_start, last_space));
    let mount = Arc::new(mount);
    Ok(Assembled { mount, kernel, breaks, started, at_hello, first_container })
}

/// The rooms of a mount, each above those that it calls.
fn together(
    disk: Arc<CacheDisk>,
    (cache, through): (KernelCache, PassthroughState),
    remote: Remote,
    limiter: Limiter,
    (calls_to_start, last_space): (mpsc::UnboundedSender<Call>, BTreeMap<Option<Ino>, Space>),
) -> Mount {
    let (host, volume) = (Arc::clone(&disk.host), Arc::clone(&disk.volume));
    let metrics = disk.metrics.clone();
    let kernel =
        Arc::new(KernelView { host: Arc::clone(&host), disk: Arc::clone(&disk), cache, through });
    let wakes = Arc::new(Wakes::new(calls_to_start));
    let fetcher = Arc::new(Fetcher {
        host: Arc::clone(&host),
        disk: Arc::clone(&disk),
        remote: remote.clone(),
        wakes: Arc::clone(&wakes),
        fetches: Default::default(),
    });
    let shell = Arc::new(Shell {
        host: Arc::clone(&host),
        disk: Arc::clone(&disk),
        kernel: Arc::clone(&kernel),
        fetcher,
        wakes: Arc::clone(&wakes),
        remote: remote.clone(),
        volume: Arc::clone(&volume),
        calls: AtomicU64::new(1),
        slowed: Default::default(),
        unseen: Ranked::default(),
        pulls: Semaphore::new(PULLS),
    });
    let write_back = Arc::new(WriteBack {
        host: Arc::clone(&host),
        disk: Arc::clone(&disk),
        shell: Arc::clone(&shell),
        remote: remote.clone(),
        wakes: Arc::clone(&wakes),
        volume: Arc::clone(&volume),
    });
    Mount {
        host,
        disk,
        kernel,
        shell,
        write_back,
        wakes,
        remote,
        volume,
        limiter,
        metrics,
        slows: Default::default(),
        directories: Ranked::default(),
        last_space: Ranked::leaf(last_space),
        quit: Notify::new(),
    }
}

fn settings(plan: &MountPlan, owner: Owner) -> Settings {
    let (lm, bound) = (plan.options.write_back, Bound(plan.options.log_max));
    let is_read_only = plan.options.read_only || owner.role == Role::Reader;
    let grace = plan.options.grace;
    let syncs_to_server = plan.options.fsync == FsyncLevel::Server;
    let settings = Settings { lm, bound, owner, is_read_only, grace, ..Settings::default() };
    let (hidden, promises) = (plan.options.hidden, plan.options.promises);
    Settings { syncs_to_server, hidden, promises, ..settings }
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
    core.set_listing_key(RandomState::new().hash_one(()));
    if let Some(welcome) = welcome {
        core.begin_connection(welcome.epoch, welcome.commit);
    }
    left.recover(&mut core)?;
    Ok(core)
}
