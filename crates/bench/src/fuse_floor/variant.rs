//! The file systems under test, and how each is mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::course::Course;
use super::libfuse;
use segue_bed::peer::{still_runs, wait_until};
use segue_bed::segue::is_mounted;
use segue_bed::{Doing, Error, FuseUring, Host, Proc, Result, run};

/// A file system under test.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether it is measured when nobody names it; those that are not answer one question.
    pub usual: bool,
    server: Server,
}

#[derive(Debug, Clone, Copy)]
enum Server {
    Plain,
    /// The mirror, with its options.
    Binding(&'static [&'static str]),
    Fuser,
    Libfuse,
}

const fn binding(
    name: &'static str,
    about: &'static str,
    usual: bool,
    options: &'static [&'static str],
) -> Variant {
    Variant { name, about, usual, server: Server::Binding(options) }
}

/// Every file system that can be measured, in the order of reports.
pub const ALL: &[Variant] = &[
    Variant { name: "ext4", about: "the plain directory", usual: true, server: Server::Plain },
    Variant {
        name: "fuser",
        about: "fuser's mirror, one thread",
        usual: true,
        server: Server::Fuser,
    },
    Variant {
        name: "libfuse",
        about: "Debian's passthrough_ll, cache=always",
        usual: true,
        server: Server::Libfuse,
    },
    binding("binding", "Segue's binding, one thread", true, &[]),
    binding("binding-2", "two threads", true, &["--threads", "2"]),
    binding("binding-uring", "requests over io_uring", true, &["--uring"]),
    binding("binding-passthrough", "the kernel reads and writes", true, &["--passthrough"]),
    binding("binding-flush", "FLUSH is answered each time", false, &["--flush", "answer"]),
    binding("binding-noflush", "FOPEN_NOFLUSH", false, &["--flush", "noflush"]),
    binding("binding-no-killpriv", "without HANDLE_KILLPRIV_V2", false, &["--no-killpriv"]),
    binding("binding-no-open", "files have no handles", false, &["--no-open"]),
    binding(
        "binding-uring-passthrough",
        "io_uring, and the kernel reads and writes",
        false,
        &["--uring", "--passthrough"],
    ),
];

/// A mounted file system; no longer when dropped.
#[derive(Debug)]
pub(super) struct Mounted {
    dir: PathBuf,
    daemon: Option<Proc>,
    uring: Option<FuseUring>,
}

impl Mounted {
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        // Busy at worst, and then it goes with its daemon.
        let _ = run(Command::new("umount").arg("-l").arg(&self.dir));
        // It ends when its mount does, and is killed if it does not.
        let _ = wait_until("the end of a file system", Duration::from_secs(5), || {
            Ok(daemon.try_wait().doing("wait")?.is_some())
        });
        self.uring.take();
    }
}

impl Variant {
    /// The variant called `name`.
    pub fn named(name: &str) -> Option<Variant> {
        ALL.iter().copied().find(|variant| variant.name == name)
    }

    /// Mounts it over the course's tree; the kernel may rely for `ttl` seconds on what it is
    /// told.
    pub(super) fn mount(&self, course: &Course, ttl: u64) -> Result<Mounted> {
        if matches!(self.server, Server::Plain) {
            return Ok(Mounted { dir: course.source.clone(), daemon: None, uring: None });
        }
        let uring = match self.server {
            Server::Binding(options) if options.contains(&"--uring") => Some(FuseUring::offer()?),
            _ => None,
        };
        let dir = course.host.mkdir("mnt")?;
        let mut command = self.command(&course.host, (&course.source, &dir), ttl)?;
        let daemon = Some(course.host.spawn(command.stdin(Stdio::null()))?);
        let mut mounted = Mounted { dir, daemon, uring };
        let Mounted { dir, daemon, .. } = &mut mounted;
        wait_until("not mounted", Duration::from_secs(10), || {
            if let Some(daemon) = daemon {
                still_runs(daemon, self.name)?;
            }
            Ok(is_mounted(dir))
        })?;
        // The handshake is over when the mount answers.
        fs::metadata(mounted.dir()).doing("see the mount")?;
        Ok(mounted)
    }

    fn command(&self, host: &Host, (source, dir): (&Path, &Path), ttl: u64) -> Result<Command> {
        let us = std::env::current_exe().doing("find segue-bench")?;
        let ttl = ttl.to_string();
        let ours = |word: &str, options: &[&str]| {
            let mut command = host.command(&us);
            command.arg(word).args(options).args(["--ttl", &ttl]).arg(source).arg(dir);
            command
        };
        Ok(match self.server {
            Server::Plain => return Err(Error::Unavailable("not a mount".into())),
            Server::Fuser => ours("fuse-floor", &[]),
            Server::Binding(options) => ours("mirror", options),
            Server::Libfuse => {
                let mut command = host.command(libfuse::build(host.dir())?);
                let cache = if ttl == "0" { "auto" } else { "always" };
                let options = format!(
                    "source={},cache={cache},timeout={ttl},allow_other,default_permissions",
                    source.display()
                );
                command.args(["-f", "-o", &options]).arg(dir);
                command
            }
        })
    }
}
