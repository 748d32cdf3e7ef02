//! A host: a network namespace, an access link and a home directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::error::{Doing, Result, run};
use super::link::{Cable, LinkSpec};
use super::netns::NetNs;
use super::process::Proc;

/// A host of a bed; clones are the same host. It is of no use after its bed is gone.
#[derive(Debug, Clone)]
pub struct Host {
    inner: Arc<Inner>,
    /// The program under test.
    segue: Arc<Path>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    ns: NetNs,
    cable: Cable,
    dir: PathBuf,
    home: PathBuf,
}

impl Host {
    pub(crate) fn make(
        name: &str,
        ns: NetNs,
        cable: Cable,
        dir: PathBuf,
        segue: PathBuf,
    ) -> Result<Host> {
        let home = dir.join("home");
        fs::create_dir_all(&home).doing(format!("make {}", home.display()))?;
        let inner = Arc::new(Inner { name: name.into(), ns, cable, dir, home });
        Ok(Host { inner, segue: segue.into() })
    }

    /// The same host with another `segue` program.
    pub(crate) fn with_segue(&self, program: &Path) -> Host {
        Host { inner: Arc::clone(&self.inner), segue: program.into() }
    }

    /// Its name on the bed.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its address.
    pub fn addr(&self) -> Ipv4Addr {
        self.inner.cable.addr()
    }

    /// The home directory of the programs that run here.
    pub fn home(&self) -> &Path {
        &self.inner.home
    }

    /// A directory of the host's, for what is not in its home.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Makes the directory `name` of this host; what is mounted there goes with the bed.
    pub fn mkdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.inner.dir.join(name);
        match fs::create_dir_all(&path) {
            // It is there, and a dead mount on it cannot be looked at.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(path),
            made => made.doing(format!("make {}", path.display())).map(|()| path),
        }
    }

    /// A command that runs `program` on this host: its network, its HOME, no XDG or Segue
    /// settings of ours. `segue` is the program under test.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let program = program.as_ref();
        // Not `ip netns exec`: it unshares mounts, and nobody else would see what it mounts.
        let mut command = Command::new("nsenter");
        let mut door = std::ffi::OsString::from("--net=");
        door.push(self.inner.ns.path());
        command.arg(door).arg("--");
        command.arg(if program == "segue" { self.segue.as_os_str() } else { program });
        for (key, _) in std::env::vars_os().filter(|(key, _)| is_setting(key)) {
            command.env_remove(key);
        }
        command.env("HOME", self.home()).current_dir(self.home());
        // What is free on the disk below the bed is not what is tested or measured.
        command.env("SEGUE_CACHE_MIN_FREE", "0%");
        command
    }

    /// Starts `command`, made by [`Host::command`].
    pub fn spawn(&self, command: &mut Command) -> Result<Proc> {
        let what = format!("start {command:?} on {}", self.inner.name);
        Ok(Proc::new(command.spawn().doing(what)?))
    }

    /// Runs `program` with `args` here to its end and returns its standard output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        run(self.command(program).args(args))
    }

    /// Runs `work` on a thread in this host's network: sockets opened there belong to it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.inner.ns.enter(work)
    }

    /// Its link as set last.
    pub fn link(&self) -> LinkSpec {
        self.inner.cable.link()
    }

    /// Changes its link, under running connections.
    pub fn set_link(&self, link: LinkSpec) -> Result<()> {
        self.inner.cable.set_link(link)
    }

    /// Cuts its link: from now on packets vanish silently.
    pub fn link_down(&self) -> Result<()> {
        self.inner.cable.set_down(true)
    }

    /// Mends its link.
    pub fn link_up(&self) -> Result<()> {
        self.inner.cable.set_down(false)
    }

    /// Gives it another address, as another network does; its link must need no relay.
    pub fn move_to(&self, addr: Ipv4Addr) -> Result<()> {
        self.inner.cable.move_to(addr)
    }

    /// Bytes that its link has carried away from it so far, packet headers included.
    pub fn tx_bytes(&self) -> Result<u64> {
        Ok(self.inner.ns.counters()?.tx)
    }

    /// Bytes that its link has brought so far, packet headers included.
    pub fn rx_bytes(&self) -> Result<u64> {
        Ok(self.inner.ns.counters()?.rx)
    }

    /// Bytes of packets that its link has carried from it and to it, what was lost on the way
    /// included and what the queue dropped not; none while its link needs no relay.
    pub fn carried(&self) -> Option<[u64; 2]> {
        self.inner.cable.carried()
    }

    /// Notes for the reaper what sockets programs here listen on, before they are killed.
    pub(crate) fn note_sockets(&self) -> Result<()> {
        let table = self.enter(|| fs::read_to_string("/proc/thread-self/net/unix"))?;
        let table = table.doing("read /proc/thread-self/net/unix")?;
        let paths: String = listening(&table).map(|path| format!("{path}\n")).collect();
        let notes = self.inner.dir.with_file_name("sockets");
        let file = File::options().create(true).append(true).open(notes);
        file.and_then(|mut file| file.write_all(paths.as_bytes())).doing("note sockets")
    }

    pub(crate) fn cut(&self) {
        self.inner.cable.cut();
    }
}

/// Paths of the sockets of a `/proc/net/unix` at which somebody listens. The table also has the
/// other end of each connection that was made from here, with the path of another bed's socket.
fn listening(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let path = fields.get(7).filter(|path| path.starts_with('/'))?;
        (fields.get(3) == Some(&"00010000")).then_some(*path)
    })
}

/// Whether an environment variable would carry settings of the outer world onto a host.
fn is_setting(key: &OsStr) -> bool {
    let key = key.to_string_lossy();
    let segue = key.starts_with("SEGUE_") && key != "SEGUE_LOG";
    segue || key.starts_with("XDG_") || key.starts_with("RCLONE_") || key.starts_with("SSH_")
}
