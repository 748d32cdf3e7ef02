//! The test bed: hosts in network namespaces, joined by links of any quality; and on them
//! Segue, the file systems that it is compared with, and a disk that records.
//!
//! ```text
//!   server ──link──┐
//!   a ──────link── switch          every host: its own network, addresses 10.7.0.N,
//!   b ──────link──┘                its own HOME; all share the machine's files and kernel
//! ```
//!
//! Each host has one access link to the switch; what a packet meets is the sender's link, then
//! the receiver's. Programs run with [`Host::command`]; a closure with [`Host::enter`].
//!
//! Invariant: when a [`Bed`] has been dropped, and also after its process was killed, no
//! process, mount, namespace or file of it is left; the reaper sees to that.

pub mod disk;
mod error;
pub mod handles;
mod host;
mod lane;
mod link;
mod logs;
mod netns;
pub mod peer;
mod process;
mod reaper;
mod relay;
mod rng;
pub mod segue;
mod tcp;
mod tun;
mod uring;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

pub use self::error::{Doing, Error, Result, run, run_detaching};
pub use self::host::Host;
pub use self::link::LinkSpec;
use self::netns::NetNs;
pub use self::netns::{Counters, counters_here};
pub use self::process::Proc;
use self::reaper::Reaper;
pub use self::rng::Rng;
pub use self::tcp::TcpFlow;
pub use self::uring::FuseUring;

/// One test bed: a switch and the hosts on it.
#[derive(Debug)]
pub struct Bed {
    name: String,
    dir: PathBuf,
    switch: NetNs,
    seed: u64,
    segue: Mutex<Option<PathBuf>>,
    hosts: Mutex<Vec<Host>>,
    reaper: Reaper,
}

impl Bed {
    /// Makes a bed without hosts; [`Error::Unavailable`] says why this machine cannot.
    pub fn new() -> Result<Bed> {
        Bed::with_seed(1)
    }

    /// Makes a bed whose links take their chances from `seed`.
    pub fn with_seed(seed: u64) -> Result<Bed> {
        available()?;
        let (name, dir) = make_dir()?;
        let mut reaper = Reaper::start(&name, &dir)?;
        match make_switch(&name) {
            Ok(switch) => {
                let (segue, hosts) = (Mutex::default(), Mutex::default());
                Ok(Bed { name, dir, switch, seed, segue, hosts, reaper })
            }
            Err(error) => {
                reaper.finish();
                Err(Error::Unavailable(error.to_string()))
            }
        }
    }

    /// A bed for a test, or none where `SEGUE_SKIP_E2E=1` allows to do without.
    ///
    /// # Panics
    ///
    /// When there can be no bed here and nobody allowed that: a skipped test must not pass.
    pub fn for_test() -> Option<Bed> {
        match Bed::new() {
            Ok(bed) => Some(bed),
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                let allowed = std::env::var_os("SEGUE_SKIP_E2E").is_some_and(|value| value == "1");
                assert!(allowed, "SKIPPED: {error} (SEGUE_SKIP_E2E=1 lets this pass)");
                None
            }
        }
    }

    /// The `segue` program to run on the hosts, unless `SEGUE_BIN` names another.
    pub fn use_segue(&self, program: impl Into<PathBuf>) {
        *lock(&self.segue) = Some(program.into());
    }

    /// Adds a host on an unlimited link. Hosts find each other by [`Host::addr`].
    pub fn host(&self, name: &str) -> Result<Host> {
        self.host_with(name, LinkSpec::default())
    }

    /// Adds a host on `link`.
    pub fn host_with(&self, name: &str, link: LinkSpec) -> Result<Host> {
        let mut hosts = lock(&self.hosts);
        // 254 addresses, far more than a machine can carry hosts.
        let number = u8::try_from(hosts.len() + 1)
            .map_err(|_| Error::Unavailable("a bed has at most 255 hosts".into()))?;
        let segue = segue::binary(lock(&self.segue).as_deref());
        let ns = NetNs::create(format!("{}-{name}", self.name))?;
        let dir = self.dir.join(name);
        let seed = self.seed.wrapping_mul(256).wrapping_add(u64::from(number));
        let cable = link::Cable::lay(ns.clone(), self.switch.clone(), number, seed)?;
        let host = Host::make(name, ns, cable, dir, segue)?;
        hosts.push(host.clone());
        drop(hosts);
        host.set_link(link)?;
        Ok(host)
    }

    /// Ends whatever runs on its hosts. Their files stay for as long as the bed does.
    pub fn end_all(&mut self) -> Result<()> {
        for host in lock(&self.hosts).iter() {
            host.cut();
        }
        self.reaper.end_all()
    }

    /// The bed's own directory, which goes with it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for host in lock(&self.hosts).iter() {
            host.cut();
        }
        if std::thread::panicking() {
            logs::print_below(&self.dir);
        }
        self.reaper.finish();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the directory of a new bed, and names the bed after it. A machine that stopped at once
/// may have left beds of a process that had this process's number: their names are passed over.
fn make_dir() -> Result<(String, PathBuf)> {
    static BEDS: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("segue-bed-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        if NetNs::exists(&switch_of(&name)) {
            continue;
        }
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.doing(format!("make {}", dir.display()))?;
                return Ok((name, dir));
            }
        }
    }
}

fn switch_of(bed: &str) -> String {
    format!("{bed}-switch")
}

fn make_switch(bed: &str) -> Result<NetNs> {
    let switch = NetNs::create(switch_of(bed))?;
    link::make_switch(&switch)?;
    Ok(switch)
}

/// Checks what a bed needs of the machine.
fn available() -> Result<()> {
    let missing = |what: &str| Err(Error::Unavailable(what.into()));
    if !rustix::process::geteuid().is_root() {
        return missing("needs root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing("/dev/net/tun is missing");
    }
    for (tool, flag) in [("ip", "-V"), ("tc", "-V"), ("nsenter", "-V"), ("umount", "-V")] {
        if Command::new(tool).arg(flag).output().is_err() {
            return missing(&format!("the program {tool} is missing"));
        }
    }
    open_fuse_to_all().map_err(|error| Error::Unavailable(format!("/dev/fuse: {error}")))
}

/// Gives /dev/fuse the mode that udev gives it, for tests as other users.
fn open_fuse_to_all() -> std::io::Result<()> {
    fs::File::options().read(true).write(true).open("/dev/fuse")?;
    fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666))
}
