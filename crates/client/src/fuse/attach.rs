//! Putting the file system into the tree: root calls mount(2), a user has fusermount3 do it.
//!
//! fuser's own way for root knows no subtype, and the mount list must say `fuse.segue`: that is
//! how the commands find mounts.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{MountFlags, mount};
use segue_core::types::Role;

use super::Front;
use crate::mount::Shared;

/// Mounts at `mountpoint`, shakes hands with the kernel and returns the session.
pub(super) fn attach(front: Front, mountpoint: &Path) -> io::Result<Session<Front>> {
    let shared = Shared::clone(&front.mount);
    if !rustix::process::geteuid().is_root() {
        return Session::new(front, mountpoint, &config(&shared, user_options(&shared)));
    }
    let device: OwnedFd = File::options().read(true).write(true).open("/dev/fuse")?.into();
    mount_as_root(&shared, &device, mountpoint)?;
    let config = config(&shared, Vec::new());
    Session::from_fd(front, device, config.acl, config).inspect_err(|_| {
        // The handshake failed: what was mounted must not stay.
        if let Err(error) = crate::mount::detach(mountpoint) {
            tracing::warn!("{}: {error}", mountpoint.display());
        }
    })
}

fn is_read_only(mount: &Shared) -> bool {
    mount.options.read_only || mount.owner.role == Role::Reader
}

fn config(mount: &Shared, options: Vec<MountOption>) -> Config {
    let mut config = Config::default();
    config.mount_options = options;
    config.acl = if mount.options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}

fn user_options(mount: &Shared) -> Vec<MountOption> {
    vec![
        MountOption::FSName(mount.url.clone()),
        MountOption::Subtype("segue".into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        if is_read_only(mount) { MountOption::RO } else { MountOption::RW },
    ]
}

fn mount_as_root(shared: &Shared, device: &OwnedFd, mountpoint: &Path) -> io::Result<()> {
    let mut flags = MountFlags::empty();
    // Who speaks for one user only has no business with devices and set-user-id programs.
    if shared.owner.role != Role::Host {
        flags |= MountFlags::NODEV | MountFlags::NOSUID;
    }
    if is_read_only(shared) {
        flags |= MountFlags::RDONLY;
    }
    let fd = device.as_raw_fd();
    let (uid, gid) = (shared.owner.uid, shared.owner.gid);
    let other = if shared.options.allow_other { ",allow_other" } else { "" };
    let data =
        format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions{other}");
    let data = CString::new(data)?;
    Ok(mount(shared.url.as_str(), mountpoint, "fuse.segue", flags, data.as_c_str())?)
}
