//! How a mount ends that does not end well: whoever waits in it is let go, and nothing of it
//! stays.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use segue_fuse::abi::ROOT;

use crate::data::Data;
use crate::interrupts::{HELD, Processes, hold_reads, holding, waiting};
use crate::mounted::{Hooked, Serving, begin, can_mount, until};
use crate::node::Kind;
use crate::place::Mountpoint;
use crate::tree::Caller;

pub(crate) const READERS: usize = 50;
/// Where a daemon of a test mounts, and how it serves.
const POINT: &str = "SEGUE_TEST_POINT";
const URING: &str = "SEGUE_TEST_OVER_URING";

fn readers(file: &Path) -> Processes {
    Processes::start(Command::new("cat").arg(file).stderr(Stdio::null()), READERS)
}

/// They end by themselves, and none of them well.
fn let_go(mut readers: Processes) {
    let ends = readers.0.drain(..).map(|mut process| process.wait().unwrap().code());
    assert_eq!(ends.collect::<Vec<_>>(), [Some(1); READERS]);
}

#[test]
fn an_aborted_mount_lets_everybody_go() {
    for serving in Serving::ways() {
        let Some((mounted, locked)) = holding(serving) else { continue };
        let readers = readers(&mounted.path("held"));
        until("the requests", || (waiting(&mounted).0 == READERS).then_some(()));
        mounted.abort().unwrap();
        let_go(readers);
        drop(locked);
    }
}

/// The mount stays where it is, and says that nobody is behind it.
#[test]
fn a_daemon_that_is_killed_leaves_nobody_waiting() {
    for serving in Serving::ways() {
        let Some((mut daemon, place)) = Daemon::start(serving) else { continue };
        let readers = readers(&place.root().join("held"));
        until("the requests", || (place.waiting() >= READERS).then_some(()));
        daemon.0.kill().unwrap();
        let_go(readers);
        let gone = fs::metadata(place.root()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOTCONN));
        segue_fuse::detach(&place.root()).unwrap();
    }
}

#[test]
fn a_test_that_fails_leaves_no_mount() {
    for serving in Serving::ways() {
        let Some((mounted, _locked)) = holding(serving) else { continue };
        let (root, connections) = (mounted.root(), mounted.beside("connections"));
        let readers = readers(&mounted.path("held"));
        until("the requests", || (waiting(&mounted).0 == READERS).then_some(()));
        let failed = catch_unwind(AssertUnwindSafe(move || {
            let _mounted = mounted;
            panic!("as a test wants it");
        }));
        assert!(failed.is_err());
        let_go(readers);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        for gone in [root, connections] {
            assert!(!mounts.contains(gone.to_str().unwrap()), "{}", gone.display());
            assert!(!gone.exists(), "{}", gone.display());
        }
    }
}

/// A process that serves; killed when dropped.
pub(crate) struct Daemon(pub(crate) Child);

impl Daemon {
    /// It has a file `held`, whose reads are never answered.
    pub(crate) fn start(serving: Serving) -> Option<(Daemon, Mountpoint)> {
        if !can_mount() || serving.wishes.uring && !Serving::has_uring() {
            return None;
        }
        let place = Mountpoint::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ends::daemon", "--ignored"]).env(POINT, place.root());
        if serving.wishes.uring {
            command.env(URING, "1");
        }
        let daemon = command.stdout(Stdio::null()).spawn().unwrap();
        until("the mount", || place.number());
        Some((Daemon(daemon), place))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "the process that another test kills"]
fn daemon() {
    let point = PathBuf::from(std::env::var_os(POINT).expect("a test starts it"));
    let is_uring = std::env::var_os(URING).is_some();
    let serving = if is_uring { Serving::uring() } else { Serving::default() };
    let files = Arc::new(Hooked::new(Box::new(hold_reads)));
    let kind = Kind::File(Data::default());
    let me = Caller { uid: 0, gid: 0 };
    files.memory.state().tree.create(ROOT, b"held", kind, libc::S_IFREG | HELD, me).unwrap();
    let session = begin(&point, &files, serving).unwrap();
    session.run(serving.threads).unwrap();
}
