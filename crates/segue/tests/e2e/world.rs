//! What most tests begin with: a server, and two hosts that can mount its volume.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::disk::Disk;
use segue_bed::segue::{SegueMount, SegueServer};
use segue_bed::{Bed, Host, run};

use crate::sample::is_long;

/// Longest that a test waits for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a kernel is told anything that may change without a word.
pub(crate) const STALE: Duration = Duration::from_millis(1500);
/// For what is promised between hosts, or when a close returns; all else runs as mounts do by
/// default.
pub(crate) const CLOSE: &str = "write-back=close";
/// A test that takes this long hangs: its mounts are aborted, so that it fails.
const TEST_MAX: Duration = Duration::from_secs(480);

/// A server and two hosts on a bed of their own.
pub(crate) struct World {
    _watchdog: Sender<()>,
    pub(crate) server: SegueServer,
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) serving: Host,
    pub(crate) bed: Bed,
    invitation: &'static [&'static str],
    enrolled: Mutex<BTreeSet<String>>,
}

impl World {
    /// A world, or none where `SEGUE_SKIP_E2E=1` allows to do without.
    pub(crate) fn new() -> Option<World> {
        World::invited(&[])
    }

    /// A world whose hosts are let in by `segue invite` with these arguments.
    pub(crate) fn invited(invitation: &'static [&'static str]) -> Option<World> {
        World::serving(invitation, |host| host.dir().join("data"))
    }

    /// A world whose server has its data where `data` says.
    pub(crate) fn storing(data: impl FnOnce(&Host) -> PathBuf) -> Option<World> {
        World::serving(&[], data)
    }

    /// A world whose server has its data on a disk that records.
    pub(crate) fn recorded() -> Option<(World, Arc<Disk>)> {
        let mut disk = None;
        let world = World::serving(&[], |host| {
            let point = host.mkdir("disk").unwrap();
            disk = Some(Arc::new(Disk::mount(&point).unwrap()));
            point.join("data")
        })?;
        Some((world, disk.unwrap()))
    }

    fn serving(
        invitation: &'static [&'static str],
        data: impl FnOnce(&Host) -> PathBuf,
    ) -> Option<World> {
        let bed = Bed::for_test()?;
        // Other users of a test have no way into the directory it is built in.
        let program = bed.dir().join("segue");
        let built = env!("CARGO_BIN_EXE_segue");
        // Another name costs nothing, but on another disk there is none.
        if std::fs::hard_link(built, &program).is_err() {
            std::fs::copy(built, &program).unwrap();
        }
        bed.use_segue(program);
        let serving = bed.host("server").unwrap();
        let (a, b) = (bed.host("a").unwrap(), bed.host("b").unwrap());
        let server = SegueServer::start(&serving, &data(&serving)).unwrap();
        let enrolled = Mutex::default();
        let _watchdog = watch_over(bed.dir());
        Some(World { _watchdog, server, a, b, serving, bed, invitation, enrolled })
    }

    /// Mounts volume home on `host`, which is enrolled the first time.
    pub(crate) fn mount(&self, host: &Host) -> SegueMount {
        self.mount_with(host, "")
    }

    /// Two hosts of which one opens what the other has closed.
    pub(crate) fn closing_mounts(&self) -> (SegueMount, SegueMount) {
        (self.mount_with(&self.a, CLOSE), self.mount_with(&self.b, CLOSE))
    }

    /// The same as [`World::mount`], with mount options.
    pub(crate) fn mount_with(&self, host: &Host, options: &str) -> SegueMount {
        let url = self.url(host);
        let point = host.mkdir("mnt").unwrap();
        let args: &[&str] = if options.is_empty() { &[] } else { &["-o", options] };
        SegueMount::new(host, &url, &point, args).unwrap()
    }

    /// What `host` mounts: an invite the first time.
    pub(crate) fn url(&self, host: &Host) -> String {
        let is_new = self.enrolled.lock().unwrap().insert(host.name().to_owned());
        match is_new {
            true => self.server.invite(self.invitation).unwrap(),
            false => self.server.url("home"),
        }
    }

    /// Has `mount` of `host`, whose link was cut, lose its connection now rather than after 20
    /// silent seconds, here and at the server, and waits until it says that it is offline.
    pub(crate) fn lose_link(&self, host: &Host, mount: &SegueMount) {
        let (address, data) = (host.addr().to_string(), arg(self.server.data()));
        let args = ["lose-link", arg(mount.path()), "--address", &address, "--data", data];
        let lost = segue(host, &args);
        assert_eq!(lost.code, Some(0), "{lost:?}");
        wait_for_state(host, mount, "offline");
    }

    /// Unmounts `mount` of `host` and mounts again.
    pub(crate) fn remount(&self, host: &Host, mut mount: SegueMount) -> SegueMount {
        mount.umount(&[]).unwrap();
        drop(mount);
        self.mount(host)
    }

    /// A shell script that runs a command in a mount namespace of its own, without the mounts of
    /// other tests and of who runs the tests: these would be held by it, or would be asked by
    /// `segue status` and the like.
    pub(crate) fn alone(&self) -> PathBuf {
        let (path, top) = (self.bed.dir().join("alone"), self.bed.dir().display());
        let script = format!(
            r#"exec unshare -m --propagation private sh -euc '
                awk "\$5 ~ /segue-bed-/ || / - fuse.segue / {{ print \$5 }}" /proc/self/mountinfo |
                    grep -v "^{top}/" | xargs -r -n1 umount -l 2>&- || :
                exec "$@"' sh "$@"
"#
        );
        std::fs::write(&path, script).unwrap();
        path
    }

    /// A directory outside of the mounts.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        let path = self.bed.dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Aborts every mount under `dir` when the sender does not go away in time: whoever hangs in
/// one of them gets an error, and the test fails.
fn watch_over(dir: &Path) -> Sender<()> {
    let (alive, watched) = channel::<()>();
    let dir = dir.to_owned();
    let longest = if is_long() { 10 * TEST_MAX } else { TEST_MAX };
    std::thread::spawn(move || {
        if watched.recv_timeout(longest) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        eprintln!("{}: the test hangs, aborting its mounts", dir.display());
        let below = format!("{}/", dir.display());
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| point.starts_with(&below)) {
            Command::new("umount").args(["-f", "-l", point]).status().ok();
        }
    });
    alive
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `command` to its end, whatever that is.
pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits until the server has every change of `mount` that it does not refuse.
pub(crate) fn settle(host: &Host, mount: &SegueMount) {
    let ended = segue(host, &["sync", "--wait", arg(mount.path())]);
    assert!(matches!(ended.code, Some(0 | 7)), "{ended:?}");
}

/// Runs `segue` with `args` on `host`. Not for what leaves a daemon behind.
pub(crate) fn segue(host: &Host, args: &[&str]) -> Ended {
    end(host.command("segue").args(args))
}

/// Runs `segue mount` with `args`, which is expected to fail.
pub(crate) fn failing_mount(host: &Host, args: &[&str]) -> Ended {
    let ended = segue(host, &[&["mount"], args].concat());
    assert_ne!(ended.code, Some(0), "mount {args:?} succeeded: {ended:?}");
    ended
}

/// Runs a shell script in `dir` and returns what it prints.
pub(crate) fn sh(dir: &Path, script: &str) -> String {
    run(Command::new("sh").args(["-euc", script]).current_dir(dir)).unwrap()
}

/// Waits until `is_so`.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "within {PATIENCE:?} not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stops `process`. Returns once none of its threads runs: a signal takes its time.
pub(crate) fn halt(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let is_halted = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        std::io::Result::Ok(stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    };
    eventually("the process has stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
        threads.unwrap().all(|thread| is_halted(thread).unwrap_or(false))
    });
}

/// The errno of a failed call.
pub(crate) fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// A path as an argument of a program.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes or replaces a file; Ok only if close(2) said so too.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    close(file)
}

/// close(2) with its answer, which dropping a file does not give.
#[allow(unsafe_code)]
pub(crate) fn close(file: std::fs::File) -> std::io::Result<()> {
    // SAFETY: the descriptor was given up by its only owner.
    unsafe { rustix::io::try_close(file.into_raw_fd())? };
    Ok(())
}

/// The value in `segue metrics` of `name` with these `labels`, as they are written there.
pub(crate) fn measured(text: &str, name: &str, labels: &str) -> f64 {
    written(text, name, labels).parse().unwrap()
}

/// The same of what is counted.
pub(crate) fn counted(text: &str, name: &str, labels: &str) -> u64 {
    written(text, name, labels).trim_end_matches(".0").parse().unwrap()
}

fn written<'a>(text: &'a str, name: &str, labels: &str) -> &'a str {
    let is_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
    };
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{name} {labels}: {text}"));
    line.rsplit_once(' ').unwrap().1
}

/// What `segue COMMAND --json` says.
pub(crate) fn json(host: &Host, args: &[&str]) -> serde_json::Value {
    let ended = segue(host, &[args, &["--json"]].concat());
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// True if the server has contents of the file at `path`. Its size may be that of another host.
pub(crate) fn has_data(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.blocks() > 0)
}

/// Waits until `mount` of `host` says that it is `online` or `offline`.
pub(crate) fn wait_for_state(host: &Host, mount: &SegueMount, state: &str) {
    eventually(&format!("the mount is {state}"), || {
        json(host, &["status", arg(mount.path())])["mounts"][0]["state"] == state
    });
}
