//! Mounts for tests: made as root, ended and taken out also when a test fails.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags};
use segue_fuse::abi::init;
use segue_fuse::{
    Agreement, FileSystem, MountOptions, Notifier, Reply, Request, Session, Wishes, mount,
};
use tempfile::TempDir;

use crate::files::Memory;

/// A test that takes this long hangs: its mount is aborted, so that it fails.
const TEST_MAX: Duration = Duration::from_secs(60);
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
    pub(crate) fn new(hook: Hook) -> Hooked {
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

    /// How many have come, of whatever node.
    pub(crate) fn all(&self, opcode: u32) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.0 == opcode).count()
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

    /// Whether they can come over io_uring here.
    pub(crate) fn has_uring() -> bool {
        Offered::new().is_some()
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
    pub(crate) files: Arc<Hooked>,
    pub(crate) notifier: Notifier,
    pub(crate) agreement: Agreement,
    session: Option<JoinHandle<io::Result<()>>>,
    pub(crate) place: Place,
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
        let place = Place::new();
        let files = Arc::new(Hooked::new(Box::new(hook)));
        let session = begin(&place.root(), &files, serving)?;
        let (notifier, agreement) = (session.notifier(), session.agreement());
        let session = Some(std::thread::spawn(move || session.run(serving.threads)));
        Some(Mounted { files, notifier, agreement, session, place })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.place.root()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Outside of the mount.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.place.beside(name)
    }

    /// The inode that `name` means.
    pub(crate) fn ino(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.path(name)).unwrap().ino()
    }

    /// Unmounts, and returns how the session ended.
    pub(crate) fn end(mut self) -> io::Result<()> {
        // A process that another test starts has all our files until it runs its program.
        until("the unmounting", || match segue_fuse::unmount(&self.root()) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => None,
            unmounted => Some(unmounted),
        })?;
        self.session.take().unwrap().join().unwrap()
    }

    /// Aborts the mount, whoever is in it, and returns how the session ended.
    pub(crate) fn abort(mut self) -> io::Result<()> {
        force_out(&self.root());
        self.session.take().unwrap().join().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        force_out(&self.root());
        if let Some(session) = self.session.take() {
            let ended = session.join();
            assert!(std::thread::panicking() || matches!(ended, Ok(Ok(()))), "{ended:?}");
        }
    }
}

/// Mounts `files` at `point`. None: not over io_uring here.
pub(crate) fn begin(
    point: &Path,
    files: &Arc<Hooked>,
    serving: Serving,
) -> Option<Session<Hooked>> {
    let offered = if serving.wishes.uring { Some(Offered::new()?) } else { None };
    let device = mount(point, &options()).unwrap();
    let session = Session::begin(device, Arc::clone(files), &serving.wishes).unwrap();
    drop(offered);
    assert_eq!(session.agreement().has(init::OVER_IO_URING), serving.wishes.uring);
    Some(session)
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

/// Where a mount is for a test: a directory that others can reach. Nothing is left of it when
/// it is dropped, and whoever hangs in it is released if the test takes too long.
pub(crate) struct Place {
    dir: TempDir,
    hung: Arc<AtomicBool>,
    _watchdog: Sender<()>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        fs::create_dir(dir.path().join("connections")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let hung = Arc::default();
        let watchdog = watch_over(dir.path().to_owned(), Arc::clone(&hung));
        let place = Place { dir, hung, _watchdog: watchdog };
        let (none, flags) = (None::<&CStr>, MountFlags::empty());
        rustix::mount::mount("none", place.beside("connections"), "fusectl", flags, none).unwrap();
        place
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.beside("mnt")
    }

    /// Outside of the mount.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The kernel's number for what is mounted here.
    pub(crate) fn number(&self) -> Option<u32> {
        number_at(&self.root())
    }

    /// How many requests wait there, whether they have been read or not.
    pub(crate) fn waiting(&self) -> usize {
        let Some(number) = self.number() else { return 0 };
        let waiting = self.beside("connections").join(number.to_string()).join("waiting");
        fs::read_to_string(waiting).map_or(0, |count| count.trim().parse().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        force_out(&self.root());
        rustix::mount::unmount(self.beside("connections"), UnmountFlags::DETACH).ok();
        let hung = self.hung.load(Ordering::SeqCst);
        assert!(!hung || std::thread::panicking(), "the test hung until its mount was aborted");
    }
}

/// Takes the mount out of the tree and aborts it: whoever is in it gets an error.
fn force_out(point: &Path) {
    rustix::mount::unmount(point, UnmountFlags::FORCE | UnmountFlags::DETACH).ok();
}

fn number_at(point: &Path) -> Option<u32> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut here = lines.filter(|fields| fields.get(4).is_some_and(|at| point == Path::new(at)));
    here.find_map(|fields| fields.get(2)?.strip_prefix("0:")?.parse().ok())
}

/// Aborts what is mounted in `dir` if the test takes too long: by its number, which it still has
/// when it has been taken out of the tree. If that does not help either, all tests end.
fn watch_over(dir: PathBuf, hung: Arc<AtomicBool>) -> Sender<()> {
    let (alive, watched) = channel::<()>();
    let (start, mut number) = (Instant::now(), None);
    std::thread::spawn(move || {
        while watched.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            number = number.or_else(|| number_at(&dir.join("mnt")));
            if start.elapsed() > TEST_MAX && !hung.swap(true, Ordering::SeqCst) {
                let number = number.unwrap_or_default().to_string();
                fs::write(dir.join("connections").join(number).join("abort"), "1").ok();
                force_out(&dir.join("mnt"));
            }
            if start.elapsed() > 2 * TEST_MAX {
                eprintln!("{}: a test hangs, though its mount is aborted", dir.display());
                std::process::exit(1);
            }
        }
    });
    alive
}

/// While this lives, the kernel offers io_uring.
struct Offered {
    before: String,
    /// Locked: tests of other processes wait.
    parameter: File,
}

impl Offered {
    /// None, loudly, where that cannot be had.
    fn new() -> Option<Offered> {
        if std::env::var_os("SEGUE_TEST_URING").is_none_or(|set| set != "1") {
            eprintln!("SKIPPED: io_uring is tested with SEGUE_TEST_URING=1");
            return None;
        }
        let offered = Offered::try_new();
        if offered.is_none() {
            eprintln!("SKIPPED: {URING} cannot be set to Y here");
        }
        offered
    }

    fn try_new() -> Option<Offered> {
        let mut parameter = File::options().read(true).write(true).open(URING).ok()?;
        flock(&parameter, FlockOperation::LockExclusive).ok()?;
        let before = io::read_to_string(&parameter).ok()?;
        parameter.write_all(b"Y").ok()?;
        Some(Offered { before, parameter })
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.parameter.write_all(self.before.as_bytes()).unwrap();
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
