//! Mounts for tests: made as root, ended and taken out also when a test fails.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_fuse::abi::init;
use segue_fuse::{
    Agreement, FileSystem, FuseSession, MountOptions, Notifier, Reply, Request, Wishes, mount,
};

use crate::files::Memory;
use crate::place::{Mountpoint, Offered, force_out};

/// Longest that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

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
    pub(crate) place: Mountpoint,
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
        let place = Mountpoint::new();
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
) -> Option<FuseSession<Hooked>> {
    let offered = if serving.wishes.uring { Some(Offered::new()?) } else { None };
    let device = mount(point, &options()).unwrap();
    let session = FuseSession::begin(device, Arc::clone(files), &serving.wishes).unwrap();
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
        dev: true,
        suid: true,
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
