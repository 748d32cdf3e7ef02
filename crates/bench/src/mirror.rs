//! A mirror over Segue's own binding: the null file system that `fuse-floor` measures it with.
//!
//! Each request is the same system call on a source tree, and the kernel may keep what it was
//! told, as under promises. So what it takes beyond the plain directory is the binding's time
//! and the kernel's. It does what the [`floor`](crate::floor) does over another library; the two
//! are to stay comparable, call for call.
//!
//! Its source must be one file system, and it holds one descriptor for each inode that the
//! kernel knows.

mod calls;
mod counts;
mod files;
mod names;
mod nodes;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use segue_fuse::abi::init;
use segue_fuse::{FuseSession, MountOptions, Wishes, mount};

use self::calls::Mirror;

/// What FLUSH, which close(2) sends, is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Flush {
    /// Once with ENOSYS, and never asked again.
    Enosys,
    /// Not asked, because each open says so.
    Noflush,
    /// Each time, as a file system must that acts at close.
    Answer,
}

/// How to mirror: what is open in the use of the binding, each to be measured both ways.
#[derive(Clone, PartialEq, Eq, Debug, clap::Args)]
pub struct Options {
    /// Threads that read the device.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Requests come over io_uring.
    #[arg(long)]
    pub uring: bool,
    /// The kernel reads and writes the source's files by itself.
    #[arg(long)]
    pub passthrough: bool,
    /// Seconds for which the kernel may rely on names and attributes.
    #[arg(long, default_value_t = 3600)]
    pub ttl: u64,
    /// The answer to FLUSH.
    #[arg(long, value_enum, default_value = "enosys")]
    pub flush: Flush,
    /// Without HANDLE_KILLPRIV_V2: the kernel asks for security.capability before every write.
    #[arg(long)]
    pub no_killpriv: bool,
    /// OPEN and CREATE are answered with ENOSYS once: files have no handles.
    #[arg(long)]
    pub no_open: bool,
    /// Where to write, at the end, how many requests of each kind came and what they took.
    #[arg(long)]
    pub counts: Option<PathBuf>,
}

impl Options {
    fn wishes(&self) -> Wishes {
        let usual = Wishes::default();
        let mut flags = usual.flags
            | init::DO_READDIRPLUS
            | init::READDIRPLUS_AUTO
            | init::CACHE_SYMLINKS
            | init::HANDLE_KILLPRIV_V2;
        if self.no_killpriv {
            flags -= init::HANDLE_KILLPRIV_V2;
        }
        if self.no_open {
            flags |= init::NO_OPEN_SUPPORT;
        }
        // The source is no stacked file system.
        let stack_depth_max = u32::from(self.passthrough);
        Wishes { flags, stack_depth_max, uring: self.uring, ..usual }
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl)
    }
}

/// Mirrors `source` at `mountpoint` until it is unmounted.
pub fn serve(source: &Path, mountpoint: &Path, options: Options) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    // The kernel has applied the caller's umask already.
    rustix::process::umask(rustix::fs::Mode::empty());
    let (threads, wishes, counts) = (options.threads, options.wishes(), options.counts.clone());
    let mirror = Arc::new(Mirror::new(source, options)?);
    let as_what = MountOptions {
        source: source.display().to_string(),
        subtype: "segue-mirror".into(),
        allow_other: true,
        default_permissions: true,
        ..MountOptions::default()
    };
    let device = mount(mountpoint, &as_what)?;
    let session = FuseSession::begin(device, Arc::clone(&mirror), &wishes)?;
    if wishes.uring && !session.agreement().has(init::OVER_IO_URING) {
        return Err(io::Error::other("no requests over io_uring here"));
    }
    mirror.begin(session.notifier());
    session.run(threads)?;
    match counts {
        Some(path) => std::fs::write(path, mirror.counts.table()),
        None => Ok(()),
    }
}
