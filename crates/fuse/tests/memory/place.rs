//! Where mounts of tests are, and what makes sure that nothing of them stays.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

/// A test that takes this long hangs: its mount is aborted, so that it fails.
const TEST_MAX: Duration = Duration::from_secs(60);
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Where a mount is for a test: a directory that others can reach. Nothing is left of it when
/// it is dropped, and whoever hangs in it is released if the test takes too long.
pub(crate) struct Mountpoint {
    dir: TempDir,
    hung: Arc<AtomicBool>,
    _watchdog: Sender<()>,
}

impl Mountpoint {
    pub(crate) fn new() -> Mountpoint {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        fs::create_dir(dir.path().join("connections")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let hung = Arc::default();
        let watchdog = watch_over(dir.path().to_owned(), Arc::clone(&hung));
        let place = Mountpoint { dir, hung, _watchdog: watchdog };
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

impl Drop for Mountpoint {
    fn drop(&mut self) {
        force_out(&self.root());
        rustix::mount::unmount(self.beside("connections"), UnmountFlags::DETACH).ok();
        let hung = self.hung.load(Ordering::SeqCst);
        assert!(!hung || std::thread::panicking(), "the test hung until its mount was aborted");
    }
}

/// Takes the mount out of the tree and aborts it: whoever is in it gets an error.
pub(crate) fn force_out(point: &Path) {
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
pub(crate) struct Offered {
    before: String,
    /// Locked: tests of other processes wait.
    parameter: File,
}

impl Offered {
    /// None, loudly, where that cannot be had.
    pub(crate) fn new() -> Option<Offered> {
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
