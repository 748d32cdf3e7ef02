//! Mounts for tests: made as root, ended and taken out also when a test fails.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use segue_fuse::abi::init;
use segue_fuse::{
    Agreement, FileSystem, MountOptions, Notifier, Reply, Request, Session, Wishes, detach, mount,
};
use tempfile::TempDir;

use crate::files::Memory;

/// A test that takes this long hangs: its mount is aborted, so that it fails.
const TEST_MAX: Duration = Duration::from_secs(240);
/// Longest that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// What a test does to requests before the file system sees them: it keeps the reply, or gives
/// it back.
type Hook = Box<dyn Fn(&Memory, &Request<'_>, Reply) -> Option<Reply> + Send + Sync>;
/// Number, node, offset and data.
type Retrieved = (u64, u64, u64, Vec<u8>);

/// The file system in memory, with a test's hand in between.
pub(crate) struct Hooked {
    pub(crate) memory: Memory,
    hook: Hook,
    /// Opcode and node of each request.
    seen: Mutex<Vec<(u32, u64)>>,
    pub(crate) retrieved: Mutex<Vec<Retrieved>>,
}

impl Hooked {
    fn new(hook: Hook) -> Hooked {
        Hooked {
            memory: Memory::default(),
            hook,
            seen: Mutex::default(),
            retrieved: Mutex::default(),
        }
    }

    /// How many such requests have come.
    pub(crate) fn count(&self, opcode: u32, node: u64) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| **seen == (opcode, node)).count()
    }
}

impl FileSystem for Hooked {
    fn call(&self, request: Request<'_>, reply: Reply) {
        self.seen.lock().unwrap().push((request.header.opcode, request.node()));
        if let Some(reply) = (self.hook)(&self.memory, &request, reply) {
            self.memory.call(request, reply);
        }
    }

    fn forget(&self, nodes: Vec<(u64, u64)>) {
        self.memory.forget(nodes);
    }

    fn interrupt(&self, unique: u64) {
        self.memory.interrupt(unique);
    }

    fn retrieved(&self, number: u64, node: u64, offset: u64, data: &[u8]) {
        self.retrieved.lock().unwrap().push((number, node, offset, data.to_vec()));
    }
}

/// How a mount is served.
#[derive(Clone, Copy)]
pub(crate) struct Serving {
    pub(crate) threads: usize,
    pub(crate) wishes: Wishes,
}

impl Default for Serving {
    fn default() -> Serving {
        Serving { threads: 1, wishes: wishes() }
    }
}

impl Serving {
    /// Over io_uring.
    pub(crate) fn uring() -> Serving {
        Serving { wishes: Wishes { uring: true, ..wishes() }, ..Serving::default() }
    }

    /// Every way that requests can come.
    pub(crate) fn ways() -> [Serving; 2] {
        [Serving::default(), Serving::uring()]
    }
}

/// Everything that the file system in memory can do.
pub(crate) fn wishes() -> Wishes {
    let flags = Wishes::default().flags
        | init::ATOMIC_O_TRUNC
        | init::DO_READDIRPLUS
        | init::HANDLE_KILLPRIV_V2
        | init::POSIX_LOCKS
        | init::FLOCK_LOCKS
        | init::SETXATTR_EXT
        | init::CREATE_SUPP_GROUP
        | init::CACHE_SYMLINKS
        | init::EXPORT_SUPPORT;
    Wishes { flags, ..Wishes::default() }
}

/// A mounted file system in memory.
pub(crate) struct Mounted {
    _watchdog: Sender<()>,
    dir: TempDir,
    pub(crate) files: Arc<Hooked>,
    pub(crate) notifier: Notifier,
    pub(crate) agreement: Agreement,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted {
    /// A mount, or none where `SEGUE_SKIP_E2E=1` allows to do without.
    pub(crate) fn new(serving: Serving) -> Option<Mounted> {
        Mounted::hooked(serving, |_, _, reply| Some(reply))
    }

    /// A mount whose requests `hook` sees first.
    pub(crate) fn hooked(
        serving: Serving,
        hook: impl Fn(&Memory, &Request<'_>, Reply) -> Option<Reply> + Send + Sync + 'static,
    ) -> Option<Mounted> {
        if !can_mount() {
            return None;
        }
        let offered = if serving.wishes.uring { Some(Offered::new()?) } else { None };
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().join("mnt");
        fs::create_dir(&point).unwrap();
        // Users of a test have a way in.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let files = Arc::new(Hooked::new(Box::new(hook)));
        let device = mount(&point, &options()).unwrap();
        let watchdog = watch_over(point.clone());
        let begun = Session::begin(device, Arc::clone(&files), &serving.wishes);
        let session = begun.inspect_err(|_| force_out(&point)).unwrap();
        drop(offered);
        let (notifier, agreement) = (session.notifier(), session.agreement());
        assert_eq!(agreement.has(init::OVER_IO_URING), serving.wishes.uring);
        let session = std::thread::spawn(move || session.run(serving.threads));
        let session = Some(session);
        Some(Mounted { _watchdog: watchdog, dir, files, notifier, agreement, session })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Outside of the mount.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The inode that `name` means.
    pub(crate) fn ino(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.path(name)).unwrap().ino()
    }

    /// Aborts the mount: whoever is in it gets an error.
    pub(crate) fn abort(&self) {
        force_out(&self.root());
    }

    /// Unmounts, and returns how the session ended.
    pub(crate) fn end(mut self) -> io::Result<()> {
        segue_fuse::unmount(&self.root()).unwrap();
        self.session.take().unwrap().join().unwrap()
    }

    pub(crate) fn session_ended(&mut self) -> io::Result<()> {
        self.session.take().unwrap().join().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else {
            // What a test has ended or aborted is gone already.
            detach(&self.root()).ok();
        }
        if let Some(session) = self.session.take() {
            let ended = session.join();
            assert!(std::thread::panicking() || matches!(ended, Ok(Ok(()))), "{ended:?}");
        }
    }
}

fn options() -> MountOptions {
    MountOptions {
        source: "memory".into(),
        subtype: "segue-test".into(),
        allow_other: true,
        default_permissions: true,
        dev_suid: true,
        ..MountOptions::default()
    }
}

/// Whether this host lets us mount. Panics if it does not and that is not allowed.
pub(crate) fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && Path::new("/dev/fuse").exists() {
        return true;
    }
    let allowed = std::env::var("SEGUE_SKIP_E2E").is_ok_and(|value| value == "1");
    assert!(allowed, "mounting needs root and /dev/fuse; SEGUE_SKIP_E2E=1 allows to do without");
    eprintln!("SKIPPED: not root or no /dev/fuse, and SEGUE_SKIP_E2E=1");
    false
}

/// Takes the mount out of the tree and aborts it.
pub(crate) fn force_out(point: &Path) {
    rustix::mount::unmount(point, UnmountFlags::FORCE | UnmountFlags::DETACH).ok();
}

fn watch_over(point: PathBuf) -> Sender<()> {
    let (alive, watched) = channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(TEST_MAX) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{}: the test hangs, aborting its mount", point.display());
            force_out(&point);
        }
    });
    alive
}

/// While this lives, the kernel offers io_uring.
struct Offered {
    before: String,
    _alone: std::sync::MutexGuard<'static, ()>,
}

impl Offered {
    /// None, loudly, where that cannot be had.
    fn new() -> Option<Offered> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(URING).ok();
        let offered = before.filter(|_| fs::write(URING, "Y").is_ok());
        if offered.is_none() {
            eprintln!("SKIPPED: {URING} cannot be set to Y here");
        }
        offered.map(|before| Offered { before, _alone: alone })
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        fs::write(URING, &self.before).unwrap();
    }
}

/// Waits until `found` finds something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: has not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}
