//! The floor: a FUSE file system that does nothing but mirror a directory.
//!
//! It is written over fuser, a library, and lets the kernel cache all it can, for nobody else
//! changes the source. What it takes is what FUSE itself takes, so no FUSE file system can be
//! expected to do much better than `fuse-floor` in a measurement. Its source must be one file
//! system, and it holds one descriptor for each inode that the kernel knows.

mod calls;
mod mirror;
mod nodes;

use std::io;
use std::path::Path;
use std::time::Duration;

use fuser::{Config, MountOption, SessionACL};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Mirrors `source` at `mountpoint` until it is unmounted.
///
/// The kernel may rely for `ttl` on what it is told: nobody else changes the source.
pub fn mount(source: &Path, mountpoint: &Path, ttl: Duration) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    // The kernel has applied the caller's umask already.
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.display().to_string()),
        MountOption::Subtype("segue-floor".into()),
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    fuser::mount(mirror::Mirror::new(source, ttl)?, mountpoint, &config)
}
