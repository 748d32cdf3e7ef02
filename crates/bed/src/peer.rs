//! The file systems under test, each started afresh for each measurement.

mod juicefs;
mod local;
mod moosefs;
mod rclone;
mod rsync;
mod segue;
mod sshd;
mod sshfs;
pub mod system;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Bed, Doing, Error, Host, Proc, Result, run};

/// The hosts of one measurement.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Where the data is served.
    pub server: Host,
    /// Where the file system is mounted and measured.
    pub client: Host,
    /// Another client, on an unlimited link, to write what must be there before.
    pub seeder: Host,
}

impl Stage {
    /// New hosts on `bed`.
    pub fn on(bed: &Bed) -> Result<Stage> {
        let [server, client, seeder] = ["server", "client", "seeder"].map(|name| bed.host(name));
        Ok(Stage { server: server?, client: client?, seeder: seeder? })
    }
}

/// A running file system under test. It ends with its bed.
pub trait Peer {
    /// Has `write` write into the file system's root, past the client that is measured.
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()>;

    /// Mounts it on the client, whose caches are empty, and returns where.
    fn mount(&mut self) -> Result<PathBuf>;

    /// Takes it out of the client's tree; its caches on disk stay, and it can be mounted again.
    fn umount(&mut self) -> Result<()>;

    /// Returns when the server has every change made on the client.
    fn drain(&mut self) -> Result<()>;

    /// Changes that the server does not have yet, if it says so.
    fn pending(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// A kind of file system that can be measured.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether the link lies between the client and the data.
    pub remote: bool,
    start: fn(&Stage) -> Result<Box<dyn Peer>>,
}

impl Kind {
    /// Starts its server, where it has one.
    pub fn start(&self, stage: &Stage) -> Result<Box<dyn Peer>> {
        (self.start)(stage)
    }
}

/// Every file system that can be measured, in the order of reports.
pub fn all() -> &'static [Kind] {
    &[
        Kind {
            name: "local",
            about: "a plain directory: what no file system beats",
            remote: false,
            start: |stage| Ok(Box::new(local::Local::new(stage)?)),
        },
        Kind {
            name: "fuse-floor",
            about: "a mirror that does nothing, over fuser: what FUSE itself takes",
            remote: false,
            start: |stage| Ok(Box::new(local::Floor::new(stage, &["fuse-floor"])?)),
        },
        Kind {
            name: "segue",
            about: "Segue with its default options",
            remote: true,
            start: |stage| segue_with(stage, &[]),
        },
        Kind {
            name: "segue-async",
            about: "Segue, -o write-back=async",
            remote: true,
            start: |stage| segue_with(stage, &["-o", "write-back=async"]),
        },
        Kind {
            name: "sshfs",
            about: "sshfs with its default options",
            remote: true,
            start: |stage| Ok(Box::new(sshfs::Sshfs::new(stage, &[])?)),
        },
        Kind {
            name: "rclone",
            about: "rclone mount over SFTP, --vfs-cache-mode full",
            remote: true,
            start: |stage| Ok(Box::new(rclone::Rclone::new(stage)?)),
        },
    ]
}

/// No file system: a directory that is brought to the server by rsync.
pub const RSYNC: Kind = Kind {
    name: "rsync",
    about: "rsync over ssh, from a local directory",
    remote: true,
    start: |stage| Ok(Box::new(rsync::Rsync::new(stage)?)),
};

/// Another build of Segue, to see what a change costs. The variable `SEGUE_BEFORE` names the
/// program.
const BEFORE: Kind = Kind {
    name: "segue-before",
    about: "another build of Segue: the program that SEGUE_BEFORE names",
    remote: true,
    start: |stage| {
        let program = std::env::var_os("SEGUE_BEFORE");
        let program =
            program.ok_or_else(|| Error::Wrong("SEGUE_BEFORE names no program".into()))?;
        let other = |host: &Host| host.with_segue(Path::new(&program));
        let Stage { server, client, seeder } = stage;
        let [server, client, seeder] = [server, client, seeder].map(other);
        segue_with(&Stage { server, client, seeder }, &[])
    },
};

/// A mirror over Segue's own binding. It gets the same requests as Segue, also FLUSH at each close.
fn floor_with(stage: &Stage, mirror: &'static [&'static str]) -> Result<Box<dyn Peer>> {
    Ok(Box::new(local::Floor::new(stage, mirror)?))
}

/// File systems that are measured where they are named: floors, and others that cache and validate.
pub fn more() -> &'static [Kind] {
    &[
        BEFORE,
        Kind {
            name: "floor",
            about: "a mirror that does nothing, over Segue's own binding, for the same requests",
            remote: false,
            start: |stage| floor_with(stage, &["mirror", "--flush", "answer"]),
        },
        Kind {
            name: "floor-uring",
            about: "the same over io_uring",
            remote: false,
            start: |stage| floor_with(stage, &["mirror", "--flush", "answer", "--uring"]),
        },
        Kind {
            name: "segue-uring",
            about: "Segue, -o io-uring",
            remote: true,
            start: |stage| segue_with(stage, &["-o", "io-uring"]),
        },
        Kind {
            name: "sshfs-cached",
            about: "sshfs, -o auto_cache: the kernel keeps the pages of files with the same time",
            remote: true,
            start: |stage| Ok(Box::new(sshfs::Sshfs::new(stage, &["-o", "auto_cache"])?)),
        },
        Kind {
            name: "moosefs",
            about: "MooseFS, a master and one chunk server",
            remote: true,
            start: |stage| Ok(Box::new(moosefs::MooseFs::new(stage)?)),
        },
        Kind {
            name: "juicefs",
            about: "JuiceFS with names and data in Redis",
            remote: true,
            start: |stage| Ok(Box::new(juicefs::JuiceFs::new(stage)?)),
        },
    ]
}

/// The file system called `name`.
pub fn named(name: &str) -> Option<Kind> {
    all().iter().chain(more()).copied().find(|kind| kind.name == name)
}

/// Segue, mounted with `options`.
pub fn segue_with(stage: &Stage, options: &[&str]) -> Result<Box<dyn Peer>> {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    Ok(Box::new(segue::Segue::new(stage, &options, &[])?))
}

/// Bytes from the client on its link, of the local file `archive` by zstd and ssh.
pub fn shipped_bytes(stage: &Stage, archive: &Path) -> Result<u64> {
    let sshd = sshd::Sshd::start(stage)?;
    let before = stage.client.tx_bytes()?;
    let sshd::Sshd { key, known_hosts, host, port, .. } = &sshd;
    let mut pipe = stage.client.command("sh");
    pipe.args(["-c", "archive=$1; shift; zstd -q -c \"$archive\" | \"$@\"", "sh"]).arg(archive);
    pipe.args(["ssh", "-F", "/dev/null", "-p", port, "-i"]).arg(key);
    pipe.arg("-o").arg(format!("UserKnownHostsFile={}", known_hosts.display()));
    pipe.arg(format!("root@{host}")).arg("cat > /dev/null");
    run(&mut pipe)?;
    Ok(stage.client.tx_bytes()? - before)
}

/// Takes what is mounted at `point` of `host` out of its tree.
fn umount(host: &Host, point: &Path) -> Result<()> {
    run(host.command("umount").arg(point)).map(drop)
}

/// Asks every 10 ms until `done` says so.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done()? {
        if Instant::now() > deadline {
            return Err(Error::TimedOut(what.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until `process` has ended, which was asked of it.
fn ended(process: Option<Proc>, name: &str) -> Result<()> {
    process.map_or(Ok(()), |mut process| process.wait().doing(name).map(drop))
}

/// An error if `process` has ended, which nobody asked of it.
pub fn still_runs(process: &mut Proc, name: &str) -> Result<()> {
    match process.try_wait().doing(name)? {
        None => Ok(()),
        Some(status) => {
            Err(Error::Program { command: name.to_owned(), output: status.to_string() })
        }
    }
}
